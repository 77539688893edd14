-- The running gateways, and the leases for work that only one of them may do. A session that was not renewed in time
-- has ended for good.

-- `routes` are the routes of its configuration, `wants` the leases that it could hold. `version` is its release,
-- `schema_version` the schema version of that release. `settings_hash` and `note` report its settings to other nodes.
-- `woken` grows when an operator gives a route new work.
CREATE TABLE {schema}.nodes (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    version text NOT NULL,
    schema_version integer NOT NULL,
    started_at double precision NOT NULL,
    seen_at double precision NOT NULL,
    settings_hash text NOT NULL DEFAULT '',
    routes text[] NOT NULL DEFAULT '{}',
    wants text[] NOT NULL DEFAULT '{}',
    note jsonb
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0);

CREATE TABLE {schema}.leases (
    name text COLLATE "C" PRIMARY KEY,
    node uuid,
    fence bigint NOT NULL DEFAULT 0,
    since double precision NOT NULL DEFAULT 0,
    woken bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0);
