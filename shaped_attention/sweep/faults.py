"""Faults of a sweep, all found before anything runs."""

from __future__ import annotations

import numpy as np

from shaped_attention.checks import argument_error, did_you_mean
from shaped_attention.numerics.seeds import canonical
from shaped_attention.samplers.arguments import named_device
from shaped_attention.sweep.cells import kind_of
from shaped_attention.sweep.specification import Sweep, size_fault

_RESERVED = frozenset(
    {"sampler", "fraction", "sample", "observable", "row", "col", "values", "stopping_time", "V"}
    | {"mean", "lower", "upper", "deviation", "quantile", "level", "samples", "distance", "margin"}
    | {"stopped", "stopped_lower", "stopped_upper"}
)
"""Names in the Datasets that are made of a sweep; no axis may have them."""


def checked(sweep: Sweep) -> tuple[list[str], set[int], tuple[str, ...]]:
    """Return the faults of a sweep, one sentence each.

    Without faults, its numbers of tokens and the observables that all cells have are returned too.
    """
    faults, sizes = _entry_faults(sweep) + _name_faults(sweep), set[int]()
    faults = faults or _cell_faults(sweep, sizes)
    if faults:
        return faults, set(), ()
    from shaped_attention.numerics.observables import observables

    named = [list(observables(np.eye(m)[None])) for m in sorted(sizes)]
    common = tuple(name for name in named[0] if all(name in other for other in named))
    for name in sweep.observables:
        if name not in common:
            faults.append(f"observables: {name!r} is not among those of all cells: {common}")
    if sweep.keep == "V" and len(sizes) > 1:
        faults.append("keep='V': cells with different numbers of tokens have no common V")
    return faults, sizes, common


def _entry_faults(sweep: Sweep) -> list[str]:
    faults = []
    if sweep.device != "cpu":  # any other name needs torch, whose import takes seconds
        try:
            named_device(sweep.device)
        except ValueError as error:
            faults.append(str(error))
    times = sweep.fractions
    if not times or list(times) != sorted(set(times)):
        faults.append(str(argument_error("fractions", "increasing numbers in [0, 1]", list(times))))
    return faults + [fault for fault in [size_fault(sweep)] if fault]


def _name_faults(sweep: Sweep) -> list[str]:
    """Return the faults of layers, samplers and names of parameters, and of the lists of axes."""
    faults, known = [], set[str]()
    for name in sweep.layers:
        layer = sweep.functions.get(name, name) if isinstance(name, str) else name
        try:
            kind = kind_of(layer)
            known |= {"layer", *kind.parameters(layer)}
        except ValueError as error:
            faults.append(str(error))
            continue
        if getattr(kind, "any_name", False):
            known |= {*sweep.fixed, *sweep.axes}
        once = 0 < len(sweep.samplers) == len(set(sweep.samplers))
        if not once or not set(sweep.samplers) <= set(kind.samplers):
            needed = f"some of {', '.join(kind.samplers)}, once each, with layer={name!r}"
            faults.append(str(argument_error("samplers", needed, list(sweep.samplers))))
    faults += [
        f"{name} is not a parameter; {did_you_mean(name, sorted(known))}"
        for name in (*sweep.fixed, *sweep.axes)
        if known and name not in known
    ]
    for name, values in sweep.axes.items():
        if name in sweep.fixed:
            faults.append(f"{name} is both fixed and an axis")
        if name in _RESERVED:
            faults.append(f"{name} cannot be an axis, because the results use this name")
        if not values or len(set(map(canonical, values))) < len(values):
            faults.append(str(argument_error(name, "a list of distinct values", values)))
    return faults


def _cell_faults(sweep: Sweep, sizes: set[int]) -> list[str]:
    """Return each distinct fault of the cells, with the first cell that has it.

    The numbers of tokens of the others are added to `sizes`.
    """
    faults: dict[str, str] = {}
    for index in sweep.indices():
        try:
            cell = sweep.cell(index)
            for sampler in sweep.samplers:
                cell.times(sampler, sweep.fractions)
                cell.check(sampler, sweep.block, sweep.seed, sweep.dtype)
            sizes.add(cell.tokens)
        except Exception as error:  # a user's layer may raise anything
            known = isinstance(error, ValueError | TypeError | OverflowError | MemoryError)
            sentence = str(error) if known else f"layer raised {type(error).__name__}: {error}"
            place = ", ".join(f"{name}={value!r}" for name, value in sweep.point(index).items())
            faults.setdefault(sentence, f" (first at {place})" if place else "")
    return [sentence + place for sentence, place in faults.items()]
