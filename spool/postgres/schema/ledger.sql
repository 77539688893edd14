-- One row for every distinct set of dimensions; '' is unknown. Sums refer to it, so that a text is kept once. The digest
-- is that of the set: its texts together can be longer than an index allows.
CREATE TABLE {schema}.ledger_keys (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest bytea NOT NULL UNIQUE,
    kind text COLLATE "C" NOT NULL,
    source text COLLATE "C" NOT NULL,
    provider text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    request_model text COLLATE "C" NOT NULL,
    team text COLLATE "C" NOT NULL,
    "user" text COLLATE "C" NOT NULL,
    device text COLLATE "C" NOT NULL,
    api_key text COLLATE "C" NOT NULL,
    tags text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    cost_source text COLLATE "C" NOT NULL,
    mode text COLLATE "C" NOT NULL,
    size bigint NOT NULL,
    region text COLLATE "C" NOT NULL,
    tag_values jsonb NOT NULL
);

-- Sums by hour and by day. Money is in dollars with every digit that is counted (spool/ledger/money.py).
CREATE TABLE {schema}.ledger_hours (
    start bigint NOT NULL,
    key bigint NOT NULL,
    calls bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cache_read_tokens bigint NOT NULL,
    cache_write_tokens bigint NOT NULL,
    reasoning_tokens bigint NOT NULL,
    cache_write_1h_tokens bigint NOT NULL,
    reported numeric(60, 27) NOT NULL,
    estimated numeric(60, 27) NOT NULL,
    latency_ms bigint NOT NULL,
    latency_0 bigint NOT NULL,
    latency_1 bigint NOT NULL,
    latency_2 bigint NOT NULL,
    latency_3 bigint NOT NULL,
    latency_4 bigint NOT NULL,
    latency_5 bigint NOT NULL,
    latency_6 bigint NOT NULL,
    latency_7 bigint NOT NULL,
    latency_8 bigint NOT NULL,
    latency_9 bigint NOT NULL,
    latency_10 bigint NOT NULL,
    latency_11 bigint NOT NULL,
    PRIMARY KEY (start, key)
);

CREATE TABLE {schema}.ledger_days (
    start bigint NOT NULL,
    key bigint NOT NULL,
    calls bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cache_read_tokens bigint NOT NULL,
    cache_write_tokens bigint NOT NULL,
    reasoning_tokens bigint NOT NULL,
    cache_write_1h_tokens bigint NOT NULL,
    reported numeric(60, 27) NOT NULL,
    estimated numeric(60, 27) NOT NULL,
    latency_ms bigint NOT NULL,
    latency_0 bigint NOT NULL,
    latency_1 bigint NOT NULL,
    latency_2 bigint NOT NULL,
    latency_3 bigint NOT NULL,
    latency_4 bigint NOT NULL,
    latency_5 bigint NOT NULL,
    latency_6 bigint NOT NULL,
    latency_7 bigint NOT NULL,
    latency_8 bigint NOT NULL,
    latency_9 bigint NOT NULL,
    latency_10 bigint NOT NULL,
    latency_11 bigint NOT NULL,
    PRIMARY KEY (start, key)
);

-- The lowest number that was counted in an hour, or in a day that has no hours any more (width in seconds): a period can
-- be counted anew only while that number is kept. `frozen` while a rebuild reads numbers again that the sums have.
CREATE TABLE {schema}.ledger_periods (
    width bigint NOT NULL,
    start bigint NOT NULL,
    first bigint NOT NULL,
    frozen boolean NOT NULL DEFAULT false,
    PRIMARY KEY (width, start)
);

-- Names as in spool.ledger.counting.state_of. Whoever changes sums locks `reach` first, so that one reader of the log
-- counts at a time and finds what the one before it counted.
CREATE TABLE {schema}.ledger_state (
    name text PRIMARY KEY,
    value bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
INSERT INTO {schema}.ledger_state VALUES ('reach', 1);
