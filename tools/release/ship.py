"""Train and store the shipped weights: data/weights/pictograms, model and adapters at most 15 MB

python tools/release/ship.py                       # the source model, DASD on it, and the other methods
python tools/release/ship.py --only static_adapter # one other method, on the stored source model"""

import argparse
import json
import shutil
import time
from importlib.metadata import version
from pathlib import Path

from dasd_lab.backbone.towers import load_backbone, save_backbone
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.evaluation.retrieval import evaluate
from dasd_lab.presets import load_preset, vary
from dasd_lab.storage import whole_folder, write_json
from dasd_lab.training.recipes import VERSIONS, load_run, train
from dasd_lab.training.runs import load_method, save_method
from dasd_lab.training.source_model import train_source

LANGUAGES = "de", "fr", "cs", "zh", "ja", "es", "ar"
SOURCE = {
    "phases.0.steps": 1200,
    "phases.1.steps": 500,
    "phases.0.newton_schulz_steps": 5,
    "phases.1.newton_schulz_steps": 5,
}
METHOD = {"stages.0.steps": 1500, "stages.1.steps": 100}
# weight of LECCR's term `slots_differ`: at the paper's 0.01 the slots become equal in a run of this length
APART = {"stages.0.terms.6.weight": 1.0}
# on the same backbone: preset, changes
COMPANIONS = dict(
    static_adapter=("static_adapter.pictograms", METHOD),
    official_form=("dasd.pictograms_official", METHOD),
    leccr=("leccr.pictograms", {"stages.0.steps": 2400} | APART),
    smalr=("smalr.pictograms", {"stages.2.steps": 2000}),
)


def companion(name: str, out: Path, corpus, seed: int) -> None:
    "Train another method on the source model in `out`, and add it to the card"
    preset, changes = COMPANIONS[name]
    start = time.process_time()
    backbone = load_backbone(out / "backbone")
    run = train(preset, corpus, LANGUAGES, seed=seed, backbone=backbone, changes=changes)
    save_method(run.method, out / name, half=True, seed=seed, preset=preset, changes=changes)
    results = evaluate(load_method(out / name, backbone), corpus, "test", LANGUAGES)
    card = json.loads((out / "card.json").read_text(encoding="utf-8"))
    facts = dict(
        command=f"python tools/release/ship.py --seed {seed} --only {name}",
        preset=preset,
        changes=changes,
        seed=seed,
    )
    if "descriptions" in run.card:
        facts["descriptions"] = run.card["descriptions"]
    facts |= dict(
        parameters=run.card["parameters"],
        cpu_s=round(time.process_time() - start),
        test=results.rows,
        mean_recall=results.mean_recall,
    )
    card.setdefault("companions", {})[name] = facts
    write_json(card, out / "card.json")
    print(name)
    print(results.to_markdown())


def source_and_dasd(out: Path, corpus, seed: int) -> None:
    "Train the source model and DASD, evaluate, write the card"
    start = time.process_time()
    backbone = train_source(vary(load_preset("two_tower.pictograms"), SOURCE), corpus, seed)
    with whole_folder(out) as folder:
        save_backbone(backbone, folder / "backbone", half=True, seed=seed, changes=SOURCE)
        run = train("dasd.pictograms", corpus, LANGUAGES, seed=seed, backbone=folder / "backbone", changes=METHOD)
        save_method(run.method, folder / "method", half=True, seed=seed, preset="dasd.pictograms", changes=METHOD)
        results = evaluate(load_run(folder), corpus, "test", ("en", *LANGUAGES))
        card = dict(
            command=f"python tools/release/ship.py --seed {seed}",
            seed=seed,
            corpus=corpus.name,
            corpus_checksum=corpus.checksum,
            source_preset="two_tower.pictograms",
            source_changes=SOURCE,
            preset="dasd.pictograms",
            changes=METHOD,
            languages=LANGUAGES,
            versions={p: version(p) for p in VERSIONS},
            cpu_s=round(time.process_time() - start),
            parameters=run.card["parameters"],
            agnostic_norm=run.log[-1]["agnostic_norm"],
            trained_on="pictograms: English captions of the training scenes; machine translations of them",
            licence="weights: Apache-2.0; pictures of the corpus: OpenMoji, CC BY-SA 4.0",
            test=results.rows,
            mean_recall=results.mean_recall,
        )
        write_json(card, folder / "card.json")
        if (out / "detector").is_dir():
            shutil.copytree(out / "detector", folder / "detector")  # of tools/release/train_detector.py
    print(results.to_markdown())


def main(out: Path, seed: int, only: str | None) -> None:
    "One other method, or everything"
    corpus = load_corpus("pictograms")
    if only:
        companion(only, out, corpus, seed)
        return
    source_and_dasd(out, corpus, seed)
    for name in COMPANIONS:
        companion(name, out, corpus, seed)
    print(sum(f.stat().st_size for f in out.rglob("*") if f.is_file()) / 1e6, "MB")


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "data/weights/pictograms")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--only", choices=sorted(COMPANIONS))
    main(**vars(p.parse_args()))
