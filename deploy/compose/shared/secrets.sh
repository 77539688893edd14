#!/bin/sh
# secrets.sh [DIRECTORY]: makes the passwords, the certificate of the databases and the installation's secret, once.
# Keep a copy of installation_secret where you keep other secrets: keys and receipts mean nothing without it.
set -eu
umask 077
place=${1:-secrets}
mkdir "$place"
cd "$place"
for name in database_password replication_password tollhouse_password; do
    openssl rand -hex 24 | tr -d '\n' > "$name"
done
openssl rand -out installation_secret 32
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=databases of Tollhouse" \
    -keyout authority_key -out database_ca 2> /dev/null
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=primary" \
    -keyout database_key -out request 2> /dev/null
printf 'subjectAltName = DNS:primary, DNS:standby\n' > extensions
openssl x509 -req -in request -CA database_ca -CAkey authority_key -CAcreateserial -days 3650 -extfile extensions \
    -out database_certificate 2> /dev/null
rm -f request extensions authority_key database_ca.srl
printf 'host=primary,standby dbname=tollhouse user=tollhouse password=%s sslmode=verify-full sslrootcert=%s\n' \
    "$(cat tollhouse_password)" /run/secrets/database_ca > dsn
# The directory keeps others out; in the containers each is read by a user of its own.
chmod 0444 ./*
