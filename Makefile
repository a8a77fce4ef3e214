# Every target sets up .venv first, from pyproject.toml and constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
# Of the figures and the notebooks: "full" takes an hour, "small" minutes.
SIZE ?= full

# The processes that tests start need not compile what others have compiled.
unexport PYTHONDONTWRITEBYTECODE

FIGURES := $(wildcard figures/*.py)

# Of the mutants: at work at the same time.
WORKERS ?= 2

.PHONY: compare test quick test-all check-style portability claims validate mutants lint benchmark figures notebooks outputs pages docs clean $(FIGURES)

compare: .venv/installed
	$(BIN)/shaped-attention compare --overwrite

# What notices the planted errors, and one test of every public function and command.
quick: .venv/installed
	$(BIN)/python -m pytest -m quick --numprocesses auto --dist worksteal tests

test: check-style quick

# All tests and docstring examples but the slow validations.
test-all: check-style
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal

check-style: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Bits, zeros by structure and agreement of executors, as several processors would compute them.
portability: .venv/installed
	$(BIN)/python -m tests.portability

claims: .venv/installed
	$(BIN)/python -m symbolic claims

validate: .venv/installed
	$(BIN)/python -m pytest -m validation --numprocesses auto --dist worksteal tests

mutants: .venv/installed
	$(BIN)/python -m tests.mutants --workers $(WORKERS)

lint: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mypy

benchmark: .venv/installed
	$(BIN)/python -m benchmarks.speed
	$(BIN)/python -m benchmarks.regression
	$(BIN)/python -m benchmarks.examples
	$(BIN)/python -m benchmarks.large
	$(BIN)/python -m benchmarks.models
	$(BIN)/python -m benchmarks.widths
	$(BIN)/python -m benchmarks.derivation
	$(BIN)/python -m benchmarks.sphere

# The committed figures again; small ones, which only show that all scripts run, go elsewhere.
figures: $(FIGURES)

$(FIGURES): .venv/installed
	@mkdir -p build/figures
	$(if $(filter small,$(SIZE)),SMALL=1 FIGURES=build/figures )$(BIN)/python $@

# From the Markdown in notebooks/, run in build/notebooks.
notebooks: .venv/installed
	rm -rf build/notebooks
	mkdir -p build/notebooks
	cp notebooks/*.md notebooks/*.toml build/notebooks
	$(BIN)/jupytext --quiet --to ipynb build/notebooks/*.md
	rm build/notebooks/*.md
	SHAPED_ATTENTION_SIZE=$(SIZE) $(BIN)/python -m pytest -o addopts= -o filterwarnings= -q \
	  -p no:cacheprovider --numprocesses 2 --nbmake --overwrite --nbmake-timeout=1800 build/notebooks

# The notebooks with outputs in notebooks/, of small runs.
outputs:
	$(MAKE) notebooks SIZE=small
	$(BIN)/python docs/_outputs.py

# What pages of the documentation need and git does not hold.
pages: .venv/installed
	PYTHONPATH=. $(BIN)/python docs/_pages.py

# With the notebooks of the last run, if there was one.
docs: .venv/installed
	$(BIN)/sphinx-build -W --keep-going -q -b html docs build/docs

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,docs]'
	touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache build dist docs/_generated *.egg-info
	find . -name __pycache__ -prune -exec rm -rf {} +
