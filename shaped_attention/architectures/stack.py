"""What families share: their sizes, the rows of zeros of an embedding, the blocks of a layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shaped_attention.architectures.fields import Fields
from shaped_attention.architectures.model import Embedding, Norm
from shaped_attention.architectures.parts import normed
from shaped_attention.blocks.attention import ShapedAttention
from shaped_attention.blocks.base import Block
from shaped_attention.blocks.mlp import ShapedMLP
from shaped_attention.blocks.parallel import Parallel

_WIDTHS = ("hidden_size", "n_embd", "n_embed")
_HEADS = ("num_attention_heads", "n_head")
DEPTHS = ("num_hidden_layers", "n_layer")
"""Names of the number of layers."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of a stack of layers, and the standard deviation of its weights."""

    width: int
    depth: int
    heads: int
    head_size: int
    std: float
    vocabulary: int


def sizes_of(fields: Fields, std: str = "initializer_range", default: float = 0.02) -> Sizes:
    """Return the sizes that a configuration names, with its field of the standard deviation.

    Raises
    ------
    ValueError
        If a field is missing or invalid, two names of one size have different values, or the heads
        do not divide the width.
    """
    width, heads = fields.count(*_WIDTHS), fields.count(*_HEADS)
    if width % heads:
        raise ValueError(
            f"config has a width of {width} and {heads} heads; a multiple of the heads is needed"
        )
    return Sizes(
        width,
        fields.count(*DEPTHS),
        heads,
        width // heads,
        fields.number(std, default),
        fields.count("vocab_size"),
    )


def words(fields: Fields, sizes: Sizes, padding: int | None = None) -> Embedding:
    """Return an embedding of words, where that of the padding token is a row of zeros."""
    zero_ids = padding_of(fields, sizes.vocabulary, padding)
    return Embedding(sizes.vocabulary, sizes.std, zero_ids=zero_ids)


def padding_of(fields: Fields, vocabulary: int, default: int | None = None) -> tuple[int, ...]:
    """Return the number of the padding token in a tuple, which is empty if there is no such token.

    The default is for configurations without this field; None as its value means none.

    Raises
    ------
    ValueError
        If it is outside the vocabulary.
    """
    pad, count = fields.get("pad_token_id"), vocabulary
    pad = pad if "pad_token_id" in fields.values else default
    if pad is None:
        return ()
    if isinstance(pad, bool) or not isinstance(pad, int) or not -count <= pad < count:
        raise ValueError(
            f"config has pad_token_id={pad!r}; a number from 0 to {count - 1}, below vocab_size, "
            "is needed"
        )
    return (pad % count,)


def layer(
    attention: ShapedAttention,
    mlp: ShapedMLP,
    norm: Norm,
    place: str = "before",
    *,
    parallel: bool = False,
) -> Sequence[Block]:
    """Return attention and MLP, each with its norm, or both in parallel behind norms alike."""
    if parallel:
        both = Parallel(replace(attention, skip=0.0), replace(mlp, skip=0.0), skip=1.0)
        return [normed(both, place, norm)]
    return [normed(attention, place, norm), normed(mlp, place, norm)]
