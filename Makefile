# draftmill: `make demo` (the main job, from nothing) and `make test`. `make help` lists the rest.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Other names whenever what is installed must change.
SUM    := $(shell cat pyproject.toml requirements.lock infra/setup.sh | cksum | tr ' ' '-')
READY  := $(VENV)/.ready-$(SUM)
DEV    := $(VENV)/.dev-$(SUM)

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-reasoning test lint types layers unit e2e soak bench templates trainers lock clean

help: ## these lines
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 18

setup: $(DEV) ## .venv with everything pinned (uv where it is on the PATH, else venv and pip)

$(READY):
	@PYTHON="$(PYTHON)" VENV="$(VENV)" sh infra/setup.sh embedded
	@touch $@

$(DEV): $(READY)
	@PYTHON="$(PYTHON)" VENV="$(VENV)" sh infra/setup.sh embedded,dev
	@touch $@

demo: $(READY) ## 48 prompts to a sealed dataset with a real model, no GPU (DEMO_PROMPTS=8 for fewer)
	@BIN="$(BIN)" sh infra/demo.sh

demo-reasoning: setup ## the founding case on the terminal: why ids, and how each corruption is caught
	@$(BIN)/python -m draftmill.serving.founding_case
	@echo "Where to look next: tests/flows/test_founding_case.py, docs/reason-codes.md"

test: lint types layers unit ## lint, types, layers, tests
	@echo "All green. Where to look next: CONTRIBUTING.md, and 'make demo' for the main job."

lint: setup ## ruff
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: setup ## mypy
	@$(BIN)/mypy

layers: setup ## import-linter: flows on tasks on draftmill, Prefect at the door
	@$(BIN)/lint-imports

# The flows mostly wait, all else computes: two of their files beside the rest take half the time. A background job of a
# shell does not hear Ctrl-C, hence the trap.
unit: setup ## pytest: tests/flows beside all the rest
	@log=$$(mktemp); $(BIN)/python -m pytest tests/flows --numprocesses 2 --dist loadfile > $$log 2>&1 & flows=$$!; \
	trap 'kill $$flows; rm -f $$log; exit 130' INT TERM; \
	$(BIN)/python -m pytest --ignore=tests/flows; rest=$$?; \
	echo "and tests/flows:"; wait $$flows; waited=$$?; cat $$log; rm -f $$log; \
	[ $$rest -eq 0 ] && [ $$waited -eq 0 ]

e2e: setup ## real Prefect servers and workers, a browser, PostgreSQL (Debian: chromium, postgresql; else those skip)
	@$(BIN)/python -m pytest tests/e2e --numprocesses 2 --dist loadfile

soak: setup ## 20,000 rows with every fault, every way a run ends, 30 SIGKILLs, 50 interruptions on S3, 600 races: an hour
	@$(BIN)/python -m pytest tests/flows/soak

bench: setup ## draftmill against a plain loop, judging, rendering, planning: half an hour on a quiet machine; benchmarks/README.md
	@$(BIN)/python benchmarks/judging.py
	@$(BIN)/python benchmarks/rendering.py
	@$(BIN)/python benchmarks/planning.py
	@$(BIN)/python benchmarks/compare.py

templates: setup ## what is decided about 786 chat templates (TOKENIZER=folder for another vocabulary)
	@$(BIN)/python -m infra.template_table $(if $(TOKENIZER),--tokenizer $(TOKENIZER)) --out tests/golden/templates.tsv
	@$(BIN)/python -m infra.template_families --out tests/golden/families.txt

trainers: setup ## exports read by SpecForge's and speculators' own code (.trainers: 1.5 GB); docs/trainers.md
	@PYTHON="$(PYTHON)" sh infra/trainers.sh
	@$(BIN)/python -m pytest tests/trainers

lock: ## write requirements.lock anew from pyproject.toml (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --all-extras --no-header --no-annotate pyproject.toml -o requirements.lock

clean: ## remove .venv and the demo's files
	rm -rf $(VENV) demo-dataset .demo
