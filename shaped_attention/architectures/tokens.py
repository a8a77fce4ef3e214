"""The tokens of a model: their numbers, as a tokenizer gives them, and their embedding.

The tokens are X_0 = scale S G, where the rows of G (q, n) are the independent Gaussian vectors of
different token numbers, positions and, at the end, the common one; S (m, q) has their standard
deviations. Given its Gram, G has uniformly distributed directions, so that G / sqrt n has the
factor B / sqrt n, with B B^T ~ Wishart_q(n). With LayerNorm the component along the constant
vector, a Gaussian column g, is kept apart: the factor is [g, B'] / sqrt n with n - 1 degrees of
freedom.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.architectures.model import Embedding, Norm
from shaped_attention.blocks.normalised import normed
from shaped_attention.checks import argument_error, check_count, real_array
from shaped_attention.libraries import torch
from shaped_attention.numerics.named_numbers import TorchNumbers
from shaped_attention.numerics.primitives import lower
from shaped_attention.rows import step
from shaped_attention.rows.step import State
from shaped_attention.samplers.specification import Specification

Array = NDArray[np.float64]

_TOKENS = "a number of tokens, a list of token numbers (ids) of one text, or a covariance (m, m)"


def given_covariance(tokens: Any) -> Array | None:
    """Return a covariance (m, m), or one per sample, that is given as `tokens`; else None.

    Raises
    ------
    ValueError
        If it is an array of two or more axes that is no such covariance: a batch of numbers.
    """
    array = real_array(tokens, "tokens")
    if array.ndim < 2:
        return None
    integers = np.asarray(tokens).dtype.kind in "iu"
    square = array.ndim in (2, 3) and array.shape[-2] == array.shape[-1]
    if not square or (integers and not np.array_equal(array, array.swapaxes(-1, -2))):
        raise argument_error("tokens", _TOKENS, tokens)
    return array


def checked_ids(embedding: Embedding, tokens: Any) -> NDArray[np.int64]:
    """Return the numbers of tokens (m,), from a list of these or from their count.

    Raises
    ------
    ValueError
        If a number is outside the vocabulary, there are more tokens than positions, or a token
        would be zero.
    """
    vocabulary = embedding.vocabulary
    if isinstance(tokens, int | np.integer) and not isinstance(tokens, bool):
        check_count("tokens", int(tokens))
        present = np.delete(np.arange(vocabulary), list(embedding.zero_ids))
        if tokens > len(present):
            most = f"at most {len(present)}, the number of distinct tokens in the vocabulary"
            raise argument_error("tokens", most, tokens)
        ids = present[:tokens]
    else:
        ids = np.asarray(tokens)
        if ids.ndim != 1 or ids.size == 0 or ids.dtype.kind not in "iu":
            raise argument_error("tokens", _TOKENS, tokens)
        outside = ids[(ids < 0) | (ids >= vocabulary)]
        if outside.size:
            raise argument_error("tokens", f"ids in [0, {vocabulary - 1}]", int(outside[0]))
    if embedding.positions is not None and len(ids) > embedding.positions:
        most = (
            f"at most {embedding.positions}, the number of positions in the configuration "
            "(max_position_embeddings, or n_positions)"
        )
        raise argument_error("tokens", most, len(ids))
    zero = np.isin(ids, embedding.zero_ids)
    placed = embedding.position_std > 0.0 and not embedding.zero_positions
    if zero.any() and not placed and embedding.common_std == 0.0:
        what = "ids other than that of padding, whose embedding is a row of zeros"
        raise argument_error("tokens", what, int(ids[zero][0]))
    return ids.astype(np.int64)


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

    def states(self, spec: Specification, first: int, count: int) -> Array:
        """Return the states (count, 1, m, c) of some samples."""
        assert spec.width is not None
        pad = torch.nn.functional.pad
        rows = torch.from_numpy(rows_of(self.embedding, self.ids))
        samples = torch.arange(first, first + count, device="cpu")
        numbers = TorchNumbers(spec.keys, samples, 0)
        q, root = rows.shape[1], spec.width**0.5
        parts = []
        if spec.means:
            parts.append(numbers.normal("embedding, means", q, 1))
        parts.append(numbers.wishart("embedding", q, spec.width - spec.means))
        start = rows.expand(count, *rows.shape) @ (torch.cat(parts, dim=-1) / root)
        start = pad(start, (0, max(0, spec.columns - start.shape[-1])))
        means, body = start[..., : spec.means], start[..., spec.means :]
        factor = torch.cat([means, lower(body) if body.shape[-1] >= spec.tokens else body], dim=-1)
        factor = pad(factor, (0, spec.columns - factor.shape[-1]))
        state = normalised(State((factor,), spec.means), self.embedding.norm, spec.width)
        result: Array = state.factors[0][:, None].numpy()
        return result


def normalised(state: State, norm: Norm | None, width: int) -> State:
    """Return the state of tokens after a norm."""
    if norm is None:
        return state
    return step.normalised(state, lambda tokens: normed(tokens, norm.kind, norm.eps), width)
