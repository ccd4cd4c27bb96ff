-- The longest `max_execution` of all guards counts for what is in doubt at each of them.

-- Of those that live, and of those whose executions may still go on.
CREATE FUNCTION longest_execution() RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT coalesce(max(n.max_execution), 0) FROM instance n, store s
        WHERE NOT n.dead OR n.renewed + n.send_within + n.max_execution > s.time);
END $$;

-- As before, but for the longest. A guard knows its own `max_execution` only, which `remains` has in it. A doubt that is
-- over when it is told leaves no row behind.
CREATE OR REPLACE FUNCTION finish(m moment, i item) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    over bigint;
    written boolean := true;
BEGIN
    IF i.remains IS NOT NULL THEN
        over := m.late + i.remains + greatest(0,
            longest_execution() - (SELECT n.max_execution FROM instance n WHERE n.id = m.instance));
    END IF;
    IF i.remains IS NULL OR over <= m.time AND NOT m.dead THEN
        DELETE FROM at_work WHERE key = ANY (i.keys) AND id = i.id;
    ELSIF NOT m.dead THEN
        -- The rows of the dead have their end already, which is none too early.
        INSERT INTO at_work (key, id, instance, token, shared, began, longest, until)
        SELECT k, i.id, m.instance, i.token, i.shared, m.late, i.remains, over FROM unnest(i.keys) AS k
        ON CONFLICT (key, id) DO UPDATE SET until = greatest(at_work.until, excluded.until);
    END IF;
    IF i.operation IS NOT NULL THEN
        written := write_down(m, i);
        PERFORM let_go(i);
    END IF;
    RETURN jsonb_build_object('is', CASE WHEN written THEN 'done' ELSE 'not-held' END);
END $$;

-- As before, but for the longest.
CREATE OR REPLACE FUNCTION leave(p_instance integer, p_slack bigint) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE lane SET generation = generation + 1 WHERE instance = p_instance;
    UPDATE at_work SET until = s.time + p_slack + longest_execution() FROM store s
    WHERE at_work.instance = p_instance AND until IS NULL;
    DELETE FROM held WHERE instance = p_instance;
    UPDATE instance SET dead = true WHERE id = p_instance;
END $$;
