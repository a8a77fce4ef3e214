r"""Scalar observables of a token covariance V, by which two laws are compared.

For one sample V (m x m, positive semidefinite) with eigenvalues l_1 <= ... <= l_m:

===========================  ====================================================================
name                         value
===========================  ====================================================================
``log V[a,a]``               logarithm of the squared norm of token a
``rho[a,b]``                 V_ab / sqrt(V_aa V_bb), a < b: the cosine between tokens a and b
``log det V``                sum_i log max(l_i, f), with the floor f described below
``log trace V``              logarithm of sum_a V_aa
``log largest eigenvalue``   log l_m
``effective rank``           exp(-sum_i p_i log p_i), p_i = l_i / sum_j l_j; in [1, m] [1]_
``mean |rho|``               mean of abs(rho[a,b]) over *all* pairs a != b (m >= 2)
===========================  ====================================================================

Norms and the determinant enter through logarithms because their laws are close to lognormal: a
distance between heavy tails says little at any affordable number of samples.

References
----------
.. [1] O. Roy, M. Vetterli. The effective rank: a measure of effective dimensionality. EUSIPCO 2007.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.special import entr

from shaped_attention.checks import argument_error, real_array, with_types
from shaped_attention.numerics.covariance import correlations
from shaped_attention.numerics.result_axis import (
    axis_of,
    check_result,
    place_index,
    saved_places,
    stopping_times,
)

MOST_TOKENS = 8
_TINY = float(np.finfo(np.float64).tiny)

STOPPING = "stopping time"

LABELS = {
    "log det V": r"$\log\,\det V$",
    "log trace V": r"$\log\,\mathrm{tr}\,V$",
    "log largest eigenvalue": r"$\log\,\lambda_{\max}(V)$",
    "effective rank": "effective rank of $V$",
    "mean |rho|": r"mean $|\rho|$",
}
"""How figures write the names of observables of all tokens."""


def support_of(observable: str, tokens: int, time: float = math.inf) -> tuple[float, float]:
    """Return the ends of the range of an observable."""
    if observable.startswith("rho["):
        return -1.0, 1.0
    known = {
        "mean |rho|": (0.0, 1.0),
        "effective rank": (1.0, float(tokens)),
        STOPPING: (0.0, time),
    }
    return known.get(observable, (-math.inf, math.inf))


@with_types
def observables(
    V: ArrayLike, tokens: Sequence[int] | None = None, *, precision: float | None = None
) -> dict[str, NDArray[np.float64]]:
    """Compute the scalar observables of every covariance in a sample.

    Every value is finite, also for singular V (repeated tokens, rank below m, zero tokens). For
    ``log det V``, eigenvalues are floored at f = ``precision * m * l_m``, the size of their
    rounding error. The logarithm of zero is taken at the smallest normal float64 (-708.4). ``rho``
    with a zero token is 0, and so is the effective rank of V = 0.

    Parameters
    ----------
    V
        Covariances, shape (samples, m, m), finite, symmetric and positive semidefinite up to
        rounding.
    tokens
        Tokens used for ``log V[a,a]`` and ``rho[a,b]``: distinct integers in [0, m). Default: all
        tokens up to m = 8, beyond that 8 evenly spaced ones including the first and the last. The
        remaining observables always use all of V.
    precision
        Relative rounding error of the entries of V. Default: the machine epsilon of its dtype.

    Returns
    -------
    dict
        Values of shape (samples,), float64, by name, in the order of the table above.

    Raises
    ------
    ValueError
        If V does not have this shape or is not finite, symmetric and positive semidefinite, or if
        `tokens` are not distinct integers in [0, m).
    """
    values = real_array(V, "V")
    dtype, V = np.asarray(V).dtype, values
    if V.ndim != 3 or V.shape[1] != V.shape[2] or V.shape[1] == 0:
        raise ValueError(f"V must be of shape (samples, m, m) with m >= 1; got shape {V.shape}")
    if precision is None:
        precision = float(np.finfo(dtype if dtype.kind == "f" else np.float64).eps)
    m = V.shape[1]
    chosen = _chosen_tokens(m, tokens)
    eigenvalues = _eigenvalues(V, precision)

    diagonal = np.maximum(np.diagonal(V, axis1=1, axis2=2), 0.0)
    rho = correlations(V)
    rho[:, np.arange(m), np.arange(m)] = 0.0
    trace = diagonal.sum(axis=1)
    largest = np.maximum(eigenvalues[:, -1], 0.0)
    floor = np.maximum(precision * m * largest, _TINY)

    result = {f"log V[{a},{a}]": _log(diagonal[:, a]) for a in chosen}
    for i, a in enumerate(chosen):
        result.update({f"rho[{a},{b}]": rho[:, a, b].copy() for b in chosen[i + 1 :]})
    result["log det V"] = np.log(np.maximum(eigenvalues, floor[:, None])).sum(axis=1)
    result["log trace V"] = _log(trace)
    result["log largest eigenvalue"] = _log(largest)
    result["effective rank"] = _effective_rank(eigenvalues)
    if m >= 2:
        # The diagonal of rho is zero here, so the full sum is the sum over ordered pairs.
        result["mean |rho|"] = np.abs(rho).sum(axis=(1, 2)) / (m * (m - 1))
    return result


def observables_of(
    result: xr.Dataset,
    at: float,
    tokens: Sequence[int] | None = None,
    *,
    cap: float | None = None,
    precision: float | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Compute the observables of a result at one saved time or position, and its stopping times.

    Parameters
    ----------
    result
        Result with ``V (time, sample, row, col)`` or ``V (position, sample, row, col)``, and
        ``stopping_time (sample)`` if paths may stop.
    at
        A saved time or position, matched to within 1e-9 (for rounding: laws are never
        interpolated).
    tokens, precision
        As in `observables`.
    cap
        Upper bound of ``stopping time``, which makes paths that never stop (+inf) comparable.
        Default: the last time of the result.

    Returns
    -------
    dict
        Values of shape (samples,) by name: those of `observables`, then ``stopping time`` if the
        result has it.

    Raises
    ------
    ValueError
        If `result` is not such a Dataset, the time was not saved, a stopping time is NaN, or
        `observables` raises it.
    """
    check_result(result, "result")
    values = observables(covariances_at(result, at), tokens, precision=precision)
    if "stopping_time" in result:
        last = float(saved_places(result)[-1]) if cap is None else cap
        values[STOPPING] = np.minimum(stopping_times(result), last)
    return values


def covariances_at(result: xr.Dataset, at: float) -> NDArray[np.float64]:
    """Return V (samples, m, m) of a result at a saved time or position."""
    chosen = result["V"].isel({axis_of(result): place_index(result, at)})
    return chosen.transpose("sample", "row", "col").to_numpy()


def _chosen_tokens(m: int, tokens: Sequence[int] | None) -> list[int]:
    if tokens is None:
        return sorted({round(a) for a in np.linspace(0, m - 1, min(m, MOST_TOKENS))})
    chosen = list(tokens)
    integers = all(isinstance(a, (int, np.integer)) and 0 <= a < m for a in chosen)
    if not chosen or not integers or len(set(chosen)) != len(chosen):
        raise argument_error("tokens", f"distinct integers in [0, {m - 1}]", tokens)
    return sorted(int(a) for a in chosen)


def _eigenvalues(V: NDArray[np.float64], precision: float) -> NDArray[np.float64]:
    """Return the ascending eigenvalues (samples, m) of covariances; check these up to rounding."""
    bad = int((~np.isfinite(V).all(axis=(1, 2))).sum())
    if bad:
        raise ValueError(f"V must be finite; it has infinities or NaN in {bad} of {len(V)} samples")
    # Rounding errors add up along a path of many layers, hence the square root. A matrix beyond
    # this slack is not a covariance, and flooring its eigenvalues would hide that.
    slack = np.sqrt(precision) * np.abs(V).max(axis=(1, 2), initial=0.0)
    skew = np.abs(V - V.transpose(0, 2, 1)).max(axis=(1, 2), initial=0.0)
    eigenvalues = np.linalg.eigvalsh(V).astype(np.float64, copy=False)
    wrong = (skew > slack) | (eigenvalues[:, 0] < -slack)
    if wrong.any():
        raise ValueError(
            "V must be symmetric and positive semidefinite; it is not, beyond rounding, in "
            f"{int(wrong.sum())} of {len(V)} samples"
        )
    return eigenvalues


def _effective_rank(eigenvalues: NDArray[np.float64]) -> NDArray[np.float64]:
    positive = np.maximum(eigenvalues, 0.0)
    total = positive.sum(axis=1)
    share = np.divide(
        positive, total[:, None], out=np.zeros_like(positive), where=total[:, None] > 0
    )
    return np.where(total > 0, np.exp(entr(share).sum(axis=1)), 0.0)


def _log(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.log(np.maximum(values, _TINY))
