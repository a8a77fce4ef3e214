"""Where paths start: states with a given covariance, and tokens with a given state.

Without LayerNorm the law of the covariances depends only on V_0. With LayerNorm it also depends on
the direction of 1 relative to the initial tokens. These are X_0 = sqrt(n) F U, with F F^T = V_0 and
the rows of U (c, n) the first c of a uniformly distributed orthogonal matrix: the law of tokens
that a Gaussian matrix has embedded, given their covariance. The means of the tokens are then
h = X_0 1 / n = F o, where o, the first c entries of a uniform unit vector in R^n, is a Gaussian
vector divided by its length. The part of X_0 orthogonal to 1 has the Gram V_0 - h h^T.

Each of several groups of n / g columns starts in this way, with the Gram V_0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shaped_attention.libraries import Tensor, torch
from shaped_attention.numerics.named_numbers import TorchNumbers
from shaped_attention.samplers.specification import Specification

Array = NDArray[np.float64]


def start_states(spec: Specification, first: int, count: int) -> Array:
    """Return the states (count, groups, m, c) in which some samples start."""
    if spec.embedded:
        return spec.embedded(spec, first, count)
    if not spec.means:
        return spec.start_factors(first, count, spec.groups, spec.columns)
    frames = frames_with_means(spec, first, count)
    return spec.start_factors(first, count, spec.groups, frames.shape[-2]) @ frames


def frames_with_means(spec: Specification, first: int, count: int) -> Array:
    """Return U in the basis of a state with means (count, groups, c, k), k = min(c + 1, n / g).

    The first column is o. The others are orthonormal to it once o has been completed to a unit
    vector: they are those of the reflection that exchanges this vector with a coordinate axis.
    """
    assert spec.width is not None
    width = spec.width // spec.groups
    c = min(spec.tokens, width)
    samples = torch.arange(first, first + count, device="cpu")
    numbers = TorchNumbers(spec.keys, samples, 0)
    frames = np.empty((count, spec.groups, c, spec.columns))
    for g in range(spec.groups):
        o = numbers.normal("means of the start", 1, c, g)[:, 0]
        if width > c:
            beyond = numbers.wishart("means of the start, orthogonal", 1, width - c, g)
            o = torch.cat([o, torch.linalg.vector_norm(beyond, dim=-1)], dim=-1)
        unit = o.numpy() / np.linalg.norm(o.numpy(), axis=-1, keepdims=True)
        normal = unit.copy()
        normal[:, 0] += np.copysign(1.0, unit[:, 0])
        normal *= np.sqrt(2.0) / np.linalg.norm(normal, axis=-1, keepdims=True)
        reflection = np.eye(spec.columns) - normal[:, :, None] * normal[:, None, :]
        reflection[:, :, 0] = unit
        frames[:, g] = reflection[:, :c]
    return frames


def tokens_of(states: Tensor, spec: Specification) -> Tensor:
    """Return tokens X (count, m, n) with the given states (count, groups, m, c)."""
    assert spec.width is not None
    width = spec.width // spec.groups
    root = width**0.5 * states
    if spec.means:
        root = root @ torch.from_numpy(_contrasts(states.shape[-1], width)).to(root)
    tokens = states.new_zeros(*states.shape[:-1], width)
    tokens[..., : root.shape[-1]] = root
    return tokens.transpose(1, 2).flatten(2)


def _contrasts(rows: int, width: int) -> Array:
    """Return the first rows of Helmert's matrix: orthonormal, the first one constant."""
    j = np.arange(rows)[:, None]
    i = np.arange(width)[None, :]
    result = np.where(i < j, 1.0, np.where(i == j, -j, 0.0)) / np.sqrt(np.maximum(j * (j + 1), 1))
    result[0] = width**-0.5
    return result
