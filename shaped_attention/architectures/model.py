"""A transformer at initialisation: embedding, layers and final norm, as objects of the package."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, field
from typing import Any

from shaped_attention.blocks.attention import ShapedAttention
from shaped_attention.blocks.base import Block, Layer, blocks_of, pattern_of
from shaped_attention.blocks.normalised import NORMS
from shaped_attention.blocks.parameters import blocks_inside
from shaped_attention.checks import (
    argument_error,
    check_choice,
    check_count,
    check_nonnegative,
    check_positive,
)
from shaped_attention.memory_sizes import check_fits
from shaped_attention.results.plain_arguments import storable


def check_kind(name: str, value: Any, kind: Any, needed: str) -> None:
    """Raise ValueError unless a value is an instance of a type."""
    if not isinstance(value, kind):
        raise argument_error(name, needed, value)


_BYTES_OF_A_LAYER = 200
"""The least that the lists of layers and their fields take for each."""


def check_depth(name: str, depth: int) -> None:
    """Raise ValueError unless a number of layers is an integer >= 1 and fits into memory."""
    check_count(name, depth)
    check_fits(name, depth, _BYTES_OF_A_LAYER, "fewer layers need less")


@storable
@dataclass(frozen=True)
class Norm:
    """A norm of the tokens: RMSNorm ("rms") or LayerNorm ("layer"), with gain 1 and no bias.

    Parameters
    ----------
    kind
        "rms" or "layer".
    eps
        Number >= 0 that is added to the mean square, or to the variance, under the root.
    """

    kind: str
    eps: float

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, NORMS)
        check_nonnegative("eps", self.eps)

    def __str__(self) -> str:
        return f"{'RMSNorm' if self.kind == 'rms' else 'LayerNorm'} (eps {self.eps:g})"


@storable
@dataclass(frozen=True)
class Embedding:
    """The law of the tokens that enter the first layer.

    A token with id i at position a is scale (E_i + P_a + C), to which a norm is applied if there is
    one. The entries of E, P and C are independent Gaussian, with standard deviations `std`,
    `position_std` and `common_std`. Tokens with equal ids share E_i; all tokens share C.

    Parameters
    ----------
    vocabulary
        Number of different tokens.
    std, position_std, common_std
        Standard deviations of the entries; 0 leaves a term out.
    scale
        Factor of the sum.
    norm
        Norm of the sum, or None.
    zero_ids
        Ids of the tokens with E_i = 0, such as the id of the padding token.
    zero_positions
        Whether tokens of `zero_ids` have P_a = 0 as well.
    positions
        Largest number of tokens, or None if it is not bounded.
    """

    vocabulary: int
    std: float
    position_std: float = 0.0
    common_std: float = 0.0
    scale: float = 1.0
    norm: Norm | None = None
    zero_ids: tuple[int, ...] = ()
    positions: int | None = None
    zero_positions: bool = False

    def __post_init__(self) -> None:
        check_count("vocabulary", self.vocabulary)
        check_positive("std", self.std)
        check_nonnegative("position_std", self.position_std)
        check_nonnegative("common_std", self.common_std)
        check_positive("scale", self.scale)
        check_kind("norm", self.norm, Norm | None, "a Norm or None")
        if self.positions is not None:
            check_count("positions", self.positions)
        check_kind("zero_ids", self.zero_ids, list | tuple, "a list of token numbers")
        for number in self.zero_ids:
            check_count("zero_ids", number, lowest=0)
            if number >= self.vocabulary:
                raise argument_error("zero_ids", f"below vocabulary={self.vocabulary}", number)
        object.__setattr__(self, "zero_ids", tuple(self.zero_ids))

    @property
    def variance(self) -> float:
        """Mean square of the entries of a token before the norm."""
        parts = (self.std, self.position_std, self.common_std)
        return self.scale**2 * math.fsum(x**2 for x in parts)


@storable
@dataclass(frozen=True)
class LayerStds:
    """Standard deviations of a layer's matrices, by what they make.

    `up` and `down` are the first and last matrices of the MLP. In a gated MLP the activation acts
    on the output of `gate`; otherwise `gate` is unused. `output` is attention's output projection.
    """

    queries: float
    keys: float
    values: float
    output: float
    gate: float
    up: float
    down: float

    def of(self, letter: str) -> float:
        """Return that of q, k, v, o, g, u or d, the letters of `parameter_names`."""
        numbers: tuple[float, ...] = astuple(self)
        return numbers["qkvogud".index(letter)]


@storable
@dataclass(frozen=True)
class Model:
    """A transformer at initialisation, in the package's own objects.

    Parameters
    ----------
    family
        Name of the family, such as "llama".
    width, depth
        Number n of features of a token, and number L of layers.
    layer
        Blocks of a layer, or a `Pattern` of layers that is repeated up to the depth.
    embedding
        Law of the tokens that enter the first layer.
    final_norm
        Norm after the last layer, or None.
    approximations
        Sentences on how the initialisation differs from a Gaussian one; empty if the law is exact.
    unused
        Fields of the configuration that do not affect the tokens, and unknown fields that are
        False, 0 or empty, with their values.
    adapted
        Lists with one entry per layer, which were continued or cut when the depth was changed.
    name
        Name for tables and figures.
    stds
        Standard deviations of the matrices of each layer of the pattern; None if they are unknown.
    head_std, transform_std
        Those of a head that is not tied, and of the matrix in front of the head of a masked model;
        None is that of the embedding.
    logit_multiplier
        Extra factor of the logits, on top of any in the configuration.
    init, recipe
        The recipe of the initialisation, and its table in words; empty for the library's own.
    cuts
        Letters of the matrices whose law is cut, as in `parameter_names`, with the place of the cut
        in standard deviations of the law before it; all others are normal.
    config
        The configuration that was read, if there is one; records of results hold it. Comparisons of
        models ignore it.
    """

    family: str
    width: int
    depth: int
    layer: Layer
    embedding: Embedding
    final_norm: Norm | None = None
    approximations: tuple[str, ...] = ()
    unused: tuple[str, ...] = field(default=(), compare=False)
    adapted: tuple[str, ...] = field(default=(), compare=False)
    name: str = field(default="", compare=False)
    stds: tuple[LayerStds, ...] | None = None
    head_std: float | None = None
    transform_std: float | None = None
    logit_multiplier: float = 1.0
    init: str = field(default="", compare=False)
    recipe: tuple[str, ...] = field(default=(), compare=False)
    cuts: dict[str, float] = field(default_factory=dict, compare=False)
    config: dict[str, Any] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_count("width", self.width)
        check_depth("depth", self.depth)
        blocks_of(self.layer)
        check_kind("embedding", self.embedding, Embedding, "an Embedding")
        check_kind("final_norm", self.final_norm, Norm | None, "a Norm or None")
        check_kind("config", self.config, dict | None, "a dict or None")
        for entry in ("family", "name", "init"):
            check_kind(entry, getattr(self, entry), str, "text")
        for entry in ("approximations", "unused", "adapted", "recipe"):
            texts = getattr(self, entry)
            check_kind(entry, texts, list | tuple, "a list of texts")
            object.__setattr__(self, entry, tuple(texts))
        if self.stds is not None:
            check_kind("stds", self.stds, list | tuple, "a list with one per layer")
            object.__setattr__(self, "stds", tuple(self.stds))
        if isinstance(self.layer, list):
            object.__setattr__(self, "layer", tuple(self.layer))

    def __str__(self) -> str:
        return self.name or self.family

    def layers(self) -> list[tuple[Block, ...]]:
        """Return the blocks of each of the L layers."""
        pattern = pattern_of(self.layer)
        return [pattern[k % len(pattern)] for k in range(self.depth)]


def attention_of(block: Block) -> list[ShapedAttention]:
    """Return the attention in a block, which may have norms or parallel branches."""
    if isinstance(block, ShapedAttention):
        return [block]
    return [attention for part in blocks_inside(block) for attention in attention_of(part)]
