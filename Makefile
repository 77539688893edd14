# Needs Python 3.11 or newer, make, and the package index. Everything else is installed into .venv.
PYTHON ?= python3
VENV := .venv
AUDIT := .venv-audit
DOCS := .venv-docs
NATIVE := .venv-native
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet
# Into an environment beside, for one program: it needs no pip of its own, and what it never imports is not compiled.
ENVIRONMENT := $(PYTHON) -m venv --without-pip
INSTALL_INTO = $(PIP) --python $(1)/bin/python install --quiet --no-compile --require-hashes
# Without its cache of compiled modules every start of the command compiles 500 of them, which doubles what a start costs.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run quick test test-program test-deploy test-browser test-faults test-gateways test-api test-integration test-lake test-code test-spool test-native checked-native soak-native native test-clients deb test-deb test-container kubernetes-tools kubernetes-rules faults soak bench bench-peers bench-growth lint format hooks lock prices vendor audit sbom release clean \
	docs docs-reference screenshots page-weights

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# One stamp a lock file: a changed lock installs again, an unchanged one costs nothing.
$(VENV)/run.stamp: requirements.lock requirements-build.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tollhouse needs Python 3.11 or newer")'
	@echo "Installing Tollhouse into $(VENV). This takes about a minute, once."
	@echo "1 of 3: a Python environment"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "2 of 3: the libraries of requirements.lock and requirements-build.lock, each with its hash"
	@$(INSTALL) --require-hashes -r requirements.lock -r requirements-build.lock
	@echo "3 of 3: Tollhouse itself"
	@$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/test.stamp: requirements-dev.lock $(VENV)/run.stamp
	$(INSTALL) --require-hashes -r requirements-dev.lock
	@touch $@

# The console is tested in a real browser. Chromium without windows takes half of the processor that a whole one takes;
# Debian's is installed where that is possible. Elsewhere one of them has to be there.
CHROMIUM := chromium chromium-browser google-chrome google-chrome-stable
INSTALL_PACKAGE := apt-get install -y -qq --no-remove --no-install-recommends
$(VENV)/chromium.stamp: $(VENV)/test.stamp
	@found=$$TOLLHOUSE_CHROMIUM$$(command -v chromium-headless-shell); \
	if [ -z "$$found" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq >$(VENV)/chromium.log 2>&1; \
	  $(INSTALL_PACKAGE) chromium-headless-shell fonts-dejavu-core >>$(VENV)/chromium.log 2>&1 && found=installed; \
	fi; \
	found=$$found$$(for name in $(CHROMIUM); do command -v $$name; done); \
	if [ -z "$$found" ]; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    $(INSTALL_PACKAGE) chromium fonts-dejavu-core >>$(VENV)/chromium.log; \
	  else \
	    echo "the tests of the console need Chromium: install it (Debian: apt-get install chromium-headless-shell)," \
	      "or set TOLLHOUSE_CHROMIUM to the path of one" >&2; exit 1; \
	  fi; \
	fi
	@touch $@

# promtool and openssl. What cannot be had is told, and asked for again the next time.
$(VENV)/tools.stamp: tests/deploy/tools.sh $(VENV)/run.stamp
	@tests/deploy/tools.sh $(VENV)/tools
	@ls $(VENV)/tools/*.missing >/dev/null 2>&1 || touch $@

# The tests of the storage on PostgreSQL start servers of their own, as a user without privileges.
$(VENV)/postgres.stamp: tests/postgres_programs.sh $(VENV)/run.stamp
	@tests/postgres_programs.sh $(VENV)/postgresql >$(VENV)/postgresql.log 2>&1 || \
	  echo "the tests of PostgreSQL are skipped: it cannot be had ($(VENV)/postgresql.log)"
	@touch $@

run: $(VENV)/run.stamp  ## install the locked dependencies and start Tollhouse with its defaults
	@exec $(BIN)/tollhouse serve

quick: $(VENV)/test.stamp lint  ## linters and the unit tests, under a minute on two cores
	$(BIN)/python -m pytest -q -n 2 tests/gateway tests/exporters tests/spool tests/docs tests/test_*.py

# Four lanes keep two cores busy; with six the same tests took more of the processor. Parts that wait for processes and
# disks most of the time stand among those that do not, and long ones begin before short ones; with a failure the others
# still run to their end.
LANES ?= 4
PARTS := test-faults test-gateways test-browser test-code test-integration test-api test-lake test-program test-spool test-native test-deploy
test: $(VENV)/run.stamp  ## the whole suite with the linters, four parts at a time, and the wheel on every Python there is
	@$(MAKE) --no-print-directory -j 3 $(AUDIT)/stamp environment builds
	@$(MAKE) --no-print-directory -k -j $(LANES) $(PARTS) lint audit

# One after the other, as apt-get runs once at a time. MAKEFLAGS has the number of lanes.
.PHONY: environment
environment:
	@MAKEFLAGS= $(MAKE) --no-print-directory $(VENV)/test.stamp $(VENV)/chromium.stamp $(VENV)/postgres.stamp $(VENV)/tools.stamp

# While pip waits for the package index. What cannot be built is asked for again by its part, which tells why.
.PHONY: builds
builds:
	@if native/available.sh >/dev/null; then $(MAKE) --no-print-directory $(NATIVE)/wheels/stamp; fi || true
	@$(MAKE) --no-print-directory kubernetes-tools >/dev/null 2>&1 || true

# Together all of tests/. Each part ends with the tests that took longest.
SLOWEST := --durations=25 --durations-min=3
# A plugin of one test in test-api, which takes a second to load.
WITHOUT := -p no:schemathesis
PROGRAM := tests/acceptance
DEPLOY := tests/bench tests/clients tests/deploy
BROWSER := tests/browser
GATEWAYS := tests/faults/gateways tests/faults/test_gateways.py
FAULTS := tests/faults
API := tests/integration/api tests/integration/mcp tests/integration/operator
LAKE := tests/integration/exporters tests/integration/lake tests/integration/order
INTEGRATION := tests/integration
STORAGE := tests/spool
PACKED := tests/packed
test-program: $(VENV)/test.stamp $(VENV)/postgres.stamp
	$(BIN)/python -m pytest -q -rfEs $(WITHOUT) $(SLOWEST) $(PROGRAM)

test-deploy: $(VENV)/test.stamp $(VENV)/tools.stamp $(VENV)/postgres.stamp
	@$(MAKE) --no-print-directory kubernetes-tools || test -s .venv-kubernetes/missing
	$(BIN)/python -m pytest -q -rfEs $(WITHOUT) $(SLOWEST) $(DEPLOY)

test-browser: $(VENV)/test.stamp $(VENV)/chromium.stamp
	$(BIN)/python -m pytest -q -rfEs $(WITHOUT) $(SLOWEST) $(BROWSER)

test-faults: $(VENV)/test.stamp $(VENV)/postgres.stamp
	$(BIN)/python -m pytest -q -rfEs $(WITHOUT) $(SLOWEST) $(FAULTS) $(addprefix --ignore=,$(GATEWAYS))

test-gateways: $(VENV)/test.stamp $(VENV)/postgres.stamp
	$(BIN)/python -m pytest -q -rfEs $(WITHOUT) $(SLOWEST) $(GATEWAYS)

test-integration: $(VENV)/test.stamp $(VENV)/tools.stamp $(VENV)/postgres.stamp
	$(BIN)/python -m pytest -q -rfEs $(WITHOUT) $(SLOWEST) $(INTEGRATION) $(addprefix --ignore=,$(API) $(LAKE))

test-lake: $(VENV)/test.stamp $(VENV)/tools.stamp $(VENV)/postgres.stamp
	$(BIN)/python -m pytest -q -rfEs $(WITHOUT) $(SLOWEST) $(LAKE)

test-api: $(VENV)/test.stamp $(VENV)/tools.stamp $(VENV)/postgres.stamp
	$(BIN)/python -m pytest -q -rfEs $(SLOWEST) $(API)

test-code: $(VENV)/test.stamp $(VENV)/postgres.stamp
	$(BIN)/python -m pytest -q -rfEs $(WITHOUT) $(SLOWEST) $(addprefix --ignore=,$(PROGRAM) $(DEPLOY) $(BROWSER) $(FAULTS) $(INTEGRATION) $(STORAGE) $(PACKED))

test-spool: $(VENV)/test.stamp $(VENV)/postgres.stamp
	$(BIN)/python -m pytest -q -rfEs $(WITHOUT) $(SLOWEST) $(STORAGE)

# What reads, forwards and adds up once more with the compiled module, where it can be built. The suite itself runs
# without; tests of packed bytes are these alone, as nearly all of them ask the module.
NATIVE_PARTS := $(PACKED) tests/exporters/test_telemetry.py tests/integration/exporters/test_forwarding.py \
	tests/integration/operator/test_imports.py::test_a_start_imports_what_a_server_needs \
	tests/faults/test_kill.py::test_kill_under_load \
	tests/faults/test_power_cut.py::test_every_acknowledged_call_outlives_a_power_cut

test-native: $(VENV)/test.stamp
	@if native/available.sh; then $(MAKE) --no-print-directory checked-native; \
	else $(BIN)/python -m pytest -q -rfEs $(WITHOUT) $(PACKED); fi

WITH_NATIVE := TOLLHOUSE_NATIVE=1 PYTHONPATH=$(CURDIR)/$(NATIVE)/site
checked-native: $(NATIVE)/site/stamp $(VENV)/postgres.stamp
	native/check.sh
	$(WITH_NATIVE) $(BIN)/python -m pytest -q -rfEs $(WITHOUT) $(SLOWEST) $(NATIVE_PARTS)

# Hostile packed bytes for an hour, and every case in hundreds of varieties.
soak-native: $(NATIVE)/site/stamp
	$(WITH_NATIVE) TOLLHOUSE_FAULTS=full $(BIN)/python -m pytest -q -rfEs $(WITHOUT) tests/packed --timeout 7200

$(NATIVE)/stamp: requirements-native-build.lock | $(VENV)/run.stamp
	@test -x $(NATIVE)/bin/python || $(ENVIRONMENT) $(NATIVE)
	$(call INSTALL_INTO,$(NATIVE)) -r requirements-native-build.lock
	@touch $@

$(NATIVE)/wheels/stamp: $(NATIVE)/stamp $(VENV)/run.stamp native/Cargo.toml native/Cargo.lock native/pyproject.toml $(wildcard native/src/*.rs)
	@rm -rf $(NATIVE)/wheels
	$(NATIVE)/bin/maturin build --quiet --release --locked --manifest-path native/Cargo.toml --interpreter $(BIN)/python \
	  --out $(NATIVE)/wheels
	@touch $@

$(NATIVE)/site/stamp: $(NATIVE)/wheels/stamp
	@$(INSTALL) --no-deps --no-index --upgrade --target $(NATIVE)/site $(NATIVE)/wheels/*.whl
	@touch $@

native: $(VENV)/run.stamp  ## build the compiled module and install it (needs cargo, see docs/sizing.md)
	@native/available.sh
	@$(MAKE) --no-print-directory $(NATIVE)/wheels/stamp
	$(INSTALL) --no-deps --no-index --force-reinstall $(NATIVE)/wheels/*.whl

test-clients: $(VENV)/test.stamp  ## real client libraries, each in an environment of its own
	$(BIN)/python -m pytest -q -m clients --timeout 900

deb: $(VENV)/run.stamp  ## build the Debian package for this machine's release into dist/
	@deploy/debian/build.sh dist

test-deb: $(VENV)/test.stamp  ## install, upgrade and purge the package in a booted Debian (needs root and debootstrap)
	$(BIN)/python -m pytest -q -rfEs -m 'chroot or not chroot' tests/deploy/test_debian.py --timeout 900

test-container: $(VENV)/test.stamp  ## carry the Containerfile out without a runtime, and start the result (needs root and debootstrap)
	$(BIN)/python -m pytest -q -rfEs -m 'chroot or not chroot' tests/deploy/test_container.py --timeout 900

.venv-kubernetes/stamp: deploy/kubernetes/tools.sh $(VENV)/run.stamp
	deploy/kubernetes/tools.sh .venv-kubernetes $(BIN)/python
	@touch $@

kubernetes-tools: .venv-kubernetes/stamp  ## build helm and kustomize with Go, for the tests of deploy/kubernetes

RULES := deploy/kubernetes/kustomize/monitoring/prometheusrule.yaml

# Kustomize cannot put a file into a field, and Helm takes files of the chart alone, so both are written.
kubernetes-rules:  ## write the alerts of deploy/prometheus into the chart and the manifests for Kustomize
	@sed '/^#/d' deploy/prometheus/rules.yaml > deploy/kubernetes/helm/files/rules.yaml
	@printf '%s\n' '# Written by `make kubernetes-rules` from deploy/prometheus/rules.yaml.' \
	  'apiVersion: monitoring.coreos.com/v1' 'kind: PrometheusRule' \
	  'metadata:' '  name: tollhouse' '  namespace: tollhouse' 'spec:' > $(RULES)
	@sed '/^#/d; s/^./  &/' deploy/prometheus/rules.yaml >> $(RULES)

faults: $(VENV)/test.stamp  ## every fault scenario in long rounds; prints what was lost and counted twice
	TOLLHOUSE_FAULTS=full $(BIN)/python -m pytest -q tests/faults tests/integration/order/dealt tests/acceptance/restarts --timeout 3600

MINUTES ?= 30
soak: $(VENV)/test.stamp $(VENV)/postgres.stamp  ## MINUTES=30 of load with random faults; 100,000 calls of a file with kills; 100 orders; fuzzers; gateways that share a database; hostile bytes for the compiled module; property tests with other examples; PostgreSQL behind a pooler
	TOLLHOUSE_SOAK_MINUTES=$(MINUTES) TOLLHOUSE_SEND_CALLS=100000 TOLLHOUSE_ORDERS=100 \
	TOLLHOUSE_ORDER_SEED=0 \
	$(BIN)/python -m pytest -q tests/faults/test_soak.py tests/acceptance/test_send_killed.py \
	tests/integration/order tests/integration/receivers/test_one_call_one_record.py --timeout 3600
	TOLLHOUSE_FAULTS=full $(BIN)/python -m pytest -q tests/faults/hostile/test_fuzz.py \
	tests/integration/api/test_openapi.py tests/integration/test_demo.py \
	tests/integration/receivers/test_large_bodies.py tests/acceptance/test_captures.py \
	tests/faults/test_gateways.py tests/spool/postgres/deadlocks --timeout 3600
	TOLLHOUSE_FAULTS=full $(BIN)/python -m pytest -q tests/gateway tests/exporters tests/spool tests/deploy/test_native_wheels.py --timeout 3600
	TOLLHOUSE_POOLER=transaction $(BIN)/python -m pytest -q tests/spool/contract tests/spool/postgres \
	-k "postgres and not pgbouncer" --timeout 600
	@if native/available.sh; then $(MAKE) --no-print-directory soak-native; fi

SCENARIOS ?= main
bench: $(VENV)/test.stamp  ## the server under load as a table (SCENARIOS="100x8 1x*"), then its parts as ratios
	$(BIN)/python -m tests.bench $(SCENARIOS)
	TOLLHOUSE_BENCH=full $(BIN)/python -m pytest -q -s -m bench --timeout 1800

bench-peers: $(VENV)/test.stamp  ## the same load and the same kill beside an OpenTelemetry Collector (needs Go), Phoenix and MLflow
	$(BIN)/python -m tests.bench.peers

bench-growth: $(VENV)/test.stamp  ## throughput, latency and memory while the backlog, series, devices, keys ... grow: docs/images/growth
	$(BIN)/python -m tests.bench.growth --plots docs/images/growth

lint: $(VENV)/test.stamp  ## ruff and strict mypy, tests included
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/test.stamp  ## format the code with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs-reference: $(VENV)/run.stamp  ## write what the documents take from the code: configuration, commands, HTTP API, limits
	$(BIN)/python -m docs.generate

$(DOCS)/stamp: requirements-docs.lock | $(VENV)/run.stamp
	@test -x $(DOCS)/bin/python || $(ENVIRONMENT) $(DOCS)
	$(call INSTALL_INTO,$(DOCS)) -r requirements-docs.lock
	@touch $@

screenshots: $(VENV)/chromium.stamp  ## take the pictures of the documents again
	$(BIN)/python -m tests.browser.pictures docs/images

page-weights: $(VENV)/chromium.stamp  ## bytes and requests of each page of the console
	$(BIN)/python -m tests.bench.server.page_weights

docs: $(DOCS)/stamp  ## build the documents as a site, links checked, into build/site
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict --clean  # with --quiet no warning would be counted

hooks: $(VENV)/test.stamp  ## run the linters before every commit
	$(BIN)/pre-commit install

LOCK := pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --python-version 3.11

lock: $(VENV)/test.stamp  ## resolve the dependencies again into hash-pinned lock files
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv $(LOCK) pyproject.toml --group dev -o requirements-dev.lock
	$(BIN)/uv $(LOCK) pyproject.toml -c requirements-dev.lock -o requirements.lock
	$(BIN)/uv $(LOCK) pyproject.toml --extra postgres -c requirements-dev.lock -o requirements-postgres.lock
	$(BIN)/uv $(LOCK) pyproject.toml --extra kafka -c requirements-dev.lock -o requirements-kafka.lock
	$(BIN)/uv $(LOCK) pyproject.toml --extra lake -c requirements-dev.lock -o requirements-lake.lock
	$(BIN)/uv $(LOCK) pyproject.toml --extra query -c requirements-dev.lock -o requirements-query.lock
	$(BIN)/uv $(LOCK) --group build -c requirements-dev.lock -o requirements-build.lock
	$(BIN)/uv $(LOCK) --group docs -o requirements-docs.lock
	$(BIN)/uv $(LOCK) --group audit -o requirements-audit.lock
	$(BIN)/uv $(LOCK) --group native -o requirements-native-build.lock

vendor: $(VENV)/test.stamp  ## fetch the libraries of the console again (needs npm)
	$(BIN)/python -m docs.generate.vendor

prices: $(VENV)/test.stamp  ## make the rate card again from today's public price data
	test -x .venv-prices/bin/python || $(PYTHON) -m venv .venv-prices
	.venv-prices/bin/python -m pip install --quiet --upgrade genai-prices msgspec
	.venv-prices/bin/python -m gateway.rate_cards.convert

$(AUDIT)/stamp: requirements-audit.lock | $(VENV)/run.stamp
	@test -x $(AUDIT)/bin/python || $(ENVIRONMENT) $(AUDIT)
	$(call INSTALL_INTO,$(AUDIT)) -r requirements-audit.lock
	@touch $@

audit: $(AUDIT)/stamp  ## look every lock file up among known vulnerabilities (AUDIT=required: what cannot be looked up fails)
	@$(AUDIT)/bin/python deploy/audit.py --program $(AUDIT)/bin/pip-audit

sbom: $(AUDIT)/stamp  ## write the bill of materials of the locked dependencies and crates (CycloneDX) to dist/tollhouse.cdx.json
	@mkdir -p dist
	$(AUDIT)/bin/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml --output-reproducible \
	  -o dist/tollhouse.cdx.json
	@$(AUDIT)/bin/python deploy/crates.py dist/tollhouse.cdx.json

release: $(VENV)/test.stamp  ## build wheel and sdist twice, compare them, write dist/ with SHA256SUMS (SNAPSHOT=1 to try it)
	@if native/available.sh >/dev/null; then $(MAKE) --no-print-directory $(NATIVE)/stamp; fi
	$(BIN)/python deploy/release.py $(if $(SNAPSHOT),--snapshot)

clean:  ## delete environments and caches, never data
	rm -rf $(VENV) .venv-* native/target .mypy_cache .ruff_cache .pytest_cache .hypothesis
