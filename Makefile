# Every target sets up .venv first, from pyproject.toml and constraints.txt.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: compare test claims validate lint benchmark clean

compare: .venv/installed
	$(BIN)/shaped-attention compare

test: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

claims: .venv/installed
	$(BIN)/python -m symbolic claims

validate: .venv/installed
	$(BIN)/python -m pytest -m validation

lint: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mypy

benchmark: .venv/installed
	$(BIN)/python -m benchmarks.speed
	$(BIN)/python -m benchmarks.derivation

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache build dist *.egg-info
	find . -name __pycache__ -prune -exec rm -rf {} +
