"""Claims on the coordinates X = arcsinh(sqrt(2 k / delta) / u) and Q = sinh^2 X, and on means of u.

The equation of u and the symbols are those of `explosion_law`.
"""

from __future__ import annotations

from sympy import Expr, Symbol, asinh, diff, exp, limit, log, oo, simplify, sqrt, tanh

from symbolic.claims.explosion_law import DELTA, PULL, RATIO, VARIATION, K, U, generator
from symbolic.claims.ito import vanishes
from symbolic.claims.ledger import Claim, Finding, Verdict, proven, refuted
from symbolic.series import HALF


def _lamperti() -> Finding:
    x = asinh(sqrt(2 * K / DELTA) / U)
    # sinh X = sqrt(2 k / delta) / u gives coth X = cosh X / sinh X with cosh^2 = 1 + sinh^2.
    squared = 2 * K / (DELTA * U**2)
    hyperbolic = sqrt(1 + squared)
    coth_x, tanh_x = hyperbolic / sqrt(squared), sqrt(squared) / hyperbolic
    stated = 2 * K * ((1 - RATIO) * coth_x + (RATIO - HALF + PULL) * tanh_x)
    return proven(
        "Ito's formula; delta enters through X alone, and t through k t",
        simplify(generator(x) - stated) == 0,
        simplify(VARIATION * diff(x, U) ** 2 - 2 * K) == 0,
    )


def pearson() -> tuple[Expr, Expr]:
    """Return drift and variation of Q = sinh^2 X = 2 k / (delta u^2), in the symbol Q."""
    q = Symbol("Q", positive=True)
    value = 2 * K / (DELTA * U**2)
    back = {U: sqrt(2 * K / (DELTA * q))}
    return (
        simplify(generator(value).subs(back)),
        simplify((VARIATION * diff(value, U) ** 2).subs(back)),
    )


def _pearson() -> Finding:
    q = Symbol("Q", positive=True)
    drift, variation = pearson()
    return proven(
        "Ito's formula: the drift is affine in Q and the variation is 8 k Q (1 + Q)",
        vanishes(drift - 2 * K * (3 - 2 * RATIO + (3 + 2 * PULL) * q)),
        vanishes(variation - 8 * K * q * (1 + q)),
    )


def mean_solves(mean: Expr, time: Symbol) -> bool:
    """Return whether a mean of u^-2 solves the equation that Ito's formula gives it."""
    growth = 6 * K + 4 * K * PULL
    closed = vanishes(generator(U**-2) - DELTA * (3 - 2 * RATIO) - growth / U**2)
    equation = diff(mean, time) - DELTA * (3 - 2 * RATIO) - growth * mean
    return closed and simplify(equation) == 0 and simplify(mean.subs(time, 0) - U**-2) == 0


def _inverse_square() -> Finding:
    time = Symbol("T", positive=True)
    growth = 6 * K + 4 * K * PULL
    grown = exp(growth * time)
    mean = U**-2 * grown + DELTA * (3 - 2 * RATIO) * (grown - 1) / growth
    return proven(
        "the drift of u^-2 is delta (3 - 2 a) + B u^-2, and the stated mean solves that equation "
        "from u_0^-2; the martingale part is one because the coefficients of Q grow linearly",
        mean_solves(mean, time),
    )


def mean_log_defect() -> tuple[bool, bool]:
    """Return whether the naive mean of log u fails, and whether the stated mean is right.

    At a = 1/2, mu = 0 let y = arcsinh(sqrt(delta/(2k)) u) and D = y coth y - 1. G = E log u_tau at
    an independent exponential time tau of rate 2 k solves 2 k G - L G = 2 k log u. Both
    log u - 1/2 and log u - 1/2 - D do; the mean is the one that stays bounded as u grows, because
    infinity is an entrance boundary.
    """
    critical = {RATIO: HALF, PULL: 0}
    y = Symbol("y", positive=True)
    value = sqrt(DELTA / (2 * K)) * U
    defect = asinh(value) * sqrt(1 + value**2) / value - 1

    def residual(mean: Expr) -> Expr:
        return simplify(2 * K * (mean - log(U)) - generator(mean).subs(critical))

    naive, stated = log(U) - HALF, log(U) - HALF - defect
    solve = residual(naive) == 0 and residual(stated) == 0
    # y coth y > 1: y - tanh y is 0 at 0 and has the derivative tanh^2 y.
    positive = simplify(diff(y - tanh(y), y) - tanh(y) ** 2) == 0
    unit = {K: HALF, DELTA: 1}
    bounded = limit(stated.subs(unit), U, oo).is_finite
    unbounded = limit(naive.subs(unit), U, oo) == oo
    return bool(solve and unbounded and positive), bool(solve and positive and bounded)


def _mean_log() -> Finding:
    fails, holds = mean_log_defect()
    return refuted(
        "the drift of log u is -k, but the martingale part is a strict local martingale: infinity "
        "is an entrance boundary, so E log u_T stays bounded as u_0 grows. At an exponential time "
        "of rate 2 k both log u_0 - 1/2 and log u_0 - 1/2 - (y coth y - 1) solve the equation of "
        "the mean, and the second alone is bounded",
        claim_fails=fails,
        correction_holds=holds,
    )


CLAIMS = [
    Claim(
        "explosion-lamperti",
        "X = arcsinh(sqrt(2k/delta)/u) solves dX = 2 k [(1 - a) coth X + (a - 1/2 + r) tanh X] dt "
        "+ sqrt(2 k) dB.",
        r"$dX=2k[(1-a)\coth X+(a-\frac12+r)\tanh X]dt+\sqrt{2k}\,dB$",
        Verdict.PROVEN,
        _lamperti,
    ),
    Claim(
        "explosion-pearson",
        "Q = sinh^2 X is a Pearson diffusion: its drift is 2 k (3 - 2 a + (3 + 2 r) Q), its "
        "variation 8 k Q (1 + Q).",
        r"$dQ=2k(3-2a+(3+2r)Q)dt+\sqrt{8kQ(1+Q)}\,dB$",
        Verdict.PROVEN,
        _pearson,
    ),
    Claim(
        "explosion-inverse-square",
        "If a <= 1/2, E u_T^-2 = u_0^-2 e^(BT) + delta (3 - 2 a) (e^(BT) - 1)/B, B = 6 k + 2 mu.",
        r"$a\le\frac12$: $E u_T^{-2}=u_0^{-2}e^{BT}+\delta(3-2a)\frac{e^{BT}-1}B$, $B=6k+2\mu$",
        Verdict.PROVEN,
        _inverse_square,
    ),
    Claim(
        "explosion-mean-log",
        "At a = 1/2 and mu = 0 (two tokens, gamma^2 = H/2), E log u_T = log u_0 - k T.",
        r"$\gamma^2=\frac H2$: $E\log u_T=\log u_0-kT$",
        Verdict.FALSE,
        _mean_log,
        "E log u_T < log u_0 - k T for T > 0. At an independent exponential time of rate 2 k the "
        "mean is log u_0 - 1/2 - (y coth y - 1), y = arcsinh(sqrt(delta/(2 k)) u_0).",
        r"$E\log u_T<\log u_0-kT$; $E\log u_\tau=\log u_0-\frac12-(y\coth y-1)$, "
        r"$\tau\sim\mathrm{Exp}(2k)$, $\sinh y=\sqrt{\delta/(2k)}\,u_0$",
    ),
]
