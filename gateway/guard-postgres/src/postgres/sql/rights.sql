-- Rights over operations are locked one after the other in the order of their bytes, before a batch does anything with
-- any of them. Two batches that had them in another order waited for each other, until the server ended one.

-- One that is wanted and free is taken at once, for the first in the batch that wants it: somebody else could take it
-- before its place in the batch comes.
CREATE FUNCTION lock_rights(p_instance integer, items item[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    r record;
BEGIN
    FOR r IN SELECT operation, (array_agg(holder ORDER BY ordinality) FILTER (WHERE kind = 'reserve'))[1] AS wants
        FROM unnest(items) WITH ORDINALITY AS i
        WHERE operation IS NOT NULL GROUP BY operation ORDER BY operation
    LOOP
        IF r.wants IS NULL THEN
            PERFORM FROM held WHERE operation = r.operation FOR UPDATE;
        ELSE
            -- A row that needs no change is locked all the same. One of an instance that is dead by now is anybody's.
            INSERT INTO held (operation, instance, holder) VALUES (r.operation, p_instance, r.wants)
            ON CONFLICT (operation) DO UPDATE SET waited = held.waited WHERE false;
        END IF;
    END LOOP;
END $$;

-- As before, but for the rights.
CREATE OR REPLACE FUNCTION act(
    p_instance integer, p_generation integer, p_slack bigint, p_grain bigint, p_keys text[], p_items text
) RETURNS text LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET jit = off AS $$
DECLARE
    m moment;
    i item;
    items item[] := ARRAY(SELECT jsonb_populate_recordset(NULL::item, p_items::jsonb));
    number bigint;
    answer jsonb;
    answers jsonb[] := '{}';
    over text[] := '{}';
    own bigint := 0;
BEGIN
    -- Nothing else of this instance is under way beside it, and nothing of an earlier connection comes behind it.
    UPDATE lane SET acts = acts + 1 WHERE instance = p_instance AND generation = p_generation
    RETURNING acts INTO number;
    IF NOT FOUND THEN
        RETURN jsonb_build_object('acts', 0, 'answers', '[]'::jsonb);
    END IF;
    -- One after the other in the order of their bytes, those that are missing as well: so no two batches wait for each
    -- other. A row that needs no change is locked all the same.
    INSERT INTO key (key, used) SELECT k, (store.time / p_grain + 1) * p_grain FROM store, unnest(p_keys) AS k
        ORDER BY k COLLATE "C"
    ON CONFLICT (key) DO UPDATE SET used = excluded.used WHERE key.used < excluded.used;
    PERFORM lock_rights(p_instance, items);
    -- Behind the locks: whoever forgot one of these keys has raised the floor before we see it.
    SELECT p_instance, coalesce(n.dead, true), s.time, s.time + p_slack, s.floor, s.rolled, highest(), s.era,
        s.closed_until, s.closed_why
    INTO m FROM store s LEFT JOIN instance n ON n.id = p_instance;
    FOREACH i IN ARRAY items LOOP
        IF i.era > m.era AND i.kind IN ('claim', 'pass') THEN
            m := later_era(m, i);
        END IF;
        CASE i.kind
            WHEN 'end' THEN
                answer := finish(m, i);
                over := over || i.keys;
            WHEN 'reserve' THEN
                answer := reserve(m, i);
            WHEN 'release' THEN
                PERFORM let_go(i);
                answer := jsonb_build_object('is', 'done');
            WHEN 'write' THEN
                answer := jsonb_build_object('is', CASE WHEN write_down(m, i) THEN 'done' ELSE 'not-held' END);
            WHEN 'resolve' THEN
                answer := resolve(m, i);
                over := over || i.keys;
            ELSE
                answer := look(m, i);
                IF raised(m, i, answer) THEN
                    own := greatest(own, i.epoch);
                    m.highest := greatest(m.highest, i.epoch);
                    m.era := greatest(m.era, i.era);
                END IF;
        END CASE;
        answers := answers || answer;
    END LOOP;
    UPDATE lane SET highest = own WHERE instance = p_instance AND highest < own;
    IF over <> '{}' THEN
        PERFORM wake(over);
    END IF;
    RETURN jsonb_build_object('acts', number, 'answers', to_jsonb(answers));
END $$;
