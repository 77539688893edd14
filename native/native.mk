# The compiled module: its wheel and its tests. Included by the Makefile at the top.

# What reads, forwards and adds up once more with the compiled module, where it can be built. The suite itself runs
# without; tests of packed bytes are these alone, as nearly all of them ask the module.
NATIVE_PARTS := tests/packed tests/exporters/test_telemetry.py tests/integration/exporters/test_forwarding.py \
	tests/integration/operations/test_imports.py::test_a_start_imports_what_a_server_needs \
	tests/faults/test_kill.py::test_kill_under_load \
	tests/faults/test_power_cut.py::test_every_acknowledged_call_outlives_a_power_cut

test-native: $(VENV)/test.stamp
	@if native/available.sh; then $(MAKE) --no-print-directory checked-native; \
	else $(PYTEST) $(WITHOUT) tests/packed; fi

WITH_NATIVE := TOLLHOUSE_NATIVE=1 PYTHONPATH=$(CURDIR)/$(NATIVE)/site
checked-native: $(NATIVE)/site/stamp $(VENV)/postgres.stamp
	native/check.sh
	$(WITH_NATIVE) $(PYTEST) $(WITHOUT) $(NATIVE_PARTS)

$(NATIVE)/stamp: $(LOCKS)/requirements-native-build.lock | $(VENV)/run.stamp
	@test -x $(NATIVE)/bin/python || $(ENVIRONMENT) $(NATIVE)
	$(call INSTALL_INTO,$(NATIVE)) -r $(LOCKS)/requirements-native-build.lock
	@touch $@

$(NATIVE)/wheels/stamp: $(NATIVE)/stamp $(VENV)/run.stamp native/Cargo.toml native/Cargo.lock native/pyproject.toml $(wildcard native/src/*.rs)
	@rm -rf $(NATIVE)/wheels
	$(NATIVE)/bin/maturin build --quiet --release --locked --manifest-path native/Cargo.toml --interpreter $(BIN)/python \
	  --out $(NATIVE)/wheels
	@touch $@

$(NATIVE)/site/stamp: $(NATIVE)/wheels/stamp
	@$(INSTALL) --no-deps --no-index --upgrade --target $(NATIVE)/site $(NATIVE)/wheels/*.whl
	@touch $@

native: $(VENV)/run.stamp  ## build the compiled module and install it (needs cargo, see docs/operations/sizing.md)
	@native/available.sh
	@$(MAKE) --no-print-directory $(NATIVE)/wheels/stamp
	$(INSTALL) --no-deps --no-index --force-reinstall $(NATIVE)/wheels/*.whl
