-- Devices and what upstream has of them; the columns are the fields of spool.devices.device.Device.
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
    heartbeat       BLOB    NOT NULL,
    clock_offset_s  REAL,
    flagged_at      REAL,
    version         INTEGER NOT NULL,
    facts_version   INTEGER NOT NULL,
    sent_version    INTEGER NOT NULL,
    upstream_id     TEXT,
    held            TEXT
) STRICT, WITHOUT ROWID;

-- Names that telemetry gave under keys that may not enrol.
CREATE TABLE unenrolled (
    name       TEXT    PRIMARY KEY,
    first_seen REAL    NOT NULL,
    last_seen  REAL    NOT NULL,
    count      INTEGER NOT NULL,
    key        TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
