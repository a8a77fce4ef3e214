"""Families of decoders with RMSNorm, as variants of one: Llama, Qwen, Gemma, OLMo and others.

What a variant says was read in the source of the `transformers` library (5.23), and is compared
with models made by it in `tests/test_reality_rms_norm.py`. Gemma's gains are stored as gain - 1 and
start at 0, its embeddings are multiplied by sqrt n, in the precision of the weights.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from shaped_attention.architectures.decoder import Decoder, Factors
from shaped_attention.architectures.fields import Fields
from shaped_attention.architectures.layer_types import (
    FULL,
    all_alike,
    last_windows,
    listed,
    mask_of,
    one_full_in,
    rotated_windows,
    unrotated_by_list,
)
from shaped_attention.architectures.rotary import rope_by_type, rope_of


def _granite(fields: Fields, width: int) -> Factors:
    fields.no_influence("logits_scaling")
    return Factors(
        embedding=fields.number("embedding_multiplier", 1.0),
        logits=fields.number("attention_multiplier", 1.0),
        branch=fields.number("residual_multiplier", 1.0),
    )


def _gemma(fields: Fields, width: int) -> Factors:
    # Old configurations have both names of the activation. The library reads the first, and takes
    # "gelu" for the approximation by tanh.
    fields.choice("hidden_activation", "gelu_pytorch_tanh", ("gelu_pytorch_tanh",))
    if fields.get("hidden_act") == "gelu":
        fields.values["hidden_act"] = "gelu_pytorch_tanh"
    return Factors(embedding=width**0.5)


def _gemma2(fields: Fields, width: int) -> Factors:
    softcap = fields.get("attn_logit_softcapping")
    cap = None if softcap is None else fields.number("attn_logit_softcapping")
    return _scaled_queries(fields, width)._replace(softcap=cap)


def _scaled_queries(fields: Fields, width: int) -> Factors:
    fields.no_influence("final_logit_softcapping", "hidden_act")
    scalar = fields.number("query_pre_attn_scalar")
    return Factors(embedding=width**0.5, logits=scalar**-0.5)


def _gemma3_mask(fields: Fields, attention: str) -> str | None:
    fields.no_influence("_sliding_window_pattern")  # written along with layer_types
    if not fields.flag("use_bidirectional_attention", False):
        return mask_of(fields, attention)
    if attention == FULL:
        return None
    # The library's window has half the size on each side.
    return f"local:{fields.count('sliding_window') // 2 + 1}"


def _partly_rotated(share: float) -> Any:
    return partial(_partial_rope, share)


def _partial_rope(share: float, fields: Fields, size: int, kind: str) -> dict[str, Any]:
    return rope_of(fields, size, kind, share=share, partial=True)


def _phi3_rope(fields: Fields, size: int, kind: str) -> dict[str, Any]:
    """Return RoPE of a Phi-3, whose first versions call LongRoPE "su" or "yarn"."""
    for name in ("rope_parameters", "rope_scaling"):
        given = fields.get(name)
        if isinstance(given, dict):
            kept = {key: value for key, value in given.items() if key not in ("type", "rope_type")}
            how = given.get("rope_type") or given.get("type") or "default"
            how = "longrope" if how in ("su", "yarn") else how
            fields.values[name] = {**kept, "rope_type": how} if given else given
    return _partial_rope(1.0, fields, size, kind)


def _rope_from(base: float) -> Any:
    return partial(rope_of, base=base)


LLAMA = Decoder({"rms_norm_eps": 1e-6})
MISTRAL = Decoder(
    {"num_key_value_heads": 8, "sliding_window": 4096, "rms_norm_eps": 1e-6}, kinds=all_alike
)
QWEN2 = Decoder(
    {
        "num_key_value_heads": 32, "sliding_window": 4096, "max_window_layers": 28,
        "rms_norm_eps": 1e-6,
    },
    kinds=last_windows,
)  # fmt: skip
_OLMO_DEFAULTS = {"pad_token_id": 1, "rms_norm_eps": 1e-5}
OLMO2 = Decoder(_OLMO_DEFAULTS, place="branch", qk_norm="all")
_GEMMA_DEFAULTS = {"head_dim": 256, "pad_token_id": 0, "rms_norm_eps": 1e-6}
_GEMMA2_DEFAULTS = {
    **_GEMMA_DEFAULTS,
    "hidden_activation": "gelu_pytorch_tanh",
    "num_key_value_heads": 4,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
}
GEMMA2 = Decoder(
    {**_GEMMA2_DEFAULTS, "attn_logit_softcapping": 50.0},
    place="sandwich",
    activation="hidden_activation",
    kinds=one_full_in(None, 2),
    factors=_gemma2,
)
GLM = Decoder(
    {
        "head_dim": 128, "num_key_value_heads": 2, "pad_token_id": 151329,
        "rms_norm_eps": 1.5625e-7,
    },
    rope=_partly_rotated(0.5),
)  # fmt: skip

DECODERS: dict[str, Decoder] = {
    "llama": LLAMA,
    "mistral": MISTRAL,
    "ministral": replace(MISTRAL, kinds=listed),
    "qwen2": QWEN2,
    "qwen3": replace(QWEN2, defaults={**QWEN2.defaults, "head_dim": 128}, qk_norm="head"),
    "smollm3": Decoder(
        {"num_key_value_heads": 4, "pad_token_id": 128004, "rms_norm_eps": 1e-6},
        kinds=unrotated_by_list,
        rope=_rope_from(2_000_000.0),
    ),
    "granite": replace(LLAMA, factors=_granite),
    "phi3": Decoder(
        {
            "max_position_embeddings": 4096, "original_max_position_embeddings": 4096,
            "pad_token_id": 32000, "rms_norm_eps": 1e-5,
        },
        kinds=all_alike,
        rope=_phi3_rope,
    ),
    "olmo": Decoder({"pad_token_id": 1}, norm="layer", eps=1e-5),
    "olmo2": OLMO2,
    "olmo3": replace(
        OLMO2,
        defaults={**_OLMO_DEFAULTS, "sliding_window": 4096},
        kinds=one_full_in(None, 4),
        rope=partial(rope_by_type, base=500_000.0, local_base=500_000.0),
    ),
    "gemma": Decoder(
        {**_GEMMA_DEFAULTS, "hidden_act": "gelu_pytorch_tanh", "num_key_value_heads": 16},
        factors=_gemma,
    ),
    "gemma2": GEMMA2,
    "vaultgemma": replace(GEMMA2, place="before"),
    "gemma3_text": Decoder(
        {**_GEMMA2_DEFAULTS, "num_attention_heads": 8, "vocab_size": 262208},
        place="sandwich",
        qk_norm="head",
        activation="hidden_activation",
        kinds=one_full_in("sliding_window_pattern", 6),
        mask=_gemma3_mask,
        rope=partial(rope_by_type, base=1_000_000.0, local_base=10_000.0),
        factors=_scaled_queries,
    ),
    "glm": GLM,
    "glm4": replace(GLM, place="sandwich"),
    "exaone4": Decoder(
        {"num_key_value_heads": 32, "sliding_window": 4096, "rms_norm_eps": 1e-5},
        place="branch",
        qk_norm="head",
        kinds=rotated_windows,
    ),
    "seed_oss": Decoder(
        {"head_dim": 128, "num_key_value_heads": 8, "pad_token_id": 1, "rms_norm_eps": 1e-6}
    ),
    "helium": Decoder(
        {"head_dim": 128, "num_key_value_heads": 20, "pad_token_id": 3, "rms_norm_eps": 1e-8},
        rope=_rope_from(100_000.0),
    ),
}  # fmt: skip
"""Function that reads the configurations of a `model_type`."""
