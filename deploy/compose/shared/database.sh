#!/bin/sh
# database.sh primary|standby: starts PostgreSQL in its image. A standby copies the primary first.
set -eu
PGDATA=${PGDATA:-/var/lib/postgresql/data}
secrets=${SECRETS:-/run/secrets}
key=${KEY:-/etc/database_key}
# PostgreSQL wants a key that nobody else may read.
install -o postgres -g postgres -m 0600 "$secrets/database_key" "$key"
if [ "$1" = standby ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
    install -d -o postgres -g postgres -m 0700 "$PGDATA"
    password=$(cat "$secrets/replication_password")
    address="host=primary user=replication password=$password application_name=standby"
    until gosu postgres pg_basebackup --dbname "$address sslmode=verify-full sslrootcert=$secrets/database_ca" \
        --pgdata "$PGDATA" --wal-method stream --write-recovery-conf; do
        sleep 1
    done
fi
exec docker-entrypoint.sh postgres -c config_file=/etc/postgresql/postgresql.conf
