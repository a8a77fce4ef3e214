"""The arrays of a sweep's store: dimensions, sizes and chunks."""

from __future__ import annotations

from dataclasses import dataclass

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
    """The arrays of a store by name; `units.run_unit` says what they hold."""
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
