"""Work units, pure functions of the sweep and of integers."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from shaped_attention.libraries import sources_digest, versions
from shaped_attention.numerics.observables import observables
from shaped_attention.numerics.result_axis import axis_of, stopping_times
from shaped_attention.sweep.data import Drawn, encode, record_of
from shaped_attention.sweep.specification import Sweep, Unit

if TYPE_CHECKING:
    from shaped_attention.sweep.cells import Cell

_FEW = 64
"""Samples from which `estimate` estimates."""

_CACHED_CELLS = 4096
"""Number of cells that are kept for their later blocks."""

own_device: str | None = None
"""Device of this process, if it is a worker that has one."""

Task = Callable[[], Drawn]


def tasks_of(sweep: Sweep) -> Callable[[Unit], Task]:
    """Return a function that gives the task of a unit: all that it depends on, for any process."""
    cell, code = lru_cache(_CACHED_CELLS)(sweep.cell), code_here()
    common = sweep.model_copy(update={"fixed": {}, "axes": {}})
    return lambda unit: partial(
        draw, common, code, cell(unit.cell), unit.sampler, unit.samples, sweep.unit_seed(unit)
    )


def code_here() -> dict[str, str]:
    """Return the digest of the package and the versions of libraries in this process."""
    code = {name: version for name, version in versions().items() if name != "python"}
    return code | {"sources of shaped_attention": sources_digest()}


def changes(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """Return what has changed, as phrases. What only one of the two has came with an extension."""
    return [
        f"{name} {before[name]} before, {now[name]} now"
        for name in sorted(before.keys() & now.keys())
        if before[name] != now[name]
    ]


def draw(
    sweep: Sweep, code: dict[str, str], cell: Cell, sampler: str, samples: int, seed: int
) -> Drawn:
    """Simulate a unit. An error comes back as text, since not every error can be sent."""
    began = time.perf_counter()
    try:
        if changed := changes(code, code_here()):
            raise RuntimeError(f"the worker has other code: {'; '.join(changed)}")
        result = cell.sample(
            sampler, sweep.fractions, samples=samples, seed=seed,
            device=own_device or sweep.device, dtype=sweep.dtype, chunk=None,
        )  # fmt: skip
        v = result["V"].transpose("sample", axis_of(result), "row", "col").to_numpy()
        # All samples and times at once.
        precision = float(np.finfo(sweep.dtype).eps)
        computed = observables(v.reshape(-1, *v.shape[-2:]), precision=precision)
        records = np.empty(samples, record_of(sweep))
        for k, name in enumerate(sweep.observables):
            records["values"][:, :, k] = computed[name].reshape(v.shape[:2])
        records["stopping_time"] = stopping_times(result)
        if sweep.keep == "V":
            records["V"] = v
        return Drawn(encode(records), time.perf_counter() - began)
    except Exception as error:
        return Drawn(b"", 0.0, f"{type(error).__name__}: {error}")


def estimate(sweep: Sweep) -> dict[str, float]:
    """Return the seconds that each sampler takes on one worker.

    The first, the middle and the last cell are timed, with 64 samples or a unit if that is smaller.
    """
    cells, task, seconds = list(sweep.cells()), tasks_of(sweep), {}
    few = min(_FEW, sweep.block, sweep.samples)
    for sampler in sweep.samplers:
        times = []
        for cell in {cells[0], cells[len(cells) // 2], cells[-1]}:
            # The first samples load or compile what the others use.
            for samples in (1, few):
                drawn = task(Unit(sampler, cell, 0, samples))()
            if drawn.error:
                raise ValueError(f"{sampler}: {drawn.error}")
            times.append(drawn.seconds / few)
        seconds[sampler] = sum(times) / len(times) * sweep.samples * len(cells)
    return seconds
