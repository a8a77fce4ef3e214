"""The cost of a sweep, estimated before it runs."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from shaped_attention.sweep.histograms import BINS
from shaped_attention.sweep.specification import Sweep
from shaped_attention.sweep.toml import as_sweep
from shaped_attention.sweep.work_units import STOPPING_BINS, Unit, run_unit

_PROBES = 3
_PROBE_SAMPLES = 256
_PROBE_SECONDS = 0.3


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
    """

    cells: int
    units: int
    store_bytes: int
    unit_bytes: int
    seconds: float
    by_sampler: dict[str, float]


def plan_sweep(sweep: Sweep | str | Path) -> Plan:
    """Count cells and units, estimate memory, and time up to three cells per sampler.

    The probes draw a few hundred samples (networks: for up to a third of a second). Their times are
    scaled by the number of steps. `sweep` may be the path of a TOML file.

    Raises
    ------
    ValueError
        If `sweep` is neither a Sweep nor a path, or a sampler fails.
    """
    sweep = as_sweep(sweep)
    cells = math.prod(sweep.shape)
    units = cells * len(sweep.samplers) * sweep.blocks
    times, names, m = len(sweep.fractions), len(sweep.observed), max(sweep.tokens)
    per_block = 8 * (times * names * 2 + STOPPING_BINS + 1)
    kept = {
        "observables": 8 * (times * (names - 1) + 1) * sweep.samples,
        "V": 8 * (times * m * m + 1) * sweep.samples,
        "reductions": 4 * times * (names - 1) * BINS * sweep.blocks,
    }[sweep.keep]
    store = cells * len(sweep.samplers) * (kept + per_block * sweep.blocks)
    unit = 8 * sweep.block * m * m * (14 + times)
    indices = list(np.ndindex(sweep.shape))
    chosen = sorted({round(x) for x in np.linspace(0, len(indices) - 1, _PROBES)})
    by_sampler = {}
    for number, sampler in enumerate(sweep.samplers):
        rates = [_probed(sweep, cell, number) for cell in chosen]
        steps = [sweep.cell(index).steps(sampler) for index in indices]
        by_sampler[sampler] = float(np.mean(rates)) * sum(steps) * sweep.samples
    return Plan(cells, units, store, unit, sum(by_sampler.values()), by_sampler)


def _probed(sweep: Sweep, cell: int, sampler: int) -> float:
    try:
        return _seconds_per_step(sweep, cell, sampler)
    except Exception as error:  # a user's layer may raise anything
        values = sweep.values(sweep.index(cell))
        point = ", ".join(f"{name}={values[name]!r}" for name in sweep.axes) or "the only cell"
        raise ValueError(
            f"{sweep.samplers[sampler]}: it fails at {point} ({type(error).__name__}: {error})"
        ) from error


def _seconds_per_step(sweep: Sweep, cell: int, sampler: int) -> float:
    """Return the seconds per step and sample of a small unit, after a first one that compiles."""
    name = sweep.samplers[sampler]
    steps = sweep.cell(sweep.index(cell)).steps(name)
    unit = Unit(0, cell, sampler)
    samples = 1 if name == "network" else min(_PROBE_SAMPLES, sweep.samples)
    while True:
        probe = min(samples, sweep.samples, sweep.block)
        small = replace(sweep, samples=probe, block=probe, target=None)
        if samples == 1 or name != "network":
            run_unit(small, unit)  # compiles
        began = time.perf_counter()
        run_unit(small, unit)
        seconds = time.perf_counter() - began
        # With few samples, the cost of the call hides that of the samples.
        if seconds > _PROBE_SECONDS or probe < samples or name != "network":
            return seconds / (steps * probe)
        samples *= 4
