-- Partial reports that wait for the rest of their call. Files of version 3 may have the table already.
CREATE TABLE IF NOT EXISTS pending (
    key  BLOB PRIMARY KEY,
    at   REAL NOT NULL,
    body BLOB NOT NULL
) STRICT, WITHOUT ROWID;
