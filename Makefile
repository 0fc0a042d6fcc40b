# Two commands for a newcomer: `make demo` and `make test`. Both work from a fresh clone with Python 3.11 or newer.
NEW_ENOUGH = 'import sys; sys.exit(sys.version_info < (3, 11))'
PYTHON ?= $(shell for python in python3 python3.12 python3.11 python3.13; do \
  $$python -c $(NEW_ENOUGH) 2>/dev/null && { command -v $$python; break; }; done)
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo check test test-quick test-long mutants pictures lint format size clean

demo: $(VENV)/.runtime
	$(BIN)/python examples/demo.py

check: lint test-quick
	$(BIN)/python -m benchmarks.commands
	$(BIN)/python scripts/size.py

test: $(VENV)/.dev
	$(BIN)/python -m tests.imports
	$(BIN)/python -m tests.parts $(if $(CI),--in-turn)

test-quick: $(VENV)/.dev
	$(BIN)/python -m tests.imports
	$(BIN)/python -m pytest -m "not ray and not browser and not long" -n auto --dist worksteal

test-long: $(VENV)/.dev
	$(BIN)/python -m pytest -m long
	$(BIN)/python -m pytest -m "(hypothesis or property) and not ray" --hypothesis-profile=long -n auto --dist worksteal -o timeout=3600

mutants: $(VENV)/.dev
	$(BIN)/python -m tests.mutants

# The pictures of docs/console/, of pages as they are now, and of the demo's run as it was.
pictures: $(VENV)/.dev demo
	$(BIN)/python -m pytest tests/console/test_stranger.py --pictures docs/console
	$(BIN)/python -m tests.console.demo_picture docs/console

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

size: $(VENV)/.runtime
	$(BIN)/python scripts/size.py

$(VENV)/bin/python:
	@test -n "$(PYTHON)" && $(PYTHON) -c $(NEW_ENOUGH) \
	  || { echo "OwlClaw needs Python 3.11 or newer; name one with: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: $(VENV)/bin/python pyproject.toml
	@echo "installing OwlClaw into $(VENV) (1.5 GB; the first time it takes a few minutes) ..."
	$(BIN)/python -m pip install --disable-pip-version-check --editable '.[local-embeddings]' \
	  || { echo "without the local embedder: memories are found by their words only"; \
	    $(BIN)/python -m pip install --disable-pip-version-check --editable .; }
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml
	@echo "installing OwlClaw and its development tools into $(VENV) (1.5 GB; the first time it takes a few minutes) ..."
	$(BIN)/python -m pip install --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(VENV)/.runtime

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
