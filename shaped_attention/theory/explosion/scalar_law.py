"""Scalar SDE with cubic drift, to which the limit of a layer reduces in some cases.

    du = (alpha u^3 - mu u) dt + sqrt(2 k u^2 + delta u^4) dB,    u_0 > 0.

With a = alpha / delta, r = mu / (2 k) and Z(u) = delta u^2 / (2 k + delta u^2), the scale function
is the incomplete beta integral B(Z; 1/2 + r, a - 1/2): its density is u^{2r} (2k + delta
u^2)^{-a-r}. It is finite at infinity if and only if a > 1/2. The speed density there decays like
u^-3 relative to it, so that u then explodes, in finite time, with probability I_Z(1/2 + r, a -
1/2).

In the coordinate X = arcsinh(sqrt(2k / delta) / u) the noise is constant,

    dX = sqrt(2k) dB + 2k [(1 - a) coth X + (a - 1/2 + r) tanh X] dt,

so the law of a passage time T depends on a, r, X_0 and k T only. Without delta, log u is a
Brownian motion with drift -(mu + k) and variance 2 k.

Talbot's contour, as in `mpmath.invertlaplace`, inverts the Laplace transform of a passage time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from scipy import special

_DIGITS = 20
"""Decimal digits of the working precision: probabilities have an error below 1e-17."""


@dataclass(frozen=True)
class ScalarLaw:
    """Law of u, with du = (alpha u^3 - mu u) dt + sqrt(2 k u^2 + delta u^4) dB.

    Parameters
    ----------
    alpha, mu, k, delta
        Coefficients; alpha, k and delta are nonnegative, and alpha is 0 where delta is 0.
    u0
        Initial value, nonnegative.
    """

    alpha: float
    mu: float
    k: float
    delta: float
    u0: float

    @property
    def a(self) -> float:
        """Return alpha / delta; u can explode if it exceeds 1/2. NaN without delta."""
        return self.alpha / self.delta if self.delta > 0.0 else math.nan

    @property
    def r(self) -> float:
        """Return mu / (2 k)."""
        return self.mu / (2.0 * self.k)

    @property
    def constant(self) -> bool:
        """Whether u never moves."""
        return self.u0 == 0.0 or (self.k == 0.0 and self.mu == 0.0 and self.delta == 0.0)

    @property
    def explosive(self) -> bool:
        """Whether u explodes with positive probability."""
        return not self.constant and self.delta > 0.0 and self.a > 0.5

    def never(self, level: float = math.inf) -> bool:
        """Return whether u, now below the level, cannot reach it."""
        return self.constant or (level == math.inf and not self.explosive)

    def share(self, u: float) -> float:
        """Return Z(u), the share of delta u^4 in the variance."""
        cubic = self.delta * u * u
        return cubic / (2.0 * self.k + cubic) if math.isfinite(cubic) else 1.0

    def ever(self, level: float = math.inf) -> float:
        """Return the probability that u ever reaches a level; by default, that it explodes."""
        if self.u0 >= level:
            return 1.0
        if self.never(level):
            return 0.0
        p = 0.5 + self.r
        if level == math.inf and p > 0.0:
            return float(special.betainc(p, self.a - 0.5, self.share(self.u0)))
        with precise().workdps(30):
            return float(self.transform(level)(precise().zero))

    def probability(self, horizon: float | None = None, level: float = math.inf) -> float:
        """Return P(tau <= horizon), tau the time to reach a level or explode; None for no limit."""
        if horizon is None:
            return self.ever(level)
        if self.u0 >= level:
            return 1.0
        if self.never(level) or horizon <= 0.0:
            return 0.0
        mp = precise()
        with mp.workdps(_DIGITS):
            transform, time = self.transform(level), mp.mpf(self.k) * horizon
            found = mp.invertlaplace(lambda q: transform(q) / q, time, method="talbot")
        return min(1.0, max(0.0, float(found)))

    def transform(self, level: float) -> Callable[[Any], Any]:
        """Return the function q -> E e^{-q k tau} of complex q, tau the time to reach a level.

        With p = 1/2 + r,

            E e^{-q k tau_R} = psi(u_0) / psi(R),    kappa = (p + sqrt(p^2 + q)) / 2,
            psi = Z^kappa 2F1(kappa, kappa + 3/2 - a - p; C; Z),    C = 2 kappa + 1 - p,
            psi(infinity) = Gamma(C) Gamma(a - 1/2) / (Gamma(kappa + 1 - p) Gamma(kappa + a - 1/2)),

        where psi solves the generator's equation with the eigenvalue q k and vanishes at 0.
        """
        mp = precise()
        k, u0 = mp.mpf(self.k), mp.mpf(self.u0)
        p = mp.mpf(self.mu) / (2 * k) + 0.5
        if self.delta == 0.0:
            distance = mp.log(mp.mpf(level) / u0)
            return lambda q: mp.exp(-distance * (p + mp.sqrt(p * p + q)))
        delta = mp.mpf(self.delta)
        a = mp.mpf(self.alpha) / delta

        def share(u: Any) -> Any:
            return delta * u * u / (2 * k + delta * u * u)

        def psi(kappa: Any, z: Any) -> Any:
            return z**kappa * mp.hyp2f1(kappa, kappa + 1.5 - a - p, 2 * kappa + 1 - p, z)

        start = share(u0)
        # 1 - Z is as small as (2k / delta) / R^2 at a high level, and psi is singular at Z = 1.
        far = level < math.inf and float(delta) * level**2 > 2.0 * float(k)
        lost = math.ceil(math.log10(float(delta) / (2.0 * float(k)) * level**2)) if far else 0

        def transform(q: Any) -> Any:
            kappa = (p + mp.sqrt(p * p + q)) / 2
            if level < math.inf:
                with mp.extradps(lost + 5):
                    end = psi(kappa, share(mp.mpf(level)))
                return psi(kappa, start) / end
            return psi(kappa, start) / mp.gammaprod(
                [2 * kappa + 1 - p, a - 0.5], [kappa + 1 - p, kappa + a - 0.5]
            )

        return transform


@cache
def precise() -> Any:
    """Return a separate context of mpmath, so that the user's precision is unchanged."""
    import mpmath

    return mpmath.ctx_mp.MPContext()
