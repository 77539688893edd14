#!/usr/bin/env bash
# freeze.sh PYTHON OUTPUT: OUTPUT/tollhouse-agent, a folder with the agent, Python and its libraries for this system.
#
# PYTHON has the libraries of requirements.lock and requirements-package.lock. The folder needs the C library of this
# system or a newer one, so build on the oldest system that you serve. On Windows, run it in Git Bash.
set -euo pipefail
python=$(command -v "$1")
mkdir -p "$2"
output=$(cd "$2" && pwd)
cd "$(dirname "$0")/../.."
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH PYTHONHASHSEED=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m pip --disable-pip-version-check wheel --quiet --no-deps --no-build-isolation --wheel-dir "$work" .
"$python" -m pip --disable-pip-version-check install --quiet --no-deps --force-reinstall "$work"/*.whl
"$python" -m PyInstaller --noconfirm --log-level WARN --distpath "$work/dist" --workpath "$work/build" \
  deploy/agent/agent.spec >&2
# Where the wheel lay while it was installed is different each time.
find "$work/dist" -name direct_url.json -delete
rm -rf "$output/tollhouse-agent"
mv "$work/dist/tollhouse-agent" "$output/"
