"""Rotations of queries and keys by positions (RoPE), and the kernel of their scores.

Tokens have the positions 0, ..., m - 1. A rotation turns pairs of columns of a head by the
position times an angle theta_j (RoPE; Su et al., arXiv 2104.09864), so that

    E[S_ab S_cd] = V_ac V_bd r(b - a - d + c),    r(D) = share mean_j cos(theta_j D) + 1 - share

for the scores S, where `share` of the columns is rotated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from shaped_attention.blocks.parameters import Width, plain_fields
from shaped_attention.checks import (
    argument_error,
    check_choice,
    check_count,
    check_fraction,
    check_positive,
    is_number,
    with_types,
)
from shaped_attention.numerics.primitives import M, rotate

Angles = tuple[float, ...]
Matrix = NDArray[np.float64]

SCALINGS = ("linear", "llama3")

_LLAMA3 = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")


@with_types
def rope_angles(
    base: float | int,
    size: int,
    scaling: str | None = None,
    *,
    factor: float | int | None = None,
    low_freq_factor: float | int | None = None,
    high_freq_factor: float | int | None = None,
    original_max_position_embeddings: int | None = None,
) -> NDArray[np.float64]:
    """Return the angles by which RoPE turns pairs of columns per position, for `rope`.

    Parameters
    ----------
    base
        Base of the angles base^(-2j / size), j = 0, ..., size / 2 - 1.
    size
        Number of columns that are rotated, an even number.
    scaling
        None; "linear" (all angles are divided by `factor`); or "llama3" (angles with wavelengths
        above original_max_position_embeddings / low_freq_factor are divided by `factor`, those
        below original_max_position_embeddings / high_freq_factor are kept, with a linear
        interpolation in the frequency between them).
    factor, low_freq_factor, high_freq_factor, original_max_position_embeddings
        Parameters of the scaling, with the names of a model's configuration.

    Raises
    ------
    ValueError
        If an argument is outside its range, missing, or not a parameter of the scaling. Scalings
        that depend on the number of tokens or change the size of the scores (YaRN, LongRoPE,
        dynamic NTK) are read from configurations (`model_from_config`).

    Examples
    --------
    >>> Rope.angles_of(10_000.0, 4)
    array([1.  , 0.01])
    """
    check_positive("base", base)
    check_count("size", size)
    if size % 2:
        raise argument_error("size", "even", size)
    options = {
        "factor": factor,
        "low_freq_factor": low_freq_factor,
        "high_freq_factor": high_freq_factor,
        "original_max_position_embeddings": original_max_position_embeddings,
    }
    if scaling is not None:
        check_choice("scaling", scaling, SCALINGS)
    known = {None: (), "linear": ("factor",), "llama3": _LLAMA3}[scaling]
    for name, value in options.items():
        if name in known:
            check_positive(name, value)  # type: ignore[arg-type]
        elif value is not None:
            raise argument_error(name, f"None if scaling={scaling!r}", value)
    angles = float(base) ** (-np.arange(0, size, 2) / size)
    if factor is None:
        return angles
    if scaling == "linear":
        return angles / factor
    assert low_freq_factor is not None
    assert high_freq_factor is not None
    assert original_max_position_embeddings is not None
    if high_freq_factor <= low_freq_factor:
        raise argument_error(
            "high_freq_factor", f"above low_freq_factor={low_freq_factor!r}", high_freq_factor
        )
    turns = original_max_position_embeddings * angles / (2.0 * math.pi)
    kept = np.clip((turns - low_freq_factor) / (high_freq_factor - low_freq_factor), 0.0, 1.0)
    return angles * (kept + (1.0 - kept) / factor)


@dataclass(frozen=True, repr=False)
class Rope:
    """Rotation of queries and keys by their positions, the `rope` of `ShapedAttention`.

    Parameters
    ----------
    base
        Base of the angles base^(-2j / d) of d rotated columns; None if `angles` are given.
    share
        Fraction of the columns of a head that are rotated, in [0, 1].
    factor
        Number by which the angles of a base are divided ("linear" scaling in configurations).
    attention_factor
        Factor of the rotated columns of queries and keys; their part of the logits is multiplied by
        its square.
    original_max_position_embeddings
        Largest number of tokens that these angles are for; None for any number.
    angles
        Angles per position in place of a base, each of which turns an equal share of the rotated
        columns (`Rope.angles_of` returns those of scaled models).
    long_angles
        Angles, or a base, for more tokens than `original_max_position_embeddings`. Without them
        attention to so many tokens is refused.

    Raises
    ------
    ValueError
        If an argument is outside its range, or neither or both of base and angles are given.

    Examples
    --------
    >>> from shaped_attention import ShapedAttention
    >>> rope = Rope(base=10_000.0, share=0.5)
    >>> ShapedAttention(0.5, head_size=8, output_projection=True, rope=rope).rope
    Rope(base=10000.0, share=0.5)
    """

    base: float | int | None = None
    share: float | int = 1.0
    factor: float | int = 1.0
    attention_factor: float | int = 1.0
    original_max_position_embeddings: int | None = None
    angles: Sequence[float] | Matrix | None = None
    long_angles: Sequence[float] | Matrix | float | None = None

    angles_of = staticmethod(rope_angles)

    def __post_init__(self) -> None:
        plain_fields(self)
        if (self.base is None) == (self.angles is None):
            raise ValueError(f"Rope needs either a base or angles, not both; got {self!r}")
        for name in ("base", "angles", "long_angles"):
            object.__setattr__(self, name, _turning(getattr(self, name), f"rope {name}"))
        check_fraction("rope share", self.share)
        check_positive("rope factor", self.factor)
        if self.angles is not None and self.factor != 1.0:
            raise argument_error("rope factor", "1 with angles", self.factor)
        check_positive("rope attention_factor", self.attention_factor)
        tokens = self.original_max_position_embeddings
        if tokens is not None or self.long_angles is not None:
            check_count("rope original_max_position_embeddings", tokens)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        """Return the arguments that are not the default."""
        return f"Rope({', '.join(f'{name}={value!r}' for name, value in self.changed.items())})"

    @classmethod
    def of(cls, value: Any) -> Rope | None:
        """Return the value of a short form: a base, angles, or a dictionary of arguments."""
        if value is None or isinstance(value, Rope):
            return value
        if isinstance(value, Mapping):
            return cls(**value)
        turning = _turning(value)
        return cls(turning) if isinstance(turning, float) else cls(angles=turning)

    @property
    def changed(self) -> dict[str, Any]:
        """The arguments that are not the default."""
        values = {entry.name: (getattr(self, entry.name), entry.default) for entry in fields(self)}
        return {name: value for name, (value, default) in values.items() if value != default}

    @property
    def turning(self) -> float | Angles:
        """The base, or the angles."""
        return cast("float | Angles", self.angles if self.base is None else self.base)

    @property
    def short(self) -> float | Angles | None:
        """The short form, a base or angles; None if anything else differs from it."""
        return self.turning if self.changed.keys() <= {"base", "angles"} else None

    def turning_at(self, tokens: int) -> float | Angles:
        """Return the base, or the angles, for this number of tokens."""
        longest = self.original_max_position_embeddings
        if longest is None or tokens <= longest:
            return self.turning
        if self.long_angles is None:
            raise argument_error(
                "rope original_max_position_embeddings",
                f"at least {tokens}, the number of tokens, unless long_angles is given",
                longest,
            )
        return cast("float | Angles", self.long_angles)

    def pairs(self, size: Width, tokens: int = 1) -> Matrix:
        """Return the angle of each rotated pair of columns of a head, for this number of tokens.

        Raises
        ------
        ValueError
            If the share does not amount to an even number of columns, the angles do not turn equal
            numbers of pairs, or there are too many tokens.
        """
        if hasattr(size, "grows"):
            return self._pairs_of_many(tokens)
        rotated = round(self.share * size)
        if not math.isclose(rotated, self.share * size, rel_tol=1e-9, abs_tol=1e-9) or rotated % 2:
            raise argument_error(
                "rope share",
                f"such that an even number of the {size} columns is rotated",
                self.share,
            )
        turning = self.turning_at(tokens)
        if isinstance(turning, float):
            return (rope_angles(turning, rotated) if rotated else np.zeros(0)) / self.factor
        pairs = rotated // 2
        if pairs % len(turning):
            raise ValueError(
                f"rope has {len(turning)} angles; their number must divide the {pairs} pairs of "
                "rotated columns of a head"
            )
        return np.repeat(np.array(turning), pairs // len(turning)) / self.factor

    def _pairs_of_many(self, tokens: int) -> Matrix:
        """Return angles, 0 for columns that are not rotated, for equal parts of many columns."""
        from shaped_attention.blocks.limits.numbers import LimitError

        turning, share = self.turning_at(tokens), Fraction(self.share).limit_denominator(1000)
        if isinstance(turning, float):
            raise LimitError(
                "its angles base^(-2j / d) depend on the size d of a head, which grows with the "
                f"width (rope={turning!r}), unless head_size, key_size or a list of angles is given"
            )
        if share != 1 and self.attention_factor != 1.0:
            raise LimitError("a factor of a share of the columns has no rule (rope)")
        turned = np.repeat(np.array(turning) / self.factor, share.numerator)
        rest = len(turning) * (share.denominator - share.numerator)
        return np.concatenate([turned, np.zeros(rest)])


def _turning(value: Any, name: str = "rope") -> float | Angles | None:
    """Return a base as a float, angles as a tuple, or None."""
    if value is None:
        return None
    error = argument_error(name, "None, a positive base, or a list of finite angles", value)
    if is_number(value):
        if not (math.isfinite(value) and value > 0.0):
            raise error
        return float(value)
    try:
        angles = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise error from None
    if isinstance(value, str | bool) or angles.ndim != 1 or angles.size == 0:
        raise error
    if not np.isfinite(angles).all():
        raise error
    return tuple(angles.tolist())


def turned(rows: M, angles: Matrix, factor: float = 1.0) -> M:
    """Rotate the rows of a head: columns j and j + J by theta_j times the position of the row.

    These columns, and no others, are multiplied by the factor.
    """
    if not len(angles):
        return rows
    return rotate(rows, _turns(tuple(angles), rows.shape[-2], float(factor)))


@lru_cache(maxsize=64)
def _turns(angles: Angles, tokens: int, factor: float) -> Matrix:
    """Return the cosines, then the sines (tokens, 2 J), of the angles times 0, 1, 2, ..."""
    turns = np.outer(np.arange(tokens), angles)
    table = factor * np.concatenate([np.cos(turns), np.sin(turns)], axis=1)
    table.flags.writeable = False
    return table
