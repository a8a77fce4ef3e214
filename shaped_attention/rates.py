"""How errors fall with the width: fitted rates, and distances between chains and the SDE."""

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
from shaped_attention.chain import simulate_chain
from shaped_attention.checks import check_count, check_positive
from shaped_attention.covariance import check_covariance
from shaped_attention.observables import observables
from shaped_attention.sde import integrate_sde


def fitted_rate(
    widths: NDArray[np.float64], errors: NDArray[np.float64], standard: NDArray[np.float64]
) -> tuple[float, float]:
    """r and its standard error in ``error = a n^-r``, by weighted least squares on the errors.

    All widths enter, resolved or not: a fit of logarithms to the resolved ones alone would see the
    errors that chance made large. NaN unless two widths have errors above 4 standard errors.
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


def distances_by_width(
    layer: Layer,
    v0: ArrayLike,
    widths: Sequence[int],
    *,
    horizon: float = 0.5,
    step: float = 0.0025,
    samples: int = 2**14,
    limit_samples: int | None = None,
    seed: int = 0,
    radius: float | None = None,
) -> xr.Dataset:
    """Kolmogorov-Smirnov distances of chains from the SDE at the horizon, by width, with the rate.

    Parameters
    ----------
    layer, v0, radius
        As for the samplers.
    widths
        Widths n, at least two; the depth is n * horizon.
    horizon, step, seed
        Horizon and step of the SDE; chain number k has the seed `seed` + 1 + k.
    samples, limit_samples
        Samples of every chain and of the SDE (by default as many).

    Returns
    -------
    xarray.Dataset with

    - `distance` (width, observable): the Kolmogorov-Smirnov distance for each of the `observables`;
    - `noise`: the standard deviation of a difference of two empirical distribution functions at a
      median, sqrt(1/N + 1/N') / 2, by which the fit is weighted. Of equal laws the distance is
      about 1.7 of it;
    - `rate`, `rate_error` (observable): r of a fit a n^-r, NaN unless two widths are above 4 noise.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    start = check_covariance(v0, "v0")
    check_positive("horizon", horizon)
    check_count("samples", samples, lowest=2)
    if len(widths) < 2 or list(widths) != sorted(set(widths)):
        raise ValueError(f"widths={list(widths)}: at least two, increasing, are needed")
    common: dict[str, Any] = {"radius": radius, "progress": False}
    count = samples if limit_samples is None else limit_samples
    limit = _last(
        integrate_sde(layer, start, horizon=horizon, step=step, samples=count, seed=seed, **common)
    )
    distances = []
    for k, width in enumerate(widths):
        depth = max(1, round(width * horizon))
        chain = _last(
            simulate_chain(
                layer, start, width=width, depth=depth, samples=samples, seed=seed + 1 + k, **common
            )
        )
        distances.append([ks_2samp(chain[name], limit[name]).statistic for name in limit])
    values = np.array(distances)
    noise = 0.5 * math.sqrt(1.0 / samples + 1.0 / count)
    sizes = np.array(widths, dtype=float)
    rates = [fitted_rate(sizes, column, np.full(len(sizes), noise)) for column in values.T]
    return xr.Dataset(
        {
            "distance": (("width", "observable"), values),
            "noise": noise,
            "rate": ("observable", [rate for rate, _ in rates]),
            "rate_error": ("observable", [error for _, error in rates]),
        },
        coords={"width": list(widths), "observable": list(limit)},
        attrs={"horizon": horizon, "step": step, "samples": samples, "seed": seed},
    )


def _last(result: xr.Dataset) -> dict[str, NDArray[np.float64]]:
    return observables(result["V"].isel(time=-1).to_numpy())
