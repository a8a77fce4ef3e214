"""Families that are not one stack of dense layers, by name."""

from __future__ import annotations

from typing import Any

_ENCODER_DECODERS = frozenset({
    "bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "encoder-decoder", "fsmt", "led",
    "longt5", "m2m_100", "marian", "mbart", "mt5", "mvp", "nllb-moe", "pegasus", "pegasus_x",
    "plbart", "prophetnet", "seamless_m4t", "speech_to_text", "speecht5",
    "switch_transformers", "t5", "t5gemma", "t5gemma2", "udop", "umt5", "whisper",
})  # fmt: skip

_EXPERTS = frozenset({
    "dbrx", "deepseek_v2", "deepseek_v3", "dots1", "gpt_oss", "jamba", "llama4", "llama4_text",
    "longcat_flash", "minimax", "minimax_m2", "mixtral", "qwen3_next",
})  # fmt: skip
"""Mixtures of experts whose name does not contain "moe"."""

_EXPERT_FIELDS = (
    "num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size",
    "moe_num_experts",
)  # fmt: skip


def check_single_stack(values: dict[str, Any]) -> None:
    """Raise ValueError if a configuration is that of an encoder-decoder or a mixture of experts."""
    family = str(values.get("model_type"))
    if family in _ENCODER_DECODERS or values.get("is_encoder_decoder"):
        raise ValueError(
            f"config has model_type={family!r}, an encoder-decoder; a single stack of layers is "
            "needed"
        )
    experts = next((x for x in _EXPERT_FIELDS if values.get(x)), None)
    if experts or family in _EXPERTS or "moe" in family:
        known = f", with {experts}={values[experts]!r}" if experts else ""
        raise ValueError(
            f"config has model_type={family!r}, a mixture of experts{known}; dense layers are "
            "needed"
        )
