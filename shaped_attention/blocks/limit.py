"""The limit of a block: drift and noise of a factor of the covariance.

A block has one if its layer changes V by order 1/n; `shaped_attention.blocks.base` shows an
example.
"""

from __future__ import annotations

from typing import Any

from shaped_attention.blocks import superlinear
from shaped_attention.numerics.primitives import M, Numbers


class Limit:
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

    @property
    def normalised(self) -> bool:
        """Whether the rows of F are divided by their lengths after each step."""
        return False

    @property
    def relaxes(self) -> bool:
        """Whether the variances of networks fluctuate about 1 by order 1 / sqrt n."""
        return False

    @property
    def normalised_branch(self) -> Limit | None:
        """The limit of a branch that is normalised before it is added, or None.

        `branch_parameters` are its parameters. A step of it, divided by the lengths of its rows,
        enters through `moved`; the other methods describe the remaining part of the block.
        """
        return None

    def branch_parameters(self, p: Any) -> Any:
        """Return the parameters of `normalised_branch`, those of its own Gram matrix."""
        return p

    def moved(self, p: Any, factor: M, branch: M) -> M:
        """Return the factor after a step of `normalised_branch`, whose new factor is `branch`."""
        return factor

    def weights(self, p: Any) -> tuple[Any, Any]:
        """Return lambda^2 and gamma^2, whose sum is 1."""
        return 1.0 - p.gamma**2, p.gamma**2

    def linear_rate(self, p: Any) -> Any:
        """Return k, the coefficient of V_ac V_bd + V_ad V_bc in the diffusion."""
        return 2.0 * p.gamma**2

    def factor_drift(self, p: Any, factor: M) -> M | None:
        """Return the drift of F, or None."""
        return None

    def factor_noise(self, p: Any, factor: M, numbers: Numbers) -> M | None:
        """Return the noise of F, linear in the Brownian increments that `numbers` provides."""
        return None

    def growth(self, p: Any, v: M) -> M | None:
        """Return the part of the drift that raises the rank of V, or None."""
        return None

    def decay(self, p: Any) -> Any:
        """Return the rate at which V decays alongside its growth."""
        return 0.0

    def speed(self, p: Any, factor: M) -> M | None:
        """Return the relative rate (1, 1) at which superlinear terms change V, or None.

        Steps of the clock are shorter by 1 + this rate. None is for coefficients that grow at most
        linearly with V: such a block does not make paths explode. By default the rate is that of
        all terms of the block, if some grow faster (`relative_speed`).
        """
        if not superlinear.is_superlinear(self, p, *factor.shape[-2:]):
            return None
        return superlinear.relative_speed(self, p, factor)

    def noise_drift(self, p: Any, factor: M) -> M | None:
        """Return sum_i DG[G_i], G_i the factor noise of the i-th unit increment, or None.

        It is twice the difference of the drifts of Stratonovich and Ito, and the mean of the second
        order of the noise in a step, which the clock takes into account. None omits that order. By
        default it is computed for up to 64 increments.
        """
        return superlinear.noise_drift(self, p, factor)

    def noise_along(self, p: Any, factor: M, direction: M) -> M | None:
        """Return the variance rate (1, 1) of <D, dV> that `factor_noise` causes, or None.

        D (m, m) is a symmetric direction. The clock uses it where paths approach the radius. By
        default it is computed for up to 64 increments.
        """
        return superlinear.noise_along(self, p, factor, direction)

    def variance_noise(self, p: Any, v: M) -> M | None:
        """Return the covariance rates of dV_aa and dV_bb that `factor_noise` causes, or None."""
        return None

    def check(self, tokens: int) -> None:
        """Raise ValueError if the limit does not exist for that number of tokens."""
