#!/usr/bin/env bash
# build.sh FROZEN OUTPUT: OUTPUT/tollhouse-agent-VERSION-x64.msi, on Debian with wixl, msitools and gcc-mingw-w64-x86-64.
#
# FROZEN is the folder that deploy/agent/freeze.sh makes on Windows, with tollhouse.exe: PyInstaller makes programs only
# for the system on which it runs. Sign the two programs before, and the installer after, for example with osslsigncode.
set -euo pipefail
frozen=$(realpath "$1") output=$(realpath -m "$2")
cd "$(dirname "$0")"
for program in wixl wixl-heat msibuild x86_64-w64-mingw32-gcc; do
  command -v "$program" >/dev/null || { echo "$program is missing: apt-get install wixl msitools gcc-mingw-w64-x86-64" >&2; exit 1; }
done
[ -f "$frozen/tollhouse.exe" ] || { echo "$frozen has no tollhouse.exe: make the folder on Windows" >&2; exit 1; }
version=${VERSION:-$(sed -n 's/^version = "\(.*\)"/\1/p' ../../pyproject.toml)}
# ACCOUNT is for tests: wine has no virtual accounts of services.
account=${ACCOUNT-NT SERVICE\\TollhouseAgent}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
x86_64-w64-mingw32-gcc -municode -O2 -s -Wall -Wextra -Wno-missing-field-initializers -Werror -Wl,--no-insert-timestamp \
  -o "$work/tollhouse-service.exe" service.c
(cd "$frozen" && find . -type f -printf '%P\n' | LC_ALL=C sort) |
  wixl-heat -p '' --directory-ref AGENTDIR --component-group Frozen --var var.Frozen --win64 > "$work/frozen.wxs"
# The product code depends on the version: a version has one code, which Intune uses to detect it.
code=$(python3 -c 'import sys, uuid; print(str(uuid.uuid5(uuid.NAMESPACE_URL, "tollhouse-agent " + sys.argv[1])).upper())' "$version")
mkdir -p "$output"
msi=$output/tollhouse-agent-$version-x64.msi
rm -f "$msi"
cp agent.wxs "$work"
ln -s "$frozen" "$work/frozen"
(cd "$work" && wixl --arch x64 -D "Version=$version" -D "ProductCode=$code" -D "Account=$account" -D Win64=yes \
  -D Frozen=frozen -D Service=tollhouse-service.exe -o "$msi" agent.wxs frozen.wxs)
# The folder of settings, keys and records belongs to administrators. Only they, the system and the service may use it. wixl
# has no such rule, so the table is added. A service's id is the SHA-1 of its name.
python3 - > "$work/rights.idt" <<'PYTHON'
import hashlib
import struct

digest = hashlib.sha1("TOLLHOUSEAGENT".encode("utf-16-le")).digest()
service = "S-1-5-80-" + "-".join(str(number) for number in struct.unpack("<5I", digest))
rights = f"O:BAG:BAD:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;0x1301bf;;;{service})"
print("MsiLockPermissionsEx\tLockObject\tTable\tSDDLText\tCondition", end="\r\n")
print("s72\ts72\ts32\ts0\tS255", end="\r\n")
print("MsiLockPermissionsEx\tMsiLockPermissionsEx", end="\r\n")
print(f"Data\tDATADIR\tCreateFolder\t{rights}\t", end="\r\n")
PYTHON
msibuild "$msi" -i "$work/rights.idt"
echo "$msi"
