"`from dasd_lab import …`: what a script needs first, loaded when it is used"

import subprocess
import sys

import pytest

import dasd_lab
from dasd_lab import Gallery, LabError, load, load_corpus


def test_every_name_of_the_front_door_is_there():
    assert set(dasd_lab.__all__) == set(dasd_lab.DOOR) <= set(dir(dasd_lab))
    assert all(callable(getattr(dasd_lab, name)) for name in dasd_lab.__all__)
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        dasd_lab.trian  # noqa: B018


def test_importing_the_package_loads_no_library():
    code = "import sys, dasd_lab; print(*{name.split('.')[0] for name in sys.modules} - sys.stdlib_module_names)"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"dasd_lab", "__main__"}


def test_a_folder_of_images_is_searched_in_three_lines(tmp_path):
    corpus = load_corpus("pictograms", progress=False)
    ids = corpus.visuals("test").ids[:8]
    for visual_id in ids:
        corpus.picture(visual_id, 160).save(tmp_path / f"{visual_id}.png")
    gallery = Gallery(load("pictograms")).add(str(tmp_path))
    caption = next(c for c in corpus.captions("test", "de") if c.visual_id == ids[3])
    found = gallery.search(caption.text, k=3)
    assert found.ids[0] == f"{ids[3]}.png" or found.ids[0] == ids[3]
    assert "<img" in found._repr_html_()


def test_what_cannot_be_loaded_is_named():
    with pytest.raises(LabError, match="pictogrmas"):
        load("pictogrmas")
