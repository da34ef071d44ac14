# `make` alone lists what there is. Every target sets up .venv by itself; all it needs is Python 3.11 or newer.
#
#   make test PYTHON=python3.12      build .venv with another Python (only when .venv is made)
#   make test ARGS="-k laplace -x"   further arguments for the command behind test, demo, audit, mutants, faults or bench
#   make test WORKERS=8              more test processes

PYTHON  ?= python3
WORKERS ?= 2
ARGS    ?=

BIN     := .venv/bin
# One extra of pyproject.toml is installed once per change of these two files.
PINS    := pyproject.toml constraints.txt
# Parallelism comes from test processes; the threads of BLAS, OpenMP and torch inside them would only fight.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 VECLIB_MAXIMUM_THREADS=1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test test-quick test-all test-lowest audit mutants faults lint bench docs dist clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

demo: .venv/.stamp-demo ## a first private model, its plan and its certificate
	@$(BIN)/privopt demo $(ARGS)

test: .venv/.stamp-test ## run the tests that guard a change: pairs of choices in place of products
	@$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

test-quick: .venv/.stamp-test ## run one case of each test that is fast
	@$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --quick $(ARGS)

test-all: .venv/.stamp-test ## run all tests, with all products of choices
	@PRIVOPT_TESTS=all $(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

# An environment of its own, with the oldest releases that pyproject.toml admits and without torch. scikit-learn's own
# checks need SCIPY_ARRAY_API there; new Pythons warn of what old releases do.
test-lowest: .venv-lowest/.stamp ## run the tests with the oldest versions that are supported, without torch
	@SCIPY_ARRAY_API=1 $(ONE_THREAD) .venv-lowest/bin/python -m pytest -n $(WORKERS) --dist worksteal -W default $(ARGS)

audit: .venv/.stamp-demo ## attack every solver: a lower bound on epsilon beside the certified one
	@$(ONE_THREAD) $(BIN)/privopt audit --workers $(WORKERS) $(ARGS)

mutants: .venv/.stamp-test ## plant known bugs and random ones; print which check kills each of them
	@$(ONE_THREAD) $(BIN)/python -m tests.mutants $(ARGS)

faults: .venv/.stamp-test ## kill, race, starve and corrupt a budget ledger; print what was seen
	@$(ONE_THREAD) $(BIN)/python -m tests.faults $(ARGS)

# The type checker follows imports of optional packages, so it needs what the tests need.
lint: .venv/.stamp-lint .venv/.stamp-test ## check style, types and the direction of imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright
	@$(BIN)/lint-imports --no-logo

bench: .venv/.stamp-bench ## compare with peers and with the theory's limits
	@$(BIN)/python -m benchmarks $(ARGS)

docs: .venv/.stamp-docs ## build the documentation into docs/_build
	@rm -rf docs/generated
	@$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build
	@echo "Open docs/_build/index.html"

# The wheel is tried in an environment that holds nothing else, from a folder that is not the checkout.
dist: .venv/.stamp-dist ## build wheel and sdist, check them, and try the wheel in an empty environment
	@rm -rf dist .venv-dist
	@$(BIN)/python -m build -o dist .
	@$(BIN)/python -m twine check --strict dist/*
	@$(PYTHON) -m venv .venv-dist
	@.venv-dist/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt dist/*.whl
	@cp packaging/smoke.py dist/.smoke.py && cd dist && ../.venv-dist/bin/python -W error::DeprecationWarning:privopt .smoke.py
	@rm -rf dist/.smoke.py .venv-dist

clean: ## remove build results and caches, keep .venv
	@rm -rf build dist .venv-dist docs/_build docs/generated .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name ".venv*" -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.stamp-%: $(PINS) | $(BIN)/pip
	@echo "Installing privopt[$*] into .venv (once; a minute or two)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[$*]'
	@touch $@

.venv-lowest/.stamp: $(PINS)
	@echo "Installing the oldest supported versions into .venv-lowest (once)"
	@$(PYTHON) -m venv .venv-lowest
	@.venv-lowest/bin/python -m pip install -qq --disable-pip-version-check uv
	@.venv-lowest/bin/uv pip install -q -p .venv-lowest/bin/python --resolution lowest-direct -e '.[test-core]'
	@touch $@

$(BIN)/pip:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "privopt needs Python 3.11 or newer, but '$(PYTHON)' was not found: install one, or name it with 'make PYTHON=/path/to/python'." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "privopt needs Python 3.11 or newer, but '$(PYTHON)' is $$($(PYTHON) -V 2>&1): name a newer one with 'make PYTHON=/path/to/python'." >&2; exit 1; }
	@$(PYTHON) -m venv .venv
