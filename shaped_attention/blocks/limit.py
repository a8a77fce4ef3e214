"""The limit of a block: drift and noise of a factor of the covariance.

A block has one if its layer changes V by order 1/n; `shaped_attention.blocks.base` shows an
example. The interface falls into what every limit has (`Limit`), what the clock needs
(`superlinear.ClockTerms`, derived from drift and noise by default) and what a layer needs of blocks
with norms (`NormTerms`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shaped_attention.blocks.parameters import Parameters
from shaped_attention.blocks.superlinear import ClockTerms
from shaped_attention.numerics.primitives import M, Numbers


class Limit(ClockTerms):
    """The limit of a block as drift and noise of a factor, V = F F^T.

    A layer with these blocks moves by

        dF = sqrt(k) / 2 F dZ_1 - k (m + 1) / 8 F dt + sum of `factor_noise`, `factor_drift` dt,

    with k the sum of their `linear_rate` and Z_1 a symmetric Brownian motion (variance t off the
    diagonal, 2 t on it), together with dV = (`growth` - `decay` V) dt. This last part of the drift
    is not of the form H F^T + F H^T: it raises the rank of V and cannot be a drift of a square
    factor. `growth` is positive semidefinite, `decay` >= 0.

    The drift of V is then H F^T + F H^T + E[G G^T] + growth - decay V, with H the factor drift and
    G the factor noise of a unit increment.
    """

    def linear_rate(self, p: Parameters) -> Any:
        """Return k, the coefficient of V_ac V_bd + V_ad V_bc in the diffusion."""
        return 2.0 * p.gamma**2

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
        """Raise ValueError if the limit does not exist for that number of tokens."""

    def variance_noise(self, p: Parameters, v: M) -> M | None:
        """Return the covariance rates of dV_aa and dV_bb that `factor_noise` causes, or None.

        Pre-norm needs them.
        """
        return None

    @property
    def norm(self) -> NormTerms | None:
        """What a layer needs of a block with norms, whose V is a matrix of correlations."""
        return None

    @property
    def normalised(self) -> bool:
        """Whether the rows of F are divided by their lengths after each step."""
        return self.norm is not None


class NormTerms:
    """What a layer needs of the limit of a block with norms."""

    @property
    def relaxes(self) -> bool:
        """Whether the variances of networks fluctuate about 1 by order 1 / sqrt n."""
        return False

    @property
    def branch(self) -> Limit | None:
        """The limit of a branch that is normalised before it is added, or None.

        `branch_parameters` are its parameters. A step of it, divided by the lengths of its rows,
        enters through `moved`; the limit describes the remaining part of the block.
        """
        return None

    def weights(self, p: Parameters) -> tuple[Any, Any]:
        """Return lambda^2 and gamma^2, whose sum is 1."""
        return 1.0 - p.gamma**2, p.gamma**2

    def branch_parameters(self, p: Parameters) -> Parameters:
        """Return the parameters of `branch`, those of its own Gram matrix."""
        return p

    def moved(self, p: Parameters, factor: M, branch: M) -> M:
        """Return the factor after a step of `branch`, whose new factor is given."""
        return factor


class SumLimit(Limit):
    """A limit whose drifts and noises are the sums of those of its `parts`."""

    def parts(self, p: Parameters) -> Sequence[tuple[Limit, Parameters]]:
        """Return limits and their parameters; `p` are the parameters of the whole block."""
        raise NotImplementedError

    def factor_drift(self, p: Parameters, factor: M) -> M | None:
        """Return the sum of the drifts."""
        return total([limit.factor_drift(q, factor) for limit, q in self.parts(p)])

    def factor_noise(self, p: Parameters, factor: M, numbers: Numbers) -> M | None:
        """Return the sum of the noises, each of several parts with its own increments."""
        parts = self.parts(p)
        if len(parts) == 1:
            return parts[0][0].factor_noise(parts[0][1], factor, numbers)
        return total(
            [x.factor_noise(q, factor, numbers.inside(i)) for i, (x, q) in enumerate(parts)]
        )

    def growth(self, p: Parameters, v: M) -> M | None:
        """Return the sum of the growths."""
        return total([limit.growth(q, v) for limit, q in self.parts(p)])

    def decay(self, p: Parameters) -> Any:
        """Return the sum of the rates of decay."""
        return sum(limit.decay(q) for limit, q in self.parts(p))

    def variance_noise(self, p: Parameters, v: M) -> M | None:
        """Return the sum of the covariance rates."""
        return total([limit.variance_noise(q, v) for limit, q in self.parts(p)])


def total(parts: Sequence[M | None]) -> M | None:
    """Return the sum of what is not None, or None."""
    there = [part for part in parts if part is not None]
    return sum(there[1:], there[0]) if there else None


def has_noise(limit: Limit, of: str = "factor_noise") -> bool:
    """Return whether the class of a limit describes its own noise, or that of its variances."""
    return getattr(type(limit), of) is not getattr(Limit, of)
