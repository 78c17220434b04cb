"""What the semantic-agnostic feature holds in each form of DASD, and what the generated matrices follow

    python tools/studies/disentangling.py                                   # pictograms, zh and de, three seeds
    python tools/studies/disentangling.py --world photographs               # zh from machine translations
    python tools/studies/disentangling.py --forms paper expression --seeds 0
    python tools/studies/disentangling.py --world photographs --seeds 0 1 2 3 4 \\
        --forms expression_half static_large_half                           # recall of two forms of one size

Writes one line per form and seed to data/results/disentangling.jsonl; lines that are there are not repeated. The world
photographs needs Flickr8k (DASD_LAB_FLICKR8K); features of pictures are kept in runs. The file also has lines of other
designs of f_sa, none of which ships: `tools/studies/designs.py` of version 0.29 made them."""

import numpy as np
import pandas as pd
import torch
from common import RESULTS, ROOT, start
from sklearn.preprocessing import MultiLabelBinarizer

from dasd_lab.backbone.features import frozen_features, store_in
from dasd_lab.backbone.text_towers import precision_used
from dasd_lab.backbone.towers import load_backbone
from dasd_lab.base.contracts import RetrievalMethod
from dasd_lab.base.presets import load_preset
from dasd_lab.corpora.catalog import Corpus, corpus_named
from dasd_lab.evaluation.expression_groups import expression_groups
from dasd_lab.evaluation.fields import field_figures
from dasd_lab.evaluation.probes import adapter_spread, cluster_agreement, content_probe, leakage, linear_probe
from dasd_lab.evaluation.retrieval import evaluate
from dasd_lab.evaluation.studies import run_study
from dasd_lab.runs.saved import own_state
from dasd_lab.training.recipes import train, training_data
from dasd_lab.training.runtime import Runtime

FEATURES = dict(pictograms=ROOT / "runs/pictograms/features", photographs=ROOT / "runs/flickr8k/features")
STYLES = ("quantifier_object", "location_object", "quantifier_modifier_object", "event_supplement")
_TERMS = (
    [{"loss": "alignment"}, {"loss": "consistency", "weight": 0.1}],
    [{"loss": "contrastive", "options": {"temperature": 0.02}}, {"loss": "consistency", "weight": 0.1}],
)
_NO_CRITIC = {"config.critic": None} | {
    f"stages.{i}.{name}": value for i in (0, 1) for name, value in dict(critic=None, terms=_TERMS[i]).items()
}

_NO_STEPS = {f"stages.{i}.{name}": value for i in (0, 1) for name, value in dict(steps=1, learning_rate=0.0).items()}


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
    untrained=("dasd.{}", _NO_STEPS),
    no_adversarial=("dasd.{}", _NO_CRITIC | {"config.adapter.start": "default"}),
    strong_critic=(
        "dasd.{}",
        {"config.disentangler.layer_norms": False, "config.critic.normalize": False}
        | {"stages.0.critic.learning_rate": 2e-3, "stages.1.critic.learning_rate": 2e-3}
        | {"config.adapter.start": "default"},
    ),
)
# recall alone, on photographs, with as many parameters in use in both forms, and at the rate at which static adapters
# have the highest recall on validation captions after 660 steps, see `nbs/studies/claims.ipynb`
_HALF = {"stages.0.learning_rate": 1e-3, "stages.1.learning_rate": 5e-4}
SAME_SIZE: dict[str, tuple[str, dict]] = dict(
    expression_half=("dasd.{}_expression", _HALF),
    static_large_half=("static_adapter.{}", _HALF | {"config.adapter.bottleneck": 232}),
)
STEPS = dict(
    pictograms={"phrases": 0, "stages.0.steps": 1000, "stages.1.steps": 80},
    photographs={"stages.0.steps": 1500, "stages.1.steps": 100},
)


def inspected(method: RetrievalMethod, captions: list[str], language: str) -> dict[str, torch.Tensor]:
    "Features and generated matrices of captions"
    parts = [method.inspect(captions[i : i + 500], language) for i in range(0, len(captions), 500)]
    names = ("semantic_agnostic", "semantic_related", "target_features", "generated")
    return {name: torch.cat([part[name] for part in parts]) for name in names}


def held_meaning(features: torch.Tensor, meaning: torch.Tensor, groups: np.ndarray) -> dict:
    "Leakage by both probes"
    return {kind: leakage(features, meaning, groups, kind=kind).to_dict() for kind in ("ridge", "mlp")}


def varying(generated: torch.Tensor) -> float:
    "Share of the generated matrices that differs between captions, mean over blocks"
    deviation = generated - generated.mean(0)
    return float((deviation.square().sum((0, 2, 3)) / generated.square().sum((0, 2, 3))).mean())


def held(features: torch.Tensor, meaning: torch.Tensor, groups: np.ndarray, style: np.ndarray, present) -> dict:
    "What probes find in the features of captions of scenes"
    return dict(
        leakage=held_meaning(features, meaning, groups),
        noun=content_probe(features, present, groups).to_dict(),
        style=linear_probe(features, style, groups, "ridge").to_dict(),
        nmi=cluster_agreement(features, style).nmi,
    )


def pictograms_figures(method: RetrievalMethod, corpus: Corpus) -> dict:
    "Recall on the test scenes, and probes on captions of 2,000 scenes, not trained on, each in four styles"
    results = evaluate(method, corpus, "test", method.languages)
    figures = {language: dict(row) for language, row in results.rows.items()}
    if not hasattr(method, "disentangler"):
        return figures
    scenes = [*corpus.visuals("test").ids, *corpus.visuals("validation").ids]
    groups = np.repeat(np.arange(len(scenes)), len(STYLES))
    style = np.array(STYLES * len(scenes))
    nouns_of = [{thing.noun for thing in corpus.scene(scene).things} for scene in scenes]
    present = MultiLabelBinarizer().fit_transform(nouns_of)[groups].astype(bool)

    def captions(language: str) -> list[str]:
        return [corpus.describe(scene, language, s).text for scene in scenes for s in STYLES]

    english = method.backbone.encode_source(captions("en")).unflatten(0, (len(scenes), len(STYLES)))
    meaning = english.mean(1)[groups]
    for language in method.languages:
        found = inspected(method, captions(language), language)
        spread = adapter_spread(found["generated"], style, groups)
        figures[language] |= held(found["semantic_agnostic"], meaning, groups, style, present) | dict(
            varying=varying(found["generated"]),
            same_style=float(spread["same style"].mean()),
            same_content=float(spread["same content"].mean()),
        )
    return figures


def recalls(method: RetrievalMethod, corpus: Corpus) -> dict:
    "Recall of translated and written captions; features of the pictures are stored"
    store = store_in(FEATURES["photographs"], method.backbone, corpus, "test")
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
    vectors = method.backbone.encode_source([c.text for c in english]).numpy()
    means = pd.DataFrame(vectors, [c.visual_id for c in english]).groupby(level=0).mean()
    groups = means.index.get_indexer([c.visual_id for c in captions])
    meaning = torch.from_numpy(means.to_numpy()[groups])
    found = inspected(method, [c.text for c in captions], "zh")
    known = expression_groups("zh")
    features = inspected(method, list(known.text), "zh")["semantic_agnostic"]
    figures["zh_held"] = dict(
        leakage=held_meaning(found["semantic_agnostic"], meaning, groups),
        varying=varying(found["generated"]),
        nmi_groups=cluster_agreement(features, known.group, range(10)).to_dict(),
        nmi_topics=cluster_agreement(features, known.topic, range(10)).to_dict(),
    )
    return figures


def main(world: str = "pictograms", forms: list[str] = tuple(FORMS), seeds: list[int] = (0, 1, 2)) -> None:
    "Train and measure what is missing"
    is_built_in = world == "pictograms"
    corpus = corpus_named(load_preset(f"dasd.{world}")["corpus"])
    backbone = load_backbone(ROOT / "data/weights" / world / "backbone")
    data = training_data(corpus, ("zh", "de") if is_built_in else ("zh",), backbone, FEATURES[world])
    precision = "float32" if is_built_in else "auto"
    shared = dict(backbone=backbone, data=data, runtime=Runtime(precision=precision), progress=False)
    figures_of = pictograms_figures if is_built_in else photographs_figures

    def measure(form: str, seed: int, **about) -> dict:
        name, changes = (FORMS | SAME_SIZE)[form]
        preset, changes = name.format(world), STEPS[world] | changes
        run = train(preset, corpus, seed=seed, changes=changes, **shared)
        method = run.method.eval()
        judged = [row["critic_accuracy"] for row in run.log if "critic_accuracy" in row]
        return dict(
            preset=preset,
            changes=changes,
            precision=precision_used(backbone.device, precision),
            cpu_s=run.card["cpu_s"],
            critic_accuracy=float(np.mean(judged)) if judged else None,
            parameters_at_use=sum(v.numel() for name, v in own_state(method).items() if not name.startswith("critic")),
            figures=recalls(method, corpus) if form in SAME_SIZE else figures_of(method, corpus),
        )

    jobs = [dict(world=world, form=form, seed=seed) for seed in seeds for form in forms]
    run_study(jobs, measure, RESULTS / "disentangling.jsonl")


if __name__ == "__main__":
    start(main, __doc__)
