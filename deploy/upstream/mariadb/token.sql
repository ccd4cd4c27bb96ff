-- table
CREATE TABLE fence (
    resource   VARCHAR(512) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    write_mark VARCHAR(37) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
    read_mark  VARCHAR(37) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
    claims     BIGINT UNSIGNED NOT NULL DEFAULT 0
) ENGINE = InnoDB;
CREATE TABLE fence_floor (
    only_row   TINYINT NOT NULL PRIMARY KEY DEFAULT 1 CHECK (only_row = 1),
    floor      VARCHAR(37) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    next_floor VARCHAR(37) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    raised     DATETIME NOT NULL
) ENGINE = InnoDB;
INSERT INTO fence_floor (floor, next_floor, raised) VALUES ('', '', utc_timestamp());

-- row
INSERT INTO fence (resource) VALUES (:key) ON DUPLICATE KEY UPDATE resource = resource;

-- write
UPDATE fence SET write_mark = :token, claims = claims + 1
    WHERE resource = :key AND write_mark < :token AND read_mark < :token
    AND EXISTS (SELECT 1 FROM fence_floor WHERE floor < :token);

-- read
UPDATE fence SET read_mark = greatest(read_mark, :token), claims = claims + 1
    WHERE resource = :key AND write_mark < :token
    AND EXISTS (SELECT 1 FROM fence_floor WHERE floor < :token);

-- forget
START TRANSACTION;
DELETE FROM fence WHERE EXISTS (SELECT 1 FROM fence_floor
    WHERE raised <= utc_timestamp() - INTERVAL :seconds SECOND AND write_mark <= floor AND read_mark <= floor);
UPDATE fence_floor SET floor = next_floor,
    next_floor = greatest(next_floor, coalesce((SELECT max(greatest(write_mark, read_mark)) FROM fence), '')),
    raised = utc_timestamp()
    WHERE raised <= utc_timestamp() - INTERVAL :seconds SECOND;
COMMIT;
