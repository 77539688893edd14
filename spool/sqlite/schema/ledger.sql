-- One row per distinct set of dimensions, so that each text is stored once. '' is unknown. Sums refer to these rows.
CREATE TABLE keys (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    source TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    request_model TEXT NOT NULL,
    team TEXT NOT NULL,
    user TEXT NOT NULL,
    device TEXT NOT NULL,
    api_key TEXT NOT NULL,
    tags TEXT NOT NULL,
    status TEXT NOT NULL,
    cost_source TEXT NOT NULL,
    mode TEXT NOT NULL,
    size INTEGER NOT NULL,
    region TEXT NOT NULL,
    sender TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX keys_by_dimensions ON keys (
    model, user, device, api_key, team, tags, source, provider, request_model, status, cost_source, kind, mode, size,
    region, sender
);

-- Sums by hour and by day. Each amount of money has three limbs of nine decimals (spool/money.py).
CREATE TABLE hours (
    start INTEGER NOT NULL,
    key INTEGER NOT NULL,
    calls INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cache_read_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    cache_write_1h_tokens INTEGER NOT NULL,
    reported_1 INTEGER NOT NULL,
    reported_2 INTEGER NOT NULL,
    reported_3 INTEGER NOT NULL,
    estimated_1 INTEGER NOT NULL,
    estimated_2 INTEGER NOT NULL,
    estimated_3 INTEGER NOT NULL,
    latency_ms INTEGER NOT NULL,
    latency_0 INTEGER NOT NULL,
    latency_1 INTEGER NOT NULL,
    latency_2 INTEGER NOT NULL,
    latency_3 INTEGER NOT NULL,
    latency_4 INTEGER NOT NULL,
    latency_5 INTEGER NOT NULL,
    latency_6 INTEGER NOT NULL,
    latency_7 INTEGER NOT NULL,
    latency_8 INTEGER NOT NULL,
    latency_9 INTEGER NOT NULL,
    latency_10 INTEGER NOT NULL,
    latency_11 INTEGER NOT NULL,
    PRIMARY KEY (start, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE days (
    start INTEGER NOT NULL,
    key INTEGER NOT NULL,
    calls INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cache_read_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    cache_write_1h_tokens INTEGER NOT NULL,
    reported_1 INTEGER NOT NULL,
    reported_2 INTEGER NOT NULL,
    reported_3 INTEGER NOT NULL,
    estimated_1 INTEGER NOT NULL,
    estimated_2 INTEGER NOT NULL,
    estimated_3 INTEGER NOT NULL,
    latency_ms INTEGER NOT NULL,
    latency_0 INTEGER NOT NULL,
    latency_1 INTEGER NOT NULL,
    latency_2 INTEGER NOT NULL,
    latency_3 INTEGER NOT NULL,
    latency_4 INTEGER NOT NULL,
    latency_5 INTEGER NOT NULL,
    latency_6 INTEGER NOT NULL,
    latency_7 INTEGER NOT NULL,
    latency_8 INTEGER NOT NULL,
    latency_9 INTEGER NOT NULL,
    latency_10 INTEGER NOT NULL,
    latency_11 INTEGER NOT NULL,
    PRIMARY KEY (start, key)
) STRICT, WITHOUT ROWID;

-- Sums of units of work (spool/ledger/work.py) by the hours and days of the tables above, and the units of each sum: 0 for
-- a unit that is no longer listed, -1 for none.
CREATE TABLE work (
    start INTEGER NOT NULL,
    units INTEGER NOT NULL,
    key INTEGER NOT NULL,
    calls INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cache_read_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    cache_write_1h_tokens INTEGER NOT NULL,
    reported_1 INTEGER NOT NULL,
    reported_2 INTEGER NOT NULL,
    reported_3 INTEGER NOT NULL,
    estimated_1 INTEGER NOT NULL,
    estimated_2 INTEGER NOT NULL,
    estimated_3 INTEGER NOT NULL,
    latency_ms INTEGER NOT NULL,
    latency_0 INTEGER NOT NULL,
    latency_1 INTEGER NOT NULL,
    latency_2 INTEGER NOT NULL,
    latency_3 INTEGER NOT NULL,
    latency_4 INTEGER NOT NULL,
    latency_5 INTEGER NOT NULL,
    latency_6 INTEGER NOT NULL,
    latency_7 INTEGER NOT NULL,
    latency_8 INTEGER NOT NULL,
    latency_9 INTEGER NOT NULL,
    latency_10 INTEGER NOT NULL,
    latency_11 INTEGER NOT NULL,
    PRIMARY KEY (start, units, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE work_units (
    id INTEGER PRIMARY KEY,
    unit_session INTEGER NOT NULL,
    unit_run INTEGER NOT NULL,
    unit_repository INTEGER NOT NULL,
    unit_branch INTEGER NOT NULL,
    unit_commit INTEGER NOT NULL,
    unit_pull_request INTEGER NOT NULL,
    unit_ticket INTEGER NOT NULL,
    parent_run INTEGER NOT NULL
) STRICT;

-- Queries by a unit look up its sets and their sums.
CREATE INDEX work_sums ON work (units);
CREATE INDEX work_sessions ON work_units (unit_session);
CREATE INDEX work_branches ON work_units (unit_branch) WHERE unit_branch > 0;
CREATE INDEX work_commits ON work_units (unit_commit) WHERE unit_commit > 0;
CREATE INDEX work_pull_requests ON work_units (unit_pull_request) WHERE unit_pull_request > 0;
CREATE INDEX work_tickets ON work_units (unit_ticket) WHERE unit_ticket > 0;
CREATE INDEX work_runs ON work_units (unit_run, parent_run, unit_session) WHERE unit_run > 0;
CREATE INDEX work_parents ON work_units (parent_run, unit_run) WHERE parent_run > 0;

CREATE TABLE work_names (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL
) STRICT;

-- Units that are no longer listed. Their further calls are counted as 0, so that a listed unit has all its calls.
-- `parent_run` is the run that started an unlisted run, to which the runs that it started belong. `seen` is the start of
-- the last period with such a call, or a later time. When no query can show it together with new calls, the row is deleted.
CREATE TABLE work_unlisted (
    unit INTEGER NOT NULL,
    id INTEGER NOT NULL,
    parent_run INTEGER NOT NULL,
    seen INTEGER NOT NULL,
    PRIMARY KEY (unit, id)
) STRICT, WITHOUT ROWID;

-- A copy of the links in the registry (spool/ledger/work_links.py), by the numbers of units. `linked` is 0 if the unit is
-- no longer listed.
CREATE TABLE work_links (
    target INTEGER NOT NULL,
    unit INTEGER NOT NULL,
    id INTEGER NOT NULL,
    repository INTEGER NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER NOT NULL,
    linked INTEGER NOT NULL,
    PRIMARY KEY (target, unit, id, repository, since)
) STRICT, WITHOUT ROWID;

-- Recalculations of estimates, oldest first (spool/ledger/recalculations.py), and the price lists that they used.
CREATE TABLE recalculations (
    number INTEGER PRIMARY KEY,
    began REAL NOT NULL,
    since INTEGER NOT NULL,
    reach INTEGER NOT NULL,
    hourly INTEGER NOT NULL,
    list TEXT NOT NULL,
    own BLOB NOT NULL
) STRICT;
CREATE TABLE price_lists (
    digest TEXT PRIMARY KEY,
    content BLOB NOT NULL
) STRICT;

-- The tags by which calls are counted (spool/ledger/tag_lists.py), oldest first: a JSON array.
CREATE TABLE tag_lists (
    number INTEGER PRIMARY KEY,
    first INTEGER NOT NULL,
    since INTEGER NOT NULL,
    tags TEXT NOT NULL
) STRICT;

-- Quantities other than text tokens in the sums of hours and days (width in seconds): whole units and millionths.
CREATE TABLE meters (
    width INTEGER NOT NULL,
    start INTEGER NOT NULL,
    key INTEGER NOT NULL,
    meter TEXT NOT NULL,
    whole INTEGER NOT NULL,
    millionths INTEGER NOT NULL,
    PRIMARY KEY (width, start, key, meter)
) STRICT, WITHOUT ROWID;

-- Sums of days by fewer dimensions and over weeks, made from `days` in the background (spool/ledger/days/rollups.py).
-- `rolled` marks the ones that are up to date.
CREATE TABLE rollups (
    rollup INTEGER NOT NULL,
    width INTEGER NOT NULL,
    start INTEGER NOT NULL,
    key INTEGER NOT NULL,
    calls INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cache_read_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    cache_write_1h_tokens INTEGER NOT NULL,
    reported_1 INTEGER NOT NULL,
    reported_2 INTEGER NOT NULL,
    reported_3 INTEGER NOT NULL,
    estimated_1 INTEGER NOT NULL,
    estimated_2 INTEGER NOT NULL,
    estimated_3 INTEGER NOT NULL,
    latency_ms INTEGER NOT NULL,
    latency_0 INTEGER NOT NULL,
    latency_1 INTEGER NOT NULL,
    latency_2 INTEGER NOT NULL,
    latency_3 INTEGER NOT NULL,
    latency_4 INTEGER NOT NULL,
    latency_5 INTEGER NOT NULL,
    latency_6 INTEGER NOT NULL,
    latency_7 INTEGER NOT NULL,
    latency_8 INTEGER NOT NULL,
    latency_9 INTEGER NOT NULL,
    latency_10 INTEGER NOT NULL,
    latency_11 INTEGER NOT NULL,
    PRIMARY KEY (rollup, width, start, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE rolled (
    width INTEGER NOT NULL,
    start INTEGER NOT NULL,
    rollup INTEGER NOT NULL,
    PRIMARY KEY (width, start, rollup)
) STRICT, WITHOUT ROWID;

-- The lowest number counted in an hour, or in a day without hours (width in seconds). A period can be counted again
-- only while that number is stored. `frozen` is set while a rebuild reads numbers that the sums already have.
CREATE TABLE periods (
    width INTEGER NOT NULL,
    start INTEGER NOT NULL,
    first INTEGER NOT NULL,
    frozen INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (width, start)
) STRICT, WITHOUT ROWID;

-- reach: the next number to count. rebuilding: frozen periods have all numbers below it. daily: days before it are in
-- `days`. hourly: hours before it exist only as days. missed, damaged, absurd: numbers that could not be counted.
-- whole: hours before it may lack missed numbers.
CREATE TABLE state (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Billed money by day and set of dimensions, in three limbs of nine decimals, made from provider bills and sums. The
-- key has the set of dimensions before the provider, because filters select by dimensions.
CREATE TABLE billed (
    start INTEGER NOT NULL,
    provider TEXT NOT NULL,
    key INTEGER NOT NULL,
    charge TEXT NOT NULL,
    basis TEXT NOT NULL,
    arranged INTEGER NOT NULL,
    high INTEGER NOT NULL,
    middle INTEGER NOT NULL,
    low INTEGER NOT NULL,
    PRIMARY KEY (start, key, provider, charge, basis, arranged)
) STRICT, WITHOUT ROWID;

CREATE TABLE billed_days (
    start INTEGER NOT NULL,
    provider TEXT NOT NULL,
    state TEXT NOT NULL,
    mark TEXT NOT NULL,
    source TEXT NOT NULL,
    read_at REAL NOT NULL,
    made_at REAL NOT NULL,
    revision INTEGER NOT NULL,
    told TEXT NOT NULL,
    PRIMARY KEY (start, provider)
) STRICT, WITHOUT ROWID;

-- Sums of billed days without dimensions (spool/sql/billed.py).
CREATE TABLE billed_sums (
    start INTEGER NOT NULL,
    provider TEXT NOT NULL,
    charge TEXT NOT NULL,
    basis TEXT NOT NULL,
    arranged INTEGER NOT NULL,
    high INTEGER NOT NULL,
    middle INTEGER NOT NULL,
    low INTEGER NOT NULL,
    PRIMARY KEY (start, provider, charge, basis, arranged)
) STRICT, WITHOUT ROWID;

-- Rollups of billed money, made in the background, and marked in `rolled`.
CREATE TABLE billed_rollups (
    rollup INTEGER NOT NULL,
    width INTEGER NOT NULL,
    start INTEGER NOT NULL,
    key INTEGER NOT NULL,
    charge TEXT NOT NULL,
    basis TEXT NOT NULL,
    arranged INTEGER NOT NULL,
    high INTEGER NOT NULL,
    middle INTEGER NOT NULL,
    low INTEGER NOT NULL,
    PRIMARY KEY (rollup, width, start, key, charge, basis, arranged)
) STRICT, WITHOUT ROWID;
