#!/bin/sh
# tools.sh FOLDER: download promtool and openssl for the tests of deploy/. If one fails, write the reason to FOLDER/NAME.missing.
set -u
folder=$1
mkdir -p "$folder"
rm -f "$folder"/*.missing

cannot() { # NAME REASON
  echo "$2" > "$folder/$1.missing"
  echo "tests of deploy/ are skipped: $1 cannot be had: $2" >&2
}

# Unpack Debian's Prometheus package, because installing it would start a server.
if ! command -v promtool >/dev/null && [ ! -x "$folder/prometheus/usr/bin/promtool" ]; then
  if ! command -v apt-get >/dev/null; then
    cannot promtool "there is no apt-get"
  elif ! (cd "$folder" && apt-get download -qq prometheus && dpkg -x prometheus_*.deb prometheus) 2>"$folder/promtool.log"; then
    cannot promtool "$(tail -n 1 "$folder/promtool.log")"
  fi
  rm -f "$folder"/prometheus_*.deb
fi

if ! command -v openssl >/dev/null; then
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    cannot openssl "root installs it on Debian: apt-get install openssl"
  elif ! DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends openssl \
    >"$folder/openssl.log" 2>&1; then
    cannot openssl "$(tail -n 1 "$folder/openssl.log")"
  fi
fi
exit 0
