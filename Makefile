# Everything runs in .venv, which is installed on first use. Paths are relative, so that the folder may contain spaces.
PY   := .venv/bin/python
STEP := sh tools/step.sh
RUN  := env OMP_NUM_THREADS=1 MALLOC_ARENA_MAX=2 PYTHONUNBUFFERED=1 PYTHONUTF8=1
# modules are compiled when they are first imported, and kept: compiling all that is installed takes half a minute
export PYTHONDONTWRITEBYTECODE :=
# without plugins that packages of tests bring along: no test needs them, and each process imports them for 1.5 seconds
# one order of sets, so that a failure can be repeated; with PYTHONHASHSEED=random another one in each process
PYTEST := $(RUN) PYTHONHASHSEED=$${PYTHONHASHSEED:-0} $(PY) -m pytest -q -p no:cacheprovider -p no:schemathesis -p no:hypothesispytest -p no:anyio
# what the site takes from npm: MathJax draws formulas, the others answer queries on the first page
NPM := [ -f node_modules/mathjax/es5/tex-svg-full.js -a -d node_modules/onnxruntime-web -a -d node_modules/@huggingface/tokenizers ] \
  || npm install --silent --no-save --no-package-lock mathjax@3.2.2 onnxruntime-web@1.30.0 @huggingface/tokenizers@0.2.0 \
  || echo "– formulas are not drawn, and the first page answers no queries: both need packages from npm"
LAB_ARGS ?=
APP_ARGS ?=
# quarters of the tests and notebooks, each of which imports everything once: the two lanes of `make test` take the next
# one when they are free, and a process that ends gives its memory back (halves grew to 3 GB)
UNITS := units-1 units-2 units-3 units-4
CELLS := notebooks-1 notebooks-2 notebooks-3 notebooks-4
# tests marked slow are left out, but for `make test-all`
MARKED ?= -m "not slow"
DEMO_ARGS ?=
export MAKECMDGOALS

.DEFAULT_GOAL := help
.PHONY: help venv user-venv lab app demo test test-all check lint soak sync notebooks units browser export docs bench bench-costs bench-gallery clean distclean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

venv: ## install .venv (with uv if available, else pip); does nothing if up to date
	@sh tools/venv.sh

user-venv: # what the workbench needs, without development tools and the packages of tests
	@sh tools/venv.sh lab,curves

lab: user-venv ## build the built-in corpus if missing and open JupyterLab on the workbench (LAB_ARGS="--no-browser --port 9000")
	@PATH="$$PWD/.venv/bin:$$PATH" .venv/bin/dasd-lab lab -- $(LAB_ARGS)

app: user-venv ## the workbench as a web page on this machine (APP_ARGS="--port 9000")
	@PATH="$$PWD/.venv/bin:$$PATH" .venv/bin/dasd-lab app $(APP_ARGS)

demo: user-venv ## corpus, training, evaluation, search and a contact sheet, without a browser
	@$(STEP) "demo" $(RUN) .venv/bin/dasd-lab demo $(DEMO_ARGS)

check: venv ## one module in seconds, its notebook's cells, its tests and lint: make check M=methods.dasd.adapters
	@$(RUN) $(PY) tools/check.py $(M)

lint: venv ## format, ruff, the rules of tools/lint.py, mypy, deptry and import contracts
	@$(STEP) "lint: format" .venv/bin/ruff format --check nbs tests tools
	@$(STEP) "lint: ruff" .venv/bin/ruff check -q nbs tests tools
	@$(STEP) "lint: nothing of a merge is left" sh -c '! git grep -nE "^(<<<<<<<|>>>>>>>) "'
	@$(STEP) "lint: rules of this repository" $(PY) tools/lint.py
	@$(STEP) "lint: types" $(PY) tools/mypy_patched.py
	@$(STEP) "lint: imports are declared" .venv/bin/deptry dasd_lab
	@$(STEP) "lint: rooms import only rooms below them" .venv/bin/lint-imports --no-cache

test: venv ## everything CI runs: lint, sync check, notebooks, pytest, and the workbench, the service and the documentation in Chromium
	@sh tools/browser.sh
	@$(STEP) "corpus: build if missing" $(RUN) .venv/bin/dasd-lab corpus build
	@began=$$(date +%s); \
	$(MAKE) --no-print-directory -k -j2 --output-sync=line browser lint $(UNITS) $(CELLS) sync; status=$$?; \
	if [ $$status -eq 0 ]; then word='✓ all passed'; else word='✗ some failed, see above'; fi; \
	printf '%s (%s s)\n' "$$word" $$(( $$(date +%s) - began )); exit $$status

test-all: ## `make test` with the slow tests, then `make soak`
	@$(MAKE) --no-print-directory test MARKED= && $(MAKE) --no-print-directory soak

sync: venv
	@$(STEP) "sync: package and notebooks agree" $(PYTEST) tests/test_exports.py tests/test_path.py

notebooks: $(CELLS)

notebooks-%: venv
	@NOTEBOOKS=$*/4 $(STEP) "notebooks, quarter $*: every cell" $(PYTEST) tests/test_notebooks.py $(MARKED) --durations=5

units: $(UNITS)

units-%: venv
	@TESTS=$*/4 $(STEP) "tests: pytest, quarter $*" $(PYTEST) tests $(MARKED) -rfEs --durations=10 --ignore=tests/ui

browser: venv ## what people see, in Chromium; a test that fails is run once more and listed
	@$(NPM)
	@$(STEP) "browser: explorers, web pages and documentation in Chromium" $(PYTEST) tests/ui $(MARKED) -rfEsR --reruns 1 --durations=25

soak: venv ## long tests: twenty kills each of training, import, publishing and building, a full disk, 3,700 broken files, an attack with files, records, texts and models, every documentation page
	@SOAK=20 $(STEP) "soak" $(PYTEST) tests/test_soak.py tests/test_runs.py tests/test_broken_files.py tests/test_doors.py tests/test_kills.py tests/test_interrupt.py tests/ui/test_docs.py -rs -s

export: venv ## format and clean the notebooks, export the package and README
	@$(STEP) "export" env PATH="$$PWD/.venv/bin:$$PATH" sh -c 'ruff format nbs >/dev/null && nbdev_export && nbdev_clean && python tools/notebooks/readme.py'

docs: venv ## build the documentation site in _docs
	@$(NPM)
	@$(STEP) "docs" env OMP_NUM_THREADS=1 .venv/bin/sphinx-build -q -W --keep-going -j 2 -c tools/docs -d _proc/doctrees nbs _docs

bench: venv ## measure a training step beside a plain one, saving by saving, a query beside the plain tower, and float32 beside bfloat16 (about twelve minutes)
	@$(STEP) "bench: a step" $(RUN) $(PY) tools/bench/train_step.py --json data/results/train_step.json
	@$(STEP) "bench: a query" $(RUN) $(PY) tools/bench/query.py --json data/results/query_cost.json
	@$(STEP) "bench: precision" $(RUN) $(PY) tools/bench/precision.py --json data/results/precision.json

bench-costs: venv ## measure time and memory against languages, caption length, batch, d_u, vocabulary and tower (ten minutes)
	@$(STEP) "bench-costs" $(RUN) $(PY) tools/bench/costs.py --json data/results/train_costs.json

bench-gallery: venv ## measure a gallery of a million pictures: recall, times, memory, an import of 100,000 files (half an hour, 12 GB, removed)
	@$(STEP) "bench-gallery" env PYTHONUNBUFFERED=1 PYTHONUTF8=1 $(PY) tools/bench/gallery.py --json data/results/gallery.json
	@$(STEP) "its page" $(RUN) $(PY) tools/notebooks/run.py nbs/pages/a_million_pictures.ipynb

clean: ## remove what was built: docs, caches, screenshots (not .venv, data or runs)
	@$(STEP) "clean" sh -c 'rm -rf _docs _proc build dist .pytest_cache tests/shots node_modules .last_checked; \
	  find . -path ./.venv -prune -o -path ./.git -prune -o -type d \( -name __pycache__ -o -name .ipynb_checkpoints \) -prune -exec rm -rf {} +'

distclean: clean ## also remove .venv and the built corpora
	@rm -rf .venv data/pictograms
