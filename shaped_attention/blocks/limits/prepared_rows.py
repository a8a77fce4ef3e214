"""Rows that are normalised or rotated before their inner products, as queries and keys.

Rows of a fixed number d of Gaussian columns with correlation x have the mean cosine rho_d(x), which
tends to x with d:

    rho_d(x) = x Gamma((d+1)/2)^2 / (Gamma(d/2) Gamma(d/2+1)) 2F1(1/2, 1/2; d/2+1; x^2).

Products of rotated rows are sums of products of rows, one for each mode of the rotation.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import gammaln

from shaped_attention.blocks.limits.jets import Jet
from shaped_attention.blocks.limits.numbers import LimitError
from shaped_attention.blocks.limits.rows import Rows
from shaped_attention.blocks.limits.small import Array, Matrix, Small
from shaped_attention.blocks.limits.sources import Source
from shaped_attention.numerics import primitives

_SMALLEST_NORMED = 4
"""Fewest columns of queries and keys for which the series of rho_d converges fast enough."""

_TERMS = 40
"""Terms of the series of rho_d; the error is 3e-5 at d = 4 and 6e-8 at d = 8."""

_ROUNDING = 1e-15
"""Eigenvalues of r(x - y), relative to the largest, at which they are rounding."""


@lru_cache(maxsize=64)
def cosine_series(size: int) -> tuple[float, ...]:
    """Return coefficients c_j >= 0 with rho_d(x) = sum_j c_j x^(2j + 1) and sum c_j = 1.

    The last coefficient holds the rest, so that rho_d(1) = 1 and rho_d(R) is positive semidefinite.
    """
    half = size / 2.0
    logarithm = 2.0 * gammaln(half + 0.5) - gammaln(half) - gammaln(half + 1.0)
    coefficients = [math.exp(logarithm)]
    for j in range(_TERMS - 2):
        coefficients.append(coefficients[-1] * (j + 0.5) ** 2 / ((half + 1.0 + j) * (j + 1.0)))
    return (*coefficients, max(0.0, 1.0 - sum(coefficients)))


def mean_cosines(correlations: Any, size: int) -> Any:
    """Return rho_d of correlations, entry by entry."""
    series, square = cosine_series(size), correlations * correlations
    total = series[-1] * square
    for coefficient in series[-2:0:-1]:
        total = (total + coefficient) * square
    return (total + series[0]) * correlations


def _some(matrix: Matrix) -> Small:
    if matrix is None:
        raise LimitError("rows vanish at infinite width")
    return matrix


def with_unit_rows(x: Rows) -> Rows:
    """Return rows of a fixed number d of columns, divided by their lengths.

    Only products with other, independent rows can follow: what they need to know is the mean cosine
    of two rows of d Gaussian columns.
    """
    a, columns = x.layer.algebra, x.shape[1]
    if not isinstance(columns, int) or columns < _SMALLEST_NORMED:
        fewest = _SMALLEST_NORMED
        raise LimitError(f"a norm over {columns} columns has a rule from {fewest} columns on")
    roots = []
    for space in x.spaces:
        own = [c for s, c in x.parts if s.space is space]
        v = a.total(*(a.product(c.M, a.transposed(c.M)) for c in own))
        if any(c.power != own[0].power for c in own):
            raise LimitError("rows of parts of different orders are normalised together")
        roots.append(v)
    if any(v is not roots[0] for v in roots):
        raise LimitError("parts with different covariances are normalised together")
    v = _some(roots[0])
    sigma = _some(a.run("sqrt", (_some(a.diagonal(v)),), primitives.sqrt))
    rho = _some(a.over(a.over(v, sigma), _some(a.transposed(sigma))))
    cosines = _some(a.run(("cosines", columns), (rho,), lambda y: mean_cosines(y, columns)))
    root = _some(a.run("cholesky", (cosines,), primitives.cholesky))
    unit = Jet(a, root.shape, root) * columns**-0.5
    parts = [(Source(space, x.count), unit) for space in x.spaces]
    return x.layer.with_unit_rows(x, Rows(x.layer, parts, x.count, x.spaces))


def rotated(x: Rows, table: Array) -> Rows:
    """Return rotated rows: their scores have the kernel r(a - b - c + d) (`rotations`)."""
    x.check_plain()
    columns = x.shape[1]
    share = table.shape[1] / columns if isinstance(columns, int) else 1.0
    turns = table.tobytes(), modes_of_table(table, share)
    return Rows(x.layer, x.parts, x.count, x.spaces, None, turns)


def modes_of_table(table: Array, share: float) -> tuple[Array, ...]:
    """Return the modes of the table that `rotate` takes, and of a share of the columns.

    With r(D) = share mean_j cos(theta_j D) + 1 - share they are matrices E_k (m, m) with

        sum_k E_k[a, b] E_k[c, d] = r((a - b) - (c - d)),

    even or odd functions of a - b: the eigenvectors of the even and the odd part of r(x - y).
    """
    pairs, count = table.shape[1] // 2, len(table)
    turns = table[:, :pairs] + 1j * table[:, pairs:]
    step = turns[min(1, count - 1)] / turns[0]
    if not np.allclose(turns, turns[0] * step ** np.arange(count)[:, None], atol=1e-9):
        raise LimitError("a rotation must turn each token by the same angle more than the last")
    strength = float(np.abs(turns[0, 0])) ** 4
    return _modes(tuple(np.angle(step).tolist()), share, count, strength)


@lru_cache(maxsize=64)
def _modes(
    angles: tuple[float, ...], share: float, tokens: int, strength: float
) -> tuple[Array, ...]:
    places = np.arange(tokens)
    turns = np.multiply.outer(np.array(angles), places)
    weight = strength * share / len(angles)
    apart = np.subtract.outer(places, places)
    matrices = []
    for part, rest in ((np.cos, 1.0 - share), (np.sin, 0.0)):
        values, vectors = np.linalg.eigh(weight * part(turns).T @ part(turns) + rest)
        for value, vector in zip(values[::-1], vectors.T[::-1], strict=True):
            if value <= _ROUNDING * tokens:
                continue
            sign = np.sign(vector[np.argmax(np.abs(vector))])
            profile = (sign * math.sqrt(value)) * vector
            entries = profile[np.abs(apart)]
            matrices.append(entries if part is np.cos else entries * np.sign(apart))
    return tuple(matrices)
