"What a search imports once embeddings are kept: seconds of processor time are spent on imports, not on the search"

import json
import os
import subprocess
import sys

from dasd_lab.commands.cli import main
from dasd_lab.corpora.catalog import load_corpus

SEARCH = """
import json, sys
from dasd_lab.commands.cli import main
code = main(sys.argv[1:])
print("MODULES " + json.dumps(sorted({name.split(".")[0] for name in sys.modules})), file=sys.stderr)
sys.exit(code)
"""
# the libraries of image towers, of published models, of tables, statistics and training
NEVER = {"open_clip", "timm", "torchvision", "transformers", "accelerate", "huggingface_hub", "av"}
NEVER |= {"sklearn", "scipy", "umap", "captum", "plotly", "matplotlib", "ipywidgets", "datasets"}
NEVER |= {"sympy"}  # of torch's compiler, which a method that is built without memory could import
NEVER |= {"pandas", "lance", "pyarrow"}  # the store of a gallery on disk has a copy that needs none of them


def pictures(listed: str) -> list[str]:
    "Images that `dasd-lab search --json` printed"
    return [row["picture"] for row in json.loads(listed)["rows"]]


def search(*words) -> tuple[list[str], set[str]]:
    "Images found by `dasd-lab search` in a process of its own, and the packages that it imported"
    command = [sys.executable, "-c", SEARCH, "search", *map(str, words), "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    modules = done.stderr.rsplit("MODULES ", 1)[1]
    return pictures(done.stdout), set(json.loads(modules))


def test_a_second_search_encodes_the_query_alone(tmp_path, monkeypatch, capsys):
    os.symlink(load_corpus("pictograms").root.parent, tmp_path / "pictograms")
    words = ["ein Hund am Strand", "--run", "pictograms", "--split", "validation", "-k", 5]
    monkeypatch.setenv("DASD_LAB_DATA", str(tmp_path))
    assert main(["search", *map(str, words), "--json"]) == 0
    first = pictures(capsys.readouterr().out)
    second, modules = search(*words)
    assert second == first
    assert not modules & NEVER
    assert "torch" in modules


def test_a_search_of_a_gallery_on_disk_encodes_the_query_alone(tmp_path):
    corpus = load_corpus("pictograms")
    (tmp_path / "pictures").mkdir()
    for id in corpus.visuals("test").ids[:6]:
        corpus.picture(id, 160).save(tmp_path / "pictures" / f"{id}.png")
    gallery = tmp_path / "gallery"  # of the model for photographs
    assert main(["gallery", "import", str(tmp_path / "pictures"), "--gallery", str(gallery)]) == 0
    found, modules = search("ein Hund", "--gallery", gallery, "-k", 6)
    assert len(found) == 6
    assert not modules & NEVER
