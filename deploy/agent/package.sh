#!/usr/bin/env bash
# package.sh NFPM FROZEN OUTPUT: the Debian package and the RPM of a folder that freeze.sh made.
#
# Both have the service, the program and no settings: the administrator distributes /etc/tollhouse/agent.toml.
set -euo pipefail
nfpm=$(realpath "$1") frozen=$(realpath "$2") output=$(realpath -m "$3")
cd "$(dirname "$0")/../.."
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
VERSION=${VERSION:-$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)}
MAINTAINER=${DEBEMAIL:+${DEBFULLNAME:-Tollhouse} <$DEBEMAIL>}
MAINTAINER=${MAINTAINER:-$(git log -1 --format='%an <%ae>')}
case $(uname -m) in x86_64) ARCH=amd64 ;; aarch64) ARCH=arm64 ;; *) ARCH=$(uname -m) ;; esac
# The newest version of the C library that any of the files asks for.
GLIBC=$(find "$frozen" -type f \( -name '*.so*' -o -name tollhouse \) -exec objdump -T {} + 2>/dev/null |
  grep -oE 'GLIBC_2\.[0-9]+' | sort -uV | tail -n 1 | cut -d_ -f2)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/units" "$work/keys"
cp deploy/systemd/tollhouse-agent* deploy/agent/linux/*.path "$work/units"
sed 's/^grpc_listen = .*/grpc_listen = ""                     # this build has no gRPC/' \
  deploy/systemd/agent.toml > "$work/agent.toml"
export SOURCE_DATE_EPOCH VERSION MAINTAINER ARCH GLIBC FROZEN=$frozen WORK=$work
mkdir -p "$output"
for format in deb rpm; do
  "$nfpm" package --config deploy/agent/linux/nfpm.yaml --packager "$format" --target "$output" >&2
done
ls "$output"/tollhouse-agent[_-]"$VERSION"*
