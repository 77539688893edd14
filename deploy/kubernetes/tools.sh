#!/usr/bin/env bash
# tools.sh DIRECTORY PYTHON: builds helm with Go, and puts the schemas of Kubernetes and of the Prometheus Operator next to it. Versions are fixed; the Go module proxy and the package index vouch for what they name.
#
# Exit code 3, and the reason in DIRECTORY/missing, where they cannot be had: no Go, one that is too old, or no network.
set -euo pipefail
directory=$(realpath -m "$1")
python=$(realpath -s "$2")
kubernetes=1.34.0
helm=helm.sh/helm/v3@v3.22.0
operator=github.com/prometheus-operator/prometheus-operator@v0.85.0
export GOBIN=$directory/bin GOFLAGS=-trimpath

mkdir -p "$directory"
rm -f "$directory/missing"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cannot() {
  echo "$1" | tee "$directory/missing" >&2
  exit 3
}

# The field of what Go says of a module, such as `field Dir MODULE`.
field() {
  (cd "$work" && go mod download -json "$2") | sed -n "s/.*\"$1\": \"\(.*\)\".*/\1/p"
}

command -v go >/dev/null || cannot "Go is not installed"
for module in $helm $operator; do
  file=$(field GoMod "$module" 2>/dev/null) && [ -n "$file" ] || cannot "the Go module proxy cannot be reached"
  needed=$(sed -n 's/^go //p' "$file")
  printf 'module probe\ngo %s\n' "$needed" > "$work/go.mod"
  # From 1.21 on Go says itself that it is too old, or gets the one that is needed.
  [ -n "$(go env GOTOOLCHAIN)" ] && (cd "$work" && go list -m >/dev/null 2>&1) ||
    cannot "$(go env GOVERSION) is too old: $module needs go$needed"
  rm "$work/go.mod"
done
echo "kubernetes-validate==1.37.0 --hash=sha256:85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9" > "$work/requirements.txt"
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --target "$work" \
  -r "$work/requirements.txt" || cannot "the package index cannot be reached"

go install helm.sh/helm/v3/cmd/helm@"${helm#*@}"
schemas=$directory/schemas
rm -rf "$schemas"
mkdir -p "$schemas/crds"
mv "$work/kubernetes_validate/kubernetes-json-schema/v$kubernetes-local-strict" "$schemas/kubernetes"
for kind in servicemonitor prometheusrule; do
  "$python" - "$(field Dir $operator)/jsonnet/prometheus-operator/${kind}s-crd.json" > "$schemas/crds/$kind.json" <<'PYTHON'
import json, sys

with open(sys.argv[1]) as file:
    print(json.dumps(json.load(file)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]))
PYTHON
done
