# make bench       set up a bare clone and make a first table
# make test        run all checks, from format to workflow, on a core of the pairs of components
# make test-fast   run the checks and the tests that take less than ten seconds each
# make test-all    run the same checks on all pairs
# make test-pairs  test only pairs outside the core: PAIRS=3/10 is the third of ten parts
# make setup       create only the environment

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORES ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)
INSTALLED := $(VENV)/.installed

# One torch thread per process, because parallel jobs already use all cores.
export OMP_NUM_THREADS ?= 1

.PHONY: setup bench test test-fast test-all test-pairs test-slurm format check clean

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml envs/constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fglbench needs Python 3.11 or newer; set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint envs/constraints.txt --editable '.[dev,slurm]'
	touch $@

# The workflow prints its tables if it ran any job. If there was nothing to run, this target prints them.
bench: setup
	@before=$$(mktemp) && \
	$(BIN)/snakemake --cores $(CORES) --quiet rules && \
	{ test results/studies/grid/study.json -nt $$before || $(BIN)/fglbench compare grid; }; \
	status=$$?; rm -f $$before; exit $$status

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint
	$(BIN)/mypy

test: check
	$(BIN)/pytest -n 2

test-fast: check
	$(BIN)/pytest -n 2 -m 'not slow'

test-all: check
	$(BIN)/pytest -n 2 --pairs all

PAIRS ?= 1/1
test-pairs: setup
	$(BIN)/pytest -n 2 --pairs $(PAIRS)

# Start a Slurm on this machine and test the profile with it. Needs root and Debian's slurm-wlm and munge.
test-slurm: setup
	FGLBENCH_TEST_SLURM=1 $(BIN)/pytest tests/slurm -rs

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/snakefmt Snakefile workflow

clean:
	rm -rf $(VENV) .snakemake .pytest_cache .ruff_cache .mypy_cache
