"""The cost of a sweep, estimated before it runs."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from timeit import repeat

import numpy as np

from shaped_attention.checks import with_types
from shaped_attention.sweep.grid import Unit
from shaped_attention.sweep.specification import Sweep
from shaped_attention.sweep.store_layout import layouts
from shaped_attention.sweep.toml import as_sweep
from shaped_attention.sweep.work_units import memory_of, run_unit

_PROBES = 4
_PROBE_SECONDS = 0.2
_REPEATS = 2
"""Runs of a part of a unit; the shortest counts, since other programs may disturb one."""


@dataclass(frozen=True)
class Plan:
    """Size and estimated cost of a sweep.

    Attributes
    ----------
    cells, units
        Number of cells, and of work units if all samples are drawn.
    store_bytes, unit_bytes
        Size of the store before compression, and of the arrays of a unit in memory.
    seconds
        Expected time on one worker in this process, estimated by probing some cells.
    by_sampler
        Expected seconds per sampler.
    memory
        Bytes that a unit may take while it runs: on a CUDA device, half of what is free there.
    together
        Number of samples of a unit that then move together, per sampler, in the cell with most
        tokens.
    start_seconds
        Time that the first call in each of these cells took more than the next ones: a process
        compiles its kernels then, or loads them.
    """

    cells: int
    units: int
    store_bytes: int
    unit_bytes: int
    seconds: float
    by_sampler: dict[str, float]
    memory: int
    together: dict[str, int]
    start_seconds: float


@with_types
def plan_sweep(sweep: Sweep | str | Path) -> Plan:
    """Count cells and units, estimate memory, and time up to four cells per sampler.

    The probes run ever larger parts of a unit, until one takes a fifth of a second. The times of
    other cells are interpolated according to their cost. `sweep` may be the path of a TOML file.

    Raises
    ------
    ValueError
        If `sweep` is neither a Sweep nor a path, or a sampler fails.
    """
    sweep = as_sweep(sweep)
    cells = math.prod(sweep.shape)
    units = cells * len(sweep.samplers) * sweep.blocks
    per_cell = sum(
        np.dtype(layout.dtype).itemsize * math.prod(layout.shape)
        for layout in layouts(sweep).values()
    )
    store = cells * len(sweep.samplers) * per_cell
    unit = 8 * sweep.block * max(sweep.tokens) ** 2 * (14 + len(sweep.fractions))
    starts: list[float] = []
    by_sampler = {
        name: _seconds_of(sweep, number, starts) for number, name in enumerate(sweep.samplers)
    }
    memory = memory_of(sweep.device)
    together = {name: _together(sweep, name, memory) for name in sweep.samplers}
    seconds = sum(by_sampler.values())
    return Plan(cells, units, store, unit, seconds, by_sampler, memory, together, sum(starts))


def _together(sweep: Sweep, sampler: str, memory: int) -> int:
    """Return how many samples of a unit move together in the cell with most tokens."""
    cells = [sweep.cell(index) for index in np.ndindex(sweep.shape)]
    samples = min(sweep.samples, sweep.block)
    chunk = max(cells, key=lambda cell: cell.tokens).together(
        sampler, sweep.fractions, samples=samples, seed=0, device=sweep.device, dtype=sweep.dtype,
        chunk=None, memory=memory,
    )  # fmt: skip
    return min(samples, chunk)


def _seconds_of(sweep: Sweep, sampler: int, starts: list[float]) -> float:
    """Return the seconds that all units of a sampler take: those of some cells, interpolated.

    The cost of a cell is known up to effects such as the overhead of a call and caches, which
    change the seconds per cost from the cheapest to the most expensive cell. `starts` receives
    the seconds by which first calls took longer.
    """
    costs = np.log(sweep.costs[:, sampler])
    order = np.argsort(costs, kind="stable")
    chosen = order[np.unique(np.linspace(0, len(order) - 1, _PROBES).round().astype(int))]
    seconds = np.array([_probed(sweep, int(cell), sampler, starts) for cell in chosen])
    rates = np.interp(costs, costs[chosen], np.log(seconds) - costs[chosen])
    if costs[chosen[0]] == costs[chosen[-1]]:
        rates[:] = np.log(seconds.mean()) - costs[chosen[0]]
    return float(np.exp(rates + costs).sum()) * sweep.samples / sweep.block


def _probed(sweep: Sweep, cell: int, sampler: int, starts: list[float]) -> float:
    """Return the seconds of a unit, from ever larger parts of it after a first one that compiles.

    With few samples, the cost of the call hides that of the samples.
    """
    unit, whole, samples = Unit(0, cell, sampler), min(sweep.samples, sweep.block), 1
    try:
        began = time.perf_counter()
        run_unit(sweep.unchecked(samples=1, block=1, target=None), unit)
        first: float | None = time.perf_counter() - began
        while True:
            part = sweep.unchecked(samples=samples, block=samples, target=None)
            draw = partial(run_unit, part, unit)
            seconds = min(repeat(draw, timer=time.perf_counter, number=1, repeat=_REPEATS))
            if first is not None:
                starts.append(max(0.0, first - seconds))
                first = None
            if seconds > _PROBE_SECONDS or samples == whole:
                return seconds * whole / samples
            samples = min(8 * samples, whole)
    except Exception as error:  # a user's layer may raise anything
        values = sweep.values(sweep.index(cell))
        point = ", ".join(f"{name}={values[name]!r}" for name in sweep.axes) or "the only cell"
        raise ValueError(
            f"{sweep.samplers[sampler]} fails at {point} ({type(error).__name__}: {error})"
        ) from error
