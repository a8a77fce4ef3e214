"""Faults of a sweep, all found before anything runs.

First come entries of the wrong type. Then, in one round, all other faults: of settings, of names,
and of cells, each of which is checked without the values already at fault.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.checks import (
    argument_error,
    check_choice,
    check_count,
    check_inside,
    check_positive,
    did_you_mean,
)
from shaped_attention.numerics.seeds import canonical
from shaped_attention.samplers.arguments import named_device, precision_name
from shaped_attention.sweep.cells import NAMED, kind_of, make_cell
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

_REFUSALS = (ValueError, TypeError, OverflowError, MemoryError)
"""Exceptions that functions raise for values they do not accept."""

_VALID: dict[str, Any] = {"block": 1, "seed": 0, "dtype": "float64", "fractions": (1.0,)}
"""What cells are checked with in place of settings at fault."""


class SweepFaultsError(ValueError):
    """Error of a sweep that cannot run; `faults` has pairs of the entry at fault and a sentence."""

    def __init__(self, sentences: Iterable[str], place: str = "sweep") -> None:
        self.faults = tuple((entry_of(sentence), sentence) for sentence in sentences)
        self.sentence = "; ".join(sentence for _, sentence in self.faults)
        lines = "\n".join(f"  {sentence}" for _, sentence in self.faults)
        count = len(self.faults)
        header = f"{place}: {count} fault{'s' if count != 1 else ''}"
        unread = count == 1 and self.sentence.startswith(f"{place}: ")
        super().__init__(self.sentence if unread else f"{header}\n{lines}")


def entry_of(sentence: str) -> str:
    """Return the entry that the sentence of a fault begins with."""
    return re.match(r"[\w.]*", sentence)[0]  # type: ignore[index]  # it matches an empty text


def refusal(function: Callable[..., object], *arguments: Any) -> list[str]:
    """Return the sentence with which a function refuses its arguments, if it does."""
    try:
        function(*arguments)
    except _REFUSALS as error:
        return [str(error)]
    return []


def type_faults(sweep: Grid) -> list[str]:
    """Return the faults of entries of the wrong type, before any of them is used."""

    def listed(value: Any, kind: type = object) -> bool:
        is_list = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)
        return is_list and all(isinstance(entry, kind) for entry in value)

    axes = sweep.axes if isinstance(sweep.axes, Mapping) else {}
    names = {"samplers": sweep.samplers, "observables": sweep.names}
    faults = [
        *((name, "a list of names", value) for name, value in names.items()
          if not isinstance(value, str) and not listed(value, str)),
        *((name, "a mapping from parameters to values", getattr(sweep, name))
          for name in ("fixed", "axes") if not isinstance(getattr(sweep, name), Mapping)),
        *((name, "a list of values", value) for name, value in axes.items() if not listed(value)),
    ]  # fmt: skip
    if not listed(sweep.fractions):
        faults.append(("fractions", "a list of numbers", sweep.fractions))
    target: Any = sweep.target
    table = target if isinstance(target, Mapping) else {}
    entries = [entry.name for entry in fields(Target)]
    unknown = [name for name in table if name not in entries]
    whole = isinstance(target, Target | None) or {"observable", "half_width"} <= set(table)
    if not (unknown or whole):
        needed = "a table with observable, half_width and, optionally, level and first"
        faults.append(("target", needed, target))
    return [str(argument_error(*fault)) for fault in faults] + [
        f"target.{name} is not an entry of a target; {did_you_mean(name, entries)}"
        for name in unknown
    ]


def faults_of(sweep: Grid, written: bool) -> list[str]:
    """Return all faults of a sweep whose entries have the right types.

    If the sweep is `written` in a store, its cells are not looked at.
    """
    faults = _setting_faults(sweep)
    if written:
        return faults or _unit_faults(sweep)
    faults += _name_faults(sweep)
    bad = {entry_of(sentence) for sentence in faults}
    if not bad & {"samples", "block", "axes", "samplers", "layer"}:
        faults += size_faults(sweep) + _idle_parameters(sweep)
    if bad & {"axes", "layer"}:
        return faults
    faults += _cell_faults(sweep, {entry_of(sentence) for sentence in faults})
    return faults or _observable_faults(sweep)


def _setting_faults(sweep: Grid) -> list[str]:
    """Return the faults of entries that are not parameters of cells."""
    checks: list[tuple[Any, ...]] = [
        (check_count, "samples", sweep.samples),
        (check_count, "block", sweep.block),
        (check_count, "seed", sweep.seed, 0),
        (precision_name, sweep.dtype),
        (check_choice, "keep", sweep.keep, KEEP),
        (_check_fractions, sweep.fractions),
    ]
    if sweep.device != "cpu":  # any other name needs torch, whose import takes seconds
        checks.append((named_device, sweep.device))
    if sweep.seconds is not None:
        checks.append((check_positive, "seconds", sweep.seconds))
    if sweep.target is not None:
        checks += [
            (check_positive, "target.half_width", sweep.target.half_width),
            (check_count, "target.first", sweep.target.first),
            (check_inside, "target.level", sweep.target.level),
        ]
    faults = [sentence for check, *arguments in checks for sentence in refusal(check, *arguments)]
    if (cells := math.prod(sweep.shape)) > MOST_CELLS:
        faults.append(f"axes have {cells} cells; at most {MOST_CELLS} are possible")
    return faults


def _check_fractions(fractions: Sequence[float]) -> None:
    numbers = all(isinstance(x, int | float) for x in fractions)
    increasing = numbers and fractions and list(fractions) == sorted(set(fractions))
    if not (increasing and 0.0 <= fractions[0] <= fractions[-1] <= 1.0):
        raise argument_error("fractions", "increasing numbers in [0, 1]", list(fractions))


def _name_faults(sweep: Grid) -> list[str]:
    """Return the faults of layers, samplers and names of parameters, and of the lists of axes."""
    faults = []
    known: set[str] = set()
    for layer in sweep.layers:
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
            needed = f"some of {', '.join(kind.samplers)}, once each, with layer={layer!r}"
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
            faults.append(f"{name} is a name that the store reserves; choose another one")
        if not values or len(set(map(canonical, values))) < len(values):
            faults.append(f"{name} must be a list of distinct values; got {values!r}")
    return faults


def size_faults(sweep: Grid) -> list[str]:
    """Return what is wrong with the number of work units."""
    large = argument_error("block", f"at most samples={sweep.samples}", sweep.block)
    return [str(large)] * (sweep.block > sweep.samples) + _unit_faults(sweep)


def _unit_faults(sweep: Grid) -> list[str]:
    cells = math.prod(sweep.shape)
    units = cells * len(sweep.samplers) * sweep.blocks
    sentence = (
        f"block={sweep.block!r} makes {units} units ({cells} cells, {len(sweep.samplers)} "
        f"samplers, {sweep.blocks} blocks); at most {MOST_UNITS} are possible; use a larger "
        "block, fewer samples or fewer cells"
    )
    return [sentence] if units > MOST_UNITS else []


def _idle_parameters(sweep: Grid) -> list[str]:
    """Return the parameters without effect on the layers and the initial covariance."""
    names = (*sweep.fixed, *sweep.axes)
    if {"rho", "covariance"} <= set(names):
        return ["rho has no effect with a covariance"]
    if not all(layer in NAMED for layer in sweep.layers):
        return []
    from shaped_attention.blocks.catalogue import UNUSED, UNUSED_BY_LIMIT

    idle = set.intersection(*(set(UNUSED[layer]) for layer in sweep.layers))
    if "mlp_gamma" not in names:
        idle.discard("gamma")  # then it is the MLP's
    if set(sweep.samplers) == {"sde"}:
        idle |= set(UNUSED_BY_LIMIT)
    layers = " or ".join(map(repr, sweep.layers))
    place = f"layer={layers} and samplers={list(sweep.samplers)}"
    return [f"{name} has no effect with {place}" for name in names if name in idle]


def _cell_faults(sweep: Grid, bad: Collection[str]) -> list[str]:
    """Return each distinct fault of the cells, with the first cell that has it.

    Entries that are `bad` are left out, so a missing value is then not a fault. If there is no
    fault at all, axes along which all cells are the same are one.
    """
    known = kind_of(sweep.layers[0]).samplers
    samplers = tuple(name for name in sweep.samplers if name in known) or known[-1:]
    settings = {name: _VALID[name] if name in bad else getattr(sweep, name) for name in _VALID}
    fractions = settings.pop("fractions")
    faults: dict[str, str] = {}
    cells = np.empty(sweep.shape, dtype=object)
    for index in np.ndindex(sweep.shape):
        values = sweep.values(index)
        left = {name: value for name, value in values.items() if name not in bad}
        complete = not bad
        while True:
            if not complete and left.get("layer", NAMED[0]) in NAMED:
                left.setdefault("gamma", 0.5)  # a valid one in place of one that is left out
            try:
                cell = make_cell(left, samplers)
                for sampler in samplers:
                    cell.times(sampler, fractions)
                    cell.check(sampler, *settings.values())
                cells[index] = "".join(map(cell.identity, samplers))
                break
            except Exception as error:  # a user's layer may raise anything
                sentence = str(error)
                if not isinstance(error, _REFUSALS):
                    layer = left.get("layer")
                    sentence = f"layer={layer!r} raised {type(error).__name__}: {error}"
            entry = entry_of(sentence)
            # Once a value is left out, a fault may follow from that alone.
            if complete or entry in left:
                point = ", ".join(f"{name}={values[name]!r}" for name in sweep.axes)
                faults.setdefault(sentence, f" (first at {point})" if point else "")
            if entry not in left or entry == "layer":
                break
            del left[entry]
            complete = False
    if faults or bad:
        return [sentence + place for sentence, place in faults.items()]
    return _idle_axes(sweep, cells)


def _idle_axes(sweep: Grid, cells: NDArray[np.object_]) -> list[str]:
    return [
        f"{name}={values!r} has no effect on samplers={list(sweep.samplers)}; leave this axis out"
        for place, (name, values) in enumerate(sweep.axes.items())
        if len(values) > 1 and bool((cells == cells.take([0], axis=place)).all())
    ]


def _observable_faults(sweep: Grid) -> list[str]:
    common = common_observables(sweep.tokens)
    faults = [
        f"observables: {name!r} is not among those that all cells have: {common}"
        for name in sweep.names
        if name not in common
    ]
    if sweep.keep == "V" and len(sweep.tokens) > 1:
        faults.append("keep='V': cells with different numbers of tokens have no common V")
    kept = (*(sweep.names or common), STOPPED)
    if sweep.target is not None:
        faults += refusal(check_choice, "target.observable", sweep.target.observable, kept)
    return faults
