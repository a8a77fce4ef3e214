"""Functions of the entries of rows, in explicit spaces, which torch differentiates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from shaped_attention.libraries import Tensor, torch
from shaped_attention.numerics.graph import Matrix
from shaped_attention.numerics.operations.entrywise import sign, sqrt
from shaped_attention.rows.coordinates import Coordinates
from shaped_attention.rows.hidden import Hidden, is_mixed
from shaped_attention.rows.spaces import Frame, RowsError, unify
from shaped_attention.rows.tape import add_gradient, give, recording
from shaped_attention.rows.values import is_number


def explicit_space(rows: Coordinates) -> Frame:
    """Make the space of rows explicit, and return it; raise ValueError if it is a direct sum."""
    spaces = tuple(rows.space)
    if len(spaces) > 1:
        raise RowsError(
            f"functions of entries act on one space; got a direct sum of {len(spaces)} spaces: "
            "apply the function to each before they are joined"
        )
    spaces[0].make_explicit()
    return spaces[0]


def explicitly(function: Callable[..., Tensor], *args: Any, **named: Any) -> Any:
    """Apply a function of entries, in torch, to operands of which some are rows."""
    operands = [x for x in args if isinstance(x, Coordinates)]
    inside = [y for x in (*args, *named.values()) if isinstance(x, list | tuple) for y in x]
    if not operands or any(isinstance(x, Coordinates) for x in (*inside, *named.values())):
        raise RowsError(
            f"{function.__name__} does not take rows in this form; apply it to x.entries()"
        )
    if _composes(function, args, named):
        return _composed(function, args, operands)
    spaces = [explicit_space(x) for x in operands]
    for x in operands[1:]:
        if x.shape[-1] == operands[0].shape[-1]:
            x.space = operands[0].space = unify(operands[0].space, x.space)
    function_of = partial(_of_parts, function, args, named)
    if isinstance(operands[0].parts[0], Matrix):
        return _traced(function_of, operands, [x for x in args if isinstance(x, Matrix)], spaces)
    others = (*args, *named.values())
    plain = [x for x in others if isinstance(x, Tensor) and x.requires_grad]
    needs, tape = bool(plain) or any(x.needs_gradient for x in operands), recording()
    if not needs or tape is None:
        # Without a tape torch differentiates the coordinates, as in `pathwise`.
        with nullcontext() if tape is None else torch.no_grad():
            value = function_of([x.parts[0] for x in operands])
        return type(operands[0])(_space_of(value, spaces), (value,))
    with torch.enable_grad():
        leaves = [x.parts[0].detach().requires_grad_(x.needs_gradient) for x in operands]
        value = function_of(leaves)
    space = _space_of(value, spaces)
    result = type(operands[0])(space, (value.detach(),), needs_gradient=True)

    def rule(g: Coordinates) -> None:
        wanted = [(x, y) for x, y in zip(operands, leaves, strict=True) if x.needs_gradient]
        sources = [y for _, y in wanted] + plain
        slopes = torch.autograd.grad(value, sources, g.parts[0], retain_graph=True)
        for (x, _), slope in zip(wanted, slopes, strict=False):
            add_gradient(x, type(x)(x.space, (slope,)))
        for y, slope in zip(plain, slopes[len(wanted) :], strict=True):
            give(y, slope)

    tape.note(result, rule)
    return result


ENTRYWISE = {
    "exp", "leaky", "normal_cdf", "sigmoid", "softplus", "sqrt", "tanh", "sign", "add", "mul",
    "truediv", "pow", "reciprocal",
}  # fmt: skip
"""Functions of single entries, of which hidden units can consist."""


def _composes(function: Callable[..., Any], args: Sequence[Any], named: Any) -> bool:
    """Return whether a function of rows can wait: a projection needs their Gram matrix alone."""
    if function.__name__ not in ENTRYWISE or named:
        return False
    return all(
        (x.is_open and x.linear is not None and not is_mixed(x.linear))
        if isinstance(x, Coordinates) else is_number(x)
        for x in args
    )  # fmt: skip


def _composed(function: Callable[..., Any], args: Sequence[Any], operands: Sequence[Any]) -> Any:
    for x in operands[1:]:
        x.space = operands[0].space = unify(operands[0].space, x.space)
    inside = partial(_of_parts, function, args, {})
    hidden = Hidden.combined(lambda *values: inside(values), [x.linear for x in operands])
    count = max(x.shape[1] for x in operands)
    return type(operands[0]).pending(operands[0].space, count, hidden)


def _of_parts(function: Callable[..., Any], args: Any, named: Any, parts: Sequence[Any]) -> Any:
    """Apply a function to its arguments, with these entries in the place of rows."""
    left = iter(parts)
    return function(*(next(left) if isinstance(x, Coordinates) else x for x in args), **named)


def _traced(
    function: Callable[[Sequence[Any]], Matrix], operands: Sequence[Any], plain: Sequence[Matrix],
    spaces: Sequence[Frame],
) -> Any:  # fmt: skip
    """Apply a function of entries to matrices of a graph, which `reverse` differentiates."""
    from shaped_attention.numerics.reverse import gradients, of_matrix

    leaves = [x.parts[0].value() for x in operands]
    value = function(leaves)
    result = type(operands[0])(_space_of(value, spaces), (value,), needs_gradient=True)

    def rule(g: Coordinates) -> None:
        gradient: Any = g.parts[0]
        found = gradients([(value, gradient)], [*leaves, *plain])
        for x, leaf in zip(operands, leaves, strict=True):
            # The same rows may occur twice.
            if x.needs_gradient and (slope := found.pop(leaf.node, None)) is not None:
                add_gradient(x, type(x)(x.space, (slope,)))
        for y in plain:
            if (slope := found.pop(y.node, None)) is not None:
                give(y, of_matrix(y, slope))

    if (tape := recording()) is not None:
        tape.note(result, rule)
    return result


def _space_of(value: Any, spaces: Sequence[Frame]) -> Frame:
    """Return the space of the value of a function; raise ValueError unless it is rows."""
    traced = isinstance(value, Matrix)
    if not traced and not (isinstance(value, Tensor) and value.is_floating_point()):
        raise RowsError(
            "a function of the entries of rows must return numbers; one that compares or sorts "
            "acts inside another function, such as torch.relu, or on x.entries()"
        )
    if not traced and value.dim() != 3:
        raise RowsError(
            "a function of the entries of rows must return rows (samples, r, n); got shape "
            f"{tuple(value.shape)}; x.norm(), x.squares(), x.mean() and x @ y.mT turn rows into "
            "numbers, and x.entries() returns all entries as a tensor"
        )
    for space in spaces:
        if space.n == value.shape[-1]:
            return space
    return Frame(value.shape[-1], spaces[0].source, explicit=True)


def rsqrt_or_one(squares: Any) -> Any:
    """Return 1 / sqrt x, and 1 where x = 0."""
    some = sign(squares)
    return some / sqrt(squares + (1.0 - some)) + (1.0 - some)


def reciprocal(x: Any) -> Any:
    """Return 1 / x, entry by entry."""
    return 1.0 / x
