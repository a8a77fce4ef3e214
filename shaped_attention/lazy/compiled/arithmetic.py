"""Rules of operations that compute: sums, products, functions of entries, softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from shaped_attention.lazy.compiled.translator import (
    RecordingError,
    Rule,
    Traced,
    Translator,
    dimension,
    is_number,
    shape_of,
)
from shaped_attention.numerics import primitives as of
from shaped_attention.numerics.graph import Matrix
from shaped_attention.numerics.operations.entrywise import sign


def _add(t: Translator, result: Tensor, x: Any, y: Any, alpha: float = 1.0) -> Any:
    a, b = t.pair(result, x, y)
    return t.shaped(a + (b if alpha == 1 else alpha * b), result)


def _sub(t: Translator, result: Tensor, x: Any, y: Any, alpha: float = 1.0) -> Any:
    return _add(t, result, x, y, -alpha)


def _rsub(t: Translator, result: Tensor, x: Any, y: Any, alpha: float = 1.0) -> Any:
    return _add(t, result, y, x, -alpha)


def _mul(t: Translator, result: Tensor, x: Any, y: Any) -> Any:
    a, b = t.pair(result, x, y)
    return t.shaped(a * b, result)


def _div(t: Translator, result: Tensor, x: Any, y: Any) -> Any:
    a, b = t.pair(result, x, y)
    return t.shaped(a / b, result)


def _bmm(t: Translator, result: Tensor, x: Any, y: Any) -> Matrix:
    for z in (x, y):
        if isinstance(z, Tensor) and not z.any():
            return t.zeros(*shape_of(result, t.samples))
    return t.matrix(x, 3) @ t.matrix(y, 3)


def _sum(
    t: Translator,
    result: Tensor,
    x: Any,
    dims: Any = None,
    keepdim: bool = False,
    dtype: Any = None,
) -> Matrix:
    before = result.dim() + (0 if keepdim else len(dims or ()))
    value = t.matrix(x, before)
    for dim in dims or ():
        place = dim - before if dim >= 0 else dim
        if place == -before:
            raise RecordingError("a sum over samples")
        value = of.row_sums(value) if place == -1 else of.column_sums(value)
    if not dims:
        raise RecordingError("a sum over samples")
    return t.shaped(value, result)


def _mean(t: Translator, result: Tensor, x: Any, dims: Any = None, keepdim: bool = False) -> Matrix:
    shape = x.value.shape
    total = _sum(t, result, x, dims, keepdim)
    return total * (shape_of(result, t.samples)[0] * shape_of(result, t.samples)[1]
                    / (shape[0] * shape[1]))  # fmt: skip


def _norm(
    t: Translator, result: Tensor, x: Any, order: float = 2, dims: Any = None,
    keepdim: bool = False, dtype: Any = None,
) -> Matrix:  # fmt: skip
    if order != 2 or list(dims or ()) != [-1]:
        raise RecordingError("a norm over rows")
    return t.shaped(of.sqrt(of.row_squares(t.matrix(x, 3))), result)


def _power(t: Translator, result: Tensor, x: Any, power: float) -> Any:
    matrix = t.operand(x, result)
    if power in (0.5, -0.5):
        root: Any = of.sqrt(matrix)
        return root if power > 0 else 1.0 / root
    if power not in (2, 3):
        raise RecordingError(f"the power {power}")
    square = matrix * matrix
    return square if power == 2 else square * matrix


def _above(matrix: Matrix) -> Matrix:
    """Return 1 where an entry is positive, and 0 elsewhere."""
    return of.leaky(sign(matrix), 1.0, 0.0)


def _comparison(function: Callable[[Matrix], Matrix]) -> Rule:
    """Return the rule of a comparison with a number or tensor, from that of x with 0."""

    def rule(t: Translator, result: Tensor, x: Any, y: Any) -> Matrix:
        a, b = t.pair(result, x, y)
        return t.shaped(function(a if is_number(b) and b == 0 else a - b), result)

    return rule


def _where(t: Translator, result: Tensor, chosen: Any, x: Any, y: Any) -> Matrix:
    weight = t.matrix(chosen, result.dim())
    a, b = t.pair(result, x, y)
    if is_number(b) and b == 0:
        return t.shaped(weight * a, result)
    if is_number(a) and a == 0:
        return t.shaped((1.0 - weight) * b, result)
    return t.shaped(weight * a + (1.0 - weight) * b, result)


def _of_slope(function: Callable[[Any], Any]) -> Rule:
    """Return the rule for the way back through a function, from its derivative by its value."""

    def rule(t: Translator, result: Tensor, g: Any, y: Any) -> Matrix:
        value: Matrix = t.matrix(g, result.dim()) * function(t.matrix(y, result.dim()))
        return value

    return rule


def _clamp(t: Translator, result: Tensor, x: Any, low: Any = None, high: Any = None) -> Matrix:
    matrix = t.matrix(x, result.dim())
    if low == 0 and high is None:
        return of.leaky(matrix, 1.0, 0.0)
    if high == 0 and low is None:
        return of.leaky(matrix, 0.0, 1.0)
    raise RecordingError("clamp")


def _entrywise(function: Callable[[Any], Any]) -> Rule:
    def rule(t: Translator, result: Tensor, x: Any, **named: Any) -> Any:
        value: Any = function(t.operand(x, result))
        return value

    return rule


def _logaddexp(t: Translator, result: Tensor, x: Any, y: Any) -> Matrix:
    a, b = t.pair(result, x, y)
    return b + of.softplus(a - b)


def _masked(t: Translator, result: Tensor, x: Any, mask: Any, value: Any) -> Any:
    matrix = t.matrix(x, result.dim())
    if float(value) != -math.inf:
        return t.shaped(_where(t, result, mask, float(value), x), result)
    if isinstance(mask, Traced):
        raise RecordingError("a mask that depends on values")
    return Traced(matrix, seen=np.broadcast_to(t.entries(mask, result.dim()), matrix.shape) == 0.0)


def _softmax(t: Translator, result: Tensor, x: Traced, dim: int, half: bool) -> Matrix:
    if dimension(dim, result) != -1:
        raise RecordingError("a softmax of columns")
    assert isinstance(x.value, Matrix)
    seen = np.ones(x.value.shape, dtype=bool) if x.seen is None else x.seen
    return of.softmax(x.value, seen)


def _softmax_back(t: Translator, result: Tensor, g: Any, y: Any, dim: int, dtype: Any) -> Matrix:
    above, weights = t.matrix(g, result.dim()), t.matrix(y, result.dim())
    return weights * (above - of.row_sums(weights * above))


RULES: dict[str, Rule] = {
    "add": _add, "add_": _add, "sub": _sub, "rsub": _rsub, "mul": _mul, "div": _div, "bmm": _bmm,
    "sum": _sum, "mean": _mean, "linalg_vector_norm": _norm, "pow": _power, "clamp": _clamp,
    "neg": _entrywise(lambda x: -1.0 * x), "sqrt": _entrywise(of.sqrt),
    "rsqrt": _entrywise(lambda x: 1.0 / of.sqrt(x)), "reciprocal": _entrywise(lambda x: 1.0 / x),
    "exp": _entrywise(of.exp), "logaddexp": _logaddexp,
    "tanh": _entrywise(of.tanh), "tanh_backward": _of_slope(lambda y: 1.0 - y * y),
    "sigmoid": _entrywise(of.sigmoid), "sigmoid_backward": _of_slope(lambda y: y * (1.0 - y)),
    "erfc": _entrywise(lambda x: 2.0 * of.normal_cdf(-(2.0**0.5) * x)),
    "gt": _comparison(_above), "le": _comparison(lambda x: 1.0 - _above(x)),
    "lt": _comparison(lambda x: _above(-1.0 * x)),
    "ge": _comparison(lambda x: 1.0 - _above(-1.0 * x)),
    "logical_not": _entrywise(lambda x: 1.0 - x), "where": _where, "masked_fill": _masked,
    "_softmax": _softmax, "_softmax_backward_data": _softmax_back,
}  # fmt: skip
"""The rules by the names of torch's operations."""
