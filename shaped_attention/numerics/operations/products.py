"""Products of matrices, of which either may be transposed."""

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


def _emit(e: Emitter, here: Here) -> None:
    """Emit the product; zeros of triangular matrices are skipped."""
    (left, right), (first, second) = here.node.inputs, here.node.integers
    half = here.node.is_gram
    a, b = here.inputs[0], here.inputs[0 if half else 1]
    zeros = Zeros(
        left.lower and not first, left.lower and bool(first),
        right.lower and not second, right.lower and bool(second),
    )  # fmt: skip
    rows, columns = here.node.shape
    inner = left.shape[0] if first else left.shape[1]
    multiply(
        e, here.out, a.mT if first else a, b.mT if second else b, (rows, inner, columns), zeros,
        half=half,
    )  # fmt: skip


def _alone(node: Node) -> Alone:
    """Return the product; a large one with a triangular matrix costs half."""
    (left, right), (first, second) = node.inputs, node.integers
    triangular = [x.lower and not node.is_gram for x in (left, right)]

    def run(call: Call, out: Array, a: Array, b: Array) -> None:
        a_here, b_here = a.T if first else a, b.T if second else b
        if triangular[0] and len(a) >= FEWEST_TRIANGULAR:
            out[...] = b_here
            multiply_triangular(a, out, left=True, transposed=bool(first))
        elif triangular[1] and len(b) >= FEWEST_TRIANGULAR:
            out[...] = a_here
            multiply_triangular(b, out, left=False, transposed=bool(second))
        else:
            np.matmul(a_here, b_here, out=out)

    return run


operation("product", emit=_emit, routine=_alone, growth=sum, in_place=True)
