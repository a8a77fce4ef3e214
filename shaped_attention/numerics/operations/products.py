"""Products of matrices."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.matrices import Zeros, multiply
from shaped_attention.numerics import lapack
from shaped_attention.numerics.operations.registry import Here, operation
from shaped_attention.numerics.operations.stacks import Place, Step, each, plain

Array = NDArray[np.float64]

FEWEST_TRIANGULAR = 32
"""Least rows at which a library product that skips zeros is faster (measured)."""


def _multiply(e: Emitter, here: Here) -> None:
    """Emit A B, A B^T or A^T B; zeros of triangular matrices are skipped."""
    (left, right), (a, b) = here.node.inputs, here.inputs
    first, second = here.node.kind == "multiply_tn", here.node.kind == "multiply_nt"
    zeros = Zeros(
        left.lower and not first, left.lower and first, right.lower and not second,
        right.lower and second,
    )  # fmt: skip
    rows, columns = here.node.shape
    inner = left.shape[0] if first else left.shape[1]
    multiply(
        e, here.out, a.mT if first else a, b.mT if second else b, (rows, inner, columns), zeros
    )  # fmt: skip


def _gram(e: Emitter, here: Here) -> None:
    """Emit A A^T or A^T A."""
    (a,), (matrix,), turned = here.node.inputs, here.inputs, here.node.kind == "cogram"
    matrix = matrix.mT if turned else matrix
    zeros = Zeros(lower=True, b_upper=True) if a.lower and not turned else Zeros()
    rows, inner = a.shape[::-1] if turned else a.shape
    multiply(e, here.out, matrix, matrix.mT, (rows, inner, rows), zeros, half=True)


def _multiply_stacks(step: Step, place: Place, out: Array, a: Array, b: Array) -> None:
    """Write the product; a large one with a triangular matrix costs half."""
    left, right = step.node.inputs
    kind = step.node.kind
    a_here = a.mT if kind == "multiply_tn" else a
    b_here = b.mT if kind == "multiply_nt" else b
    triangular = lapack.multiply_triangular
    if left.lower and left.shape[0] >= FEWEST_TRIANGULAR:
        out[...] = b_here
        each(partial(triangular, left=True, transposed=kind == "multiply_tn"))(a, out)
    elif right.lower and right.shape[0] >= FEWEST_TRIANGULAR:
        out[...] = a_here
        each(partial(triangular, left=False, transposed=kind == "multiply_nt"))(b, out)
    else:
        np.matmul(a_here, b_here, out=out)


for _kind in ("multiply_nn", "multiply_nt", "multiply_tn"):
    operation(_kind, emit=_multiply, blas=_multiply_stacks, growth=sum, in_place=True)
operation("gram", emit=_gram, blas=plain(lambda a, out: np.matmul(a, a.mT, out=out)), growth=2.0)
operation("cogram", emit=_gram, blas=plain(lambda a, out: np.matmul(a.mT, a, out=out)), growth=2.0)
