# make figures   draw the headline comparison into figures/ (no torch, no GPU)
# make lab       open JupyterLab in notebooks/ (with torch and triton where there is an NVIDIA GPU)
# make test      lint, then every test
# make lint      ruff and stripped notebooks only
# make lock      resolve requirements.lock anew
# make gallery   take the README's pictures of panels anew, with the browser tests
# make clean     remove .venv, caches, and figures/ but for the README's gallery
# Each sets up .venv first, and does nothing there when pyproject.toml and the lock are unchanged.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
TEST_EXTRAS := lab,gpu,dev,peers,programs,dask
LAB_STAMP := .venv/.stamp-$(if $(shell command -v nvidia-smi 2>/dev/null),gpu,notebooks)

BIN := .venv/bin
PIP := $(BIN)/pip install -q -c requirements.lock
NOTEBOOKS := $(wildcard notebooks/*.ipynb)
# Tests that need the machine, its GPU or the terminal to themselves; the others run a file a core.
ALONE := tests/browser tests/project/test_sizes.py $(wildcard tests/*/test_on_gpu.py)
BESIDE := -n logical --maxprocesses=8 --dist=loadfile --no-loadscope-reorder

# The tests start hundreds of processes; each would compile kt_lab anew.
unexport PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export UV_CUSTOM_COMPILE_COMMAND := make lock

.NOTPARALLEL:
.PHONY: figures lab test lint lock gallery clean

figures: .venv/.stamp-lab
	$(BIN)/kt-lab figures

lab: $(LAB_STAMP)
	$(BIN)/jupyter lab --ip=localhost --notebook-dir=notebooks

test: .venv/.stamp-test lint
	$(BIN)/pytest -q $(BESIDE) $(addprefix --ignore=,$(ALONE))
	$(BIN)/pytest -q $(ALONE)

lint: .venv/.stamp-lint
	$(BIN)/ruff check -q .
	$(BIN)/ruff format -q --check .
	$(if $(NOTEBOOKS),$(BIN)/nbstripout --verify $(NOTEBOOKS))

lock: .venv/pyvenv.cfg
	$(PIP) uv
	$(BIN)/uv pip compile -q --upgrade pyproject.toml -o requirements.lock

gallery: .venv/.stamp-test
	$(BIN)/pytest -q tests/browser
	$(BIN)/python -m tests.browser.gallery

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache notebooks/figures
	find figures -mindepth 1 -maxdepth 1 ! -name gallery -exec rm -rf {} +
	find . \( -name __pycache__ -o -name .ipynb_checkpoints \) \
	    -prune -exec rm -rf {} +

.venv/pyvenv.cfg:
	@test -n "$(PYTHON)" || { echo "kt_lab needs Python 3.11 or newer, found none;" \
	    "name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "kt_lab needs Python 3.11 or newer, got $$($(PYTHON) --version 2>&1) from" \
	    "$(PYTHON); name another: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv .venv

# A stamp stands for one installed set of extras; a larger set brings the smaller ones' stamps.
.venv/.stamp-lab: pyproject.toml requirements.lock | .venv/pyvenv.cfg
	$(PIP) -e ".[lab]"
	@touch $@

# Notebook 11 asks a cluster of Dask on this machine.
.venv/.stamp-notebooks: pyproject.toml requirements.lock | .venv/pyvenv.cfg
	$(PIP) -e ".[lab,dask]"
	@touch .venv/.stamp-lab $@

.venv/.stamp-gpu: pyproject.toml requirements.lock | .venv/pyvenv.cfg
	$(PIP) -e ".[lab,dask,gpu]"
	@touch .venv/.stamp-lab .venv/.stamp-notebooks $@

.venv/.stamp-test: pyproject.toml requirements.lock | .venv/pyvenv.cfg
	$(PIP) -e ".[$(TEST_EXTRAS)]"
	@touch .venv/.stamp-lab .venv/.stamp-notebooks .venv/.stamp-gpu .venv/.stamp-lint $@

.venv/.stamp-lint: pyproject.toml requirements.lock | .venv/pyvenv.cfg
	$(PIP) ruff nbstripout
	@touch $@
