-- Sums of days by fewer dimensions and over weeks, made of ledger_days (spool/ledger/days/rollups.py). `ledger_rolled` marks
-- those that are what their days are; the release before leaves both as they are, and does not set `rolled_by`.
CREATE TABLE {schema}.ledger_rollups (
    rollup bigint NOT NULL,
    width bigint NOT NULL,
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
    PRIMARY KEY (rollup, width, start, key)
);

CREATE TABLE {schema}.ledger_rolled (
    width bigint NOT NULL,
    start bigint NOT NULL,
    rollup bigint NOT NULL,
    PRIMARY KEY (width, start, rollup)
);
