"""Decoders with LayerNorm and RoPE, where attention and MLP may be parallel."""

from __future__ import annotations

from shaped_attention.architectures.fields import Fields
from shaped_attention.architectures.hidden import activation_of
from shaped_attention.architectures.layer_types import listed, mask_of, shortest
from shaped_attention.architectures.model import Embedding, Model, Norm
from shaped_attention.architectures.parts import attention, mlp
from shaped_attention.architectures.rotary import rope_of
from shaped_attention.architectures.stack import layer, sizes_of, words
from shaped_attention.blocks.pattern import Pattern
from shaped_attention.blocks.rotations import rope_angles


def gpt_neox(fields: Fields) -> Model:
    """Return a GPT-NeoX or Pythia: RoPE turns a quarter of a head by default."""
    sizes = sizes_of(fields)
    n, std = sizes.width, sizes.std
    norm = Norm("layer", fields.number("layer_norm_eps", 1e-5, zero=True))
    rope = rope_of(
        fields, sizes.head_size, base=fields.number("rotary_emb_base", 10_000.0),
        share=fields.number("rotary_pct", 0.25), partial=True,
    )  # fmt: skip
    blocks = layer(
        attention(n, std, sizes.heads, sizes.head_size, mask="causal", **rope),
        mlp(n, std, fields.count("intermediate_size"), activation_of(fields, "hidden_act", "gelu")),
        norm,
        parallel=fields.flag("use_parallel_residual", True),
    )
    fields.zero_at_start("attention_bias")
    fields.no_influence("max_position_embeddings", "pad_token_id")
    embedding = Embedding(sizes.vocabulary, std)
    return Model("gpt_neox", n, sizes.depth, Pattern([blocks]), embedding, norm)


def phi(fields: Fields) -> Model:
    """Return a Phi (1, 1.5, 2): attention and MLP are parallel."""
    return _grouped(fields, None, share=0.5, parallel=True, gated=False, activation="gelu_new")


def stablelm(fields: Fields) -> Model:
    """Return a StableLM: a gated MLP, parallel to attention or not."""
    fields.zero_at_start("use_qkv_bias")
    parallel = fields.flag("use_parallel_residual", False)
    return _grouped(fields, 32, share=0.25, parallel=parallel, gated=True, activation="silu")


def _grouped(
    fields: Fields,
    kv_heads: int | None,
    *,
    share: float,
    parallel: bool,
    gated: bool,
    activation: str,
) -> Model:
    """Return a decoder whose heads share keys and values, without QK-norm."""
    sizes = sizes_of(fields)
    n, std = sizes.width, sizes.std
    norm = Norm("layer", fields.number("layer_norm_eps", 1e-5, zero=True))
    fields.choice("qk_layernorm", False, (False,))
    blocks = layer(
        attention(
            n, std, sizes.heads, sizes.head_size, mask="causal",
            kv_heads=fields.count("num_key_value_heads", default=kv_heads or sizes.heads),
            **rope_of(fields, sizes.head_size, share=share, partial=True),
        ),
        mlp(
            n, std, fields.count("intermediate_size"),
            activation_of(fields, "hidden_act", activation), gated=gated,
        ),
        norm,
        parallel=parallel,
    )  # fmt: skip
    fields.no_influence("max_position_embeddings")
    family = fields.get("model_type")
    return Model(family, n, sizes.depth, Pattern([blocks]), words(fields, sizes), norm)


def starcoder2(fields: Fields) -> Model:
    """Return a StarCoder2: shared keys and values, and windows."""
    sizes = sizes_of(fields, default=0.018042)
    n, std = sizes.width, sizes.std
    norm = Norm("layer", fields.number("norm_epsilon", 1e-5, zero=True))
    head_size = fields.count("head_dim", default=sizes.head_size)
    hidden = mlp(
        n, std, fields.count("intermediate_size"),
        activation_of(fields, "hidden_act", "gelu_pytorch_tanh"),
    )  # fmt: skip
    rope = rope_of(fields, head_size)
    kv_heads = fields.count("num_key_value_heads", default=2)
    kinds = shortest(listed(fields, sizes.depth))
    masks = [mask_of(fields, kind.attention) for kind in kinds]
    layers = [
        layer(
            attention(n, std, sizes.heads, head_size, kv_heads=kv_heads, mask=mask, **rope),
            hidden,
            norm,
        )
        for mask in masks
    ]
    fields.zero_at_start("use_bias")
    fields.choice("norm_type", "layer_norm", ("layer_norm",))
    fields.choice("mlp_type", "default", ("default",))
    fields.no_influence("max_position_embeddings", "residual_dropout")
    return Model("starcoder2", n, sizes.depth, Pattern(layers), words(fields, sizes), norm)


def gptj(fields: Fields) -> Model:
    """Return a GPT-J or CodeGen: attention and MLP are parallel, RoPE turns `rotary_dim` columns.

    Neighbouring columns form a pair there, which has the same law as any other pairing.
    """
    sizes = sizes_of(fields)
    n, std = sizes.width, sizes.std
    norm = Norm("layer", fields.number("layer_norm_epsilon", 1e-5, zero=True))
    rotated = fields.count("rotary_dim")
    if rotated > sizes.head_size or rotated % 2:
        raise ValueError(
            f"config has rotary_dim={rotated}; an even number up to {sizes.head_size}, the head "
            "size, is needed"
        )
    blocks = layer(
        attention(
            n, std, sizes.heads, sizes.head_size, mask="causal",
            rope=rope_angles(10_000.0, rotated), rope_share=rotated / sizes.head_size,
        ),
        mlp(
            n, std, fields.count("n_inner", default=4 * n),
            activation_of(fields, "activation_function", "gelu_new"),
        ),
        norm,
        parallel=True,
    )  # fmt: skip
    fields.no_influence(
        "n_ctx", "pad_token_id", "rotary", "scale_attn_weights", "summary_activation",
        "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
    )  # fmt: skip
    positions = fields.count("n_positions", "max_position_embeddings")
    embedding = Embedding(sizes.vocabulary, std, positions=positions)
    family = fields.get("model_type")
    return Model(family, n, sizes.depth, Pattern([blocks]), embedding, norm)
