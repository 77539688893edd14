-- Halves of a report that wait for their other half. Files of version 3 may have the table already.
CREATE TABLE IF NOT EXISTS pending (
    key  BLOB PRIMARY KEY,
    at   REAL NOT NULL,
    body BLOB NOT NULL
) STRICT, WITHOUT ROWID;
