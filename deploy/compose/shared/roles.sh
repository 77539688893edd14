#!/bin/sh
# Run once by the image of PostgreSQL, when it has made the primary's data directory: no standby confirms anything yet.
set -eu
secrets=${SECRETS:-/run/secrets}
PGOPTIONS='-c synchronous_commit=local' psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" \
    --dbname postgres --set tollhouse="$(cat "$secrets/tollhouse_password")" \
    --set replication="$(cat "$secrets/replication_password")" << 'SQL'
CREATE ROLE tollhouse LOGIN PASSWORD :'tollhouse';
GRANT pg_monitor TO tollhouse;
CREATE DATABASE tollhouse OWNER tollhouse;
CREATE ROLE replication LOGIN REPLICATION PASSWORD :'replication';
SQL
echo 'hostssl replication replication all scram-sha-256' >> "$PGDATA/pg_hba.conf"
