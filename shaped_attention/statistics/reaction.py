r"""How close V is to a rare event: the event of an observable, and reaction coordinates.

The coordinate of an observable is a function x(V) with nearly constant noise, such as a logarithm.
At the time t, with the gap g between x and its level and the drift mu of x towards the level, a
Brownian motion with drift arrives by the time T with a probability that decreases in

    min over 0 < s <= T - t of (g - mu s) / sqrt s,

whose negative is the score. At the end only, s = T - t. Splitting is unbiased with any score.

The noise of u, V_11 - 2 V_12 + V_22 for two tokens and 4 |C V C| / m in general, is
sqrt(2 k u^2 + delta u^4): attention speeds it up. It has the coordinate arcsinh(sqrt(2k/delta)/u).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shaped_attention.blocks.attention import ShapedAttention
from shaped_attention.blocks.base import Block
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.blocks.reasons import limit_of
from shaped_attention.checks import argument_error, check_choice, real_array
from shaped_attention.libraries import torch
from shaped_attention.numerics.observables import observables
from shaped_attention.samplers.clock_step import clock_speed, norm_spread
from shaped_attention.trust import function_named

Array = NDArray[np.float64]

Observable = str | Callable[[Array], ArrayLike]
"""A name, or a function from V (samples, m, m) to numbers (samples,)."""

Coordinate = str | Callable[[Array, Array], ArrayLike] | None
"""A function of V (samples, m, m) and the time left (samples,), larger where closer."""

_SIZES = ("norm", "log trace V", "log largest eigenvalue")
"""Observables that grow with an explosion, besides u and the norms of tokens."""

_NEEDED = "a name, 'module:function' or a function"


def norm(v: Array) -> Array:
    """Return the Frobenius norm |V|."""
    return np.asarray(np.linalg.norm(v, axis=(-2, -1)))


def spread(v: Array) -> Array:
    """Return u = 4 |C V C| / m; with two tokens V_11 - 2 V_12 + V_22."""
    centred = v - v.mean(axis=-1, keepdims=True)
    centred = centred - centred.mean(axis=-2, keepdims=True)
    return 4.0 / v.shape[-1] * norm(centred)


def name_of_function(function: Any) -> str:
    """Return a name for an observable or a coordinate."""
    if isinstance(function, str):
        return function
    return f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', function)}"


def checked(function: Any, argument: str, count: int, finite: bool = False) -> Callable[..., Array]:
    """Return a function of `count` arguments, or that of this name, with its values checked."""
    if isinstance(function, str):
        function = function_named(function, argument, _NEEDED)
    elif not callable(function):
        raise argument_error(argument, _NEEDED, function)

    def values(*arrays: Array) -> Array:
        numbers = real_array(function(*arrays[:count]), f"the result of {argument}")
        bad = ~np.isfinite(numbers) if finite else np.isnan(numbers)
        if numbers.shape != (len(arrays[0]),) or bad.any():
            raise ValueError(
                f"{argument} must return {'finite ' if finite else ''}numbers of shape "
                f"({len(arrays[0])},); got shape {numbers.shape} with {int(bad.sum())} "
                f"{'that are not finite' if finite else 'NaN'}"
            )
        return numbers

    return values


def value_of(observable: Observable, tokens: int, finite: bool = False) -> Callable[[Array], Array]:
    """Return the observable as a function of V (samples, m, m) that checks its values."""
    if observable == "norm":
        return norm
    if observable == "u":
        return spread
    if isinstance(observable, str) and ":" not in observable:
        check_choice("observable", observable, ["norm", "u", *observables(np.eye(tokens)[None])])
        return lambda v: observables(v)[observable]
    return checked(observable, "observable", 1, finite)


@dataclass(frozen=True)
class Reaction:
    """Event and score of a rare event.

    The event: the observable, `value`, is at least (`above`) or at most the level, at any time or
    only at the end. The score is that of the `gap`, the distance of the observable's coordinate
    from that of the level, with its drift towards the level; or the `coordinate`, a function of V
    and the time left.
    """

    value: Callable[[Array], Array]
    level: float
    above: bool
    at_end: bool
    horizon: float
    gap: Callable[[Array, Array], Array]
    drift: float = 0.0
    coordinate: Callable[..., Array] | None = None

    def inside(self, values: Array) -> NDArray[np.bool_]:
        """Return where the observable is beyond the level."""
        return values >= self.level if self.above else values <= self.level

    def score(self, v: Array, times: Array, ended: NDArray[np.bool_]) -> Array:
        """Return scores (samples,), infinite in the event."""
        values = self.value(v)
        event = self.inside(values) & (ended | (not self.at_end))
        left = np.maximum(self.horizon - times, 0.0)
        scores = self.coordinate(v, left) if self.coordinate else self._nearness(v, values, left)
        return np.where(event, np.inf, np.minimum(scores, np.finfo(float).max))

    def _nearness(self, v: Array, values: Array, left: Array) -> Array:
        gap, time = self.gap(v, values), left
        if not self.at_end and self.drift < 0.0:
            time = np.minimum(left, gap / -self.drift)
        time = np.maximum(time, 1e-12 * self.horizon)
        return -(gap - self.drift * time) / np.sqrt(time)


@dataclass(frozen=True)
class Scale:
    """Scale on which the noise of an observable is nearly constant, with its inverse."""

    forward: Callable[[Any], Any]
    inverse: Callable[[Any], Any]


_PLAIN = Scale(lambda x: x, lambda x: x)
_LOGARITHM = Scale(lambda x: np.log(_positive(x)), np.exp)
_FISHER = Scale(lambda x: np.arctanh(np.clip(x, -1.0 + 1e-16, 1.0 - 1e-16)), np.tanh)


def scale_of(observable: Observable) -> Scale:
    """Return the scale of an observable."""
    if observable in ("norm", "u"):
        return _LOGARITHM
    if isinstance(observable, str) and observable.startswith("rho["):
        return _FISHER
    return _PLAIN


def is_size(observable: Observable) -> bool:
    """Return whether an observable grows with an explosion, by its name."""
    return observable in _SIZES or (isinstance(observable, str) and observable.startswith("log V["))


def gap_of(
    observable: Observable,
    level: float,
    above: bool,
    pattern: Sequence[Sequence[Block]],
    tokens: int,
) -> Callable[[Array, Array], Array]:
    """Return the gap as a function of V and the observable.

    V explodes if u does, with |C V C| of the size of V: for a size of V the smaller of the gaps of
    its logarithm and of u counts.
    """
    sign, u_scale, scale = 1.0 if above else -1.0, noise_scale(pattern), scale_of(observable)
    end = float(scale.forward(level))
    if observable == "u":
        return lambda _, values: sign * (_distance(values, u_scale) - _distance(level, u_scale))
    if above and is_size(observable):
        far = _distance(4.0 / tokens * math.exp(min(end, 700.0)), u_scale)
        return lambda v, values: np.minimum(
            end - scale.forward(values), _distance(spread(v), u_scale) - far
        )
    return lambda _, values: sign * (end - scale.forward(values))


def linear_rate(pattern: Sequence[Sequence[Block]]) -> float:
    """Return k of a layer, or of the mean layer of a pattern, at depth 0."""
    blocks = [block for layer in pattern for block in layer]
    return float(sum(limit_of(x).linear_rate(at_depth(x, 0.0)) for x in blocks)) / len(pattern)


def step_deviation(pattern: Sequence[Sequence[Block]], tokens: int, u: float, step: float) -> float:
    """Return the standard deviation of log |V| in a step of the clock, where only token m lives.

    V_mm = u m^2 / (4 (m - 1)) then has the given u; with two tokens |V| = u.
    """
    live = np.zeros((tokens, tokens))
    live[-1, -1] = tokens / 2.0 * math.sqrt(u / max(tokens - 1, 1))
    factor = torch.from_numpy(live)
    parameters = [[at_depth(block, 0.0) for block in layer] for layer in pattern]
    rate = float(norm_spread(pattern, parameters, factor))
    return math.sqrt(rate * step / (1.0 + float(clock_speed(pattern, parameters, factor))))


def noise_scale(pattern: Sequence[Sequence[Block]]) -> float:
    """Return sqrt(2k/delta), the u at which attention's own noise is as large as the linear one.

    It is infinite without attention or with QK-norm, and where a block has no limit.
    """
    blocks = [block for layer in pattern for block in layer]
    if any(isinstance(block.limit, str) for block in blocks):
        return math.inf
    delta = 0.0
    for block in blocks:
        if isinstance(block, ShapedAttention) and not block.qk_norm:
            p = at_depth(block, 0.0)
            delta += p.gamma**4 / (4.0 * p.tau0**2 * block.heads) / len(pattern)
    return math.sqrt(2.0 * linear_rate(pattern) / delta) if delta > 0.0 else math.inf


def _distance(u: Any, scale: float) -> Any:
    """Return arcsinh(scale / u), or -log u up to a constant if the scale is infinite."""
    u = _positive(u)
    return -np.log(u) if scale == math.inf else np.arcsinh(scale / u)


def _positive(x: Any) -> Any:
    """Return x, or a number whose inverse is finite where x is below it."""
    return np.maximum(x, 1e-200)
