-- Small tables that are read as a whole and kept for good: a row a thing, its fields as a JSON object. What kinds there
-- are, and what their fields mean, is said by `spool/registry/tables`.
CREATE TABLE documents (
    kind TEXT NOT NULL,
    id   TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;
