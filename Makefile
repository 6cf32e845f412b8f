# Two commands matter: `make train` and `make test`. Each sets everything up first, once.
# PIP_ARGS='--extra-index-url https://download.pytorch.org/whl/cpu' takes the small build of torch, without CUDA.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
ARGS ?=
PIP_ARGS ?=
TEST_WORKERS ?= 2
PACKAGE ?=
TESTS = $(if $(PACKAGE),packages/$(PACKAGE)/tests,)
# Large libraries of which little is imported: that is compiled by importing it; the rest would take three quarters of the time.
PART_USED := beartype|cfnlint|docutils|fontTools|graphql|moto|mypy|mypyc|networkx|opentelemetry|pandas|pip|plotly|pygments|scipy|setuptools|sklearn|snowballstemmer|sphinx|sqlalchemy|statsmodels|sympy|torch|torchgen|wandb
IMPORTED := moto.s3, moto.server, networkx, pandas, plotly.graph_objects, pygments.lexers, scipy.stats, sklearn.ensemble, sqlalchemy.orm, sympy, torch, wandb
# Images of containers set it, and each start would compile what it imports: 2 s for SymPy.
unexport PYTHONDONTWRITEBYTECODE
INSTALLED := packages/watch[page] packages/flatwater[teach,sweep,wandb] packages/trading[excel]

.PHONY: train test test-long test-random test-all check lint types imports dead api bench results docs site constraints clean help

train: $(READY) ## evolve traders on a market whose law is known, then on real prices (ARGS="--rounds 3 --run DIR ..." for these)
	@echo "1 of 2: a market whose law is known (examples/trading/known_market.toml)"
	@$(BIN)/flatwater train erl --config examples/trading/known_market.toml
	@echo "2 of 2: real prices, four shares from 2000 to 2013"
	@$(BIN)/flatwater train erl $(ARGS)

test: $(READY) ## the tests that take ten minutes (PACKAGE=watch, flatwater or trading; ARGS="-k replay")
	@$(BIN)/python -m pytest -q -n $(TEST_WORKERS) --dist worksteal $(TESTS) $(ARGS)

test-long: $(READY) ## those that take ten minutes more, before a change is handed in: whole runs, killed and resumed
	@$(BIN)/python -m pytest -q -n $(TEST_WORKERS) --dist worksteal -m "long and not slow and not gpu and not cluster" $(TESTS) $(ARGS)

test-random: $(READY) ## `make test` and `make test-long` in another order and with other draws, each time (SEED=7 repeats those of seed 7)
	@seed=$${SEED:-$$RANDOM}; echo "seed $$seed: make test-random SEED=$$seed repeats it"; \
		$(BIN)/python -m pytest -q -n $(TEST_WORKERS) --dist worksteal --randomly-seed=$$seed \
		--hypothesis-profile=random --hypothesis-seed=$$seed -m "not slow and not gpu and not cluster" $(ARGS)

test-all: $(READY) ## all tests that this machine can run
	@$(BIN)/python -m pytest -q -m "not cluster" $(ARGS)

check: lint types imports dead ## everything that reads the code without running it

lint: $(READY) ## style and format
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .

types: $(READY) ## mypy strict
	@$(BIN)/mypy

imports: $(READY) ## what may import what
	@$(BIN)/lint-imports --no-logo

dead: $(READY) ## code that nothing uses
	@$(BIN)/vulture

api: $(READY) ## write tests/api/public.txt, tests/options.txt and tests/messages anew; their diff is the change for users
	@$(BIN)/python tests/test_public_api.py
	@$(BIN)/python tests/test_options.py
	@$(BIN)/python tests/test_messages.py

bench: $(READY) ## every benchmark, one after the other; each keeps its numbers in benchmarks/results
	@for bench in benchmarks/*/bench_*.py; do echo "== $$bench"; RECORD=1 $(BIN)/python "$$bench" || true; done

results: $(READY) ## write benchmarks/RESULTS.md from what the benchmarks kept
	@$(BIN)/python benchmarks/shared/claims.py

docs: $(READY) ## run the examples in the Markdown pages, and check links, commands and settings
	@$(BIN)/python -m pytest -q -p no:randomly -n $(TEST_WORKERS) --dist loadfile *.md packages/*/README.md docs tests/test_docs.py  # a page's examples run in their order

site: $(READY) ## the pages, every command and every public name as a site, in build/site; a warning is an error
	@$(BIN)/python scripts/documentation/build.py

constraints: $(READY) ## pin what is installed now (after a change of the dependencies in pyproject.toml)
	@$(BIN)/python scripts/pin_constraints.py > constraints.new
	@mv constraints.new constraints.txt

clean: ## remove the set-up and everything built; runs/ stays
	@rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache packages/*/src/*.egg-info
	@find packages tests scripts benchmarks -name __pycache__ -prune -exec rm -rf {} +

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): packages/watch/pyproject.toml packages/flatwater/pyproject.toml packages/trading/pyproject.toml requirements.txt constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Flatwater needs Python 3.11 or later, and $(PYTHON) is older: make PYTHON=python3.12 ..."; exit 2; }
	@echo "setting up .venv: one to three minutes, about 2 GB"
	@began=$$SECONDS; \
		$(PYTHON) -m venv .venv; \
		$(BIN)/python -m pip install -qq --disable-pip-version-check $(PIP_ARGS) -c constraints.txt pip setuptools; `# the pip of Python 3.11 takes a minute more to resolve` \
		$(BIN)/python -m pip install -qq --no-compile --no-build-isolation --disable-pip-version-check $(PIP_ARGS) \
			-c constraints.txt -r requirements.txt $(INSTALLED:%=-e %); \
		$(BIN)/python -c "import $(IMPORTED)" & \
		$(BIN)/python -m compileall -q -x '^\.venv/.*/(tests?|$(PART_USED))/' .venv/lib packages > /dev/null || true; `# but for the libraries' own tests; some carry files that are no Python` \
		wait; \
		echo "set up in $$((SECONDS - began)) s"
	@touch $@
