"""The operations of descriptions: what a block may do with small matrices, besides arithmetic.

A description runs on torch tensors (B, m, c), which is its eager mode, or on `graph.Matrix`, which
records it. Both support ``A @ B``, ``A.mT``, ``A + B``, ``A - B``, ``A * B`` (entry by entry, or by
a number), ``A / B`` and ``A.shape[-2:]``; rows (1, c), columns (m, 1) and single entries (1, 1) are
broadcast. This module has the remaining operations. Factorisations treat a pivot below 64 eps of
its row as zero, so singular matrices are allowed and equal tokens remain equal.
Each is in its own file in `operations`, with all that executors need.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shaped_attention.numerics.operations.arc_cosine import arc_cosine_kernel
from shaped_attention.numerics.operations.entrywise import (
    exp,
    leaky,
    normal_cdf,
    sigmoid,
    softplus,
    sqrt,
    tanh,
)
from shaped_attention.numerics.operations.factorisations import cholesky, lower
from shaped_attention.numerics.operations.parts import (
    columns,
    concatenate,
    constant,
    diagonal,
    symmetric_noise,
)
from shaped_attention.numerics.operations.registry import M
from shaped_attention.numerics.operations.rotate import rotate
from shaped_attention.numerics.operations.softmax import softmax
from shaped_attention.numerics.operations.sums import (
    by_length,
    by_mean_square,
    column_sums,
    row_squares,
    row_sums,
    unit_rows,
)
from shaped_attention.numerics.scalars import is_one


class Numbers:
    """The random numbers of one block in one step, by name.

    `named_numbers.TorchNumbers` provides them in torch, `named_numbers.TracedNumbers` while a
    description is traced. Each name may be used once per step and `head`: a repeated name is an
    error, since it would give the same numbers. A limit may only use `normal`, the increments of
    its Brownian motions.
    """

    def inside(self, index: int) -> Numbers:
        """Return the numbers of a block inside this one."""
        raise RuntimeError("Numbers is a base class")

    def again(self) -> Numbers:
        """Return the numbers of the same step, of which none is drawn yet."""
        raise RuntimeError("Numbers is a base class")

    def normal(self, name: str, rows: int, columns: int, head: int = 0) -> Any:
        """Return independent standard normals (rows, columns)."""
        raise RuntimeError("Numbers is a base class")

    def wishart(self, name: str, rows: int, dof: int, head: int = 0) -> Any:
        """Return B with B B^T ~ Wishart_rows(dof, I).

        It is Bartlett's lower triangular factor (rows, rows) if dof >= rows + 2, and the Gaussian
        matrix itself (rows, dof) otherwise.
        """
        raise RuntimeError("Numbers is a base class")

    def activated_gram(
        self, name: str, factor: Any, count: int, activation: Callable[..., Any], copies: int = 1,
        head: int = 0,
    ) -> Any:  # fmt: skip
        """Return sum_i s(h_i) s(h_i)^T over `count` independent h_i ~ N(0, F F^T).

        F (m, c) is `factor`; s acts on every entry. With `copies` = 2 it is a function s(h_i, u_i)
        of two independent columns, such as a gate. The cost is O(count m (m + copies c)) time and
        the memory of a few columns.
        """
        raise RuntimeError("Numbers is a base class")


__all__ = [
    "M",
    "Numbers",
    "arc_cosine_kernel",
    "by_length",
    "by_mean_square",
    "cholesky",
    "column_sums",
    "columns",
    "concatenate",
    "constant",
    "diagonal",
    "exp",
    "is_one",
    "leaky",
    "lower",
    "normal_cdf",
    "rotate",
    "row_squares",
    "row_sums",
    "sigmoid",
    "softmax",
    "softplus",
    "sqrt",
    "symmetric_noise",
    "tanh",
    "unit_rows",
]
