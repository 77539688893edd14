-- The log.

-- Small facts about the file: its incarnation, how far ids are in runs, the last test commit.
CREATE TABLE facts (
    name  TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- One row per topic and commit. The body is the last column, so that other columns are read without its pages.
CREATE TABLE entries (
    topic        TEXT    NOT NULL,
    first        INTEGER NOT NULL,
    count        INTEGER NOT NULL,
    committed_at REAL    NOT NULL,
    damaged      INTEGER NOT NULL DEFAULT 0,
    version      INTEGER NOT NULL,
    checksum     INTEGER NOT NULL,
    body         BLOB    NOT NULL,
    PRIMARY KEY (topic, first)
) STRICT;

-- The number of entries per topic.
CREATE TABLE sizes (
    topic   TEXT    PRIMARY KEY,
    entries INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Fields that later reports added to an open record. They never change after the record is closed.
CREATE TABLE amendments (
    topic    TEXT    NOT NULL,
    number   INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    fields   BLOB    NOT NULL,
    PRIMARY KEY (topic, number)
) STRICT, WITHOUT ROWID;

-- The terms of every submission in a commit. Receipts show them, and recounts of the accounting use them.
CREATE TABLE commits (
    id           INTEGER PRIMARY KEY,
    committed_at REAL    NOT NULL,
    checksum     INTEGER NOT NULL,
    terms        BLOB    NOT NULL
) STRICT;

-- The running counters, and the carried part of each: the part with deleted commit rows.
CREATE TABLE books (
    topic   TEXT    NOT NULL,
    term    TEXT    NOT NULL,
    n       INTEGER NOT NULL,
    carried INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (topic, term)
) STRICT, WITHOUT ROWID;

-- Known ids as sorted runs of 8 bytes each, by the hour in which the call started.
CREATE TABLE id_runs (
    id         INTEGER PRIMARY KEY,
    hour       INTEGER NOT NULL,
    count      INTEGER NOT NULL,
    arrived_at REAL    NOT NULL,
    checksum   INTEGER NOT NULL,
    ids        BLOB    NOT NULL
) STRICT;

-- The last value of each cumulative counter; money is exact text.
CREATE TABLE series (
    id         BLOB    PRIMARY KEY,
    start_time INTEGER NOT NULL,
    time       INTEGER NOT NULL,
    value      TEXT    NOT NULL,
    seen_at    REAL    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX series_by_age ON series (seen_at);

-- Reports of one call that disagreed: both sums per pair of sources, and the newest example.
CREATE TABLE conflicts (
    topic         TEXT    NOT NULL,
    first_source  TEXT    NOT NULL,
    second_source TEXT    NOT NULL,
    count         INTEGER NOT NULL,
    sums          BLOB    NOT NULL,
    PRIMARY KEY (topic, first_source, second_source)
) STRICT, WITHOUT ROWID;

-- Attribute names of items that look like AI but that no rule reads.
CREATE TABLE unrecognised (
    names     TEXT    PRIMARY KEY,
    count     INTEGER NOT NULL,
    last_seen REAL    NOT NULL
) STRICT, WITHOUT ROWID;

-- Types of usage events, and their number since this table exists. `amount` is the sum of their amounts as decimal
-- text, or NULL if none had an amount.
CREATE TABLE event_types (
    type      TEXT    PRIMARY KEY,
    count     INTEGER NOT NULL,
    last_seen REAL    NOT NULL,
    amount    TEXT
) STRICT, WITHOUT ROWID;
