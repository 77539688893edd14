-- The log: entries under commit rows, by which every node follows the others. Commit rows are never updated.

-- Whoever holds this row is the only one who commits records. `period` names the partitions that new rows go to.
CREATE TABLE {schema}.heads (shard smallint PRIMARY KEY, period integer NOT NULL)
  WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0);

-- One row a group commit. Arrays are by topic, in the order of spool.record.TOPICS. `entries` and `size` (bytes) are of
-- the log up to here, from its beginning.
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

-- What later reports filled into a record, whole: by the period of the record, so that it goes with it.
CREATE TABLE {schema}.amendments (
    shard smallint NOT NULL,
    topic smallint NOT NULL,
    number bigint NOT NULL,
    period integer NOT NULL,
    checksum bigint NOT NULL,
    fields bytea NOT NULL,
    PRIMARY KEY (shard, topic, number, period)
) PARTITION BY RANGE (period);

-- Compressed already.
ALTER TABLE {schema}.entries ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE {schema}.commits ALTER COLUMN ids SET STORAGE EXTERNAL;

CREATE TABLE {schema}.commits_1 PARTITION OF {schema}.commits FOR VALUES FROM (1) TO (2);
CREATE TABLE {schema}.entries_1 PARTITION OF {schema}.entries FOR VALUES FROM (1) TO (2);
CREATE TABLE {schema}.amendments_1 PARTITION OF {schema}.amendments FOR VALUES FROM (1) TO (2);

-- Where each period begins: its first numbers, its first commit, and the bytes of the log before it.
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

-- How far upkeep is: commits up to `booked` are in the books, up to `carried` they are carried forward there; numbers
-- below `kept_from` were removed, with `removed` entries. What lies below goes from the disk with its period.
CREATE TABLE {schema}.marks (
    shard smallint PRIMARY KEY,
    booked bigint NOT NULL,
    carried bigint NOT NULL,
    kept_from bigint[] NOT NULL,
    removed bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0);

-- Known ids as sorted runs; ids of commits after that of `folds` are in their rows.
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

-- Names of senders' making are bytes of UTF-8: a text of PostgreSQL holds no zero byte.
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
