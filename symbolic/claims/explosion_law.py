"""Claims on the explosion of du = (alpha u^3 - mu u) dt + sqrt(2 k u^2 + delta u^4) dB.

All are identities of rational functions of u, the parameters, and symbols for functions that are
known by their equation. a = alpha / delta, r = mu / (2 k), Z = delta u^2 / (2 k + delta u^2).
"""

from __future__ import annotations

from sympy import Expr, Integer, Symbol, diff, factor, limit, log, oo, sqrt, symbols

from symbolic.claims.explosion_equations import two_tokens
from symbolic.claims.ito import vanishes
from symbolic.claims.ledger import Claim, Finding, Verdict, proven
from symbolic.names import GAMMA
from symbolic.series import HALF

U, K, DELTA = symbols("u k delta", positive=True)
RATIO, PULL = symbols("a r", positive=True)
"""a and r."""

DRIFT = RATIO * DELTA * U**3 - 2 * K * PULL * U
VARIATION = 2 * K * U**2 + DELTA * U**4
PLACE = DELTA * U**2 / (2 * K + DELTA * U**2)
"""Z, which maps u from 0 to infinity to 0 to 1."""


def generator(function: Expr) -> Expr:
    """Return the drift of f(u)."""
    return DRIFT * diff(function, U) + VARIATION * diff(function, U, 2) / 2


def scale_slope(pull: Expr = PULL) -> Expr:
    """Return (log s')' for the stated scale density s' = u^(2r) (2k + delta u^2)^(-a-r)."""
    return 2 * pull / U - (RATIO + pull) * 2 * DELTA * U / (2 * K + DELTA * U**2)


def solves_scale_equation(slope: Expr) -> bool:
    """Return whether s with (log s')' = `slope` has no drift."""
    return vanishes(DRIFT + VARIATION * slope / 2)


def beta_slope(first: Expr, second: Expr) -> Expr:
    """Return the logarithmic derivative in u of the density of I_Z(first, second)."""
    step = diff(PLACE, U)
    return (first - 1) * step / PLACE - (second - 1) * step / (1 - PLACE) + diff(PLACE, U, 2) / step


def student_slope(degrees: Expr) -> Expr:
    """Return the same for 2 F_nu(sqrt(nu delta / (2 k)) u) - 1, with the density of Student's t."""
    t = Symbol("t", positive=True)
    log_density = -(degrees + 1) / 2 * log(1 + t**2 / degrees)
    stretch = sqrt(degrees * DELTA / (2 * K))
    return stretch * diff(log_density, t).subs(t, stretch * U)


def _scale() -> Finding:
    return proven(
        "b s' + sigma^2 s''/2 = 0 as an identity of rational functions, through (log s')'; "
        "s' is integrable at 0 as 2 r > -1",
        solves_scale_equation(scale_slope()),
        limit(U * scale_slope(), U, 0) == 2 * PULL,
    )


def _probability() -> Finding:
    return proven(
        "the density of I_Z(1/2 + r, a - 1/2) in u has the logarithmic derivative of the scale "
        "density, and Z runs from 0 to 1",
        vanishes(beta_slope(HALF + PULL, RATIO - HALF) - scale_slope()),
        limit(PLACE, U, 0) == 0,
        limit(PLACE, U, oo) == 1,
        diff(PLACE, U).factor().is_positive,
    )


def _student() -> Finding:
    heads = Symbol("H", positive=True)
    degrees = heads / (2 * GAMMA**2) - 1
    return proven(
        "with nu = 2 a - 1 the density of Student's t has the logarithmic derivative of the scale "
        "density at r = 0; a = H/(4 gamma^2) by the derived coefficients",
        vanishes(student_slope(2 * RATIO - 1) - scale_slope(Integer(0))),
        vanishes(2 * two_tokens(heads).ratio - 1 - degrees),
    )


def speed_limits() -> tuple[Expr, Expr]:
    """Return the limits of Feller's integrand times u^3 at infinity and times u at 0.

    The integrand is (s(end) - s(u)) 2 / (sigma^2 s'). L'Hopital's rule with the quotient of
    s(end) - s(u) and sigma^2 s' u^p / 2 needs the derivatives alone, in which s' cancels.
    """
    ends = []
    for power, end, sign in ((-3, oo, -1), (-1, 0, 1)):
        bottom = VARIATION * U**power / 2
        slope = diff(bottom, U) + bottom * scale_slope()
        ends.append(factor(limit(factor(sign / slope), U, end)))
    return ends[0], ends[1]


def _feller() -> Finding:
    at_infinity, at_zero = speed_limits()
    return proven(
        "u (log s')' tends to -2 a at infinity; there Feller's integrand is asymptotic to "
        "(2/(delta (2 a - 1))) u^-3, so infinity is reached in finite time if s is finite; at 0 it "
        "is asymptotic to u^-1/(k (1 + 2 r)), so 0 is not reached",
        limit(factor(U * scale_slope()), U, oo) == -2 * RATIO,
        vanishes(at_infinity - 2 / (DELTA * (2 * RATIO - 1))),
        vanishes(at_zero - 1 / (K * (1 + 2 * PULL))),
    )


def _threshold() -> Finding:
    heads = Symbol("H", positive=True)
    excess = two_tokens(heads).ratio - HALF
    return proven(
        "a - 1/2 = (H - 2 gamma^2)/(4 gamma^2) by the derived coefficients of "
        "`explosion-two-tokens`; Feller's test is `explosion-feller`",
        vanishes(excess - (heads - 2 * GAMMA**2) / (4 * GAMMA**2)),
    )


def solves_killed_equation(first: Expr, second: Expr, third: Expr, kappa: Symbol) -> bool:
    """Return whether psi = Z^kappa 2F1(first, second; third; Z) has L psi = q psi.

    q = 4 k (kappa^2 - (1/2 + r) kappa), which is what kappa solves. F and F' are symbols, and F''
    is eliminated by the hypergeometric equation.
    """
    f, slope = symbols("F F_1")
    z = PLACE
    curvature = (first * second * f - (third - (first + second + 1) * z) * slope) / (z * (1 - z))
    drift, variation = generator(z), VARIATION * diff(z, U) ** 2
    rate = 4 * K * (kappa**2 - (HALF + PULL) * kappa)
    return vanishes(
        drift * (kappa * f / z + slope)
        + variation / 2 * (kappa * (kappa - 1) * f / z**2 + 2 * kappa * slope / z + curvature)
        - rate * f
    )


def _killed() -> Finding:
    kappa, q = symbols("kappa q", positive=True)
    second, third = kappa + 1 - RATIO - PULL, 2 * kappa + HALF - PULL
    root = (HALF + PULL + sqrt((HALF + PULL) ** 2 + q / K)) / 2
    at_rest = {kappa: HALF + PULL}
    return proven(
        "L psi - q psi is 0 by the hypergeometric equation, as an identity of rational functions "
        "in u; C - A - B = a - 1/2, C - A and C - B are the arguments in Gauss's value of psi at "
        "infinity; at q = 0, psi is the incomplete beta function of the scale",
        solves_killed_equation(kappa, second, third, kappa),
        vanishes((4 * K * (root**2 - (HALF + PULL) * root) - q).expand()),
        vanishes(third - kappa - second - (RATIO - HALF)),
        vanishes(third - kappa - (kappa + HALF - PULL)),
        vanishes(third - second - (kappa + RATIO - HALF)),
        vanishes(second.subs(at_rest) - (1 - (RATIO - HALF))),
        vanishes(third.subs(at_rest) - (HALF + PULL + 1)),
    )


CLAIMS = [
    Claim(
        "explosion-scale",
        "du = (alpha u^3 - mu u) dt + sqrt(2 k u^2 + delta u^4) dB has the scale density u^(2r) "
        "(2 k + delta u^2)^(-a-r), a = alpha/delta, r = mu/(2 k).",
        r"$s'(u)=u^{2r}(2k+\delta u^2)^{-a-r}$",
        Verdict.PROVEN,
        _scale,
    ),
    Claim(
        "explosion-feller",
        "If a > 1/2, u explodes in finite time with positive probability; if a <= 1/2 it does not. "
        "It never reaches 0.",
        r"$P(u$ explodes$)>0$ iff $a>\frac12$",
        Verdict.PROVEN,
        _feller,
    ),
    Claim(
        "explosion-probability",
        "If a > 1/2, u explodes with probability I_Z(1/2 + r, a - 1/2), Z = delta u_0^2/(2 k + "
        "delta u_0^2).",
        r"$P=I_Z(\frac12+r,a-\frac12)$, $Z=\frac{\delta u_0^2}{2k+\delta u_0^2}$",
        Verdict.PROVEN,
        _probability,
    ),
    Claim(
        "explosion-student",
        "Two tokens: the probability is 2 F_nu(sqrt(nu delta/(2 k)) u_0) - 1, F_nu the "
        "distribution function of Student's t with nu = H/(2 gamma^2) - 1 degrees of freedom.",
        r"$P=2F_\nu(\sqrt{\nu\delta/(2k)}\,u_0)-1$, $\nu=\frac H{2\gamma^2}-1$",
        Verdict.PROVEN,
        _student,
    ),
    Claim(
        "explosion-threshold",
        "Two tokens, full attention: no explosion iff gamma^2 >= H/2.",
        r"$m=2$: no explosion iff $\gamma^2\ge H/2$",
        Verdict.PROVEN,
        _threshold,
    ),
    Claim(
        "explosion-time",
        "E e^(-q tau_R) = psi(u_0)/psi(R), psi = Z^kappa 2F1(kappa, kappa + 1 - a - r; 2 kappa + "
        "1/2 - r; Z), kappa = (1/2 + r + sqrt((1/2 + r)^2 + q/k))/2.",
        r"$E e^{-q\tau_R}=\psi(u_0)/\psi(R)$, "
        r"$\psi=Z^\kappa{}_2F_1(\kappa,\kappa+1-a-r;2\kappa+\frac12-r;Z)$",
        Verdict.PROVEN,
        _killed,
    ),
]
