"Feature stores, encoders killed while they write, and folders of other stores"

import os
import signal
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch

from dasd_lab.backbone.encoding import encode_shards
from dasd_lab.backbone.store import is_whole, open_store, read_plan
from dasd_lab.backbone.tokens import train_tokenizer
from dasd_lab.backbone.towers import Backbone, build_clip, save_backbone
from dasd_lab.base.contracts import Caption, LabError
from dasd_lab.commands.cli import main
from dasd_lab.corpora.catalog import CORPORA, Corpus, register_corpus
from dasd_lab.corpora.visuals import Visuals

# processes are forked from a server that has imported torch once
PROCESSES = get_context("forkserver")
PROCESSES.set_forkserver_preload(["open_clip", "dasd_lab.backbone.encoding", __name__])
N, ROWS = 200, 8  # pictures, and rows of a shard: 25 shards of pictures and 20 of captions


class Many(Corpus):
    "Images of noise; some captions occur twice"

    name = "many"
    languages = ("en", "de")
    splits = ("train",)

    def _captions(self, split, language):
        return [Caption(f"picture {i % 160}.", language, f"v{i}") for i in range(N)]

    def visuals(self, split):
        def noise(i):
            return np.random.default_rng(i).integers(0, 256, (1, 20, 16, 3), np.uint8)

        return Visuals([f"v{i}" for i in range(N)], noise)


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


def contents(folder: Path) -> dict[str, bytes]:
    return {f.name: f.read_bytes() for f in folder.iterdir() if not f.name.startswith(".")}


def whole_shards(folder: Path) -> int:
    "The number of shards that were written; every one that is there is whole"
    plan = read_plan(folder)
    files = [folder / shard.name for shard in plan.shards if (folder / shard.name).exists()]
    assert all(is_whole(file, plan) for file in files)
    return len(files)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("straight") / "store"
    assert len(encode(folder).written) == len(read_plan(folder).shards) == 45
    return folder


def die_at_third_shard(folder: Path, when: str) -> None:
    "Encode, and kill this process while it writes its third shard"
    replace, shards_written = os.replace, 0

    def dying_replace(source, destination):
        nonlocal shards_written
        shards_written += str(destination).endswith(".safetensors")
        if shards_written == 3 and when == "before the rename":
            os.kill(os.getpid(), signal.SIGKILL)
        replace(source, destination)
        if shards_written == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = dying_replace
    encode(folder)


@pytest.mark.parametrize("when,whole", [("before the rename", 2), ("after the rename", 3)])
def test_an_encoder_killed_while_it_writes_is_continued(straight, tmp_path, when, whole):
    killed = PROCESSES.Process(target=die_at_third_shard, args=(tmp_path / "store", when))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert whole_shards(tmp_path / "store") == whole
    assert bool(list((tmp_path / "store").glob(".image*"))) == (whole == 2)
    assert len(encode(tmp_path / "store").written) == 45 - whole
    assert contents(tmp_path / "store") == contents(straight)


def test_the_command_completes_a_store_and_refuses_another_type(straight, tmp_path, capfd):
    register_corpus("many")(Many)
    save_backbone(tower(), tmp_path / "backbone")
    words = ["features", "many", "--backbone", str(tmp_path / "backbone"), "--shard-rows", str(ROWS)]
    words += ["--out", str(tmp_path / "store")]
    try:
        assert main(words) == 0
        assert "200 rows of [16] in float16, 25 shards" in capfd.readouterr().err
        assert main([*words, "--dtype", "bfloat16"]) == 1
    finally:
        CORPORA.pop("many")
    assert "a store of another dtype (float16)" in capfd.readouterr().err
    assert contents(tmp_path / "store") == contents(straight)


@pytest.mark.parametrize(
    "given,told",
    [
        (dict(backbone=tower(1)), "another weights"),
        (dict(shard_rows=16), "another shard_rows"),
        (dict(parts=["image"]), "another parts.source"),
    ],
)
def test_a_folder_with_another_store_is_refused(straight, given, told):
    before = contents(straight)
    with pytest.raises(LabError, match=f"{told}.*Choose another folder"):
        encode(straight, **given)
    assert contents(straight) == before


@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
def test_rows_are_those_of_the_tower_in_the_type_of_the_store(tmp_path, dtype):
    backbone = tower()
    encode(tmp_path / "store", backbone, dtype=dtype, shard_rows=64)
    store = open_store(tmp_path / "store", check=True)
    visuals = Many().visuals("train")
    pictures = torch.cat([backbone.encode_pictures(visuals[i : i + 64]) for i in range(0, N, 64)])
    rounded = pictures.to(getattr(torch, dtype)).float()
    some = np.random.default_rng(0).integers(0, N, 99)
    assert torch.equal(store["image"].float(), rounded)
    assert torch.equal(store["image"][some], rounded[some])
    captions = store.ids["source"]
    torch.testing.assert_close(store["source"][3:9], backbone.encode_source(captions[3:9]), atol=0.02, rtol=0.02)


def test_training_skips_images_that_were_left_out(tmp_path):
    from dasd_lab.training.recipes import training_data

    encode_shards(tower(), Many(), "train", tmp_path / "store", shard_rows=ROWS, left_out=["v3", "v9"])
    data = training_data(Many(), ["de"], tower(), tmp_path / "store")
    assert len(data.pairs["de"]) == N - 2
    assert not {3, 9} & set(data.pairs["de"].visual_index.tolist())


def test_a_place_where_nothing_can_be_written_is_named():
    with pytest.raises(LabError, match="could not be written"):
        encode("/proc/no/store")
