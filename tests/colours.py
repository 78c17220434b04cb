"Methods that encode the mean colour of images"

import numpy as np
import torch

from dasd_lab.base.contracts import RetrievalMethod
from dasd_lab.search.gallery.inputs import open_picture

WORDS = {
    "rot": (1, 0, 0),
    "grün": (0, 1, 0),
    "blau": (0, 0, 1),
    "gelb": (1, 1, 0),
    "red": (1, 0, 0),
    "green": (0, 1, 0),
    "blue": (0, 0, 1),
    "红": (1, 0, 0),
    "绿": (0, 1, 0),
    "蓝": (0, 0, 1),
    "أحمر": (1, 0, 0),
    "أخضر": (0, 1, 0),
    "أزرق": (0, 0, 1),
}


class Mean(torch.nn.Module):
    source_language, embed_dim = "en", 3

    def encode_pictures(self, pictures):
        means = [np.asarray(open_picture(p).resize((1, 1)), float)[0, 0] / 255 for p in pictures]
        return torch.tensor(np.stack(means), dtype=torch.float) + 0.01


def colour_of(caption: str):
    "Sum of the colours that a caption names"
    colours = [colour for word, colour in WORDS.items() if word in caption.lower()]
    return np.sum(colours or [(0, 0, 0)], 0)


class Named(RetrievalMethod):
    "Recognises names of colours anywhere in a text"

    name = "named"
    languages = ("de", "zh", "ar")

    def __init__(self):
        super().__init__()
        self.backbone = Mean()

    def encode_captions(self, captions, language):
        return torch.tensor(np.stack([colour_of(c) for c in captions]), dtype=torch.float) + 0.01


class Slotted(Named):
    "Has a slot of two numbers beside the vector, and scores by it"

    name = "slotted"

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def encode_visuals(self, visuals):
        features = visuals["image_features"]
        return dict(features=1.02 - features, slots=features[:, :2])

    def score(self, text_features, visuals):
        return visuals["slots"][:, 0][None] * self.weight


class Reading(Slotted):
    "Its slots are the length of the description"

    name = "reading"

    @classmethod
    def reads(cls, config):
        return "image_features", "description_ids"

    def visual_columns(self, pictures, descriptions=None, known=None):
        lengths = torch.tensor([[len(d), 1.0] for d in descriptions])
        return super().visual_columns(pictures, known=known) | dict(lengths=lengths)

    def encode_visuals(self, visuals):
        return dict(features=visuals["image_features"], slots=visuals["lengths"])
