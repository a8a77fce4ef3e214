"""The limit of a block: drift and noise of a factor of the covariance, and their speed.

A block has one if its layer changes V by order 1/n. It is derived from the branch
(`shaped_attention.blocks.limits`), that of blocks with norms is in `normalised_limit`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shaped_attention.blocks.parameters import Parameters
from shaped_attention.numerics.graph import Graph
from shaped_attention.numerics.named_numbers import TracedNumbers
from shaped_attention.numerics.operations.registry import order
from shaped_attention.numerics.primitives import (
    M,
    Numbers,
    column_sums,
    row_squares,
    sqrt,
)

if TYPE_CHECKING:
    from shaped_attention.blocks.normalised_limit import SandwichLimit

_LINEAR = 1.0 + 1e-9
"""Largest order of growth in F that is not superlinear."""

_NOISE = 6.0
"""Weight of the variance of the noise: it needs shorter steps than a drift of that rate."""

_TINY = 1e-300


class Limit:
    """The limit of a block, as the drift and noise of a factor F of V = F F^T.

    A layer with these blocks moves F by

        dF = sqrt(k) / 2 F dZ_1 - k (m + 1) / 8 F dt + sum of `factor_noise`, `factor_drift` dt,

    where k is the sum of their `linear_rate` and Z_1 a symmetric Brownian motion (variance t off
    the diagonal, 2 t on it), and V in addition by dV = (`growth` - `decay` V) dt. This last part of
    the drift is not of the form H F^T + F H^T: it raises the rank of V and cannot be a drift of a
    square factor. `growth` is positive semidefinite, `decay` >= 0.

    The drift of V is then H F^T + F H^T + E[G G^T] + growth - decay V, with H the factor drift and
    G the factor noise of a unit increment.
    """

    def linear_rate(self, p: Parameters) -> Any:
        """Return k, the coefficient of V_ac V_bd + V_ad V_bc in the diffusion."""
        raise RuntimeError("Limit is a base class")

    def weight_rate(self, p: Parameters) -> float | None:
        """Return kappa: the weights' part of the tangent kernel grows by kappa V a layer.

        It is gamma^2 for each weight matrix through which the branch is linear in a wide network.
        None with norms.
        """
        return None

    def factor_drift(self, p: Parameters, factor: M) -> M | None:
        """Return the drift of F, or None."""
        return None

    def factor_noise(self, p: Parameters, factor: M, numbers: Numbers) -> M | None:
        """Return the noise of F, linear in the Brownian increments that `numbers` provides."""
        return None

    def growth(self, p: Parameters, v: M) -> M | None:
        """Return the part of the drift that raises the rank of V, or None."""
        return None

    def decay(self, p: Parameters) -> Any:
        """Return the rate at which V decays alongside its growth."""
        return 0.0

    def check(self, tokens: int) -> None:
        """Raise ValueError if the limit does not exist for this number of tokens."""

    def speed(self, p: Parameters, factor: M) -> M | None:
        """Return the relative rate (1, 1) at which superlinear terms change V, or None.

        Steps of the clock are shorter by a factor of 1 + this rate. None means that the
        coefficients grow at most linearly with V, so that the block does not make paths explode. By
        default the rate is that of all terms of the block, if some grow faster (`relative_speed`).
        """
        if not is_superlinear(self, p, *factor.shape[-2:]):
            return None
        return relative_speed(self, p, factor)

    def noise_size(self, p: Parameters, factor: M) -> M | None:
        """Return E|G|^2 (1, 1), G the factor noise, or None without noise."""
        return None

    def noise_drift(self, p: Parameters, factor: M) -> M | None:
        """Return sum_i DG[G_i], G_i the factor noise of the i-th unit increment, or None.

        It is twice the difference between the Stratonovich and Ito drifts, and the mean of the
        second-order term of the noise in a step, which the clock takes into account. None omits
        that term.
        """
        return None

    def noise_along(self, p: Parameters, factor: M, direction: M) -> M | None:
        """Return the variance rate 4 sum_i <D F, G_i>^2 of <D, dV>, or None.

        D (m, m) is a symmetric direction. The clock uses the rate where paths approach the radius.
        """
        return None

    def variance_noise(self, p: Parameters, v: M) -> M | None:
        """Return the covariance rates of dV_aa and dV_bb that `factor_noise` causes, or None.

        Pre-norm needs them.
        """
        return None

    @property
    def norm(self) -> SandwichLimit | None:
        """What a layer needs to know of a block with norms, whose V is a matrix of correlations."""
        return None

    @property
    def normalised(self) -> bool:
        """Whether the rows of F are divided by their lengths after each step."""
        return self.norm is not None


def is_superlinear(limit: Limit, p: Parameters, tokens: int, columns: int) -> bool:
    """Return whether drift or noise of V grow faster than V, for a factor (tokens, columns)."""
    graph = Graph()
    factor = graph.node("input", (), (tokens, columns))
    v = graph.node("input", (), (tokens, tokens))
    inputs = {id(factor.node): 1.0, id(v.node): 2.0}
    traced = p.as_scalars()
    numbers = TracedNumbers(graph, increments=1.0)
    terms = (limit.factor_drift(traced, factor), limit.factor_noise(traced, factor, numbers))
    growth = limit.growth(traced, v)
    return any(x is not None and order(x, inputs) > _LINEAR for x in terms) or (
        growth is not None and order(growth, inputs) > 2.0 * _LINEAR
    )


def relative_speed(limit: Limit, p: Parameters, factor: M) -> M:
    """Return ``2 |b_F| / |F| + |growth| / |V| + 6 E|G|^2 / |F|^2``, with Frobenius norms."""
    square = column_sums(row_squares(factor)) + _TINY
    speed = 0.0 * square
    drift = limit.factor_drift(p, factor)
    if drift is not None:
        speed = speed + 2.0 * sqrt(column_sums(row_squares(drift)) / square)
    v = factor @ factor.mT
    growth = limit.growth(p, v)
    if growth is not None:
        size = column_sums(row_squares(v)) + _TINY
        speed = speed + sqrt(column_sums(row_squares(growth)) / size)
    noise = limit.noise_size(p, factor)
    return speed if noise is None else speed + _NOISE * (noise / square)
