"""Products with transposed Jacobians of functions of rows, exact in law at any width."""

from __future__ import annotations

from collections.abc import Callable

from shaped_attention.checks import argument_error
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
    if not callable(function):
        raise argument_error("function", "a function of rows", function)
    _check_rows("x", x)
    if recording() is not None:
        raise ValueError(
            "vjp cannot be called inside a Tape, which does not differentiate its result"
        )
    start = x.detached().requires_grad_()
    with Tape(weights=False) as tape:
        y = function(start)
    if not (isinstance(y, Rows) and y.needs_gradient):
        raise argument_error("function", "a function whose rows depend on x", y)

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


def _check_rows(name: str, x: object) -> None:
    if not isinstance(x, Rows):
        raise argument_error(name, "rows of a lazy.Space", x)
