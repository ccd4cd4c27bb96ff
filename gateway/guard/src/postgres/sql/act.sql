-- The functions that guards call for each dispatch and each operation. Each call is one transaction. It takes its
-- locks in this order: the lane of the instance, the rows of its keys in byte order, the rights over operations, the
-- store. Exception: a claim of a later era locks the store at its place in the batch.

-- One question of a batch.
CREATE TYPE item AS (
    kind text,
    id text COLLATE "C",
    keys text[] COLLATE "C",
    token text COLLATE "C",
    epoch bigint,
    shared boolean,
    era bigint,
    -- The question was asked before, and its answer was lost.
    again boolean,
    longest bigint,
    -- For a doubt: its duration in milliseconds from now on. NULL if the end of the dispatch is known.
    remains bigint,
    operation bytea,
    holder text,
    -- The change of the journal: `entry` writes `entry`, `forget` removes the entry, NULL changes nothing.
    writing text,
    entry text,
    body bytea,
    ends bigint
);

-- The values that hold for a whole batch. `time` is the store's time as it is written. `late` is the latest possible
-- true time: `time` plus the longest time that may have passed and is not written yet.
CREATE TYPE moment AS (
    instance integer,
    dead boolean,
    time bigint,
    late bigint,
    floor bigint,
    rolled bigint,
    highest bigint,
    era bigint,
    closed_until bigint,
    closed_why text
);

CREATE FUNCTION epoch_of(token text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT ('x' || substr(token, 4, 16))::bit(64)::bigint
$$;

-- Wakes the requests that wait for one of these keys. Each of them looks again.
CREATE FUNCTION wake(p_keys text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    told text;
BEGIN
    FOR told IN UPDATE key SET waited = false WHERE key = ANY (p_keys) AND waited RETURNING key LOOP
        -- A payload has less than 8000 bytes. A notice without a key wakes all waiting requests.
        PERFORM pg_notify('fencegate', 'k' || CASE WHEN octet_length(told) < 7000 THEN told ELSE '' END);
    END LOOP;
END $$;

-- The first look: whether the marks of all keys may be raised. NULL where they may.
CREATE FUNCTION compare(m moment, i item) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    k key;
    base bigint;
BEGIN
    IF NOT is_believed(m, i) THEN
        RETURN jsonb_build_object('is', 'future', 'epoch', m.highest);
    END IF;
    IF i.epoch <= m.rolled THEN
        RETURN jsonb_build_object('is', 'recovered', 'epoch', m.rolled);
    END IF;
    FOR k IN SELECT * FROM key WHERE key = ANY (i.keys) ORDER BY key LOOP
        base := CASE WHEN k.read IS NULL THEN m.floor ELSE k.base END;
        IF k.write IS NULL AND i.epoch <= base THEN
            RETURN jsonb_build_object('is', 'floor', 'epoch', base);
        ELSIF i.token <= k.write AND NOT (i.again AND i.token = k.write AND i.id = k.raised_by) THEN
            IF i.shared OR left(i.token, 19) <> left(k.write, 19) THEN
                RETURN jsonb_build_object('is', 'stale', 'token', k.write);
            ELSIF k.exact THEN
                RETURN jsonb_build_object('is', 'duplicate', 'token', k.write);
            END IF;
            RETURN jsonb_build_object('is', 'recovered', 'epoch', epoch_of(k.write));
        ELSIF NOT i.shared AND i.token <= k.read THEN
            RETURN jsonb_build_object('is', 'stale', 'token', k.read);
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

-- Raises the marks that are older than the token, and lowers no mark. A key without a write mark keeps its marks if
-- the token is not above the floor.
CREATE FUNCTION raise(m moment, i item) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- A request that waits under an older tenure can stop waiting.
    IF EXISTS (SELECT FROM key WHERE key = ANY (i.keys) AND waited
            AND left(CASE WHEN i.shared THEN read ELSE write END, 19) IS DISTINCT FROM left(i.token, 19)) THEN
        PERFORM wake(i.keys);
    END IF;
    IF i.shared THEN
        UPDATE key SET read = i.token, base = CASE WHEN read IS NULL AND write IS NULL THEN m.floor ELSE base END
        WHERE key = ANY (i.keys) AND coalesce(read < i.token, true)
            AND (write IS NOT NULL OR i.epoch > CASE WHEN read IS NULL THEN m.floor ELSE base END);
    ELSE
        UPDATE key SET write = i.token, exact = true, raised_by = i.id
        WHERE key = ANY (i.keys) AND coalesce(write < i.token, true)
            AND (write IS NOT NULL OR i.epoch > CASE WHEN read IS NULL THEN m.floor ELSE base END);
    END IF;
END $$;

-- The second look: whether the marks still allow the dispatch. The token of a write must be equal to the write mark.
-- NULL if the marks allow the dispatch.
CREATE FUNCTION newest(m moment, i item) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    k key;
    base bigint;
BEGIN
    IF i.epoch <= m.rolled THEN
        RETURN jsonb_build_object('is', 'recovered', 'epoch', m.rolled);
    END IF;
    FOR k IN SELECT * FROM key WHERE key = ANY (i.keys) ORDER BY key LOOP
        IF NOT i.shared AND k.write IS DISTINCT FROM i.token THEN
            RETURN jsonb_build_object('is', 'stale', 'token', coalesce(k.write, i.token));
        ELSIF NOT i.shared AND i.token <= k.read THEN
            RETURN jsonb_build_object('is', 'stale', 'token', k.read);
        ELSIF i.shared AND i.token <= k.write THEN
            RETURN jsonb_build_object('is', 'stale', 'token', k.write);
        END IF;
        base := CASE WHEN k.read IS NULL THEN m.floor ELSE k.base END;
        IF k.write IS NULL AND i.epoch <= base THEN
            RETURN jsonb_build_object('is', 'floor', 'epoch', base);
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

-- The first key on which another dispatch is in the way. `left` is set if only doubts are in the way there: the time
-- until the last of them is over. NULL if nothing is in the way.
CREATE FUNCTION conflict(m moment, i item) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    where_ text;
    flies boolean;
    last bigint;
BEGIN
    -- The usual case.
    IF NOT EXISTS (SELECT FROM at_work WHERE key = ANY (i.keys)) THEN
        RETURN NULL;
    END IF;
    SELECT w.key, bool_or(w.over IS NULL), max(w.over) INTO where_, flies, last
    FROM open_work w
    WHERE w.key = ANY (i.keys) AND NOT (i.shared AND w.shared) AND coalesce(w.over > m.time, true)
    GROUP BY w.key ORDER BY w.key LIMIT 1;
    IF where_ IS NULL THEN
        RETURN NULL;
    END IF;
    UPDATE key SET waited = true WHERE key = where_ AND NOT waited;
    RETURN jsonb_build_object('is', 'wait', 'key', where_, 'left', CASE WHEN NOT flies THEN last - m.time END);
END $$;

-- Changes the entry of an operation, if the question has the right over it. The lane counts by how much the journal
-- grows.
CREATE FUNCTION write_down(m moment, i item) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    before bigint;
    after bigint := length(i.entry) + coalesce(length(i.body), 0) + 64;
BEGIN
    PERFORM FROM held WHERE operation = i.operation AND holder = i.holder FOR UPDATE;
    IF NOT FOUND THEN
        -- The change may have been made before the answer was lost. The right was given back with it then.
        RETURN i.again AND CASE i.writing
            WHEN 'entry' THEN EXISTS (SELECT FROM operation WHERE id = i.operation AND entry = i.entry)
            WHEN 'forget' THEN NOT EXISTS (SELECT FROM operation WHERE id = i.operation)
            ELSE true END;
    END IF;
    SELECT bytes INTO before FROM operation WHERE id = i.operation;
    IF i.writing = 'entry' THEN
        INSERT INTO operation (id, entry, body, bytes, ends) VALUES (i.operation, i.entry, i.body, after, i.ends)
        ON CONFLICT (id) DO UPDATE
            SET entry = excluded.entry, body = excluded.body, bytes = excluded.bytes, ends = excluded.ends;
        UPDATE lane SET entries = entries + (before IS NULL)::integer, bytes = bytes + after - coalesce(before, 0)
        WHERE instance = m.instance;
    ELSIF i.writing = 'forget' AND before IS NOT NULL THEN
        DELETE FROM operation WHERE id = i.operation;
        UPDATE lane SET entries = entries - 1, bytes = bytes - before WHERE instance = m.instance;
    END IF;
    RETURN true;
END $$;

CREATE FUNCTION register(m moment, i item) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF i.operation IS NOT NULL AND NOT write_down(m, i) THEN
        RETURN jsonb_build_object('is', 'not-held');
    END IF;
    INSERT INTO at_work (key, id, instance, token, shared, began, longest)
    SELECT k, i.id, m.instance, i.token, i.shared, m.late, i.longest FROM unnest(i.keys) AS k;
    RETURN jsonb_build_object('is', 'running');
END $$;

-- One look of a dispatch at its keys. `claim` is the first look, `settle` is a later look. `pass` lets the dispatch in
-- without a comparison.
CREATE FUNCTION look(m moment, i item) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    answer jsonb;
BEGIN
    IF m.dead THEN
        RETURN jsonb_build_object('is', 'dead');
    ELSIF i.again AND EXISTS (SELECT FROM at_work WHERE key = i.keys[1] AND id = i.id) THEN
        RETURN jsonb_build_object('is', 'running');
    ELSIF i.kind = 'pass' THEN
        IF is_believed(m, i) AND i.epoch > m.rolled THEN
            PERFORM raise(m, i);
        END IF;
        RETURN register(m, i);
    ELSIF i.kind = 'claim' THEN
        answer := compare(m, i);
        IF answer IS NOT NULL THEN
            RETURN answer;
        END IF;
        PERFORM raise(m, i);
    END IF;
    IF m.closed_until > m.time THEN
        RETURN jsonb_build_object('is', 'closed', 'left', m.closed_until - m.time, 'why', m.closed_why);
    END IF;
    -- A first look has just raised the marks. Only a later look has to compare again.
    IF i.kind = 'settle' THEN
        answer := newest(m, i);
    END IF;
    RETURN coalesce(answer, conflict(m, i), register(m, i));
END $$;

-- The end of a dispatch, and what became of its operation.
CREATE FUNCTION finish(m moment, i item) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    over bigint := m.late + i.remains;
    written boolean := true;
BEGIN
    IF i.remains IS NULL THEN
        DELETE FROM at_work WHERE key = ANY (i.keys) AND id = i.id;
    ELSIF over > m.time AND NOT m.dead THEN
        -- The rows of a dead instance have an end already, and that end is late enough.
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

-- Takes the right over an operation, if the right is free or its instance is dead.
CREATE FUNCTION reserve(m moment, i item) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF m.dead THEN
        RETURN jsonb_build_object('is', 'dead');
    END IF;
    INSERT INTO held (operation, instance, holder) VALUES (i.operation, m.instance, i.holder)
    ON CONFLICT (operation) DO UPDATE SET instance = excluded.instance, holder = excluded.holder
        WHERE held.holder = excluded.holder
            OR NOT EXISTS (SELECT FROM instance n WHERE n.id = held.instance AND NOT n.dead);
    IF FOUND THEN
        RETURN jsonb_build_object('is', 'done');
    END IF;
    UPDATE held SET waited = true WHERE operation = i.operation AND NOT waited;
    RETURN jsonb_build_object('is', 'wait');
END $$;

CREATE FUNCTION let_go(i item) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    told boolean;
BEGIN
    DELETE FROM held WHERE operation = i.operation AND holder = i.holder RETURNING waited INTO told;
    IF told THEN
        PERFORM pg_notify('fencegate', 'o' || encode(i.operation, 'hex'));
    END IF;
END $$;

-- Ends the doubts under this token. The caller knows that none of these executions goes on.
CREATE FUNCTION resolve(m moment, i item) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    found_ boolean;
BEGIN
    WITH over AS (
        DELETE FROM at_work USING open_work w
        WHERE at_work.key = ANY (i.keys) AND at_work.token = i.token
            AND w.key = at_work.key AND w.id = at_work.id AND w.over IS NOT NULL
        RETURNING w.over)
    SELECT bool_or(o.over > m.time) INTO found_ FROM over o;
    RETURN jsonb_build_object('is', CASE WHEN found_ THEN 'done' ELSE 'none' END);
END $$;

-- Every dispatch that may be at work. `over` is the time from which it counts as over. `over` is NULL while the
-- dispatch is in flight.
CREATE VIEW open_work AS
    SELECT w.key, w.id, w.instance, w.token, w.shared, w.began,
        CASE WHEN w.until IS NOT NULL THEN w.until
            WHEN n.dead IS DISTINCT FROM false THEN
                w.began + greatest(w.longest, (SELECT max(send_within + max_execution) FROM instance))
        END AS over
    FROM at_work w LEFT JOIN instance n ON n.id = w.instance;

-- A token of a later era may be far larger than all tokens before. The lock of the store makes two such claims compare
-- one after the other.
CREATE FUNCTION later_era(m moment, i item) RETURNS moment LANGUAGE plpgsql AS $$
BEGIN
    SELECT era INTO m.era FROM store FOR UPDATE;
    m.highest := highest();
    IF compare(m, i) IS NULL AND i.era > m.era THEN
        UPDATE store SET era = i.era;
    END IF;
    RETURN m;
END $$;

CREATE FUNCTION is_believed(m moment, i item) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT i.epoch - 281474976710656 <= m.highest OR coalesce(i.era > m.era, false)
$$;

-- Whether the token was announced with this answer.
CREATE FUNCTION raised(m moment, i item, answer jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT i.kind = 'claim' AND answer ->> 'is' IN ('running', 'wait', 'closed', 'not-held')
        OR i.kind = 'pass' AND answer ->> 'is' = 'running' AND is_believed(m, i) AND i.epoch > m.rolled
$$;

-- The largest epoch that was ever announced. The function is in PL/pgSQL, because the server would plan plain SQL anew
-- with every call.
CREATE FUNCTION highest() RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN greatest((SELECT s.highest FROM store s), (SELECT max(l.highest) FROM lane l));
END $$;

-- Answers the questions of a batch, in their order, in one transaction. The statements are planned once: each of them
-- looks up a few keys, and planning takes longer than the look-up. `p_keys` has all keys of the batch, sorted by their
-- bytes, without duplicates.
CREATE FUNCTION act(
    p_instance integer, p_generation integer, p_slack bigint, p_grain bigint, p_keys text[], p_items text
) RETURNS text LANGUAGE plpgsql SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET jit = off AS $$
DECLARE
    m moment;
    i item;
    number bigint;
    answer jsonb;
    answers jsonb[] := '{}';
    over text[] := '{}';
    own bigint := 0;
BEGIN
    -- From here on no other statement of this instance runs at the same time. A later statement of an earlier
    -- connection is refused.
    UPDATE lane SET acts = acts + 1 WHERE instance = p_instance AND generation = p_generation
    RETURNING acts INTO number;
    IF NOT FOUND THEN
        RETURN jsonb_build_object('acts', 0, 'answers', '[]'::jsonb);
    END IF;
    -- Locks the rows of all keys in byte order, and makes the missing rows. So two batches never deadlock over
    -- keys. A row that needs no change is locked as well.
    INSERT INTO key (key, used) SELECT k, (store.time / p_grain + 1) * p_grain FROM store, unnest(p_keys) AS k
        ORDER BY k COLLATE "C"
    ON CONFLICT (key) DO UPDATE SET used = excluded.used WHERE key.used < excluded.used;
    -- This is read after the keys are locked: a transaction that has forgotten one of these keys has raised the floor
    -- before.
    SELECT p_instance, coalesce(n.dead, true), s.time, s.time + p_slack, s.floor, s.rolled, highest(), s.era,
        s.closed_until, s.closed_why
    INTO m FROM store s LEFT JOIN instance n ON n.id = p_instance;
    FOR i IN SELECT * FROM jsonb_populate_recordset(NULL::item, p_items::jsonb) LOOP
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
