"The frozen tower as a method, wherever a run is: galleries, search, service, Ask, evaluation, tables, publishing"

import json
import shutil
from contextlib import closing

import pytest
import torch
from fastapi.testclient import TestClient
from PIL import Image
from test_towers import CASES, NLLB, clip_config, word_level
from tokenizers import pre_tokenizers

from dasd_lab.backbone.languages import TowerLanguages
from dasd_lab.backbone.opening import open_backbone
from dasd_lab.backbone.tokens import CaptionTokenizer
from dasd_lab.backbone.towers import Backbone, build, load_backbone, save_backbone
from dasd_lab.backbone.transformers import build_transformers
from dasd_lab.backbone.weights import CATALOGUE, two_towers
from dasd_lab.base.contracts import LabError
from dasd_lab.base.storage import write_tensors
from dasd_lab.commands.cli import main
from dasd_lab.commands.galleries import served_gallery, service_settings
from dasd_lab.explore.ask.state import AskState
from dasd_lab.explore.workbench import Workbench
from dasd_lab.methods.baselines.frozen import Frozen, FrozenConfig, frozen_method
from dasd_lab.runs.loading import load_run
from dasd_lab.runs.pretrained import Pretrained
from dasd_lab.runs.saved import load_method, save_method
from dasd_lab.search.explain.contributions import explain_words
from dasd_lab.search.gallery.in_memory import Gallery
from dasd_lab.serve.service import gallery_app

SENTENCES = ["ein rotes Quadrat auf der Wiese", "a red square on the meadow", "un chien rouge", "一只红色的狗"]
GERMAN = "ein rotes Quadrat"


def tower(case="xlm-roberta-base-ViT-B-32", **options):
    "A tower of few and narrow layers"
    kind, config, frame = CASES[case]
    torch.manual_seed(0)
    model, text = build(kind, config)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.02 * torch.randn_like(p))
    tokenizer = small_tokenizer(len(text.embedding.weight), frame)
    return Backbone(model, tokenizer, config, case, text=text, kind=kind, **options)


LETTERS = pre_tokenizers.Split("", "isolated")


def small_tokenizer(n, frame):
    "Characters as tokens, never more than the tower has vectors; ids 1, 2, 3 are start, padding and end"
    letters = sorted({c for s in SENTENCES for c in s})[: n - 7]
    names = ["!", "<s>", "<pad>", "</s>", "[EOT]", *letters, "<unk>"]
    t = word_level([*names, "<end>"], LETTERS)
    return CaptionTokenizer(t, frame.get("start", "<s>"), frame.get("end", "</s>"), frame.get("pad", "<pad>"))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    "Folders of towers, one with XLM-R as its text encoder and an English one"
    place = tmp_path_factory.mktemp("towers")
    save_backbone(tower(size=32), place / "xlm-r")
    save_backbone(tower("ViT-B-32", size=32), place / "english")
    return place / "xlm-r", place / "english"


@pytest.fixture(scope="module")
def multilingual(folders):
    return folders[0]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    for colour in ("red", "green", "blue", "black"):
        Image.new("RGB", (60, 40), colour).save(folder / f"{colour}.png")
    return folder


@pytest.mark.parametrize(
    "case,some,number",
    [
        ("ViT-B-32", {"en"}, 1),
        ("ViT-B-16-SigLIP", {"en"}, 1),
        ("dual bert mean", {"en"}, 1),
        ("ChineseCLIPModel", {"zh"}, 1),
        ("xlm-roberta-base-ViT-B-32", {"de", "zh", "uk", "cs", "ar"}, 95),
        ("mt5-base-ViT-B-32", {"de", "zh", "lb"}, 97),
        ("nllb-clip-base", {"de", "zh", "lb", "ay"}, 197),
        ("ViT-B-16-SigLIP2", {"de", "zh", "sw"}, 37),
        ("ViT-H-14-worldwide", {"de", "zh"}, 37),
        ("dual xlm-roberta mean", {"de", "ps"}, 95),
    ],
)
def test_a_tower_is_known_by_its_configuration(case, some, number):
    "A list on its card comes first, see `test_a_folder_of_transformers_is_opened`"
    backbone = tower(case)
    assert some <= set(backbone.languages) and abs(len(backbone.languages) - number) < 6, len(backbone.languages)
    assert backbone.source_language == ("zh" if case == "ChineseCLIPModel" else "en") and backbone.reads.because
    method = Frozen(FrozenConfig(), backbone)
    assert set(method.languages) == set(backbone.languages) - {backbone.source_language}
    for language in (backbone.source_language, *method.languages[:2]):
        found = method.encode_captions(SENTENCES, language)
        assert found.shape == (4, backbone.embed_dim) and found.isfinite().all()
    unknown = "en" if case == "ChineseCLIPModel" else "tlh"
    with pytest.raises(LabError, match=f"a caption in '{unknown}'.*Take a multilingual model"):
        method.encode_captions(SENTENCES, unknown)


def test_nllb_begins_a_sentence_with_its_language():
    names = ["!", "eng_Latn", "<pad>", "</s>", "deu_Latn", "ein", "Hund", "<unk>"]
    config = clip_config("nllb-clip-base", NLLB)
    torch.manual_seed(0)
    model, text = build("open_clip_encoder", config)
    words = CaptionTokenizer(word_level(names), "eng_Latn", "</s>", "<pad>")
    method = Frozen(FrozenConfig(), Backbone(model, words, config, text=text, kind="open_clip_encoder"))
    backbone = method.backbone
    assert backbone.tokens(["ein Hund"], "de")[0].tolist() == [[4, 5, 6, 3]]
    assert (
        backbone.tokens(["ein Hund"], "en")[0].tolist() == backbone.tokens(["ein Hund"])[0].tolist() == [[1, 5, 6, 3]]
    )
    assert not torch.allclose(*(method.encode_captions(["ein Hund"], language) for language in ("de", "en")))


def test_a_folder_of_transformers_is_opened(tmp_path):
    _, config, _ = CASES["ChineseCLIPModel"]
    torch.manual_seed(0)
    model, _ = build_transformers(config)
    names = ["!", "[CLS]", "[PAD]", "[SEP]", "红", "狗", "<unk>"]
    word_level(names, LETTERS).save(str(tmp_path / "tokenizer.json"))
    write_tensors(model.model.state_dict(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config["model"]))
    method = frozen_method(tmp_path)
    assert (method.languages, method.backbone.source_language) == ((), "zh")
    assert Gallery(method).add([Image.new("RGB", (40, 40), "red")], ids=["red"]).search("红狗").ids == ["red"]
    (tmp_path / "README.md").write_text("---\nlanguage: [zh, en]\n---\n")
    assert frozen_method(tmp_path).languages == ("zh",)
    save_backbone(frozen_method(tmp_path).backbone, tmp_path / "kept")
    assert load_backbone(tmp_path / "kept").reads == TowerLanguages(("en", "zh"), "listed on its card")


def test_names_of_the_catalogue_say_how_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setenv("DASD_LAB_WEIGHTS", str(tmp_path))
    assert {"siglip2-vit-b-16", "nllb-clip-base", "chinese-clip-vit-b-16", "clip-vit-b-32"} <= set(two_towers())
    for name in CATALOGUE:
        expected = f"weights get {name}" if name in two_towers() else "a text and an image tower"
        with pytest.raises(LabError, match=expected):
            open_backbone(name)
    with pytest.raises(LabError, match="no backbone 'clip'"):
        open_backbone("clip")


def command(capsys, *words, code=0):
    assert main(list(map(str, words))) == code
    out, err = capsys.readouterr()
    return out if code == 0 else err


def test_from_a_folder_of_pictures_to_a_german_query(folders, pictures, tmp_path, capsys):
    gallery, (multilingual, english) = tmp_path / "gallery", folders
    command(capsys, "gallery", "import", pictures, "--gallery", gallery, "--backbone", multilingual)
    # the gallery remembers its model
    found = json.loads(command(capsys, "search", GERMAN, "--gallery", gallery, "--json"))
    assert len(found["rows"]) == 4 and found["language"] == "de" and found["recognised"]
    given = json.loads(command(capsys, "search", "x", "--language", "ky", "--gallery", gallery, "--json"))
    assert given["language"] == "ky", "a language that cannot be recognised is named"
    row = json.loads(command(capsys, "gallery", "info", gallery, "--json"))["rows"][0]
    assert (row["method"], row["this_run"]) == ("frozen", "yes")
    unchanged = json.loads(command(capsys, "gallery", "import", pictures, "--gallery", gallery, "--json"))
    assert (unchanged["added"], unchanged["unchanged"]) == (0, 4)
    with closing(served_gallery(gallery)) as opened:
        client = TestClient(gallery_app(opened, service_settings()), base_url="http://localhost")
        served = client.get("/api/search", params=dict(text=GERMAN)).json()
        refused = client.get("/api/search", params=dict(text=GERMAN, language="tlh")).json()
    assert sorted(hit["id"] for hit in served["hits"]) == ["black.png", "blue.png", "green.png", "red.png"]
    assert served["language"] == "de" and "'tlh'" in refused["error"]
    # another model beside it
    command(capsys, "gallery", "embed", "--gallery", gallery, "--backbone", english)
    at = "--gallery", gallery, "--backbone", english
    assert len(json.loads(command(capsys, "search", "a red square", *at, "--json"))["rows"]) == 4
    for words, message in {
        (GERMAN, "--language", "de"): "a query in 'de'. Expected one of en",
        ("zwei Hunde rennen durch den Schnee",): "seems to be in 'de', for a method that reads 'en' alone",
        (GERMAN, "--run", "photographs"): "--run with --backbone. Expected one of them",
    }.items():
        assert message in command(capsys, "search", *words, *at, code=1)
    about = next(iter(json.loads((gallery / "gallery.json").read_text())["ways"].values()))
    assert about["run"] == f"frozen:{multilingual}"


def test_a_frozen_tower_is_asked_and_explained(multilingual, pictures):
    gallery = Gallery(frozen_method(multilingual)).add(pictures)
    state = AskState(Workbench(gallery.method, gallery=gallery))
    (answer,) = state.ask(GERMAN, "de").values()
    assert len(answer.hits) == 4 and not state.message
    state.ask(GERMAN, "tlh")
    assert "tlh" in (state.message or str(state.refusals))
    for algorithm in ("leave_one_out", "integrated_gradients"):
        words = explain_words(gallery, GERMAN, gallery.ids[0], "de", algorithm)
        assert len(words.words) == 3 and words.language == "de" and abs(words.delta) < 1


def test_a_frozen_tower_is_saved_loaded_and_published_like_a_run(multilingual, tmp_path):
    method = frozen_method(multilingual)
    run = tmp_path / "run"
    shutil.copytree(multilingual, run / "backbone")
    save_method(method, run / "method")
    again = load_method(run / "method", method.backbone)
    assert isinstance(again, Frozen) and again.languages == method.languages
    assert torch.equal(again.encode_captions([GERMAN], "de"), method.encode_captions([GERMAN], "de"))
    assert load_run(f"frozen:{multilingual}").languages == method.languages, "wherever a run is named"
    Pretrained(method, name="as it is").save_pretrained(tmp_path / "published")
    published = Pretrained.from_pretrained(tmp_path / "published").method
    assert torch.equal(published.encode_captions([GERMAN], "de"), method.encode_captions([GERMAN], "de"))
    assert frozen_method(tmp_path / "published").languages == frozen_method(run).languages == method.languages
