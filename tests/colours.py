"Methods that see the mean colour of pictures, and a process whose children are there to be killed"

import json
import os
import sys

import numpy as np
import torch

from dasd_lab.contracts import RetrievalMethod

# brings nearly all that the children need, so that they start at once; no engine, whose threads would not survive the fork
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
        return (
            torch.tensor(
                np.stack([np.asarray(open_picture(p).resize((1, 1)), float)[0, 0] / 255 for p in pictures]),
                dtype=torch.float,
            )
            + 0.01
        )


class Named(RetrievalMethod):
    "Reads the names of colours, wherever they stand in a text"

    name = "named"
    languages = ("de", "zh", "ar")

    def __init__(self):
        super().__init__()
        self.backbone = Mean()

    def encode_captions(self, captions, language):
        return (
            torch.tensor(
                np.stack([np.sum([v for w, v in WORDS.items() if w in c.lower()] or [(0, 0, 0)], 0) for c in captions]),
                dtype=torch.float,
            )
            + 0.01
        )


class Slotted(Named):
    "Keeps a slot of two numbers beside the vector, and scores by it"

    name = "slotted"

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def encode_visuals(self, visuals):
        x = visuals["image_features"]
        return dict(features=1.02 - x, slots=x[:, :2])

    def score(self, text_features, visuals):
        return visuals["slots"][:, 0][None] * self.weight


class Reading(Slotted):
    "Whose slots are how long a description is"

    name = "reading"
    reads = classmethod(lambda cls, config: ("image_features", "description_ids"))

    def visual_columns(self, pictures, descriptions=None, known=None):
        return super().visual_columns(pictures, known=known) | dict(
            told=torch.tensor([[len(d), 1.0] for d in descriptions])
        )

    def encode_visuals(self, visuals):
        return dict(features=visuals["image_features"], slots=visuals["told"])


def steps(folder: str, first: int):
    "Batches for ever, each said when it is kept; all that is kept of one says which it is of"
    from dasd_lab.search.on_disk.stored import StoredGallery

    gallery = StoredGallery(folder, Named())
    gallery.engine.TIDY_AFTER = 5
    for step in range(first, 2000):
        ids = [f"{step}-{i}" for i in range(1 + 7 * (step % 5))]
        gallery.put(
            ids,
            dict(features=torch.full((len(ids), 3), step + 1.0)),
            dict(width=[step] * len(ids)),
            {i: str(step).encode() for i in ids},
        )
        print(step, flush=True)


def bring(folder: str, pictures: str):
    "An import that says when a batch is kept"
    from dasd_lab.search.on_disk.importing import import_folder
    from dasd_lab.search.on_disk.stored import StoredGallery

    def told(batches):
        for b in batches:
            yield b
            print(".", flush=True)

    import_folder(StoredGallery(folder, Named()), pictures, batch_size=16, progress=told)


if __name__ == "__main__":
    for line in sys.stdin:
        name, *given = json.loads(line)
        if not (child := os.fork()):
            print(os.getpid(), flush=True)
            globals()[name](*given)
            os._exit(0)
        os.waitpid(child, 0)
        print("ended", flush=True)
