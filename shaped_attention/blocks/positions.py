"""Position biases of logits, and windows of tokens that are seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.argument_types import with_types
from shaped_attention.checks import check_count, real_array


@with_types
def sliding_window(tokens: int, window: int, causal: bool = True) -> NDArray[np.bool_]:
    """Return the mask (m, m) of a sliding window: a sees b if 0 <= a - b < window.

    Parameters
    ----------
    tokens
        Number of tokens m.
    window
        Number of tokens that a token sees, itself included.
    causal
        Whether only tokens before a are seen; otherwise b is seen if abs(a - b) < window.

    Raises
    ------
    ValueError
        If a number is not a whole number >= 1.

    Examples
    --------
    >>> sliding_window(3, 2)
    array([[ True, False, False],
           [ True,  True, False],
           [False,  True,  True]])
    """
    check_count("tokens", tokens)
    check_count("window", window)
    apart = np.subtract.outer(np.arange(tokens), np.arange(tokens))
    return (apart >= 0) & (apart < window) if causal else abs(apart) < window


@with_types
def alibi(tokens: int, slope: float | int | Sequence[float]) -> NDArray[np.float64]:
    """Return the position bias -slope abs(a - b) of ALiBi (Press et al., arXiv 2108.12409).

    Parameters
    ----------
    tokens
        Number of tokens m.
    slope
        Slope of all heads, which gives an array (m, m), or a list with the slope of each head,
        which gives (H, m, m).

    Raises
    ------
    ValueError
        If an argument is outside its range.

    Examples
    --------
    >>> alibi(2, 0.5)
    array([[-0. , -0.5],
           [-0.5, -0. ]])
    """
    check_count("tokens", tokens)
    slopes = real_array(slope, "slope")
    if slopes.ndim > 1 or slopes.size == 0 or not np.isfinite(slopes).all():
        raise ValueError(f"slope={slope!r}: a finite number, or one for each head, is needed")
    apart = np.abs(np.subtract.outer(np.arange(tokens), np.arange(tokens)))
    return -slopes[..., None, None] * apart


def checked_bias(bias: Any, heads: int) -> Any:
    """Return a position bias (m, m) or (H, m, m) as nested tuples, or None.

    A bias that is the same for all heads becomes (m, m).

    Raises
    ------
    ValueError
        If it is not an array of finite numbers of such a shape.
    """
    if bias is None:
        return None
    array = real_array(bias, "position_bias")
    fits = array.ndim == 2 or (array.ndim == 3 and len(array) == heads)
    if not fits or array.shape[-1] != array.shape[-2] or array.size == 0:
        raise ValueError(
            f"position_bias has shape {array.shape}; (m, m), or ({heads}, m, m) for {heads} "
            "heads, is needed"
        )
    if not np.isfinite(array).all():
        raise ValueError(
            "position_bias has NaN or infinite entries; finite numbers, and a mask for tokens "
            "that are not seen, are needed"
        )
    if array.ndim == 3 and (array == array[0]).all():
        array = array[0]
    return _nested(array.tolist())


def is_per_head(bias: Any) -> bool:
    """Return whether a checked position bias is (H, m, m)."""
    return bias is not None and isinstance(bias[0][0], tuple)


def _nested(values: Any) -> Any:
    return tuple(_nested(x) for x in values) if isinstance(values, list) else values
