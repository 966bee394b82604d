# Every target installs what it needs; `make` alone lists the targets.
PY := .venv/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
# Packages are installed without compiled modules: Python must be able to store what it compiles at the first import,
# or each of the many processes that tests start compiles everything again.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help setup demo test check fast coverage matrix wheel bench soak docs site clean

help: ## List the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 10

# What a user needs: the package, PySpark, a JDK and the compiled bridge.
.venv/.runtime: pyproject.toml constraints.txt scripts/setup.sh $(wildcard bridge/src/*.scala bridge/compat/*/*.scala)
	@scripts/setup.sh runtime
	@touch $@

# What a developer needs besides: test tools, test servers, a browser.
.venv/.ready: .venv/.runtime
	@scripts/setup.sh development
	@touch $@

setup: .venv/.ready ## Install everything that tests and checks need

demo: .venv/.runtime ## Write a table with Spark and search it
	@$(PY) scripts/demo.py

check: .venv/.ready ## Check format, lint, types, layers, generated pages and the site
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	.venv/bin/lint-imports
	$(PY) scripts/options_page.py --check
	$(PY) scripts/benchmarks_page.py --check
	$(PY) scripts/build_site.py

test: check ## Run all checks and tests that need nothing from Maven
	$(PY) -m pytest -n 3 --dist loadfile

fast: .venv/.ready ## Run the tests that start no server and no JVM
	$(PY) -m pytest -m "not soak and not server and not spark"

matrix: .venv/.ready ## Run Spark tests on the other versions of Spark, with Delta, Iceberg and HDFS from Maven
	$(PY) scripts/matrix.py

wheel: .venv/.ready ## Build a wheel with the bridges for all versions of Spark into dist
	$(PY) scripts/build_bridge.py --all
	$(PY) -m build --wheel --no-isolation

coverage: .venv/.ready ## Run the tests, or TESTS=..., and report the lines that they cover
	@mkdir -p build/coverage
	$(PY) -m coverage erase
	$(PY) -m coverage run -m pytest $(TESTS)
	$(PY) -m coverage combine --quiet
	$(PY) -m coverage report

.venv/.peers: .venv/.ready
	@$(PIP) -e '.[bench]'
	@touch $@

# `make bench tpch log`: parts after the goal are no goals of their own.
ifeq (bench,$(firstword $(MAKECMDGOALS)))
PARTS := $(wordlist 2,$(words $(MAKECMDGOALS)),$(MAKECMDGOALS))
ifneq (,$(PARTS))
.PHONY: $(PARTS)
$(PARTS):
	@:
endif
endif

bench: .venv/.peers ## Measure; print figures, targets and ratios (make bench tpch: one part)
	$(PY) -m bench $(PARTS)

.venv/.soak: .venv/.ready
	@$(PIP) -e '.[soak]'
	@touch $@

soak: .venv/.soak ## Run the long tests
	$(PY) -m pytest -m soak

docs: .venv/.ready ## Write the generated pages and tables
	$(PY) scripts/options_page.py
	$(PY) scripts/benchmarks_page.py

site: .venv/.ready ## Build the documentation site into build/site
	$(PY) scripts/build_site.py

clean: ## Delete the environment and everything built
	rm -rf .venv .matrix .servers dist build
