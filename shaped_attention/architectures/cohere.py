"""Cohere (Command R): attention and a gated MLP in parallel behind one LayerNorm, RoPE."""

from __future__ import annotations

from collections.abc import Sequence

from shaped_attention.architectures.fields import Fields
from shaped_attention.architectures.hidden import activation_of
from shaped_attention.architectures.layer_types import shortest, types_of
from shaped_attention.architectures.model import Model, Norm
from shaped_attention.architectures.parts import attention, mlp
from shaped_attention.architectures.rotary import rope_of
from shaped_attention.architectures.stack import layer, sizes_of, words
from shaped_attention.blocks.pattern import Pattern


def cohere(fields: Fields) -> Model:
    """Return a Cohere; with windows (cohere2), only layers with a window have RoPE."""
    sizes, family = sizes_of(fields), fields.get("model_type")
    n, std = sizes.width, sizes.std
    norm = Norm("layer", fields.number("layer_norm_eps", 1e-5, zero=True))
    fields.choice("use_qk_norm", False, (False,))
    windows = family == "cohere2"
    size = fields.count("head_dim", default=sizes.head_size)
    kv_heads = fields.count("num_key_value_heads", default=sizes.heads)
    hidden = mlp(
        n, std, fields.count("intermediate_size"), activation_of(fields, "hidden_act", "silu"),
        gated=True,
    )  # fmt: skip
    rope = rope_of(fields, size, base=10_000.0 if windows else 500_000.0)
    layers = [
        layer(
            attention(
                n, std, sizes.heads, size, kv_heads=kv_heads, mask=mask,
                **({} if windows and mask == "causal" else rope),
            ),
            hidden,
            norm,
            parallel=True,
        )
        for mask in (_masks(fields, sizes.depth) if windows else ["causal"])
    ]  # fmt: skip
    fields.zero_at_start("attention_bias")
    fields.no_influence(
        "layer_switch", "logit_scale", "max_position_embeddings", "model_max_length",
        "order_of_interleaved_layers", "position_embedding_type", "rotary_pct",
        "use_embedding_sharing", "use_gated_activation", "use_parallel_block",
        "use_parallel_embedding",
    )  # fmt: skip
    return Model(family, n, sizes.depth, Pattern(layers), words(fields, sizes, 0), norm)


def _masks(fields: Fields, depth: int) -> Sequence[str]:
    """Return the masks of cohere2: by default every fourth layer sees all tokens before it."""
    every = fields.count("sliding_window_pattern", default=4)
    window = fields.count("sliding_window", default=4096)
    default = ["sliding_attention" if (k + 1) % every else "full_attention" for k in range(depth)]
    types = types_of(fields, depth, default)
    return shortest([f"causal:{window}" if x == "sliding_attention" else "causal" for x in types])
