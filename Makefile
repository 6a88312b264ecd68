# make demo     builds .venv and releases a synthetic country
# make test     runs the tests that answer in ten minutes
# make test-all runs them and the thorough ones: browsers, containers, databases, long statistics; takes half an hour
# make crash    kills a release before and after each of its durable steps, and begins twenty at once; takes about twenty minutes
# make cluster  runs releases on clusters of this machine, whose workers are killed, stopped and cut off; takes about twenty minutes
# make audit    audits the privacy claim as a black box, with thousands of releases; takes about an hour
# make mutants  puts faults into a copy of the code, one at a time, and runs the test that must notice each; takes about five minutes
# make check    checks format, lint, types and import rules
# make reference  makes docs/reference from the code
# make bench    runs every benchmark and writes benchmarks/*.md; takes about forty minutes; set TRELLIS_DATA to the folder that contains lodes_ri_2019/
# make site     builds docs/ as a site in build/site; needs no network once .venv exists, and a server only for its search

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-all crash cluster audit mutants check format reference bench clean

.venv/.built: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Trellis needs Python 3.11 or newer: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m compileall -q flows tasks storage trellis.py
	@touch $@

demo: .venv/.built
	$(BIN)/python -m flows.demo

test: .venv/.built
	$(BIN)/python -m pytest

test-all: .venv/.built
	$(BIN)/python -m pytest -m "not audit and not crash and not cluster"

crash: .venv/.built
	$(BIN)/python -m pytest tests/crash tests/end_to_end/server/test_many_runs.py tests/end_to_end/server/test_deployments.py -m "crash or not crash"
	$(BIN)/python -m pytest tests/cluster -n 0 -m "crash"

cluster: .venv/.built
	$(BIN)/python -m pytest tests/cluster tests/end_to_end/storage/test_mailbox.py -n 0 -m "cluster or not cluster"

audit: .venv/.built
	$(BIN)/python -m pytest -m audit

mutants: .venv/.built
	$(BIN)/python -m tests.support.mutants

check: .venv/.built
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/oxlint --deny-warnings tasks/pages/explorer/assets

format: .venv/.built
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

reference: .venv/.built
	$(BIN)/python docs/generate.py

bench: .venv/.built
	$(BIN)/python benchmarks/rhode_island.py
	$(BIN)/python benchmarks/large_plan.py
	$(BIN)/python benchmarks/accountants.py
	$(BIN)/python benchmarks/intopt.py
	$(BIN)/python benchmarks/sampler.py
	$(BIN)/python benchmarks/peers.py
	$(BIN)/python benchmarks/synthetic.py
	$(BIN)/python benchmarks/paper.py
	$(BIN)/python benchmarks/paper.py --page
	$(BIN)/python benchmarks/coverage.py
	$(BIN)/python benchmarks/nation.py
	$(BIN)/python benchmarks/cores.py
	$(BIN)/python benchmarks/cluster.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/desk.py
	$(BIN)/python benchmarks/report.py

.PHONY: site
site: .venv/.built
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open build/site/index.html in a browser. Its search needs a server: $(BIN)/python -m http.server --directory build/site"

clean:
	rm -rf .venv .demo build *.egg-info
