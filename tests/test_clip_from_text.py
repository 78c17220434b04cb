"""From the layout that `weights get clip-vit-b-32` leaves to a German query on a folder of pictures, by commands alone

The weights are random, of a narrow tower with CLIP's tokenizer; `tools/bench/clip_from_text.py` runs the real sizes."""

import json
from dataclasses import replace

import open_clip
import pytest
import torch
from PIL import Image
from tokenizers import AddedToken

from dasd_lab.backbone.text_towers import build_clip
from dasd_lab.backbone.tokens import train_tokenizer
from dasd_lab.backbone.weights import CATALOGUE, import_weights
from dasd_lab.base.storage import sha256, write_tensors
from dasd_lab.commands.cli import main
from dasd_lab.runs.loading import load_run

COLOURS = dict(red="rot", green="grün", blue="blau", black="schwarz", white="weiß", yellow="gelb")
THINGS = dict(dog="Hund", house="Haus", tree="Baum", car="Auto", beach="Strand", child="Kind")
TINY = dict(
    embed_dim=16,
    quick_gelu=True,
    vision_cfg=dict(image_size=32, layers=1, width=32, patch_size=16, head_width=16),
    text_cfg=dict(context_length=77, vocab_size=49408, width=32, heads=2, layers=2),
)
N_TOKENS, WIDTH = 300, 24  # token vectors


def leave_weights(name, tensors, monkeypatch, folder, **changes):
    "Import random weights as `weights get` does; the catalogue gets their checksum instead of the published"
    entry = CATALOGUE[name]
    path = folder / next(iter(entry.files))
    write_tensors(tensors, path)
    entry = replace(entry, files=entry.files | {path.name: sha256(path)}, **changes)
    monkeypatch.setitem(CATALOGUE, name, entry)
    import_weights(name, folder)


@pytest.fixture
def options(tmp_path, monkeypatch):
    "Options of `train` for the weights, captions and pictures that it writes"
    monkeypatch.setenv("DASD_LAB_DATA", str(tmp_path))
    monkeypatch.setenv("DASD_LAB_WEIGHTS", str(tmp_path / "weights"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    torch.manual_seed(0)
    tower = "tiny-clip-from-text"
    (tmp_path / f"{tower}.json").write_text(json.dumps(TINY))
    open_clip.add_model_config(tmp_path / f"{tower}.json")
    leave_weights("clip-vit-b-32", build_clip(TINY).state_dict(), monkeypatch, tmp_path, opens=tower)
    lines = [f"ein {c} Ding, ein {t}" for c in COLOURS.values() for t in THINGS.values()]
    words = train_tokenizer(lines, N_TOKENS).tokenizer
    words.add_tokens([AddedToken(f"unused{i}") for i in range(N_TOKENS - words.get_vocab_size())])
    words.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text("{}")
    rows = {"bert.embeddings.word_embeddings.weight": 0.02 * torch.randn(N_TOKENS, WIDTH)}
    leave_weights("mbert", rows, monkeypatch, tmp_path)
    pairs = [
        f"a {colour} {thing} number {i}\tein {farbe} Ding, ein {ding} {i}"
        for i in range(4)
        for colour, farbe in COLOURS.items()
        for thing, ding in THINGS.items()
    ]
    (tmp_path / "pairs.tsv").write_text("en\tde\n" + "\n".join(pairs) + "\n", encoding="utf-8")
    (tmp_path / "photographs").mkdir()
    for colour in ("red", "green", "blue"):
        Image.new("RGB", (64, 48), colour).save(tmp_path / f"photographs/{colour}.jpg")
    small = ["--set", f"token_vectors.n_tokens={N_TOKENS}", "--set", f"config.token_width={WIDTH}"]
    small += ["--set", f"backbone.open_clip={tower}", "--set", "stages.0.steps=3", "--set", "stages.0.batch_size=16"]
    return small


def test_from_the_weights_to_a_german_query(options, tmp_path, capsys):
    run, gallery = tmp_path / "run", tmp_path / "gallery"
    captions = ["--captions", str(tmp_path / "pairs.tsv"), "--languages", "de"]

    def command(*words):
        code = main(list(map(str, words)))
        out, err = capsys.readouterr()
        assert code == 0, err
        return out

    command("train", "dasd.clip_from_text", *captions, *options, "--out", run)
    method = load_run(run)
    assert (method.name, method.languages) == ("dasd", ("de",))
    card = json.loads((run / "card.json").read_text())
    assert list(card["stages"].items()) == [("cross_lingual_alignment", 3)]
    assert card["with_picture"] == dict(de=0), "parallel text alone"
    command("gallery", "import", tmp_path / "photographs", "--gallery", gallery, "--run", run)
    found = json.loads(
        command("search", "ein roter Hund", "--language", "de", "--gallery", gallery, "--run", run, "--json")
    )
    assert {row["picture"] for row in found["rows"]} == {"red.jpg", "green.jpg", "blue.jpg"}
    # the same embeddings serve the frozen tower, in English
    as_it_is = ["--gallery", gallery, "--backbone", "clip-vit-b-32", "--json"]
    found = json.loads(command("search", "a red dog", *as_it_is))
    assert len(found["rows"]) == 3
    assert main(["search", "ein roter Hund", "--language", "de", *map(str, as_it_is)]) == 1
    assert "a query in 'de'" in capsys.readouterr().err
    row = json.loads(command("evaluate", run, *captions[:2], "--json"))["rows"][0]
    assert row["language"] == "de" and row["captions"] > 0
    command("publish", run, tmp_path / "published", "--refer", "--no-table")
    assert not (tmp_path / "published/backbone").exists(), "CLIP is referred to"
    again = load_run(tmp_path / "published")
    assert torch.equal(again.encode_captions(["ein Hund"], "de"), method.encode_captions(["ein Hund"], "de"))
