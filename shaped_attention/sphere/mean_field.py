"""Mean field on the circle: the law of infinitely many tokens, by finite volumes.

    d_t mu + d_a (mu chi[mu]) = 0,
    chi[mu](a) = -(1 / Z(a)) int exp(beta cos(a - b)) sin(a - b) mu(b) db,

SA: Z(a) = int exp(beta cos(a - b)) mu(b) db; USA: Z = 1; repulsion changes the sign (Geshkovski et
al., arXiv 2312.10794, sections 3 and 7). Under USA it is the gradient flow of the energy
E = (1 / (2 beta)) int int exp(beta cos(a - b)) mu(a) mu(b) for the Wasserstein distance.

The scheme combines upwind fluxes with limited slopes (van Leer, J. Comput. Phys. 32, 1979) and the
positivity-preserving three-stage Runge-Kutta method (Shu and Osher, J. Comput. Phys. 77, 1988). It
is of second order, conserves mass to rounding and keeps the density nonnegative. Its step follows
from the largest speed under any law, so every stage satisfies the Courant condition.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import circulant

from shaped_attention.checks import argument_error, check_count, real_array
from shaped_attention.results.provenance import recorded
from shaped_attention.sphere.attention import SphereAttention
from shaped_attention.sphere.integrate import checked_times

Array = NDArray[np.float64]
Density = ArrayLike | Callable[[Array], Array]
"""Cell averages (cells,) on [-pi, pi), or a function of angles."""

_COURANT = 0.45
"""Courant number of a step; the density stays nonnegative up to 1/2."""

_FEWEST_CELLS = 8
_MASS_ERROR = 1e-6
_MOST_STEPS = 10_000_000


@recorded()
def mean_field(
    beta: float,
    density: Density,
    times: ArrayLike,
    *,
    normalised: bool = True,
    repulsion: bool = False,
    cells: int = 512,
) -> xr.Dataset:
    """Solve the mean-field equation on the circle from a given density.

    Parameters
    ----------
    beta
        Inverse temperature, at most 300 in absolute value.
    density
        Initial density: averages over equal cells of [-pi, pi), or a function of arrays of angles.
        It must be nonnegative and have mass 1 to within 1e-6.
    times
        Increasing times >= 0.
    normalised, repulsion
        Whether attention is normalised by its sum (SA) or not (USA); whether V = -I.
    cells
        Number of cells if the density is a function, at least 8. The cost of a step grows as the
        square of this number.

    Returns
    -------
    xarray.Dataset with

    - `density` (time, angle): averages over the cells with these centres;
    - `energy` (time): E; at beta = 0, int int cos(a - b) mu mu / 2, the limit up to a constant;
    - `dissipation` (time): int chi^2 mu, with the velocity chi. Under USA with attraction it equals
      dE/dt; under SA dE/dt = int Z chi^2 mu, with the normalisation Z of the weights;
    - `order` (time): the modulus of int e^{i a} mu.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    FloatingPointError
        If more than 10^7 steps are needed, as under USA at large beta, which is exp(beta) times
        faster than SA.
    """
    attention = SphereAttention(beta, normalised, repulsion)
    at = checked_times(times)
    now = cell_averages(density, cells)
    transport = _Transport(attention, len(now))
    kept = []
    for time in np.diff(at, prepend=0.0):
        now = transport.moved(now, time)
        kept.append(now)
    densities = np.array(kept)
    return xr.Dataset(
        {
            "density": (("time", "angle"), densities),
            "energy": ("time", transport.energies(densities)),
            "dissipation": ("time", transport.dissipations(densities)),
            "order": ("time", transport.orders(densities)),
        },
        coords={"time": at, "angle": cell_centres(len(now))},
        attrs={"attention": "SA" if normalised else "USA"},
    )


def cell_centres(cells: int) -> Array:
    """Return the centres (cells,) of equal cells of [-pi, pi)."""
    return -math.pi + (np.arange(cells, dtype=np.float64) + 0.5) * (2.0 * math.pi / cells)


def cell_averages(density: Density, cells: int) -> Array:
    """Return the checked averages of an initial density over equal cells of [-pi, pi).

    A function is averaged by five-point Gauss quadrature in each cell; for an array `cells` is
    ignored. See `mean_field`.
    """
    if callable(density):
        check_count("cells", cells, lowest=_FEWEST_CELLS)
        averages = _averaged(density, -math.pi, cells)
    else:
        averages = real_array(density, "density")
    if averages.ndim != 1 or len(averages) < _FEWEST_CELLS:
        raise argument_error(
            "density", f"of shape (cells,) with at least {_FEWEST_CELLS} cells", averages.shape
        )
    if not np.isfinite(averages).all() or (averages < 0.0).any():
        raise ValueError("density must be >= 0; it has negative, NaN or infinite entries")
    mass = float(averages.mean()) * 2.0 * math.pi
    if abs(mass - 1.0) > _MASS_ERROR:
        raise ValueError(f"density must have mass 1; it has {mass:.9g}")
    return averages


def _averaged(function: Callable[[Array], Array], first: float, cells: int) -> Array:
    """Return averages over equal cells of the circle; the first cell starts at `first`."""
    nodes, weights = (np.asarray(part, float) for part in np.polynomial.legendre.leggauss(5))
    width = 2.0 * math.pi / cells
    points = first + width * (np.arange(cells)[:, None] + 0.5 * (nodes + 1.0))
    return real_array(function(points), "density") @ (0.5 * weights)


class _Transport:
    """Speeds at faces and averages over cells of width h, for one attention.

    Face i is the left end of cell i. Integrals over cells use the same Gauss quadrature for the
    speed and for Z, so no speed under SA exceeds 1. They are summed directly, not by Fourier
    transforms: Z is small where only distant tokens are seen, and its relative accuracy matters.
    """

    def __init__(self, attention: SphereAttention, cells: int) -> None:
        beta, width = attention.beta, 2.0 * math.pi / cells

        def kernel(b: Array) -> Array:
            return np.exp(beta * np.cos(b))

        pull = circulant(-width * _averaged(lambda b: kernel(b) * np.sin(b), -width, cells))
        self.pull = -pull if attention.repulsion else pull
        self.total, self.fastest, self.width = None, 1.0, width
        if attention.normalised:
            self.total = circulant(width * _averaged(kernel, -width, cells))
        else:
            # exp(beta cos a) |sin a| is largest where cos a = beta (sin a)^2.
            cosine = 2.0 * beta / (1.0 + math.sqrt(1.0 + 4.0 * beta**2))
            self.fastest = math.exp(beta * cosine) * math.sqrt(1.0 - cosine**2)
        apart = width * np.arange(cells, dtype=np.float64)
        energy = np.cos(apart) if beta == 0.0 else kernel(apart) / beta
        self.pairs = circulant(0.5 * width**2 * energy)

    def speeds(self, density: Array) -> Array:
        """Return the field at the faces (cells,)."""
        moved = self.pull @ density
        return moved if self.total is None else moved / (self.total @ density)

    def change(self, density: Array) -> Array:
        """Return the time derivative of the cell averages (cells,)."""
        forward = np.roll(density, -1) - density
        backward = np.roll(forward, 1)
        # Half the harmonic mean of the differences: the ends of a cell lie between neighbours.
        product = np.maximum(forward * backward, 0.0)
        slope = product / np.where(product > 0.0, forward + backward, 1.0)
        # Rounding could make it exceed the density, and an end value negative.
        slope = np.clip(slope, -density, density)
        speed = self.speeds(density)
        left = np.roll(density + slope, 1)
        flux = np.where(speed > 0.0, left, density - slope) * speed
        return (flux - np.roll(flux, -1)) / self.width

    def moved(self, density: Array, time: float) -> Array:
        """Return the cell averages after a time, in equal steps."""
        longest = _COURANT * self.width / self.fastest
        steps = math.ceil(time / longest)
        if steps > _MOST_STEPS:
            raise FloatingPointError(
                f"the mean field needs {steps:.3g} steps, but at most {_MOST_STEPS:g} are made; "
                "choose an earlier time, fewer cells or a smaller beta (USA moves exp(beta) times "
                "faster)"
            )
        for _ in range(steps):
            step = time / steps
            first = density + step * self.change(density)
            second = 0.75 * density + 0.25 * (first + step * self.change(first))
            density = density / 3.0 + (second + step * self.change(second)) * (2.0 / 3.0)
        return density

    def energies(self, densities: Array) -> Array:
        """Return E of densities (times, cells)."""
        return ((densities @ self.pairs) * densities).sum(-1)

    def dissipations(self, densities: Array) -> Array:
        """Return int chi^2 mu of densities (times, cells)."""
        speeds = np.array([self.speeds(density) for density in densities])
        centred = 0.5 * (speeds + np.roll(speeds, -1, axis=-1))
        return self.width * (centred**2 * densities).sum(-1)

    def orders(self, densities: Array) -> Array:
        """Return |int e^{i a} mu| of densities (times, cells) that are constant in each cell."""
        waves = np.exp(1j * cell_centres(densities.shape[-1]))
        return 2.0 * math.sin(0.5 * self.width) * np.abs(densities @ waves)
