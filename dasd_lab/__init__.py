"""Cross-lingual image retrieval with generated adapters: the front door, whose names are loaded when they are used

A first search, with a shipped model, a run's folder or a published one; in a notebook it shows pictures::

    from dasd_lab import Gallery, load

    model = load("photographs")
    gallery = Gallery(model).add("~/Pictures")
    gallery.search("zwei Hunde im Schnee", k=6)
"""

from importlib import import_module

__version__ = "0.30.0"
DOOR = dict(
    load="runs.backends:load",
    Gallery="search.gallery.in_memory:Gallery",
    train="training.recipes:train",
    evaluate="evaluation.retrieval:evaluate",
    load_corpus="corpora.catalog:load_corpus",
    load_preset="base.presets:load_preset",
    LabError="base.foundation:LabError",
)
__all__ = ["Gallery", "LabError", "evaluate", "load", "load_corpus", "load_preset", "train"]


def __getattr__(name: str):
    "A name of the front door, imported when it is first used"
    if name not in DOOR:
        raise AttributeError(f"module 'dasd_lab' has no attribute {name!r}")
    module, _, attribute = DOOR[name].partition(":")
    value = getattr(import_module(f"dasd_lab.{module}"), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    "Names of the front door beside the module's own"
    return sorted({*globals(), *__all__})
