"""Make a tiny model of any transformers architecture, with random weights, and inputs that it accepts."""

from __future__ import annotations

import contextlib
import inspect
import re
from typing import TYPE_CHECKING, Any

import torch
import transformers
from transformers.models.auto import configuration_auto, modeling_auto

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Patterns of the names of a configuration's fields, each with a value.
Values = tuple[tuple[str, Any], ...]

#: The mappings that are searched for the class of an architecture; the first match is used.
_MODEL_MAPPINGS = (
    "MODEL_FOR_CTC",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT",
    "MODEL_FOR_CAUSAL_LM",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM",
    "MODEL_FOR_OBJECT_DETECTION",
    "MODEL_FOR_TEXT_TO_WAVEFORM",
    "MODEL",
)
#: Small values of a configuration's fields, by the field's name; the first pattern that matches the whole name is used.
#: ``_SMALL_COUNTS`` has only counts of parts, for models that accept small counts but need their own sizes.
_SMALL_COUNTS: Values = (
    (r"(n_routed|num_local|num|moe_num)_experts", 4),
    (r"(num_)?experts_per_tok(en)?|moe_topk|top_k_experts|moe_k|num_selected_experts", 2),
    (r"(num_|n_)?shared_experts|num_shared_expert", 1),
    (r"first_k_dense_replace|decoder_sparse_step", 1),
    (r".*(hidden|encoder|decoder|num|n|backbone|transformer|query)_layers?|depth|num_hidden_groups|n_layer", 2),
)
_SMALL_VALUES: Values = (
    *_SMALL_COUNTS,
    (r"codebook_size", 64),
    (r"vocab_size|bbox_vocab_size|codebook_size|speech_vocab_size|text_vocab_size", 99),
    (r"(encoder_|decoder_|linear_|qk_)?(head_dim|attention_head_dim|d_kv)|linear_(key|value)_head_dim", 16),
    (r"qk_nope_head_dim|qk_rope_head_dim|v_head_dim|rotary_dim", 16),
    (r"(q|kv)_lora_rank", 16),
    (r"(num_)?n?_?group|topk_group", 1),
    (r".*(num_|n_)(key_value|kv)_?heads|.*num_kv_heads", 2),
    (r".*(attention_|n_|num_)heads?|n_head|num_heads|linear_num_(key|value)_heads|mamba_n_heads", 2),
    (r".*(intermediate|ffn|inner|mlp)_(size|dim|ff|hidden_size)|ffn_dim|d_ff|dim_ff|n_inner", 32),
    (r"(text_|vision_|audio_|cross_|d_|encoder_|decoder_|out_)?(hidden_size|d_model|hidden_dim)|n_embd", 32),
    (r"(text_|vision_)?(embed_dim|embedding_size|model_dim|projection_dim|width)|d_model|dim|out_hidden_size", 32),
    (r"max_(source_|target_|text_)?position(s|_embeddings)|n_positions|.*max_seq_len|n_ctx|max_sequence_length", 128),
    (r"image_size|input_size", 32),
    (r"patch_size", 8),
    (r"num_queries|num_query_tokens", 8),
    (r"spatial_merge_size", 2),
    (r"mm_tokens_per_image", 4),
    (r"image_grid_pinpoints", [[32, 32]]),
    (r"num_mel_bins|num_mels|feature_size|input_feat_per_channel", 16),
    (r"conv_dim", [16, 16]),
    (r"conv_kernel", [4, 4]),
    (r"conv_stride", [2, 2]),
    (r"num_feat_extract_layers", 2),
    (r"num_conv_pos_embeddings", 4),
    (r"num_conv_pos_embedding_groups", 2),
    (r"mask_time_length|mask_feature_length", 2),
    (r"sliding_window", 8),
    (r"mrope_section", [2, 3, 3]),
)
#: The values for an architecture that accepts only images of its own size.
_VALUES_FOR_OWN_IMAGE_SIZE: Values = tuple(
    (pattern, value) for pattern, value in _SMALL_VALUES if pattern not in {"image_size|input_size", "patch_size"}
)
#: Additional settings that an architecture needs.
_ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}}
_RESNET: dict[str, Any] = {
    "use_timm_backbone": False,
    "use_pretrained_backbone": False,
    "backbone": None,
    "backbone_config": {
        "model_type": "resnet",
        "embedding_size": 8,
        "hidden_sizes": [8, 8, 8, 8],
        "depths": [1, 1, 1, 1],
        "out_features": ["stage4"],
    },
}
_RESNETS = {
    **_RESNET,
    "backbone_config": {**_RESNET["backbone_config"], "out_features": ["stage2", "stage3", "stage4"]},
}
_SPECIFIC_VALUES: dict[str, dict[str, Any]] = {
    "aria": {"projector_patch_to_query_dict": {16: 4}},
    "blip-2": {"image_token_index": 90},
    "instructblip": {"image_token_index": 90},
    "deepseek_v2": {"n_routed_experts": 4, "num_experts_per_tok": 2},
    "dots1": {"n_routed_experts": 4, "num_experts_per_tok": 2},
    "nemotron": {"num_key_value_heads": 2},
    "conditional_detr": _RESNET,
    "deformable_detr": {**_RESNETS, "num_feature_levels": 3},
    "detr": _RESNET,
    "glm4v": {"text_config": _ROPE},
    "glm4v_moe": {"text_config": {"rope_parameters": {**_ROPE["rope_parameters"], "mrope_section": [1, 1, 2]}}},
    "qwen2_vl": {"vision_config": {"num_heads": 2, "mlp_ratio": 2}, "text_config": _ROPE},
    "qwen2_5_vl": {"vision_config": {"fullatt_block_indexes": [1], "window_size": 32}, "text_config": _ROPE},
    "qwen3_vl": {"vision_config": {"deepstack_visual_indexes": [0], "num_position_embeddings": 16}},
    "qwen3_vl_moe": {"vision_config": {"deepstack_visual_indexes": [0], "num_position_embeddings": 16}},
}
_IMAGE, _VISION_START, _VIDEO = 90, 91, 92
#: The sizes of the dimensions between the batch and the channels, for architectures that take several images at once.
_SEVERAL_IMAGES = {
    "idefics2": (1,), "idefics3": (1,), "smolvlm": (1,), "llava_next": (2,), "llava_onevision": (2,),
    "llava_next_video": (2,), "granite4_vision": (2,),
}  # fmt: skip


def architectures() -> list[str]:
    """Return the model types of transformers that have a model class, in the order of ``CONFIG_MAPPING_NAMES``."""
    config_names = vars(configuration_auto)["CONFIG_MAPPING_NAMES"]
    return [name for name in config_names if any(name in _mapping(head) for head in _MODEL_MAPPINGS)]


def make_tiny_model(model_type: str, *, training: bool = False) -> tuple[torch.nn.Module, dict[str, Any]]:
    """Make a model of an architecture and its inputs.

    Parameters
    ----------
    model_type : str
        The name of the architecture in transformers, such as "bart".
    training : bool
        Whether the model is in training mode.

    Raises
    ------
    Exception
        The first error, if no set of small values fits.
    """
    try:
        return _make_model(model_type, _SMALL_VALUES, training=training)
    except Exception as error:
        for values in (_VALUES_FOR_OWN_IMAGE_SIZE, _SMALL_COUNTS):
            with contextlib.suppress(Exception):
                return _make_model(model_type, values, training=training)
        raise error from None


def _make_model(model_type: str, values: Values, *, training: bool) -> tuple[torch.nn.Module, dict[str, Any]]:
    torch.manual_seed(0)
    config_class = getattr(transformers, vars(configuration_auto)["CONFIG_MAPPING_NAMES"][model_type])
    config = _small_config(config_class, _SPECIFIC_VALUES.get(model_type, {}), values, is_outermost=True)
    model = _class_of(model_type)(config).train(training)
    for parameter in model.parameters():
        if not torch.isfinite(parameter).all():
            torch.nn.init.normal_(parameter, std=0.02)
    for image_token_count in _image_token_counts(model):
        torch.manual_seed(1)
        inputs = inputs_of(model, image_token_count)
        with contextlib.suppress(ValueError), torch.no_grad():
            model(**inputs)
            break
    return model, inputs


def _image_token_counts(model: Any) -> Iterator[int | None]:
    """Yield candidates for the number of image tokens, parsed from the model's error messages."""
    yield None
    try:
        torch.manual_seed(1)
        with torch.no_grad():
            model(**inputs_of(model))
    except ValueError as error:
        count_match = re.search(r"features and image tokens do not match.* features:? (\d+)", str(error))
        if count_match is not None:
            yield int(count_match[1])
            yield int(count_match[1]) // 32  # some models count values, of which each token has 32


def _mapping(head: str) -> dict[str, Any]:
    return dict(getattr(modeling_auto, f"{head}_MAPPING_NAMES"))


def _class_of(model_type: str) -> Any:
    for head in _MODEL_MAPPINGS:
        name = _mapping(head).get(model_type)
        if name is not None:
            return getattr(transformers, name if isinstance(name, str) else name[0])
    raise LookupError(f"no model of {model_type}")


def _small_config(
    config_class: Any, specified_values: dict[str, Any], values: Values, *, is_outermost: bool = False
) -> Any:
    default = config_class()
    settings: dict[str, Any] = {}
    parts = dict(getattr(config_class, "sub_configs", {}))
    for name, value in vars(default).items():
        if name in parts or name.startswith("_"):
            continue
        small_value = _small_value(name, value, values)
        if small_value is not None:
            settings[name] = small_value
    for name, part in parts.items():
        # If any kind is allowed for a part, it gets the kind of the default configuration.
        is_any_kind = part.__name__.startswith("Auto")
        kind = type(getattr(default, name, None)) if is_any_kind else part
        if is_any_kind and name in specified_values:
            settings[name] = specified_values[name]
        elif hasattr(kind, "to_dict"):
            settings[name] = _small_config(kind, specified_values.get(name, {}), values).to_dict()
    settings.update({name: value for name, value in specified_values.items() if name not in parts})
    if "layer_types" in vars(default) and isinstance(default.layer_types, list):
        kinds = list(dict.fromkeys(default.layer_types))
        settings["layer_types"] = [*kinds, *kinds][:2]
    rope = getattr(default, "rope_parameters", None)
    if isinstance(rope, dict) and "mrope_section" in rope and values is not _SMALL_COUNTS:
        settings["rope_parameters"] = {**rope, "mrope_section": [2, 3, 3]}
    config = config_class(**settings)
    if is_outermost and hasattr(config, "use_cache"):
        config.use_cache = False
    return config


def _small_value(name: str, value: Any, values: Values) -> Any:
    if isinstance(value, bool):
        return None
    if name.endswith(("_token_id", "_token_index")):
        if isinstance(value, int) and value >= 90:  # noqa: PLR2004 - texts have smaller ids
            token_ids = {"image_token_id": _IMAGE, "image_token_index": _IMAGE, "video_token_id": _VIDEO}
            return token_ids.get(name, _VISION_START if name.startswith("vision_start") else 93 + len(name) % 6)
        return [1] if isinstance(value, list) else None
    if name == "vocab_size":
        return 99
    if value is None or isinstance(value, str | dict):
        return [2, 3, 3] if name == "mrope_section" else None
    for pattern, small_value in values:
        if re.fullmatch(pattern, name):
            is_list = isinstance(value, list | tuple)
            if isinstance(small_value, list):
                return small_value if is_list else None
            return (
                [min(item, small_value) if isinstance(item, int) else item for item in value]
                if is_list
                else small_value
            )
    return None


def inputs_of(model: Any, image_token_count: int | None = None) -> dict[str, Any]:
    """Return small inputs for a model, by the names of its ``forward``.

    Parameters
    ----------
    image_token_count : int, optional
        The number of image tokens in the text, if known.
    """
    config = model.config
    names = inspect.signature(model.forward).parameters
    main = getattr(model, "main_input_name", "input_ids")
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    vocabulary = int(min(getattr(text, "vocab_size", 80) or 80, 80))
    inputs: dict[str, Any] = {}
    reads_text = main == "pixel_values" and hasattr(config, "text_config")
    if "input_ids" in names and (reads_text or main not in {"pixel_values", "input_values", "input_features"}):
        inputs["input_ids"] = torch.randint(5, vocabulary, (1, 24))
        if "attention_mask" in names:
            inputs["attention_mask"] = torch.ones(1, 24, dtype=torch.long)
    elif "input_ids" in names and names["input_ids"].default is inspect.Parameter.empty:
        inputs["input_ids"] = torch.randint(5, vocabulary, (1, 24))
    if main in {"input_values", "input_features"} or main not in inputs:
        inputs.update(_main_input(main, config))
    if "decoder_input_ids" in names and getattr(config, "is_encoder_decoder", False):
        inputs["decoder_input_ids"] = torch.randint(5, vocabulary, (1, 8))
    if "labels" in names and type(model).__name__.endswith("ForCTC"):
        inputs["labels"] = torch.randint(1, 9, (1, 3))
    if "bbox" in names and "input_ids" in inputs:
        inputs["bbox"] = torch.randint(0, 20, (1, 24, 2)).repeat(1, 1, 2).sort(-1).values
    if "pixel_values" in names and "input_ids" in inputs and hasattr(config, "vision_config"):
        _add_image(inputs, config, names, image_token_count)
    if "qformer_input_ids" in names:
        inputs["qformer_input_ids"] = torch.randint(5, 80, (1, 8))
    return inputs


def _main_input(main: str, config: Any) -> dict[str, Any]:
    vision = getattr(config, "vision_config", config)
    size = getattr(vision, "image_size", 64) or 64
    height, width = (size, size) if isinstance(size, int) else (size[0], size[1])
    if main == "pixel_values":
        frames = [vision.num_frames] if hasattr(vision, "num_frames") else []
        return {main: torch.randn(1, *frames, getattr(vision, "num_channels", 3) or 3, height, width)}
    if main == "input_values":
        channels = getattr(config, "audio_channels", None)
        return {main: torch.randn(1, channels, 800) if channels else torch.randn(1, 800)}
    if main == "input_features":
        audio = getattr(config, "audio_config", config)
        bin_count: int = getattr(audio, "num_mel_bins", None) or getattr(audio, "feature_size", None) or 16
        if getattr(config, "max_source_positions", None) and config.model_type == "whisper":
            return {main: torch.randn(1, bin_count, 2 * config.max_source_positions)}
        width = int(getattr(audio, "feature_projection_input_dim", None) or bin_count)
        return {main: torch.randn(1, 64, width)}
    return {main: torch.randn(1, 24, 32)}


def _add_image(inputs: dict[str, Any], config: Any, names: Any, image_token_count: int | None) -> None:
    """Insert image tokens into the text, and add the image."""
    vision = config.vision_config
    token = getattr(config, "image_token_id", None) or getattr(config, "image_token_index", None)
    ids = inputs["input_ids"]
    channels = getattr(vision, "in_channels", None) or getattr(vision, "num_channels", None) or 3
    patch = vision.patch_size if isinstance(getattr(vision, "patch_size", 8), int) else 8
    if "image_grid_thw" in names:
        merge = getattr(vision, "spatial_merge_size", 2)
        values_per_patch = channels * getattr(vision, "temporal_patch_size", 1) * patch**2
        inputs["pixel_values"] = torch.randn(4 * merge * merge, values_per_patch)
        inputs["image_grid_thw"] = torch.tensor([[1, 2 * merge, 2 * merge]])
        count = 4
        ids[0, 1] = _VISION_START
    else:
        size = getattr(vision, "image_size", 32) or 32
        size = size if isinstance(size, int) else size[0]
        images = _SEVERAL_IMAGES.get(config.model_type, ())
        inputs["pixel_values"] = torch.randn(1, *images, channels, size, size)
        token_counts = [getattr(config, name, None) for name in ("mm_tokens_per_image", "num_query_tokens")]
        count = next((number for number in (image_token_count, *token_counts) if number), (size // patch) ** 2)
        inputs["input_ids"] = ids = torch.randint(5, 80, (1, count + 8))
        if "image_sizes" in names and (images or config.model_type == "mistral3"):
            inputs["image_sizes"] = torch.tensor([[size, size]])
    if token is not None:
        ids[0, 2 : 2 + count] = token
    if "attention_mask" in inputs:
        inputs["attention_mask"] = torch.ones_like(ids)
    if "mm_token_type_ids" in names:
        inputs["mm_token_type_ids"] = (ids == token).int()
