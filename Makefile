# Every target creates .venv and installs what it needs; nothing has to be set up by hand.

PYTHON      ?= python3
VENV        := .venv
BIN         := $(VENV)/bin
PYTEST_ARGS ?=

# -qq keeps pip to errors. The constraints hold for packages that are built from source, too.
PIP_INSTALL := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
               $(BIN)/python -m pip install -qq --no-input

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow torture lint format docs zeroshot clean

help:
	@echo "make demo       forecast daily flights from New York and write a report to aru-demo/"
	@echo "make test       run the fast tests"
	@echo "make test-slow  run the slow tests"
	@echo "make torture    attack it for a quarter of an hour, and write docs/torture.md"
	@echo "make lint       check style, types and the direction of imports"
	@echo "make format     rewrite the code in the project's style"
	@echo "make docs       build the documentation into build/site; warnings are errors"
	@echo "make zeroshot   measure the pretrained weights and rewrite docs/pretrained.md; needs ARU_DATA"
	@echo "make clean      remove everything that make created, .venv included"
	@echo
	@echo "PYTHON=python3.12 chooses the interpreter, PYTEST_ARGS='-k cell' the tests."

demo: $(VENV)/.demo
	@echo "==> Running the demo"
	@$(BIN)/aru demo

test: $(VENV)/.dev
	@echo "==> Running the fast tests on two processes"
	@$(BIN)/python -m pytest -m "not slow" -n 2 --dist loadscope -rs $(PYTEST_ARGS)

# pytest exits with 5 when no test is selected.
test-slow: $(VENV)/.dev
	@echo "==> Running the slow tests"
	@$(BIN)/python -m pytest -m slow -rs $(PYTEST_ARGS) || \
	    { code=$$?; [ $$code -eq 5 ] && echo "==> There are no slow tests" || exit $$code; }

torture: $(VENV)/.dev
	@echo "==> Attacking"
	@$(BIN)/python -m tests.torture

lint: $(VENV)/.dev
	@echo "==> Checking style"
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@echo "==> Checking types"
	@$(BIN)/mypy
	@echo "==> Checking the direction of imports"
	@$(BIN)/lint-imports --no-logo

format: $(VENV)/.dev
	@echo "==> Formatting"
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

docs: $(VENV)/.docs
	@echo "==> Building the documentation"
	@test -x $(BIN)/zensical || { echo "The documentation needs Python 3.11 or newer." >&2; exit 1; }
	@$(BIN)/zensical build --strict --clean
	@echo "==> Open build/site/index.html"

# Rows of weights that have not changed are kept. AutoETS: python -m benchmarks.peers setup auto-ets.
zeroshot: $(VENV)/.dev
	@echo "==> Measuring the pretrained weights"
	@$(BIN)/python -m experiments zeroshot
	@$(BIN)/python -m benchmarks.pretrained
	@$(BIN)/python -m benchmarks.report
	@$(BIN)/python -m experiments.report

clean:
	@echo "==> Removing .venv, caches, builds and demo output"
	@rm -rf $(VENV) build dist aru-demo lightning_logs \
	    .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.created:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 10))" 2>/dev/null || \
	    { echo "aru needs Python 3.10 or newer as '$(PYTHON)'. Name another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c "import ensurepip, venv" 2>/dev/null || \
	    { echo "'$(PYTHON)' comes without venv. Install it (on Debian and Ubuntu: the package python3-venv)." >&2; exit 1; }
	@echo "==> Creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/.demo: $(VENV)/.created pyproject.toml constraints.txt
	@echo "==> Installing aru and what the demo needs (a few minutes the first time)"
	@$(PIP_INSTALL) -e ".[demo]"
	@touch $@

$(VENV)/.dev: $(VENV)/.created pyproject.toml constraints.txt
	@echo "==> Installing aru and what demo, service, PostgreSQL, Spark, tests and checks need (a few minutes the first time)"
	@$(PIP_INSTALL) -e ".[demo,serve,postgres,spark,dev]"
	@touch $(VENV)/.demo $@

$(VENV)/.docs: $(VENV)/.created pyproject.toml constraints.txt
	@echo "==> Installing aru and what the documentation needs"
	@$(PIP_INSTALL) -e ".[docs]"
	@touch $@
