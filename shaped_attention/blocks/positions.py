"""Which tokens a token sees, the position biases of its logits, and the centre of its weights."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from shaped_attention.checks import (
    argument_error,
    check_count,
    check_not_masked,
    real_array,
    suggestion,
    with_types,
)

Rows = tuple[tuple[float, ...], ...]
Mask = str | tuple[tuple[bool, ...], ...] | None
Bias = str | Rows | tuple[Rows, ...] | None

_WINDOW = re.compile(r"(causal|local):([1-9][0-9]*)")
_ALIBI = re.compile(r"alibi(:(?P<scale>[0-9]+(\.[0-9]*)?(e-?[0-9]+)?))?(?P<rounded>:bfloat16)?")


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
        Whether only tokens up to a are seen; otherwise b is seen if abs(a - b) < window.

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
        raise argument_error("slope", "a finite number, or one for each head", slope)
    apart = np.abs(np.subtract.outer(np.arange(tokens), np.arange(tokens)))
    return -slopes[..., None, None] * apart


@dataclass(frozen=True)
class AlibiHead:
    """The bias -scale abs(r_a - r_b) of a head, with r_a = slope a.

    With `bfloat16` slope and r_a are rounded to that precision, as some models do.
    """

    slope: float
    scale: float = 1.0
    bfloat16: bool = False

    def array(self, tokens: int) -> NDArray[np.float64]:
        """Return the bias (m, m)."""
        if not self.bfloat16:
            return self.scale * alibi(tokens, self.slope)
        places = _bfloat16(_bfloat16(np.full(1, self.slope)) * _bfloat16(np.arange(tokens)))
        return -self.scale * np.abs(np.subtract.outer(places, places))


def _bfloat16(x: Any) -> NDArray[np.float64]:
    """Round to 8 significant bits, ties to even."""
    mantissa, exponent = np.frexp(np.asarray(x, dtype=np.float64))
    return np.ldexp(np.round(mantissa * 256.0), exponent - 8)


HeadBias = Rows | AlibiHead | None


def alibi_slopes(heads: int) -> list[float]:
    """Return the slopes of the heads of models with ALiBi, also for no power of two."""
    power = 2 ** int(math.log2(heads))
    first = [2.0 ** (-8.0 * k / power) for k in range(1, power + 1)]
    # The missing ones are every other slope of twice as many heads.
    return first + [2.0 ** (-4.0 * k / power) for k in range(1, 2 * (heads - power), 2)]


def head_bias(bias: Bias, heads: int, head: int) -> HeadBias:
    """Return the checked position bias of a head: None, (m, m) as tuples, or an `AlibiHead`."""
    if isinstance(bias, str):
        parts = _ALIBI.fullmatch(bias)
        assert parts
        scale = float(parts["scale"] or 1.0)
        return AlibiHead(alibi_slopes(heads)[head], scale, bool(parts["rounded"]))
    per_head: Any = bias
    return per_head[head] if is_per_head(bias, heads) else per_head


def bias_array(bias: Rows | AlibiHead, tokens: int) -> NDArray[np.float64]:
    """Return the position bias (m, m) of a head for this number of tokens."""
    return bias.array(tokens) if isinstance(bias, AlibiHead) else np.array(bias, dtype=np.float64)


def checked_bias(bias: Any, heads: int) -> Bias:
    """Return a position bias (m, m) or (H, m, m) as nested tuples, a named one, or None.

    A bias that is the same for all heads becomes (m, m). Named biases are "alibi" and "alibi:S",
    with slopes times S, followed by ":bfloat16" or not (`AlibiHead`).

    Raises
    ------
    ValueError
        If it is not an array of finite numbers of such a shape, nor a name.
    """
    if bias is None:
        return None
    if isinstance(bias, str):
        if not _ALIBI.fullmatch(bias):
            kinds = "'alibi', 'alibi:S' with a factor S for the slopes, or an array"
            raise argument_error("position_bias", kinds, bias)
        return bias
    array = real_array(bias, "position_bias")
    fits = array.ndim == 2 or (array.ndim == 3 and len(array) == heads)
    if not fits or array.shape[-1] != array.shape[-2] or array.size == 0:
        raise ValueError(
            f"position_bias must have shape (m, m), or ({heads}, m, m) for {heads} heads; got "
            f"{array.shape}"
        )
    if not np.isfinite(array).all():
        raise ValueError(
            "position_bias must have finite entries (a mask hides tokens); got NaN or infinity"
        )
    if array.ndim == 3 and (array == array[0]).all():
        array = array[0]
    return _nested(array.tolist())


def is_per_head(bias: Bias, heads: int) -> bool:
    """Return whether heads have different position biases, for a checked bias."""
    if bias is None or isinstance(bias, str):
        return bias is not None and heads > 1
    return isinstance(bias[0][0], tuple)


def _nested(values: Any) -> Any:
    """Return nested lists as tuples, which are plain data and can be keys of a cache."""
    return tuple(_nested(x) for x in values) if isinstance(values, list) else values


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
    kinds = "None, 'causal', 'causal:W', 'local:W' or a boolean (m, m) array"
    try:
        array = np.asarray(mask)
    except (TypeError, ValueError, RuntimeError):
        raise argument_error("mask", kinds, mask) from None
    check_not_masked(mask, "mask")
    if array.ndim == 0:
        near = suggestion(mask, ("causal", "local")) if isinstance(mask, str) else ""
        raise ValueError(f"{argument_error('mask', kinds, mask)}{f' ({near})' if near else ''}")
    if array.ndim != 2 or array.shape[0] != array.shape[1] or array.size == 0:
        raise ValueError(f"mask must have shape (m, m) for m tokens; got {array.shape}")
    if array.dtype != np.bool_:
        raise ValueError(f"mask must have boolean entries; got entries of type {array.dtype}")
    if not array.any(axis=1).all():
        empty = int(np.argmin(array.any(axis=1)))
        raise ValueError(f"mask must let each token see at least one token; row {empty} is empty")
    seen: Mask = _nested(array.tolist())
    return seen


@lru_cache(maxsize=64)
def allowed(mask: Mask, tokens: int) -> NDArray[np.bool_]:
    """Return the boolean matrix (m, m) of a mask; it is cached, and not to be changed."""
    if mask is None:
        return np.ones((tokens, tokens), dtype=np.bool_)
    if not isinstance(mask, str):
        return np.array(mask)
    kind, _, window = mask.partition(":")
    return sliding_window(tokens, int(window or tokens), kind == "causal")


@lru_cache(maxsize=64)
def centre(mask: Mask, bias: HeadBias, tokens: int) -> NDArray[np.float64]:
    """Return w (m, m): the softmax of a head's bias over the tokens that are seen.

    Without a bias w_ab is 1 / m_a where token a sees token b, one of m_a. The read-only matrix is
    cached, since the chain needs it in every layer.
    """
    logits = 0.0 if bias is None else bias_array(bias, tokens)
    weights = softmax(np.where(allowed(mask, tokens), logits, -np.inf), axis=-1)
    weights.flags.writeable = False
    return weights
