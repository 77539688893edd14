-- Partial reports that wait for the rest of their call.
CREATE TABLE pending (
    key  BLOB PRIMARY KEY,
    at   REAL NOT NULL,
    body BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Senders that reported calls, as digests, by their key (spool/log/heard.py): one row per key and commit. Rows are
-- added at the end and deleted at the start. A start reads them all.
CREATE TABLE heard (
    id      INTEGER PRIMARY KEY,
    at      REAL NOT NULL,
    key     TEXT NOT NULL,
    count   INTEGER NOT NULL,
    senders BLOB NOT NULL
) STRICT;
