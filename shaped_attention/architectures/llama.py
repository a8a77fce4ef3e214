"""Llama and models that share its code: pre-norm with RMSNorm, RoPE, gated MLP."""

from __future__ import annotations

from typing import Any

from shaped_attention.architectures.fields import Fields
from shaped_attention.architectures.hidden import activation_of
from shaped_attention.architectures.layer_types import masks_of
from shaped_attention.architectures.model import Embedding, Model, Norm
from shaped_attention.architectures.parts import attention, mlp, normed
from shaped_attention.architectures.rotary import rope_of
from shaped_attention.blocks.pattern import Pattern


def llama(fields: Fields) -> Model:
    """Return a Llama, Mistral, Qwen2 or Qwen3."""
    family = fields.get("model_type")
    n, depth = fields.count("hidden_size"), fields.count("num_hidden_layers")
    std = fields.number("initializer_range", 0.02)
    heads = fields.count("num_attention_heads")
    kv_heads = fields.count("num_key_value_heads", default=heads)
    size = fields.count("head_dim", default=n // heads)
    norm = Norm("rms", fields.number("rms_norm_eps", 1e-6, zero=True))
    fields.zero_at_start("attention_bias", "mlp_bias")
    qk_norm: dict[str, Any] = (
        {"qk_norm": "head", "qk_norm_eps": norm.eps} if family == "qwen3" else {}
    )
    hidden = mlp(
        n, std, fields.count("intermediate_size"), activation_of(fields, "hidden_act", "silu"),
        gated=True,
    )  # fmt: skip
    rope = rope_of(fields, size)
    layers = [
        [
            normed(
                attention(n, std, heads, size, kv_heads=kv_heads, mask=mask, **rope, **qk_norm),
                "before",
                norm,
            ),
            normed(hidden, "before", norm),
        ]
        for mask in masks_of(fields, depth)
    ]
    pad = fields.get("pad_token_id")
    embedding = Embedding(fields.count("vocab_size"), std, zero_ids=() if pad is None else (pad,))
    fields.no_influence("max_position_embeddings")
    return Model(family, n, depth, Pattern(layers), embedding, norm)
