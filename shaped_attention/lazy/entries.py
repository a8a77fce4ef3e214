"""Functions of the entries of rows, in explicit spaces, which torch differentiates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from shaped_attention.lazy.coordinates import Coordinates, Vectors
from shaped_attention.lazy.spaces import Frame, unify
from shaped_attention.lazy.tape import add_gradient, give, recording


def explicit_space(rows: Coordinates) -> Frame:
    """Make the space of rows explicit, and return it.

    Raises
    ------
    ValueError
        If it is a direct sum.
    """
    spaces = tuple(rows.space)
    if len(spaces) > 1:
        raise ValueError(
            f"functions of entries act on one space; got a direct sum of {len(spaces)} spaces: "
            "apply the function to each before they are joined"
        )
    spaces[0].make_explicit()
    return spaces[0]


def explicitly(function: Callable[..., Tensor], *args: Any, **named: Any) -> Any:
    """Apply a function of entries, in torch, to operands of which some are rows."""
    for x in args:
        if isinstance(x, Vectors) and not isinstance(x, Coordinates):
            return x.of_entries(function, args, named)  # type: ignore[attr-defined]
    operands = [x for x in args if isinstance(x, Coordinates)]
    inside = [y for x in (*args, *named.values()) if isinstance(x, list | tuple) for y in x]
    if not operands or any(isinstance(x, Coordinates) for x in (*inside, *named.values())):
        raise ValueError(
            f"{function.__name__} does not take rows in this form; apply it to x.entries()"
        )
    spaces = [explicit_space(x) for x in operands]
    for x in operands[1:]:
        if x.shape[-1] == operands[0].shape[-1]:
            x.space = operands[0].space = unify(operands[0].space, x.space)
    others = (*args, *named.values())
    plain = [x for x in others if isinstance(x, Tensor) and x.requires_grad]
    needs, tape = bool(plain) or any(x.needs_gradient for x in operands), recording()
    if not needs or tape is None:
        with torch.no_grad():
            entries = (x.parts[0] if isinstance(x, Coordinates) else x for x in args)
            value = function(*entries, **named)
        return type(operands[0])(_space_of(value, spaces), (value,))
    with torch.enable_grad():
        leaves = [x.parts[0].detach().requires_grad_(x.needs_gradient) for x in operands]
        left = iter(leaves)
        value = function(*(next(left) if isinstance(x, Coordinates) else x for x in args), **named)
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


def _space_of(value: Tensor, spaces: Sequence[Frame]) -> Frame:
    """Return the space of the result of a function of entries.

    Raises
    ------
    ValueError
        If the function does not return rows.
    """
    if not isinstance(value, Tensor) or not value.is_floating_point():
        raise ValueError(
            "a function of the entries of rows must return numbers; one that compares or sorts "
            "acts inside another function, such as torch.relu, or on x.entries()"
        )
    if value.dim() != 3:
        raise ValueError(
            "a function of the entries of rows must return rows (samples, r, n); got shape "
            f"{tuple(value.shape)}; x.norm(), x.squares(), x.mean() and x @ y.mT turn rows into "
            "numbers, and x.entries() returns all entries as a tensor"
        )
    for space in spaces:
        if space.n == value.shape[-1]:
            return space
    return Frame(value.shape[-1], spaces[0].source, explicit=True)


def rsqrt_or_one(squares: Tensor) -> Tensor:
    """Return 1 / sqrt x, and 1 where x = 0."""
    zero = squares <= 0.0
    return torch.where(zero, 1.0, torch.where(zero, 1.0, squares).rsqrt())
