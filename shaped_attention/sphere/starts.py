"""Unit tokens (samples, N, r): initial conditions with a given law, and their normalisation."""

from __future__ import annotations

import math
from enum import IntEnum

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

from shaped_attention.checks import (
    argument_error,
    check_count,
    check_finite,
    check_width,
    real_array,
    with_types,
)
from shaped_attention.numerics.draws import Draws, stream_key

_UNIT = 1e-6
"""Largest error of the norm of a token that is taken as it is."""


class SpherePart(IntEnum):
    """Parts of the stream "sphere", one for each function that draws from it. Append only.

    Starts in reduced coordinates use the stream itself.
    """

    NOISY_CHAIN = 1
    NOISY_NETWORK = 2
    TOKENS = 11


@with_types
def uniform_start(
    tokens: int,
    dimension: int,
    samples: int = 1,
    seed: int = 0,
    *,
    reduced: bool = True,
) -> Float[Tensor, "samples N r"]:
    """Draw independent uniform tokens on S^{d-1}, rotated into at most N + 1 coordinates.

    N Gaussian vectors in R^d are L Q, where Q has orthonormal rows and L is Bartlett's factor of a
    Wishart_N(d) matrix (the Gaussian matrix itself if d < N + 2). The tokens are the rows of L
    divided by their norms, so r = d if d < N + 2 and r = N otherwise.

    Parameters
    ----------
    tokens, dimension
        Number of tokens N, and dimension d of the ambient space.
    samples, seed
        Number of samples, and seed (integer >= 0); a sample depends only on its index and the seed.
    reduced
        False keeps all d coordinates, which `TokenAttention` needs. The Gram matrices then have the
        same law, but differ for the same seed.

    Raises
    ------
    ValueError
        If an argument is not an integer in its range.
    """
    check_count("tokens", tokens)
    check_width("dimension", dimension)
    check_count("samples", samples)
    check_count("seed", seed, lowest=0)
    numbers = torch.arange(samples, device="cpu")
    if reduced:
        draws = Draws(stream_key(seed, "sphere"), numbers, 0)
        return unit_rows(draws.wishart_factor(tokens, dimension))
    draws = Draws(stream_key(seed, "sphere", SpherePart.TOKENS), numbers, 0)
    return unit_rows(draws.normal(tokens, dimension))


@with_types
def equiangular_start(tokens: int, cosine: float) -> Float[Tensor, "1 N N"]:
    """Return tokens any two of which have the same cosine, in [-1 / (N - 1), 1].

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    check_count("tokens", tokens)
    check_finite("cosine", cosine)
    smallest = -1.0 / (tokens - 1) if tokens > 1 else -1.0
    if not smallest - 1e-12 <= cosine <= 1.0:
        raise argument_error("cosine", f"in [{smallest:.6g}, 1] for {tokens} tokens", cosine)
    # The symmetric root of (1 - c) I + c 11^T.
    other = math.sqrt(1.0 - cosine)
    mean = math.sqrt(max(1.0 - cosine + tokens * cosine, 0.0))
    ones = torch.full((tokens, tokens), (mean - other) / tokens, dtype=torch.float64)
    root = other * torch.eye(tokens, dtype=torch.float64) + ones
    return unit_rows(root)[None]


def given_start(tokens: ArrayLike) -> Float[Tensor, "samples N r"]:
    """Return the directions of tokens (samples, N, d) or (N, d), in min(N, d) coordinates.

    Raises
    ------
    ValueError
        If the shape is invalid, or a token is zero or not finite.
    """
    array = real_array(tokens, "tokens")
    array = array[None] if array.ndim == 2 else array
    if array.ndim != 3 or 0 in array.shape:
        raise argument_error("tokens", "of shape (N, d) or (samples, N, d)", np.shape(tokens))
    unit = unit_rows(torch.from_numpy(array))
    if not bool(torch.isfinite(unit).all()):
        raise ValueError("tokens must be finite and not zero, as a zero vector has no direction")
    if unit.shape[-1] <= unit.shape[-2]:
        return unit
    # X^T = Q R: the columns of R are the tokens in the coordinates of their span.
    return unit_rows(torch.linalg.qr(unit.mT).R.mT)


def check_start(start: Tensor) -> None:
    """Raise ValueError unless `start` holds unit tokens (samples, N, r)."""
    if not isinstance(start, Tensor) or start.ndim != 3 or start.numel() == 0:
        shape = tuple(start.shape) if isinstance(start, Tensor) else type(start).__name__
        raise ValueError(
            f"start must be a tensor (samples, N, r), such as given_start(tokens); got {shape}"
        )
    if not bool(((start.norm(dim=-1) - 1.0).abs() < _UNIT).all()):
        raise ValueError("start must hold unit vectors; it has tokens that are not of norm 1")


def unit_rows(x: Float[Tensor, "*B N r"]) -> Float[Tensor, "*B N r"]:
    """Return the rows of x (..., N, r) divided by their norms; rows of zeros become NaN."""
    return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)
