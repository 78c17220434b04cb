"""Training, freezing and saving of the `official` form"""

from dataclasses import replace

import pytest
import torch

from dasd_lab.backbone.tokens import train_tokenizer
from dasd_lab.backbone.towers import Backbone, build_clip
from dasd_lab.base.presets import load_preset, settings
from dasd_lab.methods.dasd.encoder import DASD
from dasd_lab.methods.dasd.official import official_config
from dasd_lab.training.runs import Keeping, fit
from dasd_lab.training.stages import CaptionBatches, Stage

CAPTIONS = [
    "Ein Hund am Strand.",
    "Zwei rote Autos.",
    "Eine Frau liest ein Buch.",
    "Das Kind isst einen Apfel.",
    "Ein kleines Boot.",
    "Drei Vögel.",
    "Ein alter Mann.",
    "Die Katze schläft auf dem Sofa.",
]


@pytest.fixture
def trained():
    torch.manual_seed(0)
    words = train_tokenizer(CAPTIONS * 2, 200)
    config = dict(
        embed_dim=16,
        quick_gelu=True,
        vision_cfg=dict(image_size=16, patch_size=8, width=64, layers=1),
        text_cfg=dict(context_length=24, vocab_size=len(words), width=64, heads=1, layers=3),
    )
    backbone = Backbone(build_clip(config), words, config)
    sizes = official_config(["de"], token_width=12, bottleneck=4, characteristics_width=8, critic_hidden=(8, 4))
    method = DASD(sizes, backbone, words)
    start = {k: v.clone() for k, v in method.state_dict().items()}
    rows = [words.frame(e.ids, 24) for e in words.tokenizer.encode_batch(CAPTIONS, add_special_tokens=False)]
    features = torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(1))

    def batches(stage):
        every = CaptionBatches(
            dict(de=rows),
            lambda r: words.pad(r, method.pad_length),
            dict(de=range(8)),
            features[0],
            None,
            features[1],
            batch_size=stage.batch_size,
        )
        assert every(0)["ids"].shape == (4, 24), "f_sa averages the padding: the context is always full"
        return every

    stages = [replace(settings(Stage, s), steps=4, batch_size=4) for s in load_preset("dasd.official")["stages"]]
    return method, start, fit(method, stages, batches, keeping=Keeping(log_every=1), progress=False)


def test_training_moves_what_the_authors_train(trained):
    method, start, log = trained
    assert [r["stage"] for r in log] == ["cross_lingual_alignment"] * 4 + ["cross_modal_alignment"] * 4
    assert {"alignment", "consistency", "adversarial", "critic_loss"} <= set(log[0]) and "contrastive" in log[4]
    moved = {k for k, v in method.state_dict().items() if not torch.equal(v, start[k])}
    frozen = ("backbone.", "disentangler.related_norm", "disentangler.agnostic_norm")
    assert moved == {name for name in start if not name.startswith(frozen)}
