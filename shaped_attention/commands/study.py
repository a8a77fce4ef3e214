"""The main study: networks, chain and SDE from one V_0, compared, drawn and saved."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
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
from shaped_attention.samplers.specification import specify
from shaped_attention.statistics.compare import compare
from shaped_attention.statistics.density import FEWEST

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


@dataclass(frozen=True, kw_only=True)
class Study:
    """Networks and chain of one width and depth, and the SDE to depth / width, from one V_0.

    `options` are those of all samplers: radius, device, dtype and memory.
    """

    layer: Layer
    v0: NDArray[np.float64]
    width: int
    depth: int
    step: float
    samples: int
    network_samples: int
    seed: int
    options: dict[str, Any]

    def check(self) -> None:
        """Raise the ValueError that `run` would, without simulating anything."""
        for name in ("samples", "network_samples"):
            check_count(name, getattr(self, name), FEWEST)
        check_count("width", self.width)
        check_count("depth", self.depth)
        steps = count_steps(self.depth / self.width, self.step)
        finite, limit = (self.width, self.depth, 1.0 / self.width), (None, steps, self.step)
        for width, count, dt in (finite, limit):
            specify(
                self.layer, self.v0, width=width, steps=count, dt=dt, samples=self.samples,
                seed=self.seed, **self.options,
            )  # fmt: skip

    def run(self, progress: bool | None) -> tuple[dict[str, xr.Dataset], dict[str, xr.Dataset]]:
        """Return the results, and the tables that compare them."""
        times = common_times(self.width, self.depth, self.step)
        shared: dict[str, Any] = {"times": times, "seed": self.seed, "progress": progress}
        shared |= self.options
        limit = integrate_sde(
            self.layer, self.v0, horizon=self.depth / self.width, step=self.step,
            samples=self.samples, **shared,
        )  # fmt: skip
        shared |= {"width": self.width, "depth": self.depth}
        chain = simulate_chain(self.layer, self.v0, samples=self.samples, **shared)
        network = simulate_network(self.layer, self.v0, samples=self.network_samples, **shared)
        results = {"network": network, "exact chain": chain, "SDE": limit}
        tables = {
            name: compare(results[a], results[b], seed=self.seed) for name, (a, b) in PAIRS.items()
        }
        return results, tables


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
