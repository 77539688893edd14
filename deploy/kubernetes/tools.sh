#!/usr/bin/env bash
# tools.sh DIRECTORY PYTHON: builds helm and kustomize with Go, and puts the schemas of Kubernetes and of the Prometheus
# Operator beside them. Versions are fixed; the Go module proxy and the package index vouch for what they name.
set -euo pipefail
directory=$(realpath -m "$1")
python=$(realpath -s "$2")
kubernetes=1.34.0
export GOBIN=$directory/bin GOFLAGS=-trimpath
go install helm.sh/helm/v3/cmd/helm@v3.22.0
go install sigs.k8s.io/kustomize/kustomize/v5@v5.8.1

schemas=$directory/schemas
rm -rf "$schemas"
mkdir -p "$schemas/crds"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "kubernetes-validate==1.37.0 --hash=sha256:85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9" > "$work/requirements.txt"
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --target "$work" \
  -r "$work/requirements.txt"
mv "$work/kubernetes_validate/kubernetes-json-schema/v$kubernetes-local-strict" "$schemas/kubernetes"

operator=$(go mod download -json github.com/prometheus-operator/prometheus-operator@v0.85.0 | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
for kind in servicemonitor prometheusrule; do
  "$python" - "$operator/jsonnet/prometheus-operator/${kind}s-crd.json" > "$schemas/crds/$kind.json" <<'PYTHON'
import json, sys

with open(sys.argv[1]) as file:
    print(json.dumps(json.load(file)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]))
PYTHON
done
