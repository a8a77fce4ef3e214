"""Numbers of tokens, as a tokenizer gives them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.architectures.model import Embedding
from shaped_attention.checks import check_count, real_array


def given_covariance(tokens: Any) -> NDArray[np.float64] | None:
    """Return a covariance (m, m), or one per sample, that is given as `tokens`; else None.

    Raises
    ------
    ValueError
        If it is an array of two or more axes that is no such covariance: a batch of numbers.
    """
    array = real_array(tokens, "tokens")
    if array.ndim < 2:
        return None
    given = np.asarray(tokens)
    square = array.ndim in (2, 3) and array.shape[-2] == array.shape[-1]
    if not square or (
        given.dtype.kind in "iu" and not np.array_equal(array, array.swapaxes(-1, -2))
    ):
        raise _neither(given)
    return array


def _neither(tokens: NDArray[Any]) -> ValueError:
    """Return the error for an array that is neither a list of numbers nor a covariance."""
    return ValueError(
        f"tokens has shape {tokens.shape} and type {tokens.dtype}; a number of tokens, a list of "
        "token numbers (ids) of one text, or a covariance (m, m) is needed"
    )


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
            raise ValueError(
                f"tokens={tokens}: at most {len(present)}, the different tokens of the "
                "vocabulary, are needed"
            )
        ids = present[:tokens]
    else:
        ids = np.asarray(tokens)
        if ids.ndim != 1 or ids.size == 0 or ids.dtype.kind not in "iu":
            raise _neither(ids)
        outside = ids[(ids < 0) | (ids >= vocabulary)]
        if outside.size:
            raise ValueError(
                f"tokens contains {int(outside[0])}: ids from 0 to {vocabulary - 1} are needed"
            )
    if embedding.positions is not None and len(ids) > embedding.positions:
        raise ValueError(
            f"tokens: {len(ids)} tokens are more than the {embedding.positions} positions of the "
            "model"
        )
    zero = np.isin(ids, embedding.zero_ids)
    placed = embedding.position_std > 0.0 and not embedding.zero_positions
    if zero.any() and not placed and embedding.common_std == 0.0:
        raise ValueError(
            f"tokens contains {int(ids[zero][0])}, the padding id, whose embedding is a row of "
            "zeros; other ids are needed"
        )
    return ids.astype(np.int64)
