"""Attention scores as a bilinear form Omega in homogeneous coordinates.

    (X W_Q + 1 b_Q^T)(X W_K + 1 b_K^T)^T = X~ Omega X~^T,    x~ = (x, 1),
    Omega = [[W_Q W_K^T, W_Q b_K], [b_Q^T W_K^T, b_Q^T b_K]],

of rank at most n_k. Its singular value decomposition Omega = sum_k sigma_k u_k v_k^T shows which
features of a query (u_k) attend to which features of a key (v_k).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from shaped_attention.checks import argument_error, check_count, real_array, with_types
from shaped_attention.results.provenance import recorded

__all__ = ["initial_spectrum", "leading_directions", "score_form", "scores", "truncation_cost"]

Matrix = NDArray[np.float64]


def score_form(
    query: ArrayLike,
    key: ArrayLike,
    query_bias: ArrayLike | None = None,
    key_bias: ArrayLike | None = None,
) -> Matrix:
    """Return Omega (d + 1, d + 1) of weights W_Q, W_K (d, n_k) and biases b_Q, b_K (n_k).

    Raises
    ------
    ValueError
        If the shapes do not match, or an entry is not finite.
    """
    w_q, w_k = (_finite(w, name) for w, name in ((query, "query"), (key, "key")))
    if w_q.ndim != 2 or w_q.shape != w_k.shape:
        raise ValueError(
            f"query and key must have the same shape (d, n_k); got {w_q.shape} and {w_k.shape}"
        )
    rows = []
    for weights, bias, name in ((w_q, query_bias, "query_bias"), (w_k, key_bias, "key_bias")):
        b = np.zeros(weights.shape[1]) if bias is None else _finite(bias, name)
        if b.shape != (weights.shape[1],):
            raise argument_error(name, f"of shape ({weights.shape[1]},)", b)
        rows.append(np.vstack([weights, b]))
    return rows[0] @ rows[1].T


def scores(omega: ArrayLike, tokens: ArrayLike) -> Matrix:
    """Return X~ Omega X~^T (..., m, m) for tokens (..., m, d); divide by sqrt(n_k) for logits.

    Raises
    ------
    ValueError
        If the shapes do not match.
    """
    form, x = _form(omega), _finite(tokens, "tokens")
    if x.ndim < 2 or x.shape[-1] != len(form) - 1:
        raise argument_error("tokens", f"of shape (..., m, {len(form) - 1})", x)
    extended = np.concatenate([x, np.ones((*x.shape[:-1], 1))], axis=-1)
    return extended @ form @ extended.swapaxes(-1, -2)


@recorded()
def leading_directions(omega: ArrayLike, rank: int) -> xr.Dataset:
    """Compute the `rank` largest singular values of Omega and their directions.

    Returns
    -------
    xarray.Dataset with `value` (term), `query` and `key` (term, feature); the last feature is the
    constant 1. The sum of value_k query_k key_k^T over all k is Omega.

    Raises
    ------
    ValueError
        If `rank` is not in [1, d + 1].
    """
    form = _form(omega)
    check_count("rank", rank)
    if rank > len(form):
        raise argument_error("rank", f"at most {len(form)}", rank)
    u, s, vt = np.linalg.svd(form)
    return xr.Dataset(
        {
            "value": ("term", s[:rank]),
            "query": (("term", "feature"), u.T[:rank]),
            "key": (("term", "feature"), vt[:rank]),
        }
    )


@recorded()
def truncation_cost(omega: ArrayLike, tokens: ArrayLike, ranks: Sequence[int]) -> xr.Dataset:
    """Compute the error of truncating Omega to its leading terms, also in the scores of tokens.

    Returns
    -------
    xarray.Dataset with `form` (rank), the relative Frobenius error of Omega, which is the smallest
    possible at that rank (Eckart and Young, Psychometrika 1, 1936), and `scores` (rank), that of
    the scores without the mean of each row, to which the softmax is invariant.

    Raises
    ------
    ValueError
        If a shape does not match or a rank is outside its range.
    """
    form = _form(omega)
    whole = scores(form, tokens)
    u, s, vt = np.linalg.svd(form)
    errors: dict[str, list[float]] = {"form": [], "scores": []}
    for rank in ranks:
        check_count("ranks", rank, lowest=0)
        missing = whole - scores((u[:, :rank] * s[:rank]) @ vt[:rank], tokens)
        errors["form"].append(float(np.linalg.norm(s[rank:]) / np.linalg.norm(s)))
        size = np.linalg.norm(_centred(missing)) / np.linalg.norm(_centred(whole))
        errors["scores"].append(float(size))
    return xr.Dataset({name: ("rank", x) for name, x in errors.items()}, {"rank": list(ranks)})


@with_types
def initial_spectrum(x: ArrayLike, ratio: float) -> NDArray[np.float64]:
    """Return the limiting density at x of sigma^2 / d^2 for Omega = W_Q W_K^T at initialisation.

    The limit is d -> oo with n_k = ratio d. W_Q and W_K (d, n_k) have independent N(0, 1) entries,
    ratio in (0, 1]. The n_k nonzero squared singular values are the eigenvalues of the product of
    two independent Wishart matrices, whose law is the free multiplicative convolution of two
    Marchenko-Pastur laws: psi(1/x) solves x psi = (1 + psi)(1 + ratio psi)^2, and the density is
    -Im psi / (pi x) on the root with Im psi < 0 (Voiculescu, J. Operator Theory 18, 1987; Burda et
    al., Phys. Rev. E 82, 2010). It has mean 1 and second moment 1 + 2 ratio.

    Raises
    ------
    ValueError
        If `ratio` is outside (0, 1] or an x is not positive.
    """
    points = _finite(x, "x")
    if not 0.0 < ratio <= 1.0:
        raise argument_error("ratio", "in (0, 1]", ratio)
    if (points <= 0.0).any():
        raise argument_error("x", "positive", x)
    density = np.zeros(points.shape)
    for index, value in np.ndenumerate(points):
        # (1 + psi)(1 + c psi)^2 - x psi, highest power first.
        cubic = [ratio**2, ratio * (2 + ratio), 1 + 2 * ratio - value, 1.0]
        density[index] = max(0.0, -np.roots(cubic).imag.min()) / (np.pi * value)
    return density


def _centred(values: Matrix) -> Matrix:
    return values - values.mean(-1, keepdims=True)


def _form(omega: ArrayLike) -> Matrix:
    form = _finite(omega, "omega")
    if form.ndim != 2 or form.shape[0] != form.shape[1] or len(form) < 2:
        raise argument_error("omega", "of shape (d + 1, d + 1)", form)
    return form


def _finite(values: ArrayLike, name: str) -> Matrix:
    array = real_array(values, name, trained=True)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite; it has NaN or infinite entries")
    return array
