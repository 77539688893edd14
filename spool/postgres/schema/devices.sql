-- Devices and their state upstream. The columns are the fields of spool.devices.device.Device, plus `row_version`,
-- which changes with every write. A write names the version that was read.
CREATE TABLE {schema}.devices (
    id              text COLLATE "C" PRIMARY KEY,
    state           text COLLATE "C" NOT NULL,
    hostname        text COLLATE "C" NOT NULL,
    platform        text COLLATE "C" NOT NULL,
    agent_version   text COLLATE "C" NOT NULL,
    "user"          text COLLATE "C" NOT NULL,
    fingerprint     text COLLATE "C" NOT NULL,
    labels          text NOT NULL,
    operator_labels text NOT NULL,
    generation      bigint NOT NULL,
    has_key         boolean NOT NULL,
    key_used        boolean NOT NULL,
    enrolled_at     float8 NOT NULL,
    enrolled_by     text COLLATE "C" NOT NULL,
    last_seen       float8 NOT NULL,
    last_heartbeat  float8,
    last_telemetry  float8,
    newest_calls    text NOT NULL,
    uses            text NOT NULL,
    heartbeat       bytea NOT NULL,
    clock_offset_s  float8,
    flagged_at      float8,
    version         bigint NOT NULL,
    facts_version   bigint NOT NULL,
    sent_version    bigint NOT NULL,
    upstream_id     text COLLATE "C",
    held            text COLLATE "C",
    reset_version   bigint NOT NULL,
    revoked_by      text COLLATE "C" NOT NULL,
    token           text COLLATE "C" NOT NULL,
    serial          text COLLATE "C" NOT NULL,
    hardware_id     text COLLATE "C" NOT NULL,
    cause           text COLLATE "C" NOT NULL,
    replaced_by     text COLLATE "C" NOT NULL,
    words           text COLLATE "C" NOT NULL,
    copied_at       float8,
    left_at         float8,
    state_changes   text    NOT NULL,
    row_version     bigint NOT NULL,
    written_at      float8 NOT NULL
) WITH (fillfactor = 70);

-- Device names from telemetry under keys that may not enrol devices.
CREATE TABLE {schema}.unenrolled (
    name       text COLLATE "C" PRIMARY KEY,
    first_seen float8 NOT NULL,
    last_seen  float8 NOT NULL,
    count      bigint NOT NULL,
    key        text COLLATE "C" NOT NULL
) WITH (fillfactor = 70);

-- Slots of five minutes in which devices used coding assistants. The columns are the fields of
-- spool.devices.use_days.UseDay. Rows with an empty device are sums of a team.
CREATE TABLE {schema}.use_days (
    day        text COLLATE "C" NOT NULL,
    device     text COLLATE "C" NOT NULL,
    assistant  text COLLATE "C" NOT NULL,
    team       text COLLATE "C" NOT NULL,
    used       bigint NOT NULL,
    lost       bigint NOT NULL,
    lost_calls bigint NOT NULL,
    PRIMARY KEY (day, device, assistant, team)
);
CREATE INDEX use_days_device ON {schema}.use_days (device);

-- Clusters that reported. The columns are the fields of spool.clusters.Cluster, without those of their settings.
CREATE TABLE {schema}.clusters (
    id                text COLLATE "C" PRIMARY KEY,
    account           text COLLATE "C" NOT NULL,
    region            text COLLATE "C" NOT NULL,
    name              text COLLATE "C" NOT NULL,
    state             text COLLATE "C" NOT NULL,
    chart_version     text COLLATE "C" NOT NULL,
    agent_version     text COLLATE "C" NOT NULL,
    validator_version text COLLATE "C" NOT NULL,
    k8s_version       text COLLATE "C" NOT NULL,
    provider_id       text COLLATE "C" NOT NULL,
    release_name      text COLLATE "C" NOT NULL,
    namespace         text COLLATE "C" NOT NULL,
    device            text COLLATE "C" NOT NULL,
    checks            text NOT NULL,
    first_seen        float8 NOT NULL,
    last_seen         float8 NOT NULL
) WITH (fillfactor = 70);
