"600 German captions of the built-in corpus as training data, enough for a few steps"

from dasd_lab.backbone.towers import Backbone
from dasd_lab.corpora.catalog import caption_pairs, load_corpus
from dasd_lab.corpora.own.parallel import Pair
from dasd_lab.training.recipes import TrainingData, parallel_data


def german_data(backbone: Backbone) -> TrainingData:
    corpus = load_corpus("pictograms")
    pairs = caption_pairs(corpus, "train", "de")
    rows = zip(pairs.source[:600], pairs.target[:600], pairs.visual_index[:600])
    visuals = corpus.visuals("train").ids
    return parallel_data({"de": [Pair(*row[:2], i, visuals[row[2]]) for i, row in enumerate(rows)]}, backbone, corpus)
