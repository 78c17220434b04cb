"""Measure the web page of the workbench: opening it, the answer to a query, and the same during a training run

    python tools/bench/web_page.py [--queries 40] [--out data/results/app.json]

The figures depend on the machine and on what else it does (load). Times are those that a person notices: from
pressing Enter to the last image drawn, in Chromium."""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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
    from dasd_lab.corpora.catalog import load_corpus

    corpus = load_corpus("pictograms")
    languages = list(corpus.languages)
    texts = []
    for i in range(n):
        captions = corpus.captions("test", languages[i % len(languages)], "human")
        texts.append(captions[17 * i % 1000].text)
    return texts


def opened(browser, url: str) -> tuple[float, object]:  # seconds, the page
    page = browser.new_page(viewport=dict(width=1400, height=1000))
    began = time.perf_counter()
    page.goto(url)
    page.locator(".dl-ask .dl-query input").wait_for(timeout=180_000)
    return time.perf_counter() - began, page


def answers(page, texts: list[str]) -> dict[str, float]:  # milliseconds
    took = [page.evaluate(ASK, t) for t in texts]
    return dict(
        n=len(took),
        median_ms=round(statistics.median(took), 1),
        p90_ms=round(statistics.quantiles(took, n=10)[-1], 1),
        worst_ms=round(max(took), 1),
    )


def training(folder: Path) -> subprocess.Popen:
    "A training run of a new language, longer than the measurement"
    from dasd_lab.corpora.catalog import load_corpus
    from dasd_lab.corpora.own.parallel import example_pairs, write_pairs

    path = folder / "it.tsv"
    write_pairs(example_pairs(load_corpus("pictograms"), "it", 2000), path, "it")
    command = [
        Path(sys.executable).parent / "dasd-lab",
        "train",
        "dasd.new_language",
        "--captions",
        path,
        "--languages",
        "it",
        "--backbone",
        ROOT / "data/weights/pictograms/backbone",
        "--out",
        folder / "run",
        "--set",
        "stages.0.steps=100000",
    ]
    child = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | dict(OMP_NUM_THREADS="1"),
        start_new_session=True,
    )
    until = time.monotonic() + 180
    while not (folder / "run/progress.json").exists() and child.poll() is None and time.monotonic() < until:
        time.sleep(0.2)
    if child.poll() is not None:
        raise SystemExit("the training run did not start")
    return child


def main(n: int, out: Path) -> None:
    from playwright.sync_api import sync_playwright

    from dasd_lab.base.storage import write_json

    texts = queries(2 * n + 5)
    home = Path(tempfile.mkdtemp())
    load = os.getloadavg()[0]
    web = Web(home)
    try:
        with sync_playwright() as p:
            browser = p.chromium.launch(executable_path=find_browser(), args=FLAGS)
            times = []
            for i in range(5):
                seconds, page = opened(browser, web.url)
                times.append(seconds)
                if i < 4:
                    page.close()
            for t in texts[:5]:
                page.evaluate(ASK, t)  # thumbnails and lexicons are made once
            alone = answers(page, texts[5 : 5 + n])
            child = training(home)
            busy = answers(page, texts[5 + n :])
            child.terminate()
            child.wait(60)
            browser.close()
    finally:
        web.stop()
        shutil.rmtree(home, ignore_errors=True)
    facts = dict(
        cores=os.cpu_count(),
        load_before=round(load, 2),
        open_s=dict(n=len(times), median=round(statistics.median(times), 2), worst=round(max(times), 2)),
        query=alone,
        query_while_training=busy,
    )
    write_json(facts, out)
    print(json.dumps(facts, indent=1))


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--queries", type=int, default=40)
    p.add_argument("--out", type=Path, default=ROOT / "data/results/app.json")
    a = p.parse_args()
    main(a.queries, a.out)
