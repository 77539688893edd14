# The documents as a site. Included by the Makefile at the top.

docs-reference: $(VENV)/run.stamp  ## write what the documents take from the code: configuration, commands, HTTP API, limits, evidence
	$(BIN)/python -m docs.generate
	$(BIN)/python -m tests.promises

$(DOCS)/stamp: $(LOCKS)/requirements-docs.lock | $(VENV)/run.stamp
	@test -x $(DOCS)/bin/python || $(ENVIRONMENT) $(DOCS)
	$(call INSTALL_INTO,$(DOCS)) -r $(LOCKS)/requirements-docs.lock
	@touch $@

screenshots: $(VENV)/chromium.stamp  ## take the pictures of the documents again
	$(BIN)/python -m tests.browser.pictures docs/images

page-weights: $(VENV)/chromium.stamp  ## bytes and requests of each page of the console
	$(BIN)/python -m tests.bench.server.page_weights

docs: $(DOCS)/stamp  ## build the documents as a site, links checked, into build/site
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict --clean  # with --quiet no warning would be counted
