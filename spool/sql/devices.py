from __future__ import annotations

DELETE = "DELETE FROM {schema}.devices WHERE id = :id"
FORGET_NAME = "DELETE FROM {schema}.unenrolled WHERE name = :name"
ALL_NAMES = "SELECT name, first_seen, last_seen, count, key FROM {schema}.unenrolled ORDER BY last_seen, name"
