# Everything below runs in .venv, which is made on first use. Paths are relative: the folder's own path may hold spaces.
PY   := .venv/bin/python
STEP := sh tools/step.sh
RUN  := env OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1 PYTHONUTF8=1
PYTEST := $(RUN) $(PY) -m pytest -q -p no:cacheprovider
LAB_ARGS ?=
DEMO_ARGS ?=
export MAKECMDGOALS

.DEFAULT_GOAL := help
.PHONY: help venv lab demo test sync notebooks guides units export docs bench clean distclean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

venv: ## make .venv (with uv where it is on PATH, else pip); at once where nothing changed
	@sh tools/venv.sh

lab: venv ## open JupyterLab on the guides (LAB_ARGS="--no-browser --port 9000")
	@PATH="$$PWD/.venv/bin:$$PATH" .venv/bin/dasd-lab lab -- $(LAB_ARGS)

demo: venv ## the main job without a browser: corpus, training, tables, one query a language, contact sheet
	@$(STEP) "demo" $(RUN) .venv/bin/dasd-lab demo $(DEMO_ARGS)

test: venv ## everything CI runs: sync check, notebooks, guides, pytest, browser tests where there is a Chromium
	@sh tools/browser.sh
	@began=$$(date +%s); $(MAKE) --no-print-directory -k sync notebooks guides units; status=$$?; \
	if [ $$status -eq 0 ]; then word='✓ all passed'; else word='✗ some failed, see above'; fi; \
	printf '%s (%s s)\n' "$$word" $$(( $$(date +%s) - began )); exit $$status

sync: venv
	@$(STEP) "sync: the package and the notebooks tell the same" $(PYTEST) tests/test_exports.py tests/test_path.py

notebooks: venv
	@$(STEP) "notebooks: every cell of the package's notebooks" $(PYTEST) tests/test_notebooks.py --durations=5

guides: venv
	@$(STEP) "guides: each in a kernel of its own" $(PYTEST) --nbmake --nbmake-timeout=300 nbs/guides

units: venv
	@$(STEP) "tests: what no single notebook can promise" $(PYTEST) tests -rs --durations=10 \
	  --ignore=tests/test_notebooks.py --ignore=tests/test_exports.py --ignore=tests/test_path.py

export: venv ## notebooks → package and README; cleans the notebooks
	@$(STEP) "export" env PATH="$$PWD/.venv/bin:$$PATH" sh -c 'nbdev_export && nbdev_clean && python tools/readme.py'

docs: venv ## build the documentation in _docs, offline apart from KaTeX (npm)
	@$(STEP) "docs" env OMP_NUM_THREADS=1 PATH="$$PWD/.venv/bin:$$PATH" sh tools/docs.sh

bench: venv ## measure what a generated adapter costs at query time, against the plain tower
	@$(STEP) "bench" $(RUN) $(PY) tools/bench.py

clean: ## remove what was built: docs, caches, screenshots (not .venv, data or runs)
	@$(STEP) "clean" sh -c 'rm -rf _docs _proc build dist .pytest_cache tests/shots node_modules .last_checked; \
	  find . -path ./.venv -prune -o -path ./.git -prune -o -type d \( -name __pycache__ -o -name .ipynb_checkpoints \) -prune -exec rm -rf {} +'

distclean: clean ## also remove .venv and the built corpora
	@rm -rf .venv data/pictograms
