# `make demo`, `make test` and `make docs` need python3 and make, nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DOCS   := $(VENV)/.installed-docs
SITE   := docs/_build/html

.PHONY: demo cluster-demo test docs lint format clean

demo: $(STAMP)
	$(BIN)/python -m nearfield.demo

cluster-demo: $(STAMP)
	$(BIN)/python -m nearfield.cluster_demo

test: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile

docs: $(DOCS)
	rm -rf docs/_build docs/gallery
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --nitpicky --quiet -b html docs $(SITE)
	$(BIN)/python docs/check_site.py $(SITE)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

$(DOCS): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

clean:
	rm -rf docs/_build docs/gallery $(VENV) .pytest_cache .mypy_cache .ruff_cache build dist
