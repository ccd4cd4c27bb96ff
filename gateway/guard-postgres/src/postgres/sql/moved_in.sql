-- A store that was copied from elsewhere. It is one from the moment on at which `store` has its row, which is made of
-- this one; before, no guard finds any.
CREATE TABLE moved_in (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    -- Names the move: where the store was, the same name stands.
    id text NOT NULL,
    -- For people.
    came_from text NOT NULL,
    format integer NOT NULL,
    store text NOT NULL,
    ensemble text NOT NULL,
    floor bigint NOT NULL,
    highest bigint NOT NULL,
    entries bigint NOT NULL,
    bytes bigint NOT NULL,
    era bigint NOT NULL,
    time bigint NOT NULL,
    closed_until bigint,
    closed_why text,
    -- Where it was copied to: a server that took over since then may lack what guards have done with the store.
    origin text NOT NULL DEFAULT origin_now(),
    followed boolean NOT NULL DEFAULT followed_now()
);
