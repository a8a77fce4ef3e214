"""Distribution function of the explosion time at many times, by a symmetric Galerkin method.

The probability D(t, X) of an explosion after t solves D_t = k D'' + b D' with D(t, 0) = 0, where b
is the drift of X and D(0, X) the probability of an explosion at any time. The generator is
symmetric with respect to the speed density

    m(X) = sinh^{2 - 2a} X cosh^{2a - 1 + 2r} X.

The basis tanh^{2a-1} X cosh^{-(1/2 + r)} X p_j(X^2), with Legendre polynomials p_j of X^2 on [0,
L], has the singularity of D at 0, which only even functions of X multiply. The boundary at L
reflects; L is so far that no path reaches it in time, or none returns from it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, special

from shaped_attention.theory.explosion.scalar_law import ScalarLaw

FLOOR = 1e-11
"""Absolute error of the probabilities, which limits those that are small."""

_REACH = 34.0
"""Probabilities of reaching L, or of returning from it, below exp(-34) are neglected."""


_NODES = 1000
"""Nodes of the quadrature of the initial condition."""


def explosion_curve(
    law: ScalarLaw, times: ArrayLike, size: int | None = None
) -> NDArray[np.float64]:
    """Return P(explosion by t) at each time, with an absolute error of about `FLOOR`.

    Parameters
    ----------
    law
        The law of u; it must be explosive.
    times
        Nonnegative times.
    size
        Number of basis functions; None for enough.
    """
    t = np.asarray(times, dtype=np.float64)
    start, outward = law.coordinate(law.u0), 1.0 + 2.0 * law.r
    kt = law.k * max(float(t.max()), 1e-12)
    length = start + min(outward * kt + math.sqrt(4.0 * _REACH * kt), _REACH / outward)
    size = int(72 + 2.0 * length) if size is None else size
    rates, vectors, basis, initial = _eigensystem(law, length, size, start)
    weights = (basis @ vectors) * (initial @ vectors)
    later = np.exp(-np.multiply.outer(t, rates)) @ weights
    return np.where(t > 0.0, law.ever() - later, 0.0)


def _eigensystem(
    law: ScalarLaw, length: float, size: int, start: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return decay rates, eigenvectors, the basis at the start, and the initial condition in it."""
    a, s = law.a, 0.5 + law.r
    count = 2 * size + 40
    y, w = special.roots_jacobi(count, 0.0, a - 1.5)
    # xi = (X / L)^2 = (1 + y) / 2; dX X^{2a-2} is the weight (1 + y)^{a - 3/2} dy, up to a factor.
    x = length * np.sqrt((1.0 + y) / 2.0)
    w = w * 2.0 ** (0.5 - a) * length ** (2.0 * a - 1.0) / 2.0
    tanh = np.tanh(x)
    smooth = w * (tanh / x) ** (2.0 * a - 2.0)
    p, slope = _polynomials(y, size)
    slope = slope * (4.0 * x / length**2)[:, None]
    moved = ((2.0 * a - 1.0) * (1.0 - tanh**2) - s * tanh**2)[:, None] * p + tanh[:, None] * slope
    mass = p.T @ ((smooth * tanh**2)[:, None] * p)
    stiffness = law.k * (moved.T @ (smooth[:, None] * moved))
    rates, vectors = linalg.eigh(stiffness, mass)
    y0 = 2.0 * (start / length) ** 2 - 1.0
    basis = _polynomials(np.array([y0]), size)[0][0]
    basis = basis * math.tanh(start) ** (2.0 * a - 1.0) * math.cosh(start) ** -s
    # The initial condition against the basis. Its power of X becomes smooth in v = (X / L)^(1/4).
    z, weight = special.roots_legendre(_NODES)
    v = (1.0 + z) / 2.0
    x = length * v**4
    ever = special.betainc(s, a - 0.5, 1.0 / np.cosh(x) ** 2)
    density = 2.0 * length * weight * v**3 * ever * np.sinh(x) * np.cosh(x) ** (s - 1.0)
    return rates, vectors, basis, density @ _polynomials(2.0 * v**8 - 1.0, size)[0]


def _polynomials(
    y: NDArray[np.float64], size: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the Legendre polynomials p_j and their derivatives in y (points, size)."""
    values = legendre.legvander(y, size - 1)
    slopes = legendre.legvander(y, size - 2) @ legendre.legder(np.eye(size))
    return np.asarray(values, np.float64), np.asarray(slopes, np.float64)
