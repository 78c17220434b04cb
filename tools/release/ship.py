"""Train and store the shipped weights: data/weights/pictograms, source model and DASD at most 15 MB

python tools/release/ship.py                       # the source model, DASD on it, and the other methods
python tools/release/ship.py --only source         # some parts; methods are trained on the stored source model
python tools/release/ship.py --only static_adapter smalr"""

import argparse
import json
import shutil
import time
from importlib.metadata import version
from pathlib import Path

from dasd_lab.backbone.towers import Backbone, load_backbone, save_backbone
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.evaluation.retrieval import evaluate
from dasd_lab.evaluation.short_queries import short_queries
from dasd_lab.presets import load_preset, vary
from dasd_lab.storage import whole_folder, write_json
from dasd_lab.training.recipes import VERSIONS, Run, columns_of, train, training_data
from dasd_lab.training.runs import load_method, save_method
from dasd_lab.training.source_model import train_source

WEIGHTS = Path(__file__).resolve().parents[2] / "data/weights/pictograms"
LANGUAGES = "de", "fr", "cs", "zh", "ja", "es", "ar"
SOURCE_PRESET = "two_tower.pictograms"
SOURCE = {
    "phases.0.steps": 1500,
    "phases.1.steps": 400,
    "phases.0.newton_schulz_steps": 5,
    "phases.1.newton_schulz_steps": 5,
}
STEPS = {"stages.0.steps": 2000, "stages.1.steps": 100}
# weight of LECCR's term `slots_differ`: at the paper's 0.01 the slots become equal in a run of this length
APART = {"stages.0.terms.6.weight": 1.0}
# methods on the source model, by folder: preset, changes
METHODS = dict(
    method=("dasd.pictograms", STEPS),
    static_adapter=("static_adapter.pictograms", STEPS),
    official_form=("dasd.pictograms_official", STEPS),
    leccr=("leccr.pictograms", {"stages.0.steps": 2400} | APART),
    smalr=("smalr.pictograms", {"stages.2.steps": 2000}),
)


def figures_of(method, corpus, languages) -> dict:
    "Recalls on the test scenes, and how many short queries find what they name first"
    results = evaluate(method, corpus, "test", languages)
    print(results.to_markdown())
    given = short_queries(method, corpus)
    recognised = short_queries(method, corpus, recognised=True)
    print(given.to_markdown(), flush=True)
    short = dict(queries=given.n, right=given.right, language_recognised=recognised.right)
    return dict(test=results.rows, mean_recall=results.mean_recall, short_queries=short)


def read_card(out: Path) -> dict:
    return json.loads((out / "card.json").read_text(encoding="utf-8"))


def source(out: Path, corpus, seed: int) -> None:
    "Train the source model, and begin a new card"
    start = time.process_time()
    backbone = train_source(vary(load_preset(SOURCE_PRESET), SOURCE), corpus, seed)
    card = dict(
        command=f"python tools/release/ship.py --seed {seed}",
        seed=seed,
        corpus=corpus.name,
        corpus_checksum=corpus.checksum,
        source_preset=SOURCE_PRESET,
        source_changes=SOURCE,
        source_cpu_s=round(time.process_time() - start),
        versions={p: version(p) for p in VERSIONS},
        trained_on="pictograms: English captions and phrases of the training scenes; machine translations of them",
        licence="weights: Apache-2.0; pictures of the corpus: OpenMoji, CC BY-SA 4.0",
    )
    with whole_folder(out) as folder:
        save_backbone(backbone, folder / "backbone", half=True, seed=seed, changes=SOURCE)
        write_json(card, folder / "card.json")
        if (WEIGHTS / "detector").is_dir():
            shutil.copytree(WEIGHTS / "detector", folder / "detector")  # of tools/release/train_detector.py


def trained(name: str, backbone: Backbone, corpus, seed: int, known: dict) -> Run:
    "Train a method; those that read the same columns share their data, kept in `known`"
    preset, changes = METHODS[name]
    reads = columns_of(load_preset(preset))
    if reads not in known:
        phrases = corpus.with_phrases(load_preset(preset)["phrases"])
        known[reads] = training_data(phrases, LANGUAGES, backbone, reads=reads)
    return train(preset, corpus, LANGUAGES, seed=seed, backbone=backbone, data=known[reads], changes=changes)


def one_method(name: str, out: Path, corpus, seed: int, known: dict) -> None:
    "Train a method on the source model in `out`, and add it to the card"
    preset, changes = METHODS[name]
    start = time.process_time()
    backbone = load_backbone(out / "backbone")
    run = trained(name, backbone, corpus, seed, known)
    save_method(run.method, out / name, half=True, seed=seed, preset=preset, changes=changes)
    facts = dict(preset=preset, changes=changes, languages=LANGUAGES, parameters=run.card["parameters"])
    facts["cpu_s"] = round(time.process_time() - start)
    if "descriptions" in run.card:
        facts["descriptions"] = run.card["descriptions"]
    card = read_card(out)
    if name == "method":
        facts["cpu_s"] += card["source_cpu_s"]
        facts["agnostic_norm"] = run.log[-1]["agnostic_norm"]
        card |= facts | figures_of(load_method(out / name, backbone), corpus, ("en", *LANGUAGES))
    else:
        facts = dict(command=f"python tools/release/ship.py --seed {seed} --only {name}", seed=seed) | facts
        facts |= figures_of(load_method(out / name, backbone), corpus, LANGUAGES)
        card.setdefault("companions", {})[name] = facts
    write_json(card, out / "card.json")


def main(out: Path, seed: int, only: list[str] | None) -> None:
    "Some parts, or everything"
    corpus = load_corpus("pictograms")
    known: dict = {}
    for name in only or ["source", *METHODS]:
        print(name, flush=True)
        if name == "source":
            source(out, corpus, seed)
        else:
            one_method(name, out, corpus, seed, known)
    print(sum(f.stat().st_size for f in out.rglob("*") if f.is_file()) / 1e6, "MB")


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=Path, default=WEIGHTS)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--only", nargs="+", choices=["source", *METHODS])
    main(**vars(p.parse_args()))
