-- Who may sign in or send, and who changed what. Only hashes of secrets, passwords and tokens are stored. JSON is
-- stored as text. Texts are compared and sorted by code point.

-- One row, the registry's head lock: every change locks it first. `seq` numbers the changes that other nodes must
-- follow. Numbers of deleted keys and comments are never reused.
CREATE TABLE {schema}.registry_head (
    one            boolean PRIMARY KEY CHECK (one),
    seq            bigint  NOT NULL,
    newest_key     bigint  NOT NULL,
    newest_comment bigint  NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0);
INSERT INTO {schema}.registry_head VALUES (true, 0, 0, 0);

-- The subjects of each change. Only the newest are stored; a node that is further behind reads everything.
CREATE TABLE {schema}.registry_changes (
    seq  bigint NOT NULL,
    kind text   NOT NULL,
    id   text   NOT NULL,
    at   float8 NOT NULL,
    PRIMARY KEY (seq, kind, id)
);

CREATE TABLE {schema}.keys (
    id            bigint PRIMARY KEY,
    name          text COLLATE "C" NOT NULL UNIQUE,
    folded        text COLLATE "C" NOT NULL UNIQUE,
    status        text COLLATE "C" NOT NULL CHECK (status IN ('Enabled', 'Disabled')),
    description   text COLLATE "C" NOT NULL,
    scopes        text NOT NULL,
    use_cases     text NOT NULL CHECK ((scopes = '[]') <> (use_cases = '[]')),
    labels        text NOT NULL,
    created_by    text COLLATE "C" NOT NULL,
    updated_by    text COLLATE "C" NOT NULL,
    last_modified float8 NOT NULL,
    last_accessed float8
) WITH (fillfactor = 70);

-- The current secret and, while a rotation overlaps, the previous one. `place` is their order.
CREATE TABLE {schema}.secrets (
    digest  bytea PRIMARY KEY,
    key_id  bigint NOT NULL,
    place   int NOT NULL,
    ends_at float8
);
CREATE INDEX secrets_by_key ON {schema}.secrets (key_id);

CREATE TABLE {schema}.operators (
    email         text COLLATE "C" PRIMARY KEY,
    role          text COLLATE "C" NOT NULL CHECK (role IN ('none', 'viewer', 'operator', 'admin')),
    password      bytea NOT NULL,
    created_by    text COLLATE "C" NOT NULL,
    created_at    float8 NOT NULL,
    last_modified float8 NOT NULL,
    disabled      boolean NOT NULL,
    issuer        text COLLATE "C" NOT NULL,
    subject       text COLLATE "C" NOT NULL
);

CREATE TABLE {schema}.sessions (
    digest           bytea PRIMARY KEY,
    actor            text COLLATE "C" NOT NULL,
    role             text COLLATE "C" NOT NULL,
    csrf             text COLLATE "C" NOT NULL,
    created_at       float8 NOT NULL,
    seen_at          float8 NOT NULL,
    operator         boolean NOT NULL,
    account          text COLLATE "C" NOT NULL,
    address          text COLLATE "C" NOT NULL,
    ends_at          float8 NOT NULL,
    issuer           text COLLATE "C" NOT NULL,
    subject          text COLLATE "C" NOT NULL,
    provider_session text COLLATE "C" NOT NULL,
    groups           text NOT NULL,
    refreshes        boolean NOT NULL
) WITH (fillfactor = 70);

CREATE TABLE {schema}.links (
    digest  bytea PRIMARY KEY,
    actor   text COLLATE "C" NOT NULL,
    role    text COLLATE "C" NOT NULL,
    ends_at float8 NOT NULL,
    account text COLLATE "C" NOT NULL
);

-- Audit rows, written in the transaction of the change. Nothing deletes them.
CREATE TABLE {schema}.audit (
    id      bigint PRIMARY KEY,
    at      float8 NOT NULL,
    actor   text COLLATE "C" NOT NULL,
    address text COLLATE "C" NOT NULL,
    action  text COLLATE "C" NOT NULL,
    target  text COLLATE "C" NOT NULL,
    before  text,
    after   text
);

-- Who saw figures of which person, once for each day.
CREATE TABLE {schema}.viewings (
    id     bigint PRIMARY KEY,
    day    text COLLATE "C" NOT NULL,
    viewer text COLLATE "C" NOT NULL,
    person text COLLATE "C" NOT NULL,
    face   text COLLATE "C" NOT NULL,
    page   text COLLATE "C" NOT NULL,
    reason text COLLATE "C" NOT NULL,
    UNIQUE (day, viewer, person, face, page, reason)
);

-- Insights of detectors and people, and what operators did with them.
CREATE TABLE {schema}.insights (
    id           text COLLATE "C" PRIMARY KEY,
    finding      text COLLATE "C" UNIQUE, -- identifies a detector's finding over time; NULL if a person wrote it
    title        text COLLATE "C" NOT NULL,
    description  text COLLATE "C" NOT NULL,
    category     text COLLATE "C" NOT NULL,
    link         text COLLATE "C" NOT NULL,
    status       text COLLATE "C" NOT NULL,
    status_at    float8 NOT NULL,
    effort       text COLLATE "C" NOT NULL,
    cost_impact  text COLLATE "C" NOT NULL,
    created      float8 NOT NULL,
    last_updated float8 NOT NULL,
    found_at     float8, -- when it was last found
    present      boolean NOT NULL, -- whether the last run found it
    touched      boolean NOT NULL, -- whether a person ever changed it; then it is never deleted automatically
    concerns     text COLLATE "C" NOT NULL,
    severity     text COLLATE "C" NOT NULL -- as the detector stated it; empty if category and cost impact decide
);

CREATE TABLE {schema}.comments (
    id           bigint PRIMARY KEY,
    insight      text COLLATE "C" NOT NULL,
    text         text COLLATE "C" NOT NULL,
    author       text COLLATE "C" NOT NULL,
    created      float8 NOT NULL,
    last_updated float8 NOT NULL
);
CREATE INDEX comments_by_insight ON {schema}.comments (insight);

-- Billing connections. `s3_bucket` is JSON for where a provider delivers its files, or NULL.
CREATE TABLE {schema}.connections (
    id                   text COLLATE "C" PRIMARY KEY,
    name                 text COLLATE "C" NOT NULL,
    cloud_provider       text COLLATE "C" NOT NULL,
    expected_ingest_rate float8,
    is_enabled           boolean NOT NULL,
    s3_bucket            text,
    upstream_id          text COLLATE "C" NOT NULL, -- its id upstream; empty means the same id
    created              float8 NOT NULL,
    last_updated         float8 NOT NULL
);

-- Small tables that are read as a whole: one row per thing, with its fields as a JSON object.
CREATE TABLE {schema}.documents (
    kind text COLLATE "C" NOT NULL,
    id   text COLLATE "C" NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (kind, id)
);
