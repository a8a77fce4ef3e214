"""When paths leave a range, reach a radius or explode: what `sa.stopping` offers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from shaped_attention.blocks import ShapedAttention
from shaped_attention.blocks.base import Layer
from shaped_attention.checks import (
    argument_error,
    check_count,
    check_inside,
    check_positive,
    check_values,
    real_array,
    with_types,
)
from shaped_attention.numerics.covariance import check_covariance
from shaped_attention.numerics.result_axis import check_result
from shaped_attention.numerics.seeds import derived_seed
from shaped_attention.results.over_grid import over_grid
from shaped_attention.results.provenance import recorded, specification
from shaped_attention.samplers.chain import simulate_chain
from shaped_attention.samplers.sde import integrate_sde
from shaped_attention.statistics.explosion_estimate import explosion_probability
from shaped_attention.statistics.proportions import fraction_bounds

__all__ = [
    "exit_times",
    "explosion_curve",
    "explosion_probability",
    "explosion_table",
    "stopping_map",
]

SMALLEST, LARGEST = 1e-4, 1e4
"""The range of eigenvalues of Noci et al. (arXiv 2306.17759), figures 4 and 8."""


@with_types
def exit_times(
    result: xr.Dataset, smallest: float = SMALLEST, largest: float = LARGEST
) -> NDArray[np.float64]:
    """Return the first stored time at which an eigenvalue of V is outside [smallest, largest].

    Parameters
    ----------
    result
        A result with every layer or step stored (``save_every=1``), and a radius well above
        `largest` times the root of the number of tokens: stopped paths keep their V, whose norm is
        near the radius, so that an eigenvalue is outside the range.
    smallest, largest
        Range of eigenvalues, 0 <= smallest < largest.

    Returns
    -------
    Times (samples,); infinite for paths that stay inside.

    Raises
    ------
    ValueError
        If `result` is not a result, its radius is too small, or the range is empty.
    """
    check_result(result, "result", stops=True)
    if not 0.0 <= smallest < largest < math.inf:
        allowed = "numbers with 0 <= smallest < largest < infinity"
        raise argument_error("smallest and largest", allowed, (smallest, largest))
    if "specification" in result.attrs:
        stored = specification(result)
        step = stored["step"] if stored["sampler"] == "sde" else 1.0 / stored["width"]
        if np.diff(result["time"].to_numpy(), prepend=0.0).max() > 1.5 * step:
            raise ValueError(
                "result holds only some of the times of its run; repeat the run with save_every=1"
            )
    v = result["V"].transpose("time", "sample", "row", "col").to_numpy()
    stopped = np.isfinite(result["stopping_time"].to_numpy())
    eigenvalues = np.linalg.eigvalsh(v)
    outside = (eigenvalues[..., 0] < smallest) | (eigenvalues[..., -1] > largest)
    if (stopped & ~outside[-1]).any():
        found = f"result has paths that stopped inside the range up to {largest:g}"
        raise ValueError(f"{found}; repeat the run with a larger radius")
    times = result["time"].to_numpy().astype(np.float64)[np.argmax(outside, axis=0)]
    return np.where(outside.any(axis=0), times, np.inf)


@recorded()
def explosion_curve(
    result: xr.Dataset, times: ArrayLike | None = None, confidence: float = 0.95
) -> xr.Dataset:
    """Estimate the probability that a path has reached the radius by each time, with bounds.

    Parameters
    ----------
    result
        Result of a sampler, which has the stopping times whatever else is stored.
    times
        Times at which to count paths, by default the stored ones.
    confidence
        Coverage probability of the Clopper-Pearson bounds (Biometrika 26, 1934), which hold
        pointwise in time.

    Returns
    -------
    xarray.Dataset with `probability`, `lower` and `upper` (time).

    Raises
    ------
    ValueError
        If `result` is not a result, or `times` or `confidence` is outside its range.
    """
    if not isinstance(result, xr.Dataset) or not {"stopping_time", "time"} <= set(result.variables):
        check_result(result, "result", stops=True)
    check_inside("confidence", confidence)
    times = result["time"].to_numpy() if times is None else real_array(times, "times")
    if times.ndim != 1 or not np.isfinite(times).all():
        raise argument_error("times", "a list of finite numbers", times)
    stopped = result["stopping_time"].to_numpy()
    reached, count = (stopped <= times[:, None] + 1e-9).sum(axis=1), len(stopped)
    lower, upper = fraction_bounds(reached, count, confidence)
    curves = {"probability": reached / count, "lower": lower, "upper": upper}
    return xr.Dataset(
        {name: ("time", values) for name, values in curves.items()},
        coords={"time": times}, attrs={"samples": count},
    )  # fmt: skip


@recorded()
def explosion_table(
    layer: Layer,
    v0: ArrayLike,
    widths: Sequence[int],
    *,
    horizon: float = 0.75,
    step: float = 0.0025,
    samples: int = 4096,
    seed: int = 0,
    radius: float | None = None,
    points: int = 50,
    progress: bool | None = None,
) -> xr.Dataset:
    """Compute `explosion_curve` for chains at several widths and for the SDE, as one Dataset.

    At any fixed radius the chain's curve converges to that of the SDE. At fixed width the two
    differ at large radii, because the softmax saturates. The SDE's steps shrink with the state, so
    its curve hardly depends on `step`. Reaching the radius is not exploding: for some layers
    `shaped_attention.explosion_law` has the probability of an explosion.

    Parameters
    ----------
    layer, v0, horizon, step, samples, seed, radius, progress
        As in the samplers. Each run has its own seed, derived from `seed` and, for a chain, from
        its width.
    widths
        Widths of the chains; the depth is width * horizon, rounded up.
    points
        Number of intervals between the times of the curves.

    Returns
    -------
    xarray.Dataset with `probability`, `lower` and `upper` (curve, time). Curves have names such as
    "n = 50"; the last is "SDE".
    """
    check_count("points", points)
    check_values("widths", widths)
    common: dict[str, Any] = {"samples": samples, "radius": radius, "progress": False}
    sizes: dict[str, Any] = {f"n = {width}": {"width": width} for width in widths} | {"SDE": {}}

    def cell(curve: str) -> xr.Dataset:
        size = sizes[curve]
        run = common | {"seed": derived_seed(seed, {"study": "explosion_curves"} | size)}
        result = (
            simulate_chain(layer, v0, depth=_depth(size["width"], horizon), **size, **run) if size
            else integrate_sde(layer, v0, horizon=horizon, step=step, **run)
        )  # fmt: skip
        return explosion_curve(result, np.linspace(0.0, horizon, points + 1))

    return over_grid(cell, {"curve": list(sizes)}, progress=progress)


@recorded()
def stopping_map(
    v0: ArrayLike,
    gammas: Sequence[float],
    tau0s: Sequence[float],
    *,
    width: int = 200,
    horizon: float = 1.0,
    step: float = 0.005,
    samples: int = 100,
    seed: int = 0,
    smallest: float = SMALLEST,
    largest: float = LARGEST,
    progress: bool | None = None,
) -> xr.Dataset:
    """Compute exit times of attention over a grid of gamma and tau_0, for the chain and the SDE.

    Parameters
    ----------
    v0, horizon, step, progress
        As in the samplers.
    gammas, tau0s
        Values of gamma and tau_0.
    width
        Width of the chain; its depth is width * horizon, rounded up.
    samples
        Number of samples per cell.
    seed
        Seed from which, together with gamma and tau_0, the seed of a cell is derived, so that a
        cell has the same values in every grid.
    smallest, largest
        As in `exit_times`.

    Returns
    -------
    xarray.Dataset with `exit_time` (sampler, gamma, tau0, sample), capped at the horizon.
    """
    start = check_covariance(v0, "v0")
    check_values("gammas", gammas)
    check_values("tau0s", tau0s)
    depth = _depth(width, horizon)
    radius = 10.0 * largest * math.sqrt(len(start))

    def cell(gamma: float, tau0: float) -> xr.Dataset:
        block = ShapedAttention(gamma, tau0)
        common: dict[str, Any] = {
            "samples": samples, "save_every": 1, "radius": radius, "progress": False,
            "seed": derived_seed(seed, {"study": "stopping_map", "gamma": gamma, "tau0": tau0}),
        }  # fmt: skip
        chain = simulate_chain(block, start, width=width, depth=depth, **common)
        limit = integrate_sde(block, start, horizon=horizon, step=step, **common)
        times = [exit_times(result, smallest, largest) for result in (chain, limit)]
        return xr.Dataset(
            {"exit_time": (("sampler", "sample"), np.minimum(times, horizon))},
            coords={"sampler": ["chain", "SDE"]},
        )

    axes = {"gamma": [float(x) for x in gammas], "tau0": [float(x) for x in tau0s]}
    cells = over_grid(cell, axes, progress=progress)
    return cells.transpose("sampler", "gamma", "tau0", "sample").assign_attrs(tokens=len(start))


def _depth(width: int, horizon: float) -> int:
    """Return the index of the first layer at or after the horizon."""
    check_positive("horizon", horizon)
    return max(1, math.ceil(width * horizon - 1e-9))
