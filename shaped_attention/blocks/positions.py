"""Position biases of logits, and windows of tokens that are seen."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.checks import check_count, real_array, with_types


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


def alibi_slopes(heads: int) -> list[float]:
    """Return the slopes of the heads of models with ALiBi, also for no power of two."""
    power = 2 ** int(math.log2(heads))
    first = [2.0 ** (-8.0 * k / power) for k in range(1, power + 1)]
    # The missing ones are every other slope of twice as many heads.
    return first + [2.0 ** (-4.0 * k / power) for k in range(1, 2 * (heads - power), 2)]


_NAMED = re.compile(r"alibi(:(?P<scale>[0-9]+(\.[0-9]*)?(e-?[0-9]+)?))?(?P<rounded>:bfloat16)?")


def head_bias(bias: Any, heads: int, head: int) -> Any:
    """Return the checked position bias of a head: None, (m, m) as tuples, or an `AlibiHead`."""
    if isinstance(bias, str):
        found = _NAMED.fullmatch(bias)
        assert found
        scale = float(found["scale"] or 1.0)
        return AlibiHead(alibi_slopes(heads)[head], scale, bool(found["rounded"]))
    return bias[head] if is_per_head(bias, heads) else bias


def bias_array(bias: Any, tokens: int) -> NDArray[np.float64]:
    """Return the position bias (m, m) of a head for a number of tokens."""
    return bias.array(tokens) if isinstance(bias, AlibiHead) else np.array(bias, dtype=np.float64)


def checked_bias(bias: Any, heads: int) -> Any:
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
        if not _NAMED.fullmatch(bias):
            raise ValueError(
                f"position_bias={bias!r}: 'alibi', 'alibi:S' with a factor S of the slopes, or an "
                "array is needed"
            )
        return bias
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


def is_per_head(bias: Any, heads: int) -> bool:
    """Return whether heads have different position biases, for a checked bias."""
    if bias is None or isinstance(bias, str):
        return bias is not None and heads > 1
    return isinstance(bias[0][0], tuple)


def _nested(values: Any) -> Any:
    return tuple(_nested(x) for x in values) if isinstance(values, list) else values
