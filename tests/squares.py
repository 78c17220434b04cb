"A corpus of plain squares and settings small enough to train in a second"

from dataclasses import replace

import numpy as np

from dasd_lab.base.contracts import Caption
from dasd_lab.corpora.catalog import Corpus
from dasd_lab.corpora.visuals import visuals_from_array

COLOURS = dict(
    red=("rotes", "rouge", (220, 40, 40)),
    blue=("blaues", "bleu", (40, 60, 220)),
    green=("grünes", "vert", (40, 160, 60)),
    yellow=("gelbes", "jaune", (240, 220, 60)),
)
WORDS = dict(en="a {0} square.", de="ein {1} Quadrat auf der Wiese.", fr="un carré {2}.")


class Squares(Corpus):
    "48 pictures of four colours; German sentences are longer than French ones"

    name = "squares"
    languages = ("en", "de", "fr")
    splits = ("train",)

    def _captions(self, split, language):
        return [
            Caption(WORDS[language].format(en, de, fr), language, f"v{i}", "human" if language == "en" else "mt")
            for i, (en, (de, fr, _)) in enumerate([*COLOURS.items()] * 12)
        ]

    def visuals(self, split):
        return visuals_from_array(
            [f"v{i}" for i in range(48)],
            np.stack([np.full((16, 16, 3), c, np.uint8) for *_, c in COLOURS.values()] * 12),
        )


class Tested(Squares):
    "The same squares with a test split"

    splits = "train", "test"

    def _captions(self, split, language):
        return [replace(c, origin="human") if split == "test" else c for c in super()._captions(split, language)]


SOURCE = dict(
    name="tiny",
    vocab_size=80,
    model_cfg=dict(
        embed_dim=16,
        quick_gelu=True,
        vision_cfg=dict(image_size=16, layers=1, width=32, patch_size=8, head_width=16),
        text_cfg=dict(context_length=12, width=32, heads=2, layers=2),
    ),
    phases=[
        dict(name=reading, reading=reading, trains=["visual", "text"], steps=10, batch_size=16, learning_rate=5e-3)
        for reading in ("words", "sentences")
    ],
)
BERT = dict(
    model_type="bert",
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=32,
)
PARTS = ["token_vectors", "disentangler", "generator", "adapters"]
TINY = dict(
    name="dasd.tiny",
    corpus="squares",
    languages=["de"],
    vocab_size=100,
    method="dasd",
    config=dict(token_width=16, adapter=dict(bottleneck=4), disentangler=dict(hidden=8)),
    stages=[
        dict(
            name="cross_lingual_alignment",
            steps=30,
            batch_size=16,
            learning_rate=5e-3,
            trains=PARTS,
            critic={},
            terms=[dict(loss="alignment"), dict(loss="consistency", weight=0.1), dict(loss="adversarial", weight=0.1)],
        ),
        dict(
            name="cross_modal_alignment",
            steps=20,
            batch_size=4,
            learning_rate=1e-3,
            trains=PARTS,
            critic={},
            terms=[dict(loss="contrastive", options=dict(temperature=0.1)), dict(loss="adversarial", weight=0.1)],
        ),
    ],
)
# of SMALR: the squares have few
FEW_WORDS = {
    "word_vectors": dict(dim=8),
    "config.vector_width": 8,
    "config.latent.entries": 6,
    "config.latent.dim": 4,
    "config.latent.most_alike": 1.0,
    "config.specific": 4,
    "config.own_width": 4,
}
