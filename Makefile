SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SEED ?= 1
JSON ?=
PYTEST_ARGS ?=
# The tests start this code in hundreds of processes; where this is set, each would compile all of it.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help install demo demo-vllm demo-cluster test test-unit test-engine check format docs cluster-tools bench-signals bench-controller clean

help: ## Show this help
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

$(VENV)/.product: pyproject.toml constraints.txt scripts/bootstrap.sh
	@PYTHON="$(PYTHON)" scripts/bootstrap.sh $(VENV) && touch $@

$(VENV)/.installed: pyproject.toml constraints.txt scripts/bootstrap.sh
	@PYTHON="$(PYTHON)" scripts/bootstrap.sh $(VENV) dev && touch $@ $(VENV)/.product

install: $(VENV)/.installed ## Set up .venv with everything pinned, the tests' tools too

demo: $(VENV)/.product ## The main job, live, on this machine: no cluster, no GPU (SEED=7, JSON=path)
	@$(BIN)/specpilot demo --seed $(SEED) $(if $(JSON),--json $(JSON))

demo-vllm: $(VENV)/.product ## The main job on two real vLLM servers on CPU (installs vLLM: 6 GB of disk)
	@$(BIN)/python scripts/engine/install.py
	@$(BIN)/specpilot demo-vllm --engine "$$($(BIN)/python scripts/engine/install.py --path)"

demo-cluster: install cluster-tools ## The main job on a real Kubernetes control plane, with helm and kubectl
	@$(BIN)/python -m tests.cluster.demo

cluster-tools: install ## Build the real control plane, Prometheus and Helm (some 20 minutes on 2 cores, once)
	@$(BIN)/python -m tests.cluster.build

check: install ## Format, lint, types, layers
	@$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy && $(BIN)/lint-imports && $(BIN)/python scripts/reference.py --check

format: install ## Format and sort imports
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

docs: install ## Regenerate docs/reference from the code
	@$(BIN)/python scripts/reference.py

# Four workers keep two cores busy: a test with a cluster waits for half of its time.
test: check cluster-tools ## Everything: unit, integration and cluster tests
	@$(BIN)/pytest -m "not engine" -n 4 --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

test-unit: install ## The quick ones
	@$(BIN)/pytest tests/unit $(PYTEST_ARGS)

test-engine: install ## The simulator's contract against the real vLLM, and one real flip
	@$(BIN)/python scripts/engine/install.py
	@$(BIN)/pytest -m engine $(PYTEST_ARGS)

bench-signals: install cluster-tools ## Cost of measuring 20,000 pods under 5,000 policies (JSON=path)
	@$(BIN)/python -m bench.signals $(if $(JSON),--json $(JSON))

bench-controller: install cluster-tools ## Cost of steering 50 to 5,000 policies on a real API server (JSON=path)
	@$(BIN)/python -m bench.controller $(if $(JSON),--json $(JSON))

clean: ## Remove what was made in the checkout (not the caches outside it)
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
