# Every target makes what it needs: the first one sets up .venv/ (see docs/install.md), later ones
# find it done. PYTHON names the interpreter, 3.10 to 3.12.

PYTHON ?= python3
VENV_PYTHON := .venv/bin/python
# Two processes of one thread each: more threads slow small tensors down.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
PYTEST := $(ONE_THREAD) $(VENV_PYTHON) -m pytest
JOBS ?= 2

.DEFAULT_GOAL := default
.PHONY: default help setup demo demo-seg demo-detr study study-smoke test nightly bench lint clean

default: setup
	@$(MAKE) --no-print-directory help

help: ## show the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

setup: ## make or update .venv/ (`make` alone does this, too, and so do all other targets)
	@command -v "$(PYTHON)" >/dev/null || { \
	  echo "make needs Python 3.10 to 3.12: no '$(PYTHON)' in PATH." >&2; \
	  echo "  remedy: install it (Debian, Ubuntu: apt-get install python3 python3-venv python3-dev)" >&2; \
	  echo "          or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" tools/bootstrap.py

demo: setup ## pre-train, transfer, train and evaluate a Cascade Mask R-CNN on the embedded data
	$(VENV_PYTHON) tools/demo.py

demo-seg: setup ## the same with UperNet
	$(VENV_PYTHON) tools/demo.py --task segmentation

demo-detr: setup ## train and evaluate DETR with iRPE in its encoder on the embedded data
	$(VENV_PYTHON) tools/demo.py --task detr --work-dir work_dirs/demo_detr

study: setup ## run the embedded sign-flip study, or go on with it: under three hours
	$(VENV_PYTHON) tools/study.py run sign_flip_mini

study-smoke: setup ## every step of a study with tiny schedules
	$(VENV_PYTHON) tools/study.py run smoke

test: setup ## unit tests, then the short trainings
	$(PYTEST) -n $(JOBS) -m "not train and not nightly"
	$(PYTEST) -n $(JOBS) -m "train and not nightly"

nightly: setup ## full-size models on the CPU: long
	$(PYTEST) -n $(JOBS) -m nightly --timeout 10800

bench: setup ## RelPosSwin against other libraries, encodings against none: an hour
	$(VENV_PYTHON) tools/data.py make-mini
	$(ONE_THREAD) $(VENV_PYTHON) tools/benchmark.py --out work_dirs/benchmark.json \
	  --plot work_dirs/benchmark.svg

lint: setup ## style, spelling, types
	$(VENV_PYTHON) -m ruff check .
	$(VENV_PYTHON) -m ruff format --check .
	$(VENV_PYTHON) -m codespell_lib
	$(VENV_PYTHON) -m mypy

clean: ## remove .venv/ and caches; data/, work_dirs/ and the cached mmcv wheel stay
	rm -rf .venv .venv.log build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
