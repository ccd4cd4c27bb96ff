-- A guard says what it has in hand, on each new connection that decides and before it asks anything there. Where a
-- rollback has lost the end of a dispatch, its row is back, and its owner lives and has forgotten it.

-- All other dispatches of the instance end as those of the dead do, counted from now: what was sent was sent before.
-- All other rights are given back. A statement of an earlier connection adds nothing behind it: it is refused.
CREATE FUNCTION disown(
    p_instance integer, p_generation integer, p_slack bigint, p_in_hand text[],
    OUT dispatches bigint, OUT rights bigint
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    lost bytea[];
    gone bytea;
    told boolean;
BEGIN
    dispatches := 0;
    rights := 0;
    PERFORM FROM lane WHERE instance = p_instance AND generation = p_generation FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    UPDATE at_work SET until = s.time + p_slack + longest() FROM store s
    WHERE instance = p_instance AND until IS NULL AND id NOT IN (SELECT unnest(p_in_hand));
    GET DIAGNOSTICS dispatches = ROW_COUNT;
    -- Locked in the order of a batch.
    SELECT array_agg(h.operation) INTO lost FROM (
        SELECT operation FROM held WHERE instance = p_instance AND holder NOT IN (SELECT unnest(p_in_hand))
        ORDER BY operation FOR UPDATE) AS h;
    FOR gone, told IN
        DELETE FROM held WHERE operation = ANY (lost) AND instance = p_instance AND holder NOT IN (SELECT unnest(p_in_hand))
        RETURNING operation, waited
    LOOP
        rights := rights + 1;
        IF told THEN
            PERFORM pg_notify('fencegate', 'o' || encode(gone, 'hex'));
        END IF;
    END LOOP;
END $$;
