"Feature stores with several processes, encoders killed at random points, and damaged files"

import os
import random
import shutil
import signal
import time
from collections import Counter
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch

from dasd_lab.backbone import encoding, shards
from dasd_lab.backbone.encoding import encode_shards
from dasd_lab.backbone.features import frozen_features
from dasd_lab.backbone.shards import shard_fault
from dasd_lab.backbone.store import open_store, read_plan
from dasd_lab.backbone.tokens import train_tokenizer
from dasd_lab.backbone.towers import Backbone, build_clip
from dasd_lab.contracts import Caption, LabError
from dasd_lab.corpora.catalog import Corpus
from dasd_lab.corpora.visuals import Visuals

# processes are forked from a server that has imported torch once
PROCESSES = get_context("forkserver")
PROCESSES.set_forkserver_preload(["dasd_lab.backbone.encoding", "dasd_lab.training.recipes", __name__])
N, ROWS = 400, 8  # pictures, and rows of a shard: fifty shards of pictures and forty of captions


class Many(Corpus):
    "Images of noise; some captions occur twice"

    name = "many"
    languages = ("en",)
    splits = ("train",)

    def _captions(self, split, language):
        return [Caption(f"picture {i % 320}.", "en", f"v{i}") for i in range(N)]

    def visuals(self, split):
        return Visuals(
            [f"v{i}" for i in range(N)], lambda i: np.random.default_rng(i).integers(0, 256, (1, 20, 16, 3), np.uint8)
        )


def tower(seed: int = 0) -> Backbone:
    "A tiny backbone with the same weights in every process"
    torch.manual_seed(seed)
    cfg = dict(
        embed_dim=16,
        vision_cfg=dict(image_size=16, layers=1, width=32, patch_size=8, head_width=16),
        text_cfg=dict(context_length=12, vocab_size=60, width=32, heads=2, layers=1, pool_type="eos", eos_id=3),
    )
    return Backbone(build_clip(cfg), train_tokenizer(["picture 0123456789."] * 3, 60), cfg, "tiny")


def encode(folder, backbone=None, **options):
    return encode_shards(backbone or tower(), Many(), "train", folder, **dict(shard_rows=ROWS) | options)


def logged(folder: Path, log: Path, die: str = "", **options) -> None:
    "Encode in a process; log the first item of every batch, and optionally die while writing the third shard"
    backbone = tower()
    encode_pictures = backbone.encode_pictures
    encode_source = backbone.encode_source

    def note(item):
        with open(log, "a") as f:
            f.write(item + "\n")
        time.sleep(0.003)

    def logged_pictures(pictures, *args, **kwargs):
        note(pictures[0].id)
        return encode_pictures(pictures, *args, **kwargs)

    def logged_source(captions, *args, **kwargs):
        note(captions[0])
        return encode_source(captions, *args, **kwargs)

    backbone.encode_pictures = logged_pictures
    backbone.encode_source = logged_source
    if die:
        die_at_third_shard(die)
    encode(folder, backbone, **options)


def die_at_third_shard(when: str) -> None:
    "Kill this process at some point of writing its third shard"
    shards_written = 0
    replace = os.replace
    write = Path.write_bytes

    def third_shard(name):
        nonlocal shards_written
        if name.endswith(".safetensors") and "-ids" not in name:
            shards_written += 1
        return shards_written == 3

    def kill():
        os.kill(os.getpid(), signal.SIGKILL)

    def dying_replace(source, destination):
        if when == "before the rename" and third_shard(str(destination)):
            kill()
        replace(source, destination)
        if when == "after the rename" and third_shard(str(destination)):
            kill()

    def dying_write(self, data):
        name = self.name.partition(".safetensors")[0] + ".safetensors"
        if when == "in the middle of the file" and third_shard(name):
            write(self, data[: len(data) // 2])
            kill()
        return write(self, data)

    os.replace = dying_replace
    Path.write_bytes = dying_write


def process(*args, **kwargs):
    "Start a process that runs `logged`"
    p = PROCESSES.Process(target=logged, args=args, kwargs=kwargs)
    p.start()
    return p


def contents(folder: Path) -> dict[str, bytes]:
    return {f.name: f.read_bytes() for f in folder.iterdir() if not f.name.startswith(".")}


def block(name: str) -> str:
    "The log entry of a shard: its first item"
    part, number, _ = name.split("-", 2)
    first = int(number) * ROWS
    return f"v{first}" if part == "image" else f"picture {first}."


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("straight")
    shutil.rmtree(folder)
    assert encode(folder).missing == []
    assert len(read_plan(folder).shards) == 90
    return folder


@pytest.mark.parametrize("world", (2, 3))
def test_shares_encoded_at_once_make_the_same_store(straight, tmp_path, world):
    shares = [process(tmp_path / "store", tmp_path / f"log {r}", rank=r, world_size=world) for r in range(world)]
    for p in shares:
        p.join()
    assert [p.exitcode for p in shares] == [0] * world
    assert contents(tmp_path / "store") == contents(straight)
    asked = [(tmp_path / f"log {r}").read_text().split("\n")[:-1] for r in range(world)]
    assert sorted(sum(asked, [])) == sorted(block(s.name) for s in read_plan(straight).shards)
    assert max(map(len, asked)) - min(map(len, asked)) <= 1


def check_what_is_there(folder: Path) -> set[str]:
    "Names of the shards in a folder, every one of them whole"
    if not (folder / "plan.json").is_file():
        return set()
    plan = read_plan(folder)
    there = {s.name for s in plan.shards if (folder / s.name).exists()}
    faults = {name: shard_fault(folder / name, plan.facts(name)) for name in there}
    assert set(faults.values()) <= {None}, faults
    return there


def test_an_encoder_killed_at_twenty_random_points(straight, tmp_path):
    rng = random.Random(0)
    kills = 0
    stores = 0
    while kills < 20:
        folder = tmp_path / f"store {stores}"
        log = tmp_path / f"log {stores}"
        asked = Counter()
        stores += 1
        ended = here = False
        while not ended:
            there = check_what_is_there(folder)
            log.write_text("")
            p = process(folder, log)
            # half of the signals come from anywhere, half while it encodes; the last process is left to end
            if kills % 2:
                while p.is_alive() and not log.stat().st_size:
                    time.sleep(0.002)
            p.join(None if kills >= 20 else rng.uniform(0.005, 0.05) if kills % 2 else rng.uniform(0.02, 0.5))
            p.kill()
            p.join()
            ended = p.exitcode == 0
            assert p.exitcode in (0, -signal.SIGKILL)
            kills += not ended
            here += not ended
            now = log.read_text().split("\n")[:-1]
            asked.update(now)
            assert not {block(n) for n in there} & set(now), "a whole shard was computed again"
        assert contents(folder) == contents(straight), "the end is not that of an uninterrupted encoder"
        assert len(asked) == 90 and sum(asked.values()) - 90 <= here, "more than one shard a kill was computed again"
        assert not [f.name for f in folder.iterdir() if f.name.startswith((".image", ".source"))], (
            "halves were left behind"
        )


@pytest.mark.parametrize(
    "die,whole", [("in the middle of the file", 2), ("before the rename", 2), ("after the rename", 3)]
)
def test_killed_while_it_writes(straight, tmp_path, die, whole):
    p = process(tmp_path / "store", tmp_path / "log", die)
    p.join()
    assert p.exitcode == -signal.SIGKILL
    assert len(check_what_is_there(tmp_path / "store")) == whole
    if whole == 2:
        assert any(f.name.startswith(".image-00002") for f in (tmp_path / "store").iterdir())
    assert len(encode(tmp_path / "store").written) == 90 - whole
    assert contents(tmp_path / "store") == contents(straight)
    assert not any(f.name.startswith(".image") for f in (tmp_path / "store").iterdir())


def test_other_numbers_of_processes_go_on_with_it(straight, tmp_path):
    p = process(tmp_path / "store", tmp_path / "log", "after the rename", rank=1, world_size=3)
    p.join()
    first = encode(tmp_path / "store", rank=1, world_size=2)
    second = encode(tmp_path / "store", rank=0, world_size=2)
    assert len(first.written) + len(second.written) == 87
    assert contents(tmp_path / "store") == contents(straight)


def shell(words: list, environment: dict, out: str) -> None:
    "The command in a process of its own, as torchrun starts it"
    import contextlib

    from dasd_lab.cli import main
    from dasd_lab.corpora.catalog import register_corpus

    register_corpus("many")(Many)
    os.environ |= environment
    with open(out, "w") as f, contextlib.redirect_stdout(f), contextlib.redirect_stderr(f):
        code = main(words)
    os._exit(code)


def test_the_command_takes_its_share_from_the_environment(straight, tmp_path):
    from dasd_lab.backbone.towers import save_backbone

    save_backbone(tower(), tmp_path / "backbone")
    words = [
        "features",
        "many",
        "--backbone",
        str(tmp_path / "backbone"),
        "--shard-rows",
        str(ROWS),
        "--out",
        str(tmp_path / "store"),
    ]

    def together(*more):
        shares = [
            PROCESSES.Process(
                target=shell, args=([*words, *more], dict(RANK=str(r), WORLD_SIZE="2"), str(tmp_path / f"out {r}"))
            )
            for r in range(2)
        ]
        for p in shares:
            p.start()
        for p in shares:
            p.join()
        return [p.exitcode for p in shares], [(tmp_path / f"out {r}").read_text() for r in range(2)]

    codes, told = together()
    assert codes == [0, 0], told
    assert contents(tmp_path / "store") == contents(straight)
    assert any("400 rows of [16] in float16, 50 shards" in t for t in told)
    codes, told = together("--dtype", "bfloat16")
    assert codes == [1, 1]
    assert all("a store of another dtype (float16)" in t and "Traceback" not in t for t in told)


# --- what is wrong with a folder


def cut(file):
    file.write_bytes(file.read_bytes()[:-3])


def change(file):
    data = bytearray(file.read_bytes())
    data[-5] ^= 4
    file.write_bytes(data)


def empty(file):
    file.write_bytes(b"")


@pytest.mark.parametrize(
    "harm,told",
    [(cut, "was cut short"), (empty, "was cut short"), (change, "was changed"), (Path.unlink, "is missing")],
)
@pytest.mark.parametrize("name", ["image-00003-of-00050.safetensors", "source-ids.safetensors"])
def test_a_file_that_is_not_whole(straight, tmp_path, harm, told, name):
    folder = shutil.copytree(straight, tmp_path / "store")
    open_store(folder)
    harm(folder / name)
    with pytest.raises(LabError, match=f"{name}, which {told}.*run the same `dasd-lab features` again"):
        open_store(folder)
    assert encode(folder).written == ([] if "ids" in name else [name])
    assert contents(folder) == contents(straight)


def test_a_shard_of_another_store(straight, tmp_path):
    folder = shutil.copytree(straight, tmp_path / "store")
    name = "image-00003-of-00050.safetensors"
    encode(tmp_path / "other", tower(1), rank=3, world_size=90)
    shutil.copy(tmp_path / "other" / name, folder)
    for call in (open_store, encode, encoding.finish_store):
        with pytest.raises(LabError, match="belongs to another store.*Remove"):
            call(folder)
    assert (folder / name).read_bytes() == (tmp_path / "other" / name).read_bytes()  # refused, not repaired


@pytest.mark.parametrize(
    "given,told",
    [
        (dict(backbone=tower(1)), "another weights"),
        (dict(dtype="bfloat16"), "another dtype"),
        (dict(shard_rows=16), "another shard_rows"),
        (dict(parts=["image"]), "another parts"),
    ],
)
def test_another_store_in_the_same_folder(straight, given, told):
    before = contents(straight)
    with pytest.raises(LabError, match=f"{told}.*Choose another folder"):
        encode(straight, **given)
    assert contents(straight) == before


def test_a_store_that_lacks_shards_says_how_many(straight, tmp_path):
    encode(tmp_path / "store", rank=1, world_size=2)
    with pytest.raises(LabError, match="lacks 47 of 92 files.*resumes"):
        open_store(tmp_path / "store")


# --- what it holds


@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
@pytest.mark.parametrize("rows", (8, 4096))
def test_rows_are_what_the_tower_says(tmp_path, dtype, rows):
    backbone = tower()
    encode(tmp_path / "store", backbone, dtype=dtype, shard_rows=rows)
    store = open_store(tmp_path / "store")
    kind = shards.TYPES[dtype][0]
    # in the batches of the shards
    pictures = torch.cat(
        [backbone.encode_pictures(Many().visuals("train")[i : i + min(rows, 256)]) for i in range(0, N, min(rows, 256))]
    )
    assert torch.equal(store["image"].float(), pictures.to(kind).float())
    at = np.random.default_rng(0).integers(0, N, 99)
    assert torch.equal(store["image"][at], pictures[at].to(kind).float())
    captions = [c.text for c in Many().captions("train", "en")]
    found = store["source"][store.ids["source"].rows(captions)]
    torch.testing.assert_close(found, backbone.encode_source(captions), atol=0.02, rtol=0.02)


def test_training_batches_come_from_the_store(straight):
    from dasd_lab.training.stages import CaptionBatches

    kept = frozen_features(tower(), Many(), "train", straight)
    found = frozen_features(tower(), Many(), "train")
    texts = [c.text for c in Many().captions("train", "en")]
    assert kept.rows(texts) == found.rows(texts)
    rows = dict(de=[[1, i % 7, 2] for i in range(N)])

    def pad(r):
        return (torch.tensor(r), torch.full((len(r),), 2))

    batches = [
        CaptionBatches(rows, pad, dict(de=f.rows(texts)), f.source_features, dict(de=range(N)), f.image_features, 16)
        for f in (kept, found)
    ]
    for step in (0, 3, 40):
        a, b = (x(step) for x in batches)
        for k in ("source_features", "image_features"):
            assert a[k].dtype == torch.float32
            torch.testing.assert_close(a[k], b[k], atol=2e-3, rtol=2e-3)


def test_frames_of_clips(tmp_path):
    class Framed(Many):
        name = "framed"

        def visuals(self, split):
            return Visuals(
                [f"c{i}" for i in range(30)],
                lambda i: np.random.default_rng(i).integers(0, 256, (1 + i % 3, 16, 16, 3), np.uint8),
            )

    backbone = tower()
    encode_shards(
        backbone, Framed(), "train", tmp_path / "store", parts=["image", "frames"], shard_rows=7, frames=4, workers=1
    )
    store = open_store(tmp_path / "store")
    assert store["frames"].shape == (30, 4, 16)
    assert store.mask().sum(1).tolist() == [1 + i % 3 for i in range(30)]
    for i in (0, 8, 29):
        told = backbone.encode_pictures(list(Framed().visuals("train")[i].frames))
        torch.testing.assert_close(store["frames"][i][store.mask()[i]], told, atol=2e-3, rtol=2e-3)
        assert not store["frames"][i][~store.mask()[i]].any()


def test_training_skips_what_could_not_be_read(tmp_path):
    from dasd_lab.training.recipes import training_data

    class Two(Many):
        languages = "en", "de"

        def _captions(self, split, language):
            return [Caption(f"picture {i}.", language, f"v{i}") for i in range(N)]

    encode_shards(tower(), Two(), "train", tmp_path / "store", shard_rows=ROWS, left_out=["v3", "v9"])
    data = training_data(Two(), ["de"], tower(), tmp_path / "store")
    assert len(data.pairs["de"]) == N - 2
    assert not {3, 9} & set(data.pairs["de"].visual_index.tolist())


def test_places_where_nothing_can_be_written_and_consoles_without_the_letters(tmp_path):
    import subprocess
    import sys

    with pytest.raises(LabError, match="could not be written"):
        encode("/proc/no/store")
    from dasd_lab.storage import whole_folder

    with pytest.raises(LabError, match="could not be written"), whole_folder("/proc/no/folder"):
        pass
    told = subprocess.run(
        [sys.executable, "-m", "dasd_lab.cli", "evaluate", "日本語"],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "cp1252"},
    )
    assert told.returncode == 1
    assert b"Traceback" not in told.stderr
