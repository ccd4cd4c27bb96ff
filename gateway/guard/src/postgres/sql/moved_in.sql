-- The identity of a store that was copied from elsewhere. The copy becomes a store when the table `store` gets its
-- row, which is made from the row here. Until then no guard finds a store.
CREATE TABLE moved_in (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    -- The name of the move. The place that the store was copied from has the same name.
    id text NOT NULL,
    -- Only for people.
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
