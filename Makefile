# One command each on a fresh machine with Python 3.11 or later.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable
READY := $(VENV)/.ready
READY_TO_DEVELOP := $(VENV)/.ready-to-develop

.PHONY: demo test bench clean

demo: $(READY)
	$(BIN)/nppr assess --out runs/demo --overwrite

test: $(READY_TO_DEVELOP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2 --dist loadfile

bench: $(READY)
	$(BIN)/python benchmarks/measure_overhead.py
	$(BIN)/python benchmarks/measure_memory.py
	$(BIN)/python benchmarks/fit_speed.py

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) .
	touch $@

$(READY_TO_DEVELOP): $(READY)
	$(PIP) '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) runs .mypy_cache .ruff_cache .hypothesis
