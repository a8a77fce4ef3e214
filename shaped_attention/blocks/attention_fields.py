"""The fields of attention, the values that group them, and their checks.

A value belongs to one subject: the sizes of the heads, the terms of the scores, the modifications
of softmax attention, the rotation (`rotations.Rope`), QK-norm. Its fields are arguments of
`ShapedAttention` too, under the names in `SHORT`, and a result stores these names.
"""

from __future__ import annotations

import inspect
import math
from abc import ABCMeta
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from shaped_attention.blocks.parameters import (
    Parameter,
    Parameters,
    check_parameter,
    check_weights,
    extremes,
    plain_fields,
)
from shaped_attention.blocks.positions import (
    Bias,
    HeadBias,
    checked_bias,
    checked_mask,
    head_bias,
)
from shaped_attention.blocks.rotations import Rope
from shaped_attention.checks import (
    argument_error,
    bound_arguments,
    check_count,
    check_fraction,
    check_nonnegative,
    check_positive,
    check_range,
    check_width,
    is_number,
)

_LARGEST_TAU0 = 1e100
"""Beyond, the square of a temperature overflows."""


def _check_switches(values: object, *names: str) -> None:
    for name in names:
        if not isinstance(getattr(values, name), bool):
            raise argument_error(name, "True or False", getattr(values, name))


@dataclass(frozen=True)
class HeadSizes:
    """Numbers of columns of the heads: n_k, d_h, the groups of keys and values, and H d_h / n."""

    key_size: int | None = None
    head_size: int | None = None
    kv_heads: int | None = None
    value_ratio: float | None = None

    def __post_init__(self) -> None:
        plain_fields(self)
        for name in ("key_size", "head_size"):
            if getattr(self, name) is not None:
                check_width(name, getattr(self, name))
        if self.kv_heads is not None:
            check_count("kv_heads", self.kv_heads)
        if self.value_ratio is not None:
            check_positive("value_ratio", self.value_ratio)
            if self.head_size is None:
                raise argument_error("value_ratio", "None without head_size", self.value_ratio)

    @property
    def fixed_keys(self) -> int | None:
        """The number of columns of a head's keys, if it does not grow with the width."""
        return self.key_size if self.key_size is not None else self.head_size


@dataclass(frozen=True)
class ScoreTerms:
    """What is added to the products of queries and keys, or done to them, in the logits."""

    query_bias: float = 0.0
    key_bias: float = 0.0
    position_bias: Bias = None
    softcap: float | None = None

    def __post_init__(self) -> None:
        plain_fields(self)
        for name in ("query_bias", "key_bias"):
            check_range(name, getattr(self, name), 0.0, _LARGEST_TAU0)
        if self.softcap is not None:
            check_positive("softcap", self.softcap)


@dataclass(frozen=True)
class Shaping:
    """The three modifications of softmax attention."""

    identity: bool = True
    centring: bool = True
    scaled_temperature: bool = True

    def __post_init__(self) -> None:
        _check_switches(self, "identity", "centring", "scaled_temperature")


@dataclass(frozen=True)
class QKNorm:
    """Division of queries and keys by their root mean square, over a head or "all" heads."""

    over: str = "head"
    eps: float = 0.0

    def __post_init__(self) -> None:
        if self.over not in ("head", "all"):
            raise argument_error("qk_norm", "False, True, 'head' or 'all'", self.over)
        check_nonnegative("qk_norm_eps", self.eps)

    @classmethod
    def of(cls, value: Any) -> QKNorm | None:
        """Return the value of a short form: True, "head" or "all", False or None."""
        if value is None or value is False or isinstance(value, QKNorm):
            return value or None
        return cls("head" if value is True else value)


SHORT: Mapping[str, tuple[str, str]] = {
    **{entry.name: ("sizes", entry.name) for entry in fields(HeadSizes)},
    **{entry.name: ("scores", entry.name) for entry in fields(ScoreTerms)},
    **{entry.name: ("shaping", entry.name) for entry in fields(Shaping)},
    "rope_share": ("rope", "share"),
    "qk_norm_eps": ("qk_norm", "eps"),
}
"""Names of arguments of attention that are fields of a value: the value, and the field's name."""

_ORDER = (
    "gamma", "tau0", "heads", "mask", "output_projection", "key_size", "query_bias", "key_bias",
    "identity", "centring", "scaled_temperature", "skip", "kv_heads", "head_size", "value_ratio",
    "rope", "rope_share", "position_bias", "qk_norm", "qk_norm_eps", "softcap",
)  # fmt: skip
"""Arguments of attention, in their order."""

_ABSENT = {"rope": Rope(1.0), "qk_norm": QKNorm()}


class _ShortForms(ABCMeta):
    """Makes attention from fields of its values too, under their short names.

    As a metaclass it does so for `dataclasses.replace` and for subclasses with fields of their own.
    """

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        known = (*_ORDER, *[x.name for x in fields(cls) if x.name not in _FIELDS])  # type: ignore[arg-type]
        if arguments:
            names = known[: len(arguments)]
            if len(names) < len(arguments) or named.keys() & set(names):
                raise TypeError(f"{cls.__name__} got too many arguments, or the same one twice")
            named = dict(zip(names, arguments, strict=True)) | named
        asked = dict(named)
        defaults = {"sizes": HeadSizes(), "scores": ScoreTerms(), "shaping": Shaping()}
        values: dict[str, Any] = defaults | {x: named[x] for x in _VALUES if x in named}
        values["rope"] = Rope.of(values.get("rope"))
        values["qk_norm"] = QKNorm.of(values.get("qk_norm"))
        changes: dict[str, dict[str, Any]] = {name: {} for name in _VALUES}
        for name in [name for name in named if name in SHORT]:
            value, entry = SHORT[name]
            argument = named.pop(name)
            default = getattr(_ABSENT.get(value), entry, None)
            changed = not (argument is default or (is_number(argument) and argument == default))
            if name == "rope_share":
                check_fraction(name, argument)
            if values[value] is not None:
                changes[value][entry] = argument
            elif changed:
                raise argument_error(name, f"the default without {value}", argument)
        if "position_bias" in changes["scores"]:
            bias = checked_bias(changes["scores"]["position_bias"], named.get("heads", 1))
            changes["scores"]["position_bias"] = bias
        for name, value in values.items():
            named[name] = replace(value, **changes[name]) if changes[name] else value
        try:
            return super().__call__(**named)
        except TypeError:
            # The error of an unknown or missing argument names the base class.
            bound_arguments(cls.__name__, _signature_of((*known, *_VALUES[:3])), (), asked)
            raise


def _signature_of(names: Sequence[str]) -> inspect.Signature:
    """Return a signature with these keywords, of which only gamma is required."""
    required, keyword = inspect.Parameter.empty, inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature(
        [
            inspect.Parameter(name, keyword, default=required if name == "gamma" else None)
            for name in names
        ]
    )


@dataclass(frozen=True, repr=False)
class AttentionFields(metaclass=_ShortForms):
    """The fields of `ShapedAttention`, which explains them."""

    gamma: Parameter
    tau0: Parameter = 1.0
    heads: int = 1
    mask: Any = None
    output_projection: bool = False
    skip: Parameter | None = None
    sizes: HeadSizes = HeadSizes()
    scores: ScoreTerms = ScoreTerms()
    shaping: Shaping = Shaping()
    rope: Rope | None = None
    qk_norm: QKNorm | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            gamma: Parameter,
            tau0: Parameter = 1.0,
            heads: int = 1,
            mask: object = None,
            output_projection: bool = False,
            key_size: int | None = None,
            query_bias: float = 0.0,
            key_bias: float = 0.0,
            identity: bool = True,
            centring: bool = True,
            scaled_temperature: bool = True,
            skip: Parameter | None = None,
            kv_heads: int | None = None,
            head_size: int | None = None,
            value_ratio: float | None = None,
            rope: object = None,
            rope_share: float = 1.0,
            position_bias: object = None,
            qk_norm: object = False,
            qk_norm_eps: float = 0.0,
            softcap: float | None = None,
            *,
            sizes: HeadSizes = ...,
            scores: ScoreTerms = ...,
            shaping: Shaping = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        plain_fields(self)
        object.__setattr__(self, "mask", checked_mask(self.mask))
        self._check()

    def _check(self) -> None:
        check_weights(self.gamma, self.skip)
        check_parameter("tau0", self.tau0, check_positive)
        for tau0 in extremes(self.tau0):
            check_range("tau0", tau0, 1.0 / _LARGEST_TAU0, _LARGEST_TAU0)
        check_count("heads", self.heads)
        _check_switches(self, "output_projection")
        for name in ("kv_heads", "head_size"):
            value = getattr(self.sizes, name)
            if value is not None and not self.output_projection:
                raise argument_error(name, "None without output_projection=True", value)
        checked_bias(self.scores.position_bias, self.heads)
        if self.heads % (self.sizes.kv_heads or 1):
            raise argument_error(
                "kv_heads", f"a divisor of heads={self.heads}", self.sizes.kv_heads
            )

    @property
    def heads_per_key(self) -> int:
        """Number of heads that share keys and values."""
        return self.heads // (self.sizes.kv_heads or self.heads)

    def bias(self, head: int = 0) -> HeadBias:
        """Return the position bias of a head, (m, m) or for any number of tokens, or None."""
        return head_bias(self.scores.position_bias, self.heads, head)

    def values(self, width: int) -> int:
        """Return d_h."""
        return self.sizes.head_size if self.sizes.head_size is not None else width // self.heads

    def keys(self, width: int) -> int:
        """Return n_k."""
        return self.sizes.key_size if self.sizes.key_size is not None else self.values(width)

    def temperature(self, p: Parameters, width: int) -> Any:
        """Return tau, by which the logits are divided."""
        scaled = width if self.shaping.scaled_temperature else 1
        return p.tau0 * math.sqrt(scaled * self.keys(width))

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that make this block, each under its short name if it has one."""
        values = {name: getattr(self, name) for name in _ORDER if name not in SHORT}
        values |= {name: self._short(name) for name in SHORT}
        values["qk_norm"] = self.qk_norm.over if self.qk_norm else False
        if self.rope is not None and self.rope.short is not None:
            values["rope"] = self.rope.short
        elif self.rope is not None:
            # The value has it, and a short name would win over it.
            del values["rope_share"]
        ordered = {name: values[name] for name in _ORDER if name in values}
        added = [entry.name for entry in fields(self) if entry.name not in _FIELDS]
        return ordered | {name: getattr(self, name) for name in added}

    def __repr__(self) -> str:
        """Return all arguments up to `skip`, and those of variants that are not the default."""
        shown, variant = [], False
        for name, value in self.arguments().items():
            if not variant or value != _DEFAULTS.get(name, ...):
                shown.append(f"{name}={value!r}")
            variant = variant or name == "skip"
        return f"{type(self).__name__}({', '.join(shown)})"

    def _short(self, name: str) -> Any:
        value, entry = SHORT[name]
        return getattr(getattr(self, value) or _ABSENT[value], entry)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return a field of a value under its short name, for code outside the package."""
            if name in SHORT:
                return self._short(name)
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")


_FIELDS = frozenset(entry.name for entry in fields(AttentionFields))
_VALUES = ("sizes", "scores", "shaping", "rope", "qk_norm")
_DEFAULTS = AttentionFields(1.0).arguments()
AttentionFields.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)
        for name, default in (_DEFAULTS | {"gamma": inspect.Parameter.empty}).items()
    ]
)
