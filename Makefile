# Each target does its own set-up: all it needs is make and Python 3.11 or newer.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

# What a developer has set for embedctl must not reach the demo or the tests (EMBEDCTL_TEST_* is for them).
$(foreach name,$(filter-out EMBEDCTL_TEST_%,$(filter EMBEDCTL_%,$(.VARIABLES))),$(eval unexport $(name)))

.DEFAULT_GOAL := help
.PHONY: help demo test lint typecheck bench dev clean

help: ## this list
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/make \1|\2/p' Makefile | while IFS='|' read -r target text; do \
		printf '%-16s %s\n' "$$target" "$$text"; done

# --- environment: the stamps make a second call instant ---

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("embedctl needs Python 3.11 or newer, $(PYTHON) is %d.%d: run make PYTHON=python3.11 (or newer)" % v[:2])'
	$(PYTHON) -m venv $(VENV)

define install
	@echo "Installing embedctl and its dependencies into $(VENV); the first time this takes some minutes ..."
	@$(PIP) install -qq -c constraints.txt --upgrade pip
	$(PIP) install -qq -c constraints.txt -e ".[$(1)]"
endef

$(VENV)/.demo-installed: pyproject.toml constraints.txt | $(BIN)/pip
	$(call install,demo)
	@touch $@

$(VENV)/.dev-installed: pyproject.toml constraints.txt | $(BIN)/pip
	$(call install,dev)
	@touch $@ $(VENV)/.demo-installed

dev: $(VENV)/.dev-installed ## the environment for working on embedctl, in .venv
	@echo "Ready: . $(BIN)/activate"

# --- what embedctl does ---

define show
	@printf '\n$$ %s\n' '$(1)'
	@cd .demo && PATH="$(CURDIR)/$(BIN):$$PATH" $(1)
endef

demo: $(VENV)/.demo-installed ## index README and docs with the bundled model, search them, show the status
	@rm -rf .demo/corpus && mkdir -p .demo/corpus && touch .demo/embedctl.toml
	@cp -R README.md docs .demo/corpus && rm -f .demo/corpus/docs/*.py
	$(call show,embedctl index corpus)
	$(call show,embedctl search -k 2 "how do I index with another model")
	$(call show,embedctl search -k 2 "how do I back up and move the index folder")
	$(call show,embedctl search -k 2 "why were deleted files not removed from the index")
	$(call show,embedctl status)
	@printf '\nNow your own documents: $(BIN)/embedctl index PATH, then $(BIN)/embedctl search "WORDS"\n'

bench: $(VENV)/.dev-installed ## the numbers: every comparison in benchmarks/
	@for script in benchmarks/[!_]*.py; do printf '\n$$ python %s\n' "$$script"; $(BIN)/python "$$script" || exit 1; done

# --- checks ---

test: $(VENV)/.dev-installed ## the whole suite; ARGS="-k settings" for a part
	$(BIN)/pytest $(ARGS)

lint: $(VENV)/.dev-installed ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# mypy does not follow the import hook of an editable install, so it reads an installed copy
typecheck: $(VENV)/.dev-installed ## mypy, strict; its paths begin with build/typecheck/
	@rm -rf build
	@$(PIP) install -qq --no-deps --target build/typecheck .
	MYPYPATH=build/typecheck $(BIN)/mypy -p embedctl

clean: ## remove what the targets above made, except .venv
	rm -rf .demo build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
