"What a search imports once embeddings are kept: seconds of processor time are spent on imports, not on the search"

import json
import os
import subprocess
import sys

from dasd_lab.corpora.catalog import load_corpus

SEARCH = """
import json, sys
from dasd_lab.cli import main
code = main(sys.argv[1:])
print("MODULES " + json.dumps(sorted({name.split(".")[0] for name in sys.modules})), file=sys.stderr)
sys.exit(code)
"""
# the libraries of image towers, of published models, of tables, statistics and training
NEVER = {"open_clip", "timm", "torchvision", "transformers", "accelerate", "huggingface_hub", "av"}
NEVER |= {"sklearn", "scipy", "umap", "captum", "plotly", "matplotlib", "ipywidgets", "datasets"}
IN_MEMORY = {"pandas", "lance", "pyarrow"}  # a gallery on disk needs its store


def search(*words, **variables) -> tuple[list[str], set[str]]:
    "Images found by `dasd-lab search` in a process of its own, and the packages that it imported"
    environment = os.environ | {name: str(value) for name, value in variables.items()}
    command = [sys.executable, "-c", SEARCH, "search", *map(str, words), "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    modules = done.stderr.rsplit("MODULES ", 1)[1]
    return [row["picture"] for row in json.loads(done.stdout)["rows"]], set(json.loads(modules))


def test_a_second_search_encodes_the_query_alone(tmp_path):
    corpus = load_corpus("pictograms")
    os.symlink(corpus.root.parent, tmp_path / "pictograms")
    words = ["ein Hund am Strand", "--run", "pictograms", "--split", "validation", "-k", 5]
    first, _ = search(*words, DASD_LAB_DATA=tmp_path)
    second, modules = search(*words, DASD_LAB_DATA=tmp_path)
    assert second == first
    assert not modules & (NEVER | IN_MEMORY)
    assert "torch" in modules


def test_a_search_of_a_gallery_on_disk_encodes_the_query_alone(tmp_path):
    from dasd_lab.cli import main

    corpus = load_corpus("pictograms")
    (tmp_path / "pictures").mkdir()
    for id in corpus.visuals("test").ids[:6]:
        corpus.picture(id, 160).save(tmp_path / "pictures" / f"{id}.png")
    gallery = tmp_path / "gallery"  # of the model for photographs
    assert main(["gallery", "import", str(tmp_path / "pictures"), "--gallery", str(gallery)]) == 0
    found, modules = search("ein Hund", "--gallery", gallery, "-k", 6)
    assert len(found) == 6
    assert not modules & NEVER
