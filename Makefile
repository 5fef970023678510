# Every target does its own set-up in .venv; nothing but Python 3.11 and make is needed.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
# The CPU build that the runtime tests were measured with.
TORCH := torch==2.13.0

.PHONY: demo test test-deep test-runtime test-browser pictures lint types cov bench catalogue clean

demo: $(VENV)/.installed ## the main job: judge a schedule, look at it, see one refuted
	$(BIN)/verifier show dualpipe -P 8 -M 20
	$(BIN)/verifier verify dualpipe -P 8 -M 20 --activations 9 --weights 2
	$(BIN)/verifier compare dualpipe dualpipev 1f1b -P 8 -M 20
	$(BIN)/verifier verify tests/data/torch/ScheduleZBVZeroBubble_P4_M8.csv
	@echo "And a table with two cells exchanged, which is refuted (exit code 1):"
	$(BIN)/verifier verify tests/data/cases/derived__dualpipev_W_before_I.csv; test $$? -eq 1

test: $(VENV)/.installed-dev ## all tests and doctests; ARGS="-k word" picks
	$(PYTEST) -n 2 $(ARGS)

test-deep: $(VENV)/.installed-dev ## the same with many more random examples
	HYPOTHESIS_PROFILE=deep $(PYTEST) -n 2 -m "not runtime and not browser" $(ARGS)

test-runtime: $(VENV)/.installed-torch ## schedules executed by torch on this machine
	$(PYTEST) -m runtime $(ARGS)

test-browser: $(VENV)/.installed-browser ## report and served page in Chromium, where it and its driver are installed
	$(PYTEST) -m browser tests/test_browser*.py $(ARGS)

pictures: $(VENV)/.installed-dev ## draw docs/pictures anew
	$(BIN)/python docs/draw.py

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: $(VENV)/.installed-dev
	$(BIN)/mypy

cov: ## tests with branch coverage
	$(MAKE) test ARGS="--cov --cov-report=term $(ARGS)"

bench: $(VENV)/.installed-dev ## ratios, each measured in one run
	$(PYTEST) tests/bench -o python_files='bench_*.py' -p no:cacheprovider -s $(ARGS)

catalogue: $(VENV)/.installed ## search for what generated_schedules lacks; ARGS="--improve" tries open gaps again
	$(BIN)/python -m verifier.catalogue generated_schedules $(ARGS)

clean:
	rm -rf $(VENV) build dist *.egg-info .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; say PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(PIP) --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-torch: pyproject.toml | $(VENV)/bin/python
	$(PIP) $(TORCH)
	$(PIP) --editable '.[dev,torch]'
	@touch $@ $(VENV)/.installed $(VENV)/.installed-dev

$(VENV)/.installed-browser: pyproject.toml | $(VENV)/bin/python
	$(PIP) --editable '.[dev,browser]'
	@touch $@ $(VENV)/.installed $(VENV)/.installed-dev
