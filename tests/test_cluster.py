"Studies and features on three nodes, one of which is killed: nothing is lost, and results are those of one process"

import json
import os
import time
from functools import partial
from pathlib import Path
from threading import Thread

import pytest
import ray
from squares import TINY, Tested
from test_feature_store import ROWS, Many, contents, tower

from dasd_lab.backbone.encoding import encode_shards
from dasd_lab.base.presets import vary
from dasd_lab.base.workers import Workers
from dasd_lab.evaluation.studies import StudyData, read_runs
from dasd_lab.evaluation.study_files import StudyRuns, ranks_folder, read_study

pytestmark = pytest.mark.slow
TESTS = Path(__file__).parent
ROWS_OF_STUDY = [dict(name="DASD"), dict(name="narrow", changes={"config.adapter.bottleneck": 2})]
SEEDS = range(6)
NODE = dict(object_store_memory=100 * 2**20, include_dashboard=False)


class Counted(StudyRuns):
    "Notes each training that begins"

    def measure(self, variant, seed, **job):
        with open(self.out.with_suffix(".begun"), "a") as file:
            file.write(f"{variant}, {seed}\n")
        return super().measure(variant=variant, seed=seed, **job)


class Slow(Many):
    "Pictures that take a while to read, and a list of those that were read"

    def __init__(self, log=None):
        self.log = log

    def visuals(self, split):
        visuals = super().visuals(split)

        def read(i):
            if self.log:
                time.sleep(0.02)
                with open(self.log, "a") as file:
                    file.write(f"{i}\n")
            return visuals[i].frames

        return type(visuals)(visuals.ids, read)


@pytest.fixture(scope="module")
def nodes():
    "A cluster of two nodes of one core"
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", f"{TESTS}{os.pathsep}{TESTS.parent}")
        started = Cluster(initialize_head=True, head_node_args=dict(num_cpus=0, **NODE))
        for _ in range(2):
            started.add_node(num_cpus=1, **NODE)
        yield started
        ray.shutdown()
        started.shutdown()


@pytest.fixture
def third(nodes):
    "Another node; `kill_when` kills it as soon as something is true"
    node = nodes.add_node(num_cpus=1, **NODE)

    def kill_when(happened):
        while not happened():
            time.sleep(0.01)
        nodes.remove_node(node, allow_graceful=False)

    killers = []

    def start(happened):
        killers.append(Thread(target=kill_when, args=[happened], daemon=True))
        killers[0].start()

    yield start
    assert not killers[0].is_alive(), "it was killed"


@pytest.fixture
def runs(tmp_path, backbone):
    "The runs of a study, by the name of its results"
    steps = {"stages.0.steps": 30, "stages.1.steps": 20}
    (tmp_path / "tiny.json").write_text(json.dumps(vary(TINY, steps)))

    def opened(name):
        study = dict(preset=str(tmp_path / "tiny.json"), rows=ROWS_OF_STUDY, seeds=list(SEEDS))
        study["corpora"] = [dict(corpus="squares", languages=["de"])]
        (tmp_path / f"{name}.json").write_text(json.dumps(study))
        read = read_study(tmp_path / f"{name}.json")
        data = StudyData(Tested(), backbone, runs=tmp_path / f"runs of {name}")
        return Counted(read, read.corpora[0], data)

    return opened


def figures(runs):
    "Lines without their times, and the ranks"
    lines = [{k: v for k, v in line.items() if k != "cpu_s"} for line in read_runs(runs.out)]
    return sorted(lines, key=lambda line: (line["variant"], line["seed"])), contents(ranks_folder(runs.out))


def test_a_study_goes_on_when_a_node_is_killed(nodes, third, runs):
    alone, together = runs("alone"), runs("together")
    alone.run_all(SEEDS, str)
    third(lambda: len(read_runs(together.out)) >= 4)
    together.run_all(SEEDS, str, Workers(nodes.address))
    assert figures(together) == figures(alone) and len(figures(alone)[0]) == 2 * len(SEEDS)
    begun = together.out.with_suffix(".begun").read_text().splitlines()
    assert len(set(begun)) == 2 * len(SEEDS) and len(begun) <= 2 * len(SEEDS) + 1, "only the run in hand is repeated"


def test_features_are_completed_when_a_node_is_killed(nodes, third, tmp_path):
    encode = partial(encode_shards, tower(), split="train", shard_rows=ROWS)
    encode(corpus=Slow(), folder=tmp_path / "alone")
    log = tmp_path / "read"
    third(lambda: len(list((tmp_path / "together").glob("image*"))) >= 6)
    encode(corpus=Slow(log), folder=tmp_path / "together", on=Workers(nodes.address))
    assert contents(tmp_path / "together") == contents(tmp_path / "alone")
    twice = len(log.read_text().splitlines()) - len(Many().visuals("train"))
    assert 0 <= twice <= ROWS, "only the shard in hand is repeated"
