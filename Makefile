# Everything runs from a virtual environment that the first target makes. `make help` lists the targets.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Worker processes for the tests: one per core, at most 4.
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); [ $$n -gt 4 ] && n=4; echo $$n)
# Neighbouring tests stay in one worker, which has compiled what they share, until another worker has none left.
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# The ends of what is supported, as pyproject.toml states them.
OLDEST_PYTHON ?= python3.11
NEWEST_PYTHON ?= python3.13
OLDEST := 'jax==0.10.2' 'jaxlib==0.10.2' 'equinox==0.13.*' 'numpy==2.0.*' 'scipy==1.14.*'

.PHONY: help plan test test-all browser compile-gpu oldest newest proofs proofs-thorough mutants docs docs-check notebooks lint types ci clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "dmodels needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

$(VENV)/.installed-%: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$*]'
	@touch $@

plan: $(VENV)/.installed ## plan a bundled workload and write its report to out/plan.html
	$(BIN)/dmodels plan --out out/plan.html

test: $(VENV)/.installed ## the default test suite
	$(PYTEST) -m "not slow"

test-all: $(VENV)/.installed ## everything, slow property searches included
	HYPOTHESIS_PROFILE=thorough $(PYTEST)

browser: $(VENV)/.installed ## the tests of pages that drive Chromium, which must be there
	CHROMIUM=required $(PYTEST) tests/cli/test_explore.py tests/cli/test_report.py

compile-gpu: $(VENV)/.installed-cuda ## compile the device programs for A100, H200 and B200 without one: registers, spills, memory
	CUDA_COMPILER=required $(BIN)/python -m pytest tests/test_device_programs.py -k compile
	JAX_PLATFORMS=cpu $(BIN)/python -m benchmarks gpu_compile

oldest: ## the default tests on the oldest Python and libraries that are supported, in .venv-oldest
	$(OLDEST_PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check -e '.[test]' $(OLDEST)
	@touch .venv-oldest/.installed
	$(MAKE) test VENV=.venv-oldest

newest: ## the default tests on the newest Python and libraries, in .venv-newest
	$(NEWEST_PYTHON) -m venv .venv-newest
	.venv-newest/bin/python -m pip install --quiet --disable-pip-version-check --upgrade --upgrade-strategy eager -e '.[test]'
	@touch .venv-newest/.installed
	$(MAKE) test VENV=.venv-newest

proofs: $(VENV)/.installed ## the proofs and quick property checks of every claim
	$(PYTEST) -m "not slow" proofs

proofs-thorough: $(VENV)/.installed ## twenty times as many cases per claim, from fixed seeds; prints how many
	$(BIN)/python -m proofs --thorough

mutants: $(VENV)/.installed ## change the package at random, 20 times a room, and print what no test notices (an hour)
	$(BIN)/python -m tools.mutants

docs: $(VENV)/.installed-docs ## build the guide into out/docs; warnings and dead links fail
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

docs-check: $(VENV)/.installed ## run every code block of the guide and the README
	$(BIN)/python tools/pages.py --slow

notebooks: $(VENV)/.installed-notebooks ## the notebooks of examples/notebooks, executed, into out/notebooks
	@mkdir -p out/notebooks
	for f in examples/notebooks/*.py; do OUT=$$PWD/out/notebooks $(BIN)/python -m jupytext --to ipynb --execute --run-path . --output out/notebooks/$$(basename $$f .py).ipynb $$f || exit 1; done

lint: $(VENV)/.installed-lint ## style and format
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .

types: $(VENV)/.installed-lint ## strict types, but for the debts that pyproject.toml names
	$(BIN)/python -m mypy

ci: lint types test docs docs-check ## what CI runs

clean: ## remove the environment and what was built
	rm -rf $(VENV) .venv-oldest .venv-newest build *.egg-info out
