# Everything runs in a virtual environment that the targets set up themselves; `make help` lists them.

PYTHON ?= python3
# Each torch other than the pinned one gets a separate environment: make test TORCH=2.15.0
TORCH ?=
VENV := .venv$(if $(TORCH),-torch-$(TORCH))
BIN := $(VENV)/bin
ARGS ?=
# The number of test processes; with make test ARGS="-n 0 ..." pytest runs the tests itself, for a debugger.
WORKERS ?= 2
# make test COLD=1 runs the tests without the shortcuts of tests/conftest.py.
COLD ?=

FRONT_END := $(shell git ls-files --cached --others --exclude-standard labextension 2>/dev/null)
FRONT_END := $(wildcard $(FRONT_END))

PYTHON_LINTERS := lint-ruff lint-mypy lint-imports
FRONT_END_LINTERS := lint-front-end test-front-end
NODE_MODULES := labextension/node_modules/.package-lock.json
# A different torch may need a different setuptools, so the pins of both are dropped from the constraints.
WITH_TORCH := $(if $(TORCH),torch==$(TORCH),torch)
# pip compiles no bytecode, because Python loads only a small part of the packages, and compiles that part itself. Python may
# write this bytecode even if the environment forbids it; otherwise each test process that loads PyTorch would compile PyTorch
# again, which takes four seconds.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip --disable-pip-version-check install --progress-bar off --no-compile -c $(VENV)/constraints.txt

# Independent targets run in parallel.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j6
endif

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-cuda test-exhaustive releases lab lint docs dist clean browser bytecode $(PYTHON_LINTERS) $(FRONT_END_LINTERS)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/demo.stamp ## run the demo notebook, print its reports, write build/demo.html
	@$(BIN)/python notebooks/run_demo.py build

# The front end is checked while pip downloads the Python packages. The tests run in parallel, so torch gets one thread in each.
test: $(VENV)/dev.stamp $(if $(TORCH),,$(FRONT_END_LINTERS)) ## run linters and tests; TORCH=2.15.0: the tests with that torch; ARGS= for pytest
	@$(MAKE) --no-print-directory browser bytecode $(if $(TORCH),,$(PYTHON_LINTERS))
	@OMP_NUM_THREADS=1 $(if $(COLD),COLD_START=1 )$(BIN)/python -m pytest -n $(WORKERS) -m "not exhaustive" $(ARGS)

test-exhaustive: $(VENV)/dev.stamp ## run all programs with traps and with side effects, of which `make test` runs some
	@$(BIN)/python -m pytest -n $(WORKERS) -m exhaustive $(ARGS)

test-cuda: $(VENV)/dev.stamp ## run the tests that need a CUDA device
	@$(BIN)/python -m pytest tests/cuda $(ARGS)

releases: ## run the tests with every release of torch that README names, and write its table; by hand, resumable
	$(PYTHON) benchmarks/releases.py $(ARGS)

lab: $(VENV)/lab.stamp ## open JupyterLab with the package installed
	$(BIN)/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) $(ARGS)

lint: $(VENV)/dev.stamp $(FRONT_END_LINTERS) ## run the linters, the type checkers and the front end's unit tests
	@$(MAKE) --no-print-directory $(PYTHON_LINTERS)

# Pages run in parallel, so torch gets one thread in each.
docs: $(VENV)/docs.stamp ## execute the notebooks and write the documentation to notebooks/_build/html
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build -E -W --keep-going -j auto -b html notebooks notebooks/_build/html
	@echo notebooks/_build/html/index.html

dist: $(VENV)/dev.stamp ## build sdist and wheel from scratch into dist/
	rm -rf dist jupyter_graphbreak/labextension jupyter_graphbreak/views/html/static
	$(BIN)/python -m build

clean: ## remove everything that was built or installed here
	rm -rf .venv .venv-torch-* build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache notebooks/_build
	rm -rf jupyter_graphbreak/labextension jupyter_graphbreak/views/html/static labextension/lib labextension/node_modules

# --- Steps that run in parallel ----------------------------------------------------------------------------------

lint-ruff:
	$(BIN)/ruff check --quiet
	$(BIN)/ruff format --check --quiet

lint-mypy:
	$(BIN)/mypy --strict --no-error-summary --num-workers 2

# The order of the layers, from pyproject.toml.
lint-imports:
	$(BIN)/lint-imports --no-cache --no-logo 2>/dev/null > $(VENV)/imports.log || { cat $(VENV)/imports.log >&2; exit 1; }

lint-front-end: $(NODE_MODULES)
	npm --prefix labextension --silent run lint:check

test-front-end: $(NODE_MODULES)
	npm --prefix labextension --silent test

browser:
	@$(BIN)/python tests/support/find_browser.py

# Compiles PyTorch and the tests to bytecode once, before several test processes load them at the same time.
bytecode:
	@$(BIN)/python tests/support/warm_processes.py --load $(ARGS)

# --- Environments ------------------------------------------------------------------------------------------------

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version 2>&1). Name another: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# Runs a command with its output in a log, which is shown if the command fails.
logged = { $(2); } > $(1) 2>&1 || { tail -n 30 $(1) >&2; echo "setting up failed; the whole log is $(1)" >&2; exit 1; }

$(VENV)/constraints.txt: constraints.txt | $(BIN)/python
	@$(if $(TORCH),grep -vE '^(torch|setuptools)==',cat) constraints.txt > $@

# torch is the largest package; the other packages are installed meanwhile. torch's hash is not checked, because machines
# install different builds of it.
$(VENV)/torch.stamp: $(VENV)/constraints.txt
	@echo "setting up $(VENV) with $(WITH_TORCH); the first time takes minutes (log: $(VENV)/torch.log)"
	@$(call logged,$(VENV)/torch.log,$(PIP) --no-deps $(WITH_TORCH))
	@touch $@

# Everything else that development and continuous integration need, each file checked against its hash.
$(VENV)/packages.stamp: requirements-dev.txt $(VENV)/constraints.txt
	@awk '/^[a-z]/ {isKept = !($(if $(TORCH),/^setuptools==/,0))} isKept' requirements-dev.txt > $(VENV)/packages.txt
	@$(call logged,$(VENV)/packages.log,$(PIP) --no-deps --require-hashes -r $(VENV)/packages.txt)
	@touch $@

$(NODE_MODULES): labextension/package.json labextension/package-lock.json
	@node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 22 || (a == 22 && b >= 12) || (a == 20 && b >= 19) ? 0 : 1)' 2>/dev/null && command -v npm >/dev/null || { \
	  echo "node 20.19, 22.12 or newer and npm are needed to build the front end; found: node $$(node --version 2>/dev/null || echo none), npm $$(npm --version 2>/dev/null || echo none)" >&2; exit 1; }
	@mkdir -p build
	@$(call logged,build/npm.log,npm --prefix labextension ci --no-audit --no-fund)
	@touch $@

# All packages are installed already, including those that build ours, so pip builds in this environment and adds only the
# packages of this machine's torch. pip does not run npm: its packages come from `npm ci` alone.
$(VENV)/dev.stamp: pyproject.toml $(FRONT_END) $(VENV)/torch.stamp $(VENV)/packages.stamp | $(NODE_MODULES)
	@echo "installing for 'dev' (log: $(VENV)/dev.log)"
	@$(call logged,$(VENV)/dev.log,PATH="$(abspath $(BIN)):$$PATH" npm --prefix labextension run build && \
	  SKIP_JUPYTER_BUILDER=1 $(PIP) --no-build-isolation $(WITH_TORCH) -e '.[dev]')
	@touch $@

# One stamp for each other extra. pip also builds the front end, so the stamp depends on its sources.
$(VENV)/%.stamp: pyproject.toml $(FRONT_END) $(VENV)/torch.stamp | $(NODE_MODULES)
	@echo "installing for '$*' (log: $(VENV)/$*.log)"
	@$(call logged,$(VENV)/$*.log,$(PIP) $(WITH_TORCH) -e '.[$*]')
	@touch $@
