-- registry.sqlite: who may sign in or send, and who changed what. Only hashes of secrets, passwords and tokens are
-- stored.

-- AUTOINCREMENT never reuses the number of a deleted key, so a late last access cannot be stored for another key.
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

-- The current secret and, while a rotation overlaps, the previous one.
CREATE TABLE secrets (
    digest  BLOB PRIMARY KEY,
    key_id  INTEGER NOT NULL,
    ends_at REAL
) STRICT;
CREATE INDEX secrets_by_key ON secrets (key_id);

-- `issuer` and `subject` belong to an OpenID provider; accounts of Tollhouse itself have neither. An account without
-- a role of its own has the rights that role documents give.
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

-- Sessions and links end with their account.
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

-- Audit rows, written in the transaction of the change. Nothing deletes them.
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

-- Who saw figures of which person, once for each day.
CREATE TABLE viewings (
    id     INTEGER PRIMARY KEY,
    day    TEXT NOT NULL,
    viewer TEXT NOT NULL,
    person TEXT NOT NULL,
    face   TEXT NOT NULL,
    page   TEXT NOT NULL,
    reason TEXT NOT NULL,
    UNIQUE (day, viewer, person, face, page, reason)
) STRICT;

-- Insights of detectors and people, and what operators did with them. They are stored here, because statuses and
-- comments cannot be made again like the ledger's sums. `concerns` is a filter for the calls that an insight is
-- about, so that people see the insights about their own calls.
CREATE TABLE insights (
    id           TEXT PRIMARY KEY,
    finding      TEXT UNIQUE, -- identifies a detector's finding over time; NULL if a person wrote it
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
    present      INTEGER NOT NULL, -- whether the last run found it
    touched      INTEGER NOT NULL, -- whether a person ever changed it; then it is never deleted automatically
    concerns     TEXT NOT NULL,
    severity     TEXT NOT NULL -- as the detector stated it; empty if it follows from category and cost impact
) STRICT, WITHOUT ROWID;

-- AUTOINCREMENT never reuses the number of a deleted comment.
CREATE TABLE comments (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    insight      TEXT NOT NULL,
    text         TEXT NOT NULL,
    author       TEXT NOT NULL,
    created      REAL NOT NULL,
    last_updated REAL NOT NULL
) STRICT;
CREATE INDEX comments_by_insight ON comments (insight);

-- Billing connections. `s3_bucket` is JSON for where a provider delivers its files, or NULL.
CREATE TABLE connections (
    id                   TEXT PRIMARY KEY,
    name                 TEXT NOT NULL,
    cloud_provider       TEXT NOT NULL,
    expected_ingest_rate REAL,
    is_enabled           INTEGER NOT NULL,
    s3_bucket            TEXT,
    upstream_id          TEXT NOT NULL, -- its id upstream; empty means the same id
    created              REAL NOT NULL,
    last_updated         REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- Small tables that are read as a whole and never expire: one row per thing, with its fields as a JSON object.
-- `spool/registry/tables` defines the kinds and their fields.
CREATE TABLE documents (
    kind TEXT NOT NULL,
    id   TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;
