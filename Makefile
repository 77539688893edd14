# Needs Python 3.11 or newer, make, and the package index. Everything else is installed into .venv.
PYTHON ?= python3
VENV := .venv
AUDIT := .venv-audit
DOCS := .venv-docs
NATIVE := .venv-native
BIN := $(VENV)/bin
LOCKS := deploy/locks
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet
# Into an environment beside, for one program: it needs no pip of its own, and what it never imports is not compiled.
ENVIRONMENT := $(PYTHON) -m venv --without-pip
INSTALL_INTO = $(PIP) --python $(1)/bin/python install --quiet --no-compile --require-hashes
# Without its cache of compiled modules every start of the command compiles 500 of them, which doubles what a start costs.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

run: $(VENV)/run.stamp  ## install the locked dependencies and start Tollhouse with its defaults
	@exec $(BIN)/tollhouse serve

demo: $(VENV)/run.stamp  ## install the locked dependencies and show the console with two months of made-up traffic
	@if test -d tollhouse-demo; then exec $(BIN)/tollhouse serve --data tollhouse-demo; \
	else exec $(BIN)/tollhouse demo --data tollhouse-demo --days 62 --plant all --serve; fi

quick: $(VENV)/test.stamp lint  ## linters and the unit tests, under a minute on two cores
	$(BIN)/python -m pytest -q -n 2 tests/gateway tests/exporters tests/spool tests/docs tests/test_*.py

# Four lanes keep two cores busy; with six the same tests took more of the processor. With a failure the others still run
# to their end. PARTS is in tests/tests.mk. The last step repeats waits that did not
# end, once and alone, and checks that each promise and each operation has a passed test.
LANES ?= 4
test: $(VENV)/run.stamp  ## the whole suite with the linters, four parts at a time, and the wheel on the oldest Python
	@$(MAKE) --no-print-directory -j 3 $(AUDIT)/stamp environment builds
	@rm -rf $(RECORDS)
	@$(MAKE) --no-print-directory -k -j $(LANES) REPEATS=later $(PARTS) audit; \
	outcome=$$?; $(BIN)/python -m tests.verdict $(RECORDS) && exit $$outcome

# A new clone finds what mypy knows of the libraries, and checks only its own files.
MYPY_CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tollhouse-mypy/$(firstword $(shell cksum < $(LOCKS)/requirements-dev.lock))
lint: $(VENV)/test.stamp  ## ruff and strict mypy, tests included
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --cache-dir $(MYPY_CACHE)

format: $(VENV)/test.stamp  ## format the code with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

hooks: $(VENV)/test.stamp  ## run the linters before every commit
	$(BIN)/pre-commit install

clean:  ## delete environments and caches, never data
	rm -rf $(VENV) .venv-* native/target .mypy_cache $(dir $(MYPY_CACHE)) .ruff_cache .pytest_cache .hypothesis

# One stamp a lock file: a changed lock installs again, an unchanged one costs nothing.
$(VENV)/run.stamp: $(LOCKS)/requirements.lock $(LOCKS)/requirements-build.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tollhouse needs Python 3.11 or newer")'
	@echo "Installing Tollhouse into $(VENV). This takes about a minute, once."
	@echo "1 of 3: a Python environment"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "2 of 3: the libraries of $(LOCKS)/requirements.lock and requirements-build.lock, each with its hash"
	@$(INSTALL) --require-hashes -r $(LOCKS)/requirements.lock -r $(LOCKS)/requirements-build.lock
	@echo "3 of 3: Tollhouse itself"
	@$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/test.stamp: $(LOCKS)/requirements-dev.lock $(VENV)/run.stamp
	$(INSTALL) --require-hashes -r $(LOCKS)/requirements-dev.lock
	@touch $@

include tests/tests.mk native/native.mk docs/docs.mk deploy/deploy.mk

# Every target but the stamps is a name and no file.
.PHONY: $(shell grep -hoE '^[a-z-]+:' $(MAKEFILE_LIST) | tr -d :)
