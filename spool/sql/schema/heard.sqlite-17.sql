-- Who told calls, as digests, by the key that brought them (spool/log/heard.py): a row for each key of a commit.
-- Rows are added at the end and deleted from the front; a start reads them all.
CREATE TABLE heard (
    id      INTEGER PRIMARY KEY,
    at      REAL NOT NULL,
    key     TEXT NOT NULL,
    count   INTEGER NOT NULL,
    senders BLOB NOT NULL
) STRICT;
