# One command each on a fresh machine with Python 3.11 or later.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test bench clean

demo: $(READY)
	$(BIN)/nppr assess --out runs/demo

test: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest

bench: $(READY)
	$(BIN)/python benchmarks/measure_overhead.py
	$(BIN)/python benchmarks/measure_memory.py

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) runs .mypy_cache .ruff_cache .hypothesis
