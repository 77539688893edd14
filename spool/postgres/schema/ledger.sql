-- One row per distinct set of dimensions, so that each text is stored once. '' is unknown. Sums refer to these rows.
-- `digest` identifies the set, because its texts together may be too long for an index.
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
    sender text COLLATE "C" NOT NULL,
    tag_values jsonb NOT NULL
);

-- Sums by hour and by day. Money is in dollars with all its digits (spool/money.py).
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

-- Sums of units of work (spool/ledger/work.py) by the hours and days of the tables above, and the units of each sum: 0 for
-- a unit that is no longer listed, -1 for none.
CREATE TABLE {schema}.ledger_work (
    start bigint NOT NULL,
    units bigint NOT NULL,
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
    PRIMARY KEY (start, units, key)
);

CREATE TABLE {schema}.ledger_work_units (
    id bigint PRIMARY KEY,
    unit_session bigint NOT NULL,
    unit_run bigint NOT NULL,
    unit_repository bigint NOT NULL,
    unit_branch bigint NOT NULL,
    unit_commit bigint NOT NULL,
    unit_pull_request bigint NOT NULL,
    unit_ticket bigint NOT NULL,
    parent_run bigint NOT NULL
);

-- Queries by a unit look up its sets and their sums.
CREATE INDEX ON {schema}.ledger_work (units);
CREATE INDEX ON {schema}.ledger_work_units (unit_session);
CREATE INDEX ON {schema}.ledger_work_units (unit_branch) WHERE unit_branch > 0;
CREATE INDEX ON {schema}.ledger_work_units (unit_commit) WHERE unit_commit > 0;
CREATE INDEX ON {schema}.ledger_work_units (unit_pull_request) WHERE unit_pull_request > 0;
CREATE INDEX ON {schema}.ledger_work_units (unit_ticket) WHERE unit_ticket > 0;
CREATE INDEX ON {schema}.ledger_work_units (unit_run, parent_run, unit_session) WHERE unit_run > 0;
CREATE INDEX ON {schema}.ledger_work_units (parent_run, unit_run) WHERE parent_run > 0;

CREATE TABLE {schema}.ledger_work_names (
    id bigint PRIMARY KEY,
    name text COLLATE "C" NOT NULL
);

-- Units that are no longer listed. Their further calls are counted as 0, so that a listed unit has all its calls.
-- `parent_run` is the run that started an unlisted run, to which the runs that it started belong. `seen` is the start of
-- the last period with such a call, or a later time. When no query can show it together with new calls, the row is deleted.
CREATE TABLE {schema}.ledger_work_unlisted (
    unit bigint NOT NULL,
    id bigint NOT NULL,
    parent_run bigint NOT NULL,
    seen bigint NOT NULL,
    PRIMARY KEY (unit, id)
);

-- A copy of the links in the registry (spool/ledger/work_links.py), by the numbers of units. `linked` is 0 if the unit is
-- no longer listed.
CREATE TABLE {schema}.ledger_work_links (
    target bigint NOT NULL,
    unit bigint NOT NULL,
    id bigint NOT NULL,
    repository bigint NOT NULL,
    since bigint NOT NULL,
    until bigint NOT NULL,
    linked bigint NOT NULL,
    PRIMARY KEY (target, unit, id, repository, since)
);

-- Recalculations of estimates, oldest first (spool/ledger/recalculations.py), and the price lists that they used.
CREATE TABLE {schema}.ledger_recalculations (
    number bigint PRIMARY KEY,
    began double precision NOT NULL,
    since bigint NOT NULL,
    reach bigint NOT NULL,
    hourly bigint NOT NULL,
    list text NOT NULL,
    own bytea NOT NULL
);
CREATE TABLE {schema}.ledger_price_lists (
    digest text PRIMARY KEY,
    content bytea NOT NULL
);

-- The tags by which calls are counted (spool/ledger/tag_lists.py), oldest first: a JSON array.
CREATE TABLE {schema}.ledger_tag_lists (
    number bigint PRIMARY KEY,
    first bigint NOT NULL,
    since bigint NOT NULL,
    tags text NOT NULL
);

-- The lowest number counted in an hour, or in a day without hours (width in seconds). A period can be counted again
-- only while that number is stored. `frozen` is set while a rebuild reads numbers that the sums already have.
CREATE TABLE {schema}.ledger_periods (
    width bigint NOT NULL,
    start bigint NOT NULL,
    first bigint NOT NULL,
    frozen boolean NOT NULL DEFAULT false,
    PRIMARY KEY (width, start)
);

-- Names as in spool.ledger.counting.state_of. A change of sums locks `reach` first, so that only one process counts
-- at a time and sees what earlier ones counted.
CREATE TABLE {schema}.ledger_state (
    name text PRIMARY KEY,
    value bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
INSERT INTO {schema}.ledger_state VALUES ('reach', 1);

-- Quantities other than text tokens in the sums of hours and days (width in seconds): whole units and millionths, so
-- that no sum exceeds 64 bits.
CREATE TABLE {schema}.ledger_meters (
    width bigint NOT NULL,
    start bigint NOT NULL,
    key bigint NOT NULL,
    meter text COLLATE "C" NOT NULL,
    whole bigint NOT NULL,
    millionths bigint NOT NULL,
    PRIMARY KEY (width, start, key, meter)
);

-- Sums of days by fewer dimensions and over weeks, made from ledger_days (spool/ledger/days/rollups.py).
-- `ledger_rolled` marks the ones that are up to date.
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

-- Billed money by day and set of dimensions, in three limbs of nine decimals, made from provider bills and sums.
CREATE TABLE {schema}.ledger_billed (
    start bigint NOT NULL,
    provider text COLLATE "C" NOT NULL,
    key bigint NOT NULL,
    charge text COLLATE "C" NOT NULL,
    basis text COLLATE "C" NOT NULL,
    arranged bigint NOT NULL,
    high bigint NOT NULL,
    middle bigint NOT NULL,
    low bigint NOT NULL,
    PRIMARY KEY (start, provider, key, charge, basis, arranged)
);
CREATE INDEX ledger_billed_by_key ON {schema}.ledger_billed (key);

CREATE TABLE {schema}.ledger_billed_days (
    start bigint NOT NULL,
    provider text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    mark text COLLATE "C" NOT NULL,
    source text COLLATE "C" NOT NULL,
    read_at float8 NOT NULL,
    made_at float8 NOT NULL,
    revision bigint NOT NULL,
    told text COLLATE "C" NOT NULL,
    PRIMARY KEY (start, provider)
);

-- Sums of billed days without dimensions (spool/sql/billed.py).
CREATE TABLE {schema}.ledger_billed_sums (
    start bigint NOT NULL,
    provider text COLLATE "C" NOT NULL,
    charge text COLLATE "C" NOT NULL,
    basis text COLLATE "C" NOT NULL,
    arranged bigint NOT NULL,
    high bigint NOT NULL,
    middle bigint NOT NULL,
    low bigint NOT NULL,
    PRIMARY KEY (start, provider, charge, basis, arranged)
);

-- Rollups of billed money, made in the background, and marked in `ledger_rolled`.
CREATE TABLE {schema}.ledger_billed_rollups (
    rollup bigint NOT NULL,
    width bigint NOT NULL,
    start bigint NOT NULL,
    key bigint NOT NULL,
    charge text COLLATE "C" NOT NULL,
    basis text COLLATE "C" NOT NULL,
    arranged bigint NOT NULL,
    high bigint NOT NULL,
    middle bigint NOT NULL,
    low bigint NOT NULL,
    PRIMARY KEY (rollup, width, start, key, charge, basis, arranged)
);
