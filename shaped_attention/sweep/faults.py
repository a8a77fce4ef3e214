"""Faults of a sweep, all found before anything runs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shaped_attention.checks import argument_error, did_you_mean
from shaped_attention.numerics.seeds import canonical
from shaped_attention.samplers.arguments import named_device
from shaped_attention.sweep.cells import each, kind_of, named
from shaped_attention.sweep.specification import Sweep, SweepFaultsError

_RESERVED = {
    "sampler", "fraction", "sample", "observable", "row", "col", "values", "stopping_time", "V",
    "mean", "lower", "upper", "deviation", "quantile", "level", "samples", "distance", "margin",
    "stopped", "stopped_lower", "stopped_upper",
}  # fmt: skip
"""Names in the Datasets that are made of a sweep; no axis may have them."""


def checked(sweep: Sweep) -> tuple[int, tuple[str, ...]]:
    """Return the number of tokens of all cells, 0 if it differs, and the observables to keep.

    If the sweep has faults, SweepFaultsError is raised with a sentence for each.
    """
    sizes = set[int]()
    if faults := list(_faults_of_entries(sweep)) or _faults_of_cells(sweep, sizes):
        raise SweepFaultsError(faults)
    from shaped_attention.numerics.observables import observables

    first, *others = (list(observables(np.eye(m)[None])) for m in sorted(sizes))
    common = tuple(name for name in first if all(name in other for other in others))
    faults = [
        f"observables: {name!r} is not among those of all cells: {common}"
        for name in sweep.observables
        if name not in common
    ]
    if sweep.keep == "V" and others:
        faults.append("keep='V': cells with different numbers of tokens have no common V")
    if faults:
        raise SweepFaultsError(faults)
    return 0 if others else sizes.pop(), sweep.observables or common


def _faults_of_entries(sweep: Sweep) -> Iterator[str]:
    """Yield the faults that can be found without making a cell."""
    if sweep.device != "cpu":  # any other name needs torch, whose import takes seconds
        try:
            named_device(sweep.device)
        except ValueError as error:
            yield str(error)
    times = list(sweep.fractions)
    if not times or times != sorted(set(times)):
        yield str(argument_error("fractions", "increasing numbers in [0, 1]", times))
    known = {"layer"}
    for layer in sweep.layers:
        try:
            kind = kind_of(layer)
        except ValueError as error:
            yield str(error)
            known |= {*sweep.fixed, *sweep.axes}  # may be those of this layer
            continue
        any_name = getattr(kind, "any_name", False)
        known |= {*sweep.fixed, *sweep.axes} if any_name else {*kind.parameters(layer)}
        once = 0 < len(sweep.samplers) == len(set(sweep.samplers))
        if not once or not set(sweep.samplers) <= set(kind.samplers):
            needed = f"some of {', '.join(kind.samplers)}, once each, with layer={named(layer)!r}"
            yield str(argument_error("samplers", needed, list(sweep.samplers)))
    for name in (*sweep.fixed, *sweep.axes):
        if name not in known:
            yield f"{name} is not a parameter; {did_you_mean(name, sorted(known))}"
    for name, values in each(named, sweep.axes).items():
        if name in sweep.fixed:
            yield f"{name} is both fixed and an axis"
        if name in _RESERVED:
            yield f"{name} cannot be an axis, because the results use this name"
        if not values or len(set(map(canonical, values))) < len(values):
            yield str(argument_error(name, "a list of distinct values", values))


def _faults_of_cells(sweep: Sweep, sizes: set[int]) -> list[str]:
    """Return each distinct fault of the cells, with the first cell that has it.

    The numbers of tokens of the others are added to `sizes`.
    """
    faults: dict[str, str] = {}
    for name in sweep.cells():
        try:
            cell = sweep.cell(name)
            for sampler in sweep.samplers:
                cell.times(sampler, sweep.fractions)
                cell.check(sampler, sweep.block, sweep.seed, sweep.dtype)
            sizes.add(cell.tokens)
        except Exception as error:  # a user's layer may raise anything
            known = isinstance(error, ValueError | TypeError | OverflowError | MemoryError)
            sentence = str(error) if known else f"layer raised {type(error).__name__}: {error}"
            place = ", ".join(f"{axis}={value!r}" for axis, value in sweep.point(name).items())
            faults.setdefault(sentence, f" (first at {place})" if place else "")
    return [sentence + place for sentence, place in faults.items()]
