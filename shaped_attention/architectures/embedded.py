"""Tokens as an embedding makes them, in the coordinates of the chain.

The tokens are X_0 = scale S G, where the rows of G (q, n) are the independent Gaussian vectors of
different token numbers, positions and, at the end, the common one; S (m, q) has their standard
deviations. Given its Gram, G has uniformly distributed directions, so that G / sqrt n has the
factor B / sqrt n, with B B^T ~ Wishart_q(n). With LayerNorm the component along the constant
vector, a Gaussian column g, is kept apart: the factor is [g, B'] / sqrt n with n - 1 degrees of
freedom.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shaped_attention.architectures.model import Embedding, Norm
from shaped_attention.blocks.branch import added
from shaped_attention.blocks.norms import centred, divided
from shaped_attention.blocks.state import State
from shaped_attention.lazy_torch import Tensor, torch
from shaped_attention.numerics.named_numbers import TorchNumbers
from shaped_attention.samplers.task import Task

Array = NDArray[np.float64]


def rows_of(embedding: Embedding, ids: NDArray[np.int64]) -> Array:
    """Return scale S (m, q) for the token numbers `ids` (m,)."""
    _, place = np.unique(ids, return_inverse=True)
    words = np.eye(place.max() + 1)[place] * embedding.std
    zero = np.isin(ids, embedding.zero_ids)
    words[zero] = 0.0
    parts = [words[:, words.any(axis=0)]]
    if embedding.position_std > 0.0:
        places = np.eye(len(ids)) * embedding.position_std
        parts.append(places[:, ~zero] if embedding.zero_positions else places)
    if embedding.common_std > 0.0:
        parts.append(np.full((len(ids), 1), embedding.common_std))
    return embedding.scale * np.concatenate(parts, axis=1)


def mean_covariance(embedding: Embedding, ids: NDArray[np.int64]) -> Array:
    """Return E[X_0 X_0^T / n] (m, m) before the embedding's norm."""
    rows = rows_of(embedding, ids)
    result: Array = rows @ rows.T
    return result


@dataclass(frozen=True)
class EmbeddedStart:
    """The initial states of tokens with given numbers, one independent embedding per sample."""

    embedding: Embedding
    ids: NDArray[np.int64]

    def states(self, task: Task, first: int, count: int) -> Array:
        """Return the states (count, 1, m, c) of some samples."""
        assert task.width is not None
        rows = torch.from_numpy(rows_of(self.embedding, self.ids))
        samples = torch.arange(first, first + count, device="cpu")
        numbers = TorchNumbers(task.keys, samples, 0)
        q, root = rows.shape[1], task.width**0.5
        parts = []
        if task.means:
            parts.append(numbers.normal("embedding, means", q, 1))
        parts.append(numbers.wishart("embedding", q, task.width - task.means))
        start = rows.expand(count, *rows.shape) @ (torch.cat(parts, dim=-1) / root)
        zero = State((start.new_zeros(count, task.tokens, task.columns),), task.means)
        state = _padded(added(zero, [_split(start, task.columns)], 0.0), task.columns)
        state = normalised(state, self.embedding.norm)
        result: Array = state.factors[0][:, None].numpy()
        return result


def normalised(state: State, norm: Norm | None) -> State:
    """Return the state of tokens after a norm."""
    if norm is None:
        return state
    rows = [[factor] for factor in state.factors]
    rows = divided(centred(rows) if norm.kind == "layer" else rows, norm.eps, 1.0)
    return state._replace(factors=tuple(along for (along,) in rows))


def _split(start: Tensor, columns: int) -> list[Tensor]:
    """Return coordinates as those along the columns of a factor, then orthogonal to them."""
    missing = columns - start.shape[-1]
    if missing > 0:
        return [torch.nn.functional.pad(start, (0, missing))]
    return [start[..., :columns], start[..., columns:]] if missing else [start]


def _padded(state: State, columns: int) -> State:
    return state._replace(
        factors=tuple(
            torch.nn.functional.pad(factor, (0, columns - factor.shape[-1]))
            for factor in state.factors
        )
    )
