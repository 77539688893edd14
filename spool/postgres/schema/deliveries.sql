-- Routes, their numbered deliveries, rejected records, and data lake files. A route's terms balance: every accepted
-- number is counted in a term, or in an open delivery, or is at or above `next`, so that no delivery was cut for it
-- yet. `named_at` is when a gateway last reported that its configuration has the route. `state_since` is NULL while
-- it runs.
CREATE TABLE {schema}.routes (
    shard smallint NOT NULL DEFAULT 0,
    name text COLLATE "C" NOT NULL,
    topic text NOT NULL,
    required boolean NOT NULL,
    orphaned boolean NOT NULL DEFAULT false,
    named_at double precision NOT NULL,
    state text NOT NULL DEFAULT 'running',
    reason text,
    next bigint NOT NULL,
    acceptances bigint NOT NULL DEFAULT 0,
    replayed bigint NOT NULL DEFAULT 0,
    ambiguous bigint NOT NULL DEFAULT 0,
    before_start bigint NOT NULL DEFAULT 0,
    delivered bigint NOT NULL DEFAULT 0,
    refused_upstream bigint NOT NULL DEFAULT 0,
    dead bigint NOT NULL DEFAULT 0,
    discarded bigint NOT NULL DEFAULT 0,
    skipped bigint NOT NULL DEFAULT 0,
    damaged bigint NOT NULL DEFAULT 0,
    unknown bigint NOT NULL DEFAULT 0,
    shadow bigint NOT NULL DEFAULT 0,
    by_sync bigint NOT NULL DEFAULT 0,
    unmapped bigint NOT NULL DEFAULT 0,
    state_since double precision,
    PRIMARY KEY (shard, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0);

-- Requests that are not settled. `owner` is the session that is sending the delivery, `fence` how often it was taken.
-- `proof` is the route's number of accepted deliveries at the first refusal, `passed` the number at the last 5xx.
-- `kept` is the record of a retried rejected record.
CREATE TABLE {schema}.deliveries (
    shard smallint NOT NULL DEFAULT 0,
    id bigint GENERATED ALWAYS AS IDENTITY,
    route text COLLATE "C" NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    replay boolean NOT NULL,
    fence bigint NOT NULL DEFAULT 0,
    owner uuid,
    state text NOT NULL DEFAULT 'open',
    not_before double precision NOT NULL DEFAULT 0,
    attempts integer NOT NULL DEFAULT 0,
    idempotency_key text NOT NULL,
    ambiguous boolean NOT NULL DEFAULT false,
    server_errors integer NOT NULL DEFAULT 0,
    passed bigint NOT NULL,
    refusals integer NOT NULL DEFAULT 0,
    refused_at double precision,
    proof bigint,
    last_error text,
    mark text,
    sending boolean NOT NULL DEFAULT false,
    answer text,
    same_answers integer NOT NULL DEFAULT 0,
    kept_at double precision,
    kept bytea,
    PRIMARY KEY (shard, id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX deliveries_by_route ON {schema}.deliveries (shard, route, replay, first);

-- Single records that a destination rejected twice while it accepted others. They stay until they are retried or
-- discarded.
CREATE TABLE {schema}.dead (
    shard smallint NOT NULL DEFAULT 0,
    id bigint GENERATED ALWAYS AS IDENTITY,
    route text COLLATE "C" NOT NULL,
    topic text NOT NULL,
    number bigint NOT NULL,
    committed_at double precision NOT NULL,
    record bytea NOT NULL,
    error text NOT NULL,
    status text NOT NULL,
    at double precision NOT NULL,
    replay boolean NOT NULL,
    PRIMARY KEY (shard, id)
);

-- Records that partial successes rejected: their range, and the destination's message.
CREATE TABLE {schema}.refusals (
    shard smallint NOT NULL DEFAULT 0,
    id bigint GENERATED ALWAYS AS IDENTITY,
    route text COLLATE "C" NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    count bigint NOT NULL,
    words text,
    at double precision NOT NULL,
    PRIMARY KEY (shard, id)
);
CREATE INDEX refusals_by_route ON {schema}.refusals (shard, route, id);

-- The edition of a route's numbers from `first` on. A restored copy reuses numbers, so it begins another edition.
-- Rows of the route '' are the editions of the log, in order.
CREATE TABLE {schema}.lake_editions (
    route   text COLLATE "C" NOT NULL,
    first   bigint NOT NULL,
    edition text COLLATE "C" NOT NULL,
    PRIMARY KEY (route, first)
);

-- Deliveries in a data lake, each with its manifest, written in the transaction that settles the delivery.
CREATE TABLE {schema}.lake_files (
    route   text COLLATE "C" NOT NULL,
    first   bigint NOT NULL,
    last    bigint NOT NULL,
    edition text COLLATE "C" NOT NULL,
    body    bytea NOT NULL,
    PRIMARY KEY (route, first)
);
