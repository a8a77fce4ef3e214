"""Faults of a sweep, all found before anything runs."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from shaped_attention.checks import check_choice, check_count, check_positive, did_you_mean
from shaped_attention.numerics.seeds import canonical
from shaped_attention.samplers.devices import named_device, precision_name
from shaped_attention.sweep.cell_faults import REFUSALS, cell_faults
from shaped_attention.sweep.cells import NAMED, kind_of
from shaped_attention.sweep.grid import STOPPED, Grid, Target, common_observables

KEEP = ("observables", "V", "reductions")
"""What is stored: observables or V of every sample, or moments and histograms of blocks."""

MOST_CELLS = 100_000

MOST_UNITS = 1_000_000

_RESERVED = frozenset(
    {
        *("sampler", "block", "sample", "time", "kept", "observable", "power", "row", "col"),
        *("stopping_bin", "bin", "drawn", "values", "V", "moments", "stopping", "histogram"),
        *("stopping_time", "level", "fraction", "mean", "half_width", "deviation", "samples"),
        *("stopped", "quantile", "distance", "margin", "lower", "upper"),
        *("stopped_lower", "stopped_upper"),
    }
)
"""Names used by the store and the summaries; no axis may have them."""


class SweepFaultsError(ValueError):
    """Error of a sweep that cannot run; `faults` has pairs of the entry at fault and a sentence."""

    def __init__(self, faults: Sequence[tuple[str, str]], place: str = "sweep") -> None:
        self.faults = tuple(faults)
        lines = "\n".join(f"  {sentence}" for _, sentence in self.faults)
        super().__init__(f"{place}: {len(self.faults)} fault(s)\n{lines}")


def type_faults(sweep: Grid) -> list[tuple[str, str]]:
    """Return the entries of the wrong type, before any of them is used."""
    found = []

    def listed(value: Any) -> bool:
        return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)

    for entry, name in (("samplers", "samplers"), ("observables", "names")):
        value = getattr(sweep, name)
        if not isinstance(value, str) and not (
            listed(value) and all(isinstance(x, str) for x in value)
        ):
            found.append((entry, f"{entry}={value!r}: a list of names is needed"))
    if not listed(sweep.fractions):
        found.append(("fractions", f"fractions={sweep.fractions!r}: a list of numbers is needed"))
    found += [
        (name, f"{name}={getattr(sweep, name)!r}: a mapping from parameters to values is needed")
        for name in ("fixed", "axes")
        if not isinstance(getattr(sweep, name), Mapping)
    ]
    if isinstance(sweep.axes, Mapping):
        found += [
            (name, f"{name} must be a list of values; got {values!r}")
            for name, values in sweep.axes.items()
            if not listed(values)
        ]
    return found + _target_type_faults(sweep.target)


def _target_type_faults(target: Any) -> list[tuple[str, str]]:
    entries = [entry.name for entry in fields(Target)]
    if isinstance(target, Mapping):
        unknown = [
            (
                f"target.{name}",
                f"target.{name}: not an entry of a target; {did_you_mean(name, entries)}",
            )
            for name in target
            if name not in entries
        ]
        if unknown or {"observable", "half_width"} <= set(target):
            return unknown
    elif target is None or isinstance(target, Target):
        return []
    sentence = (
        f"target={target!r}: a table with observable, half_width and optionally level and first "
        "is needed"
    )
    return [("target", sentence)]


def faults_of(sweep: Grid, written: bool, known: Collection[str] = ()) -> list[tuple[str, str]]:
    """Return all faults, as pairs of the entry at fault and a sentence.

    If the sweep is `written` in a store, its cells are not looked at. Entries `known` to be at
    fault have been replaced by defaults or left out.
    """
    found = _setting_faults(sweep) + _grid_faults(sweep)
    if written:
        return found if found else _unit_faults(sweep)
    found += _axis_faults(sweep)
    bad = {*known, *(entry for entry, _ in found)}
    if not bad & {"samples", "block", "axes", "samplers", "layer"}:
        found += size_faults(sweep) + _idle_parameters(sweep)
    if bad & {"axes", "layer"}:
        return found
    # The rest is checked on cells without the entries at fault.
    left = _without(sweep, bad)
    found += cell_faults(left, partial=bool(found or known))
    return found if found or known else _name_faults(sweep)


def _setting_faults(sweep: Grid) -> list[tuple[str, str]]:
    """Return the faults of entries that are not parameters of cells."""
    found: list[tuple[str, str]] = []

    def attempt(entry: str, function: Any, *arguments: Any) -> None:
        try:
            function(*arguments)
        except REFUSALS as error:
            found.append((entry, f"{error}"))

    for name in ("samples", "block"):
        attempt(name, check_count, name, getattr(sweep, name))
    attempt("seed", check_count, "seed", sweep.seed, 0)
    if sweep.device != "cpu":  # any other name needs torch, whose import takes seconds
        attempt("device", named_device, sweep.device)
    attempt("dtype", precision_name, sweep.dtype)
    if sweep.seconds is not None:
        attempt("seconds", check_positive, "seconds", sweep.seconds)
    attempt("keep", check_choice, "keep", sweep.keep, KEEP)
    if sweep.target is not None:
        attempt("target.half_width", check_positive, "target.half_width", sweep.target.half_width)
        attempt("target.first", check_count, "target.first", sweep.target.first)
        level = sweep.target.level
        if not (isinstance(level, float) and 0.0 < level < 1.0):
            found.append(
                ("target.level", f"target.level={level!r}: a float between 0 and 1 is needed")
            )
    numbers = all(isinstance(x, int | float) for x in sweep.fractions)
    if not (
        numbers
        and sweep.fractions
        and list(sweep.fractions) == sorted(set(sweep.fractions))
        and 0.0 <= sweep.fractions[0] <= sweep.fractions[-1] <= 1.0
    ):
        found.append(
            (
                "fractions",
                f"fractions={list(sweep.fractions)}: increasing numbers in [0, 1] are needed",
            )
        )
    return found


def _without(sweep: Grid, bad: Collection[str]) -> Grid:
    """Return the sweep without parameters at fault, and with defaults for other invalid entries."""
    own = {entry.name: getattr(sweep, entry.name) for entry in fields(Grid)}
    for table in ("fixed", "axes"):
        own[table] = {name: value for name, value in own[table].items() if name not in bad}
    known = kind_of(sweep.layers[0]).samplers
    own["samplers"] = tuple(name for name in sweep.samplers if name in known) or known[-1:]
    neutral = {"block": 1, "seed": 0, "dtype": "float64", "fractions": (1.0,)}
    return Grid(**own | {name: value for name, value in neutral.items() if name in bad})


def _axis_faults(sweep: Grid) -> list[tuple[str, str]]:
    found = []
    known: set[str] = set()
    for layer in sweep.layers:
        try:
            kind = kind_of(layer)
            known |= {"layer", *kind.parameters(layer)}
            if getattr(kind, "any_name", False):
                known |= {*sweep.fixed, *sweep.axes}
        except ValueError as error:
            found.append(("layer", str(error)))
            continue
        once = 0 < len(sweep.samplers) == len(set(sweep.samplers))
        if not once or not set(sweep.samplers) <= set(kind.samplers):
            place = f"samplers={list(sweep.samplers)}: some of {', '.join(kind.samplers)}, once"
            found.append(("samplers", f"{place}, with layer={layer!r}"))
    found += [
        (name, f"{name}: not a parameter; {did_you_mean(name, sorted(known))}")
        for name in (*sweep.fixed, *sweep.axes)
        if known and name not in known
    ]
    for name, values in sweep.axes.items():
        if name in sweep.fixed:
            found.append((name, f"{name}: both fixed and an axis"))
        if name in _RESERVED:
            found.append((name, f"{name}: the store reserves this name; a different one is needed"))
        texts = [canonical(value) for value in values]
        if not values or len(set(texts)) < len(texts):
            found.append((name, f"{name} must be a list of distinct values; got {values!r}"))
    return found


def _grid_faults(sweep: Grid) -> list[tuple[str, str]]:
    cells = math.prod(sweep.shape)
    return [("axes", f"axes: {cells} cells; at most {MOST_CELLS}")] if cells > MOST_CELLS else []


def size_faults(sweep: Grid) -> list[tuple[str, str]]:
    """Return what is wrong with the number of work units, as pairs of entry and sentence."""
    found = []
    if sweep.block > sweep.samples:
        found.append(
            ("block", f"block={sweep.block!r}: at most samples={sweep.samples!r} is needed")
        )
    return found + _unit_faults(sweep)


def _unit_faults(sweep: Grid) -> list[tuple[str, str]]:
    cells = math.prod(sweep.shape)
    units = cells * len(sweep.samplers) * sweep.blocks
    sentence = (
        f"block={sweep.block!r}: {units} units ({cells} cells, {len(sweep.samplers)} samplers, "
        f"{sweep.blocks} blocks); at most {MOST_UNITS}, so a larger block, fewer samples or fewer "
        "cells are needed"
    )
    return [("block", sentence)] if units > MOST_UNITS else []


def _idle_parameters(sweep: Grid) -> list[tuple[str, str]]:
    """Return the parameters without effect on the layers and the initial covariance."""
    given = {*sweep.fixed, *sweep.axes}
    layers = sweep.layers
    if {"rho", "covariance"} <= given:
        return [("rho", "rho: no effect with a covariance")]
    if not all(layer in NAMED for layer in layers):
        return []
    from shaped_attention.blocks.catalogue import UNUSED, UNUSED_BY_LIMIT

    idle = set.intersection(*(set(UNUSED[layer]) for layer in layers))
    if "mlp_gamma" not in given:
        idle.discard("gamma")  # then it is the MLP's
    if set(sweep.samplers) == {"sde"}:
        idle |= set(UNUSED_BY_LIMIT)
    place = f"layer={layers[0]!r}" if len(layers) == 1 else f"layer={layers!r}"
    return [
        (name, f"{name}: no effect with {place} and samplers={list(sweep.samplers)}")
        for name in (*sweep.fixed, *sweep.axes)
        if name in idle
    ]


def _name_faults(sweep: Grid) -> list[tuple[str, str]]:
    common = common_observables(sweep.tokens)
    found = [
        ("observables", f"observables: {name!r} is not one that all cells have: {common}")
        for name in sweep.names
        if name not in common
    ]
    if sweep.keep == "V" and len(sweep.tokens) > 1:
        found.append(("keep", "keep='V': cells with different numbers of tokens have no common V"))
    target = sweep.target
    if target is not None and target.observable not in (*(sweep.names or common), STOPPED):
        found.append(
            ("target", f"target.observable={target.observable!r}: it is not among those kept")
        )
    return found
