# Every target sets up what it needs; `make` alone says what there is.
PY := .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help setup demo test check fast bench soak docs clean

help: ## What can be asked for
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 10

setup: .venv/.ready ## Virtual environment, packages, test servers, JDK, the bridge to Spark
.venv/.ready: pyproject.toml constraints.txt scripts/setup.sh $(wildcard bridge/src/*.scala)
	@scripts/setup.sh
	@touch $@

demo: .venv/.ready ## The main job, told on a terminal
	@$(PY) scripts/demo.py

check: .venv/.ready ## Format, lint, types, layers, generated pages
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	.venv/bin/lint-imports
	$(PY) scripts/options_page.py --check

test: check ## Everything CI runs
	$(PY) -m pytest -n 2 --dist loadgroup

fast: .venv/.ready ## The tests that start no server and no JVM
	$(PY) -m pytest -m "not soak and not server and not spark"

.venv/.peers: .venv/.ready
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	@touch $@

bench: .venv/.peers ## Measure; prints figures, targets and ratios
	$(PY) -m bench

.venv/.soak: .venv/.ready
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[soak]'
	@touch $@

soak: .venv/.soak ## The long runs
	$(PY) -m pytest -m soak

docs: .venv/.ready ## Write the generated pages
	$(PY) scripts/options_page.py

clean: ## Forget the environment
	rm -rf .venv .servers dist build
