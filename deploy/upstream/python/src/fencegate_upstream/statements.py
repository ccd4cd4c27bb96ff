"""The statements of the recipes, as they stand in `deploy/upstream`; a test holds them together."""

POSTGRESQL = {
    ("token", "write"): """
INSERT INTO fence (resource, write_mark, read_mark)
    SELECT CAST(:key AS text), CAST(:token AS text), '' FROM fence_floor WHERE CAST(:token AS text) > floor
    ON CONFLICT (resource) DO UPDATE SET write_mark = excluded.write_mark
    WHERE excluded.write_mark > fence.write_mark AND excluded.write_mark > fence.read_mark;
""",
    ("token", "read"): """
INSERT INTO fence (resource, write_mark, read_mark)
    SELECT CAST(:key AS text), '', CAST(:token AS text) FROM fence_floor WHERE CAST(:token AS text) > floor
    ON CONFLICT (resource) DO UPDATE SET read_mark = greatest(fence.read_mark, excluded.read_mark)
    WHERE excluded.read_mark > fence.write_mark;
""",
    ("number", "write"): """
INSERT INTO fence (resource, write_mark, read_mark)
    SELECT CAST(:key AS text), CAST(:number AS bigint), -1 FROM fence_floor WHERE CAST(:number AS bigint) > floor
    ON CONFLICT (resource) DO UPDATE SET write_mark = excluded.write_mark
    WHERE excluded.write_mark >= fence.write_mark AND excluded.write_mark >= fence.read_mark;
""",
    ("number", "read"): """
INSERT INTO fence (resource, write_mark, read_mark)
    SELECT CAST(:key AS text), -1, CAST(:number AS bigint) FROM fence_floor WHERE CAST(:number AS bigint) > floor
    ON CONFLICT (resource) DO UPDATE SET read_mark = greatest(fence.read_mark, excluded.read_mark)
    WHERE excluded.read_mark >= fence.write_mark;
""",
}

SQLITE = {
    ("token", "write"): """
INSERT INTO fence (resource, write_mark, read_mark)
    SELECT :key, :token, '' FROM fence_floor WHERE :token > floor
    ON CONFLICT (resource) DO UPDATE SET write_mark = excluded.write_mark
    WHERE excluded.write_mark > fence.write_mark AND excluded.write_mark > fence.read_mark;
""",
    ("token", "read"): """
INSERT INTO fence (resource, write_mark, read_mark)
    SELECT :key, '', :token FROM fence_floor WHERE :token > floor
    ON CONFLICT (resource) DO UPDATE SET read_mark = max(fence.read_mark, excluded.read_mark)
    WHERE excluded.read_mark > fence.write_mark;
""",
    ("number", "write"): """
INSERT INTO fence (resource, write_mark, read_mark)
    SELECT :key, :number, -1 FROM fence_floor WHERE :number > floor
    ON CONFLICT (resource) DO UPDATE SET write_mark = excluded.write_mark
    WHERE excluded.write_mark >= fence.write_mark AND excluded.write_mark >= fence.read_mark;
""",
    ("number", "read"): """
INSERT INTO fence (resource, write_mark, read_mark)
    SELECT :key, -1, :number FROM fence_floor WHERE :number > floor
    ON CONFLICT (resource) DO UPDATE SET read_mark = max(fence.read_mark, excluded.read_mark)
    WHERE excluded.read_mark >= fence.write_mark;
""",
}

MARIADB = {
    ("token", "row"): """
INSERT INTO fence (resource) VALUES (:key) ON DUPLICATE KEY UPDATE resource = resource;
""",
    ("token", "write"): """
UPDATE fence SET write_mark = :token, claims = claims + 1
    WHERE resource = :key AND write_mark < :token AND read_mark < :token
    AND EXISTS (SELECT 1 FROM fence_floor WHERE floor < :token);
""",
    ("token", "read"): """
UPDATE fence SET read_mark = greatest(read_mark, :token), claims = claims + 1
    WHERE resource = :key AND write_mark < :token
    AND EXISTS (SELECT 1 FROM fence_floor WHERE floor < :token);
""",
    ("number", "row"): """
INSERT INTO fence (resource) VALUES (:key) ON DUPLICATE KEY UPDATE resource = resource;
""",
    ("number", "write"): """
UPDATE fence SET write_mark = :number, claims = claims + 1
    WHERE resource = :key AND write_mark <= :number AND read_mark <= :number
    AND EXISTS (SELECT 1 FROM fence_floor WHERE floor < :number);
""",
    ("number", "read"): """
UPDATE fence SET read_mark = greatest(read_mark, :number), claims = claims + 1
    WHERE resource = :key AND write_mark <= :number
    AND EXISTS (SELECT 1 FROM fence_floor WHERE floor < :number);
""",
}
