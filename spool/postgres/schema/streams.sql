-- Unit-cost streams with the properties that are fixed at their creation. Dimension names are JSON, or NULL while
-- unknown.
CREATE TABLE {schema}.streams (
    name        text COLLATE "C" PRIMARY KEY,
    type        text COLLATE "C" NOT NULL,
    granularity text COLLATE "C",
    keys        text,
    created_at  float8 NOT NULL
);

-- The total of each record of a stream, as computed from the operations in the log; exact decimal text.
CREATE TABLE {schema}.stream_totals (
    stream       text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL,
    start_time   bigint NOT NULL,
    granularity  text COLLATE "C",
    element_name text COLLATE "C",
    dimensions   text NOT NULL,
    value        text NOT NULL,
    whole        boolean NOT NULL,
    updated_at   float8 NOT NULL,
    PRIMARY KEY (stream, key)
) WITH (fillfactor = 70);
CREATE INDEX stream_totals_by_time ON {schema}.stream_totals (stream, start_time);

-- The size of each stream's totals, and the key that created the stream, because the space is limited per key.
CREATE TABLE {schema}.stream_sizes (
    name       text COLLATE "C" PRIMARY KEY,
    created_by text COLLATE "C" NOT NULL,
    bytes      bigint NOT NULL
) WITH (fillfactor = 50);
