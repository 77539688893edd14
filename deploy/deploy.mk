# Packages, images, lock files and releases. Included by the Makefile at the top.

deb: $(VENV)/run.stamp  ## build the Debian package for this machine's release into dist/
	@deploy/debian/build.sh dist

test-deb: $(VENV)/test.stamp  ## install, upgrade and purge the package in a booted Debian (needs root and debootstrap)
	$(BIN)/python -m pytest -q -rfEs -m 'chroot or not chroot' tests/deploy/test_debian.py --timeout 900

test-container: $(VENV)/test.stamp  ## carry the Containerfile out without a runtime, and start the result (needs root and debootstrap)
	$(BIN)/python -m pytest -q -rfEs -m 'chroot or not chroot' tests/deploy/test_container.py --timeout 900

# The agent without Python on the laptop. nfpm is built by Go; later versions need modules that the proxy does not serve.
AGENT := .venv-agent
NFPM := github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.0
$(AGENT)/stamp: $(LOCKS)/requirements.lock $(LOCKS)/requirements-package.lock
	@test -x $(AGENT)/bin/python || $(PYTHON) -m venv $(AGENT)
	$(AGENT)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes \
	  -r $(LOCKS)/requirements.lock -r $(LOCKS)/requirements-package.lock
	@touch $@

$(AGENT)/bin/nfpm: | $(AGENT)/stamp
	GOBIN=$(CURDIR)/$(AGENT)/bin go install $(NFPM)

agent-frozen: $(AGENT)/stamp  ## freeze the agent with Python and its libraries into a folder for this system (.venv-agent)
	@deploy/agent/freeze.sh $(AGENT)/bin/python $(AGENT)

agent-package: agent-frozen $(AGENT)/bin/nfpm  ## build the self-contained agent for this system as .deb and .rpm into dist/ (needs Go)
	@deploy/agent/package.sh $(AGENT)/bin/nfpm $(AGENT)/tollhouse-agent dist

test-agent-package: agent-frozen $(AGENT)/bin/nfpm $(VENV)/test.stamp  ## install, run, upgrade and remove these packages in trees of Debian (needs root, debootstrap and rpm)
	$(BIN)/python -m pytest -q -rfEs -m 'chroot or not chroot' tests/deploy/test_agent_package.py --timeout 900

# WINDOWS_AGENT is the folder that deploy/agent/freeze.sh made on Windows.
agent-msi:  ## build the installer of the agent for Windows into dist/ (WINDOWS_AGENT=FOLDER; needs wixl, msitools, gcc-mingw-w64-x86-64)
	@test -n "$(WINDOWS_AGENT)" || { echo "set WINDOWS_AGENT to the folder that deploy/agent/freeze.sh made on Windows" >&2; exit 1; }
	@deploy/windows/build.sh "$(WINDOWS_AGENT)" dist

test-windows-agent: $(VENV)/test.stamp  ## install, start, stop, upgrade and remove the agent's service under wine64, with a program in the agent's place
	$(BIN)/python -m pytest -q -rfEs -m 'clients or not clients' tests/deploy/test_windows_agent.py

.venv-kubernetes/stamp: deploy/kubernetes/tools.sh $(VENV)/run.stamp
	deploy/kubernetes/tools.sh .venv-kubernetes $(BIN)/python
	@touch $@

kubernetes-tools: .venv-kubernetes/stamp  ## build helm with Go, for the tests of deploy/kubernetes

kubernetes-rules:  ## write the alerts of deploy/prometheus into the chart, because Helm reads only files of the chart
	@sed '/^#/d' deploy/prometheus/rules.yaml > deploy/kubernetes/helm/files/rules.yaml

LOCK := pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --python-version 3.11

lock: $(VENV)/test.stamp  ## resolve the dependencies again into hash-pinned lock files
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv $(LOCK) pyproject.toml --group dev -o $(LOCKS)/requirements-dev.lock
	$(BIN)/uv $(LOCK) pyproject.toml -c $(LOCKS)/requirements-dev.lock -o $(LOCKS)/requirements.lock
	for extra in postgres kafka lake; do \
	  $(BIN)/uv $(LOCK) pyproject.toml --extra $$extra -c $(LOCKS)/requirements-dev.lock -o $(LOCKS)/requirements-$$extra.lock || exit 1; done
	$(BIN)/uv $(LOCK) --group build -c $(LOCKS)/requirements-dev.lock -o $(LOCKS)/requirements-build.lock
	$(BIN)/uv $(LOCK) --group docs -o $(LOCKS)/requirements-docs.lock
	$(BIN)/uv $(LOCK) --group audit -o $(LOCKS)/requirements-audit.lock
	$(BIN)/uv $(LOCK) --group package -c $(LOCKS)/requirements-dev.lock -o $(LOCKS)/requirements-package.lock
	$(BIN)/uv $(LOCK) --group native -o $(LOCKS)/requirements-native-build.lock

# Other versions may write the font with other bytes.
FONTTOOLS = 4.68.0
vendor:  ## fetch the libraries and the font of the console again (needs npm)
	test -x .venv-vendor/bin/python || $(PYTHON) -m venv .venv-vendor
	.venv-vendor/bin/python -m pip install --quiet fonttools==$(FONTTOOLS) brotli==1.2.1
	.venv-vendor/bin/python -m docs.generate.vendor

# It carries the catalogue of models.dev. The registry's newest version may be marked otherwise than `latest`.
PI_AI ?= @earendil-works/pi-ai@>=1
prices: $(VENV)/test.stamp  ## make the rate card again from today's public price lists (needs npm)
	test -x .venv-prices/bin/python || $(PYTHON) -m venv .venv-prices
	.venv-prices/bin/python -m pip install --quiet --upgrade genai-prices msgspec
	rm -rf .venv-prices/lists && mkdir .venv-prices/lists
	.venv-prices/bin/python -m pip download --quiet --no-deps --dest .venv-prices/lists litellm
	cd .venv-prices/lists && npm pack --silent '$(PI_AI)'
	$(BIN)/python -m docs.generate.price_sources .venv-prices/lists/*.whl .venv-prices/lists/*.tgz
	$(BIN)/python -m docs.generate.merged_card $$(.venv-prices/bin/python -m docs.generate.rate_card)

$(AUDIT)/stamp: $(LOCKS)/requirements-audit.lock | $(VENV)/run.stamp
	@test -x $(AUDIT)/bin/python || $(ENVIRONMENT) $(AUDIT)
	$(call INSTALL_INTO,$(AUDIT)) -r $(LOCKS)/requirements-audit.lock
	@touch $@

audit: $(AUDIT)/stamp  ## look every lock file up among known vulnerabilities (AUDIT=required: what cannot be looked up fails)
	@$(AUDIT)/bin/python deploy/audit.py --program $(AUDIT)/bin/pip-audit

test-upgrade: $(VENV)/test.stamp  ## upgrade an installation from the build of FROM=REF, killed under load, to the wheel in dist/
	@test -n "$(FROM)" || { echo "set FROM to the commit or tag of the earlier build" >&2; exit 1; }
	$(BIN)/python -m tests.releases.upgrade $(FROM)

release: $(VENV)/test.stamp $(AUDIT)/stamp  ## build wheel and sdist twice, compare them, write dist/ with a bill of materials and SHA256SUMS (SNAPSHOT=1 to try it)
	@if native/available.sh >/dev/null; then $(MAKE) --no-print-directory $(NATIVE)/stamp; fi
	$(BIN)/python deploy/release.py --cyclonedx $(CURDIR)/$(AUDIT)/bin/cyclonedx-py $(if $(SNAPSHOT),--snapshot)
