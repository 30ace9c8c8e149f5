# make demo and make test set up .venv by themselves on a machine that reaches PyPI.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check bench venv clean

demo: venv
	$(BIN)/isotrain demo

test: venv
	$(BIN)/python -m pytest

check: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -m "not slow"

bench: venv
	$(BIN)/python benchmarks/bench_training.py
	$(BIN)/python benchmarks/bench_step.py
	$(BIN)/python benchmarks/bench_metrics.py
	$(BIN)/python benchmarks/demo_source.py

venv: $(VENV)/installed

# The stamp is written last: an interrupted installation starts again.
$(VENV)/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "isotrain needs Python 3.11 or newer; run: make $(MAKECMDGOALS) PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[demo,dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
