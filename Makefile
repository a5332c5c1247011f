# Two commands on a fresh machine: `make audit` and `make test`. Both make their own virtual environments.

PYTHON ?= python3
RUN    := .venv/bin
DEV    := .venv-dev/bin

# Some machines set it: plugins and sysperf would be compiled anew by each worker.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: audit test test-machines test-programs clinic fuzz lint docs generated bench clean

audit: .venv/.ready
	$(RUN)/sysperf audit --fail-on never
	@echo; echo "It is $(RUN)/sysperf; to type sysperf alone, and keep your own python: export PATH=\"\$$PATH:$(CURDIR)/$(RUN)\""

# Three workers a core, since many tests wait for the programs that they start: at least 4, at most 16.
WORKERS ?= $(shell cores=$$(env -u OMP_NUM_THREADS nproc); echo $$((cores < 2 ? 4 : cores > 5 ? 16 : 3 * cores)))

# Neighbours stay together (worksteal), so that what a file's tests share is made by one worker.
test: .venv-dev/.ready
	$(DEV)/pytest -n $(WORKERS) --dist worksteal $(TESTS)

# Boots machines with several memory nodes in QEMU, and a real systemd in a container; tries every point of what is sampled otherwise.
test-machines: .venv-dev/.ready
	$(DEV)/pytest -n 2 --dist loadfile -m "numa or systemd or slow" $(TESTS)

# Starts sick programs and their healthy twins, one at a time, and prints what was said of each: twenty minutes on an idle machine.
test-programs: .venv-dev/.ready
	$(DEV)/pytest -n 0 -m programs tests/rules

# Diagnoses sick programs, their cured twins and healthy ones that look suspicious; prints precision, recall and gains: half an hour, idle machine.
clinic: .venv-dev/.ready
	$(DEV)/pytest -q -n 0 --timeout 0 -m clinic tests/clinic $(TESTS)

# Hostile input for long: fuzzers are tests marked `fuzz` (tests/fuzzing.py), of which every test run takes 25 fixed examples.
EXAMPLES ?= 5000
fuzz: .venv-dev/.ready
	SYSPERF_FUZZ_EXAMPLES=$(EXAMPLES) $(DEV)/pytest -n 2 --timeout 0 -m fuzz $(TESTS)

lint: .venv-dev/.ready
	$(DEV)/ruff check sysperf plugins tests benchmarks .ci
	$(DEV)/ruff format --check sysperf plugins tests benchmarks .ci
	$(DEV)/mypy
	$(DEV)/lint-imports
	$(DEV)/python .ci/prose.py

# All pages as a site in dist/site; a link that leads nowhere ends it.
docs: .venv-dev/.ready
	$(DEV)/mkdocs build --config-file .ci/mkdocs.yml

# Writes golden files and tables in docs anew; look at the difference before you commit it.
generated: .venv-dev/.ready
	$(DEV)/pytest -q -n 2 --update $(TESTS)

bench: .venv-dev/.ready
	$(DEV)/python benchmarks/audit.py

.venv/.ready: pyproject.toml $(shell find sysperf rules plugins systemd docs -type f ! -name '*.pyc')
	$(PYTHON) -m venv .venv
	$(RUN)/pip install --quiet --disable-pip-version-check .
	touch $@

.venv-dev/.ready: pyproject.toml
	$(PYTHON) -m venv .venv-dev
	$(DEV)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

clean:
	rm -rf .venv .venv-dev dist build
