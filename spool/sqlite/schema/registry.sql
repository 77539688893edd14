-- registry.sqlite: who may come in and who changed what. Secrets, passwords and tokens are kept as hashes alone.

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

-- `issuer` and `subject` are of an OpenID provider; an account of Tollhouse's own has neither. An account without a
-- role of its own may do what role documents say.
CREATE TABLE operators (
    email         TEXT PRIMARY KEY,
    role          TEXT NOT NULL CHECK (role IN ('none', 'viewer', 'operator', 'admin')),
    password      BLOB NOT NULL,
    created_by    TEXT NOT NULL,
    created_at    REAL NOT NULL,
    last_modified REAL NOT NULL,
    disabled      INTEGER NOT NULL,
    issuer        TEXT NOT NULL,
    subject       TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Sessions and links end with the account that is behind them.
CREATE TABLE sessions (
    digest           BLOB PRIMARY KEY,
    actor            TEXT NOT NULL,
    role             TEXT NOT NULL,
    csrf             TEXT NOT NULL,
    created_at       REAL NOT NULL,
    seen_at          REAL NOT NULL,
    operator         INTEGER NOT NULL,
    account          TEXT NOT NULL,
    address          TEXT NOT NULL,
    ends_at          REAL NOT NULL,
    issuer           TEXT NOT NULL,
    subject          TEXT NOT NULL,
    provider_session TEXT NOT NULL,
    groups           TEXT NOT NULL,
    refreshes        INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE links (
    digest  BLOB PRIMARY KEY,
    actor   TEXT NOT NULL,
    role    TEXT NOT NULL,
    ends_at REAL NOT NULL,
    account TEXT NOT NULL
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

-- What detectors found or people wrote down, and what operators made of it. Here and not beside the ledger's sums:
-- statuses and comments are the operators' own and cannot be made again. `concerns` names the calls that an insight is
-- about, so that people see those of their own.
CREATE TABLE insights (
    id           TEXT PRIMARY KEY,
    finding      TEXT UNIQUE, -- what makes a detector's finding the same one again; null when a person wrote it
    title        TEXT NOT NULL,
    description  TEXT NOT NULL,
    category     TEXT NOT NULL,
    link         TEXT NOT NULL,
    status       TEXT NOT NULL CHECK (status IN ('new', 'in_progress', 'on_hold', 'addressed', 'ignored')),
    status_at    REAL NOT NULL,
    effort       TEXT NOT NULL CHECK (effort IN ('not_set', 'low', 'medium', 'high')),
    cost_impact  TEXT NOT NULL,
    created      REAL NOT NULL,
    last_updated REAL NOT NULL,
    found_at     REAL, -- when it was last found
    present      INTEGER NOT NULL, -- whether the last look found it
    touched      INTEGER NOT NULL, -- whether a person ever changed it: then it stays for good
    concerns     TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- AUTOINCREMENT: the number of a comment that went with its insight never comes again.
CREATE TABLE comments (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    insight      TEXT NOT NULL,
    text         TEXT NOT NULL,
    author       TEXT NOT NULL,
    created      REAL NOT NULL,
    last_updated REAL NOT NULL
) STRICT;
CREATE INDEX comments_by_insight ON comments (insight);

-- Billing connections: what each takes billing data from. JSON for where a provider leaves its files, null for none.
CREATE TABLE connections (
    id                   TEXT PRIMARY KEY,
    name                 TEXT NOT NULL,
    cloud_provider       TEXT NOT NULL,
    expected_ingest_rate REAL,
    is_enabled           INTEGER NOT NULL,
    s3_bucket            TEXT,
    upstream_id          TEXT NOT NULL, -- the id that it has upstream; empty: the same one
    created              REAL NOT NULL,
    last_updated         REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- Small tables that are read as a whole and kept for good: a row a thing, its fields as a JSON object. What kinds there
-- are, and what their fields mean, is said by `spool/registry/tables`.
CREATE TABLE documents (
    kind TEXT NOT NULL,
    id   TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;
