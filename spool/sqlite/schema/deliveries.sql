-- Routes, their numbered deliveries, rejected records, and data lake files.

-- One row per destination and topic. Its terms balance: every accepted number is counted in a term, or in an open
-- delivery, or is at or above `next`, so that no delivery was cut for it yet. `ambiguous` counts records so far.
-- `unmapped` counts usage events without a mapping for the destination. `state_since` is NULL while the route runs.
CREATE TABLE routes (
    name             TEXT    PRIMARY KEY,
    topic            TEXT    NOT NULL,
    required         INTEGER NOT NULL,
    orphaned         INTEGER NOT NULL DEFAULT 0,
    state            TEXT    NOT NULL DEFAULT 'running',
    reason           TEXT,
    next             INTEGER NOT NULL,
    acceptances      INTEGER NOT NULL DEFAULT 0, -- accepted deliveries so far; orders responses independently of the clock
    before_start     INTEGER NOT NULL,
    delivered        INTEGER NOT NULL DEFAULT 0,
    refused_upstream INTEGER NOT NULL DEFAULT 0,
    dead             INTEGER NOT NULL DEFAULT 0,
    discarded        INTEGER NOT NULL DEFAULT 0,
    skipped          INTEGER NOT NULL DEFAULT 0,
    damaged          INTEGER NOT NULL DEFAULT 0,
    unknown          INTEGER NOT NULL DEFAULT 0,
    shadow           INTEGER NOT NULL DEFAULT 0,
    by_sync          INTEGER NOT NULL DEFAULT 0,
    replayed         INTEGER NOT NULL DEFAULT 0,
    ambiguous        INTEGER NOT NULL DEFAULT 0,
    unmapped         INTEGER NOT NULL DEFAULT 0,
    state_since      REAL
) STRICT, WITHOUT ROWID;

-- Requests that are not settled. `proof` is the route's number of accepted deliveries at the first refusal, `passed`
-- the number at the last 5xx. `fence` counts how often the delivery was taken for sending; only the last taker may
-- store its result.
CREATE TABLE deliveries (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    route           TEXT    NOT NULL,
    first           INTEGER NOT NULL,
    last            INTEGER NOT NULL,
    state           TEXT    NOT NULL DEFAULT 'open', -- or 'unknown': it may or may not have arrived
    not_before      REAL    NOT NULL DEFAULT 0,
    attempts        INTEGER NOT NULL DEFAULT 0,
    idempotency_key TEXT    NOT NULL,
    server_errors   INTEGER NOT NULL DEFAULT 0,
    passed          INTEGER NOT NULL,
    refusals        INTEGER NOT NULL DEFAULT 0,
    refused_at      REAL,
    proof           INTEGER,
    last_error      TEXT,
    mark            TEXT,
    replay          INTEGER NOT NULL DEFAULT 0,
    kept_at         REAL,                            -- for a retried rejected record: its commit time,
    kept            BLOB,                            -- and the record itself, because its entry may be deleted
    ambiguous       INTEGER NOT NULL DEFAULT 0,      -- the destination may have accepted it
    sending         INTEGER NOT NULL DEFAULT 0,      -- a worker is sending it
    answer          TEXT,                            -- last response under the current key,
    same_answers    INTEGER NOT NULL DEFAULT 0,      -- and how often it came in a row
    fence           INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX deliveries_by_route ON deliveries (route, replay, first);

-- Single records that a destination rejected twice while it accepted others. They stay until they are retried or
-- discarded.
CREATE TABLE dead (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    route        TEXT    NOT NULL,
    topic        TEXT    NOT NULL,
    number       INTEGER NOT NULL,
    committed_at REAL    NOT NULL,
    record       BLOB    NOT NULL,
    error        TEXT    NOT NULL,
    status       TEXT    NOT NULL,
    at           REAL    NOT NULL,
    replay       INTEGER NOT NULL
) STRICT;

-- Records that partial successes rejected: their range, and the destination's message.
CREATE TABLE refusals (
    id    INTEGER PRIMARY KEY AUTOINCREMENT,
    route TEXT    NOT NULL,
    first INTEGER NOT NULL,
    last  INTEGER NOT NULL,
    count INTEGER NOT NULL,
    words TEXT,
    at    REAL    NOT NULL
) STRICT;
CREATE INDEX refusals_by_route ON refusals (route, id);

-- The edition of a route's numbers from `first` on. A restored copy reuses numbers, so it begins another edition.
-- Rows of the route '' are the editions of the log, in order.
CREATE TABLE lake_editions (
    route   TEXT    NOT NULL,
    first   INTEGER NOT NULL,
    edition TEXT    NOT NULL,
    PRIMARY KEY (route, first)
) STRICT, WITHOUT ROWID;

-- Deliveries in a data lake, each with its manifest, written in the transaction that settles the delivery.
CREATE TABLE lake_files (
    route   TEXT    NOT NULL,
    first   INTEGER NOT NULL,
    last    INTEGER NOT NULL,
    edition TEXT    NOT NULL,
    body    BLOB    NOT NULL,
    PRIMARY KEY (route, first)
) STRICT, WITHOUT ROWID;
