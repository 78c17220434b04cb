"SMALR on ResNet-152's features over ten crops: a plan, a feature store, a training"

import pytest
import timm
import torch
from safetensors.torch import save_file
from squares import Squares
from test_smalr_training import TINY, Things

from dasd_lab.backbone.features import stored_features
from dasd_lab.backbone.image_networks import image_network_backbone
from dasd_lab.backbone.store import read_plan
from dasd_lab.base.contracts import LabError
from dasd_lab.base.presets import load_preset
from dasd_lab.runs.loading import load_run
from dasd_lab.training.parameters import frozen_parameters, method_shapes, tower_config, tower_sizes
from dasd_lab.training.plan import plan
from dasd_lab.training.recipes import train
from dasd_lab.training.runs import Keeping


def test_the_preset_is_planned_without_weights(tmp_path, monkeypatch):
    monkeypatch.setenv("DASD_LAB_DATA", str(tmp_path))
    monkeypatch.setenv("DASD_LAB_WEIGHTS", str(tmp_path / "weights"))
    preset = load_preset("smalr.resnet152")
    config = tower_config(preset)
    assert round(frozen_parameters(config) / 1e6, 1) == 58.1  # 60.2 with the classifier
    image = method_shapes(preset, preset["languages"], tower_sizes(config)).image
    # the spec's count of the image branch
    assert sum(p.numel() for p in image.parameters()) == 5_249_536
    text = str(plan(preset))
    assert "timm resnet152, weights resnet-152" in text and "dasd-lab weights get resnet-152" in text


@pytest.fixture
def backbone(tmp_path):
    torch.manual_seed(0)
    save_file(timm.create_model("resnet10t", pretrained=False).state_dict(), tmp_path / "model.safetensors")
    return image_network_backbone("resnet10t", tmp_path, crop_size=32, resize=36)


@pytest.mark.slow
def test_smalr_trains_on_stored_features(backbone, tmp_path):
    "Images alone are stored; a run opens again with its network"
    out = tmp_path / "run"
    options = dict(
        backbone=backbone, features=tmp_path / "features", out=out, progress=False, keeping=Keeping(5, log_every=1)
    )
    run = train(TINY, Things(), ["de", "fr"], seed=3, **options)
    (store,) = (tmp_path / "features").glob("*/manifest.json")
    stored = read_plan(store.parent)
    assert list(stored.parts) == ["image"] and stored_features(store.parent).image_features.shape[1] == 512
    again = load_run(out)
    captions = ["rotes Tomate", "blaues Wal"]
    torch.testing.assert_close(again.encode_captions(captions, "de"), run.method.encode_captions(captions, "de"))
    visuals = Things().visuals("train")
    shown = again.encode_visuals(again.visual_columns(visuals))["features"]
    stored = run.method.encode_visuals(stored_features(store.parent).image_features[torch.arange(len(visuals))])
    torch.testing.assert_close(shown, stored["features"], atol=5e-3, rtol=5e-2)  # stored in half precision


def test_methods_that_read_frozen_captions_are_refused(backbone):
    with pytest.raises(LabError, match="backbone of images alone"):
        train("dasd.pictograms", Squares(), ["de"], backbone=backbone, progress=False)
