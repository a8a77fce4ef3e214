"""Sums, products and quotients of matrices entry by entry: the operators of descriptions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.text import Real
from shaped_attention.numerics.jit import kernel
from shaped_attention.numerics.operations.registry import operation
from shaped_attention.numerics.operations.stacks import Place, Step, plain

Array = NDArray[np.float64]


def _combine(e: Emitter, scalars: Sequence[Real], x: Real, y: Real) -> Real:
    s, t = scalars
    return e.fma(t, y, e.fmul(s, x))


@kernel
def _combined(a, b, s, t, out):  # type: ignore[no-untyped-def]
    for i in range(a.size):
        out[i] = s * a[i] + t * b[i]


def _combine_stacks(step: Step, here: Place, out: Array, a: Array, b: Array) -> None:
    s, t = step.numbers(here)
    if a.shape == b.shape == out.shape:
        _combined(a.reshape(-1), b.reshape(-1), s, t, out.reshape(-1))
    else:
        np.multiply(a, s, out=out)
        out += t * b


def _scale_stacks(step: Step, here: Place, out: Array, a: Array) -> None:
    np.multiply(a, step.numbers(here)[0], out=out)


def _shift_stacks(step: Step, here: Place, out: Array, a: Array) -> None:
    s, t = step.numbers(here)
    np.multiply(a, s, out=out)
    out += t


operation("combine", entry=_combine, blas=_combine_stacks, growth=max, in_place=True)
operation("times", entry=lambda e, _, x, y: e.fmul(x, y), blas=plain(np.multiply), growth=sum)
operation(
    "over", entry=lambda e, _, x, y: e.fdiv(x, y), blas=plain(np.divide),
    growth=lambda orders: orders[0] - orders[1],
)  # fmt: skip
operation(
    "scale", entry=lambda e, scalars, x: e.fmul(scalars[0], x), blas=_scale_stacks, growth=1.0,
    in_place=True,
)  # fmt: skip
operation(
    "shift", entry=lambda e, scalars, x: e.fma(scalars[0], x, scalars[1]), blas=_shift_stacks,
    growth=lambda orders: max(orders[0], 0.0),
)  # fmt: skip
