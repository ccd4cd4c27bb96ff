-- What the guards ask for all day. Each call is one transaction, and each locks in this order: its lane, its keys in
-- byte order, rights over operations, the store.

-- One thing of a batch.
CREATE TYPE item AS (
    kind text,
    id text COLLATE "C",
    keys text[] COLLATE "C",
    token text COLLATE "C",
    epoch bigint,
    shared boolean,
    era bigint,
    -- Asked before, and nobody knows what came of it.
    again boolean,
    longest bigint,
    -- Of a doubt: milliseconds that it takes from now. None where the end is known.
    remains bigint,
    operation bytea,
    holder text,
    -- What becomes of the operation: `entry`, `forget`, or nothing.
    writing text,
    entry text,
    body bytea,
    ends bigint
);

-- What holds for a whole batch. `late` is the time that it may be in truth: `time` as it was written, and what may have
-- passed since without being written.
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

-- Whoever waits for one of these looks again.
CREATE FUNCTION wake(p_keys text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    told text;
BEGIN
    FOR told IN UPDATE key SET waited = false WHERE key = ANY (p_keys) AND waited RETURNING key LOOP
        -- A payload has less than 8000 bytes: without a key, everybody looks.
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

-- Raises what the claim is above of, and nothing down. What may have been forgotten raises nothing.
CREATE FUNCTION raise(m moment, i item) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- Whoever waits under an older token can stop waiting.
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

-- The second look: for a write, `newest but one` is not enough. NULL where it may run.
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

-- What is in the way on the first key on which anything is: in flight, or in doubt until the last doubt is over.
CREATE FUNCTION conflict(m moment, i item) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    where_ text;
    flies boolean;
    last bigint;
BEGIN
    -- As it mostly is.
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

-- What is written down of an operation, by whoever holds the right. What the journal grows by is the lane's.
CREATE FUNCTION write_down(m moment, i item) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    before bigint;
    after bigint := length(i.entry) + coalesce(length(i.body), 0) + 64;
BEGIN
    PERFORM FROM held WHERE operation = i.operation AND holder = i.holder FOR UPDATE;
    IF NOT FOUND THEN
        -- It was written before the answer was lost, and the right given back with it.
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

-- A claim: `claim` is the first look, `settle` a later one, `pass` asks nothing.
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
    -- Just raised, it is the newest.
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

-- Takes the right over an operation where nobody has it, or whoever has it is dead.
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

-- Nothing goes on of what is in doubt under this token: somebody asked, and knows.
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

-- Everything that may be at work; `over` is when it counts as over, none while it is in flight.
CREATE VIEW open_work AS
    SELECT w.key, w.id, w.instance, w.token, w.shared, w.began,
        CASE WHEN w.until IS NOT NULL THEN w.until
            WHEN n.dead IS DISTINCT FROM false THEN
                w.began + greatest(w.longest, (SELECT max(send_within + max_execution) FROM instance))
        END AS over
    FROM at_work w LEFT JOIN instance n ON n.id = w.instance;

-- A token of a later era may be far larger than any before. Two that come at once are asked one after the other.
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

-- The largest epoch that was ever announced. Not in plain SQL, which the server would plan anew with every call.
CREATE FUNCTION highest() RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN greatest((SELECT s.highest FROM store s), (SELECT max(l.highest) FROM lane l));
END $$;

-- Does what is asked, in this order, in one transaction. Its statements are planned once: each looks a few keys up, and
-- to plan them anew for the keys at hand takes longer than to look. `p_keys` are all keys, sorted by their bytes, without doubles.
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
    -- Behind the locks: whoever forgot one of these keys has raised the floor before we see it.
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
