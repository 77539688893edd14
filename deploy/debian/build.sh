#!/usr/bin/env bash
# build.sh OUTPUT: the Debian package of this checkout, for the release and the architecture of this machine.
#
# The package has a virtual environment of its own, /usr/lib/tollhouse, with the wheels of deploy/locks:
# the promises were tested with these versions, and Debian's packages of the same libraries are others. It uses Debian's Python, so security
# updates of Python arrive as usual. Equal checkouts give equal packages. `make test-deb` installs, upgrades and purges it.
set -euo pipefail
umask 022
output=$(realpath -m "$1")
cd "$(dirname "$0")/../.."
pip="$PWD/.venv/bin/python -m pip --disable-pip-version-check --quiet"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
python=$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y pyproject.toml)}
export SOURCE_DATE_EPOCH PIP_ROOT_USER_ACTION=ignore
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
own=$root/usr/lib/tollhouse
packages=$own/lib/python$python/site-packages
documents=$root/usr/share/doc/tollhouse

# The virtual environment, without what only its builder would use.
mkdir -p "$own/bin" "$root/usr/bin"
ln -s ../../../bin/python3 "$own/bin/python"
printf 'home = /usr/bin\ninclude-system-site-packages = false\n' > "$own/pyvenv.cfg"
$pip wheel --no-deps --no-build-isolation --wheel-dir "$work/wheel" .
target=(--python /usr/bin/python3 install --target "$packages" --no-compile --no-deps --only-binary :all:)
$pip "${target[@]}" --require-hashes -r deploy/locks/requirements.lock
rm -rf "$packages/bin"
$pip "${target[@]}" "$work"/wheel/*.whl
rm -rf "$packages/bin"
# Where the wheel of Tollhouse lay while it was installed is of no interest, and different each time.
rm "$packages"/tollhouse-*.dist-info/direct_url.json
sed -i /direct_url/d "$packages"/tollhouse-*.dist-info/RECORD
find "$packages" -type f -not -name '*.so*' -exec chmod a-x {} +
install -m 0755 deploy/debian/tollhouse "$own/bin/tollhouse"
ln -s ../lib/tollhouse/bin/tollhouse "$root/usr/bin/tollhouse"

install -D -m 0644 -t "$root/usr/lib/systemd/system" deploy/systemd/*.{service,socket,timer,path}
install -D -m 0644 -t "$root/usr/lib/systemd/user" deploy/systemd/user/*
install -D -m 0644 -t "$root/etc/tollhouse" deploy/systemd/*.toml
install -d -m 0700 "$root/etc/tollhouse/keys" "$root/etc/tollhouse/agent-keys"
install -D -m 0644 -t "$documents" deploy/debian/copyright README.md SECURITY.md CODE_OF_CONDUCT.md
install -D -m 0644 deploy/debian/lintian-overrides "$root/usr/share/lintian/overrides/tollhouse"
install -D -m 0644 deploy/debian/tollhouse.1 "$root/usr/share/man/man1/tollhouse.1"
gzip -9n "$root/usr/share/man/man1/tollhouse.1"
gzip -9nc CHANGELOG.md > "$documents/CHANGELOG.md.gz"

# completion <shell> <file>: the script that `tollhouse completion` prints, where the shell loads it by itself.
completion() {
  mkdir -p "$(dirname "$root/$2")"
  PYTHONPATH="$packages" /usr/bin/python3 -sBP -c 'from gateway.cli import main; main(prog_name="tollhouse")' \
    completion "$1" > "$root/$2"
}
completion bash usr/share/bash-completion/completions/tollhouse
completion zsh usr/share/zsh/vendor-completions/_tollhouse
completion fish usr/share/fish/vendor_completions.d/tollhouse.fish

# Who answers for the package: DEBFULLNAME and DEBEMAIL as for Debian's own tools, else who made the last commit.
maintainer=${DEBEMAIL:+${DEBFULLNAME:-Tollhouse} <$DEBEMAIL>}
maintainer=${maintainer:-$(git log -1 --format='%an <%ae>' 2>/dev/null || true)}
if [ -z "$maintainer" ]; then
  echo "nobody answers for the package: set DEBFULLNAME and DEBEMAIL" >&2
  exit 1
fi
if [[ $maintainer =~ \.(example|invalid|test|localhost)\>$ ]]; then
  echo "$maintainer can receive no mail: set DEBFULLNAME and DEBEMAIL" >&2
fi
# Where problems are reported: the repository of the checkout. Nothing is stated if the checkout has none.
origin=$(git remote get-url origin 2>/dev/null || true)
homepage=
if [[ $origin =~ ^(https://|git@)([^@/]*@)?([^/:]+)[/:](.+)$ ]]; then
  homepage="https://${BASH_REMATCH[3]}/${BASH_REMATCH[4]%.git}"
fi
date=$(LC_ALL=C date -uR -d "@$SOURCE_DATE_EPOCH")
printf 'tollhouse (%s) stable; urgency=medium\n\n  * What changed is in CHANGELOG.md.\n\n -- %s  %s\n' \
  "$version" "$maintainer" "$date" | gzip -9n > "$documents/changelog.gz"

next=$(python3 -c 'import sys; a, b = sys.argv[1].split("."); print(f"{a}.{int(b) + 1}")' "$python")
mkdir "$root/DEBIAN"
install -m 0755 -t "$root/DEBIAN" deploy/debian/{postinst,prerm,postrm}
(cd "$root" && find etc -type f -printf '/%p\n' | LC_ALL=C sort) > "$root/DEBIAN/conffiles"
(cd "$root" && find . -type f -not -path './DEBIAN/*' -printf '%P\0' | LC_ALL=C sort -z | xargs -0 md5sum) \
  > "$root/DEBIAN/md5sums"
cat > "$root/DEBIAN/control" <<CONTROL
Package: tollhouse
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: $maintainer
${homepage:+Homepage: $homepage
}Section: net
Priority: optional
Installed-Size: $(du -sk --apparent-size "$root" | cut -f1)
Depends: python3 (>= $python), python3 (<< $next), libc6 (>= 2.28), ca-certificates, init-system-helpers (>= 1.52)
Description: telemetry gateway for AI spend
 Tollhouse receives reports of AI calls from gateways, applications and laptops,
 makes one cost record per call, has it on disk before it answers, and forwards
 it to a cost service.
CONTROL
mkdir -p "$output"
package=$output/tollhouse_${version}_$(dpkg --print-architecture).deb
find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
# Debian accepts no package without compression. Level 0 is the fastest.
dpkg-deb --root-owner-group --build -Zxz -z"${DPKG_DEB_COMPRESSOR_LEVEL:-6}" "$root" "$package" > /dev/null
echo "$package"
