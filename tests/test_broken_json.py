"JSON that people or other programs wrote: a broken text is refused in one line, or its line is left out"

import json

import pytest
from PIL import Image

from dasd_lab.backbone.transformers import folder_json
from dasd_lab.base.contracts import LabError
from dasd_lab.commands.cli import main
from dasd_lab.corpora.captions import read_captions
from dasd_lab.corpora.own.corpus import understand
from dasd_lab.corpora.published.files import json_file

BROKEN = {"{": "Expecting", "[" * 10**5: "recursion", "9" * 5000: "digits"}
parametrize = pytest.mark.parametrize("text", BROKEN, ids=lambda text: text[:1])
READERS = dict(captions=read_captions, file=json_file)


def refused(call, *words):
    with pytest.raises(LabError) as e:
        call()
    assert e.value.next_step and e.value.expected and all(word in str(e.value) for word in words), e.value


@parametrize
@pytest.mark.parametrize("reader", READERS)
def test_a_broken_line_or_file_is_refused(tmp_path, reader, text):
    file = tmp_path / "train.jsonl"
    file.write_text(text + "\n")
    refused(lambda: READERS[reader](file), "train.jsonl", BROKEN[text])


@parametrize
def test_a_broken_line_of_a_corpus_is_a_fault(tmp_path, capsys, text):
    (tmp_path / "pictures").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "pictures/a.png")
    row = json.dumps(dict(text="ein rotes Quadrat", visual_id="a.png", language="de"))
    (tmp_path / "c.jsonl").write_text(f"{row}\n{text}\n")
    found = understand(tmp_path / "c.jsonl", tmp_path / "pictures").fault_table()
    assert found["what"].str.contains(BROKEN[text]).any()
    assert main(["corpus", "check", str(tmp_path / "c.jsonl"), "--language", "de"]) in (0, 1)
    assert "Traceback" not in "".join(capsys.readouterr())


@parametrize
def test_a_broken_configuration_of_a_published_model(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    refused(lambda: folder_json(tmp_path, "config.json"), "config.json", "Fetch it again")


@parametrize
def test_a_broken_option(tmp_path, capsys, text):
    (tmp_path / "gallery.json").write_text("{}")
    assert main(["search", "dog", "--gallery", str(tmp_path), "--where", text]) == 1
    message = capsys.readouterr().err.strip()
    assert "--where" in message and BROKEN[text] in message and "\n" not in message and len(message) < 300
    assert main(["train", "dasd.pictograms", "--dry-run", "--set", f"frames={text}"]) == 1
    assert "a whole number" in capsys.readouterr().err
