-- What the guards do by themselves. These lock in this order: a lane, keys in byte order, the store, instances.

-- Where commits are made now: another server, or a standby that was promoted, is another origin.
CREATE FUNCTION origin_now() RETURNS text LANGUAGE sql AS $$
    SELECT (SELECT system_identifier FROM pg_control_system()) || '/'
        || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
$$;

-- A standby has each commit before it is acknowledged.
CREATE FUNCTION followed_now() RETURNS boolean LANGUAGE sql AS $$
    SELECT current_setting('synchronous_standby_names') <> ''
$$;

CREATE FUNCTION longest() RETURNS bigint LANGUAGE sql AS $$
    SELECT coalesce(max(send_within + max_execution), 0) FROM instance
$$;

-- The database has lost what it had acknowledged. Nothing of what was announced is let in again, and nothing at all as
-- long as what was let in may still run.
CREATE FUNCTION rolled_back(p_known bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM store FOR UPDATE;
    UPDATE store SET highest = greatest(highest(), p_known), rolled = greatest(highest(), p_known),
        closed_until = greatest(closed_until, time + longest()), closed_why = 'rolled-back';
END $$;

-- Called with every new connection that decides. Which commits are missing after a failover nobody can say, unless a
-- standby had each of them.
CREATE FUNCTION look_at_origin(p_known bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    s store;
    now_ text := origin_now();
BEGIN
    SELECT * INTO s FROM store FOR UPDATE;
    IF s.origin = now_ THEN
        RETURN;
    END IF;
    IF s.origin <> '' AND NOT (s.followed AND split_part(s.origin, '/', 1) = split_part(now_, '/', 1)) THEN
        PERFORM rolled_back(p_known);
    END IF;
    UPDATE store SET origin = now_, followed = followed_now();
END $$;

-- A new instance. Where the store is new, what another guard has sent may still run.
CREATE FUNCTION arrive(p_name text, p_send_within bigint, p_max_execution bigint) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    new_ integer;
BEGIN
    PERFORM look_at_origin(0);
    INSERT INTO instance (name, renewed, send_within, max_execution)
    SELECT p_name, time, p_send_within, p_max_execution FROM store RETURNING id INTO new_;
    INSERT INTO lane (instance) VALUES (new_);
    -- Whoever would add to the time has not seen us come.
    UPDATE store SET tick = (random() * 9e15)::bigint,
        closed_until = CASE WHEN closed_why IS NULL THEN NULL
            ELSE coalesce(closed_until, time + longest()) END;
    RETURN new_;
END $$;

-- A new connection for the statements of an instance: those of the one before are refused from now on. Whoever
-- remembers more of its own statements than the database does knows that it was rolled back.
CREATE FUNCTION resume(p_instance integer, p_acts bigint, p_known bigint) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    l lane;
BEGIN
    UPDATE lane SET generation = generation + 1 WHERE instance = p_instance RETURNING * INTO l;
    PERFORM look_at_origin(p_known);
    IF l.instance IS NULL OR l.acts < p_acts THEN
        PERFORM rolled_back(p_known);
    END IF;
    IF l.instance IS NOT NULL THEN
        UPDATE lane SET acts = greatest(acts, p_acts) WHERE instance = p_instance;
    END IF;
    RETURN l.generation;
END $$;

-- Moves the time by what this guard has seen pass since its last beat, unless somebody else has moved it since; renews
-- its lease; takes for dead who did not renew.
CREATE FUNCTION beat(p_instance integer, p_tick bigint, p_passed bigint, p_lease bigint) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    s store;
    alive boolean;
BEGIN
    SELECT * INTO s FROM store FOR UPDATE;
    IF s.tick = p_tick THEN
        s.time := s.time + p_passed;
        s.tick := (random() * 9e15)::bigint;
        -- So long nobody has renewed anything: the database was away for all. The others are given as long to come back.
        IF p_passed > p_lease / 2 THEN
            UPDATE instance SET renewed = renewed + p_passed WHERE NOT dead AND id <> p_instance;
        END IF;
    END IF;
    IF s.closed_until <= s.time THEN
        -- Whatever was announced meanwhile is newer than all that was forgotten.
        s.rolled := CASE WHEN s.closed_why = 'rolled-back' THEN highest() ELSE s.rolled END;
        s.closed_until := NULL;
        s.closed_why := NULL;
    END IF;
    UPDATE store SET time = s.time, tick = s.tick, rolled = s.rolled, closed_until = s.closed_until,
        closed_why = s.closed_why,
        -- Of a server that has just taken over, the first connection that decides wants to know how it was before.
        followed = CASE WHEN s.origin = origin_now() THEN followed_now() ELSE s.followed END;
    UPDATE instance SET renewed = s.time WHERE id = p_instance AND NOT dead;
    alive := FOUND;
    UPDATE instance SET dead = true WHERE NOT dead AND id <> p_instance AND renewed + p_lease < s.time;
    RETURN jsonb_build_object('time', s.time, 'tick', s.tick, 'alive', alive, 'format', s.format, 'store', s.store,
        'floor', greatest(s.floor, s.rolled), 'era', s.era, 'highest', highest(),
        'left', s.closed_until - s.time, 'why', s.closed_why,
        'entries', s.entries + (SELECT coalesce(sum(entries), 0) FROM lane),
        'bytes', s.bytes + (SELECT coalesce(sum(bytes), 0) FROM lane),
        'others', (SELECT count(*) FROM instance WHERE NOT dead AND id <> p_instance),
        'flying', (SELECT count(DISTINCT id) FROM open_work WHERE over IS NULL),
        'doubts', (SELECT count(DISTINCT id) FROM open_work WHERE over > s.time),
        'longest', (SELECT coalesce(max(max_execution), 0) FROM instance));
END $$;

-- Forgets keys that nobody has used since then, and the longest unused where there are more than `p_most`. Their
-- tokens raise the floor in the same transaction.
CREATE FUNCTION evict(p_unused bigint, p_most bigint, p_batch integer) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    found_ text[];
    forgotten bigint;
    up_to bigint;
BEGIN
    SELECT array_agg(c.key) INTO found_ FROM (
        SELECT key FROM key
        WHERE used < p_unused OR (SELECT count(*) FROM key) > p_most
        ORDER BY used LIMIT p_batch) AS c;
    -- What somebody has locked is in use.
    SELECT array_agg(c.key) INTO found_ FROM (
        SELECT key FROM key WHERE key = ANY (found_) ORDER BY key FOR UPDATE SKIP LOCKED) AS c;
    -- Looked at again behind the locks.
    WITH gone AS (
        DELETE FROM key WHERE key = ANY (found_)
            AND (used < p_unused OR (SELECT count(*) FROM key) > p_most)
            AND NOT EXISTS (
                SELECT FROM open_work w
                WHERE w.key = key.key AND coalesce(w.over > (SELECT time FROM store), true))
        RETURNING greatest(epoch_of(write), epoch_of(read)) AS epoch)
    SELECT count(*), max(epoch) INTO forgotten, up_to FROM gone;
    UPDATE store SET floor = up_to WHERE floor < up_to;
    RETURN forgotten;
END $$;

-- Forgets finished operations that are kept no longer, and nobody has in hand.
CREATE FUNCTION outlive(p_batch integer) RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    gone_entries bigint;
    gone_bytes bigint;
BEGIN
    WITH gone AS (
        DELETE FROM operation WHERE id IN (
            SELECT id FROM operation o
            WHERE ends < (SELECT time / 1000 FROM store) AND NOT EXISTS (SELECT FROM held h WHERE h.operation = o.id)
            ORDER BY ends LIMIT p_batch FOR UPDATE SKIP LOCKED)
        RETURNING bytes)
    SELECT count(*), coalesce(sum(bytes), 0) INTO gone_entries, gone_bytes FROM gone;
    IF gone_entries > 0 THEN
        UPDATE store SET entries = entries - gone_entries, bytes = bytes - gone_bytes;
    END IF;
    RETURN gone_entries;
END $$;

-- Doubts that are over, connections and rights of the dead, and instances that have been dead for a day.
CREATE FUNCTION tidy() RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    now_ bigint;
BEGIN
    SELECT time INTO now_ FROM store;
    -- One that stands still would keep its locks, and what is told to who listens.
    PERFORM pg_terminate_backend(a.pid) FROM pg_stat_activity a JOIN instance n
        ON n.dead AND a.application_name LIKE 'fencegate %'
            AND right(a.application_name, length(left(n.name, 36))) = left(n.name, 36)
    WHERE a.datname = current_database() AND a.usename = current_user AND a.pid <> pg_backend_pid();
    DELETE FROM at_work USING open_work w
    WHERE w.key = at_work.key AND w.id = at_work.id AND w.over <= now_;
    DELETE FROM held WHERE NOT EXISTS (SELECT FROM instance n WHERE n.id = held.instance AND NOT n.dead);
    WITH gone AS (
        DELETE FROM instance n WHERE dead AND renewed + 86400000 < now_
            AND NOT EXISTS (SELECT FROM at_work w WHERE w.instance = n.id)
        RETURNING id),
    left_ AS (SELECT max(highest) AS highest, sum(entries) AS entries, sum(bytes) AS bytes
        FROM lane WHERE instance IN (SELECT id FROM gone))
    UPDATE store SET highest = greatest(store.highest, left_.highest), entries = store.entries + left_.entries,
        bytes = store.bytes + left_.bytes
    FROM left_ WHERE left_.highest IS NOT NULL;
END $$;

-- An orderly end: what is still in flight is in doubt.
CREATE FUNCTION leave(p_instance integer, p_slack bigint) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE lane SET generation = generation + 1 WHERE instance = p_instance;
    UPDATE at_work SET until = s.time + p_slack + n.max_execution FROM store s, instance n
    WHERE at_work.instance = p_instance AND n.id = p_instance AND until IS NULL;
    DELETE FROM held WHERE instance = p_instance;
    UPDATE instance SET dead = true WHERE id = p_instance;
END $$;

-- Forgets a finished operation, unless somebody has it in hand.
CREATE FUNCTION forget(p_operation bytea) RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    before bigint;
BEGIN
    DELETE FROM operation WHERE id = p_operation AND ends IS NOT NULL AND NOT EXISTS (
        SELECT FROM held h JOIN instance n ON n.id = h.instance AND NOT n.dead WHERE h.operation = p_operation)
    RETURNING bytes INTO before;
    UPDATE store SET entries = entries - 1, bytes = bytes - before WHERE before IS NOT NULL;
    RETURN before IS NOT NULL;
END $$;
