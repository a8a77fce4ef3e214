"""Which tokens a token may see, and the centre of its weights on them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from shaped_attention.blocks.positions import bias_array, sliding_window
from shaped_attention.checks import check_not_masked

Mask = str | tuple[tuple[bool, ...], ...] | None

_WINDOW = re.compile(r"(causal|local):([1-9][0-9]*)")


def checked_mask(mask: Any) -> Mask:
    """Return None, a named mask, or a boolean (m, m) mask as nested tuples (hashable, plain data).

    Named masks are "causal" and the windows "causal:W" and "local:W".

    Raises
    ------
    ValueError
        If it is not a mask, or a token sees no token.
    """
    if mask is None or (isinstance(mask, str) and (mask == "causal" or _WINDOW.fullmatch(mask))):
        return mask
    needed = "None, 'causal', 'causal:W', 'local:W' or a boolean (m, m) array is needed"
    try:
        array = np.asarray(mask)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"mask={mask!r}: {needed}") from None
    check_not_masked(mask, "mask")
    if array.ndim == 0:
        raise ValueError(f"mask={mask!r}: {needed}")
    if array.ndim != 2 or array.shape[0] != array.shape[1] or array.size == 0:
        raise ValueError(f"mask has shape {array.shape}; {needed}")
    if array.dtype != np.bool_:
        raise ValueError(f"mask has entries of type {array.dtype}; booleans are needed")
    if not array.any(axis=1).all():
        empty = int(np.argmin(array.any(axis=1)))
        raise ValueError(
            f"mask has an empty row {empty}; at least one token that each token sees is needed"
        )
    return tuple(tuple(bool(x) for x in row) for row in array)


@lru_cache(maxsize=64)
def uniform_weights(mask: Mask, tokens: int) -> NDArray[np.float64]:
    """Return w (m, m): 1 / m_a where token a sees token b, 0 elsewhere.

    The read-only matrix is cached, since the chain needs it in every layer.
    """
    if mask is None:
        weights = np.full((tokens, tokens), 1.0 / tokens)
    else:
        seen = _named(mask, tokens) if isinstance(mask, str) else np.array(mask, dtype=np.float64)
        weights = seen / seen.sum(-1, keepdims=True)
    weights.flags.writeable = False
    return weights


def _named(mask: str, tokens: int) -> NDArray[np.float64]:
    if mask == "causal":
        return np.tri(tokens)
    kind, _, window = mask.partition(":")
    return sliding_window(tokens, int(window), kind == "causal").astype(np.float64)


def allowed(mask: Mask, tokens: int) -> NDArray[np.bool_]:
    """Return the boolean matrix (m, m) of a mask."""
    return uniform_weights(mask, tokens) > 0.0


@lru_cache(maxsize=64)
def centre(mask: Mask, bias: Any, tokens: int) -> NDArray[np.float64]:
    """Return w (m, m): the softmax of a head's bias over the tokens that are seen.

    Without a bias these are the uniform weights. The read-only matrix is cached.
    """
    if bias is None:
        return uniform_weights(mask, tokens)
    logits = np.where(allowed(mask, tokens), bias_array(bias, tokens), -np.inf)
    weights = softmax(logits, axis=-1)
    weights.flags.writeable = False
    return weights
