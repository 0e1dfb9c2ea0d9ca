# All commands of the project; CI runs these and nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: install lock dist run bot-api test test-quick test-all test-core test-oldest mutants spec check chaos simulate power-failure bench bench-all celery-suite celery-suite-oldest referee screenshots docs containers

# pip prints either five lines for each of a hundred packages, or nothing for minutes.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
EACH_PACKAGE := awk '/^Collecting/ {print "  " $$2; fflush()} /^Installing/ {print "chatlanes: installing them"; fflush()}'

install: $(VENV)/installed

# The lock pins every version with the hashes of its files and names no registry: pip uses the one that this machine is
# configured for, and refuses a file that is not in the lock.
$(VENV)/installed: pyproject.toml packages/celery-lanes/pyproject.toml packages/chatlanes-sandbox/pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "chatlanes needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	@echo "chatlanes: creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@echo "chatlanes: downloading the $$(grep -c == requirements.lock) packages of requirements.lock into $(VENV); this takes a minute or two, once"
	@$(BIN)/pip install --disable-pip-version-check --progress-bar off --require-hashes -r requirements.lock | $(EACH_PACKAGE)
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable packages/celery-lanes --editable . --editable packages/chatlanes-sandbox
	@touch $@
	@echo "chatlanes: installed. To use its commands in this shell:  . $(VENV)/bin/activate"

# Updates both locks after a change of pyproject.toml, with as few other changes as possible; ARGS="--upgrade" for the
# newest versions of everything. requirements-run.lock has the runtime packages only, without tools and frameworks.
LOCK := pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	$(addprefix --no-emit-package , celery-lanes chatlanes chatlanes-sandbox) pyproject.toml
lock:
	@$(PYTHON) -m venv $(VENV)-lock
	@$(VENV)-lock/bin/pip install --quiet --disable-pip-version-check uv
	$(VENV)-lock/bin/uv $(LOCK) $(ARGS) --extra dev --output-file requirements.lock
	$(VENV)-lock/bin/uv $(LOCK) $(ARGS) --constraint requirements.lock --output-file requirements-run.lock
	@rm -r $(VENV)-lock

# The three distributions, as sources and wheels, in dist/.
dist:
	@$(PYTHON) -m venv $(VENV)-dist
	@$(VENV)-dist/bin/pip install --quiet --disable-pip-version-check uv
	@rm -rf dist
	@for each in packages/celery-lanes . packages/chatlanes-sandbox; do $(VENV)-dist/bin/uv build --quiet --no-sources --out-dir dist $$each || exit; done
	@rm -r $(VENV)-dist
	@ls dist

run: install
	$(BIN)/python -m chatlanes_sandbox

# Otherwise each process that a test starts compiles the sources again.
unexport PYTHONDONTWRITEBYTECODE

# Six processes, because most tests wait for processes; ARGS="-n 0" for one.
PYTEST := -m pytest -n 6 --dist worksteal
# Every promise: each test on one server and one pool, the state machine on all servers.
test: install
	$(BIN)/python $(PYTEST) -m "not exhaustive" $(ARGS)

# The tests that are not slow. Four processes, because some wait, and each spends six seconds on collecting them.
test-quick: install
	$(BIN)/python -m pytest -n 4 --dist worksteal -m "not exhaustive and not slow" $(ARGS)

# Each test on every server, pool and framework that it is for.
test-all: install
	$(BIN)/python $(PYTEST) $(ARGS)

# The tests of the promises with Celery's own pools, request and tracer: order, recovery, retries, terminate, time limits and
# shutdown in each pool. Tests that do not depend on them (Redis scripts, transport, poller, bot, monitoring, deployments, outages
# in handlers, lost state, flood control, sessions, Sentinel, older releases) run in `make test` only.
CORE := tests/lanes/leases tests/lanes/worker $(addprefix tests/pipeline/, test_bot_hooks.py test_crashes.py test_failures.py test_journal.py test_order.py \
	deployment/test_rolling_restart.py deployment/test_stops.py outages/test_stops_without_redis.py)
test-core: install
	FAST=0 $(BIN)/python $(PYTEST) -m "not exhaustive" $(CORE) $(ARGS)

# The tests that depend on the versions of Celery and kombu, on 5.6: order, recovery, shutdown, retries and terminate in all
# pools, and the whole path in order and with crashes.
OLDEST := tests/lanes/transport tests/lanes/worker tests/lanes/test_contract.py tests/lanes/fast/test_replaced.py \
	tests/pipeline/test_order.py tests/pipeline/test_crashes.py
test-oldest: $(VENV)-oldest/installed
	$(VENV)-oldest/bin/python $(PYTEST) -m "not exhaustive" $(OLDEST) $(ARGS)

# Celery and kombu 5.6 before the packages of $(VENV), which it reads from there.
$(VENV)-oldest/installed: $(VENV)/installed requirements-oldest.lock
	@rm -rf $(VENV)-oldest
	@$(BIN)/python -m venv $(VENV)-oldest
	@$(VENV)-oldest/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements-oldest.lock
	@packages() { $$1/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; } && \
		echo "import site; site.addsitedir('$$(packages $(BIN)/..)')" > "$$(packages $(VENV)-oldest)/packages-of-venv.pth"
	@touch $@

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Writes chatlanes/telegram/bot_api.json and results.json of the simulator from the installed aiogram, and prints what it
# adds. For a newer Bot API, install a newer aiogram first (`make lock ARGS="--upgrade-package aiogram"`, `make install`).
bot-api: install
	$(BIN)/python -m tests.telegram.source

# Makes single changes to the code that decides order and leases, and reports which test notices each. Takes ten minutes;
# ARGS="fence renewal" for the changes with these words in their names; ARGS="--conformance" judges those of scripts by
# a simulated run, in minutes.
mutants: install
	$(BIN)/python -m tests.mutants $(ARGS)

# The test suites of Celery and kombu, on stock and with lanes; fails if other tests differ than docs/compatibility.md lists.
# Takes an hour; ARGS="kombu" for one of kombu-unit, kombu and celery.
celery-suite: install
	$(BIN)/python -m tests.suites $(ARGS)

# The same on Celery and kombu 5.6.
celery-suite-oldest: $(VENV)-oldest/installed
	$(VENV)-oldest/bin/python -m tests.suites $(ARGS)

# Checks the specification of the lanes (spec/Core.tla) in every state within small bounds; needs Java.
# ARGS="--faults 2 1 1 1 1" for larger ones.
spec: install
	$(BIN)/python -m spec $(ARGS)

# Simulates many workers, whose scheduler, deaths, lost replies and clock depend on a seed alone; 40,000 steps.
# ARGS="--seed 7 --runs 500" for more, ARGS="--conformance" to compare a run with the specification.
simulate: install
	$(BIN)/python -m chaos.simulation $(ARGS)

# Kills parts of the system for a minute; ARGS="--seconds 3600 --seed 7" for longer.
chaos: install
	$(BIN)/python -m chaos $(ARGS)

# The data that Redis loses in a power failure of its machine; needs strace.
power-failure: install
	$(BIN)/python -m chaos.faults.power_failure $(ARGS)

# The core rows, in less than ten minutes; ARGS="--only peers" for one row.
bench: install
	$(BIN)/python -m bench $(ARGS)

# Every row, at greater sizes; takes hours.
bench-all: install
	$(BIN)/python -m bench --all $(ARGS)

# Ordered processing per key by several systems, under the same load and the same kills (docs/comparison.md). Installs each
# into an environment of its own. Takes less than half an hour; ARGS="--system huey --row '1 key'" for a part, ARGS=--full
# for the published figures.
referee: install
	$(BIN)/python -m bench.ordered $(ARGS)

# The documentation as a site, in .data/site, with every link checked; ARGS=serve shows it while you write. Then fails if
# its figures are older than the code that they measure. Measuring takes hours, so FIGURES="--grace-days 14" in CI.
docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs $(if $(ARGS),$(ARGS),build --strict)
	$(if $(ARGS),,$(BIN)/python -m bench check $(FIGURES))

# The documentation's pictures of the sandbox page, taken from the running page.
screenshots: install
	$(BIN)/python -m docs.screenshots

# docker-compose.yml in real containers, with podman. Needs root and the Debian packages that docs/operations.md names.
# Not part of CI; takes ten minutes the first time.
containers: install
	$(BIN)/python -m containers
