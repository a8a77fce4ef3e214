"""The fields of attention, and their checks.

Rotation and QK-norm are values (`rotations.Rope`, `QKNorm`) with short forms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from shaped_attention.blocks.parameters import (
    Parameter,
    Parameters,
    Width,
    check_parameter,
    check_weights,
    extremes,
    plain_fields,
)
from shaped_attention.blocks.positions import (
    HeadBias,
    checked_bias,
    checked_mask,
    head_bias,
)
from shaped_attention.blocks.rotations import Rope
from shaped_attention.checks import (
    argument_error,
    check_choice,
    check_count,
    check_nonnegative,
    check_positive,
    check_range,
    check_width,
)

_LARGEST_TAU0 = 1e100
"""Beyond, the square of a temperature overflows."""

_OVER = ("head", "all")

_SHAPING = ("identity", "centring", "scaled_temperature")


@dataclass(frozen=True)
class QKNorm:
    """Division of queries and keys by their root mean square, the `qk_norm` of `ShapedAttention`.

    Parameters
    ----------
    over
        "head", for each head alone, or "all", for all heads together.
    eps
        Number >= 0 that is added to the mean squares.
    """

    over: str = "head"
    eps: float = 0.0

    def __post_init__(self) -> None:
        check_choice("over", self.over, _OVER)
        check_nonnegative("qk_norm eps", self.eps)

    @classmethod
    def of(cls, value: Any) -> QKNorm | None:
        """Return the value of a short form, or of a dictionary of arguments."""
        if value is None or value is False or isinstance(value, QKNorm):
            return value or None
        if isinstance(value, Mapping):
            return cls(**value)
        if value is not True and not (isinstance(value, str) and value in _OVER):
            raise argument_error("qk_norm", "None, True, 'head', 'all' or a QKNorm", value)
        return cls("head" if value is True else value)

    @property
    def changed(self) -> dict[str, Any]:
        """The arguments, of which a result stores the value."""
        return {"over": self.over, "eps": self.eps}

    @property
    def short(self) -> str | None:
        """The short form; None with `eps`."""
        return None if self.eps else self.over


@dataclass(frozen=True, repr=False)
class AttentionFields:
    """The fields of `ShapedAttention`, which explains them."""

    gamma: Parameter
    tau0: Parameter = 1.0
    heads: int = 1
    mask: Any = None
    output_projection: bool = False
    key_size: int | None = None
    query_bias: float = 0.0
    key_bias: float = 0.0
    identity: bool = True
    centring: bool = True
    scaled_temperature: bool = True
    skip: Parameter | None = None
    kv_heads: int | None = None
    head_size: int | None = None
    value_ratio: float | None = None
    rope: Any = None
    position_bias: Any = None
    qk_norm: Any = None
    softcap: float | None = None

    def __post_init__(self) -> None:
        plain_fields(self)
        values = {
            "mask": checked_mask(self.mask),
            "position_bias": checked_bias(self.position_bias, self.heads),
            "rope": Rope.of(self.rope),
            "qk_norm": QKNorm.of(self.qk_norm),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        check_weights(self.gamma, self.skip)
        check_parameter("tau0", self.tau0, check_positive)
        for tau0 in extremes(self.tau0):
            check_range("tau0", tau0, 1.0 / _LARGEST_TAU0, _LARGEST_TAU0)
        for name in ("output_projection", *_SHAPING):
            if not isinstance(getattr(self, name), bool):
                raise argument_error(name, "True or False", getattr(self, name))
        for name in ("query_bias", "key_bias"):
            check_range(name, getattr(self, name), 0.0, _LARGEST_TAU0)
        if self.softcap is not None:
            check_positive("softcap", self.softcap)
        self._check_sizes()

    def _check_sizes(self) -> None:
        check_count("heads", self.heads)
        for name in ("key_size", "head_size"):
            if getattr(self, name) is not None:
                check_width(name, getattr(self, name))
        if self.value_ratio is not None:
            check_positive("value_ratio", self.value_ratio)
            if self.head_size is None:
                raise argument_error("value_ratio", "None without head_size", self.value_ratio)
        if self.kv_heads is not None:
            check_count("kv_heads", self.kv_heads)
        for name in ("kv_heads", "head_size"):
            value = getattr(self, name)
            if value is not None and not self.output_projection:
                raise argument_error(name, "None without output_projection=True", value)
        if self.heads % (self.kv_heads or 1):
            raise argument_error("kv_heads", f"a divisor of heads={self.heads}", self.kv_heads)

    @property
    def fixed(self) -> tuple[str, ...]:
        """Fields that neither change with depth nor have derivatives."""
        return ("query_bias", "key_bias", "value_ratio", "softcap")

    @property
    def fixed_keys(self) -> int | None:
        """The number of columns of a head's keys, if it does not grow with the width."""
        return self.key_size if self.key_size is not None else self.head_size

    @property
    def heads_per_key(self) -> int:
        """Number of heads that share keys and values."""
        return self.heads // (self.kv_heads or self.heads)

    def bias(self, head: int = 0) -> HeadBias:
        """Return the position bias of a head, (m, m) or for any number of tokens, or None."""
        return head_bias(self.position_bias, self.heads, head)

    def values(self, width: Width) -> Width:
        """Return d_h; that of a growing width is a part of it."""
        if hasattr(width, "grows"):
            whole: Any = width
            columns: Width = whole * ((self.value_ratio or 1.0) / self.heads)
            return columns
        return self.head_size if self.head_size is not None else width // self.heads

    def keys(self, width: Width) -> Width:
        """Return n_k."""
        fixed = self.fixed_keys
        return self.values(width) if fixed is None else fixed

    def temperature(self, p: Parameters, width: Width) -> Any:
        """Return tau, by which the logits are divided."""
        scaled = width if self.scaled_temperature else 1
        return p.tau0 * (scaled * self.keys(width)) ** 0.5

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that make this block, in short form if they have one."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        for name in ("rope", "qk_norm"):
            value = values[name]
            values[name] = value and (value if value.short is None else value.short)
        return values

    def __repr__(self) -> str:
        """Return all arguments up to `skip`, and those of variants that are not the default."""
        shown, variant = [], False
        for name, value in self.arguments().items():
            if not variant or value != _DEFAULTS.get(name, ...):
                shown.append(f"{name}={value!r}")
            variant = variant or name == "skip"
        return f"{type(self).__name__}({', '.join(shown)})"


_DEFAULTS = AttentionFields(1.0).arguments()
