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
