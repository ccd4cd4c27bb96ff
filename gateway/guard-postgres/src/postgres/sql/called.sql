-- What a dispatch has called runs beside it, and beside whatever that one was called from.

ALTER TYPE item ADD ATTRIBUTE parent text COLLATE "C";

-- Of what was let in as called from another dispatch of its tenure: the token of that one.
ALTER TABLE at_work ADD COLUMN parent text COLLATE "C";

-- Those in flight that a claim runs inside of: what has called it, what has called that, and so on.
CREATE FUNCTION callers(i item) RETURNS text[] LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF i.parent IS NULL OR left(i.parent, 28) IS DISTINCT FROM left(i.token, 28) THEN
        RETURN '{}';
    END IF;
    RETURN (WITH RECURSIVE caller AS (
            SELECT w.key, w.id, w.parent FROM open_calls w
            WHERE w.key = ANY (i.keys) AND w.token = i.parent
        UNION
            SELECT w.key, w.id, w.parent FROM caller c JOIN open_calls w ON w.key = c.key AND w.token = c.parent)
        SELECT coalesce(array_agg(DISTINCT id), '{}') FROM caller);
END $$;

-- What is in flight, and for all that is known not over.
CREATE VIEW open_calls AS
    SELECT w.key, w.id, w.token, a.parent FROM open_work w JOIN at_work a ON a.key = w.key AND a.id = w.id
    WHERE w.over IS NULL;

-- As before, but for what the claim was called from. A doubt about that is one as any other.
CREATE OR REPLACE FUNCTION conflict(m moment, i item) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    where_ text;
    flies boolean;
    last bigint;
    beside text[];
BEGIN
    -- As it mostly is.
    IF NOT EXISTS (SELECT FROM at_work WHERE key = ANY (i.keys)) THEN
        RETURN NULL;
    END IF;
    beside := callers(i);
    SELECT w.key, bool_or(w.over IS NULL), max(w.over) INTO where_, flies, last
    FROM open_work w
    WHERE w.key = ANY (i.keys) AND NOT (i.shared AND w.shared) AND coalesce(w.over > m.time, true)
        AND NOT (w.over IS NULL AND w.id = ANY (beside))
    GROUP BY w.key ORDER BY w.key LIMIT 1;
    IF where_ IS NULL THEN
        RETURN NULL;
    END IF;
    UPDATE key SET waited = true WHERE key = where_ AND NOT waited;
    RETURN jsonb_build_object('is', 'wait', 'key', where_, 'left', CASE WHEN NOT flies THEN last - m.time END);
END $$;

CREATE OR REPLACE FUNCTION register(m moment, i item) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF i.operation IS NOT NULL AND NOT write_down(m, i) THEN
        RETURN jsonb_build_object('is', 'not-held');
    END IF;
    INSERT INTO at_work (key, id, instance, token, shared, began, longest, parent)
    SELECT k, i.id, m.instance, i.token, i.shared, m.late, i.longest, i.parent FROM unnest(i.keys) AS k;
    RETURN jsonb_build_object('is', 'running');
END $$;
