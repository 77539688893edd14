-- What another Tollhouse is told of a device: its last reset, and who revoked it.
ALTER TABLE devices ADD COLUMN reset_version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE devices ADD COLUMN revoked_by TEXT NOT NULL DEFAULT '';
