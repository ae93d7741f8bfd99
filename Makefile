# Thin: names papers and stems; what is up to date is decided by content keys, not by timestamps.
PROFILE ?= embedded
LAUNCHER ?=
ARGS ?=
PYTHON ?= python3
TORCH_INDEX ?=
PYTEST_ARGS ?= -n 2

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
RUN_STAMP := $(VENV)/.run-installed
DEV_STAMP := $(VENV)/.dev-installed
OPTIONS := profile=$(PROFILE) $(if $(LAUNCHER),hydra/launcher=$(LAUNCHER)) $(ARGS)

.DEFAULT_GOAL := help
.PHONY: help reproduce leakage dci_es cbx figures report list test lint format bench lock clean

help:  ## this list
	@grep -hE '^[a-z_/%]+:.*?## ' $(MAKEFILE_LIST) | awk -F ':.*?## ' '{printf "  make %-22s %s\n", $$1, $$2}'
	@echo
	@echo "  PROFILE=embedded|smoke|paper   sizes and grids (default: embedded)"
	@echo "  TORCH_INDEX=<url>              take torch from another index, for example a CPU build"
	@echo "  ARGS=\"key=value ...\"           further overrides"

$(BIN)/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}: make PYTHON=python3.11"'
	$(PYTHON) -m venv $(VENV)

$(RUN_STAMP): $(BIN)/python pyproject.toml requirements.lock
	@echo "Installing concept-audit[all] into $(VENV); this takes some minutes the first time"
ifneq ($(TORCH_INDEX),)
	$(PIP) install --quiet --index-url $(TORCH_INDEX) --extra-index-url https://pypi.org/simple -c requirements.lock torch torchvision
endif
	$(PIP) install --quiet -c requirements.lock --editable '.[all]'
	@touch $@

$(DEV_STAMP): $(RUN_STAMP)
	$(PIP) install --quiet -c requirements.lock --editable '.[all,dev]'
	@touch $@

reproduce: $(RUN_STAMP)  ## every figure and table of the papers, then outputs/report/index.html
	$(BIN)/concept-audit reproduce $(OPTIONS)

leakage: $(RUN_STAMP)  ## the leakage paper alone
	$(BIN)/concept-audit reproduce paper=$@ $(OPTIONS)

cbx: $(RUN_STAMP)  ## the council paper alone, by offline judges; also outputs/leaderboard/index.html
	$(BIN)/concept-audit reproduce paper=$@ $(OPTIONS)

dci_es: $(RUN_STAMP)  ## the DCI-ES paper alone
	$(BIN)/concept-audit reproduce paper=$@ $(OPTIONS)

dci_es/%: $(RUN_STAMP)
	$(BIN)/concept-audit run experiment=$@ $(OPTIONS)

cbx/%: $(RUN_STAMP)
	$(BIN)/concept-audit run experiment=$@ $(OPTIONS)

leakage/%: $(RUN_STAMP)  ## one figure or table, for example leakage/fig06_supervision
	$(BIN)/concept-audit run experiment=$@ $(OPTIONS)

figures report: $(RUN_STAMP)  ## redraw figures, tables and report from stored results
	$(BIN)/concept-audit report $(ARGS)

list: $(RUN_STAMP)  ## experiments, datasets, models, evaluations
	@$(BIN)/concept-audit list

test: $(DEV_STAMP)  ## the test suite
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(DEV_STAMP)  ## style, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(DEV_STAMP)  ## rewrite the sources in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(DEV_STAMP)  ## measure against named peers; rewrites tests/benchmarks/README.md
	$(BIN)/python tests/benchmarks $(ARGS)

lock: $(DEV_STAMP)  ## write the versions that are installed to requirements.lock
	{ head -n 2 requirements.lock; $(PIP) freeze --exclude-editable; } > requirements.lock.new
	mv requirements.lock.new requirements.lock

clean:  ## remove caches; keeps .venv, data and outputs
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
