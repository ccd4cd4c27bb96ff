-- table
CREATE TABLE fence (
    resource   TEXT PRIMARY KEY,
    write_mark INTEGER NOT NULL,
    read_mark  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE fence_floor (
    only_row   INTEGER PRIMARY KEY CHECK (only_row = 1),
    floor      INTEGER NOT NULL,
    next_floor INTEGER NOT NULL,
    raised     INTEGER NOT NULL
) STRICT;
INSERT INTO fence_floor (only_row, floor, next_floor, raised) VALUES (1, -1, -1, unixepoch());

-- write
INSERT INTO fence (resource, write_mark, read_mark)
    SELECT :key, :number, -1 FROM fence_floor WHERE :number > floor
    ON CONFLICT (resource) DO UPDATE SET write_mark = excluded.write_mark
    WHERE excluded.write_mark >= fence.write_mark AND excluded.write_mark >= fence.read_mark;

-- read
INSERT INTO fence (resource, write_mark, read_mark)
    SELECT :key, -1, :number FROM fence_floor WHERE :number > floor
    ON CONFLICT (resource) DO UPDATE SET read_mark = max(fence.read_mark, excluded.read_mark)
    WHERE excluded.read_mark >= fence.write_mark;

-- forget
BEGIN IMMEDIATE;
DELETE FROM fence WHERE EXISTS (SELECT 1 FROM fence_floor
    WHERE raised <= unixepoch() - :seconds AND write_mark <= floor AND read_mark <= floor);
UPDATE fence_floor SET floor = next_floor, raised = unixepoch(),
    next_floor = max(next_floor, coalesce((SELECT max(max(write_mark, read_mark)) FROM fence), -1))
    WHERE raised <= unixepoch() - :seconds;
COMMIT;
