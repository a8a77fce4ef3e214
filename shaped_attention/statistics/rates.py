"""Convergence rates in the width: fitted rates, and distances between chains and the SDE."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import curve_fit
from scipy.stats import ks_2samp

from shaped_attention.blocks.base import Layer
from shaped_attention.checks import (
    argument_error,
    check_count,
    check_positive,
    check_values,
    check_width,
)
from shaped_attention.numerics.covariance import check_covariance
from shaped_attention.numerics.observables import observables
from shaped_attention.numerics.seeds import derived_seed
from shaped_attention.results.over_grid import over_grid
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.chain import simulate_chain
from shaped_attention.samplers.sde import integrate_sde


def fitted_rate(
    widths: NDArray[np.float64], errors: NDArray[np.float64], standard: NDArray[np.float64]
) -> tuple[float, float]:
    """Return r and its standard error in ``error = a n^-r``, by weighted least squares.

    All widths enter, resolved or not: a fit of logarithms to only the resolved ones would select
    the errors that are large by chance. The result is NaN unless two widths have errors above 4
    standard errors.
    """
    resolved = (np.abs(errors) > 4.0 * standard) & (standard > 0.0)
    if resolved.sum() < 2:
        return math.nan, math.nan
    scale = widths / widths[0]
    try:
        (_, rate), covariance = curve_fit(
            lambda x, size, rate: size * x**-rate,
            scale, errors, p0=(errors[resolved][0], 1.0), sigma=standard, absolute_sigma=True,
        )  # fmt: skip
    except RuntimeError:
        return math.nan, math.nan
    return float(rate), float(math.sqrt(covariance[1, 1]))


def check_widths(widths: Sequence[int], horizon: float) -> list[int]:
    """Return the depths ``width * horizon``, which must be integers, of at least two widths.

    A rounded depth would move the end by an amount of the order of the errors in question.
    """
    check_positive("horizon", horizon)
    check_values("widths", widths)
    for width in widths:
        check_width("widths", width)
    if len(widths) < 2 or list(widths) != sorted(set(widths)):
        raise argument_error("widths", "at least two increasing numbers", list(widths))
    depths = [round(width * horizon) for width in widths]
    for width, depth in zip(widths, depths, strict=True):
        if abs(depth - (exact := width * horizon)) > 1e-9 or depth < 1:
            raise argument_error(f"width * horizon for width {width}", "an integer", exact)
    return depths


@recorded()
def distances_by_width(
    layer: Layer,
    v0: ArrayLike,
    widths: Sequence[int],
    *,
    horizon: float = 0.5,
    steps_per_layer: int = 10,
    samples: int = 2**14,
    seed: int = 0,
    radius: float | None = None,
    progress: bool | None = None,
) -> xr.Dataset:
    """Compute the KS distances between chains and the SDE at the horizon by width, and their rate.

    Parameters
    ----------
    layer, v0, horizon, radius, progress
        As in the samplers.
    widths
        Widths n, at least two, increasing; the depth n * horizon must be an integer.
    steps_per_layer
        Euler steps of the SDE per layer, of length 1 / (n steps_per_layer). The bias of the scheme,
        of this order, must be well below the distance, which is of order 1/n.
    samples
        Number of samples of each chain and of its SDE.
    seed
        Seed from which the seed of each width is derived.

    Returns
    -------
    xarray.Dataset with

    - `distance` (width, observable): the Kolmogorov-Smirnov distance for each of the `observables`;
    - `noise`: the standard deviation of the difference between two empirical distribution functions
      at a median, sqrt(2/N) / 2. The distance of equal laws is about 1.7 times as large;
    - `rate`, `rate_error` (observable): r of a fit a n^-r to the distances above 4 times `noise`
      (smaller distances are biased upwards); NaN unless there are at least two.
    """
    start = check_covariance(v0, "v0")
    depths = check_widths(widths, horizon)
    check_count("samples", samples, lowest=2)
    check_count("steps_per_layer", steps_per_layer)

    def distances(width: int) -> xr.Dataset:
        depth = depths[list(widths).index(width)]
        common: dict[str, Any] = {
            "samples": samples, "radius": radius, "progress": False,
            "seed": derived_seed(seed, {"study": "distances_by_width", "width": width}),
        }  # fmt: skip
        step = horizon / (depth * steps_per_layer)
        runs = (
            integrate_sde(layer, start, horizon=horizon, step=step, **common),
            simulate_chain(layer, start, width=width, depth=depth, **common),
        )
        limit, chain = (observables(run["V"].isel(time=-1).to_numpy()) for run in runs)
        values = [ks_2samp(chain[name], limit[name]).statistic for name in limit]
        return xr.Dataset({"distance": ("observable", values)}, coords={"observable": list(limit)})

    by_width = over_grid(distances, {"width": widths}, progress=progress)
    noise, fits = 0.5 * math.sqrt(2.0 / samples), []
    for column in by_width["distance"].to_numpy().T:
        clear = column > 4.0 * noise
        sizes = np.array(widths, dtype=float)[clear]
        fits.append(fitted_rate(sizes, column[clear], np.full(clear.sum(), noise)))
    rate, error = zip(*fits, strict=True)
    return by_width.assign(
        noise=noise, rate=("observable", [*rate]), rate_error=("observable", [*error])
    )
