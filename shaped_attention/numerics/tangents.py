"""Tangents: descriptions of blocks on a matrix together with its derivatives in p directions.

A `Dual` is an operand like any other: given a `Dual` as its factor, a description returns the root
with its tangents. The rules are written in arithmetic and primitives and hold for torch tensors and
traced matrices alike. Random numbers are plain matrices.

Most rules are derivatives. `lower` and `compress` are not: a root represents its Gram matrix, and
here the joint Gram matrix of the stack Z = (R, R_1, ..., R_p). They factorise Z. Differentiating
the factorisation of R alone gives a different joint law: R = (1, 0), R_1 = (0, 1) have the joint
Gram matrix I, while the derivative of the factor |R| is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.numerics import primitives as pr
from shaped_attention.numerics.carrier import Carrier
from shaped_attention.numerics.primitives import M

_STEEP = 2.0**100
"""The hyperbolic tangent of this number times x is the sign of x, also in single precision."""


def stacked(parts: Sequence[M]) -> M:
    """Stack matrices with the same number of columns."""
    return pr.concatenate([part.mT for part in parts]).mT


def split(matrix: M, count: int) -> list[M]:
    """Split a stack into `count` matrices with the same number of rows."""
    rows = matrix.shape[-2] // count
    turned = matrix.mT
    return [pr.columns(turned, k * rows, (k + 1) * rows).mT for k in range(count)]


@dataclass(frozen=True, eq=False)
class Dual(Carrier):
    """A matrix with p tangents.

    Attributes
    ----------
    value
        A tensor (..., m, c), or a matrix of a trace.
    tangents
        Derivatives in p directions, of the same shape; None for a derivative that is 0.

    Raises
    ------
    ValueError
        If a tangent has a different shape.
    """

    value: Any
    tangents: tuple[Any, ...]

    def __post_init__(self) -> None:
        for d in self.tangents:
            if d is not None and d.shape[-2:] != self.value.shape[-2:]:
                raise ValueError(
                    f"tangents contains a matrix of shape {tuple(d.shape)}; the value has the "
                    f"shape {tuple(self.value.shape)}"
                )

    @property
    def shape(self) -> Any:
        """The shape of the value."""
        return self.value.shape

    @property
    def mT(self) -> Dual:
        """The transpose."""
        return self.through(self.value.mT, lambda d: d.mT)

    def through(self, value: Any, rule: Callable[[Any], Any]) -> Dual:
        """Return `value` with the images of these tangents under a linear rule."""
        return Dual(value, tuple(None if d is None else rule(d) for d in self.tangents))

    def rule(self, primitive: Callable[..., Any]) -> Callable[..., Dual]:
        """Return the tangent rule of a primitive."""
        if primitive not in RULES:
            raise ValueError(f"{primitive.__name__} has no tangent rule yet")
        return RULES[primitive]

    def _pairs(self, other: Any) -> tuple[Any, Iterable[tuple[Any, Any]]]:
        """Return the value of the other operand, and pairs of tangents of both."""
        if not isinstance(other, Dual):
            return other, ((d, None) for d in self.tangents)
        if len(other.tangents) != len(self.tangents):
            raise ValueError(
                f"matrices with {len(self.tangents)} and {len(other.tangents)} tangents; equal "
                "numbers are needed"
            )
        return other.value, zip(self.tangents, other.tangents, strict=True)

    def __matmul__(self, other: Any) -> Dual:
        a = self.value
        b, pairs = self._pairs(other)
        return Dual(
            a @ b,
            tuple(_sum(_of(d, lambda d: d @ b), _of(e, lambda e: a @ e)) for d, e in pairs),
        )

    def __rmatmul__(self, other: Any) -> Dual:
        return self.through(other @ self.value, lambda d: other @ d)

    def __add__(self, other: Any) -> Dual:
        b, pairs = self._pairs(other)
        value = self.value + b
        return Dual(value, tuple(_of(_sum(d, e), lambda d: _spread(d, value)) for d, e in pairs))

    def __mul__(self, other: Any) -> Dual:
        a = self.value
        b, pairs = self._pairs(other)
        return Dual(
            a * b,
            tuple(_sum(_of(d, lambda d: d * b), _of(e, lambda e: a * e)) for d, e in pairs),
        )

    def __truediv__(self, other: Any) -> Dual:
        b, pairs = self._pairs(other)
        q = self.value / b
        moved = (_sum(d, _of(e, lambda e: (-1.0) * (q * e))) for d, e in pairs)
        return Dual(q, tuple(_of(d, lambda d: d / b) for d in moved))

    def __rtruediv__(self, other: Any) -> Dual:
        if len(getattr(other, "shape", ())) < 2:
            other = other * pr.constant(np.ones((1, 1)), like=self.value)
        return Dual(other, (None,) * len(self.tangents)) / self


def _of(tangent: Any, rule: Callable[[Any], Any]) -> Any:
    """Apply a linear rule; None, which stands for 0, remains None."""
    return None if tangent is None else rule(tangent)


def _sum(d: Any, e: Any) -> Any:
    if d is None or e is None:
        return e if d is None else d
    return d + e


def _zeros(like: Any) -> Any:
    return pr.constant(np.zeros(tuple(like.shape)), like=like)


def _spread(tangent: Any, value: Any) -> Any:
    """Repeat the rows or columns of a tangent that has fewer than the value."""
    return tangent if tangent.shape == value.shape else tangent + _zeros(value)


def _sign(x: M) -> M:
    """Return 1, 0 or -1 for every entry."""
    return pr.tanh(_STEEP * x)


def _constant(array: NDArray[np.float64], like: Dual) -> Dual:
    return Dual(pr.constant(array, like=like.value), (None,) * len(like.tangents))


def _concatenate(parts: Sequence[Any]) -> Dual:
    count = next(len(part.tangents) for part in parts if isinstance(part, Dual))
    duals = [x if isinstance(x, Dual) else Dual(x, (None,) * count) for x in parts]
    tangents: list[Any] = [None] * count
    for k, row in enumerate(zip(*(part.tangents for part in duals), strict=True)):
        if any(d is not None for d in row):
            pairs = zip(row, duals, strict=True)
            tangents[k] = pr.concatenate([_zeros(x.value) if d is None else d for d, x in pairs])
    return Dual(pr.concatenate([x.value for x in duals]), tuple(tangents))


def _lower(root: Dual) -> Dual:
    """Make the stack of value and tangents triangular: (1 + p) m columns if none is 0."""
    moving = [d for d in root.tangents if d is not None]
    parts = split(pr.lower(stacked([root.value, *moving])), 1 + len(moving))
    rest = iter(parts[1:])
    return Dual(parts[0], tuple(None if d is None else next(rest) for d in root.tangents))


def _compress(root: Dual) -> Dual:
    moving = sum(d is not None for d in root.tangents)
    return _lower(root) if root.shape[-1] > (1 + moving) * root.shape[-2] else root


def _cholesky(gram: Dual) -> Dual:
    if any(d is not None for d in gram.tangents):
        raise ValueError(
            "cholesky of a Gram matrix with tangents: they do not determine the joint Gram matrix "
            "of a root and its tangents, which is needed"
        )
    return Dual(pr.cholesky(gram.value), gram.tangents)


def _softmax(logits: Dual, seen: NDArray[np.bool_]) -> Dual:
    p = pr.softmax(logits.value, seen)
    return logits.through(p, lambda d: p * (d - pr.row_sums(p * d)))


def _row_squares(x: Dual) -> Dual:
    return x.through(pr.row_squares(x.value), lambda d: 2.0 * pr.row_sums(x.value * d))


def _unit_rows(x: Dual) -> Dual:
    """Project orthogonally to the row and divide by its length; 0 for a row of zeros."""
    unit = pr.unit_rows(x.value)
    length = pr.row_sums(unit * x.value)
    some = _sign(length)
    inverse = some / (length + (1.0 - some))
    return x.through(unit, lambda d: inverse * (d - unit * pr.row_sums(unit * d)))


def _leaky(x: Dual, plus: Any, minus: Any) -> Dual:
    """Multiply by the slope, which is the mean of both slopes at 0."""
    slope = (0.5 * (plus - minus)) * _sign(x.value) + 0.5 * (plus + minus)
    return x.through(pr.leaky(x.value, plus, minus), lambda d: slope * d)


def _arc_cosine_kernel(v: Dual) -> Dual:
    """Use dK_ab = (pi - phi) dV_ab + sin(phi) (s_b dV_aa / s_a + s_a dV_bb / s_b) / 2.

    Here s_a^2 = V_aa and cos(phi) = V_ab / (s_a s_b). The angle comes from the kernel itself,
    J(cos x) = sin x + cos x (pi - x), at x = arccos(|cos phi|) / 2, where cos x >= 1 / sqrt 2.
    """
    length = pr.sqrt(pr.diagonal(v.value))
    some = _sign(length)
    safe = length + (1.0 - some)
    ratio = v.value / (safe @ safe.mT)
    cosine = pr.sqrt(0.5 * pr.leaky(ratio, 1.0, -1.0) + 0.5)
    sine = pr.sqrt(pr.leaky(1.0 - cosine * cosine, 1.0, 0.0))
    half = math.pi - (pr.arc_cosine_kernel(cosine) - sine) / cosine
    angle = (some @ some.mT) * (_sign(ratio) * (0.5 * math.pi - 2.0 * half) + 0.5 * math.pi)
    turn = sine * cosine

    def tangent(d: Any) -> Any:
        grown = (some * pr.diagonal(d) / safe) @ length.mT
        return angle * d + turn * (grown + grown.mT)

    return v.through(pr.arc_cosine_kernel(v.value), tangent)


def _linear(primitive: Callable[..., Any]) -> Callable[..., Dual]:
    """Apply a linear primitive to value and tangents."""
    return lambda x, *rest, **named: x.through(
        primitive(x.value, *rest, **named), lambda d: primitive(d, *rest, **named)
    )


def _entrywise(
    primitive: Callable[[Any], Any], derivative: Callable[[Any, Any], Any]
) -> Callable[[Dual], Dual]:
    """Return a rule that multiplies by the derivative, a function of argument and value."""

    def rule(x: Dual) -> Dual:
        y = primitive(x.value)
        slope = derivative(x.value, y)
        return x.through(y, lambda d: slope * d)

    return rule


RULES: dict[Callable[..., Any], Callable[..., Dual]] = {
    pr.constant: _constant,
    pr.concatenate: _concatenate,
    pr.lower: _lower,
    pr.compress: _compress,
    pr.cholesky: _cholesky,
    pr.softmax: _softmax,
    pr.row_squares: _row_squares,
    pr.unit_rows: _unit_rows,
    pr.leaky: _leaky,
    pr.arc_cosine_kernel: _arc_cosine_kernel,
    pr.columns: _linear(pr.columns),
    pr.rotate: _linear(pr.rotate),
    pr.diagonal: _linear(pr.diagonal),
    pr.row_sums: _linear(pr.row_sums),
    pr.column_sums: _linear(pr.column_sums),
    pr.symmetric_noise: _linear(pr.symmetric_noise),
    pr.sqrt: _entrywise(pr.sqrt, lambda x, y: 0.5 * y / x),
    pr.exp: _entrywise(pr.exp, lambda x, y: y),
    pr.tanh: _entrywise(pr.tanh, lambda x, y: 1.0 - y * y),
    pr.normal_cdf: _entrywise(
        pr.normal_cdf, lambda x, y: pr.exp(-0.5 * (x * x)) * (2.0 * math.pi) ** -0.5
    ),
    pr.softplus: _entrywise(pr.softplus, lambda x, y: pr.sigmoid(x)),
    pr.sigmoid: _entrywise(pr.sigmoid, lambda x, y: y * pr.sigmoid(-1.0 * x)),
}
"""The tangent rule of each primitive."""
