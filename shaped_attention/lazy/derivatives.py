"""Products with Jacobians of functions of rows, exact in law at any width.

Their names are those of torch.func.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.autograd import forward_ad

from shaped_attention.checks import argument_error
from shaped_attention.lazy.tangent_rows import RowsWithTangent
from shaped_attention.rows.rows import Rows
from shaped_attention.rows.spaces import unify
from shaped_attention.rows.tape import Tape, recording


def vjp(function: Callable[[Rows], Rows], x: Rows) -> tuple[Rows, Callable[[Rows], Rows]]:
    """Return y = f(x), and the function that takes a gradient g in y to J^T g.

    Parameters
    ----------
    function
        A function from rows to rows: products with matrices, blocks, operations on rows.
    x
        Rows.

    Raises
    ------
    ValueError
        If `function` does not return rows that depend on x.

    Examples
    --------
    >>> from shaped_attention import lazy
    >>> space = lazy.Space(10**6, samples=2)
    >>> w = lazy.Matrix(space, space, std=1e-3)
    >>> y, pull = lazy.vjp(lambda x: x + (x @ x.mT).softmax(-1) @ (x @ w), space.normal(3))
    >>> pull(space.normal(3))
    Rows(2, 3, 1000000)
    """
    _check_function(function)
    _check_rows("x", x)
    if recording() is not None:
        raise ValueError(
            "vjp cannot be called inside a Tape, which does not differentiate its result"
        )
    start = x.detached().requires_grad_()
    with Tape(weights=False) as tape:
        y = function(start)
    _check_result(y, Rows)
    if not y.needs_gradient:
        raise ValueError("function must return rows that depend on x; these do not")

    def pull(g: Rows) -> Rows:
        _check_rows("g", g)
        y.space = g.space = unify(g.space, y.space)
        if g.shape != y.shape:
            raise argument_error("g", f"rows of shape {tuple(y.shape)}, that of f(x)", g)
        tape.add(y, g)
        tape.backward(keep=True)
        gradient = tape.gradient(start)
        return gradient if gradient is not None else 0.0 * start.detached()

    return y.detached(), pull


def jvp(function: Callable[[Rows], Rows], x: Rows, tangent: Rows) -> tuple[Rows, Rows]:
    """Return y = f(x) and J t, the derivative of f at x in the direction of a tangent t.

    Parameters
    ----------
    function
        A function from rows to rows. It is called with rows that carry the tangent; what torch
        computes from plain matrices, such as scores, must support torch's forward mode.
    x, tangent
        Rows of one space, of the same shape.

    Raises
    ------
    ValueError
        If the shapes differ, or `function` does not return rows that depend on x.

    Examples
    --------
    >>> from shaped_attention import lazy
    >>> space = lazy.Space(10**6, samples=2)
    >>> w = lazy.Matrix(space, space, std=1e-3)
    >>> lazy.jvp(lambda x: x / x.norm() + x @ w, space.normal(3), space.normal(3))[1]
    Rows(2, 3, 1000000)
    """
    _check_function(function)
    with forward_ad.dual_level():
        y: Any = function(_with_tangent(x, tangent))  # type: ignore[arg-type]
        _check_result(y, RowsWithTangent)
        return y.value, y.tangent


def _with_tangent(x: Rows, tangent: Rows) -> RowsWithTangent:
    _check_rows("x", x)
    _check_rows("tangent", tangent)
    if x.shape != tangent.shape:
        raise argument_error("tangent", f"rows of shape {tuple(x.shape)}, that of x", tangent)
    return RowsWithTangent.of(x, tangent)


def _check_function(function: object) -> None:
    if not callable(function):
        raise argument_error("function", "a function of rows", function)


def _check_rows(name: str, x: object) -> None:
    if not isinstance(x, Rows):
        raise argument_error(name, "rows of a lazy.Space", x)


def _check_result(y: object, kind: type) -> None:
    if not isinstance(y, kind):
        raise ValueError(f"function must return rows that depend on x; got {type(y).__name__}")
