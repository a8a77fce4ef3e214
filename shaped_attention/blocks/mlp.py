"""Shaped ReLU network: a hidden layer whose activation tends to the identity with the width.

    X' = lambda X + gamma sqrt(c / n) s(X W_pre / sqrt n) W_post,
    s(x) = s_+ max(x, 0) + s_- min(x, 0),   s_pm = 1 + c_pm / sqrt n,   1 / c = E s(g)^2,

see Li, Nica and Roy, "The neural covariance SDE" (arXiv 2206.02768). The limit has the drift
gamma^2 nu(rho_ab) sqrt(V_aa V_bb), nu(r) = (c_+ - c_-)^2 / (2 pi) (sqrt(1 - r^2) - r arccos r).
With J(r) = sqrt(1 - r^2) + r (pi - arccos r), the arc-cosine kernel of Cho and Saul (2009), this
is kappa (J - pi r) with kappa = gamma^2 (c_+ - c_-)^2 / (2 pi): a positive semidefinite matrix
minus a multiple of V.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from shaped_attention.blocks.base import Block, Limit, Project, plain_fields
from shaped_attention.blocks.coupling import Coupling, Handed, wishart_noise
from shaped_attention.blocks.parameters import Parameter, check_weights, extremes, value_at
from shaped_attention.checks import check_finite
from shaped_attention.lazy_torch import Tensor
from shaped_attention.numerics.factor import semidefinite_cholesky
from shaped_attention.numerics.primitives import M, Numbers, arc_cosine_kernel, cholesky, leaky

_LARGEST_C = 1e12
_SMALLEST_SLOPE = 1e-12
"""Below, a slope 1 + c / sqrt n is mostly the rounding of c."""


class ReLULimit(Limit):
    """Limit of the shaped ReLU network; k = 2 gamma^2, one gamma^2 per weight matrix."""

    def growth(self, p: Any, v: M) -> M:
        """Return ``kappa sqrt(V_aa V_bb) J(rho_ab)``."""
        return _kappa(p) * arc_cosine_kernel(v)

    def decay(self, p: Any) -> Any:
        """Return ``pi kappa``, which leaves the diagonal of V unchanged."""
        return math.pi * _kappa(p)


def _kappa(p: Any) -> Any:
    return p.gamma**2 * (p.c_plus - p.c_minus) ** 2 / (2.0 * math.pi)


def _slopes(p: Any, width: int) -> tuple[Any, Any]:
    root = math.sqrt(width)
    return 1.0 + p.c_plus / root, 1.0 + p.c_minus / root


def _normalisation(p: Any, width: int) -> Any:
    """Return ``c`` with 1 / c = E s(g)^2 = (s_+^2 + s_-^2) / 2."""
    plus, minus = _slopes(p, width)
    return 2.0 / (plus**2 + minus**2)


class HiddenCoupling(Coupling):
    """Coupling of chain and limit: to leading order the hidden units are the hidden Gaussians."""

    def common(self, p: Any, handed: Handed, width: int) -> Tensor:
        """Return gamma^2 W of the Gram of the hidden Gaussians."""
        return p.gamma**2 * wishart_noise(semidefinite_cholesky(handed["hidden", 0]), width)


@dataclass(frozen=True)
class ShapedMLP(Block):
    """Shaped ReLU network with one hidden layer as wide as the tokens.

    Parameters
    ----------
    gamma
        Weight of the branch, in [0, 1], or >= 0 if `skip` is given, or a `Schedule`.
    c_plus, c_minus
        Slopes are 1 + c_plus / sqrt n for positive and 1 + c_minus / sqrt n for negative inputs.
    skip
        Weight of the skip connection; None for sqrt(1 - gamma^2).

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    gamma: Parameter
    c_plus: Parameter = 0.0
    c_minus: Parameter = -1.0
    skip: Parameter | None = None

    coupling = HiddenCoupling()

    def __post_init__(self) -> None:
        plain_fields(self)
        check_weights(self.gamma, self.skip)
        for name, parameter in (("c_plus", self.c_plus), ("c_minus", self.c_minus)):
            for c in extremes(parameter):
                check_finite(name, c)
                if abs(c) > _LARGEST_C:
                    raise ValueError(
                        f"{name}={c!r}: a number from {-_LARGEST_C:g} to {_LARGEST_C:g} is needed"
                    )

    @property
    def limit(self) -> Limit:
        """The limit, which has no drift if the activation is linear."""
        linear = self.gamma == 0.0 or self.c_plus == self.c_minus
        return Limit() if linear else ReLULimit()

    def check(self, tokens: int, width: int | None) -> None:
        """Raise ValueError if both slopes vanish at this width, at some depth."""
        if width is None:
            return
        depths = {0.0, 1.0}
        for parameter in (self.c_plus, self.c_minus):
            depths.update(x for x, _ in getattr(parameter, "knots", ()))
        root = math.sqrt(width)
        for depth in depths:
            slopes = [1.0 + value_at(c, depth) / root for c in (self.c_plus, self.c_minus)]
            if max(map(abs, slopes)) < _SMALLEST_SLOPE:
                raise ValueError(
                    f"c_plus={self.c_plus!r}, c_minus={self.c_minus!r}: at width {width} both "
                    "slopes of the activation vanish; one that does not is needed"
                )

    def slopes(self, p: Any, width: int) -> tuple[Any, Any]:
        """Return ``s_+`` and ``s_-`` at a width."""
        return _slopes(p, width)

    def activation(self, p: Any, x: M, width: int) -> M:
        """Return s(x), entry by entry."""
        return leaky(x, *_slopes(p, width))

    def branch(self, p: Any, tokens: Tensor, project: Project) -> Tensor:
        """Return the hidden layer with weights W_pre, W_post drawn in this order."""
        n = tokens.shape[-1]
        hidden = self.activation(p, project(tokens, n) / math.sqrt(n), n)
        return math.sqrt(_normalisation(p, n) / n) * project(hidden, n)

    def root(self, p: Any, factor: M, numbers: Numbers, width: int) -> M:
        """Return a factor of the Gram of n hidden units h = F g.

        It costs O(n m^2): the Gram matrix of a nonlinear function has no simpler exact law.
        """
        gram = numbers.activated_gram(
            "hidden", factor, width, lambda h: self.activation(p, h, width)
        )
        return cholesky(gram * (_normalisation(p, width) / width))
