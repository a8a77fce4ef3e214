"""Propagation of chaos on the circle: N tokens against the mean field, in W2.

As N grows, tokens that start independently from a density mu_0 stay close to independent tokens
with the law mu_t of the mean field. For N independent points from a density on the circle that is
bounded below, the expected W2 distance of the empirical measure from it is of order N^(-1/2)
(Bobkov and Ledoux, Memoirs of the AMS 1259, 2019, for the line). The flow is Lipschitz in the
measure, so it preserves this order over bounded times (Geshkovski et al., arXiv 2312.10794,
section 3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from shaped_attention.checks import argument_error, check_count
from shaped_attention.numerics.draws import Draws, stream_key
from shaped_attention.progress import progress_bar
from shaped_attention.results.provenance import recorded
from shaped_attention.sphere.attention import SphereAttention
from shaped_attention.sphere.circle import angles_of, circle_wasserstein2, tokens_of
from shaped_attention.sphere.integrate import checked_times, integrate_flow
from shaped_attention.sphere.mean_field import Density, cell_averages, mean_field
from shaped_attention.sphere.starts import SpherePart
from shaped_attention.statistics.rates import fitted_rate

SIZES = (16, 32, 64, 128, 256, 512, 1024)


def two_bumps(angles: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a smooth density without symmetry: (1 + 0.5 cos a + 0.6 cos(2 a - 1)) / (2 pi)."""
    return (1.0 + 0.5 * np.cos(angles) + 0.6 * np.cos(2.0 * angles - 1.0)) / (2.0 * math.pi)


def drawn_angles(
    density: ArrayLike, tokens: int, samples: int = 1, seed: int = 0
) -> NDArray[np.float64]:
    """Draw independent angles (samples, N) from a piecewise constant density, by its quantiles."""
    averages = cell_averages(density, 0)
    check_count("tokens", tokens)
    check_count("samples", samples)
    check_count("seed", seed, lowest=0)
    draws = Draws(
        stream_key(seed, "sphere", SpherePart.PARTICLES, tokens),
        torch.arange(samples, device="cpu"),
        0,
    )
    uniform = ndtr(draws.normal(1, tokens)[:, 0].numpy())
    below = np.concatenate([[0.0], np.cumsum(averages)])
    edges = np.linspace(-math.pi, math.pi, len(below))
    return np.interp(uniform, below / below[-1], edges)


def particle_angles(
    attention: SphereAttention,
    start: NDArray[np.float64],
    times: ArrayLike,
    tolerance: float = 1e-5,
) -> NDArray[np.float64]:
    """Return angles (time, sample, N) in (-pi, pi] of tokens that start at angles (samples, N)."""
    at = checked_times(times).tolist()
    if start.ndim != 2 or start.size == 0 or not np.isfinite(start).all():
        raise argument_error("start", "finite angles (samples, N)", start.shape)
    first = tokens_of(torch.from_numpy(start))
    return integrate_flow(attention.moved, first, at, angles_of, tolerance, autonomous=True)


@recorded()
def mean_field_distance(
    beta: float,
    density: Density = two_bumps,
    sizes: Sequence[int] = SIZES,
    time: float = 1.0,
    *,
    samples: int = 64,
    seed: int = 0,
    normalised: bool = True,
    cells: int = 512,
    tolerance: float = 1e-5,
    progress: bool | None = None,
) -> xr.Dataset:
    """Measure W2 between N tokens and the mean field for several N, and fit its rate of decay.

    Parameters
    ----------
    beta, normalised
        Inverse temperature; whether attention is normalised by its sum (SA) or not (USA).
    density, cells
        Initial density and number of cells, as for `mean_field`.
    sizes
        At least two increasing numbers of tokens N.
    time
        Time of the comparison, before the tokens collapse into one point.
    samples, seed
        Number of samples for each size, at least two, and seed.
    tolerance
        Error tolerance of the flow.
    progress
        Whether to show a progress bar; None shows it if the error stream is a terminal.

    Returns
    -------
    xarray.Dataset with `distance` and `standard` (size), the mean of W2 and its standard error, and
    `rate` and `rate_error`, r of the fit a N^-r and its standard error.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    check_count("samples", samples, lowest=2)
    for size in sizes:
        check_count("sizes", size)
    if len(sizes) < 2 or list(sizes) != sorted(set(sizes)):
        raise argument_error("sizes", "at least two increasing numbers", list(sizes))
    attention = SphereAttention(beta, normalised)
    start = cell_averages(density, cells)
    law = mean_field(beta, start, [time], normalised=normalised)["density"].values[0]
    apart = np.empty((len(sizes), samples))
    for row, size in progress_bar("sizes", progress, list(zip(apart, sizes, strict=True))):
        angles = drawn_angles(start, size, samples, seed)
        angles = particle_angles(attention, angles, [time], tolerance)[0]
        row[:] = circle_wasserstein2(angles, density=law)
    distance, standard = apart.mean(1), apart.std(1, ddof=1) / math.sqrt(samples)
    rate, error = fitted_rate(np.array(sizes, dtype=float), distance, standard)
    return xr.Dataset(
        {
            "distance": ("size", distance),
            "standard": ("size", standard),
            "rate": rate,
            "rate_error": error,
        },
        coords={"size": list(sizes)},
        attrs={"attention": "SA" if normalised else "USA"},
    )
