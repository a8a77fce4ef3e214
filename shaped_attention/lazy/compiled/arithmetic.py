"""Rules of operations that compute: sums, products, functions of entries, softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import add, mul, sub, truediv
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


def _binary(function: Callable[[Any, Any], Any]) -> Rule:
    """Return the rule of a function of two operands, each broadcast to the result."""

    def rule(t: Translator, result: Tensor, x: Any, y: Any, alpha: float = 1.0) -> Any:
        a, b = t.pair(result, x, y)
        return t.shaped(function(a, b if alpha == 1 else alpha * b), result)

    return rule


def _difference(a: Any, b: Any) -> Any:
    return a if is_number(b) and b == 0 else a - b


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
        value = of.row_sums(value) if dimension(dim, before) == -1 else of.column_sums(value)
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


def _where(t: Translator, result: Tensor, chosen: Any, x: Any, y: Any) -> Matrix:
    weight = t.matrix(chosen, result.dim())
    a, b = t.pair(result, x, y)
    if is_number(b) and b == 0:
        return t.shaped(weight * a, result)
    if is_number(a) and a == 0:
        return t.shaped((1.0 - weight) * b, result)
    return t.shaped(weight * a + (1.0 - weight) * b, result)


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


def _masked(t: Translator, result: Tensor, x: Any, mask: Any, value: Any) -> Any:
    matrix = t.matrix(x, result.dim())
    if float(value) != -math.inf:
        return t.shaped(_where(t, result, mask, float(value), x), result)
    if isinstance(mask, Traced):
        raise RecordingError("a mask that depends on values")
    return Traced(matrix, seen=np.broadcast_to(t.entries(mask, result.dim()), matrix.shape) == 0.0)


def _softmax(t: Translator, result: Tensor, x: Traced, dim: int, half: bool) -> Matrix:
    if dimension(dim, result.dim()) != -1:
        raise RecordingError("a softmax of columns")
    assert isinstance(x.value, Matrix)
    seen = np.ones(x.value.shape, dtype=bool) if x.seen is None else x.seen
    return of.softmax(x.value, seen)


def _softmax_back(t: Translator, result: Tensor, g: Any, y: Any, dim: int, dtype: Any) -> Matrix:
    above, weights = t.matrix(g, result.dim()), t.matrix(y, result.dim())
    return weights * (above - of.row_sums(weights * above))


RULES: dict[str, Rule] = {
    "add": _binary(add), "add_": _binary(add), "sub": _binary(sub), "mul": _binary(mul),
    "rsub": lambda t, result, x, y, alpha=1.0: _binary(sub)(t, result, y, x, alpha),
    "div": _binary(truediv), "bmm": _bmm,
    "sum": _sum, "mean": _mean, "linalg_vector_norm": _norm, "pow": _power, "clamp": _clamp,
    "neg": _entrywise(lambda x: -1.0 * x), "sqrt": _entrywise(of.sqrt),
    "rsqrt": _entrywise(lambda x: 1.0 / of.sqrt(x)), "reciprocal": _entrywise(lambda x: 1.0 / x),
    "exp": _entrywise(of.exp), "logaddexp": _binary(lambda a, b: b + of.softplus(a - b)),
    "tanh": _entrywise(of.tanh), "tanh_backward": _binary(lambda g, y: g * (1.0 - y * y)),
    "sigmoid": _entrywise(of.sigmoid),
    "sigmoid_backward": _binary(lambda g, y: g * (y * (1.0 - y))),
    "erfc": _entrywise(lambda x: 2.0 * of.normal_cdf(-(2.0**0.5) * x)),
    "gt": _binary(lambda a, b: _above(_difference(a, b))),
    "le": _binary(lambda a, b: 1.0 - _above(_difference(a, b))),
    "lt": _binary(lambda a, b: _above(-1.0 * _difference(a, b))),
    "ge": _binary(lambda a, b: 1.0 - _above(-1.0 * _difference(a, b))),
    "logical_not": _entrywise(lambda x: 1.0 - x), "where": _where, "masked_fill": _masked,
    "_softmax": _softmax, "_softmax_backward_data": _softmax_back,
}  # fmt: skip
"""The rules by the names of torch's operations."""
