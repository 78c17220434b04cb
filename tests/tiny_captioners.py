"Captioning models with random weights of the real architectures and real processors, as save_pretrained writes them"

import torch
from tokenizers import Tokenizer, models, pre_tokenizers

WORDS = [
    "a",
    "photo",
    "of",
    "the",
    "red",
    "blue",
    "green",
    "dog",
    "cat",
    "man",
    "woman",
    "on",
    "in",
    "runs",
    "sits",
    "house",
    "street",
    "two",
    "small",
    "big",
    "with",
    "and",
    "grass",
    "sky",
    "Please",
    "describe",
    "contents",
    "this",
    "image",
    "video",
    "detail",
    "What",
    "do",
    "you",
    "see",
    "?",
    ".",
    "User:",
    "Assistant:",
]
PART = "{% if c['type']=='text' %}{{ c['text'] }} {% else %}<{{ c['type'] }}> {% endif %}"
MESSAGE = "User: {% for c in m['content'] %}" + PART + "{% endfor %}"
PROMPT = "{% if add_generation_prompt %}Assistant: {% endif %}"
TEMPLATE = "{% for m in messages %}" + MESSAGE + "{% endfor %}" + PROMPT
SIDE = dict(height=32, width=32)
LAYER = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
VISION = dict(LAYER, image_size=32, patch_size=8)
IDS = dict(pad_token_id=1, bos_token_id=2, eos_token_id=3)
LANGUAGE = dict(LAYER, num_key_value_heads=2, max_position_embeddings=2048, **IDS)


def words(*special, **named):
    "A tokenizer of whole words"
    from transformers import PreTrainedTokenizerFast

    base = Tokenizer(
        models.WordLevel(
            {w: i for i, w in enumerate(["<unk>", "<pad>", "<s>", "</s>", *special, *WORDS])}, unk_token="<unk>"
        )
    )
    base.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=base,
        unk_token="<unk>",
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        **(dict(extra_special_tokens=named) if named else dict(additional_special_tokens=list(special))),
    )


def saved(model, processor, folder):
    "Larger weights than usual: those of 0.02 say the same of every picture"
    torch.manual_seed(1)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim > 1:
                p.normal_(0, 0.9 if "crossattention" in name else 0.3)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def blip(folder):
    from transformers import (
        BertTokenizerFast,
        BlipConfig,
        BlipForConditionalGeneration,
        BlipImageProcessor,
        BlipProcessor,
    )

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[DEC]", *(w for w in WORDS if w.isalpha() and w.islower())]
    text = dict(
        LAYER,
        vocab_size=len(pieces),
        encoder_hidden_size=16,
        projection_dim=8,
        max_position_embeddings=64,
        bos_token_id=5,
        eos_token_id=2,
        pad_token_id=0,
        sep_token_id=3,
    )
    return saved(
        BlipForConditionalGeneration(BlipConfig(text_config=text, vision_config=VISION, projection_dim=8)),
        BlipProcessor(
            BlipImageProcessor(size=SIDE),
            BertTokenizerFast(vocab={w: i for i, w in enumerate(pieces)}, additional_special_tokens=["[DEC]"]),
        ),
        folder,
    )


def git(folder):
    from transformers import CLIPImageProcessor, GitConfig, GitForCausalLM, GitProcessor

    t = words()
    return saved(
        GitForCausalLM(GitConfig(vision_config=VISION, vocab_size=len(t), max_position_embeddings=64, **LAYER, **IDS)),
        GitProcessor(CLIPImageProcessor(size=SIDE, crop_size=SIDE), t),
        folder,
    )


def florence(folder):
    from transformers import CLIPImageProcessor, Florence2Config, Florence2ForConditionalGeneration, Florence2Processor

    t = words("<image>", image_token="<image>")
    text = dict(
        IDS,
        model_type="bart",
        vocab_size=len(t),
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=256,
        decoder_start_token_id=3,
        forced_eos_token_id=3,
    )
    vision = dict(
        depths=[1, 1],
        embed_dim=[8, 16],
        num_heads=[2, 2],
        num_groups=[2, 2],
        patch_size=[7, 3],
        patch_stride=[4, 2],
        patch_padding=[3, 1],
        patch_prenorm=[False, True],
        window_size=2,
        projection_dim=16,
        max_position_embeddings=10,
        max_temporal_embeddings=10,
    )
    processor = Florence2Processor(
        CLIPImageProcessor(size=SIDE, crop_size=SIDE, image_seq_length=17),
        t,
        num_additional_image_tokens=1,
        post_processor_config=dict(pure_text={}),
    )
    return saved(
        Florence2ForConditionalGeneration(
            Florence2Config(text_config=text, vision_config=vision, image_token_id=4, is_encoder_decoder=True)
        ),
        processor,
        folder,
    )


def llava(folder):
    from transformers import (
        LlavaOnevisionConfig,
        LlavaOnevisionForConditionalGeneration,
        LlavaOnevisionImageProcessor,
        LlavaOnevisionProcessor,
        LlavaOnevisionVideoProcessor,
    )

    t = words("<image>", "<video>")
    sizes = [[32, 32], [32, 64], [64, 32]]
    config = LlavaOnevisionConfig(
        text_config=dict(LANGUAGE, model_type="qwen2", vocab_size=len(t)),
        vision_config=dict(VISION, model_type="siglip_vision_model", vision_use_head=False),
        image_token_index=4,
        video_token_index=5,
        image_grid_pinpoints=sizes,
        vision_feature_layer=-1,
    )
    processor = LlavaOnevisionProcessor(
        LlavaOnevisionImageProcessor(size=SIDE, image_grid_pinpoints=sizes),
        t,
        LlavaOnevisionVideoProcessor(size=SIDE),
        num_image_tokens=16,
        vision_feature_select_strategy="full",
        chat_template=TEMPLATE,
    )
    return saved(LlavaOnevisionForConditionalGeneration(config), processor, folder)


def qwen(folder):
    from transformers import (
        Qwen2VLConfig,
        Qwen2VLForConditionalGeneration,
        Qwen2VLImageProcessor,
        Qwen2VLProcessor,
        Qwen2VLVideoProcessor,
    )

    t = words("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
    size = dict(shortest_edge=16 * 16, longest_edge=64 * 64)
    config = Qwen2VLConfig(
        text_config=dict(
            LANGUAGE,
            vocab_size=len(t),
            rope_parameters=dict(rope_type="default", mrope_section=[1, 1, 2], rope_theta=1e4),
        ),
        image_token_id=6,
        video_token_id=7,
        vision_start_token_id=4,
        vision_end_token_id=5,
        vision_config=dict(
            depth=1,
            embed_dim=16,
            hidden_size=16,
            num_heads=2,
            mlp_ratio=2,
            patch_size=8,
            spatial_merge_size=2,
            temporal_patch_size=2,
        ),
    )
    template = TEMPLATE.replace("<{{ c['type'] }}> ", "<|vision_start|> <|{{ c['type'] }}_pad|> <|vision_end|> ")
    return saved(
        Qwen2VLForConditionalGeneration(config),
        Qwen2VLProcessor(
            Qwen2VLImageProcessor(patch_size=8, size=size),
            t,
            Qwen2VLVideoProcessor(patch_size=8, size=size),
            chat_template=template,
        ),
        folder,
    )
