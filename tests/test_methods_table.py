"Every method in every language on a made-up Flickr8k, and descriptions by retrieval"

import json

import pytest
from squares import TINY
from test_flickr8k import joined_corpus

from dasd_lab.backbone.retrieved import RetrievedCaptions, describe_by_retrieval
from dasd_lab.backbone.towers import save_backbone
from dasd_lab.base.contracts import LabError
from dasd_lab.base.presets import vary
from dasd_lab.commands.cli import main
from dasd_lab.corpora.by_machine.translators import Translator
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.evaluation.fields import field_test, usual_fields
from dasd_lab.evaluation.methods import MethodRuns, method_run, run_methods
from dasd_lab.evaluation.studies import StudyData, read_runs

LANGUAGES = ("de",)
SHORT = vary(TINY, {"stages.0.steps": 4, "stages.1.steps": 2, "training_captions": ["mt", "human"]})


class Colours(Translator):
    "German names of colours in English; other words stay"

    name = "colours"
    languages = ("en",)
    words = dict(rote="red", rotes="red", blaue="blue", blaues="blue", grüne="green", grünes="green")

    def translate(self, texts, source, target):
        return [" ".join(self.words.get(word.lower(), word) for word in text.split()) for text in texts]


@pytest.fixture
def corpus(tmp_path):
    joined_corpus(tmp_path / "flickr8k")
    return load_corpus("flickr8k", root=tmp_path / "flickr8k")


def shared(corpus, backbone, tmp_path, **options):
    data = StudyData(corpus, backbone, features=tmp_path / "features")
    return MethodRuns(data, usual_fields(corpus, LANGUAGES), **options)


def test_fields_are_compared_with_what_they_translate(corpus):
    assert usual_fields(corpus, ["de", "fr"]) == ["de", "m30k_de", "fr_mt"]
    assert [c.text for c in field_test(corpus, "m30k_de").english][0].startswith("A ")
    written = field_test(corpus, "de")
    assert len(written.english) == len(written.captions) == 8


def test_every_run_is_a_line_and_is_not_repeated(corpus, backbone, tmp_path):
    out = tmp_path / "out.jsonl"
    runs = [method_run("frozen", LANGUAGES), method_run("translated", LANGUAGES)]
    runs += [method_run("dasd", LANGUAGES, seed, SHORT) for seed in (0, 1)]
    said = []
    given = shared(corpus, backbone, tmp_path, engine=Colours())
    table = run_methods(runs, given, out, said.append)
    rows = read_runs(out)
    assert [(r["method"], r["seed"]) for r in rows] == [("frozen", 0), ("translated", 0), ("dasd", 0), ("dasd", 1)]
    assert rows[2]["parameters"] > 0
    assert rows[1]["engine"] == dict(de="colours") and rows[0]["cpu_s"] == 0 and rows[0]["query_ms"] > 0
    assert all(set(r["fields"]) == {"de", "m30k_de"} for r in rows)
    english = {r["fields"]["m30k_de"]["english_mean_recall"] for r in rows}
    assert len(english) == 1  # whatever the method
    assert list(dict.fromkeys(table["method"])) == ["frozen", "translated", "dasd", "English"]
    assert set(table.loc[table["method"] == "dasd", "seeds"]) == {2}
    assert len(said) == 4 and "share of the English mean recall" in said[0]
    assert run_methods(runs, given, out, said.append).equals(table)
    assert len(said) == len(read_runs(out)) == 4
    other = [method_run("dasd", LANGUAGES, 2, vary(SHORT, {"stages.0.steps": 3}))]
    with pytest.raises(LabError, match="runs of dasd for de with other settings"):
        run_methods(other, given, out)
    run_methods([method_run("translated", LANGUAGES)], shared(corpus, backbone, tmp_path), out, said.append)
    assert "left out: no engine" in said[-1]


def test_the_command_evaluates_the_split_that_it_is_given(corpus, backbone, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DASD_LAB_FLICKR8K", str(corpus.root))
    monkeypatch.setenv("DASD_LAB_DATA", str(tmp_path / "lab"))
    save_backbone(backbone, tmp_path / "backbone")
    words = ["table", "methods", "--corpus", "flickr8k", "--methods", "frozen", "--languages", "de", "--seeds", "0"]
    words += ["--backbone", str(tmp_path / "backbone"), "--out", str(tmp_path / "runs.jsonl")]
    assert main([*words, "--split", "validation", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    (line,) = read_runs(tmp_path / "runs.jsonl")
    assert line["split"] == "validation"
    assert {row["field"] for row in rows} == set(line["fields"]) and rows[0]["method"] == "frozen"
    refused = [
        ([], "another split"),
        (["--languages", "ja"], "no captions in ja"),
    ]
    for added, said in refused:
        assert main([*words, *added]) == 1
        assert said in capsys.readouterr().err


def test_descriptions_by_retrieval(corpus, backbone, tmp_path):
    (made,) = describe_by_retrieval(corpus, backbone, ["train"], tmp_path / "features")
    assert made.captioner == RetrievedCaptions.name and not made.failed and len(made.ids) == 32
    assert corpus.captioner("train")["fingerprint"] == made.fingerprint
    assert describe_by_retrieval(corpus, backbone, ["train"]) == []
    manifest = json.loads((made.folder / "manifest.json").read_text())
    assert manifest["settings"]["own_captions"] is False and manifest["settings"]["corpus"] == "flickr8k"
