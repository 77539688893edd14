# Needs Python 3.11 or newer, make, and the package index. Everything else is installed into .venv.
PYTHON ?= python3
VENV := .venv
AUDIT := .venv-audit
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help run quick test test-code test-system test-clients faults soak bench lint format hooks lock prices vendor audit sbom clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# One stamp a lock file: a changed lock installs again, an unchanged one costs nothing.
$(VENV)/run.stamp: requirements.lock requirements-build.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tollhouse needs Python 3.11 or newer")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) --require-hashes -r requirements.lock -r requirements-build.lock
	$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/test.stamp: requirements-dev.lock $(VENV)/run.stamp
	$(INSTALL) --require-hashes -r requirements-dev.lock
	@touch $@

run: $(VENV)/run.stamp  ## install the locked dependencies and start Tollhouse with its defaults
	@exec $(BIN)/tollhouse serve

quick: $(VENV)/test.stamp lint  ## linters and the unit tests, under a minute on two cores
	$(BIN)/python -m pytest -q -n 2 tests/gateway tests/exporters tests/spool tests/test_*.py

test: $(VENV)/test.stamp lint  ## the whole suite, in two halves beside each other, and the wheel on every Python there is
	@$(MAKE) --no-print-directory -j 2 test-code test-system
	@$(MAKE) --no-print-directory audit

# Together all of tests/.
test-code: $(VENV)/test.stamp
	$(BIN)/python -m pytest -q -rs --ignore tests/faults --ignore tests/integration --ignore tests/bench

test-system: $(VENV)/test.stamp
	$(BIN)/python -m pytest -q -rs tests/faults tests/integration tests/bench

test-clients: $(VENV)/test.stamp  ## real client libraries, each in an environment of its own
	$(BIN)/python -m pytest -q -m clients --timeout 900

faults: $(VENV)/test.stamp  ## every fault scenario in long rounds; prints what was lost and counted twice
	TOLLHOUSE_FAULTS=full $(BIN)/python -m pytest -q tests/faults --timeout 3600

MINUTES ?= 30
soak: $(VENV)/test.stamp  ## MINUTES=30 of load with random faults; 100,000 calls of a file with kills; 100 orders; fuzzers
	TOLLHOUSE_SOAK_MINUTES=$(MINUTES) TOLLHOUSE_SEND_CALLS=100000 TOLLHOUSE_ORDERS=100 \
	$(BIN)/python -m pytest -q tests/faults/test_soak.py tests/acceptance/test_send_killed.py \
	tests/integration/test_order_of_items.py --timeout 3600
	TOLLHOUSE_FAULTS=full $(BIN)/python -m pytest -q tests/faults/hostile/test_fuzz.py --timeout 3600

bench: $(VENV)/test.stamp  ## every benchmark, long rounds, figures as ratios
	TOLLHOUSE_BENCH=full $(BIN)/python -m pytest -q -s -m bench --timeout 1800

lint: $(VENV)/test.stamp  ## ruff and strict mypy, tests included
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/test.stamp  ## format the code with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

hooks: $(VENV)/test.stamp  ## run the linters before every commit
	$(BIN)/pre-commit install

LOCK := pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --python-version 3.11

lock: $(VENV)/test.stamp  ## resolve the dependencies again into hash-pinned lock files
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv $(LOCK) pyproject.toml --group dev -o requirements-dev.lock
	$(BIN)/uv $(LOCK) pyproject.toml -c requirements-dev.lock -o requirements.lock
	$(BIN)/uv $(LOCK) --group build -c requirements-dev.lock -o requirements-build.lock
	$(BIN)/uv $(LOCK) --group audit -o requirements-audit.lock

vendor: $(VENV)/test.stamp  ## fetch the libraries of the console again (needs npm)
	$(BIN)/python -m gateway.console.vendor

prices: $(VENV)/test.stamp  ## make the rate card again from today's public price data
	test -x .venv-prices/bin/python || $(PYTHON) -m venv .venv-prices
	.venv-prices/bin/python -m pip install --quiet --upgrade genai-prices msgspec
	.venv-prices/bin/python -m gateway.rate_cards.convert

$(AUDIT)/stamp: requirements-audit.lock
	@test -x $(AUDIT)/bin/python || $(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-audit.lock
	@touch $@

audit: $(AUDIT)/stamp  ## look the locked dependencies up among known vulnerabilities
	@rm -f $(AUDIT)/found.json
	@$(AUDIT)/bin/pip-audit -r requirements.lock --require-hashes --disable-pip --progress-spinner off \
	  -f json -o $(AUDIT)/found.json 2>$(AUDIT)/log; found=$$?; \
	if [ $$found != 0 ] && [ -s $(AUDIT)/found.json ]; then cat $(AUDIT)/log $(AUDIT)/found.json; exit $$found; fi; \
	if grep -q '"vulns"' $(AUDIT)/found.json 2>/dev/null; then cat $(AUDIT)/log; exit 0; fi; \
	echo "not looked up: no list of known vulnerabilities can be reached from here"

sbom: $(AUDIT)/stamp  ## write the bill of materials of the locked dependencies (CycloneDX) to dist/tollhouse.cdx.json
	@mkdir -p dist
	$(AUDIT)/bin/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml --output-reproducible \
	  -o dist/tollhouse.cdx.json

clean:  ## delete environments and caches, never data
	rm -rf $(VENV) .venv-* .mypy_cache .ruff_cache .pytest_cache .hypothesis
