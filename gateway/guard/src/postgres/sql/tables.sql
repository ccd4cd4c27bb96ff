-- Format 1: the tables of a store.

-- One row. `time` is the number of milliseconds that guards of this store have seen pass. No wall clock is read.
CREATE TABLE store (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    format integer NOT NULL,
    store text NOT NULL,
    ensemble text NOT NULL,
    -- A token up to this floor is refused if its key has no row: the marks of that key may have been forgotten.
    floor bigint NOT NULL,
    -- A token up to this epoch is refused on every key, because the database has lost commits that it had
    -- acknowledged.
    rolled bigint NOT NULL DEFAULT -1,
    -- The largest known epoch apart from those in `lane`, such as that of instances without a row. Each instance has
    -- its own in `lane`.
    highest bigint NOT NULL,
    entries bigint NOT NULL DEFAULT 0,
    bytes bigint NOT NULL DEFAULT 0,
    era bigint NOT NULL DEFAULT 0,
    time bigint NOT NULL DEFAULT 0,
    -- A random number that changes with the time, and with each guard that joins. A guard may add to the time only if
    -- it knows the present number.
    tick bigint NOT NULL DEFAULT 0,
    -- No dispatch is let in before this time. If only `closed_why` is set, the wait begins when the first guard opens
    -- the store.
    closed_until bigint,
    closed_why text,
    -- The server on which the commits so far were made, and whether a standby had each of them.
    origin text NOT NULL DEFAULT '',
    followed boolean NOT NULL DEFAULT false
);

-- A guard that has the store open. A guard that was declared dead comes back as another instance.
CREATE TABLE instance (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    renewed bigint NOT NULL,
    dead boolean NOT NULL DEFAULT false,
    -- A guard may send a dispatch for `send_within` after its admission. The upstream may be at work for
    -- `max_execution` after the last byte.
    send_within bigint NOT NULL,
    max_execution bigint NOT NULL
);

-- The values that only the statements of one instance change.
CREATE TABLE lane (
    instance integer PRIMARY KEY REFERENCES instance ON DELETE CASCADE,
    -- The number of the connection. A statement of an earlier connection has a smaller number and is refused.
    generation integer NOT NULL DEFAULT 0,
    -- The number of committed statements.
    acts bigint NOT NULL DEFAULT 0,
    highest bigint NOT NULL DEFAULT 0,
    entries bigint NOT NULL DEFAULT 0,
    bytes bigint NOT NULL DEFAULT 0
);

-- The marks of a key. The byte order of two tokens is the order of the tokens.
CREATE TABLE key (
    key text COLLATE "C" PRIMARY KEY,
    -- The floor at the time when a reader made the first mark of the key. A write mark up to this floor may have been
    -- forgotten.
    base bigint NOT NULL DEFAULT 0,
    write text COLLATE "C",
    -- False if only the epoch of `write` is known. No further token of that epoch is let in.
    exact boolean NOT NULL DEFAULT true,
    -- The dispatch that raised `write`. If its question comes again, it is not taken for a duplicate.
    raised_by text COLLATE "C",
    read text COLLATE "C",
    -- Some request waits for a change of the key.
    waited boolean NOT NULL DEFAULT false,
    -- The time of the last use, rounded so that most updates of the row change no index.
    used bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);

CREATE INDEX key_used ON key (used);

-- A dispatch that was let in, with one row for each of its keys. It is in flight while `until` is NULL and its
-- instance lives. It is in doubt until `until` if that is set. If its instance is dead, it is in doubt until `began` +
-- `longest` at least.
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
    -- The time from which the entry may be forgotten, in seconds of the store's time. NULL while the outcome is
    -- unknown.
    ends bigint
);

CREATE INDEX operation_ends ON operation (ends) WHERE ends IS NOT NULL;
CREATE INDEX operation_open ON operation (id) WHERE ends IS NULL;
