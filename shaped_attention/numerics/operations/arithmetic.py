"""Sums, products and quotients of matrices entry by entry: the operators of descriptions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shaped_attention.numerics.jit import LANES, kernel, scalar
from shaped_attention.numerics.operations import registry as at
from shaped_attention.numerics.operations.registry import operation
from shaped_attention.numerics.operations.stacks import Place, Step, plain

Array = NDArray[np.float64]


@scalar
def _combine(line, numbers, buf):  # type: ignore[no-untyped-def]
    """Write s A + t B, where B may be a single row, column or entry."""
    out, a, b, columns = line[at.OUT], line[at.A], line[at.B], line[at.COLUMNS]
    out_columns, b_columns = line[at.OUT_COLUMNS], line[at.B_COLUMNS]
    down, along = b_columns if line[at.B_ROWS] > 1 else 0, 1 if b_columns > 1 else 0
    s, t = numbers[line[at.SCALAR]], numbers[line[at.SCALAR_2]]
    for i in range(line[at.ROWS]):
        for j in range(columns):
            x, y, z = a + i * columns + j, b + i * down + j * along, out + i * out_columns + j
            for p in range(LANES):
                buf[z, p] = s * buf[x, p] + t * buf[y, p]


@scalar
def _times(line, numbers, buf):  # type: ignore[no-untyped-def]
    """Write A B entry by entry, or A / B with the flag, where B may be a row, column or entry."""
    out, a, b, columns = line[at.OUT], line[at.A], line[at.B], line[at.COLUMNS]
    b_columns, dividing = line[at.B_COLUMNS], line[at.FLAG] > 0
    down, along = b_columns if line[at.B_ROWS] > 1 else 0, 1 if b_columns > 1 else 0
    for i in range(line[at.ROWS]):
        for j in range(columns):
            x, y, z = a + i * columns + j, b + i * down + j * along, out + i * columns + j
            if dividing:
                for p in range(LANES):
                    buf[z, p] = buf[x, p] / buf[y, p]
            else:
                for p in range(LANES):
                    buf[z, p] = buf[x, p] * buf[y, p]


@kernel
def place(buf, out, out_columns, a, a_columns, rows, columns, s):  # type: ignore[no-untyped-def]
    """Write s times a part of A, whose rows have `a_columns` entries, into a part of the output."""
    for i in range(rows):
        for j in range(columns):
            x, y = a + i * a_columns + j, out + i * out_columns + j
            for p in range(LANES):
                buf[y, p] = s * buf[x, p]


@scalar
def scaled(line, numbers, buf):  # type: ignore[no-untyped-def]
    """Write s A."""
    place(
        buf, line[at.OUT], line[at.OUT_COLUMNS], line[at.A], line[at.A_COLUMNS], line[at.ROWS],
        line[at.COLUMNS], numbers[line[at.SCALAR]],
    )  # fmt: skip


@scalar
def _shift(line, numbers, buf):  # type: ignore[no-untyped-def]
    """Write s A + t."""
    out, a = line[at.OUT], line[at.A]
    s, t = numbers[line[at.SCALAR]], numbers[line[at.SCALAR_2]]
    for i in range(line[at.ROWS] * line[at.COLUMNS]):
        for p in range(LANES):
            buf[out + i, p] = s * buf[a + i, p] + t


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


operation("combine", tile=_combine, blas=_combine_stacks, growth=max, entrywise=True, in_place=True)
operation("times", tile=_times, blas=plain(np.multiply), growth=sum, entrywise=True)
operation(
    "over", tile=_times, blas=plain(np.divide), flag=1, entrywise=True,
    growth=lambda orders: orders[0] - orders[1],
)  # fmt: skip
operation("scale", tile=scaled, blas=_scale_stacks, growth=1.0, entrywise=True, in_place=True)
operation(
    "shift", tile=_shift, blas=_shift_stacks, entrywise=True,
    growth=lambda orders: max(orders[0], 0.0),
)  # fmt: skip
