"""ModernBERT: pre-norm with LayerNorm, RoPE, gated MLP, local and global attention.

All weights are truncated normal: with a standard deviation sigma before the truncation at c sigma
they have the standard deviation sigma sqrt(1 - 2 c phi(c) / (2 Phi(c) - 1)).
"""

from __future__ import annotations

import math

from scipy.stats import truncnorm

from shaped_attention.architectures.fields import Fields
from shaped_attention.architectures.hidden import activation_of
from shaped_attention.architectures.layer_types import types_of
from shaped_attention.architectures.model import Embedding, Model, Norm
from shaped_attention.architectures.parts import attention, mlp, normed
from shaped_attention.architectures.rotary import rope_of
from shaped_attention.architectures.stack import sizes_of
from shaped_attention.blocks.base import Block
from shaped_attention.blocks.pattern import Pattern

_BASES = {"full_attention": ("global_rope_theta", 160_000.0),
          "sliding_attention": ("local_rope_theta", 10_000.0)}  # fmt: skip


def modernbert(fields: Fields) -> Model:
    """Return a ModernBERT, with Gaussian weights of the same standard deviation.

    The first layer has no norm before attention, since the embedding has one.
    """
    sizes = sizes_of(fields)
    n, depth = sizes.width, sizes.depth
    fields.complete({"initializer_cutoff_factor": 2.0})
    cutoff = fields.number("initializer_cutoff_factor", 3.0)  # the library's value for None
    std = sizes.std * float(truncnorm.std(-cutoff, cutoff))
    last = std / math.sqrt(2.0 * depth)
    norm = Norm("layer", fields.number("norm_eps", 1e-5, zero=True))
    every = fields.count("global_attn_every_n_layers", default=3)
    default = ["sliding_attention" if k % every else "full_attention" for k in range(depth)]
    window = fields.count("local_attention", default=128) // 2 + 1
    masks = {"full_attention": None, "sliding_attention": f"local:{window}"}
    if (theta := fields.get("rope_theta")) is not None:
        raise ValueError(
            f"config has rope_theta={theta!r}, which ModernBERT ignores; global_rope_theta and "
            "local_rope_theta are needed"
        )
    ropes = {
        kind: rope_of(fields, sizes.head_size, kind, base=fields.number(name, base), by_type=True)
        for kind, (name, base) in _BASES.items()
    }
    hidden = mlp(
        n, std, fields.count("intermediate_size"),
        activation_of(fields, "hidden_activation", "gelu"), gated=True, out_std=last,
    )  # fmt: skip
    layers = []
    for k, kind in enumerate(types_of(fields, depth, default)):
        heads: Block = attention(
            n, std, sizes.heads, sizes.head_size, out_std=last, mask=masks[kind], **ropes[kind]
        )
        layers.append(
            [normed(heads, "before", norm) if k else heads, normed(hidden, "before", norm)]
        )
    fields.zero_at_start("attention_bias", "mlp_bias", "norm_bias")
    fields.no_influence(
        "classifier_activation", "classifier_bias", "classifier_pooling", "cls_token_id",
        "decoder_bias", "deterministic_flash_attn", "layer_norm_eps", "max_position_embeddings",
        "mlp_dropout", "pad_token_id", "position_embedding_type", "reference_compile",
        "repad_logits_with_grad", "sparse_pred_ignore_index", "sparse_prediction",
    )  # fmt: skip
    truncated = (
        f"weights are truncated normal, from -{cutoff:g} to {cutoff:g} standard deviations "
        f"{sizes.std:g}; Gaussian weights with the standard deviation {std:.4g} have their variance"
    )
    embedding = Embedding(sizes.vocabulary, std, norm=norm)
    return Model(
        "modernbert", n, depth, Pattern(layers), embedding, norm, approximations=(truncated,)
    )
