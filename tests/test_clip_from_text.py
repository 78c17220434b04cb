"""From the layout that `weights get clip-vit-b-32` leaves to a German query on a folder of pictures, by commands alone

The weights are random: a narrow tower with CLIP's tokenizer in the usual tests, the real ViT-B/32 and 119,547 token
vectors in `make soak`."""

import json
import os
from dataclasses import replace

import open_clip
import pytest
import torch
from PIL import Image
from tokenizers import AddedToken

from dasd_lab.backbone.open_clip import registry_config
from dasd_lab.backbone.text_towers import build_clip
from dasd_lab.backbone.tokens import train_tokenizer
from dasd_lab.backbone.weights import CATALOGUE, import_weights
from dasd_lab.base.presets import load_preset
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
# number of token vectors and their width
SIZES = dict(
    tiny=(300, 24),
    real=(119_547, 768),
)


def leave_weights(name, file, tensors, monkeypatch, folder, opens=None, more=()):
    "Import random weights as `weights get` does; the catalogue gets their checksum instead of the published"
    download = folder / f"download-{name}"
    download.mkdir(exist_ok=True)
    path = download / file
    write_tensors(tensors, path)
    entry = CATALOGUE[name]
    entry = replace(entry, files=entry.files | {path.name: sha256(path)}, opens=opens or entry.opens)
    monkeypatch.setitem(CATALOGUE, name, entry)
    for other, content in more:
        (download / other).write_text(content)
    return import_weights(name, download)


@pytest.fixture(
    params=[
        "tiny",
        pytest.param("real", marks=pytest.mark.skipif("SOAK" not in os.environ, reason="only in make soak")),
    ]
)
def options(request, tmp_path, monkeypatch):
    "Options of `train` for the weights, captions and pictures that it writes"
    monkeypatch.setenv("DASD_LAB_DATA", str(tmp_path))
    monkeypatch.setenv("DASD_LAB_WEIGHTS", str(tmp_path / "weights"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    torch.manual_seed(0)
    tower = "ViT-B-32-quickgelu"
    if request.param == "tiny":
        tower = "tiny-clip-from-text"
        (tmp_path / f"{tower}.json").write_text(json.dumps(TINY))
        open_clip.add_model_config(tmp_path / f"{tower}.json")
    clip = build_clip(registry_config(tower))
    leave_weights("clip-vit-b-32", "open_clip_model.safetensors", clip.state_dict(), monkeypatch, tmp_path, tower)
    if request.param == "real":
        published = load_preset("dasd.clip_from_text")
        assert (tmp_path / "weights/clip-vit-b-32/open_clip_model.safetensors").stat().st_size == 605143284
        assert SIZES["real"] == (published["token_vectors"]["n_tokens"], published["config"]["token_width"])
    n_tokens, width = SIZES[request.param]
    lines = [f"ein {c} Ding, ein {t}" for c in COLOURS.values() for t in THINGS.values()]
    words = train_tokenizer(lines, n_tokens).tokenizer
    words.add_tokens([AddedToken(f"unused{i}") for i in range(n_tokens - words.get_vocab_size())])
    rows = {"bert.embeddings.word_embeddings.weight": 0.02 * torch.randn(n_tokens, width)}
    texts = [("tokenizer.json", words.to_str()), ("config.json", "{}")]
    leave_weights("mbert", "model.safetensors", rows, monkeypatch, tmp_path, more=texts)
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
    small = ["--set", f"token_vectors.n_tokens={n_tokens}", "--set", f"config.token_width={width}"]
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
