-- Format 1: what is remembered.

-- One row. `time` is in milliseconds that guards of this store have seen pass; no wall clock is asked.
CREATE TABLE store (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    format integer NOT NULL,
    store text NOT NULL,
    ensemble text NOT NULL,
    -- A token up to here is refused where its key has no row: its marks may have been forgotten.
    floor bigint NOT NULL,
    -- A token up to here is refused on every key: the database has lost what it had acknowledged.
    rolled bigint NOT NULL DEFAULT -1,
    -- Of instances that are gone; those that are there have theirs in `lane`.
    highest bigint NOT NULL,
    entries bigint NOT NULL DEFAULT 0,
    bytes bigint NOT NULL DEFAULT 0,
    era bigint NOT NULL DEFAULT 0,
    time bigint NOT NULL DEFAULT 0,
    -- Moves with the time, and with everybody who joins: who adds to the time has to know the last one.
    tick bigint NOT NULL DEFAULT 0,
    -- Nothing is let in before then; `why` without `until`: from the first guard that opens the store.
    closed_until bigint,
    closed_why text,
    -- Where the commits of before were made, and whether a standby had each of them.
    origin text NOT NULL DEFAULT '',
    followed boolean NOT NULL DEFAULT false
);

-- A guard that has the store open. One that is dead comes back as another one.
CREATE TABLE instance (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    renewed bigint NOT NULL,
    dead boolean NOT NULL DEFAULT false,
    -- So long after an admission it may send, and so long after its last byte the upstream may be at work.
    send_within bigint NOT NULL,
    max_execution bigint NOT NULL
);

-- What only the statements of one instance change.
CREATE TABLE lane (
    instance integer PRIMARY KEY REFERENCES instance ON DELETE CASCADE,
    -- A statement of an earlier connection is refused by its smaller number.
    generation integer NOT NULL DEFAULT 0,
    -- Statements that were committed.
    acts bigint NOT NULL DEFAULT 0,
    highest bigint NOT NULL DEFAULT 0,
    entries bigint NOT NULL DEFAULT 0,
    bytes bigint NOT NULL DEFAULT 0
);

-- The marks of a key. Byte order of tokens is their order.
CREATE TABLE key (
    key text COLLATE "C" PRIMARY KEY,
    -- The floor when a reader began the row: its last write may have been forgotten up to here.
    base bigint NOT NULL DEFAULT 0,
    write text COLLATE "C",
    -- False where only the epoch is known: nothing of it is let in again.
    exact boolean NOT NULL DEFAULT true,
    -- The dispatch that raised `write`: asked once more, it is not its own duplicate.
    raised_by text COLLATE "C",
    read text COLLATE "C",
    -- Somebody waits for a change.
    waited boolean NOT NULL DEFAULT false,
    -- Coarse, so that an update of the row changes no index.
    used bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);

CREATE INDEX key_used ON key (used);

-- A dispatch that was let in, once for each of its keys. It is in flight, in doubt `until`, or as its instance is dead
-- in doubt until `began` + `longest`.
CREATE TABLE at_work (
    key text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    instance integer NOT NULL,
    token text COLLATE "C" NOT NULL,
    shared boolean NOT NULL,
    began bigint NOT NULL,
    longest bigint NOT NULL,
    until bigint,
    PRIMARY KEY (key, id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 2000);

-- The right to decide over an operation.
CREATE TABLE held (
    operation bytea PRIMARY KEY,
    instance integer NOT NULL,
    holder text NOT NULL,
    waited boolean NOT NULL DEFAULT false
);

CREATE TABLE operation (
    id bytea PRIMARY KEY,
    entry text NOT NULL,
    body bytea,
    bytes bigint NOT NULL,
    -- When it may be forgotten, in seconds of the store's time; none without a known outcome.
    ends bigint
);

CREATE INDEX operation_ends ON operation (ends) WHERE ends IS NOT NULL;
CREATE INDEX operation_open ON operation (id) WHERE ends IS NULL;
