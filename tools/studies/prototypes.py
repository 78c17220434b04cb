"""Classes of an image classifier learnt as prototypes beside captions, or added to the cosine, or both

    python tools/studies/prototypes.py

A head on the frozen features of EfficientNet-lite2's classifier and a linear map of multilingual E5's sentence vectors
are trained on the English captions of Flickr8k's training photographs (InfoNCE), and on prototypes with a weight: the
features of a training photograph, moved along the classifier's gradient until it says another class, whose text is that
class's name. Added: `w` times the cosine of concepts (`backbone.concepts`); `w` is the largest that loses at most .3
points of recall on validation photographs. Three seeds. Everyday labels are those of `everyday.py`. Writes
data/results/prototypes.json."""

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from common import RESULTS
from sklearn.metrics import average_precision_score
from torch import Tensor, nn
from tqdm import tqdm

from dasd_lab.backbone.classifier import class_texts, open_classifier
from dasd_lab.base.foundation import home_path
from dasd_lab.base.storage import read_tensors, write_json, write_tensors
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.corpora.published.everyday import everyday_labels, everyday_words
from dasd_lab.evaluation.probes import mean_and_width
from dasd_lab.runs.loading import load_run
from dasd_lab.training.losses import contrastive

STEPS, BATCH, TEMPERATURE = 800, 256, 0.05
SHARES = 0.0, 0.5  # weights of prototypes
WEIGHTS = 0.0, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0
FIELDS = dict(en="en", de="m30k_de", zh="zh_translated")  # language → captions of test photographs


def picture_features(method, corpus, split: str) -> Tensor:  # [N, 1280], what the classifier's last layer reads
    "Features of the untuned network, kept in a file"
    path = home_path("runs", f"prototypes/{corpus.name}_{split}.safetensors")
    if not path.exists():
        network = open_classifier(method.concepts.config.classifier, method.concepts.config.weights)

        def encode(pixels: Tensor) -> Tensor:
            return network.forward_head(network.forward_features(pixels), pre_logits=True).float()

        found = method.backbone.encode_pictures(corpus.visuals(split), encode=encode, progress=tqdm)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_tensors(dict(features=found), path)
    return read_tensors(path)["features"]


class Heads(nn.Module):
    "A head on features of pictures, and a linear map of sentence vectors"

    def __init__(self, width: int, n: int):
        super().__init__()
        self.image = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1024), nn.GELU(), nn.Linear(1024, n))
        self.skip = nn.Linear(width, n)
        self.text = nn.Linear(n, n)

    def pictures(self, features: Tensor) -> Tensor:
        return F.normalize(self.image(features) + self.skip(features), dim=-1)

    def captions(self, vectors: Tensor) -> Tensor:
        return F.normalize(self.text(vectors), dim=-1)


def loss_of(images: Tensor, texts: Tensor) -> Tensor:
    "InfoNCE in both directions"
    return contrastive(dict(image_features=images, target_features=texts), TEMPERATURE, "mean")


def prototypes(features: Tensor, classes: Tensor, last: nn.Linear, steps: int = 4) -> Tensor:
    "Features [B, 1280] moved until the classifier says classes [B]: steps of length 1 up the log-probability"
    for _ in range(steps):
        shares = (features @ last.weight.T + last.bias).softmax(-1)
        gradient = last.weight[classes] - shares @ last.weight
        features = (features + F.normalize(gradient, dim=-1)).clamp(min=0)
    return features


def trained(data: dict, share: float, seed: int) -> Heads:
    "Heads from captions, and from prototypes with a weight"
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    heads = Heads(data["train"].shape[1], data["captions"].shape[1])
    optimizer = torch.optim.AdamW(heads.parameters(), 1e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, STEPS)
    for _ in tqdm(range(STEPS), desc=f"prototypes {share}, seed {seed}"):
        chosen = torch.randint(len(data["captions"]), (BATCH,), generator=generator)
        pictures = data["train"][data["picture"][chosen]]
        loss = loss_of(heads.pictures(pictures), heads.captions(data["captions"][chosen]))
        if share:
            classes = torch.randperm(len(data["names"]), generator=generator)[:BATCH]
            made = prototypes(pictures, classes, data["last"])
            loss = loss + share * loss_of(heads.pictures(made), heads.captions(data["names"][classes]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return heads.requires_grad_(False)


def recall(scores: Tensor, picture: Tensor) -> float:
    "Mean of recall@1, 5 and 10 over captions [Q] that look for their pictures"
    rank = (scores > scores.gather(1, picture[:, None])).sum(1)
    return float(np.mean([(rank < k).float().mean() for k in (1, 5, 10)]))


def gathered(method) -> dict:
    "All that is trained on and looked for"
    concepts = method.concepts
    flickr8k, everyday = load_corpus("flickr8k"), load_corpus("everyday")
    network = open_classifier(concepts.config.classifier, concepts.config.weights)

    def sentences(texts: list[str]) -> Tensor:
        return torch.from_numpy(concepts.of_sentences([f"query: {text}" for text in texts]))

    data: dict = dict(last=network.classifier, classes=concepts.classes, power=concepts.config.power)
    data["names"] = sentences([text.partition(":")[0].partition(",")[0] for text in class_texts(network)])
    captions = flickr8k.captions("train", "en", "human")
    place = {id: i for i, id in enumerate(flickr8k.visuals("train").ids)}
    data["picture"] = torch.tensor([place[c.visual_id] for c in captions])
    data["captions"] = sentences([c.text for c in captions])
    for split in ("train", "validation", "test"):
        data[split] = picture_features(method, flickr8k, split)
    data["everyday"] = picture_features(method, everyday, "test")
    searches = dict(validation=("validation", "en")) | {code: ("test", field) for code, field in FIELDS.items()}
    data["searches"] = {}
    for name, (split, field) in searches.items():
        place = {id: i for i, id in enumerate(flickr8k.visuals(split).ids)}
        found = flickr8k.field_captions(split, field)
        targets = torch.tensor([place[c.visual_id] for c in found])
        data["searches"][name] = split, sentences([c.text for c in found]), targets
    labels = [everyday_labels().get(id, "") for id in everyday.visuals("test").ids]
    data["labels"] = {}
    for language, words in everyday_words().items():
        asked = {label: word for label, word in words.items() if label in labels}
        relevant = torch.tensor([[label == own for own in labels] for label in asked])
        data["labels"][language] = sentences(list(asked.values())), relevant
    return data


def measured(data: dict, heads: Heads, w: float) -> dict[str, float]:
    "Recall of captions and precision of labels, with concepts added at a weight"

    def scores(vectors: Tensor, features: Tensor) -> Tensor:
        logits = features @ data["last"].weight.T + data["last"].bias
        concepts = F.normalize(logits.softmax(-1) ** data["power"] @ data["classes"], dim=-1)
        return heads.captions(vectors) @ heads.pictures(features).T + w * vectors @ concepts.T

    figures = {
        f"recall {name}": recall(scores(vectors, data[split]), targets)
        for name, (split, vectors, targets) in data["searches"].items()
    }
    for language, (vectors, relevant) in data["labels"].items():
        figures[f"everyday {language}"] = average_precision_score(relevant.T, scores(vectors, data["everyday"]).T)
    return figures


@torch.no_grad()
def at_best_weight(data: dict, heads: Heads) -> list[dict]:
    "Figures without concepts, and with the largest weight that costs at most .3 points of recall in validation"
    found = {w: measured(data, heads, w) for w in WEIGHTS}
    most = found[0.0]["recall validation"] - 0.003
    w = max(w for w, figures in found.items() if figures["recall validation"] >= most)
    return [dict(weight=0.0) | found[0.0], dict(weight=w) | found[w]]


def main() -> None:
    "Train with each weight of prototypes, and evaluate both with and without concepts"
    with torch.inference_mode():
        data = gathered(load_run("photographs"))
    rows = []
    for share in SHARES:
        lines = [at_best_weight(data, trained(data, share, seed)) for seed in range(3)]
        for name, found in zip(("alone", "with concepts"), zip(*lines)):
            figures = {k: mean_and_width([100 * line[k] for line in found]) for k in found[0] if k != "weight"}
            facts = dict(prototypes=share, concepts=name, weights=[line["weight"] for line in found])
            rows.append(facts | {k: dict(mean=mean, width=width) for k, (mean, width) in figures.items()})
            print(rows[-1])
    write_json(dict(command="python tools/studies/prototypes.py", rows=rows), RESULTS / "prototypes.json")


if __name__ == "__main__":
    main()
