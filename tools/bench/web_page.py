"""Measure the web page of the workbench: opening it, the answer to a query, and the same during a training run

    python tools/bench/web_page.py [--rounds 40] [--json data/results/app.json]

The figures depend on the machine and on what else it does (load). Times are those that a person notices: from
pressing Enter to the last image drawn, in Chromium."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing, contextmanager
from pathlib import Path

import pandas as pd
from measuring import arguments, keep
from playwright.sync_api import sync_playwright

from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.corpora.own.parallel import example_pairs, write_pairs

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/ui"))
from conftest import FLAGS, Web, find_browser

ASK = """async text => {
  const box = document.querySelector('.dl-ask .dl-query input')
  const hits = () => [...document.querySelectorAll('.dl-ask .dl-answer .dl-hit')]
  const shown = () => hits().map(h => h.dataset.id).join()
  const before = shown()
  box.value = text
  box.dispatchEvent(new Event('input', {bubbles: true}))
  const began = performance.now()
  box.form.requestSubmit()
  const isAnswered = () => shown() && shown() !== before && hits().every(h => h.querySelector('img').complete)
  const isLate = () => performance.now() - began > 30000
  await new Promise(done => {
    const check = () => isAnswered() || isLate() ? done() : requestAnimationFrame(check)
    check()
  })
  return performance.now() - began
}"""


def queries(n: int) -> list[str]:
    "Free-style test captions (generated) of all languages in turn"
    corpus = load_corpus("pictograms")
    captions = [corpus.captions("test", language, "human") for language in corpus.languages]
    return [captions[i % len(captions)][17 * i % 1000].text for i in range(n)]


def opened(browser, url: str) -> tuple[float, object]:  # seconds, the page
    page = browser.new_page(viewport=dict(width=1400, height=1000))
    began = time.perf_counter()
    page.goto(url)
    page.locator(".dl-ask .dl-query input").wait_for(timeout=180_000)
    return time.perf_counter() - began, page


def answers(page, texts: list[str]) -> dict[str, float]:  # milliseconds
    took = pd.Series([page.evaluate(ASK, t) for t in texts])
    return dict(n=len(took), median_ms=took.median(), p90_ms=took.quantile(0.9), worst_ms=took.max())


@contextmanager
def training(folder: Path):
    "A training run of a new language meanwhile, longer than the measurement"
    pairs = folder / "it.tsv"
    write_pairs(example_pairs(load_corpus("pictograms"), "it", 2000), pairs, "it")
    backbone = ROOT / "data/weights/pictograms/backbone"
    options = (
        f"--captions {pairs} --languages it --backbone {backbone} --out {folder / 'run'} --set stages.0.steps=100000"
    )
    command = [Path(sys.executable).parent / "dasd-lab", "train", "dasd.new_language", *options.split()]
    child = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=os.environ | dict(OMP_NUM_THREADS="1"))
    while not (folder / "run/progress.json").exists():
        if child.poll() is not None:
            raise SystemExit("the training run did not start")
        time.sleep(0.2)
    yield
    child.terminate()
    child.wait(60)


def main() -> None:
    a = arguments(__doc__, 40)
    n = 4 if a.tiny else a.rounds
    texts = queries(2 * n + 5)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home, sync_playwright() as p:
        web = Web(Path(home))
        try:
            with closing(p.chromium.launch(executable_path=find_browser(), args=FLAGS)) as browser:
                times, pages = zip(*(opened(browser, web.url) for _ in range(5)))
                for text in texts[:5]:
                    pages[-1].evaluate(ASK, text)  # thumbnails and lexicons are made once
                alone = answers(pages[-1], texts[5 : 5 + n])
                with training(Path(home)):
                    busy = answers(pages[-1], texts[5 + n :])
        finally:
            web.stop()
    open_s = dict(n=len(times), median=statistics.median(times), worst=max(times))
    facts = dict(cores=os.cpu_count(), load_before=load, open_s=open_s, query=alone, query_while_training=busy)
    keep(a, facts, [dict(meanwhile="nothing") | alone, dict(meanwhile="training") | busy])


if __name__ == "__main__":
    main()
