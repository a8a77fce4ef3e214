"""Products of matrices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.matrices import Zeros, multiply
from shaped_attention.numerics.graph import Node
from shaped_attention.numerics.operations.registry import Alone, Call, Here, operation
from shaped_attention.numerics.routines import multiply_triangular

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


def _multiply_alone(node: Node) -> Alone:
    """Return the product; a large one with a triangular matrix costs half."""
    (left, right), kind = node.inputs, node.kind
    first, second = kind == "multiply_tn", kind == "multiply_nt"

    def run(call: Call, out: Array, a: Array, b: Array) -> None:
        a_here, b_here = a.T if first else a, b.T if second else b
        if left.lower and len(a) >= FEWEST_TRIANGULAR:
            out[...] = b_here
            multiply_triangular(a, out, left=True, transposed=first)
        elif right.lower and len(b) >= FEWEST_TRIANGULAR:
            out[...] = a_here
            multiply_triangular(b, out, left=False, transposed=second)
        else:
            np.matmul(a_here, b_here, out=out)

    return run


def _gram_alone(node: Node) -> Alone:
    if node.kind == "gram":
        return lambda call, out, a: np.matmul(a, a.T, out=out)
    return lambda call, out, a: np.matmul(a.T, a, out=out)


for _kind in ("multiply_nn", "multiply_nt", "multiply_tn"):
    operation(_kind, emit=_multiply, routine=_multiply_alone, growth=sum, in_place=True)
operation("gram", emit=_gram, routine=_gram_alone, growth=2.0)
operation("cogram", emit=_gram, routine=_gram_alone, growth=2.0)
