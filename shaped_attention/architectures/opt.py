"""OPT: LayerNorm before or after each branch, learned positions, ReLU."""

from __future__ import annotations

from dataclasses import replace

from shaped_attention.architectures.fields import Fields
from shaped_attention.architectures.hidden import activation_of
from shaped_attention.architectures.model import Model, Norm
from shaped_attention.architectures.parts import attention, mlp
from shaped_attention.architectures.stack import layer, sizes_of, words
from shaped_attention.blocks.pattern import Pattern


def opt(fields: Fields) -> Model:
    """Return an OPT; the norms have eps = 10^-5, and the post-norm model has no final norm."""
    sizes = sizes_of(fields, "init_std")
    n, std = sizes.width, sizes.std
    fields.choice("word_embed_proj_dim", n, (n,))
    before = fields.flag("do_layer_norm_before", True)
    final = before and not fields.flag("_remove_final_layer_norm", False)
    norm = Norm("layer", 1e-5)
    blocks = layer(
        attention(n, std, sizes.heads, sizes.head_size, mask="causal"),
        mlp(n, std, fields.count("ffn_dim"), activation_of(fields, "activation_function", "relu")),
        norm,
        "before" if before else "after",
    )
    fields.zero_at_start("enable_bias")
    fields.no_influence("layer_norm_elementwise_affine")
    embedding = replace(
        words(fields, sizes, 1),
        position_std=std,
        positions=fields.count("max_position_embeddings"),
    )
    return Model("opt", n, sizes.depth, Pattern([blocks]), embedding, norm if final else None)
