# Everything runs from a virtual environment that the first target makes. `make help` lists the targets.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Worker processes for the tests: one per core, at most 4.
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); [ $$n -gt 4 ] && n=4; echo $$n)

.PHONY: help plan test test-all proofs lint bench clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "dmodels needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

plan: $(VENV)/.installed ## plan a bundled workload and write its report to out/plan.html
	$(BIN)/dmodels plan --out out/plan.html

test: $(VENV)/.installed ## the default test suite
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow"

test-all: $(VENV)/.installed ## everything, slow property searches included
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -n $(WORKERS)

proofs: $(VENV)/.installed ## the proofs and quick property checks of every claim
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow" proofs

lint: $(VENV)/.installed ## style
	$(BIN)/python -m ruff check .

clean: ## remove the environment and what was built
	rm -rf $(VENV) build *.egg-info out
