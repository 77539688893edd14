-- Unit-cost streams with the properties that are fixed at their creation. Dimension names are JSON, or NULL while
-- unknown.
CREATE TABLE streams (
    name        TEXT PRIMARY KEY,
    type        TEXT NOT NULL,
    granularity TEXT,
    keys        TEXT,
    created_at  REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- The total of each record of a stream, as computed from the operations in the log; exact decimal text.
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

-- The size of each stream's totals, and the key that created the stream, because the space is limited per key.
CREATE TABLE stream_sizes (
    name       TEXT PRIMARY KEY,
    created_by TEXT    NOT NULL,
    bytes      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
