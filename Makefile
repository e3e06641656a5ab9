# One command each on a fresh machine with Python 3.11 or later.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable
READY := $(VENV)/.ready
READY_TO_DEVELOP := $(VENV)/.ready-to-develop
READY_FOR_DOCS := $(VENV)/.ready-for-docs

.PHONY: demo test quick docs wheel lowest bench reproduce pictures clean

demo: $(READY)
	$(BIN)/nppr assess --out runs/demo --overwrite

test: $(READY_TO_DEVELOP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2 --dist loadfile

# Without the tests that start processes, a browser, Ray, simulations or whole runs: under two minutes on two cores.
quick: $(READY_TO_DEVELOP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2 --dist loadfile -m "not slow"

# The site, into site/: open site/index.html. A broken link or anchor fails.
docs: $(READY_FOR_DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The wheel as others install it: built, checked, and used in an environment that has only its dependencies.
wheel: $(READY_TO_DEVELOP)
	$(BIN)/python benchmarks/try_wheel.py

# The quick tests with the oldest versions that pyproject.toml admits.
lowest: $(READY_TO_DEVELOP)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/lowest_versions.py

bench: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/bench.py

SMALL := $(sort $(basename $(notdir $(wildcard studies/small/digits_*.toml))))

reproduce: $(READY_TO_DEVELOP)
	for name in $(filter-out digits_wall_clock,$(SMALL)); do \
		$(BIN)/nppr study studies/small/$$name.toml --workers 2 --out runs/studies/$$name || exit; \
	done
	$(BIN)/nppr study studies/small/digits_wall_clock.toml --cache runs/clock --out runs/studies/digits_wall_clock
	$(BIN)/python studies/results.py docs/results.md $(addprefix runs/studies/,$(SMALL))

pictures: demo $(READY_TO_DEVELOP)
	$(BIN)/python examples/console_picture.py runs/demo docs/images/console.svg
	$(BIN)/python examples/page_picture.py runs/demo docs/images/page.png
	$(BIN)/python examples/readme_numbers.py runs/demo README.md

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) .
	touch $@

$(READY_TO_DEVELOP): $(READY)
	$(PIP) '.[dev]'
	touch $@

$(READY_FOR_DOCS): $(READY)
	$(PIP) '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) runs site .mypy_cache .ruff_cache .hypothesis
