-- Container metrics. The columns are the fields of spool.container_files.values.ContainerFile.
CREATE TABLE {schema}.container_files (
    id               text COLLATE "C" PRIMARY KEY,
    kind             text COLLATE "C" NOT NULL,
    account          text COLLATE "C" NOT NULL,
    region           text COLLATE "C" NOT NULL,
    cluster          text COLLATE "C" NOT NULL,
    reference        text COLLATE "C" NOT NULL,
    key              text COLLATE "C" NOT NULL,
    shipper          text COLLATE "C" NOT NULL,
    agent_version    text COLLATE "C" NOT NULL,
    state            text COLLATE "C" NOT NULL,
    request          text COLLATE "C" NOT NULL,
    announced_size   bigint,
    announced_sha256 text COLLATE "C",
    size             bigint NOT NULL,
    sha256           text COLLATE "C" NOT NULL,
    kept             boolean NOT NULL,
    asked            boolean NOT NULL,
    untold           boolean NOT NULL,
    announced_at     float8 NOT NULL,
    expires_at       float8 NOT NULL,
    uploaded_at      float8,
    done_at          float8,
    not_before       float8 NOT NULL,
    problem          text COLLATE "C",
    body             bytea NOT NULL
) WITH (fillfactor = 70);
-- By hash, because a reference may be very long.
CREATE UNIQUE INDEX container_files_named ON {schema}.container_files (kind, account, region, cluster, md5(reference));
-- Rows that wait for the upstream, which are few.
CREATE INDEX container_files_due ON {schema}.container_files (kind, uploaded_at)
    WHERE state = 'uploaded' OR (asked AND kept);
CREATE INDEX container_files_untold ON {schema}.container_files (announced_at) WHERE untold;
CREATE INDEX container_files_missing ON {schema}.container_files (account, region, cluster) WHERE asked AND NOT kept;
CREATE INDEX container_files_states ON {schema}.container_files (state, kept, announced_at);
-- The order of lists, so that a page does not scan all rows. Null comes first, as in lists.
CREATE INDEX container_files_order ON {schema}.container_files (announced_at NULLS FIRST, id);

-- The running counters, and their part that no row shows any more.
CREATE TABLE {schema}.container_books (
    kind    text COLLATE "C" NOT NULL,
    term    text COLLATE "C" NOT NULL,
    n       bigint NOT NULL,
    carried bigint NOT NULL,
    PRIMARY KEY (kind, term)
) WITH (fillfactor = 50);

-- Contents of files. A draft is written in pieces and becomes a file's content when it gets the file's id.
CREATE TABLE {schema}.container_contents (
    draft text COLLATE "C" PRIMARY KEY,
    id    text COLLATE "C" UNIQUE,
    head  bytea NOT NULL,
    at    float8 NOT NULL -- when it was begun, later when it became a file's content
);
CREATE TABLE {schema}.container_pieces (
    draft text COLLATE "C" NOT NULL,
    n     int NOT NULL,
    body  bytea NOT NULL,
    PRIMARY KEY (draft, n)
);
ALTER TABLE {schema}.container_pieces ALTER COLUMN body SET STORAGE EXTERNAL;

-- Container usage by cluster and day. Day -1 has the unfinished sums and how far files are read.
CREATE TABLE {schema}.container_usage (
    account    text COLLATE "C" NOT NULL,
    region     text COLLATE "C" NOT NULL,
    cluster    text COLLATE "C" NOT NULL,
    day        bigint NOT NULL,
    changed_at float8 NOT NULL,
    body       bytea NOT NULL,
    PRIMARY KEY (account, region, cluster, day)
);
