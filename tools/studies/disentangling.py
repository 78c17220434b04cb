"""What the semantic-agnostic feature holds in each form of DASD, and what the generated matrices follow

    python tools/studies/disentangling.py                                   # pictograms, zh and de, three seeds
    python tools/studies/disentangling.py --world photographs               # zh from machine translations
    python tools/studies/disentangling.py --forms paper expression --seeds 0
    python tools/studies/disentangling.py --world photographs --seeds 0 1 2 3 4 \\
        --forms expression_half static_large_half                           # recall of two forms of one size

Writes one line per form and seed to data/results/disentangling.jsonl; lines that are there are not repeated. The world
photographs needs Flickr8k (DASD_LAB_FLICKR8K); features of its pictures are kept in runs/flickr8k."""

import argparse
import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from dasd_lab.backbone.features import frozen_features, store_in
from dasd_lab.backbone.towers import Backbone, load_backbone
from dasd_lab.contracts import RetrievalMethod
from dasd_lab.corpora.catalog import Corpus, corpus_named
from dasd_lab.evaluation.expression_groups import expression_groups
from dasd_lab.evaluation.fields import field_figures
from dasd_lab.evaluation.probes import adapter_spread, cluster_agreement, content_probe, leakage, linear_probe
from dasd_lab.evaluation.retrieval import evaluate
from dasd_lab.presets import load_preset
from dasd_lab.training.recipes import train, training_data
from dasd_lab.training.runs import own_state
from dasd_lab.training.runtime import Runtime

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "data/results/disentangling.jsonl"
FEATURES = ROOT / "runs/flickr8k/features"
STYLES = ("quantifier_object", "location_object", "quantifier_modifier_object", "event_supplement")
# form → preset without its world, changes
FORMS: dict[str, tuple[str, dict]] = dict(
    static=("static_adapter.{}", {}),
    paper=("dasd.{}", {}),
    default_start=("dasd.{}", {"config.adapter.start": "default"}),
    adversarial_to_adapters=("dasd.{}", {"config.disentangler.adversarial_reaches": "adapters"}),
    nothing_from_z=(
        "dasd.{}",
        {"config.disentangler.adversarial_reaches": "adapters", "config.disentangler.generator_gradient": False},
    ),
    expression=("dasd.{}_expression", {}),
    expression_unigrams=(
        "dasd.{}_expression",
        {"config.disentangler.expression.longest": 1, "config.adapter.spread": 0.6},
    ),
    expression_trigrams=(
        "dasd.{}_expression",
        {"config.disentangler.expression.longest": 3, "config.adapter.spread": 0.6},
    ),
    expression_and_meaning=("dasd.{}_expression", {"config.adapter.characteristics": ["related", "agnostic"]}),
)
# recall alone, on photographs, with as many parameters in use in both forms, and at the rate at which static adapters
# have the highest recall on validation captions after 660 steps, see `claims.py`
_HALF = {"stages.0.learning_rate": 1e-3, "stages.1.learning_rate": 5e-4}
SAME_SIZE: dict[str, tuple[str, dict]] = dict(
    expression_half=("dasd.{}_expression", _HALF),
    static_large_half=("static_adapter.{}", _HALF | {"config.adapter.bottleneck": 232}),
)
STEPS = dict(
    pictograms={"phrases": 0, "stages.0.steps": 1000, "stages.1.steps": 80},
    photographs={"stages.0.steps": 1500, "stages.1.steps": 100},
)


def corpora(world: str) -> tuple[Corpus, tuple[str, ...]]:
    "Corpus and target languages"
    if world == "pictograms":
        return corpus_named("pictograms"), ("zh", "de")
    return corpus_named(load_preset("dasd.photographs")["corpus"]), ("zh",)


def inspected(method: RetrievalMethod, captions: list[str], language: str) -> dict[str, torch.Tensor]:
    "Semantic-agnostic features and generated matrices of captions"
    parts = [method.inspect(captions[i : i + 500], language) for i in range(0, len(captions), 500)]
    names = ("semantic_agnostic", "generated")
    return {name: torch.cat([part[name] for part in parts]) for name in names}


def held_meaning(features: torch.Tensor, meaning: torch.Tensor, groups: np.ndarray) -> dict:
    "Leakage by both probes"
    return {kind: asdict(leakage(features, meaning, groups, kind=kind)) for kind in ("ridge", "mlp")}


def varying(generated: torch.Tensor) -> float:
    "Share of the generated matrices that differs between captions, mean over blocks"
    deviation = generated - generated.mean(0)
    return float((deviation.square().sum((0, 2, 3)) / generated.square().sum((0, 2, 3))).mean())


def pictograms_figures(method: RetrievalMethod, corpus: Corpus) -> dict:
    "Recall on the test scenes, and probes on 2,000 scenes in four styles"
    results = evaluate(method, corpus, "test", method.languages)
    figures = {language: dict(row) for language, row in results.rows.items()}
    if not hasattr(method, "disentangler"):
        return figures
    scenes = [*corpus.visuals("test").ids, *corpus.visuals("validation").ids]
    groups = np.repeat(np.arange(len(scenes)), len(STYLES))
    style = np.array(STYLES * len(scenes))
    nouns_of = [{thing.noun for thing in corpus.scene(scene).things} for scene in scenes]
    nouns = sorted(set().union(*nouns_of))
    present = np.array([[noun in nouns_of[i] for noun in nouns] for i in groups])
    english = [corpus.describe(scene, "en", s).text for scene in scenes for s in STYLES]
    meaning = method.backbone.encode_source(english).unflatten(0, (len(scenes), len(STYLES))).mean(1)[groups]
    for language in method.languages:
        captions = [corpus.describe(scene, language, s).text for scene in scenes for s in STYLES]
        found = inspected(method, captions, language)
        features = found["semantic_agnostic"]
        spread = adapter_spread(found["generated"], style, groups)
        figures[language] |= dict(
            leakage=held_meaning(features, meaning, groups),
            noun=asdict(content_probe(features, present, groups)),
            style=asdict(linear_probe(features, style, groups, "ridge")),
            nmi=cluster_agreement(features, style).nmi,
            varying=varying(found["generated"]),
            same_style=float(spread["same style"].mean()),
            same_content=float(spread["same content"].mean()),
        )
    return figures


def recalls(method: RetrievalMethod, corpus: Corpus) -> dict:
    "Recall of translated and written captions; features of the pictures are stored"
    store = store_in(FEATURES, method.backbone, corpus, "test")
    images = frozen_features(method.backbone, corpus, "test", store).image_features[:]
    fields = field_figures(method, corpus, ["zh_translated", "zh"], known=dict(image_features=images))
    return {name: dict(mean_recall=row["mean_recall"]) for name, row in fields.items()}


def photographs_figures(method: RetrievalMethod, corpus: Corpus) -> dict:
    "Recall, probes on translated captions, clusters of the groups of expression"
    figures = recalls(method, corpus)
    if not hasattr(method, "disentangler"):
        return figures
    english = corpus.captions("test", "en", "human")
    captions = corpus.field_captions("test", "zh_translated")
    visuals = sorted({c.visual_id for c in english})
    row_of = {visual: row for row, visual in enumerate(visuals)}
    own = torch.tensor([row_of[c.visual_id] for c in english])
    total = torch.zeros(len(visuals), method.embed_dim)
    total.index_add_(0, own, method.backbone.encode_source([c.text for c in english]))
    groups = np.array([row_of[c.visual_id] for c in captions])
    meaning = (total / own.bincount()[:, None])[groups]
    found = inspected(method, [c.text for c in captions], "zh")
    known = expression_groups("zh")
    features = inspected(method, list(known.sentences), "zh")["semantic_agnostic"]
    figures["zh_held"] = dict(
        leakage=held_meaning(found["semantic_agnostic"], meaning, groups),
        varying=varying(found["generated"]),
        nmi_groups=asdict(cluster_agreement(features, known.groups, range(10))),
        nmi_topics=asdict(cluster_agreement(features, known.topics, range(10))),
    )
    return figures


def one_run(world: str, form: str, seed: int, backbone: Backbone, corpus: Corpus, data: object) -> Mapping:
    "Train one form and measure it"
    preset, changes = (FORMS | SAME_SIZE)[form]
    preset, changes = preset.format(world), STEPS[world] | changes
    start = time.process_time()
    precision = "float32" if world == "pictograms" else "auto"
    run = train(
        preset,
        corpus,
        seed=seed,
        backbone=backbone,
        data=data,
        changes=changes,
        runtime=Runtime(precision=precision),
        progress=False,
    )
    seconds = round(time.process_time() - start, 1)
    figures_of = pictograms_figures if world == "pictograms" else photographs_figures
    if form in SAME_SIZE:
        figures_of = recalls
    method = run.method.eval()
    used = {name: value for name, value in own_state(method).items() if not name.startswith("critic")}
    return dict(
        world=world,
        form=form,
        seed=seed,
        preset=preset,
        changes=changes,
        cpu_s=seconds,
        parameters_at_use=sum(v.numel() for v in used.values() if v.is_floating_point()),
        figures=figures_of(method, corpus),
    )


def main(world: str, forms: list[str], seeds: list[int], out: Path) -> None:
    "Train and measure what is missing"
    lines = out.read_text(encoding="utf-8").splitlines() if out.is_file() else []
    done = {tuple(json.loads(line)[k] for k in ("world", "form", "seed")) for line in lines}
    corpus, languages = corpora(world)
    backbone = load_backbone(ROOT / "data/weights" / world / "backbone")
    features = FEATURES if world == "photographs" else None
    data = training_data(corpus, languages, backbone, features)
    for seed in seeds:
        for form in forms:
            if (world, form, seed) in done:
                continue
            row = one_run(world, form, seed, backbone, corpus, data)
            with out.open("a", encoding="utf-8") as f:
                f.write(json.dumps(row) + "\n")
            print(form, seed, f"{row['cpu_s']} CPU s", json.dumps(row["figures"])[:300], flush=True)


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--world", choices=STEPS, default="pictograms")
    p.add_argument("--forms", nargs="+", choices=FORMS | SAME_SIZE, default=list(FORMS))
    p.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    p.add_argument("--out", type=Path, default=RESULTS)
    main(**vars(p.parse_args()))
