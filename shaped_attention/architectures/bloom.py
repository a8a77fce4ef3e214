"""Bloom and Falcon: LayerNorm, and ALiBi or RoPE."""

from __future__ import annotations

from typing import Any

from shaped_attention.architectures.fields import Fields
from shaped_attention.architectures.hidden import activation_of
from shaped_attention.architectures.model import Embedding, Model, Norm
from shaped_attention.architectures.parts import attention, mlp
from shaped_attention.architectures.rotary import rope_of
from shaped_attention.architectures.stack import layer, sizes_of
from shaped_attention.blocks.pattern import Pattern


def bloom(fields: Fields) -> Model:
    """Return a Bloom: ALiBi, and a norm of the embedding."""
    sizes = sizes_of(fields)
    n, std = sizes.width, sizes.std
    norm = Norm("layer", fields.number("layer_norm_epsilon", 1e-5, zero=True))
    fields.choice("apply_residual_connection_post_layernorm", False, (False,))
    fields.choice("n_inner", 4 * n, (4 * n,))
    blocks = layer(
        attention(n, std, sizes.heads, sizes.head_size, mask="causal", position_bias="alibi"),
        mlp(n, std, 4 * n, "gelu_tanh"),
        norm,
    )
    fields.no_influence(
        "attention_softmax_in_fp32", "bias_dropout_fusion", "masked_softmax_fusion",
        "offset_alibi", "pad_token_id", "seq_length", "skip_bias_add", "skip_bias_add_qkv",
        "slow_but_exact", "unk_token_id",
    )  # fmt: skip
    embedding = Embedding(sizes.vocabulary, std, norm=norm)
    return Model("bloom", n, sizes.depth, Pattern([blocks]), embedding, norm)


def falcon(fields: Fields) -> Model:
    """Return a Falcon: attention and MLP parallel or not, with one or several keys, RoPE or ALiBi.

    ALiBi is divided by the root of the head size, like the logits, and rounded to bfloat16.
    """
    sizes = sizes_of(fields)
    n, std, size = sizes.width, sizes.std, sizes.head_size
    norm = Norm("layer", fields.number("layer_norm_epsilon", 1e-5, zero=True))
    new = fields.flag("new_decoder_architecture", False)
    parallel = fields.flag("parallel_attn", True)
    if new and not parallel:
        raise ValueError(
            "config has new_decoder_architecture=True and parallel_attn=False, which models cannot "
            "have; parallel_attn=True is needed"
        )
    own = 1 if fields.flag("multi_query", True) else sizes.heads
    given = fields.count("num_kv_heads", "n_head_kv", default=sizes.heads)
    rotary_or_bias: dict[str, Any]
    if fields.flag("alibi", False):
        fields.no_influence("rope_parameters", "rope_theta", "rope_scaling")
        rotary_or_bias = {"position_bias": f"alibi:{size**-0.5!r}:bfloat16"}
    else:
        rotary_or_bias = rope_of(fields, size)
    blocks = layer(
        attention(
            n, std, sizes.heads, size, mask="causal", kv_heads=given if new else own,
            **rotary_or_bias,
        ),
        mlp(
            n, std, fields.count("ffn_hidden_size", default=4 * n),
            activation_of(fields, "activation", "gelu"),
        ),
        norm,
        parallel=parallel,
    )  # fmt: skip
    fields.zero_at_start("bias")
    fields.choice("apply_residual_connection_post_layernorm", False, (False,))
    fields.choice("num_ln_in_parallel_attn", None, (None, 1, 2))
    fields.no_influence("max_position_embeddings", "pad_token_id")
    embedding = Embedding(sizes.vocabulary, std)
    return Model("falcon", n, sizes.depth, Pattern([blocks]), embedding, norm)
