"""Phase diagrams of clustering for random query, key and value matrices.

The ensembles are the four of Geshkovski, Letrouit, Polyanskiy and Rigollet (arXiv 2312.10794): with
independent matrices, and with V = Q^T K, which is a gradient flow if Q^T K is symmetric.

Entries have variance 1/d (2/d on the diagonal of a Wigner matrix). So in any dimension the norm of
a Ginibre or Wigner matrix is 2 and a random vector keeps its length on average. This sets the scale
of beta: variance s^2 / d for Q and K (`scale`) is the same as beta multiplied by s^2 and, if
V = Q^T K, a clock s^2 times as fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

from shaped_attention.checks import (
    check_choice,
    check_count,
    check_inside,
    check_positive,
    check_values,
)
from shaped_attention.numerics.draws import Draws, stream_key
from shaped_attention.progress import progress_bar
from shaped_attention.results.provenance import recorded
from shaped_attention.sphere.clusters import close_pairs
from shaped_attention.sphere.figures.phase_diagram import BETAS
from shaped_attention.sphere.flow import checked_times
from shaped_attention.sphere.random_parts import SpherePart
from shaped_attention.sphere.token_attention import TokenAttention
from shaped_attention.sphere.token_flow import random_tokens, token_flow

ENSEMBLES = ("ginibre", "wigner-psd", "ginibre-gradient", "wigner-gradient")

_CHUNK = 64
"""Number of samples whose matrices are in memory together."""


def random_attention(
    ensemble: str,
    dimension: int,
    beta: float,
    samples: int = 1,
    seed: int = 0,
    *,
    first: int = 0,
    normalised: bool = True,
    scale: float = 1.0,
) -> TokenAttention:
    """Draw the random matrices of one head, independently for each sample.

    Parameters
    ----------
    ensemble
        - "ginibre": Q, K and V independent with independent normal entries of variance 1/d;
        - "wigner-psd": Q^T K = W from the GOE, W = (G + G^T) / sqrt(2) with G Ginibre (entries of
          variance 1/d, 2/d on the diagonal, eigenvalues in [-2, 2] for large d); V = |W'|, the
          matrix absolute value of an independent W': symmetric, positive semidefinite;
        - "ginibre-gradient": Q and K Ginibre, V = Q^T K (not symmetric: no gradient flow);
        - "wigner-gradient": Q^T K = W and V = W: a gradient flow.

        If only Q^T K is given, K = W and Q = I.
    dimension, samples
        Dimension d and number of samples.
    beta, normalised
        As for `TokenAttention`.
    seed, first
        Seed (integer >= 0), and index of the first sample: the matrices of a sample depend only on
        the seed and its index.
    scale
        Factor s > 0 of Q and K. Ginibre matrices then have entries of variance s^2 / d, and
        Q^T K = s^2 W for Wigner matrices. V changes only if it is Q^T K.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    check_choice("ensemble", ensemble, ENSEMBLES)
    check_count("dimension", dimension)
    check_count("samples", samples)
    check_count("seed", seed, lowest=0)
    check_count("first", first, lowest=0)
    check_positive("scale", scale)
    key_of_stream = stream_key(seed, "sphere", SpherePart.MATRICES)
    draws = Draws(key_of_stream, torch.arange(first, first + samples, device="cpu"), 0)
    query: Tensor | None = None
    if ensemble.startswith("wigner"):
        key = scale * scale * _wigner(draws, dimension)
        value = _absolute(_wigner(draws, dimension)) if ensemble == "wigner-psd" else key
    else:
        query = scale * _ginibre(draws, dimension)
        key = scale * _ginibre(draws, dimension)
        value = _ginibre(draws, dimension) if ensemble == "ginibre" else query.mT @ key
    return TokenAttention(
        beta,
        None if query is None else query[:, None],
        key[:, None],
        value[:, None],
        normalised,
    )


@recorded()
def ensemble_phase(
    ensembles: Sequence[str] = ENSEMBLES,
    betas: Sequence[float] = BETAS,
    times: ArrayLike | None = None,
    *,
    tokens: int = 32,
    dimension: int = 128,
    delta: float = 1e-3,
    samples: int = 64,
    seed: int = 0,
    tolerance: float = 1e-3,
    normalised: bool = True,
    scale: float = 1.0,
    progress: bool | None = None,
) -> xr.Dataset:
    """Compute the probability that two tokens are close, for random matrices and uniform tokens.

    Parameters
    ----------
    ensembles
        Ensembles of matrices, one for each panel, from ginibre, wigner-psd, ginibre-gradient and
        wigner-gradient.
    betas
        Inverse temperatures beta, one for each row.
    times
        Increasing times >= 0; by default 61 from 0 to 30.
    tokens
        Number of tokens N >= 2.
    dimension
        Dimension d of the ambient space and size of the matrices.
    delta
        Two tokens are close if their cosine is at least 1 - delta; strictly between 0 and 1.
    samples
        Number of realisations; all beta share their matrices and initial tokens.
    seed
        Seed of the random numbers (integer >= 0).
    tolerance
        Largest local error of a token per step of the flow.
    normalised
        Whether attention is normalised by its sum (SA) or not (USA).
    scale
        Factor s > 0 of Q and K (see `random_attention`).
    progress
        Whether to show a progress bar; None shows it if the error stream is a terminal.

    Returns
    -------
    xarray.Dataset with `probability` (ensemble, beta, time), the mean over realisations and pairs
    of tokens of 1{<x_i, x_j> >= 1 - delta}.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    check_count("tokens", tokens, lowest=2)
    at = checked_times(np.linspace(0.0, 30.0, 61) if times is None else times)
    check_values("ensembles", ensembles)
    check_values("betas", betas)
    for ensemble in ensembles:
        check_choice("ensembles", ensemble, ENSEMBLES)
    for beta in betas:
        TokenAttention(float(beta), normalised=normalised)
    check_inside("delta", delta)
    close = partial(close_pairs, delta=delta)
    starts = random_tokens(tokens, dimension, samples, seed)
    found = np.zeros((len(ensembles), len(betas), len(at)))
    parts = list(product(enumerate(ensembles), range(0, samples, _CHUNK)))
    with progress_bar("flows", progress, total=len(parts) * len(betas)) as bar:
        for (i, ensemble), first in parts:
            start = starts[first : first + _CHUNK]
            drawn = random_attention(
                ensemble, dimension, 0.0, len(start), seed,
                first=first, normalised=normalised, scale=scale,
            )  # fmt: skip
            for j, beta in enumerate(betas):
                attention = replace(drawn, beta=float(beta))
                flow = token_flow(attention, start, at.tolist(), observe=close, tolerance=tolerance)
                found[i, j] += flow["observed"].sum("sample").values
                bar.update()
    return xr.Dataset(
        {"probability": (("ensemble", "beta", "time"), found / samples)},
        coords={"ensemble": list(ensembles), "beta": list(betas), "time": at},
        attrs={"attention": "SA" if normalised else "USA"},
    )


def _ginibre(draws: Draws, dimension: int) -> Float[Tensor, "B d d"]:
    return draws.normal(dimension, dimension) / dimension**0.5


def _wigner(draws: Draws, dimension: int) -> Float[Tensor, "B d d"]:
    square = _ginibre(draws, dimension)
    return (square + square.mT) / 2.0**0.5


def _absolute(symmetric: Float[Tensor, "B d d"]) -> Float[Tensor, "B d d"]:
    """Return (W^2)^{1/2}."""
    values, vectors = torch.linalg.eigh(symmetric)
    return (vectors * values.abs()[:, None, :]) @ vectors.mT
