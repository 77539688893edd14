-- Partial reports that wait for the rest of their call.
CREATE TABLE pending (
    key  BLOB PRIMARY KEY,
    at   REAL NOT NULL,
    body BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Who told calls, as digests, by the key that brought them (spool/log/heard.py): a row for each key of a commit.
-- Rows are added at the end and deleted from the front; a start reads them all.
CREATE TABLE heard (
    id      INTEGER PRIMARY KEY,
    at      REAL NOT NULL,
    key     TEXT NOT NULL,
    count   INTEGER NOT NULL,
    senders BLOB NOT NULL
) STRICT;
