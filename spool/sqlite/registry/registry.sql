-- registry.sqlite: who may come in and who changed what. Secrets, passwords and tokens are kept as hashes alone.

-- Small facts that belong to no row: the last access of the deployment's key.
CREATE TABLE facts (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- AUTOINCREMENT: the number of a deleted key never comes again, so a late last access cannot fall on another key.
CREATE TABLE keys (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    name          TEXT NOT NULL UNIQUE,
    folded        TEXT NOT NULL UNIQUE,
    status        TEXT NOT NULL CHECK (status IN ('Enabled', 'Disabled')),
    description   TEXT NOT NULL,
    scopes        TEXT NOT NULL,
    use_cases     TEXT NOT NULL CHECK ((scopes = '[]') <> (use_cases = '[]')),
    labels        TEXT NOT NULL,
    created_by    TEXT NOT NULL,
    updated_by    TEXT NOT NULL,
    last_modified REAL NOT NULL,
    last_accessed REAL
) STRICT;

-- The secret in force, and while a rotation overlaps the one before it.
CREATE TABLE secrets (
    digest  BLOB PRIMARY KEY,
    key_id  INTEGER NOT NULL,
    ends_at REAL
) STRICT;
CREATE INDEX secrets_by_key ON secrets (key_id);

CREATE TABLE operators (
    email         TEXT PRIMARY KEY,
    role          TEXT NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    password      BLOB NOT NULL,
    created_by    TEXT NOT NULL,
    created_at    REAL NOT NULL,
    last_modified REAL NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
    digest     BLOB PRIMARY KEY,
    actor      TEXT NOT NULL,
    role       TEXT NOT NULL,
    csrf       TEXT NOT NULL,
    created_at REAL NOT NULL,
    seen_at    REAL NOT NULL,
    operator   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE links (
    digest  BLOB PRIMARY KEY,
    actor   TEXT NOT NULL,
    role    TEXT NOT NULL,
    ends_at REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- Written in the transaction of the change; nothing deletes from it.
CREATE TABLE audit (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      REAL NOT NULL,
    actor   TEXT NOT NULL,
    address TEXT NOT NULL,
    action  TEXT NOT NULL,
    target  TEXT NOT NULL,
    before  TEXT,
    after   TEXT
) STRICT;
