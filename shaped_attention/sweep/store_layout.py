"""The arrays of a sweep's store: dimensions, sizes and chunks, and the coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from shaped_attention.sweep.histograms import BINS
from shaped_attention.sweep.specification import Sweep
from shaped_attention.sweep.work_units import STOPPING_BINS


@dataclass(frozen=True)
class Layout:
    """Dimensions and sizes after sampler and axes, those of a unit's chunk, its type."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    dtype: str
    fill: float | None


def layouts(sweep: Sweep) -> dict[str, Layout]:
    """The arrays of a store by name; `work_units.run_unit` says what they hold."""
    times, names = len(sweep.fractions), len(sweep.observed)
    blocks, block = sweep.blocks, sweep.block
    own = {
        "moments": Layout(
            ("block", "time", "observable", "power"),
            (blocks, times, names, 2), (1, times, names, 2), "<f8", float("nan"),
        ),
        "stopping": Layout(
            ("block", "stopping_bin"),
            (blocks, STOPPING_BINS + 1), (1, STOPPING_BINS + 1), "<i8", None,
        ),
    }  # fmt: skip
    if sweep.keep == "reductions":
        own["histogram"] = Layout(
            ("block", "time", "kept", "bin"),
            (blocks, times, names - 1, BINS), (1, times, names - 1, BINS), "<u4", None,
        )  # fmt: skip
        return own
    nan = float("nan")
    own["stopping_time"] = Layout(("sample",), (sweep.samples,), (block,), "<f8", nan)
    if sweep.keep == "observables":
        own["values"] = Layout(
            ("time", "sample", "kept"),
            (times, sweep.samples, names - 1), (times, block, names - 1), "<f8", nan,
        )  # fmt: skip
    else:
        m = next(iter(sweep.tokens))
        own["V"] = Layout(
            ("time", "sample", "row", "col"),
            (times, sweep.samples, m, m), (times, block, m, m), "<f8", nan,
        )  # fmt: skip
    return own


def coordinates(sweep: Sweep) -> xr.Dataset:
    """Coordinates and attributes of the store, so that xarray alone can read it."""
    horizons = {sweep.cell(index).horizon for index in np.ndindex(sweep.shape)}
    scale = horizons.pop() if len(horizons) == 1 else 1.0
    names = list(sweep.observed)
    return xr.Dataset(
        coords={
            "sampler": list(sweep.samplers),
            "time": [scale * fraction for fraction in sweep.fractions],
            "observable": names,
            "kept": names[:-1],
            **{name: _labels(values) for name, values in sweep.axes.items()},
        },
        attrs={"sweep": sweep.to_json(), "block_samples": sweep.block},
    )


def _labels(values: Sequence[Any]) -> list[Any]:
    """Values of an axis as coordinates: text where they are not all numbers."""
    numbers = all(isinstance(value, int | float) for value in values)
    return list(values) if numbers else [str(value) for value in values]
