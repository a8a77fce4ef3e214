"""Triangular roots: of R R^T for a root R, and of a Gram matrix.

Everywhere the same rule applies to singular matrices: a pivot below 64 eps of its row is zero, and
so is its column. Equal tokens then remain equal, and all executors follow the same path.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from shaped_attention.libraries import torch
from shaped_attention.numerics import lapack
from shaped_attention.numerics.dual import Dual
from shaped_attention.numerics.graph import Matrix
from shaped_attention.numerics.jit import LANES, compiled_once, kernel
from shaped_attention.numerics.lapack import PIVOT, PIVOT_EPSILONS
from shaped_attention.numerics.operations import registry as at
from shaped_attention.numerics.operations.parts import concatenate
from shaped_attention.numerics.operations.products import multiply
from shaped_attention.numerics.operations.registry import M, check_square, operation, primitive
from shaped_attention.numerics.operations.stacks import Array, each, is_large, plain
from shaped_attention.numerics.operations.sums import squares


def _traced_lower(root: Matrix) -> Matrix:
    flat = root.value()
    rows = flat.shape[0]
    return flat.graph.node("lower", (flat.node,), (rows, rows), lower=True)


def stacked(parts: Sequence[M]) -> M:
    """Stack matrices with the same number of columns."""
    return concatenate([part.mT for part in parts]).mT


def _no_rule(root: Dual) -> Dual:
    raise ValueError("factors are not unique, so that they have no rule for tangents")


@primitive(trace=_traced_lower, tangent=_no_rule)
def lower(root: M) -> M:
    """Return the lower triangular L (m, m) with diagonal >= 0 and L L^T = root root^T.

    Modified Gram-Schmidt on the rows, for the whole batch at once: small singular values keep the
    relative accuracy that forming root root^T would lose. If the part of a row orthogonal to the
    previous rows is at most 64 eps of its length, the column is zero.
    """
    rest: Any = root
    m = rest.shape[-2]
    level = PIVOT_EPSILONS * torch.finfo(rest.dtype).eps
    original = torch.linalg.vector_norm(rest, dim=-1)
    parts = []
    for j in range(m):
        row = rest[..., 0, :]
        length = torch.linalg.vector_norm(row, dim=-1)
        # Tested as a difference, so that a non-finite pivot does not count as zero.
        zero = length - level * original[..., j] <= 0.0
        unit = torch.where(zero[..., None], 0.0, row / torch.where(zero, 1.0, length)[..., None])
        below = (rest[..., 1:, :] @ unit[..., None])[..., 0]
        head = rest.new_zeros(*rest.shape[:-2], j)
        diagonal = torch.where(zero, 0.0, length)[..., None]
        parts.append(torch.cat([head, diagonal, below], dim=-1))
        rest = rest[..., 1:, :] - below[..., None] * unit[..., None, :]
    result: Any = torch.stack(parts, dim=-1)
    return result


def _narrow(root: M) -> M:
    return lower(root) if root.shape[-1] > root.shape[-2] else root


@primitive(trace=_narrow, tangent=_no_rule)
def compress(root: M) -> M:
    """Return a root with the same Gram matrix and at most as many columns as rows."""
    return _narrow(root)


def _traced_cholesky(gram: Matrix) -> Matrix:
    flat = gram.value()
    return flat.graph.node("cholesky", (flat.node,), flat.shape, lower=True)


def _cholesky_with_tangents(gram: Dual) -> Dual:
    if any(d is not None for d in gram.tangents):
        raise ValueError(
            "cholesky has no rule for a Gram matrix with tangents, which do not determine the "
            "joint Gram matrix of a root and its tangents"
        )
    return Dual(cholesky(gram.value), gram.tangents)


@primitive(trace=_traced_cholesky, tangent=_cholesky_with_tangents, check=check_square)
def cholesky(gram: M) -> M:
    """Return the lower triangular L with L L^T = `gram`, positive semidefinite.

    A pivot at rounding level counts as a zero eigenvalue and has a zero column, so singular
    matrices are allowed (Higham, *Accuracy and Stability*, 2002, section 10.3).
    """
    v: Any = gram
    level = PIVOT_EPSILONS * torch.finfo(v.dtype).eps
    done: list[Any] = []
    for j in range(v.shape[-1]):
        column = v[..., j:, j]
        for k, before in enumerate(done):
            column = column - before[..., j - k :] * before[..., j - k, None]
        pivot = column[..., 0]
        zero = pivot - level * v[..., j, j] <= 0.0
        root = torch.where(zero, 1.0, pivot).sqrt()
        done.append(torch.where(zero[..., None], 0.0, column / root[..., None]))
    padded = [torch.nn.functional.pad(column, (k, 0)) for k, column in enumerate(done)]
    result: Any = torch.stack(padded, dim=-1)
    return result


@kernel
def _lower_tile(line, numbers, buf):  # type: ignore[no-untyped-def]
    """Overwrite A; the work rows are one of scratch and one for each row of A."""
    out, a, work = line[at.OUT], line[at.A], line[at.WORK]
    rows, columns = line[at.ROWS], line[at.A_COLUMNS]
    original, one, no = work + 1, compiled_once(1), rows < 0
    squares(buf, original, a, rows, columns)
    for j in range(rows):
        squares(buf, work, a + j * columns, one, columns)
        for p in range(LANES):
            square = buf[work, p]
            # Tested as a difference, so that a non-finite pivot does not count as zero.
            zero = square - PIVOT * PIVOT * buf[original + j, p] <= 0.0
            length = 0.0 if zero else math.sqrt(square)
            buf[out + j * rows + j, p] = length
            buf[work, p] = 0.0 if zero else 1.0 / length
        for c in range(columns):
            for p in range(LANES):
                buf[a + j * columns + c, p] *= buf[work, p]
        for i in range(j):
            for p in range(LANES):
                buf[out + i * rows + j, p] = 0.0
        multiply(
            buf, out + (j + 1) * rows + j, rows, a + (j + 1) * columns, columns, one,
            a + j * columns, one, one, rows - j - 1, columns, one, no, no, no, no, no, no,
        )  # fmt: skip
        for i in range(j + 1, rows):
            y = out + i * rows + j
            for c in range(columns):
                for p in range(LANES):
                    buf[a + i * columns + c, p] -= buf[y, p] * buf[a + j * columns + c, p]


@kernel
def _cholesky_tile(line, numbers, buf):  # type: ignore[no-untyped-def]
    out, a, rows, work = line[at.OUT], line[at.A], line[at.ROWS], line[at.WORK]
    for j in range(rows):
        for i in range(j, rows):
            y = out + i * rows + j
            for p in range(LANES):
                buf[y, p] = buf[a + i * rows + j, p]
            for k in range(j):
                for p in range(LANES):
                    buf[y, p] -= buf[out + i * rows + k, p] * buf[out + j * rows + k, p]
        pivot = out + j * rows + j
        for p in range(LANES):
            zero = buf[pivot, p] - PIVOT * buf[a + j * rows + j, p] <= 0.0
            root = 0.0 if zero else math.sqrt(buf[pivot, p])
            buf[work, p] = 0.0 if zero else 1.0 / root
            buf[pivot, p] = root
        for i in range(j + 1, rows):
            for p in range(LANES):
                buf[out + i * rows + j, p] *= buf[work, p]
        for i in range(j):
            for p in range(LANES):
                buf[out + i * rows + j, p] = 0.0


def _lower_stacks(root: Array, out: Array) -> None:
    if is_large(out.shape[-2]):
        each(lapack.lower_factor)(root, out)
    else:
        lapack.gram_schmidt(root.copy(), PIVOT, out)


def _cholesky_stacks(gram: Array, out: Array) -> None:
    if is_large(out.shape[-1]):
        each(lapack.cholesky)(gram, out)
    else:
        lapack.semidefinite_cholesky(gram, out)


operation(
    "lower", tile=_lower_tile, blas=plain(_lower_stacks), growth=1.0, overwrites=True,
    scratch=lambda node: 1 + node.shape[0],
)  # fmt: skip
operation(
    "cholesky", tile=_cholesky_tile, blas=plain(_cholesky_stacks), growth=0.5,
    scratch=lambda node: 1,
)  # fmt: skip
