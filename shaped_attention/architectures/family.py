"""A family of models: what its row in the table says, and how a configuration becomes a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from shaped_attention.architectures.fields import Fields, field_error
from shaped_attention.architectures.layer_types import Kind, Kinds, all_full, mask_of, shortest
from shaped_attention.architectures.model import Embedding, LayerStds, Model, Norm
from shaped_attention.architectures.parameter_names import NAMES, Names
from shaped_attention.architectures.parts import attention, mlp, normed
from shaped_attention.architectures.recipes import Initial, initial
from shaped_attention.architectures.rope import rope_of
from shaped_attention.blocks.attention_fields import QKNorm
from shaped_attention.blocks.base import Block, Pattern
from shaped_attention.blocks.parallel import Parallel
from shaped_attention.blocks.rotations import Rope

WIDTHS = ("hidden_size", "n_embd", "n_embed")
HEADS = ("num_attention_heads", "n_head")
DEPTHS = ("num_hidden_layers", "n_layer")
"""Names of the numbers of features, heads and layers."""

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "plain_relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
"""Activations of the package, by the names that configurations use."""


class Sizes(NamedTuple):
    """Sizes of a stack of layers, and the standard deviation of its weights.

    The number of heads of keys and values is None if it is that of queries.
    """

    width: int
    depth: int
    heads: int
    kv_heads: int | None
    head_size: int
    std: float


class Details(NamedTuple):
    """What further fields of a configuration decide.

    Factors of the embedding, of the logits (None for 1 / sqrt(d_h)) and of each branch; cap of the
    logits; standard deviations of the weights and of the last ones of a branch, if they are others;
    place of the norms, if it is not the family's; whether there is a final norm; approximations as
    in `Model`; where all laws are cut, as in `Model.cuts`.
    """

    embedding: float = 1.0
    logits: float | None = None
    branch: float = 1.0
    softcap: float | None = None
    std: float | None = None
    last_std: float | None = None
    place: str | None = None
    final: bool = True
    approximations: tuple[str, ...] = ()
    cut: float = math.inf


def shared_keys(fields: Fields, heads: int) -> int:
    """Return the number of heads of keys and values."""
    return fields.count("num_key_value_heads", default=heads)


@dataclass(frozen=True)
class Family:
    """A family: a function from the fields of a configuration to the model.

    Parameters
    ----------
    defaults
        Values of the fields that a configuration lacks, those of the library's class.
    norm, place, qk_norm
        As in `Normalised` and `ShapedAttention`.
    eps
        Eps of the norms, or its field and default.
    std, activation, hidden
        Fields of the standard deviation, of the activation and of the number of hidden units, with
        their defaults, the last in units of the width.
    gated
        Whether the MLP is gated.
    parallel
        Whether attention and MLP are parallel, or the field that says so and its default.
    kv_heads, head_size
        Function for the number of heads of keys and values, None if it is that of queries; whether
        the configuration may have a `head_dim`.
    encoder
        Whether the family has no causal mask, unless `is_decoder` is true.
    kinds, mask, rope
        Functions for the kind of each layer, the mask of a type of attention, and its positions: a
        `Rope`, a position bias as in `ShapedAttention`, or None.
    details
        Function for what further fields decide.
    padding, positions, typed, normed
        The embedding: whether the padding token has a row of zeros; whether the number of positions
        is "bounded", or they are "learned"; whether all tokens share the row of their type; whether
        it has a norm.
    offset
        Whether positions begin behind that of the padding token, which is zero.
    biases, unused, only
        Fields that add biases; those without influence; those that must have one of a few values,
        the first by default.
    """

    defaults: Mapping[str, Any] = field(default_factory=dict)
    norm: str = "rms"
    place: str = "before"
    qk_norm: str | None = None
    eps: float | tuple[str, float] = ("rms_norm_eps", 1e-6)
    std: tuple[str, float] = ("initializer_range", 0.02)
    activation: tuple[str, str] = ("hidden_act", "silu")
    hidden: tuple[str, int | None] = ("intermediate_size", None)
    gated: bool = True
    parallel: bool | tuple[str, bool] = False
    kv_heads: Callable[[Fields, int], int] | None = shared_keys
    head_size: bool = True
    encoder: bool = False
    kinds: Kinds = all_full
    mask: Callable[[Fields, str], str | None] = mask_of
    rope: Callable[[Fields, int, str], Rope | str | None] = rope_of
    details: Callable[[Fields, Sizes], Details] = lambda fields, sizes: Details()
    padding: bool = True
    positions: str | None = None
    typed: bool = False
    normed: bool = False
    offset: bool = False
    biases: tuple[str, ...] = ("attention_bias", "attention_out_bias", "mlp_bias")
    unused: tuple[str, ...] = ()
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def __call__(self, fields: Fields, init: str | None = None) -> Model:
        """Return the model of a configuration, with an initialisation as in `initial`."""
        fields.complete(self.defaults)
        if self.encoder and not fields.values.get("is_decoder"):
            fields.no_influence("is_causal")
        else:
            fields.choice("is_causal", True, (True,))  # False removes the library's causal mask.
        for name, allowed in self.only.items():
            fields.choice(name, allowed[0], allowed)
        fields.zero_at_start(*self.biases)
        fields.no_influence(
            "max_position_embeddings", "original_max_position_embeddings", *self.unused
        )
        sizes = self._sizes(fields)
        eps = self.eps if isinstance(self.eps, float) else fields.number(*self.eps, zero=True)
        norm, details = Norm(self.norm, eps), self.details(fields, sizes)
        sizes = sizes._replace(std=details.std or sizes.std)
        place = details.place or self.place
        name, multiple = self.hidden
        hidden = fields.count(name, default=multiple and multiple * sizes.width)
        laws = self._initial(fields, sizes, hidden, details.last_std, init)
        kinds = shortest(list(zip(self.kinds(fields, sizes.depth), laws.layers, strict=True)))
        layers = self._layers(fields, sizes, hidden, norm, place, details, kinds)
        own = details.approximations if laws.of_library else ()
        cuts = dict.fromkeys("qkvogudwpyhf", details.cut) | dict(laws.cuts)
        return Model(
            fields.get("model_type"), sizes.width, sizes.depth, Pattern(layers),
            self._embedding(fields, laws.outside, norm, details.embedding),
            norm if details.final and place != "after" else None, own + laws.approximations,
            stds=tuple(stds for _, stds in kinds), head_std=laws.outside["h"],
            transform_std=laws.outside["f"], logit_multiplier=laws.multiplier,
            init=init if laws.table and init else "", recipe=laws.table,
            cuts={x: cut for x, cut in cuts.items() if math.isfinite(cut)},
        )  # fmt: skip

    def _initial(
        self, fields: Fields, sizes: Sizes, hidden: int, last: float | None, init: str | None
    ) -> Initial:
        """Return the standard deviations of all matrices."""
        family, last = fields.get("model_type"), sizes.std if last is None else last
        names = NAMES.get(family, Names())
        lasts = "odfh" if family == "modernbert" else "od"
        own = dict.fromkeys("qkvguwpyhf", sizes.std) | dict.fromkeys(lasts, last)
        tied = fields.values.get("tie_word_embeddings")
        return initial(
            init, family, names.tied if tied is None else bool(tied), own,
            {"L": sizes.depth, "n": sizes.width, "std": sizes.std},
            {"o": sizes.heads * sizes.head_size, "d": hidden},
        )  # fmt: skip

    def _sizes(self, fields: Fields) -> Sizes:
        width, heads = fields.count(*WIDTHS), fields.count(*HEADS)
        keys = None if self.kv_heads is None else self.kv_heads(fields, heads)
        if keys is not None and heads % keys:
            what = f"a multiple of {keys}, the number of key and value heads"
            raise field_error(fields.known_as(*HEADS), what, heads)
        named = self.head_size and fields.get("head_dim") is not None
        if not named and width % heads:
            without = " unless head_dim is given" if self.head_size else ""
            what = f"a divisor of {fields.known_as(*WIDTHS)}={width}{without}"
            raise field_error(fields.known_as(*HEADS), what, heads)
        size = fields.count("head_dim") if named else width // heads
        return Sizes(width, fields.count(*DEPTHS), heads, keys, size, fields.number(*self.std))

    def _layers(
        self, fields: Fields, sizes: Sizes, units: int, norm: Norm, place: str, details: Details,
        kinds: list[tuple[Kind, LayerStds]],
    ) -> list[list[Block]]:  # fmt: skip
        """Return layers of given kinds, whose weights have given standard deviations."""
        n, _, heads, keys, size, _ = sizes
        activation = ACTIVATIONS[fields.choice(*self.activation, ACTIVATIONS)]
        parallel = self.parallel if isinstance(self.parallel, bool) else fields.flag(*self.parallel)
        logits = size**-0.5 if details.logits is None else details.logits

        def layer(kind: Kind, stds: LayerStds) -> list[Block]:
            hidden = mlp(n, stds, units, activation, gated=self.gated)
            # Read even if the layer is not rotated, so that the fields are checked.
            rope = self.rope(fields, size, kind.attention)
            seeing = attention(
                n, stds, heads, size, kv_heads=keys,
                logit_scale=logits / kind.divisor, softcap=details.softcap,
                qk_norm=QKNorm(self.qk_norm, norm.eps) if self.qk_norm else None,
                mask=self.mask(fields, kind.attention),
                rope=rope if isinstance(rope, Rope) and kind.rotated else None,
                position_bias=rope if isinstance(rope, str) else None,
            )  # fmt: skip
            if parallel:
                both = Parallel(replace(seeing, skip=0.0), replace(hidden, skip=0.0), skip=1.0)
                return [normed(both, place, norm)]
            first = normed(seeing, place, norm, details.branch) if kind.normed else seeing
            return [first, normed(hidden, place, norm, details.branch)]

        return [layer(kind, stds) for kind, stds in kinds]

    def _embedding(
        self, fields: Fields, stds: Mapping[str, float], norm: Norm, scale: float
    ) -> Embedding:
        vocabulary, positions = fields.count("vocab_size"), None
        pad = _padding(fields, vocabulary) if self.padding else ()
        if not self.padding:
            fields.no_influence("pad_token_id")
        if self.typed:
            fields.count("type_vocab_size", default=2)
        if self.positions:
            positions = fields.count("n_positions", "max_position_embeddings")
        if self.offset and positions:
            if not pad:
                raise field_error("pad_token_id", "an integer for this family", None)
            positions -= pad[0] + 1
        return Embedding(
            vocabulary, stds["w"], scale=scale,
            position_std=stds["p"] if self.positions == "learned" else 0.0,
            common_std=stds["y"] if self.typed else 0.0, norm=norm if self.normed else None,
            zero_ids=pad, positions=positions, zero_positions=self.offset,
        )  # fmt: skip


def _padding(fields: Fields, vocabulary: int) -> tuple[int, ...]:
    """Return the number of the padding token in a tuple, empty if there is no such token."""
    pad, count = fields.get("pad_token_id"), vocabulary
    if pad is None:
        return ()
    if isinstance(pad, bool) or not isinstance(pad, int) or not -count <= pad < count:
        raise field_error("pad_token_id", f"an integer in [0, {count - 1}], below vocab_size", pad)
    return (pad % count,)
