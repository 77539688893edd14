-- Unit-cost streams: what is fixed at their creation. JSON for the names of dimensions, null while they are not known.
CREATE TABLE streams (
    name        TEXT PRIMARY KEY,
    type        TEXT NOT NULL,
    granularity TEXT,
    keys        TEXT,
    created_at  REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- The total of each record of a stream, as the operations in the log have made it; exact decimal text.
CREATE TABLE stream_totals (
    stream       TEXT    NOT NULL,
    key          TEXT    NOT NULL,
    start_time   INTEGER NOT NULL,
    granularity  TEXT,
    element_name TEXT,
    dimensions   TEXT    NOT NULL,
    value        TEXT    NOT NULL,
    whole        INTEGER NOT NULL,
    updated_at   REAL    NOT NULL,
    PRIMARY KEY (stream, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX stream_totals_by_time ON stream_totals (stream, start_time);

-- How much the totals of each stream take up, and under which key it was created: the totals are bounded by key.
CREATE TABLE stream_sizes (
    name       TEXT PRIMARY KEY,
    created_by TEXT    NOT NULL,
    bytes      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
