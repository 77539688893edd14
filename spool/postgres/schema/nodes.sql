-- The gateways that run, and what each of them runs alone. A session that was not renewed in time is over for good.

-- `routes` are those of its configuration, `wants` the leases that it could hold. `version` is its release, and
-- `schema_version` that of the schema which the release makes. `settings_hash` and `note` tell other nodes what it
-- works with. `woken` grows when an operator gives a route something to do.
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
