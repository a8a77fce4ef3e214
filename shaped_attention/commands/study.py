"""The main study: networks, chain and SDE from one V_0, compared, drawn and saved."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from shaped_attention.blocks.base import Layer
from shaped_attention.checks import check_count
from shaped_attention.commands.options import save_png
from shaped_attention.io.storage import written
from shaped_attention.numerics.covariance import correlations
from shaped_attention.results.files import save
from shaped_attention.results.provenance import plain
from shaped_attention.samplers.chain import simulate_chain
from shaped_attention.samplers.network import simulate_network
from shaped_attention.samplers.sde import count_steps, integrate_sde
from shaped_attention.samplers.specification import Options, specify
from shaped_attention.statistics.compare import FEWEST_SAMPLES, compare

PAIRS = {
    "chain against SDE": ("exact chain", "SDE"),
    "network against SDE": ("network", "SDE"),
    "network against chain": ("network", "exact chain"),
}
"""The comparisons of a study. Network and chain have the same law: the last one is a check."""

_RESULTS = {"network": "network.nc", "exact chain": "chain.nc", "SDE": "sde.nc"}
_TABLES = "comparison.json"
_FIGURES = {kind: f"compare-{kind}" for kind in ("trajectories", "densities")}
_SAVED_TIMES = 30


def files(results: Path, figures: Path) -> dict[str, list[Path]]:
    """Return the files that `write_study` and `draw_study` write, by the option of their folder."""
    return {
        "--results": [results / name for name in (_TABLES, *_RESULTS.values())],
        "--figures": [figures / f"{name}.png" for name in _FIGURES.values()],
    }


def run_study(
    layer: Layer,
    v0: NDArray[np.float64],
    *,
    width: int,
    depth: int,
    step: float,
    samples: int,
    network_samples: int,
    **options: Any,
) -> tuple[dict[str, xr.Dataset], dict[str, xr.Dataset]]:
    """Simulate networks and chain at one width, integrate the SDE to depth / width, and compare."""
    shared: dict[str, Any] = {"times": common_times(width, depth, step)} | options
    limit = integrate_sde(layer, v0, horizon=depth / width, step=step, samples=samples, **shared)
    finite: dict[str, Any] = {"width": width, "depth": depth} | shared
    chain = simulate_chain(layer, v0, samples=samples, **finite)
    network = simulate_network(layer, v0, samples=network_samples, **finite)
    results = {"network": network, "exact chain": chain, "SDE": limit}
    seed = options["seed"]
    tables = {x: compare(results[a], results[b], seed=seed) for x, (a, b) in PAIRS.items()}
    return results, tables


def check_study(
    layer: Layer,
    v0: NDArray[np.float64],
    *,
    width: int,
    depth: int,
    step: float,
    samples: int,
    network_samples: int,
    seed: int,
    **options: Any,
) -> None:
    """Raise the ValueError that `run_study` would, without simulating anything."""
    for name, count in (("samples", samples), ("network_samples", network_samples)):
        check_count(name, count, FEWEST_SAMPLES)
    check_count("width", width)
    check_count("depth", depth)
    steps = count_steps(depth / width, step)
    for columns, count, dt in ((width, depth, 1.0 / width), (None, steps, step)):
        specify(
            layer, v0, width=columns, steps=count, dt=dt, samples=samples, seed=seed,
            options=Options(**options),
        )  # fmt: skip


def common_times(width: int, depth: int, step: float) -> list[float]:
    """Return about 30 times from 0 to depth / width on the grids of both 1 / width and `step`.

    If the grids have too few common points, return only the two ends.
    """
    layers = np.arange(depth + 1)
    steps = layers / (width * step)
    common = layers[(np.abs(steps - np.rint(steps)) < 1e-6) | (layers == depth)]
    every = -(-(len(common) - 1) // _SAVED_TIMES)
    times: list[float] = (np.append(common[:-1:every], depth) / width).tolist()
    return times


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
    results: Mapping[str, xr.Dataset], folder: Path, labels: list[str] | None, title: str
) -> list[Path]:
    """Write the figures compare-trajectories and compare-densities into a folder."""
    from shaped_attention.figures import plots  # needs an extra; the results do not

    pair = most_correlated_pair(results["SDE"]["V"].values[0, 0])
    written = []
    for kind, name in _FIGURES.items():
        figure = getattr(plots, kind)(results, pair=pair, labels=labels, title=title)
        written.append(save_png(figure, folder / f"{name}.png"))
    return written


def write_study(
    results: Mapping[str, xr.Dataset], tables: Mapping[str, xr.Dataset], folder: Path
) -> list[Path]:
    """Write the three results (netCDF) and the tables (JSON) into a folder."""
    written_results = [save(results[key], folder / name) for key, name in _RESULTS.items()]
    target = folder / _TABLES
    with written(target) as draft:
        text = json.dumps({x: y.to_dict() for x, y in tables.items()}, indent=1, default=plain)
        draft.write_text(text, encoding="utf-8")
    return [*written_results, target]
