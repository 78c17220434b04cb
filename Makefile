# Everything below runs in .venv, which is made on first use. Paths are relative: the folder's own path may hold spaces.
PY   := .venv/bin/python
STEP := sh tools/step.sh
RUN  := env OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1 PYTHONUTF8=1
PYTEST := $(RUN) $(PY) -m pytest -q -p no:cacheprovider
LAB_ARGS ?=
APP_ARGS ?=
DEMO_ARGS ?=
export MAKECMDGOALS

.DEFAULT_GOAL := help
.PHONY: help venv lab app demo test soak sync notebooks guides units browser export docs bench bench-costs bench-gpu bench-app bench-store bench-gallery clean distclean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

venv: ## make .venv (with uv where it is on PATH, else pip); at once where nothing changed
	@sh tools/venv.sh

lab: venv ## open JupyterLab on the workbench (LAB_ARGS="--no-browser --port 9000")
	@PATH="$$PWD/.venv/bin:$$PATH" .venv/bin/dasd-lab lab -- $(LAB_ARGS)

app: venv ## the workbench as a web page on this machine (APP_ARGS="--port 9000")
	@PATH="$$PWD/.venv/bin:$$PATH" .venv/bin/dasd-lab app $(APP_ARGS)

demo: venv ## the main job without a browser: corpus, training, tables, one query a language, contact sheet
	@$(STEP) "demo" $(RUN) .venv/bin/dasd-lab demo $(DEMO_ARGS)

test: venv ## everything CI runs: sync check, notebooks, pytest, and every guide and page in Chromium (without one, the guides in plain kernels)
	@sh tools/browser.sh
	@$(STEP) "corpus: built where it is missing" $(RUN) .venv/bin/dasd-lab corpus build
	@began=$$(date +%s); sh tools/browser.sh --there && guides= || guides=guides; \
	$(MAKE) --no-print-directory -k -j2 --output-sync=line browser sync units notebooks-1 notebooks-2 $$guides; status=$$?; \
	if [ $$status -eq 0 ]; then word='✓ all passed'; else word='✗ some failed, see above'; fi; \
	printf '%s (%s s)\n' "$$word" $$(( $$(date +%s) - began )); exit $$status

sync: venv
	@$(STEP) "sync: the package and the notebooks tell the same" $(PYTEST) tests/test_exports.py tests/test_path.py

notebooks: notebooks-1 notebooks-2

notebooks-%: venv
	@NOTEBOOKS=$*/2 $(STEP) "notebooks, half $*: every cell of the package's notebooks" $(PYTEST) tests/test_notebooks.py --durations=5

guides: venv
	@$(STEP) "guides: each in a kernel of its own" $(PYTEST) --nbmake --nbmake-timeout=300 nbs/guides

units: venv
	@$(STEP) "tests: what no single notebook can promise" $(PYTEST) tests -rs --durations=25 \
	  --ignore=tests/ui --ignore=tests/test_notebooks.py --ignore=tests/test_exports.py --ignore=tests/test_path.py

browser: venv
	@$(STEP) "browser: what people see and do, in Chromium" $(PYTEST) tests/ui -rs --durations=25

soak: venv ## kill a training twenty times at random points, fill a real disk, end one process of two; open every page of the site (minutes)
	@SOAK=20 $(STEP) "soak" $(PYTEST) tests/test_soak.py tests/test_runs.py tests/ui/test_docs.py -rs -s

export: venv ## notebooks → package and README; cleans the notebooks
	@$(STEP) "export" env PATH="$$PWD/.venv/bin:$$PATH" sh -c 'nbdev_export && nbdev_clean && python tools/notebooks/readme.py'

docs: venv ## build the documentation in _docs, offline apart from KaTeX (npm)
	@$(STEP) "docs" env OMP_NUM_THREADS=1 PATH="$$PWD/.venv/bin:$$PATH" sh tools/docs/build.sh

bench-app: venv ## measure the web page: opening it, the answer to a query, the same while training
	@$(STEP) "bench-app" $(RUN) $(PY) tools/bench/web_page.py

bench: venv ## measure a training step beside a plain one, saving by saving, and a query beside the plain tower (ten minutes)
	@$(STEP) "bench: a step" $(RUN) $(PY) tools/bench/train_step.py --json data/results/train_step.json
	@$(STEP) "bench: a query" $(RUN) $(PY) tools/bench/query.py --json data/results/query_cost.json

bench-costs: venv ## measure time and memory against languages, caption length, batch, d_u, vocabulary and tower (ten minutes)
	@$(STEP) "bench-costs" $(RUN) $(PY) tools/bench/costs.py --json data/results/train_costs.json

bench-gpu: venv ## on a GPU: the paper's whole schedule by measured steps a second, beside the plain step, and peak memory
	@$(STEP) "bench-gpu" $(RUN) $(PY) tools/bench/gpu.py --json data/results/train_gpu.json

bench-store: ## measure the feature store: batches against encoding in the loop and a numpy memory map, 3 million rows (writes 6 GB, removes them)
	@$(STEP) "bench-store" $(RUN) $(PY) tools/bench/store.py --pairs 15 --json data/results/feature_store.json

bench-gallery: venv ## measure a gallery of a million pictures: recall, times, memory, a crowd of clients, kills, an import of 100,000 files (an hour, 12 GB, removed)
	@$(STEP) "bench-gallery" env PYTHONUNBUFFERED=1 PYTHONUTF8=1 $(PY) tools/bench/gallery.py
	@$(STEP) "its page" $(RUN) $(PY) tools/notebooks/run.py nbs/pages/a_million_pictures.ipynb

clean: ## remove what was built: docs, caches, screenshots (not .venv, data or runs)
	@$(STEP) "clean" sh -c 'rm -rf _docs _proc build dist .pytest_cache tests/shots node_modules .last_checked; \
	  find . -path ./.venv -prune -o -path ./.git -prune -o -type d \( -name __pycache__ -o -name .ipynb_checkpoints \) -prune -exec rm -rf {} +'

distclean: clean ## also remove .venv and the built corpora
	@rm -rf .venv data/pictograms
