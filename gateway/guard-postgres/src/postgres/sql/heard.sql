-- After a rollback nothing is let in before every guard that lives has said what it remembers.

-- False from a rollback on, until the next beat.
ALTER TABLE instance ADD COLUMN heard boolean NOT NULL DEFAULT true;

CREATE OR REPLACE FUNCTION rolled_back(p_known bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM store FOR UPDATE;
    UPDATE store SET highest = greatest(highest(), p_known), rolled = greatest(highest(), p_known),
        closed_until = greatest(closed_until, time + longest()), closed_why = 'rolled-back';
    UPDATE instance SET heard = false WHERE NOT dead;
END $$;

-- Called with every new connection, before anything else is asked there: a database that goes back loses them all.
-- Whoever remembers more than the database does knows that it was rolled back. True where it was.
CREATE FUNCTION remembers(p_instance integer, p_acts bigint, p_known bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF coalesce((SELECT acts FROM lane WHERE instance = p_instance) >= p_acts, false) AND highest() >= p_known THEN
        RETURN false;
    END IF;
    UPDATE lane SET acts = greatest(acts, p_acts) WHERE instance = p_instance;
    PERFORM rolled_back(p_known);
    RETURN true;
END $$;

CREATE OR REPLACE FUNCTION resume(p_instance integer, p_acts bigint, p_known bigint) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    generation_ integer;
BEGIN
    UPDATE lane SET generation = generation + 1 WHERE instance = p_instance RETURNING generation INTO generation_;
    PERFORM look_at_origin(p_known);
    PERFORM remembers(p_instance, p_acts, p_known);
    RETURN generation_;
END $$;

-- As before, but that what a rollback has closed stays closed until all have beaten again. Who does not is dead soon.
CREATE OR REPLACE FUNCTION beat(p_instance integer, p_tick bigint, p_passed bigint, p_lease bigint) RETURNS text
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
    IF s.closed_until <= s.time AND s.closed_why = 'rolled-back'
        AND EXISTS (SELECT FROM instance WHERE NOT dead AND NOT heard AND id <> p_instance)
    THEN
        -- Looked at again with the next beat.
        s.closed_until := s.time + 500;
    END IF;
    IF s.closed_until <= s.time THEN
        -- All that a living guard has announced is below, also what came meanwhile under a tenure of before.
        s.rolled := CASE WHEN s.closed_why = 'rolled-back' THEN highest() ELSE s.rolled END;
        s.closed_until := NULL;
        s.closed_why := NULL;
    END IF;
    UPDATE store SET time = s.time, tick = s.tick, rolled = s.rolled, closed_until = s.closed_until,
        closed_why = s.closed_why,
        -- Of a server that has just taken over, the first connection that decides wants to know how it was before.
        followed = CASE WHEN s.origin = origin_now() THEN followed_now() ELSE s.followed END;
    UPDATE instance SET renewed = s.time, heard = true WHERE id = p_instance AND NOT dead;
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
