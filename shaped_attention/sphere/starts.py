"""Initial conditions on the sphere: tokens (samples, N, r) with a given law."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

from shaped_attention.checks import check_count, check_finite, check_width, real_array, with_types
from shaped_attention.numerics.draws import Draws, stream_key
from shaped_attention.samplers.devices import check_device
from shaped_attention.sphere.unit_vectors import unit_rows

_UNIT = 1e-6


@with_types
def uniform_start(
    tokens: int,
    dimension: int,
    samples: int = 1,
    seed: int = 0,
    *,
    device: str | torch.device = "cpu",
) -> Float[Tensor, "samples N r"]:
    """Draw independent uniform tokens on S^{d-1}, rotated into at most N + 1 coordinates.

    N Gaussian vectors in R^d are L Q, where Q has orthonormal rows and L is Bartlett's factor of a
    Wishart_N(d) matrix (the Gaussian matrix itself if d < N + 2). The tokens are the rows of L
    divided by their norms, so r = d if d < N + 2 and r = N otherwise. They depend on the device
    only by rounding.

    Raises
    ------
    ValueError
        If an argument is not an integer in its range, or the device is unknown or unavailable.
    """
    check_count("tokens", tokens)
    check_width("dimension", dimension)
    check_count("samples", samples)
    check_count("seed", seed, lowest=0)
    numbers = torch.arange(samples, device=check_device(device))
    draws = Draws(stream_key(seed, "sphere"), numbers, 0)
    return unit_rows(draws.wishart_factor(tokens, dimension))


@with_types
def equiangular_start(tokens: int, cosine: float) -> Float[Tensor, "1 N N"]:
    """Return tokens with the same cosine, in [-1 / (N - 1), 1], between any two.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    check_count("tokens", tokens)
    check_finite("cosine", cosine)
    smallest = -1.0 / (tokens - 1) if tokens > 1 else -1.0
    if not smallest - 1e-12 <= cosine <= 1.0:
        raise ValueError(
            f"cosine={cosine!r}: a number from {smallest:.6g} to 1 is needed for {tokens} tokens"
        )
    # The symmetric root of (1 - c) I + c 11^T.
    other = math.sqrt(1.0 - cosine)
    mean = math.sqrt(max(1.0 - cosine + tokens * cosine, 0.0))
    ones = torch.full((tokens, tokens), (mean - other) / tokens, dtype=torch.float64)
    root = other * torch.eye(tokens, dtype=torch.float64) + ones
    return unit_rows(root)[None]


def given_start(tokens: ArrayLike, normalise: bool = False) -> Float[Tensor, "samples N r"]:
    """Return given tokens (N, d) or (samples, N, d), rotated into min(N, d) coordinates.

    Parameters
    ----------
    tokens
        Unit vectors, or any nonzero vectors with `normalise`.
    normalise
        Whether to divide them by their norms.

    Raises
    ------
    ValueError
        If the shape is invalid, an entry is not finite, or a token is zero or not of norm 1.
    """
    array = real_array(tokens, "tokens")
    array = array[None] if array.ndim == 2 else array
    if array.ndim != 3 or 0 in array.shape:
        raise ValueError(
            f"tokens have shape {np.shape(tokens)}; (N, d) or (samples, N, d) is needed"
        )
    if not np.isfinite(array).all():
        raise ValueError("tokens have NaN or infinite entries; finite numbers are needed")
    given = torch.from_numpy(array)
    if not bool(given.any(-1).all()):
        raise ValueError("tokens contain a zero vector, which has no direction")
    norms = torch.linalg.vector_norm(given, dim=-1)
    if not normalise and bool(((norms - 1.0).abs() > _UNIT).any()):
        raise ValueError(
            f"tokens have norms from {norms.min():.9g} to {norms.max():.9g}; unit vectors are "
            "needed (or normalise=True)"
        )
    unit = unit_rows(given)
    if unit.shape[-1] <= unit.shape[-2]:
        return unit
    # X^T = Q R: the columns of R are the tokens in the coordinates of their span.
    return unit_rows(torch.linalg.qr(unit.mT).R.mT)
