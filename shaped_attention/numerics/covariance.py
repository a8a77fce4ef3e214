"""Initial covariances, their factors, and half-vectorisation."""

from __future__ import annotations

import math
import warnings

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shaped_attention.checks import (
    argument_error,
    check_count,
    check_finite,
    check_positive,
    real_array,
)
from shaped_attention.numerics.routines import PIVOT

Matrix = NDArray[np.float64]

SYMMETRY_TOLERANCE = 1e-8
"""Relative asymmetry or negative eigenvalue that counts as rounding and is removed."""


def _matrices(v: ArrayLike) -> NDArray[np.float64]:
    array = real_array(v, "v")
    if array.ndim < 2 or array.shape[-1] != array.shape[-2]:
        raise ValueError(f"v must be an array of matrices (..., m, m); got shape {array.shape}")
    return array


def check_covariance(v: ArrayLike, name: str = "covariance") -> Matrix:
    """Return `v` as a symmetric positive semidefinite float64 matrix, or raise ValueError.

    Parameters
    ----------
    v
        Array of shape (m, m), m >= 1. It may be singular.
    name
        Name in error messages.

    Raises
    ------
    ValueError
        If it is not a real, square, finite, symmetric, positive semidefinite matrix. Asymmetry
        and negative eigenvalues up to 1e-8 of the largest entry count as rounding.
    """
    matrix = real_array(v, name)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] < 1:
        raise ValueError(f"{name} must be a square matrix (m, m); got shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} must be finite; it has NaN or infinite entries")
    size = float(np.abs(matrix).max())
    with np.errstate(over="ignore"):
        asymmetry = float(np.abs(matrix - matrix.T).max())
    if asymmetry > SYMMETRY_TOLERANCE * size:
        raise ValueError(
            f"{name} must be symmetric; entries differ from their mirror image by up to "
            f"{asymmetry:.3g}"
        )
    matrix = 0.5 * matrix + 0.5 * matrix.T
    smallest = float(np.linalg.eigvalsh(matrix)[0])
    if smallest < -SYMMETRY_TOLERANCE * size:
        raise ValueError(
            f"{name} must be positive semidefinite; its smallest eigenvalue is {smallest:.3g}"
        )
    return matrix


def equicorrelated(tokens: int, rho: float, scale: float = 1.0) -> Matrix:
    """Return the covariance of exchangeable tokens: `scale` on the diagonal, `scale * rho` off it.

    Parameters
    ----------
    tokens
        Number of tokens m >= 1.
    rho
        Common correlation in [-1 / (m - 1), 1].
    scale
        Common variance, positive.

    Returns
    -------
    Matrix (m, m).

    Raises
    ------
    ValueError
        If an argument is outside its range.

    Examples
    --------
    >>> equicorrelated(tokens=2, rho=0.2)
    array([[1. , 0.2],
           [0.2, 1. ]])
    """
    check_count("tokens", tokens)
    check_finite("rho", rho)
    lowest = -1.0 / (tokens - 1) if tokens > 1 else -1.0
    if not lowest <= rho <= 1.0:
        requirement = f"in [{lowest:.6g}, 1] as the common correlation of {tokens} tokens"
        raise argument_error("rho", requirement, rho)
    check_positive("scale", scale)
    matrix = np.full((tokens, tokens), float(scale) * float(rho))
    np.fill_diagonal(matrix, scale)
    return matrix


def covariance_of(tokens: ArrayLike) -> Matrix:
    """Return the covariance ``X X^T / n_0`` (m, m) of tokens X (m, n_0), one per row.

    More tokens than features raise a UserWarning: the array may be transposed.

    Raises
    ------
    ValueError
        If `tokens` is not a real finite array of shape (m, n_0) with m, n_0 >= 1.

    Examples
    --------
    >>> covariance_of([[1.0, 1.0], [1.0, -1.0]])
    array([[1., 0.],
           [0., 1.]])
    """
    x = real_array(tokens, "tokens")
    if x.ndim != 2 or x.size == 0:
        raise ValueError(f"tokens must be an array (m, n_0) with m, n_0 >= 1; got shape {x.shape}")
    if not np.isfinite(x).all():
        raise ValueError("tokens must be finite; they have NaN or infinite entries")
    if x.shape[0] > x.shape[1]:
        warnings.warn(
            f"tokens has shape {x.shape}: rows are tokens and columns features, so these are "
            f"{x.shape[0]} tokens with {x.shape[1]} features each; is the array transposed?",
            UserWarning,
            stacklevel=2,
        )
    with np.errstate(over="ignore", invalid="ignore"):
        v = x @ x.T / x.shape[1]
    if not np.isfinite(v).all():
        raise ValueError(
            "tokens must have entries whose squares do not overflow; they have entries up to "
            f"{np.abs(x).max():.3g}"
        )
    return v


def factor(v: ArrayLike) -> Matrix:
    """Return lower triangular F (m, m) with F F^T = v for positive semidefinite `v`.

    F is the triangular form of the root from the eigendecomposition of the correlations, singular
    ones included. Eigenvalues below m eps times the largest are set to zero, as are pivots whose
    squares are at rounding level: their square roots would make equal tokens differ by 1e-8. Tokens
    with equal rows of `v` are one token, and have equal rows of F.
    """
    matrix = np.asarray(v, dtype=np.float64)
    _, first, same = np.unique(matrix, axis=0, return_index=True, return_inverse=True)
    distinct = matrix[np.ix_(first, first)]
    deviation = np.sqrt(np.diag(distinct))
    values, vectors = np.linalg.eigh(correlations(distinct))
    level = len(values) * np.finfo(np.float64).eps * values[-1]
    root = deviation[:, None] * vectors * np.sqrt(np.where(values > level, values, 0.0))
    back = same.reshape(-1)
    return _triangular(root[back], math.sqrt(PIVOT))[first[back]]


def _triangular(rows: Matrix, level: float) -> Matrix:
    """Return the lower triangular L (m, m) with L L^T = rows rows^T, by Gram and Schmidt.

    A column is zero if the part of its row that is orthogonal to the rows before is at most `level`
    times as long as the row.
    """
    rest, lower = rows.copy(), np.zeros((len(rows), len(rows)))
    lengths = level * np.linalg.norm(rows, axis=1)
    for j, row in enumerate(rest):
        length = np.linalg.norm(row)
        if length <= lengths[j]:
            continue
        unit = row / length
        lower[j + 1 :, j] = rest[j + 1 :] @ unit
        lower[j, j] = length
        rest[j + 1 :] -= np.outer(lower[j + 1 :, j], unit)
    return lower


def start_factor(v: Matrix, columns: int) -> Matrix:
    """Return a factor (m, columns) of `v`, whose rank is at most `columns`."""
    if columns >= len(v):
        return factor(v)
    values, vectors = np.linalg.eigh(v)
    top = slice(len(v) - columns, None)
    return vectors[:, top] * np.sqrt(np.maximum(values[top], 0.0))


def vech(v: ArrayLike) -> NDArray[np.float64]:
    """Return the half-vectorisation of `v` (..., m, m), of shape (..., m (m + 1) / 2).

    The entries of the lower triangle follow each other row by row.

    Examples
    --------
    >>> vech([[1.0, 2.0], [2.0, 3.0]])
    array([1., 2., 3.])
    """
    array = _matrices(v)
    rows, columns = np.tril_indices(array.shape[-1])
    return array[..., rows, columns]


def correlations(v: ArrayLike) -> NDArray[np.float64]:
    """Return ``V_ab / sqrt(V_aa V_bb)`` of `v` (..., m, m), in [-1, 1]; 0 where V_aa = 0.

    Raises
    ------
    ValueError
        If a variance is negative, or a correlation is outside [-1, 1] by more than rounding.
    """
    array = _matrices(v)
    norm = np.sqrt(np.maximum(np.diagonal(array, axis1=-2, axis2=-1), 0.0))
    # One norm at a time: the product of two could overflow or underflow where the ratio does not.
    inverse = np.divide(1.0, norm, out=np.zeros_like(norm), where=norm > 0.0)
    ratios = array * inverse[..., :, None] * inverse[..., None, :]
    largest = float(np.abs(ratios).max(initial=0.0))
    negative = float(np.diagonal(array, axis1=-2, axis2=-1).min(initial=0.0))
    size = float(np.abs(array).max(initial=0.0))
    if largest > 1.0 + SYMMETRY_TOLERANCE or negative < -SYMMETRY_TOLERANCE * size:
        raise ValueError(
            "v must be positive semidefinite; it has "
            + (f"a variance of {negative:.3g} and " if negative < 0.0 else "")
            + f"a correlation of {largest:.6g}"
        )
    return np.clip(ratios, -1.0, 1.0)
