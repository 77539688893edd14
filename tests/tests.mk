# The parts of `make test` and `make proofs` and what they need, and benchmarks. Included by the Makefile at the top.

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

# The parts of `make test`: the linters, and together all of tests/. Those that wait for processes and disks most of the
# time begin first, beside the longest of the others, so that no lane is left alone at the end. Each ends with the tests
# that took longest, and writes a record, which `tests.verdict` reads when all have ended.
PARTS := test-program test-browser test-faults test-api test-spool test-gateways test-code test-integration test-lake \
	test-native test-deploy lint
RECORDS := build/proved
PYTEST = $(BIN)/python -m pytest -q -rfEs --durations=25 --durations-min=3 -p tests.proved --record $(RECORDS)/$@.ndjson
# `make proofs` runs the same parts with PROOFS=1: also the tests marked `proof`, and everything at full size.
ifdef PROOFS
export TOLLHOUSE_PROOFS := 1
PYTEST += -m "not clients and not chroot" --timeout 36000
endif
ifeq ($(REPEATS),later)
PYTEST += --repeat-later
endif
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
ifdef PROOFS
	TOLLHOUSE_POOLER=transaction $(PYTEST) $(WITHOUT) tests/spool/contract tests/spool/postgres \
	  -k "postgres and not pgbouncer" --record $(RECORDS)/$@-pooler.ndjson
endif
test-integration:
	$(PYTEST) $(WITHOUT) tests/integration $(addprefix --ignore=,$(API) $(LAKE))
test-lake:
	$(PYTEST) $(WITHOUT) $(LAKE)
test-api:
	$(PYTEST) $(API)
test-browser:
	$(PYTEST) $(WITHOUT) tests/browser
test-deploy:
ifdef PROOFS
	@$(MAKE) --no-print-directory kubernetes-tools || test -s .venv-kubernetes/missing
endif
	$(PYTEST) $(WITHOUT) tests/bench tests/clients tests/deploy

test-clients: $(VENV)/test.stamp  ## real client libraries, each in an environment of its own
	$(BIN)/python -m pytest -q -m clients --timeout 900

# One part (PART=faults), the tests of one promise (PROMISE="One call, one record"), or those of the promises whose code
# differs from a commit (CHANGED=main). A whole run is written into tests/EVIDENCE.md.
export PROMISE CHANGED
PROVED := $(if $(PROMISE)$(CHANGED),test-promises,$(if $(PART),test-$(PART),$(PARTS) test-times))
proofs: $(VENV)/run.stamp  ## everything at full size, for hours (PART=faults, PROMISE="One call, one record" or CHANGED=main: less)
	@$(MAKE) --no-print-directory -j 3 environment builds
	@rm -rf $(RECORDS)
	@$(MAKE) --no-print-directory -k -j $(LANES) PROOFS=1 $(PROVED)
	@$(if $(PART)$(PROMISE)$(CHANGED),,$(BIN)/python -m tests.verdict $(RECORDS) --write)

# At the end of February, a year and a month, on a Monday and at changes of Berlin's clock. Sizes are those of `make test`.
test-times: $(VENV)/test.stamp $(VENV)/postgres.stamp $(VENV)/chromium.stamp
	TOLLHOUSE_PROOFS=0 $(BIN)/python -m tests.times tests/acceptance tests/browser

test-promises: $(VENV)/test.stamp $(VENV)/postgres.stamp
	$(PYTEST) tests --promise "$$PROMISE" --changed "$$CHANGED"

COUNT ?= 60
mutants: $(VENV)/test.stamp $(VENV)/postgres.stamp  ## COUNT=60 random changes of the packages, one at a time (SEED repeats a draw): each must make a test red; takes hours
	$(BIN)/python -m tests.mutants --count $(COUNT) $(if $(SEED),--seed $(SEED))

SCENARIOS ?= main
bench: $(VENV)/test.stamp  ## the server under load as a table (SCENARIOS="100x8 1x*"), then its parts as ratios
	$(BIN)/python -m tests.bench $(SCENARIOS)
	TOLLHOUSE_PROOFS=1 $(BIN)/python -m pytest -q -s -m bench --timeout 1800

bench-units: $(VENV)/test.stamp  ## queries about a month of a million sessions and two million runs
	$(BIN)/python -m tests.bench.growth.units

bench-peers: $(VENV)/test.stamp  ## the same load and the same kill beside an OpenTelemetry Collector (needs Go), Phoenix and MLflow
	$(BIN)/python -m tests.bench.peers

bench-page: $(VENV)/test.stamp  ## docs/develop/benchmarks.md: Tollhouse beside a collector on a quiet machine (needs Go)
	$(BIN)/python -m tests.bench.page

bench-growth: $(VENV)/test.stamp  ## throughput, latency and memory while the backlog, series, devices, keys ... grow: tests/bench/plots
	$(BIN)/python -m tests.bench.growth --plots tests/bench/plots
