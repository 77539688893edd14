-- The log.

-- Small facts about the file itself: incarnation, how far the ids are kept in runs, the last test commit.
CREATE TABLE facts (
    name  TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- One row per topic and commit. The body comes last, so that the other columns are read without its pages.
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

-- How many entries a topic has.
CREATE TABLE sizes (
    topic   TEXT    PRIMARY KEY,
    entries INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What later reports filled in while a record was open; settled for ever when it closed.
CREATE TABLE amendments (
    topic    TEXT    NOT NULL,
    number   INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    fields   BLOB    NOT NULL,
    PRIMARY KEY (topic, number)
) STRICT, WITHOUT ROWID;

-- The terms of every submission in a commit: what receipts show and what the books are recounted from.
CREATE TABLE commits (
    id           INTEGER PRIMARY KEY,
    committed_at REAL    NOT NULL,
    checksum     INTEGER NOT NULL,
    terms        BLOB    NOT NULL
) STRICT;

-- The running counters, and the part of them whose commit rows retention took away.
CREATE TABLE books (
    topic   TEXT    NOT NULL,
    term    TEXT    NOT NULL,
    n       INTEGER NOT NULL,
    carried INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (topic, term)
) STRICT, WITHOUT ROWID;

-- Known ids: sorted runs of 8 bytes each, by the hour of the call's start.
CREATE TABLE id_runs (
    id         INTEGER PRIMARY KEY,
    hour       INTEGER NOT NULL,
    count      INTEGER NOT NULL,
    arrived_at REAL    NOT NULL,
    checksum   INTEGER NOT NULL,
    ids        BLOB    NOT NULL
) STRICT;

-- Where each cumulative counter stood; money as exact text.
CREATE TABLE series (
    id         BLOB    PRIMARY KEY,
    start_time INTEGER NOT NULL,
    time       INTEGER NOT NULL,
    value      TEXT    NOT NULL,
    seen_at    REAL    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX series_by_age ON series (seen_at);

-- Reports of one call that disagreed, newest kept: both sums by pair of sources, one example each.
CREATE TABLE conflicts (
    topic         TEXT    NOT NULL,
    first_source  TEXT    NOT NULL,
    second_source TEXT    NOT NULL,
    count         INTEGER NOT NULL,
    sums          BLOB    NOT NULL,
    PRIMARY KEY (topic, first_source, second_source)
) STRICT, WITHOUT ROWID;

-- Attribute names of items that look like AI and that no dialect took.
CREATE TABLE unrecognised (
    names     TEXT    PRIMARY KEY,
    count     INTEGER NOT NULL,
    last_seen REAL    NOT NULL
) STRICT, WITHOUT ROWID;

-- The types of usage events, and how many of each were kept since this table is here. `amount` is the sum of their
-- amounts as decimal text; NULL while none had one.
CREATE TABLE event_types (
    type      TEXT    PRIMARY KEY,
    count     INTEGER NOT NULL,
    last_seen REAL    NOT NULL,
    amount    TEXT
) STRICT, WITHOUT ROWID;
