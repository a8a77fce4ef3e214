"""MLP block: a hidden layer whose activation tends to the identity with the width, or a plain one.

    X' = lambda X + gamma sqrt(c / d) s(X W_pre / sqrt n) W_post,   1 / c = E s(g)^2,

with d hidden units. Shaped activations have a limit:

- ReLU: s(x) = s_+ max(x, 0) + s_- min(x, 0), s_pm = 1 + c_pm / sqrt n;
- smooth: s(x) = r (phi(x / r) - phi(0)), r = a sqrt n;
- gated: the hidden units are u phi(beta + z / r) / phi(beta).

Plain ones do not: s(x) = phi(sigma x), or the hidden units u phi(sigma z). Here u and z are the
products of the tokens with two weight matrices, and 1 / c is the mean square of a hidden unit at
V_aa = 1.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any

from shaped_attention.blocks.activations import (
    SHAPED_RELU,
    Activation,
    activation_named,
    check_shape,
    mean_square,
    of_entries,
    shaped,
    shaped_gate,
)
from shaped_attention.blocks.base import Block, Project, Tokens
from shaped_attention.blocks.parameters import (
    Parameter,
    Parameters,
    Width,
    at_depth,
    check_parameter,
    check_weights,
    depths_of,
    extremes,
    plain_fields,
    value_at,
)
from shaped_attention.checks import (
    LARGEST_WIDTH,
    argument_error,
    check_finite,
    check_positive,
    check_range,
    check_width,
)
from shaped_attention.numerics.primitives import M, leaky, sqrt

_LARGEST_C = 1e12
_SMALLEST_SLOPE = 1e-12
"""Below, a slope 1 + c / sqrt n is mostly the rounding of c."""


@dataclass(frozen=True)
class ShapedMLP(Block):
    """MLP with one hidden layer, by default of the same width and with the shaped ReLU.

    Parameters
    ----------
    gamma
        Weight of the branch, in [0, 1], or >= 0 if `skip` is given, or a `Schedule`. Entries of the
        branch have variance 1 at V_aa = 1, which the factor 1 / `mean_square` ensures, and variance
        V_aa for the shaped ReLU: a model whose second weights have standard deviation sigma_2 has
        gamma = sigma_2 sqrt(d `mean_square`), and a `skip`.
    c_plus, c_minus
        The slopes of the shaped ReLU are 1 + c_plus / sqrt n for positive and 1 + c_minus / sqrt n
        for negative inputs.
    skip
        Weight of the skip connection; None for sqrt(1 - gamma^2).
    activation
        phi: "gelu", "gelu_tanh", "silu", "tanh", "softplus", "plain_relu", or "module:function", a
        function of a matrix written in the primitives of
        `shaped_attention.numerics.primitives`. The default, "relu", is the shaped ReLU.
    scale
        a > 0, or a `Schedule`, for s(x) = r (phi(x / r) - phi(0)), r = a sqrt n. None for phi
        itself, which has an exact chain but no limit.
    hidden
        Number d of hidden units at every width; None for `hidden_ratio` times the width.
    hidden_ratio
        d / n; d is rounded to an integer.
    gated
        Whether the hidden units are phi(z) u, or phi(beta + z / r) / phi(beta) u with a scale.
    gate_bias
        beta, for gates with a scale.
    input_scale
        sigma: plain activations are phi(sigma x).

    Raises
    ------
    ValueError
        If a parameter is outside its range, or does not apply to the activation.

    Examples
    --------
    >>> from shaped_attention import drift, equicorrelated
    >>> drift(ShapedMLP(0.5, activation="tanh", scale=1.0), equicorrelated(1, 0.0, scale=2.0))
    array([[-1.]])
    """

    gamma: Parameter
    c_plus: Parameter = 0.0
    c_minus: Parameter = -1.0
    skip: Parameter | None = None
    _: KW_ONLY
    activation: str = SHAPED_RELU
    scale: Parameter | None = None
    hidden: int | None = None
    hidden_ratio: float = 1.0
    gated: bool = False
    gate_bias: float = 0.0
    input_scale: float = 1.0

    def __post_init__(self) -> None:
        plain_fields(self)
        check_weights(self.gamma, self.skip)
        for name, parameter in (("c_plus", self.c_plus), ("c_minus", self.c_minus)):
            check_parameter(name, parameter, check_finite)
            for c in extremes(parameter):
                check_range(name, c, -_LARGEST_C, _LARGEST_C)
        if self.hidden is not None:
            check_width("hidden", self.hidden)
        check_positive("hidden_ratio", self.hidden_ratio)
        check_range("input_scale", self.input_scale, 1e-6, 100.0)
        check_finite("gate_bias", self.gate_bias)
        for a in extremes(self.scale) if self.scale is not None else ():
            check_range("scale", a, 0.01, 1e4)
        check_shape(self)

    def __repr__(self) -> str:
        shown = []
        for entry in fields(self):
            value = getattr(self, entry.name)
            if not (entry.kw_only and value == entry.default) and entry.name not in self._unused:
                shown.append(f"{entry.name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"

    @property
    def _unused(self) -> tuple[str, ...]:
        return () if self.activation == SHAPED_RELU else ("c_plus", "c_minus")

    @property
    def fixed(self) -> tuple[str, ...]:
        """Fields that neither change with depth nor have derivatives."""
        return ("hidden_ratio", "gate_bias", "input_scale", *self._unused)

    @property
    def phi(self) -> Activation:
        """The function phi that `activation` names; not for the shaped ReLU."""
        return activation_named(self.activation)

    def units(self, width: Width) -> Width:
        """Return the number of hidden units at a width."""
        return round(self.hidden_ratio * width) if self.hidden is None else self.hidden

    def widest(self, width: int) -> int:
        """Return the width, or the number of hidden units if it is larger."""
        return max(width, self.units(width))

    def check(self, tokens: int, width: int | None) -> None:
        """Raise ValueError if there are no hidden units, or both slopes vanish at some depth."""
        if width is None:
            return
        if self.hidden_ratio * width > LARGEST_WIDTH:
            requirement = f"at most 2^53 / {width}, for 2^53 hidden units"
            raise argument_error("hidden_ratio", requirement, self.hidden_ratio)
        if self.units(width) < 1:
            requirement = f"larger: there are no hidden units at width {width}"
            raise argument_error("hidden_ratio", requirement, self.hidden_ratio)
        root = math.sqrt(width)
        for depth in depths_of(self.c_plus, self.c_minus):
            slopes = [1.0 + value_at(c, depth) / root for c in (self.c_plus, self.c_minus)]
            if self.activation == SHAPED_RELU and max(map(abs, slopes)) < _SMALLEST_SLOPE:
                both = f"c_plus={self.c_plus!r}, c_minus={self.c_minus!r}"
                raise ValueError(f"{both}: at width {width} both slopes of the activation vanish")

    def slopes(self, p: Parameters, width: Width) -> tuple[Any, Any]:
        """Return ``s_+`` and ``s_-`` of the shaped ReLU at a width."""
        root = width**0.5
        return 1.0 + p.c_plus / root, 1.0 + p.c_minus / root

    def activated(self, p: Parameters, x: M, width: Width) -> M:
        """Return s(x), or the factor of u in a gated unit, entry by entry."""
        if self.activation == SHAPED_RELU:
            return leaky(x, *self.slopes(p, width))
        return self._smooth(x, self._radius(p, width))

    def _radius(self, p: Parameters, width: Width) -> Any:
        """Return r, or None for a plain activation."""
        return None if self.scale is None else p.scale * width**0.5

    def _smooth(self, x: M, radius: Any) -> M:
        if radius is None:
            return of_entries(self.phi, x if self.input_scale == 1.0 else self.input_scale * x)
        if self.gated:
            return shaped_gate(self.phi, x, radius, self.gate_bias)
        return shaped(self.phi, x, radius)

    def mean_square(self, width: int, depth: float = 0.0) -> float:
        """Return 1 / c, the mean square of a hidden unit at V_aa = 1, at a relative depth."""
        return float(self._mean_square(at_depth(self, depth), width))

    def _mean_square(self, p: Parameters, width: Width) -> Any:
        if self.activation == SHAPED_RELU:
            plus, minus = self.slopes(p, width)
            return (plus**2 + minus**2) / 2.0
        return mean_square(self._smooth, self._radius(p, width))

    def branch(self, p: Parameters, tokens: Tokens, project: Project) -> Tokens:
        """Return the branch, whose weights are in order those of z, of u if gated, and W_post."""
        n = tokens.shape[-1]
        units = self.units(n)
        hidden = self.activated(p, project(tokens, units, "hidden") / n**0.5, n)
        if self.gated:
            hidden = hidden * (project(tokens, units, "gated") / n**0.5)
        return sqrt(1.0 / self._mean_square(p, n) / units) * project(hidden, n, "output")
