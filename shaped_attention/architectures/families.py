"""The families that are covered, as rows of a table by their `model_type`.

What a row says was read in the source of the `transformers` library (5.23), and is compared with
models made by it in `tests/test_families.py`.
Families with RMSNorm are decoders with RoPE and a gated MLP, as Llama is; those with LayerNorm are
rows of their own. Gemma's gains are stored as gain - 1 and start at 0, its embeddings are
multiplied by sqrt n, in the precision of the weights.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from shaped_attention.architectures.family import Details, Family, Sizes, shared_keys
from shaped_attention.architectures.fields import Fields, field_error
from shaped_attention.architectures.layer_types import (
    FULL,
    SLIDING,
    all_alike,
    all_full,
    first_full_in,
    last_windows,
    listed,
    logits_by_number,
    mask_of,
    one_full_in,
    rotated_windows,
    unrotated_by_list,
)
from shaped_attention.architectures.recipes import Law
from shaped_attention.architectures.rope import rope_by_type, rope_of
from shaped_attention.blocks.rotations import Rope


def _granite(fields: Fields, sizes: Sizes) -> Details:
    return Details(
        embedding=fields.number("embedding_multiplier", 1.0),
        logits=fields.number("attention_multiplier", 1.0),
        branch=fields.number("residual_multiplier", 1.0),
    )


def _gemma(fields: Fields, sizes: Sizes) -> Details:
    # Old configurations have both names of the activation. The library reads the first, and takes
    # "gelu" for the approximation by tanh.
    fields.choice("hidden_activation", "gelu_pytorch_tanh", ("gelu_pytorch_tanh",))
    if fields.get("hidden_act") == "gelu":
        fields.values["hidden_act"] = "gelu_pytorch_tanh"
    return Details(embedding=sizes.width**0.5)


def _scaled_queries(fields: Fields, sizes: Sizes) -> Details:
    return Details(sizes.width**0.5, fields.number("query_pre_attn_scalar") ** -0.5)


def _gemma2(fields: Fields, sizes: Sizes) -> Details:
    softcap = fields.get("attn_logit_softcapping")
    cap = None if softcap is None else fields.number("attn_logit_softcapping")
    return _scaled_queries(fields, sizes)._replace(softcap=cap)


def _gemma3_mask(fields: Fields, attention: str) -> str | None:
    if not fields.flag("use_bidirectional_attention", False):
        return mask_of(fields, attention)
    if attention == FULL:
        return None
    # The library's window has half the size on each side.
    return f"local:{fields.count('sliding_window') // 2 + 1}"


def _phi3_rope(fields: Fields, size: int, kind: str) -> Rope:
    """Return RoPE of a Phi-3, whose first versions call LongRoPE "su" or "yarn"."""
    for name in ("rope_parameters", "rope_scaling"):
        old = fields.get(name)
        if isinstance(old, dict) and old:
            kept = {key: value for key, value in old.items() if key not in ("type", "rope_type")}
            how = old.get("rope_type") or old.get("type") or "default"
            how = "longrope" if how in ("su", "yarn") else how
            fields.values[name] = {**kept, "rope_type": how}
    return rope_of(fields, size, kind, share=1.0)


def _neox_rope(fields: Fields, size: int, kind: str) -> Rope:
    base, share = fields.number("rotary_emb_base", 10_000.0), fields.number("rotary_pct", 0.25)
    return rope_of(fields, size, kind, base=base, share=share)


def _gptj_rope(fields: Fields, size: int, kind: str) -> Rope:
    # Neighbouring columns form a pair, which has the same law as any other pairing.
    rotated = fields.count("rotary_dim")
    if rotated > size or rotated % 2:
        raise field_error("rotary_dim", f"even and at most {size}, the head size", rotated)
    return Rope(10_000.0, share=rotated / size)


def _falcon_positions(fields: Fields, size: int, kind: str) -> Rope | str:
    if not fields.flag("alibi", False):
        return rope_of(fields, size, kind)
    fields.no_influence("rope_parameters", "rope_theta", "rope_scaling")
    # Divided by the root of the head size, like the logits, and rounded to bfloat16.
    return f"alibi:{size**-0.5!r}:bfloat16"


def _modernbert_rope(fields: Fields, size: int, kind: str) -> Rope:
    if (theta := fields.get("rope_theta")) is not None:
        raise ValueError(
            f"config has rope_theta={theta!r}, which ModernBERT ignores; it reads "
            "global_rope_theta and local_rope_theta"
        )
    ropes = {
        name: rope_of(fields, size, name, base=fields.number(field, base), by_type=True)
        for name, field, base in (
            (FULL, "global_rope_theta", 160_000.0), (SLIDING, "local_rope_theta", 10_000.0)
        )
    }  # fmt: skip
    return ropes[kind]


def _modernbert_mask(fields: Fields, attention: str) -> str | None:
    window = fields.count("local_attention", default=128) // 2 + 1
    return None if attention == FULL else f"local:{window}"


_NEW_FALCON = ("new_decoder_architecture", False)


def _one_key(fields: Fields, heads: int) -> int:
    return 1 if fields.flag("multi_query", True) else heads


def _falcon_keys(fields: Fields, heads: int) -> int:
    shared = fields.count("num_kv_heads", "n_head_kv", default=heads)
    old = _one_key(fields, heads)
    return shared if fields.flag(*_NEW_FALCON) else old


def _gpt2(fields: Fields, sizes: Sizes) -> Details:
    scaled = fields.flag("scale_attn_weights", True)
    return Details(logits=None if scaled else 1.0, last_std=sizes.std / (2 * sizes.depth) ** 0.5)


def _falcon(fields: Fields, sizes: Sizes) -> Details:
    new, parallel = fields.flag(*_NEW_FALCON), fields.flag("parallel_attn", True)
    if new and not parallel:
        raise field_error("parallel_attn", "true if new_decoder_architecture is", parallel)
    return Details()


def _bloom(fields: Fields, sizes: Sizes) -> Details:
    fields.choice("n_inner", 4 * sizes.width, (4 * sizes.width,))
    return Details()


def _opt(fields: Fields, sizes: Sizes) -> Details:
    fields.choice("word_embed_proj_dim", sizes.width, (sizes.width,))
    if fields.flag("do_layer_norm_before", True):
        return Details(final=not fields.flag("_remove_final_layer_norm", False))
    return Details(place="after")


def _modernbert(fields: Fields, sizes: Sizes) -> Details:
    cutoff = fields.number("initializer_cutoff_factor", 3.0)  # the library's value for None
    law = Law(f"{sizes.std:g}", cutoff)
    std = sizes.std * law.factor
    last = std / math.sqrt(2.0 * sizes.depth)
    gaussian = law.approximation("weights")
    return Details(std=std, last_std=last, approximations=(gaussian,), cut=cutoff)


_LLAMA = Family({"rms_norm_eps": 1e-6})
_MISTRAL = Family(
    {"num_key_value_heads": 8, "sliding_window": 4096, "rms_norm_eps": 1e-6}, kinds=all_alike
)
_QWEN2 = Family(
    {"num_key_value_heads": 32, "sliding_window": 4096, "max_window_layers": 28,
     "rms_norm_eps": 1e-6},
    kinds=last_windows,
)  # fmt: skip
_OLMO2 = Family({"pad_token_id": 1, "rms_norm_eps": 1e-5}, place="branch", qk_norm="all")
_GEMMA = Family(
    {"head_dim": 256, "pad_token_id": 0, "rms_norm_eps": 1e-6, "hidden_act": "gelu_pytorch_tanh",
     "num_key_value_heads": 16},
    details=_gemma,
)  # fmt: skip
_OF_GEMMA2 = {
    "head_dim": 256, "pad_token_id": 0, "rms_norm_eps": 1e-6, "num_key_value_heads": 4,
    "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256, "sliding_window": 4096,
}  # fmt: skip
_GEMMA2 = Family(
    {**_OF_GEMMA2, "attn_logit_softcapping": 50.0}, place="sandwich",
    activation=("hidden_activation", "silu"), kinds=one_full_in(None, 2), details=_gemma2,
    unused=("final_logit_softcapping", "hidden_act"),
)  # fmt: skip
_GLM = Family(
    {"head_dim": 128, "num_key_value_heads": 2, "pad_token_id": 151329, "rms_norm_eps": 1.5625e-7},
    rope=partial(rope_of, share=0.5),
)
_LAYER_NORM = Family(
    norm="layer", eps=("layer_norm_eps", 1e-5), activation=("hidden_act", "gelu"), gated=False,
    kv_heads=None, head_size=False, padding=False, biases=(),
)  # fmt: skip
_GPT2 = replace(
    _LAYER_NORM, eps=("layer_norm_epsilon", 1e-5), activation=("activation_function", "gelu_new"),
    hidden=("n_inner", 4), rope=lambda *_: None, kinds=logits_by_number, details=_gpt2,
    kv_heads=lambda fields, heads: heads, positions="learned",
    unused=("n_ctx", "reorder_and_upcast_attn"),
)  # fmt: skip
_GPTJ = replace(
    _LAYER_NORM, eps=("layer_norm_epsilon", 1e-5), activation=("activation_function", "gelu_new"),
    hidden=("n_inner", 4), rope=_gptj_rope, parallel=True, positions="bounded",
    unused=("n_ctx", "rotary", "scale_attn_weights"),
)  # fmt: skip
_PHI = replace(
    _LAYER_NORM, activation=("hidden_act", "gelu_new"), kv_heads=shared_keys, padding=True,
    rope=partial(rope_of, share=0.5), parallel=True, only={"qk_layernorm": (False,)},
)  # fmt: skip
_BERT = replace(
    _LAYER_NORM, defaults={"pad_token_id": 0}, eps=("layer_norm_eps", 1e-12), place="after",
    mask=lambda fields, _: "causal" if fields.flag("is_decoder", False) else None, encoder=True,
    rope=lambda *_: None, padding=True, positions="learned", typed=True, normed=True,
    only={"position_embedding_type": ("absolute",)},
)  # fmt: skip
_COHERE = replace(
    _LAYER_NORM, defaults={"pad_token_id": 0}, activation=("hidden_act", "silu"), gated=True,
    kv_heads=shared_keys, head_size=True, padding=True, parallel=True,
    rope=partial(rope_of, base=500_000.0), only={"use_qk_norm": (False,)},
    biases=("attention_bias",),
    unused=(
        "layer_switch", "logit_scale", "model_max_length", "order_of_interleaved_layers",
        "position_embedding_type", "rotary_pct", "use_embedding_sharing", "use_gated_activation",
        "use_parallel_block", "use_parallel_embedding",
    ),
)  # fmt: skip

FAMILIES: dict[str, Family] = {
    "bert": _BERT,
    "bloom": replace(
        _LAYER_NORM, eps=("layer_norm_epsilon", 1e-5), hidden=("n_inner", 4),
        activation=("hidden_act", "gelu_pytorch_tanh"), details=_bloom, normed=True,
        rope=lambda *_: "alibi",
        only={"apply_residual_connection_post_layernorm": (False,)},
        unused=(
            "attention_softmax_in_fp32", "bias_dropout_fusion", "masked_softmax_fusion",
            "offset_alibi", "skip_bias_add", "skip_bias_add_qkv", "slow_but_exact",
        ),
    ),
    "codegen": _GPTJ,
    "cohere": _COHERE,
    "cohere2": replace(
        _COHERE, defaults={"pad_token_id": 0, "sliding_window": 4096}, rope=rope_of,
        kinds=one_full_in("sliding_window_pattern", 4, rotated=False),
    ),
    "exaone4": Family(
        {"num_key_value_heads": 32, "sliding_window": 4096, "rms_norm_eps": 1e-5}, place="branch",
        qk_norm="head", kinds=rotated_windows,
    ),
    "falcon": replace(
        _LAYER_NORM, eps=("layer_norm_epsilon", 1e-5), activation=("activation", "gelu"),
        hidden=("ffn_hidden_size", 4), kv_heads=_falcon_keys, rope=_falcon_positions,
        details=_falcon, parallel=("parallel_attn", True), biases=("bias",),
        only={"apply_residual_connection_post_layernorm": (False,),
              "num_ln_in_parallel_attn": (None, 1, 2)},
    ),
    "gemma": _GEMMA,
    "gemma2": _GEMMA2,
    "gemma3_text": Family(
        {**_OF_GEMMA2, "num_attention_heads": 8, "vocab_size": 262208}, place="sandwich",
        qk_norm="head", activation=("hidden_activation", "silu"),
        kinds=one_full_in("sliding_window_pattern", 6), mask=_gemma3_mask,
        rope=partial(rope_by_type, base=1_000_000.0, local_base=10_000.0), details=_scaled_queries,
        # The last is written along with layer_types.
        unused=("final_logit_softcapping", "hidden_act", "_sliding_window_pattern"),
    ),
    "glm": _GLM,
    "glm4": replace(_GLM, place="sandwich"),
    "gpt2": _GPT2,
    "gpt_bigcode": replace(
        _GPT2, activation=("activation_function", "gelu_pytorch_tanh"), kv_heads=_one_key,
        kinds=all_full,
        unused=(
            *_GPT2.unused, "attention_softmax_in_fp32", "inference_runner", "max_batch_size",
            "max_sequence_length", "num_key_value_heads", "pad_key_length",
            "pre_allocate_kv_cache", "scale_attention_softmax_in_fp32", "validate_runner_input",
        ),
    ),
    "gpt_neox": replace(
        _LAYER_NORM, rope=_neox_rope, parallel=("use_parallel_residual", True),
        biases=("attention_bias",),
    ),
    "gptj": _GPTJ,
    "granite": replace(_LLAMA, details=_granite, unused=("logits_scaling",)),
    "helium": Family(
        {"head_dim": 128, "num_key_value_heads": 20, "pad_token_id": 3, "rms_norm_eps": 1e-8},
        rope=partial(rope_of, base=100_000.0),
    ),
    "llama": _LLAMA,
    "ministral": replace(_MISTRAL, kinds=listed),
    "mistral": _MISTRAL,
    # The first layer has no norm before attention, since the embedding has one.
    "modernbert": replace(
        _LAYER_NORM, defaults={"initializer_cutoff_factor": 2.0}, eps=("norm_eps", 1e-5),
        activation=("hidden_activation", "gelu"), gated=True, encoder=True,
        kinds=first_full_in, mask=_modernbert_mask, rope=_modernbert_rope, details=_modernbert,
        normed=True, biases=("attention_bias", "mlp_bias", "norm_bias"),
        unused=(
            "decoder_bias", "layer_norm_eps", "position_embedding_type", "reference_compile",
            "repad_logits_with_grad", "sparse_pred_ignore_index", "sparse_prediction",
        ),
    ),
    "olmo": Family({"pad_token_id": 1}, norm="layer", eps=1e-5),
    "olmo2": _OLMO2,
    "olmo3": replace(
        _OLMO2, defaults={**_OLMO2.defaults, "sliding_window": 4096}, kinds=one_full_in(None, 4),
        rope=partial(rope_by_type, base=500_000.0, local_base=500_000.0),
    ),
    "opt": replace(
        _LAYER_NORM, defaults={"pad_token_id": 1}, eps=1e-5,
        std=("init_std", 0.02), padding=True,
        activation=("activation_function", "relu"), hidden=("ffn_dim", None), rope=lambda *_: None,
        details=_opt, positions="learned", biases=("enable_bias",),
        unused=("layer_norm_elementwise_affine",),
    ),
    "phi": _PHI,
    "phi3": Family(
        {"max_position_embeddings": 4096, "original_max_position_embeddings": 4096,
         "pad_token_id": 32000, "rms_norm_eps": 1e-5},
        kinds=all_alike, rope=_phi3_rope,
    ),
    "qwen2": _QWEN2,
    "qwen3": replace(_QWEN2, defaults={**_QWEN2.defaults, "head_dim": 128}, qk_norm="head"),
    "roberta": replace(_BERT, defaults={"pad_token_id": 1}, offset=True),
    "seed_oss": Family(
        {"head_dim": 128, "num_key_value_heads": 8, "pad_token_id": 1, "rms_norm_eps": 1e-6}
    ),
    "smollm3": Family(
        {"num_key_value_heads": 4, "pad_token_id": 128004, "rms_norm_eps": 1e-6},
        kinds=unrotated_by_list, rope=partial(rope_of, base=2_000_000.0),
    ),
    "stablelm": replace(
        _PHI, defaults={"num_key_value_heads": 32}, activation=("hidden_act", "silu"), gated=True,
        rope=partial(rope_of, share=0.25), parallel=("use_parallel_residual", False),
        biases=("use_qkv_bias",),
    ),
    "starcoder2": replace(
        _LAYER_NORM, defaults={"num_key_value_heads": 2}, eps=("norm_epsilon", 1e-5),
        std=("initializer_range", 0.018042),
        activation=("hidden_act", "gelu_pytorch_tanh"), kv_heads=shared_keys, head_size=True,
        padding=True, rope=rope_of, kinds=listed, biases=("use_bias",),
        only={"norm_type": ("layer_norm",), "mlp_type": ("default",)}, unused=("residual_dropout",),
    ),
    "vaultgemma": replace(_GEMMA2, place="before"),
}  # fmt: skip
"""The description of each `model_type`."""
