"""Symmetric matrices of noise from their lower triangle."""

from __future__ import annotations

import math
from typing import Any

from shaped_attention.lazy_torch import torch
from shaped_attention.numerics.graph import Matrix
from shaped_attention.numerics.jit import LANES, kernel
from shaped_attention.numerics.operations import fields as at
from shaped_attention.numerics.operations.registry import M, linear, operation, primitive, same
from shaped_attention.numerics.operations.stacks import mirror, plain


def _traced(numbers: Matrix, size: int) -> Matrix:
    return numbers.plain().linear("symmetric", lambda *_: (size, size))


@primitive(trace=_traced, rule=linear)
def symmetric_noise(numbers: M, size: int) -> M:
    """Return the symmetric (size, size) matrix whose lower triangle, row by row, is `numbers`.

    The diagonal is multiplied by sqrt 2: independent normals give the noise with variance 1 off the
    diagonal and 2 on it. `numbers` has the shape (1, size (size + 1) / 2).
    """
    row: Any = numbers
    i, j = torch.tril_indices(size, size, device=row.device)
    lower_half = row.new_zeros(*row.shape[:-2], size, size)
    lower_half[..., i, j] = row[..., 0, :]
    weight = row.new_ones(size, size)
    weight.fill_diagonal_(0.5**0.5)
    weighted: Any = lower_half * weight
    result: M = weighted + weighted.mT
    return result


@kernel
def _tile(line, numbers, buf):  # type: ignore[no-untyped-def]
    out, row, size = line[at.OUT], line[at.A], line[at.ROWS]
    for i in range(size):
        for j in range(i + 1):
            weight = math.sqrt(2.0) if i == j else 1.0
            for p in range(LANES):
                buf[out + i * size + j, p] = weight * buf[row, p]
                buf[out + j * size + i, p] = weight * buf[row, p]
            row += 1


@kernel
def _stacks(numbers, out):  # type: ignore[no-untyped-def]
    root = math.sqrt(2.0)
    for s in range(out.shape[0]):
        k = 0
        for i in range(out.shape[1]):
            for j in range(i):
                out[s, i, j] = numbers[s, k]
                k += 1
            out[s, i, i] = root * numbers[s, k]
            k += 1
    mirror(out)


operation(
    "symmetric", tile=_tile, growth=same,
    blas=plain(lambda a, out: _stacks(a.reshape(len(a), -1), out)),
)  # fmt: skip
