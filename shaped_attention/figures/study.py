"""The main study: networks, chain and SDE from one V_0, compared, drawn and saved."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from shaped_attention.blocks.base import Layer
from shaped_attention.checks import check_count
from shaped_attention.figures import plots
from shaped_attention.io.storage import written
from shaped_attention.numerics.covariance import correlations
from shaped_attention.results.files import save
from shaped_attention.results.provenance import plain
from shaped_attention.samplers.chain import simulate_chain
from shaped_attention.samplers.network import simulate_network
from shaped_attention.samplers.sde import count_steps, integrate_sde
from shaped_attention.samplers.specification import MEMORY_BUDGET, Options, specify
from shaped_attention.statistics.compare import FEWEST_SAMPLES, compare

PAIRS = {
    "chain against SDE": ("exact chain", "SDE"),
    "network against SDE": ("network", "SDE"),
    "network against chain": ("network", "exact chain"),
}
"""The comparisons of a study. Network and chain have the same law: the last one is a check."""

_SAVED_TIMES = 30


@dataclass(frozen=True)
class Study:
    """Results of `run_study` by sampler, and comparison tables by name in `PAIRS`."""

    results: dict[str, xr.Dataset]
    tables: dict[str, xr.Dataset]


def run_study(
    layer: Layer,
    v0: NDArray[np.float64],
    *,
    width: int = 200,
    depth: int = 150,
    step: float = 0.01,
    samples: int = 4096,
    network_samples: int = 512,
    seed: int = 0,
    progress: bool | None = None,
    **options: Any,
) -> Study:
    """Simulate networks and chain at one width, integrate the SDE to depth / width, and compare.

    Parameters
    ----------
    layer, v0, width, depth, step, seed, progress
        As in the samplers; `step` must divide depth / width.
    samples
        Number of samples of the chain and of the SDE.
    network_samples
        Number of networks with real weight matrices, which cost about 1,000 times more.
    options
        `radius`, `device`, `dtype`, `chunk`, `memory` for all three samplers.

    Returns
    -------
    Study, with about 30 stored times in each result.

    Raises
    ------
    ValueError
        If an argument is outside its range, before anything is simulated.
    """
    check_study(layer, v0, width, depth, step, samples, network_samples, seed=seed, **options)
    horizon = depth / width
    times = common_times(width, depth, step)
    shared: dict[str, Any] = {"seed": seed, "times": times, "progress": progress} | options
    limit = integrate_sde(layer, v0, horizon=horizon, step=step, samples=samples, **shared)
    finite: dict[str, Any] = {"width": width, "depth": depth} | shared
    chain = simulate_chain(layer, v0, samples=samples, **finite)
    network = simulate_network(layer, v0, samples=network_samples, **finite)
    results = {"network": network, "exact chain": chain, "SDE": limit}
    tables = {
        name: compare(results[first], results[second], seed=seed)
        for name, (first, second) in PAIRS.items()
    }
    return Study(results, tables)


def check_study(
    layer: Layer,
    v0: NDArray[np.float64],
    width: int,
    depth: int,
    step: float,
    samples: int,
    network_samples: int,
    *,
    seed: int = 0,
    radius: float | None = None,
    device: str = "cpu",
    dtype: str = "float64",
    chunk: int | None = None,
    memory: int = MEMORY_BUDGET,
) -> None:
    """Raise the ValueError that `run_study` would, without simulating anything."""
    for name, count in (("samples", samples), ("network_samples", network_samples)):
        check_count(name, count, FEWEST_SAMPLES)
    check_count("width", width)
    check_count("depth", depth)
    steps = count_steps(depth / width, step)
    options = Options(radius=radius, device=device, dtype=dtype, chunk=chunk, memory=memory)
    for columns, count, dt in ((width, depth, 1.0 / width), (None, steps, step)):
        specify(
            layer, v0, width=columns, steps=count, dt=dt, samples=samples, seed=seed,
            options=options,
        )  # fmt: skip


def common_times(width: int, depth: int, step: float) -> list[float]:
    """Return about 30 times from 0 to depth / width on the grids of both 1 / width and `step`.

    If the grids have too few common points, return only the two ends.
    """
    layer_time = Fraction(1, width)
    step_time = Fraction(step).limit_denominator(10**9)
    common = Fraction(
        math.lcm(layer_time.numerator, step_time.numerator),
        math.gcd(layer_time.denominator, step_time.denominator),
    )
    meetings = Fraction(depth, width) / common
    if meetings.denominator != 1 or meetings < 2:
        return [0.0, depth / width]
    count = int(meetings)
    every = -(-count // _SAVED_TIMES)
    return [float(common * i) for i in sorted({*range(0, count + 1, every), count})]


def most_correlated_pair(v0: NDArray[np.float64]) -> tuple[int, int]:
    """Return the tokens a < b with the largest absolute correlation below 1, for the figures."""
    if len(v0) == 1:
        return 0, 0
    rho = np.abs(correlations(v0))
    rho = np.where(rho < 1.0 - 1e-9, np.triu(rho, 1), 0.0)
    if not rho.any():
        return 0, 1
    a, b = np.unravel_index(int(np.argmax(rho)), rho.shape)
    return int(a), int(b)


def draw_study(
    study: Study, folder: str | Path, labels: list[str] | None, title: str
) -> list[Path]:
    """Write the figures compare-trajectories and compare-densities (PNG and SVG) into a folder."""
    pair = most_correlated_pair(study.results["SDE"]["V"].values[0, 0])
    written = []
    for name, function in (
        ("compare-trajectories", plots.trajectories),
        ("compare-densities", plots.densities),
    ):
        figure = function(study.results, pair=pair, labels=labels, title=title)
        written += plots.save_figure(figure, Path(folder) / name)
    return written


def write_study(study: Study, folder: str | Path) -> list[Path]:
    """Write the three results (netCDF) and the tables (JSON) into a folder.

    Raises
    ------
    ValueError
        If the folder cannot be written.
    """
    place = Path(folder)
    names = {"network": "network.nc", "exact chain": "chain.nc", "SDE": "sde.nc"}
    written_results = [save(study.results[key], place / name) for key, name in names.items()]
    tables = {name: table.to_dict() for name, table in study.tables.items()}
    target = place / "comparison.json"
    with written(target) as draft:
        draft.write_text(json.dumps(tables, indent=1, default=plain), encoding="utf-8")
    return [*written_results, target]
