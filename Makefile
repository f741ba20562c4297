# demo       set up the light distribution, translate with a released checkpoint, and show what was left out
# demo-training  set everything up, and train a plain and a capsule model in minutes
# test       set everything up, and run the quick suite
# test-all   the rest: the wheels with the newest of all, what takes longer, older processors, the lowest versions
# docs       build the site into build/site, and check its links
# check      lint, format, types, names that say something, and whether the installed versions fit each other
# clean      remove the virtual environments, build, dist and the caches of the tools
#
# On a machine with only Python, make and git. PYTHON=python3.12 make test picks another Python.

PYTHON ?= python3
VENV := .venv
LIGHT_VENV := .venv-light
FLOOR_VENV := .venv-floor
# bundles the page without a server; where npm is missing, or cannot install it, its tests are skipped
ESBUILD := web/node_modules/.package-lock.json
# Each process starts with half of the tests, which share fixtures; the first to finish takes tests of the other.
PYTEST := -m pytest -q -n $(or $(TEST_PROCESSES),2) --dist worksteal
QUICK := $(PYTEST) -m "not slow and not gpu"
export TOKENIZERS_PARALLELISM := false
# a hundred tests start an interpreter, which compiles the package if it finds no bytecode
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo demo-training test test-all docs check clean

demo: $(LIGHT_VENV)/ready
	$(LIGHT_VENV)/bin/python examples/left_out.py

demo-training: $(VENV)/ready
	$(VENV)/bin/capsule-mt quickstart

test: $(VENV)/ready $(ESBUILD)
	$(VENV)/bin/python -m capsule_mt.engine.build --if-changed
	$(VENV)/bin/python $(QUICK)

test-all: $(VENV)/ready $(ESBUILD)
	@echo "== the wheels, with the newest of all"
	tests/dist.sh $(PYTHON)
	@echo "== what takes longer"
	$(VENV)/bin/python -m capsule_mt.engine.build --if-changed
	$(VENV)/bin/python $(PYTEST) --durations 20 -m "slow and not gpu"
	@echo "== an accelerator's way through the models, on the CPU"
	$(VENV)/bin/python $(PYTEST) tests/gpu --tiny
	@echo "== an older processor"
	tests/processors.sh --first $(VENV)/bin/python $(QUICK) tests/golden tests/decoding
	@echo "== the lowest versions"
	$(MAKE) $(FLOOR_VENV)/ready
	$(FLOOR_VENV)/bin/python $(QUICK) tests/configuration tests/routing tests/modeling

docs: $(VENV)/ready
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build

check: $(VENV)/ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/python tools/names.py
	$(VENV)/bin/python -m pip check

clean:
	rm -rf $(VENV) $(LIGHT_VENV) $(FLOOR_VENV) web/node_modules build dist .pytest_cache .ruff_cache .mypy_cache

$(ESBUILD): web/package-lock.json
	-npm ci --ignore-scripts --no-audit --no-fund --prefix web && touch $@

# A virtual environment for each: what it installs, and the versions that it keeps to.
$(LIGHT_VENV)/ready: INSTALL := --constraint constraints.txt ./capsule_mt
$(LIGHT_VENV)/ready: constraints.txt
$(VENV)/ready: INSTALL := --constraint constraints.txt --editable "./capsule_mt[serve,auto]" \
	--editable ".[all]" --group test --group formats --group dev --group docs
$(VENV)/ready: constraints.txt
$(FLOOR_VENV)/ready: INSTALL := --constraint constraints-floor.txt --editable "./capsule_mt[serve,auto]" \
	--editable ".[train,eval,analysis]" --group test
$(FLOOR_VENV)/ready: constraints-floor.txt

%/ready: pyproject.toml capsule_mt/pyproject.toml
	$(PYTHON) -m venv $*
	$*/bin/python -m pip install --quiet --upgrade pip
	$*/bin/python -m pip install --quiet $(INSTALL)
	touch $@
