-- Devices and their state upstream. The columns are the fields of spool.devices.device.Device. `reset_version` (the
-- last reset) and `revoked_by` are sent to another Tollhouse.
CREATE TABLE devices (
    id              TEXT    PRIMARY KEY,
    state           TEXT    NOT NULL,
    hostname        TEXT    NOT NULL,
    platform        TEXT    NOT NULL,
    agent_version   TEXT    NOT NULL,
    user            TEXT    NOT NULL,
    fingerprint     TEXT    NOT NULL,
    labels          TEXT    NOT NULL,
    operator_labels TEXT    NOT NULL,
    generation      INTEGER NOT NULL,
    has_key         INTEGER NOT NULL,
    key_used        INTEGER NOT NULL,
    enrolled_at     REAL    NOT NULL,
    enrolled_by     TEXT    NOT NULL,
    last_seen       REAL    NOT NULL,
    last_heartbeat  REAL,
    last_telemetry  REAL,
    newest_calls    TEXT    NOT NULL,
    uses            TEXT    NOT NULL,
    heartbeat       BLOB    NOT NULL,
    clock_offset_s  REAL,
    flagged_at      REAL,
    version         INTEGER NOT NULL,
    facts_version   INTEGER NOT NULL,
    sent_version    INTEGER NOT NULL,
    upstream_id     TEXT,
    held            TEXT,
    reset_version   INTEGER NOT NULL,
    revoked_by      TEXT    NOT NULL,
    token           TEXT    NOT NULL,
    serial          TEXT    NOT NULL,
    hardware_id     TEXT    NOT NULL,
    cause           TEXT    NOT NULL,
    replaced_by     TEXT    NOT NULL,
    words           TEXT    NOT NULL,
    copied_at       REAL,
    left_at         REAL,
    state_changes   TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

-- Device names from telemetry under keys that may not enrol devices.
CREATE TABLE unenrolled (
    name       TEXT    PRIMARY KEY,
    first_seen REAL    NOT NULL,
    last_seen  REAL    NOT NULL,
    count      INTEGER NOT NULL,
    key        TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

-- Slots of five minutes in which devices used coding assistants. The columns are the fields of
-- spool.devices.use_days.UseDay. Rows with an empty device are sums of a team.
CREATE TABLE use_days (
    day        TEXT    NOT NULL,
    device     TEXT    NOT NULL,
    assistant  TEXT    NOT NULL,
    team       TEXT    NOT NULL,
    used       INTEGER NOT NULL,
    lost       INTEGER NOT NULL,
    lost_calls INTEGER NOT NULL,
    PRIMARY KEY (day, device, assistant, team)
) STRICT, WITHOUT ROWID;
-- has all columns, so that the rows of a device are read without the table
CREATE INDEX use_days_device ON use_days (device, used, lost);

-- Clusters that reported. The columns are the fields of spool.clusters.Cluster, without those of their settings.
CREATE TABLE clusters (
    id                TEXT    PRIMARY KEY,
    account           TEXT    NOT NULL,
    region            TEXT    NOT NULL,
    name              TEXT    NOT NULL,
    state             TEXT    NOT NULL,
    chart_version     TEXT    NOT NULL,
    agent_version     TEXT    NOT NULL,
    validator_version TEXT    NOT NULL,
    k8s_version       TEXT    NOT NULL,
    provider_id       TEXT    NOT NULL,
    release_name      TEXT    NOT NULL,
    namespace         TEXT    NOT NULL,
    device            TEXT    NOT NULL,
    checks            TEXT    NOT NULL,
    first_seen        REAL    NOT NULL,
    last_seen         REAL    NOT NULL
) STRICT, WITHOUT ROWID;
