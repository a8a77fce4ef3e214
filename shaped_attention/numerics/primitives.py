"""The operations of descriptions: what a block may do with small matrices, besides arithmetic.

A description runs on torch tensors (B, m, c), which is its eager mode, or on `graph.Matrix`, which
records it. Both support ``A @ B``, ``A.mT``, ``A + B``, ``A - B``, ``A * B`` (entry by entry, or by
a number), ``A / B`` and ``A.shape[-2:]``; rows (1, c), columns (m, 1) and single entries (1, 1) are
broadcast. This module has the remaining operations. Factorisations treat a pivot below 64 eps of
its row as zero, so singular matrices are allowed and equal tokens remain equal. On a
`tangents.Dual`, a matrix with its derivatives in some directions, every operation has a tangent
rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from shaped_attention.lazy_torch import Tensor, torch
from shaped_attention.numerics.carrier import Carrier
from shaped_attention.numerics.factor import lower_factor, semidefinite_cholesky
from shaped_attention.numerics.graph import Matrix
from shaped_attention.numerics.scalars import AnyNumber, Scalar, is_one, of_number, square_root

M = TypeVar("M", Tensor, Matrix, Carrier)
"""Type of the operands of a description; all operands and results have the same type."""


def constant(array: NDArray[np.float64], like: M) -> M:
    """Return a matrix of given entries (r, c), with the type, dtype and device of `like`."""
    if isinstance(like, Carrier):
        return like.rule(constant)(array, like)
    if isinstance(like, Matrix):
        return like.graph.constant(array)
    # With a batch: a product with a single matrix would be one large product, whose bits depend on
    # the number of paths.
    matrix = torch.tensor(array, dtype=like.dtype, device=like.device)
    return matrix.expand(*like.shape[:-2], *matrix.shape) if matrix.ndim == 2 else matrix


def concatenate(parts: Sequence[M]) -> M:
    """Place matrices with the same number of rows next to each other."""
    first = next((part for part in parts if isinstance(part, Carrier)), parts[0])
    if isinstance(first, Carrier):
        return first.rule(concatenate)(parts)
    if len(parts) == 1:
        return first
    if isinstance(first, Matrix):
        # No pending coefficients: a part without another use is then written in place.
        nodes = [part.plain() for part in parts]
        rows = first.shape[0]
        return first.graph.node(
            "concatenate",
            [part.node for part in nodes],
            (rows, sum(part.shape[1] for part in nodes)),
            [part.coefficient for part in nodes],
        )
    batch = torch.broadcast_shapes(*(part.shape[:-2] for part in parts))
    return torch.cat([part.expand(*batch, *part.shape[-2:]) for part in parts], dim=-1)


def columns(matrix: M, start: int, stop: int) -> M:
    """Return the columns start, ..., stop - 1."""
    if isinstance(matrix, Carrier):
        return matrix.rule(columns)(matrix, start, stop)
    if isinstance(matrix, Matrix):
        flat = matrix.plain()
        result = flat.graph.node(
            "columns", (flat.node,), (flat.shape[0], stop - start), (), (start,)
        )
        return Matrix(flat.graph, result.node, flat.coefficient)
    return matrix[..., start:stop]


def lower(root: M) -> M:
    """Return the lower triangular L (m, m) with diagonal >= 0 and L L^T = root root^T."""
    if isinstance(root, Carrier):
        return root.rule(lower)(root)
    if isinstance(root, Matrix):
        flat = root.value()
        rows = flat.shape[0]
        return flat.graph.node("lower", (flat.node,), (rows, rows), lower=True)
    return lower_factor(root)


def compress(root: M) -> M:
    """Return a root with the same Gram matrix and at most as many columns as rows."""
    if isinstance(root, Carrier):
        return root.rule(compress)(root)
    return lower(root) if root.shape[-1] > root.shape[-2] else root


def cholesky(gram: M) -> M:
    """Return the lower triangular L with L L^T = `gram`, positive semidefinite."""
    if isinstance(gram, Carrier):
        return gram.rule(cholesky)(gram)
    if isinstance(gram, Matrix):
        flat = gram.value()
        return flat.graph.node("cholesky", (flat.node,), flat.shape, lower=True)
    return semidefinite_cholesky(gram)


def softmax(logits: M, seen: NDArray[np.bool_]) -> M:
    """Apply softmax to each row, over the entries that `seen` (m, m) allows; 0 elsewhere."""
    if isinstance(logits, Carrier):
        return logits.rule(softmax)(logits, seen)
    if isinstance(logits, Matrix):
        flat = logits.plain()
        allowed = flat.graph.constant(np.asarray(seen, dtype=np.float64))
        return flat.graph.node(
            "softmax", (flat.node, allowed.node), flat.shape, (flat.coefficient,)
        )
    allowed_here = torch.as_tensor(seen, device=logits.device)
    return torch.softmax(logits.masked_fill(~allowed_here, -torch.inf), dim=-1)


def rotate(matrix: M, turns: NDArray[np.float64]) -> M:
    """Rotate pairs of columns in each row.

    Columns j and j + J of row a become x c - y s and y c + x s, with c = turns[a, j] and
    s = turns[a, J + j], for j < J. `turns` has the shape (m, 2 J); columns from 2 J on are
    unchanged.
    """
    if isinstance(matrix, Carrier):
        return matrix.rule(rotate)(matrix, turns)
    pairs = turns.shape[1] // 2
    if isinstance(matrix, Matrix):
        flat = matrix.plain()
        table = flat.graph.constant(turns)
        result = flat.graph.node("rotate", (flat.node, table.node), flat.shape)
        return Matrix(flat.graph, result.node, flat.coefficient)
    cos, sin = constant(turns[:, :pairs], matrix), constant(turns[:, pairs:], matrix)
    x, y = matrix[..., :pairs], matrix[..., pairs : 2 * pairs]
    return torch.cat([x * cos - y * sin, y * cos + x * sin, matrix[..., 2 * pairs :]], dim=-1)


def diagonal(matrix: M) -> M:
    """Return the diagonal of a square matrix as a column (m, 1)."""
    if isinstance(matrix, Carrier):
        return matrix.rule(diagonal)(matrix)
    if isinstance(matrix, Matrix):
        result = matrix.graph.node("diagonal", (matrix.node,), (matrix.shape[0], 1))
        return Matrix(matrix.graph, result.node, matrix.coefficient)
    return matrix.diagonal(dim1=-2, dim2=-1)[..., None]


def row_sums(matrix: M) -> M:
    """Sum each row: a column (m, 1)."""
    if isinstance(matrix, Carrier):
        return matrix.rule(row_sums)(matrix)
    if isinstance(matrix, Matrix):
        flat = matrix.plain()
        result = flat.graph.node("row_sums", (flat.node,), (flat.shape[0], 1))
        return Matrix(flat.graph, result.node, flat.coefficient)
    return matrix.sum(-1, keepdim=True)


def column_sums(matrix: M) -> M:
    """Sum each column: a row (1, c)."""
    if isinstance(matrix, Carrier):
        return matrix.rule(column_sums)(matrix)
    if isinstance(matrix, Matrix):
        flat = matrix.plain()
        result = flat.graph.node("column_sums", (flat.node,), (1, flat.shape[1]))
        return Matrix(flat.graph, result.node, flat.coefficient)
    return matrix.sum(-2, keepdim=True)


def row_squares(matrix: M) -> M:
    """Sum the squares of each row: the squared lengths, a column (m, 1)."""
    if isinstance(matrix, Carrier):
        return matrix.rule(row_squares)(matrix)
    if isinstance(matrix, Matrix):
        flat = matrix.plain()
        result = flat.graph.node("row_squares", (flat.node,), (flat.shape[0], 1))
        return Matrix(flat.graph, result.node, flat.coefficient * flat.coefficient)
    return (matrix * matrix).sum(-1, keepdim=True)


def unit_rows(matrix: M) -> M:
    """Divide each row by its length; a row of zeros is unchanged."""
    if isinstance(matrix, Carrier):
        return matrix.rule(unit_rows)(matrix)
    if isinstance(matrix, Matrix):
        flat = matrix.plain()
        return flat.graph.node("unit_rows", (flat.node,), flat.shape, lower=flat.node.lower)
    length = torch.linalg.vector_norm(matrix, dim=-1, keepdim=True)
    return matrix / torch.where(length > 0.0, length, 1.0)


def symmetric_noise(numbers: M, size: int) -> M:
    """Return the symmetric (size, size) matrix whose lower triangle, row by row, is `numbers`.

    The diagonal is multiplied by sqrt 2: independent normals give the noise with variance 1 off the
    diagonal and 2 on it. `numbers` has the shape (1, size (size + 1) / 2).
    """
    if isinstance(numbers, Carrier):
        return numbers.rule(symmetric_noise)(numbers, size)
    if isinstance(numbers, Matrix):
        flat = numbers.plain()
        result = flat.graph.node("symmetric", (flat.node,), (size, size))
        return Matrix(flat.graph, result.node, flat.coefficient)
    i, j = torch.tril_indices(size, size, device=numbers.device)
    lower_half = numbers.new_zeros(*numbers.shape[:-2], size, size)
    lower_half[..., i, j] = numbers[..., 0, :]
    weight = numbers.new_ones(size, size)
    weight.fill_diagonal_(0.5**0.5)
    weighted = lower_half * weight
    return weighted + weighted.mT


@overload
def sqrt(x: M) -> M: ...
@overload
def sqrt(x: float) -> float: ...
@overload
def sqrt(x: Scalar) -> Scalar: ...
def sqrt(x: Any) -> Any:
    """Return the square root of a number, a parameter, or every entry of a matrix."""
    if isinstance(x, Carrier):
        return x.rule(sqrt)(x)
    if isinstance(x, Matrix):
        return x.elementwise("sqrt")
    return square_root(x)


@overload
def exp(x: M) -> M: ...
@overload
def exp(x: float) -> float: ...
@overload
def exp(x: Scalar) -> Scalar: ...
def exp(x: Any) -> Any:
    """Return the exponential of a number, a parameter, or every entry."""
    if isinstance(x, float | int | Scalar):
        return of_number("exp", x)
    if isinstance(x, Carrier):
        return x.rule(exp)(x)
    return x.elementwise("exp") if isinstance(x, Matrix) else x.exp()


@overload
def tanh(x: M) -> M: ...
@overload
def tanh(x: float) -> float: ...
@overload
def tanh(x: Scalar) -> Scalar: ...
def tanh(x: Any) -> Any:
    """Return the hyperbolic tangent of a number, a parameter, or every entry."""
    if isinstance(x, float | int | Scalar):
        return of_number("tanh", x)
    if isinstance(x, Carrier):
        return x.rule(tanh)(x)
    return x.elementwise("tanh") if isinstance(x, Matrix) else x.tanh()


@overload
def normal_cdf(x: M) -> M: ...
@overload
def normal_cdf(x: float) -> float: ...
@overload
def normal_cdf(x: Scalar) -> Scalar: ...
def normal_cdf(x: Any) -> Any:
    """Return the standard normal distribution function of a number, a parameter, or every entry."""
    if isinstance(x, float | int | Scalar):
        return of_number("normal_cdf", x)
    if isinstance(x, Carrier):
        return x.rule(normal_cdf)(x)
    if isinstance(x, Matrix):
        return x.elementwise("normal_cdf")
    return 0.5 * torch.erfc(x * (-(0.5**0.5)))


@overload
def sigmoid(x: M) -> M: ...
@overload
def sigmoid(x: float) -> float: ...
@overload
def sigmoid(x: Scalar) -> Scalar: ...
def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x)) of a number, a parameter, or every entry."""
    if isinstance(x, float | int | Scalar):
        return of_number("sigmoid", x)
    if isinstance(x, Carrier):
        return x.rule(sigmoid)(x)
    return x.elementwise("sigmoid") if isinstance(x, Matrix) else torch.sigmoid(x)


@overload
def softplus(x: M) -> M: ...
@overload
def softplus(x: float) -> float: ...
@overload
def softplus(x: Scalar) -> Scalar: ...
def softplus(x: Any) -> Any:
    """Return log(1 + exp(x)) of a number, a parameter, or every entry."""
    if isinstance(x, float | int | Scalar):
        return of_number("softplus", x)
    if isinstance(x, Carrier):
        return x.rule(softplus)(x)
    if isinstance(x, Matrix):
        return x.elementwise("softplus")
    return torch.logaddexp(x, torch.zeros_like(x))


def leaky(x: M, plus: AnyNumber, minus: AnyNumber) -> M:
    """Return plus x for x > 0 and minus x otherwise, entry by entry."""
    if isinstance(x, Carrier):
        return x.rule(leaky)(x, plus, minus)
    if isinstance(x, Matrix):
        return x.elementwise("leaky", (plus, minus))  # type: ignore[arg-type]
    return plus * x.clamp(min=0.0) + minus * x.clamp(max=0.0)  # type: ignore[operator]


def arc_cosine_kernel(v: M) -> M:
    """Return sqrt(V_aa V_bb) J(rho_ab), J(r) = sqrt(1 - r^2) + r (pi - arccos r).

    This kernel of Cho and Saul (2009) is positive semidefinite, with the diagonal pi V_aa. A rho
    outside [-1, 1] by rounding is clamped.
    """
    if isinstance(v, Carrier):
        return v.rule(arc_cosine_kernel)(v)
    if isinstance(v, Matrix):
        flat = v.value()
        return flat.graph.node("arc_cosine", (flat.node,), flat.shape)
    root = v.diagonal(dim1=-2, dim2=-1).sqrt()
    scale = root[..., :, None] * root[..., None, :]
    r = v / torch.where(scale > 0.0, scale, 1.0)
    # J' = pi - arccos r is finite at r = +-1, where the derivatives of the two terms are not.
    inside = r.abs() < 1.0
    s = torch.where(inside, r, 0.0)
    angle = (1.0 - s * s).sqrt() + s * (math.pi - torch.arccos(s))
    return scale * torch.where(inside, angle, math.pi * r.clamp(min=0.0))


_INCREMENTS_ALONE = "a limit is driven by Brownian increments alone: numbers.normal is needed"


class Numbers:
    """The random numbers of one block in one step, by name.

    `named_numbers.TorchNumbers` provides them in torch, `traced_numbers.TracedNumbers` while a
    description is traced. Each name may be used once per step and `head`: a repeated name is an
    error, since it would give the same numbers. A limit may only use `normal`, the increments of
    its Brownian motions.
    """

    def inside(self, index: int) -> Numbers:
        """Return the numbers of a block inside this one."""
        raise RuntimeError("Numbers is a base class")

    def normal(self, name: str, rows: int, columns: int, head: int = 0) -> Any:
        """Return independent standard normals (rows, columns)."""
        raise RuntimeError("Numbers is a base class")

    def wishart(self, name: str, rows: int, dof: int, head: int = 0) -> Any:
        """Return B with B B^T ~ Wishart_rows(dof, I).

        It is Bartlett's lower triangular factor (rows, rows) if dof >= rows + 2, and the Gaussian
        matrix itself (rows, dof) otherwise.
        """
        raise ValueError(_INCREMENTS_ALONE)

    def activated_gram(
        self, name: str, factor: Any, count: int, activation: Callable[..., Any], copies: int = 1
    ) -> Any:
        """Return sum_i s(h_i) s(h_i)^T over `count` independent h_i ~ N(0, F F^T).

        F (m, c) is `factor`; s acts on every entry. With `copies` = 2 it is a function s(h_i, u_i)
        of two independent columns, such as a gate. The cost is O(count m (m + copies c)) time and
        the memory of a few columns.
        """
        raise ValueError(_INCREMENTS_ALONE)


__all__ = [
    "M",
    "Numbers",
    "arc_cosine_kernel",
    "cholesky",
    "column_sums",
    "columns",
    "compress",
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
