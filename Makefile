# demo       set everything up, train a plain and a capsule model for some minutes, translate
# test       set everything up, run the tests on the newest transformers, then the model tests with the arithmetic of an
#            older processor, most of them on the lowest transformers
# test-slow  the tests that take longer, too
# test-processors  the model tests with the arithmetic of several processors
# test-newest  install the wheel without constraints, and run a quick set of tests on the newest of all
# test-dist  build the wheel and the source distribution, and test them in an empty environment
# docs       build the site into build/site, and check its links
# check      lint, format, types, and whether the installed versions fit each other
# clean      remove what these made
#
# On a machine with only Python, make and git. PYTHON=python3.12 make test picks another Python.

PYTHON ?= python3
VENV := .venv
FLOOR_VENV := .venv-floor
MODEL_TESTS := tests/golden tests/routing tests/modeling tests/pipelines
PYTEST := -m pytest -q -n $(or $(TEST_PROCESSES),2)
export TOKENIZERS_PARALLELISM := false

.PHONY: demo test test-slow test-processors test-newest test-dist docs check clean

demo: $(VENV)/ready
	$(VENV)/bin/capsule-mt quickstart

test: $(VENV)/ready $(FLOOR_VENV)/ready
	$(VENV)/bin/python $(PYTEST) -m "not slow and not gpu"
	tests/processors.sh --first $(VENV)/bin/python $(PYTEST) -m "not slow and not gpu" tests/golden tests/pipelines
	tests/processors.sh --first $(FLOOR_VENV)/bin/python $(PYTEST) -m "not slow and not gpu" \
		tests/configuration tests/routing tests/modeling tests/system

test-processors: $(VENV)/ready
	tests/processors.sh $(VENV)/bin/python $(PYTEST) -m "not slow and not gpu" $(MODEL_TESTS)

test-slow: $(VENV)/ready
	$(VENV)/bin/python $(PYTEST) -m slow

test-newest:
	tests/newest.sh $(PYTHON)

test-dist:
	tests/dist.sh $(PYTHON)

docs: $(VENV)/ready
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build

check: $(VENV)/ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/python -m pip check

clean:
	rm -rf $(VENV) $(FLOOR_VENV) build dist .pytest_cache .ruff_cache .mypy_cache

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --upgrade pip
	$(VENV)/bin/python -m pip install --quiet --constraint constraints.txt --editable ".[train,eval,analysis,serve,test,dev,docs]"
	touch $@

$(FLOOR_VENV)/ready: pyproject.toml constraints-floor.txt
	$(PYTHON) -m venv $(FLOOR_VENV)
	$(FLOOR_VENV)/bin/python -m pip install --quiet --upgrade pip
	$(FLOOR_VENV)/bin/python -m pip install --quiet --constraint constraints-floor.txt --editable ".[train,eval,analysis,test]"
	touch $@
