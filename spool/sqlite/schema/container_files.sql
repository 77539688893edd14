-- Container metrics. The columns are the fields of spool.container_files.values.ContainerFile.
CREATE TABLE container_files (
    id               TEXT    PRIMARY KEY,
    kind             TEXT    NOT NULL,
    account          TEXT    NOT NULL,
    region           TEXT    NOT NULL,
    cluster          TEXT    NOT NULL,
    reference        TEXT    NOT NULL,
    key              TEXT    NOT NULL,
    shipper          TEXT    NOT NULL,
    agent_version    TEXT    NOT NULL,
    state            TEXT    NOT NULL,
    request          TEXT    NOT NULL,
    announced_size   INTEGER,
    announced_sha256 TEXT,
    size             INTEGER NOT NULL,
    sha256           TEXT    NOT NULL,
    kept             INTEGER NOT NULL,
    asked            INTEGER NOT NULL,
    untold           INTEGER NOT NULL,
    announced_at     REAL    NOT NULL,
    expires_at       REAL    NOT NULL,
    uploaded_at      REAL,
    done_at          REAL,
    not_before       REAL    NOT NULL,
    problem          TEXT,
    body             BLOB    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX container_files_named ON container_files (kind, account, region, cluster, reference);

-- Rows that wait for the upstream, which are few.
CREATE INDEX container_files_due ON container_files (kind, uploaded_at) WHERE state = 'uploaded' OR (asked AND kept);
CREATE INDEX container_files_untold ON container_files (announced_at) WHERE untold;
CREATE INDEX container_files_missing ON container_files (account, region, cluster) WHERE asked AND NOT kept;
CREATE INDEX container_files_states ON container_files (state, kept, announced_at);
-- The order of lists, so that a page does not scan all rows.
CREATE INDEX container_files_order ON container_files (announced_at, id);

-- The running counters, and their part that no row shows any more.
CREATE TABLE container_books (
    kind    TEXT    NOT NULL,
    term    TEXT    NOT NULL,
    n       INTEGER NOT NULL,
    carried INTEGER NOT NULL,
    PRIMARY KEY (kind, term)
) STRICT, WITHOUT ROWID;

-- Container usage by cluster and day. Day -1 has the unfinished sums and how far files are read.
CREATE TABLE container_usage (
    account    TEXT    NOT NULL,
    region     TEXT    NOT NULL,
    cluster    TEXT    NOT NULL,
    day        INTEGER NOT NULL,
    changed_at REAL    NOT NULL,
    body       BLOB    NOT NULL,
    PRIMARY KEY (account, region, cluster, day)
) STRICT, WITHOUT ROWID;
