-- Accounts without a role of their own: what they may do, role documents say.

CREATE TABLE operators_new (
    email         TEXT PRIMARY KEY,
    role          TEXT NOT NULL CHECK (role IN ('none', 'viewer', 'operator', 'admin')),
    password      BLOB NOT NULL,
    created_by    TEXT NOT NULL,
    created_at    REAL NOT NULL,
    last_modified REAL NOT NULL,
    disabled      INTEGER NOT NULL DEFAULT 0,
    issuer        TEXT NOT NULL DEFAULT '',
    subject       TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;

INSERT INTO operators_new SELECT email, role, password, created_by, created_at, last_modified, disabled, issuer, subject
    FROM operators;
DROP TABLE operators;
ALTER TABLE operators_new RENAME TO operators;
