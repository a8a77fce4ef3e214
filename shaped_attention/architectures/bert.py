"""BERT and RoBERTa: post-norm with LayerNorm, all tokens seen, learned positions."""

from __future__ import annotations

from shaped_attention.architectures.fields import Fields
from shaped_attention.architectures.hidden import activation_of
from shaped_attention.architectures.model import Embedding, Model, Norm
from shaped_attention.architectures.parts import attention, mlp
from shaped_attention.architectures.stack import layer, padding_of, sizes_of
from shaped_attention.blocks.pattern import Pattern


def bert(fields: Fields) -> Model:
    """Return a BERT or RoBERTa, whose tokens are all of the first type.

    The positions of RoBERTa begin behind that of the padding token, whose own position is zero.
    """
    sizes, family = sizes_of(fields), fields.get("model_type")
    n, std = sizes.width, sizes.std
    norm = Norm("layer", fields.number("layer_norm_eps", 1e-12, zero=True))
    fields.choice("position_embedding_type", "absolute", ("absolute",))
    mask = "causal" if fields.flag("is_decoder", False) else None
    blocks = layer(
        attention(n, std, sizes.heads, sizes.head_size, mask=mask),
        mlp(n, std, fields.count("intermediate_size"), activation_of(fields, "hidden_act", "gelu")),
        norm,
        "after",
    )
    offset = family == "roberta"
    padding = padding_of(fields, sizes, 1 if offset else 0)
    positions = fields.count("max_position_embeddings")
    if offset and not padding:
        raise ValueError("config has pad_token_id=None; roberta needs a number")
    fields.count("type_vocab_size", default=2)
    embedding = Embedding(
        sizes.vocabulary,
        std,
        position_std=std,
        common_std=std,
        norm=norm,
        zero_ids=padding,
        positions=positions - padding[0] - 1 if offset else positions,
        zero_positions=offset,
    )
    return Model(family, n, sizes.depth, Pattern([blocks]), embedding)
