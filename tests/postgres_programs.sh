#!/bin/sh
# Gets PostgreSQL's server programs and pgbouncer from Debian's packages without starting a server.
# root installs them; anybody else unpacks them into the folder $1, where the tests look for them.
set -eu
folder=$1

has() { ls /usr/lib/postgresql/*/bin/initdb "$folder"/usr/lib/postgresql/*/bin/initdb 2>/dev/null | grep -q .; }
has_pooler() { command -v pgbouncer || [ -x /usr/sbin/pgbouncer ] || [ -x "$folder/usr/sbin/pgbouncer" ]; }

has && has_pooler >/dev/null && exit 0
command -v apt-get >/dev/null || { echo "there is no apt-get"; exit 1; }
if [ "$(id -u)" = 0 ]; then
  apt-get update -qq
  if [ ! -e /etc/postgresql-common/createcluster.conf ]; then # else the package makes a database and starts it
    mkdir -p /etc/postgresql-common
    echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
  fi
  if [ ! -e /usr/sbin/policy-rc.d ]; then # Debian's way to say that installing starts nothing
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod 755 /usr/sbin/policy-rc.d
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
  fi
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    -o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-confold postgresql pgbouncer
else
  mkdir -p "$folder"
  cd "$folder"
  names=$(apt-get install -s --no-install-recommends postgresql pgbouncer | sed -n 's/^Inst \([^ ]*\).*/\1/p')
  apt-get download -qq $names
  for package in *.deb; do dpkg -x "$package" .; done
  rm -f -- *.deb
fi
