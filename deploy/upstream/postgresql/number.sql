-- table
CREATE TABLE fence (
    resource   text COLLATE "C" PRIMARY KEY,
    write_mark bigint NOT NULL,
    read_mark  bigint NOT NULL
);
CREATE TABLE fence_floor (
    only_row   boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    floor      bigint NOT NULL,
    next_floor bigint NOT NULL,
    raised     timestamptz NOT NULL
);
INSERT INTO fence_floor (floor, next_floor, raised) VALUES (-1, -1, now());

-- write
INSERT INTO fence (resource, write_mark, read_mark)
    SELECT CAST(:key AS text), CAST(:number AS bigint), -1 FROM fence_floor WHERE CAST(:number AS bigint) > floor
    ON CONFLICT (resource) DO UPDATE SET write_mark = excluded.write_mark
    WHERE excluded.write_mark >= fence.write_mark AND excluded.write_mark >= fence.read_mark;

-- read
INSERT INTO fence (resource, write_mark, read_mark)
    SELECT CAST(:key AS text), -1, CAST(:number AS bigint) FROM fence_floor WHERE CAST(:number AS bigint) > floor
    ON CONFLICT (resource) DO UPDATE SET read_mark = greatest(fence.read_mark, excluded.read_mark)
    WHERE excluded.read_mark >= fence.write_mark;

-- forget
BEGIN;
DELETE FROM fence USING fence_floor
    WHERE raised <= now() - make_interval(secs => :seconds) AND write_mark <= floor AND read_mark <= floor;
UPDATE fence_floor SET floor = next_floor, raised = now(),
    next_floor = greatest(next_floor, (SELECT max(greatest(write_mark, read_mark)) FROM fence))
    WHERE raised <= now() - make_interval(secs => :seconds);
COMMIT;
