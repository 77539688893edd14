-- The log: entries, and commit rows by which each node follows the others. Commit rows are never updated, except to
-- empty damaged terms.

-- The head lock: the holder of this row's lock is the only process that commits records. `period` selects the
-- partitions for new rows.
CREATE TABLE {schema}.heads (shard smallint PRIMARY KEY, period integer NOT NULL)
  WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0);

-- One row per group commit. Arrays are by topic, in the order of spool.record.TOPICS. `entries` and `size` (bytes)
-- count the log from its beginning up to this commit.
CREATE TABLE {schema}.commits (
    shard smallint NOT NULL,
    id bigint NOT NULL,
    period integer NOT NULL,
    token bigint NOT NULL,
    node uuid NOT NULL,
    at double precision NOT NULL,
    next bigint[] NOT NULL,
    closed bigint[] NOT NULL,
    durable bigint NOT NULL,
    entries bigint NOT NULL,
    size bigint NOT NULL,
    checksum bigint NOT NULL,
    terms bytea NOT NULL,
    ids bytea NOT NULL,
    found bytea,
    PRIMARY KEY (shard, id, period)
) PARTITION BY RANGE (period);

CREATE TABLE {schema}.entries (
    shard smallint NOT NULL,
    topic smallint NOT NULL,
    first bigint NOT NULL,
    count integer NOT NULL,
    period integer NOT NULL,
    at double precision NOT NULL,
    version smallint NOT NULL,
    checksum bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (shard, topic, first, period)
) PARTITION BY RANGE (period);

-- Fields that later reports added to a record. They are in the record's period, so that they are deleted with it.
CREATE TABLE {schema}.amendments (
    shard smallint NOT NULL,
    topic smallint NOT NULL,
    number bigint NOT NULL,
    period integer NOT NULL,
    checksum bigint NOT NULL,
    fields bytea NOT NULL,
    PRIMARY KEY (shard, topic, number, period)
) PARTITION BY RANGE (period);

-- Already compressed.
ALTER TABLE {schema}.entries ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE {schema}.commits ALTER COLUMN ids SET STORAGE EXTERNAL;

CREATE TABLE {schema}.commits_1 PARTITION OF {schema}.commits FOR VALUES FROM (1) TO (2);
CREATE TABLE {schema}.entries_1 PARTITION OF {schema}.entries FOR VALUES FROM (1) TO (2);
CREATE TABLE {schema}.amendments_1 PARTITION OF {schema}.amendments FOR VALUES FROM (1) TO (2);

-- The start of each period: its first numbers, its first commit, and the bytes of the log before it.
CREATE TABLE {schema}.periods (
    shard smallint NOT NULL,
    period integer NOT NULL,
    at double precision NOT NULL,
    firsts bigint[] NOT NULL,
    commit bigint NOT NULL,
    size bigint NOT NULL,
    PRIMARY KEY (shard, period)
);

-- Entries that cannot be read.
CREATE TABLE {schema}.damaged (
    shard smallint NOT NULL,
    topic smallint NOT NULL,
    first bigint NOT NULL,
    PRIMARY KEY (shard, topic, first)
);

CREATE TABLE {schema}.books (
    shard smallint NOT NULL,
    topic text NOT NULL,
    term text NOT NULL,
    n bigint NOT NULL,
    carried bigint NOT NULL,
    PRIMARY KEY (shard, topic, term)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0);

-- Progress of upkeep. Commits up to `booked` are counted in `books`; commits up to `carried` are carried forward
-- there. Numbers below `kept_from` were deleted, with `removed` entries; their disk space is freed with their period.
CREATE TABLE {schema}.marks (
    shard smallint PRIMARY KEY,
    booked bigint NOT NULL,
    carried bigint NOT NULL,
    kept_from bigint[] NOT NULL,
    removed bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0);

-- Known ids as sorted runs. The ids of commits after the one in `folds` are in the commit rows.
CREATE TABLE {schema}.id_runs (
    shard smallint NOT NULL,
    id bigint NOT NULL,
    hour integer NOT NULL,
    count integer NOT NULL,
    arrived_at double precision NOT NULL,
    checksum bigint NOT NULL,
    ids bytea NOT NULL,
    PRIMARY KEY (shard, id)
);
ALTER TABLE {schema}.id_runs ALTER COLUMN ids SET STORAGE EXTERNAL;

CREATE TABLE {schema}.folds (
    shard smallint PRIMARY KEY,
    seq bigint NOT NULL,
    commit bigint NOT NULL,
    through bigint[] NOT NULL,
    covered_since double precision NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0);

CREATE TABLE {schema}.series (
    shard smallint NOT NULL,
    id bytea NOT NULL,
    start_time bigint NOT NULL,
    time bigint NOT NULL,
    value text NOT NULL,
    seen_at double precision NOT NULL,
    PRIMARY KEY (shard, id)
) WITH (fillfactor = 70);

-- Names that senders chose are UTF-8 bytes, because PostgreSQL text cannot contain a zero byte.
CREATE TABLE {schema}.conflicts (
    shard smallint NOT NULL,
    topic text NOT NULL,
    first_source bytea NOT NULL,
    second_source bytea NOT NULL,
    sums bytea NOT NULL,
    PRIMARY KEY (shard, topic, first_source, second_source)
);

CREATE TABLE {schema}.unrecognised (
    shard smallint NOT NULL,
    names bytea NOT NULL,
    count bigint NOT NULL,
    last_seen double precision NOT NULL,
    PRIMARY KEY (shard, names)
);

CREATE TABLE {schema}.event_types (
    shard smallint NOT NULL,
    type bytea NOT NULL,
    count bigint NOT NULL,
    amount text,
    last_seen double precision NOT NULL,
    PRIMARY KEY (shard, type)
);

INSERT INTO {schema}.heads VALUES (0, 1);
INSERT INTO {schema}.periods VALUES (0, 1, extract(epoch FROM clock_timestamp()), ARRAY[1, 1, 1, 1], 1, 0);
INSERT INTO {schema}.marks VALUES (0, 0, 0, ARRAY[1, 1, 1, 1], 0);
INSERT INTO {schema}.folds VALUES (0, 0, 0, ARRAY[0, 0, 0, 0], 0);
