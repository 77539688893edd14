# The parts of `make test` and what they need, longer rounds, and benchmarks. Included by the Makefile at the top.

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

# One after the other, as apt-get runs once at a time. MAKEFLAGS has the number of lanes.
environment:
	@MAKEFLAGS= $(MAKE) --no-print-directory $(VENV)/test.stamp $(VENV)/chromium.stamp $(VENV)/postgres.stamp $(VENV)/tools.stamp

# While pip waits for the package index. What cannot be built is asked for again by its part, which tells why.
builds:
	@if native/available.sh >/dev/null; then $(MAKE) --no-print-directory $(NATIVE)/wheels/stamp; fi || true
	@$(MAKE) --no-print-directory kubernetes-tools >/dev/null 2>&1 || true

# The parts of `make test`: the linters, and together all of tests/. Those that wait for processes and disks most of the
# time begin beside the two longest, and then long ones begin before short ones, so that no lane is left alone at the end.
# Each ends with the tests that took longest.
PARTS := test-browser test-faults test-gateways test-spool test-api test-integration test-program test-code test-lake \
	test-deploy test-native lint
PYTEST := $(BIN)/python -m pytest -q -rfEs --durations=25 --durations-min=3
# A plugin of one test in test-api, which takes a second to load.
WITHOUT := -p no:schemathesis
GATEWAYS := tests/faults/gateways tests/faults/test_gateways.py
API := tests/integration/operations tests/integration/mcp
LAKE := tests/integration/exporters tests/integration/lake tests/integration/order
APART := tests/acceptance tests/bench tests/browser tests/clients tests/deploy tests/faults tests/integration tests/packed tests/releases tests/spool

test-program test-gateways test-faults test-code test-spool: $(VENV)/test.stamp $(VENV)/postgres.stamp
test-integration test-lake test-api test-deploy: $(VENV)/test.stamp $(VENV)/tools.stamp $(VENV)/postgres.stamp
test-browser: $(VENV)/test.stamp $(VENV)/chromium.stamp

test-program:
	$(PYTEST) $(WITHOUT) tests/acceptance tests/releases
test-gateways:
	$(PYTEST) $(WITHOUT) $(GATEWAYS)
test-faults:
	$(PYTEST) $(WITHOUT) tests/faults $(addprefix --ignore=,$(GATEWAYS))
test-code:
	$(PYTEST) $(WITHOUT) $(addprefix --ignore=,$(APART))
test-spool:
	$(PYTEST) $(WITHOUT) tests/spool
test-integration:
	$(PYTEST) $(WITHOUT) tests/integration $(addprefix --ignore=,$(API) $(LAKE))
test-lake:
	$(PYTEST) $(WITHOUT) $(LAKE)
test-api:
	$(PYTEST) $(API)
test-browser:
	$(PYTEST) $(WITHOUT) tests/browser
test-deploy:
	@$(MAKE) --no-print-directory kubernetes-tools || test -s .venv-kubernetes/missing
	$(PYTEST) $(WITHOUT) tests/bench tests/clients tests/deploy

test-clients: $(VENV)/test.stamp  ## real client libraries, each in an environment of its own
	$(BIN)/python -m pytest -q -m clients --timeout 900

faults: $(VENV)/test.stamp  ## every fault scenario in long rounds; prints what was lost and counted twice
	TOLLHOUSE_FAULTS=full $(BIN)/python -m pytest -q tests/faults tests/integration/order/dealt tests/acceptance/reporters tests/acceptance/restarts --timeout 3600

SEEDS ?= 1000
FIRST_SEED ?= 0
KILLS ?= 200
work-proofs: $(VENV)/test.stamp $(VENV)/postgres.stamp  ## SEEDS=1000 random histories of units of work from FIRST_SEED on, every 20th also on PostgreSQL; KILLS=200 kills while they are counted
	TOLLHOUSE_WORK_SEEDS=$(SEEDS) TOLLHOUSE_WORK_FIRST_SEED=$(FIRST_SEED) TOLLHOUSE_WORK_KILLS=$(KILLS) \
	$(BIN)/python -m pytest -q tests/spool/ledger/test_work_conserved.py tests/spool/ledger/test_work_killed.py --timeout 3600

ledger-proofs: $(VENV)/test.stamp $(VENV)/postgres.stamp  ## SEEDS=1000 random histories of recalculations, tags, rebuilds and comparisons; KILLS=200 kills during recalculations and rebuilds
	TOLLHOUSE_RECALCULATION_SEEDS=$(SEEDS) TOLLHOUSE_VERIFY_SEEDS=$(SEEDS) TOLLHOUSE_RECALCULATION_KILLS=$(KILLS) \
	$(BIN)/python -m pytest -q tests/spool/ledger/test_recalculations.py tests/spool/ledger/test_verified_sums.py \
	tests/faults/test_recalculation_killed.py --timeout 36000

IDS ?= 10000000
work-bounds: $(VENV)/test.stamp  ## IDS=10000000 random sessions in each of two months, of which 100,000 are listed; before that 100,000, of which 1,000 are listed; prints the bytes
	TOLLHOUSE_WORK_IDS=100000 TOLLHOUSE_WORK_LIMIT=1000 \
	$(BIN)/python -m pytest -q -s tests/spool/ledger/test_work_bounds.py --timeout 36000
	TOLLHOUSE_WORK_IDS=$(IDS) TOLLHOUSE_WORK_LIMIT=100000 \
	$(BIN)/python -m pytest -q -s tests/spool/ledger/test_work_bounds.py --timeout 36000

MINUTES ?= 30
soak: $(VENV)/test.stamp $(VENV)/postgres.stamp $(VENV)/chromium.stamp  ## MINUTES=30 of load with random faults; 100,000 calls of a file with kills; 100 orders; fuzzers; gateways that share a database; hostile bytes for the compiled module; property tests with other examples; PostgreSQL behind a pooler
	TOLLHOUSE_SOAK_MINUTES=$(MINUTES) TOLLHOUSE_SEND_CALLS=100000 TOLLHOUSE_ORDERS=100 \
	TOLLHOUSE_ORDER_SEED=0 \
	$(BIN)/python -m pytest -q tests/faults/test_soak.py tests/acceptance/test_send_killed.py \
	tests/integration/order tests/integration/receivers/test_one_call_one_record.py --timeout 3600
	TOLLHOUSE_FAULTS=full $(BIN)/python -m pytest -q tests/faults/hostile/test_fuzz.py \
	tests/integration/operations/test_openapi.py tests/integration/test_demo.py \
	tests/integration/receivers/test_large_bodies.py tests/acceptance/test_captures.py \
	tests/faults/test_gateways.py tests/spool/postgres/deadlocks \
	tests/integration/operations/people/test_units_of_others.py tests/integration/operations/money/costs/test_year.py \
	tests/integration/operations/people/test_slices_of_assistants.py tests/integration/lake/model/test_names.py \
	tests/integration/order/test_relayed_calls.py tests/integration/order/test_captured_agents.py \
	tests/integration/order/test_runs_over_requests.py tests/integration/order/test_spans_beside.py \
	tests/integration/operations/bills/plans/test_paid_costs.py tests/releases/test_wheel.py \
	tests/browser/test_one_number.py tests/browser/test_pages.py --timeout 3600
	TOLLHOUSE_FAULTS=full $(BIN)/python -m pytest -q tests/gateway tests/exporters tests/spool tests/deploy/test_native_wheels.py --timeout 3600
	TOLLHOUSE_POOLER=transaction $(BIN)/python -m pytest -q tests/spool/contract tests/spool/postgres \
	-k "postgres and not pgbouncer" --timeout 600
	@if native/available.sh; then $(MAKE) --no-print-directory soak-native; fi

SCENARIOS ?= main
bench: $(VENV)/test.stamp  ## the server under load as a table (SCENARIOS="100x8 1x*"), then its parts as ratios
	$(BIN)/python -m tests.bench $(SCENARIOS)
	TOLLHOUSE_BENCH=full $(BIN)/python -m pytest -q -s -m bench --timeout 1800

bench-units: $(VENV)/test.stamp  ## queries about a month of a million sessions and two million runs
	$(BIN)/python -m tests.bench.growth.units

bench-peers: $(VENV)/test.stamp  ## the same load and the same kill beside an OpenTelemetry Collector (needs Go), Phoenix and MLflow
	$(BIN)/python -m tests.bench.peers

bench-page: $(VENV)/test.stamp  ## docs/develop/benchmarks.md: Tollhouse beside a collector on a quiet machine (needs Go)
	$(BIN)/python -m tests.bench.page

bench-growth: $(VENV)/test.stamp  ## throughput, latency and memory while the backlog, series, devices, keys ... grow: tests/bench/plots
	$(BIN)/python -m tests.bench.growth --plots tests/bench/plots
