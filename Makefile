# make demo and make test set up .venv by themselves on a machine that reaches PyPI.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Tests of numbers, which .ci/run repeats with the kernels of an older CPU.
NUMERIC := isotrain/geometry isotrain/metrics isotrain/transforms isotrain/objectives tests/geometry \
	tests/metrics tests/transforms tests/objectives tests/analysis tests/plugins \
	tests/conf/test_contracts.py \
	$(addprefix tests/training/,test_golden.py monitor/test_site_measures.py test_losses.py test_module.py)

.PHONY: demo test numeric campaign cluster check bench docs venv clean

demo: venv
	$(BIN)/isotrain demo

# Two processes of one thread each: twice as fast on two cores as one of two. Compiled modules are
# kept: tests start hundreds of processes that would compile them again.
PYTEST := env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

test: venv
	$(PYTEST) -m "not campaign and not cluster" --durations 20

numeric: venv
	$(PYTEST) -m "not campaign and not slow" $(NUMERIC)

# The long ones: kill points, launchers, a wheel in an empty environment, commands of the docs.
# Given again, it goes on with what has not passed yet at this state of the code; SAMPLE=10 runs
# ten of them, drawn by the commit.
campaign: venv
	$(PYTEST) -m campaign $(if $(SAMPLE),--sample $(SAMPLE),--go-on)

# A study on two nodes of Slurm, and of Ray, started and ended here. Slurm needs root, slurm-wlm and munge.
cluster: venv
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m cluster tests/cluster --durations 20

check: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST) -m "not campaign and not cluster and not slow"

bench: venv
	@test -n "$$ISOTRAIN_DATA_DIR" || { echo "benchmarks read real data; export ISOTRAIN_DATA_DIR=<its folder>"; exit 1; }
	$(BIN)/python benchmarks/bench_training.py
	$(BIN)/python benchmarks/bench_metrics.py
	$(BIN)/python benchmarks/bench_transforms.py
	$(BIN)/python benchmarks/bench_monitor.py
	$(BIN)/python benchmarks/bench_collect.py
	$(BIN)/python benchmarks/bench_encode.py
	$(BIN)/python benchmarks/bench_run.py

docs: venv
	$(BIN)/mkdocs build --strict

venv: $(VENV)/installed

# The stamp is written last: an interrupted installation starts again.
$(VENV)/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "isotrain needs Python 3.11 or newer; run: make $(MAKECMDGOALS) PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[demo,dev,docs]'
	touch $@

clean:
	rm -rf $(VENV) $(RAY) build dist site *.egg-info
