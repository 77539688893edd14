-- Halves of a report that wait for their other half.
CREATE TABLE IF NOT EXISTS pending (
    key  BLOB PRIMARY KEY,
    at   REAL NOT NULL,
    body BLOB NOT NULL
) STRICT, WITHOUT ROWID;
