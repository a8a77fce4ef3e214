"""Rows beside each other, in a direct sum of spaces, and below each other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import TypeVar

from shaped_attention.rows import values
from shaped_attention.rows.coordinates import Coordinates, Parts, aligned
from shaped_attention.rows.spaces import RowsError, Sum, unify
from shaped_attention.rows.tape import add_gradient, drawn_later, recording
from shaped_attention.rows.undrawn import Linear
from shaped_attention.rows.values import some_rows, zeros

R = TypeVar("R", bound=Coordinates)


def joined(rows: Sequence[R], dim: int = -1) -> R:
    """Put rows side by side: rows of the direct sum of their spaces."""
    if dim not in (-1, 2):
        raise RowsError(
            f"rows are joined side by side, dim=-1, or below each other, dim=1; got dim={dim}"
        )
    counts = [x.shape[1] for x in rows]
    if len(set(counts)) > 1:
        raise RowsError(f"rows side by side must be equally many; got {counts}")
    space = Sum([x.space for x in rows])
    pending = [x.linear for x in rows if isinstance(x.linear, Linear)]
    if len(pending) == len(rows):
        first, *rest = pending
        return type(rows[0]).pending(space, counts[0], first.joined(rest))  # type: ignore[attr-defined]
    needs = any(x.needs_gradient for x in rows)

    def rule(g: R) -> None:
        start, parts = 0, g.parts
        for x in rows:
            stop = start + len(tuple(x.space))
            add_gradient(x, type(x)(x.space, parts[start:stop]))
            start = stop

    def make() -> Parts:
        return tuple(part for x in rows for part in x.parts)

    return drawn_later(type(rows[0]), space, rows[0].shape[1], make, rule, needs)


def summands(rows: R, first: int, last: int) -> R:
    """Return the columns of one or several whole parts of a direct sum."""
    assert isinstance(rows.space, Sum)
    start, columns, chosen = 0, 0, []
    for index, part in enumerate(rows.space.parts):
        if first <= start and start + part.n <= last:
            chosen.append(index)
            columns += part.n
        start += part.n
    if columns != last - first:
        raise RowsError(f"columns {first} to {last} are not whole parts of the direct sum")
    return members(rows, chosen)


def members(rows: R, numbers: Sequence[int]) -> R:
    """Return the columns of some parts of a direct sum, by their numbers."""
    assert isinstance(rows.space, Sum)
    parts = [rows.space.parts[i] for i in numbers]
    space = parts[0] if len(parts) == 1 else Sum(parts)
    if isinstance(rows.linear, Linear):
        return type(rows).pending(space, rows.shape[1], rows.linear.chosen(numbers))  # type: ignore[attr-defined]
    places = rows.space.places(numbers)

    def rule(g: R) -> None:
        zero = [*_zero(rows.parts)]
        for place, part in zip(places, g.parts, strict=True):
            zero[place] = part
        add_gradient(rows, type(rows)(rows.space, tuple(zero)))

    def make() -> Parts:
        parts = rows.parts
        return tuple(parts[k] for k in places)

    return drawn_later(type(rows), space, rows.shape[1], make, rule, rows.needs_gradient)


def apart(rows: R) -> list[R]:
    """Return the columns of each part of a direct sum; their gradients go back together."""
    assert isinstance(rows.space, Sum)
    space, parts, start = rows.space, rows.parts, 0
    tape = recording() if rows.needs_gradient else None
    gradients: dict[int, R] = {}
    result: list[R] = []

    def back(_: object) -> None:
        if gradients:
            whole = [
                gradients[k].parts if k in gradients else _zero(x.parts)
                for k, x in enumerate(result)
            ]
            add_gradient(rows, type(rows)(space, tuple(chain.from_iterable(whole))))

    if tape is not None:
        tape.note(None, back)
    for number, part in enumerate(space.parts):
        stop = start + len(tuple(part))
        x = type(rows)(part, parts[start:stop], needs_gradient=tape is not None)
        if tape is not None:
            tape.note(x, partial(gradients.__setitem__, number))
        result.append(x)
        start = stop
    return result


def _zero(parts: Parts) -> Parts:
    return tuple(zeros(part, *part.shape[-2:]) for part in parts)


def cut_rows(rows: R, first: int, last: int) -> R:
    """Return some of the rows; they carry no gradient."""
    return type(rows)(rows.space, tuple(some_rows(part, first, last) for part in rows.parts))


def stacked(rows: Sequence[R]) -> R:
    """Return the rows of several below each other; they carry no gradient."""
    first = rows[0]
    for x in rows:
        _ = x.parts
        x.space = first.space = unify(x.space, first.space)
    if len(rows) == 1:
        return cut_rows(first, 0, first.shape[1])
    parts = zip(*aligned(rows), strict=True)
    return type(first)(first.space, tuple(values.stacked(part) for part in parts))
