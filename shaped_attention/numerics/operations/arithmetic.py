"""Sums, products and quotients of matrices entry by entry: the operators of descriptions."""

from __future__ import annotations

from collections.abc import Sequence

from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.text import Real
from shaped_attention.numerics.operations.registry import operation


def _combine(e: Emitter, scalars: Sequence[Real], x: Real, y: Real) -> Real:
    s, t = scalars
    return e.fma(t, y, e.fmul(s, x))


operation("combine", entry=_combine, growth=max, in_place=True)
operation("times", entry=lambda e, _, x, y: e.fmul(x, y), growth=sum)
operation(
    "over", entry=lambda e, _, x, y: e.fdiv(x, y),
    growth=lambda orders: orders[0] - orders[1],
)  # fmt: skip
operation(
    "scale", entry=lambda e, scalars, x: e.fmul(scalars[0], x), growth=1.0,
    in_place=True,
)  # fmt: skip
operation(
    "shift", entry=lambda e, scalars, x: e.fma(scalars[0], x, scalars[1]),
    growth=lambda orders: max(orders[0], 0.0),
)  # fmt: skip
