"""Faults of a sweep's cells: values that the samplers reject, and axes without effect."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.sweep.cells import NAMED, Cell, make_cell
from shaped_attention.sweep.grid import Grid

REFUSALS = (ValueError, TypeError, OverflowError, MemoryError)
"""Exceptions that functions raise for values they do not accept."""

_PLACEHOLDER = 0.5
"""A valid weight gamma, used in place of an invalid one."""


def cell_faults(sweep: Grid, partial: bool) -> list[tuple[str, str]]:
    """Return each distinct fault with its first cell; if there are none, the axes without effect.

    With `partial`, invalid entries have been left out, so a missing value is not a fault.
    """
    found: dict[str, str] = {}
    numbers: dict[str, int] = {}
    cells = np.zeros(sweep.shape, dtype=np.int64)
    for index in itertools.product(*map(range, sweep.shape)):
        try:
            cell = sweep.cell(index)
            _check_cell(sweep, cell)
            seen = "".join(cell.identity(sampler) for sampler in sweep.samplers)
            cells[index] = numbers.setdefault(seen, len(numbers))
        except Exception:  # a user's layer may raise anything
            values = sweep.values(index)
            point = ", ".join(f"{name}={values[name]!r}" for name in sweep.axes)
            for sentence in _sentences(sweep, values, partial):
                found.setdefault(sentence, f" (first at {point})" if point else "")
    if not found and not partial:
        return _idle_axes(sweep, cells)
    entries = (*sweep.fixed, *sweep.axes, "fractions")
    return [(_entry(sentence, entries), sentence + place) for sentence, place in found.items()]


def _entry(sentence: str, entries: tuple[str, ...]) -> str:
    """Return the entry that a sentence begins with, as a whole word, or 'fixed'."""
    first = re.match(r"\w*", sentence)
    return first[0] if first and first[0] in entries else "fixed"


def _sentences(sweep: Grid, values: dict[str, Any], partial: bool) -> list[str]:
    """Return all faults of a cell: after each fault, check the cell without that value."""
    found: list[str] = []
    left = dict(values)
    while True:
        if partial and left.get("layer", "attention") in NAMED:
            left.setdefault("gamma", _PLACEHOLDER)
        try:
            _check_cell(sweep, make_cell(left, sweep.samplers))
        except Exception as error:  # a user's layer may raise anything
            sentence = str(error)
            if not isinstance(error, REFUSALS):
                sentence = (
                    f"layer={values.get('layer')!r}: the function raised "
                    f"{type(error).__name__}: {error}"
                )
            entry = next(
                (name for name in left if sentence.startswith((f"{name}=", f"{name} must"))), None
            )
            # Once a value is left out, a fault may follow from that alone.
            if entry is not None or not partial:
                found.append(sentence)
            if entry is None:
                return found
            left.pop(entry)
            partial = True
        else:
            return found


def _check_cell(sweep: Grid, cell: Cell) -> None:
    """Raise the ValueError that a sampler would, without simulating anything."""
    for sampler in sweep.samplers:
        cell.times(sampler, sweep.fractions)
        cell.check(sampler, sweep.block, sweep.seed, sweep.dtype)


def _idle_axes(sweep: Grid, cells: NDArray[np.int64]) -> list[tuple[str, str]]:
    """Return the axes along which all cells are the same."""
    return [
        (
            name,
            f"{name}={values!r}: this axis has no effect on samplers={list(sweep.samplers)}; leave "
            "it out",
        )
        for place, (name, values) in enumerate(sweep.axes.items())
        if len(values) > 1 and bool((cells == cells.take([0], axis=place)).all())
    ]
