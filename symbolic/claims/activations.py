"""Claims on MLPs with smooth shaped activations and gates, and on their explosion."""

from __future__ import annotations

from sympy import (
    Expr,
    Integer,
    Rational,
    Symbol,
    diff,
    erf,
    exp,
    gamma,
    integrate,
    limit,
    log,
    oo,
    pi,
    simplify,
    sqrt,
    tanh,
)
from sympy.polys.matrices import DomainMatrix

from symbolic.activations import GATE_CURVATURE, GATE_SLOPE, SECOND, THIRD, GatedMLP, SmoothMLP
from symbolic.algebra import Algebra, vech_pairs
from symbolic.blocks import gram_covariance
from symbolic.claims.ito import vanishes
from symbolic.claims.ledger import Claim, Finding, Verdict, proven, refuted
from symbolic.limit import derive
from symbolic.names import GAMMA

SCALE = Symbol("a", positive=True)
RATIO = Symbol("f", positive=True)
X = Symbol("x", real=True)


def smooth_drift(algebra: Algebra, a: int, b: int) -> Expr:
    """Return the stated drift of a smooth shaped activation."""
    v = algebra.v_expressions
    second = v[a, a] * v[b, b] + 2 * v[a, b] ** 2 - 3 * v[a, b]
    third = v[a, b] * (v[a, a] + v[b, b] - 2)
    return GAMMA**2 / SCALE**2 * (SECOND**2 / 4 * second + THIRD / 2 * third)


def gate_drift(algebra: Algebra, a: int, b: int) -> Expr:
    """Return the stated drift of a shaped gate."""
    v = algebra.v_expressions
    bracket = GATE_SLOPE**2 * (v[a, b] - 1) + GATE_CURVATURE / 2 * (v[a, a] + v[b, b] - 2)
    return GAMMA**2 / SCALE**2 * v[a, b] * bracket


def _diffusion(algebra: Algebra) -> DomainMatrix:
    """Return k Sigma_lin, k = 2 lambda^2 gamma^2 + gamma^4 + gamma^4 f."""
    gain = algebra[GAMMA] ** 2
    rate = gain * (2 - gain) + gain**2 * algebra[RATIO]
    pairs = vech_pairs(algebra.tokens)
    rows = [[gram_covariance(algebra, x, y) * rate for y in pairs] for x in pairs]
    return algebra.matrix(rows)


def limit_holds(block: SmoothMLP, tokens: int) -> bool:
    """Return whether drift and diffusion of the block are the stated ones."""
    derived = derive(block, tokens)
    drift = gate_drift if block.gated else smooth_drift
    return all(
        vanishes(derived.drift[a, b] - drift(derived.algebra, a, b)) for a, b in vech_pairs(tokens)
    ) and bool((derived.diffusion_polynomials - _diffusion(derived.algebra)).is_zero_matrix)


def _smooth() -> Finding:
    return proven(
        "Isserlis' theorem for the Taylor terms of phi, as polynomials; an entry of the drift "
        "involves two tokens and one of the diffusion four, so m = 4 covers every m",
        limit_holds(SmoothMLP(ratio=RATIO), 4),
    )


def _gate() -> Finding:
    return proven(
        "Isserlis' theorem for the Taylor terms of phi at beta, as polynomials; m = 4 covers every "
        "m",
        limit_holds(GatedMLP(ratio=RATIO), 4),
    )


def _without_normalisation() -> Finding:
    derived = derive(SmoothMLP(), 1)
    raw = derive(SmoothMLP(normalised=False), 1)
    at_one = {derived.algebra.v_expressions[0, 0]: 1}
    left = raw.drift[0, 0].subs(at_one).factor()
    return refuted(
        f"one token at V = 1: the drift without c is {left}, with c it is 0",
        claim_fails=left != 0,
        correction_holds=derived.drift[0, 0].subs(at_one).expand() == 0
        and limit_holds(SmoothMLP(ratio=RATIO), 2),
    )


def ratios(activation: Expr) -> tuple[Expr, Expr]:
    """Return p_2 and p_3 of an activation in x."""
    slope, second, third = (simplify(diff(activation, X, k).subs(X, 0)) for k in (1, 2, 3))
    return simplify(second / slope), simplify(third / slope)


def growth(activation: Expr) -> Expr:
    """Return (3/4) p_2^2 + p_3, the sign of kappa, by the derived drift of one token."""
    p2, p3 = ratios(activation)
    derived = derive(SmoothMLP(), 1)
    v = derived.algebra.v_expressions[0, 0]
    rate = simplify(derived.drift[0, 0] * SCALE**2 / GAMMA**2 / (v**2 - v))
    return simplify(rate.subs({SECOND: p2, THIRD: p3}))


ACTIVATIONS = {
    "GELU": X * (1 + erf(X / sqrt(2))) / 2,
    "SiLU": X / (1 + exp(-X)),
    "softplus - ln 2": log(1 + exp(X)) - log(2),
    "tanh": tanh(X),
}
STATED = {
    "GELU": (2 * sqrt(2 / pi), Integer(0)),
    "SiLU": (Integer(1), Integer(0)),
    "softplus - ln 2": (Rational(1, 2), Integer(0)),
    "tanh": (Integer(0), Integer(-2)),
}


def _ratios() -> Finding:
    return proven(
        "derivatives at 0, and the derived drift of one token: (3/4) p_2^2 + p_3 is "
        + ", ".join(f"{growth(phi)} for {name}" for name, phi in ACTIVATIONS.items()),
        *[
            simplify(mine - theirs) == 0
            for name, phi in ACTIVATIONS.items()
            for mine, theirs in zip(ratios(phi), STATED[name], strict=True)
        ],
        *[bool((growth(phi) > 0) == (name != "tanh")) for name, phi in ACTIVATIONS.items()],
    )


V, R = Symbol("V", positive=True), Symbol("r", positive=True)
"""R is |kappa| / k."""

VARIATION = 2 * V**2
"""sigma^2, in time units of 1/k."""


def scale_slope(ratio: Expr) -> Expr:
    """Return (log s')' = -2 b / sigma^2 for the ratio kappa / k."""
    return -2 * drift(ratio) / VARIATION


def drift(ratio: Expr) -> Expr:
    """Return b = kappa (V^2 - V), in time units of 1/k."""
    return ratio * (V**2 - V)


def scale_density(ratio: Expr) -> Expr:
    """Return s' = V^ratio exp(-ratio V)."""
    return V**ratio * exp(-ratio * V)


def feller_limit(ratio: Expr) -> Expr:
    """Return the limit of Feller's integrand times V^2 at infinity, for a positive ratio.

    The integrand is s' times the integral of 2 / (sigma^2 s'). L'Hopital's rule with the quotient
    of that integral and V^-2 / s' needs the derivatives alone, in which s' cancels.
    """
    slope = diff(V**-2, V) - V**-2 * scale_slope(ratio)
    return limit(simplify(2 / (VARIATION * slope)), V, oo)


def _feller() -> Finding:
    any_ratio = Symbol("kappa", real=True)
    mass = integrate(scale_density(R), (V, 0, oo))
    tails = [limit(scale_density(ratio), V, oo) for ratio in (Integer(0), -R)]
    # Ito's formula.
    logarithm = drift(any_ratio) / V - VARIATION / (2 * V**2)
    return proven(
        "s' = V^r exp(-r V), r = kappa/k. For r > 0 it is integrable, and Feller's integrand is "
        "asymptotic to V^-2/r at infinity; for r <= 0 s' tends to "
        f"{tails[0]} or {tails[1]}, so s is infinite there; log V has drift kappa (V - 1) - k, "
        "bounded near 0",
        vanishes(diff(log(scale_density(any_ratio)), V) - scale_slope(any_ratio)),
        simplify(mass * R ** (1 + R) / gamma(1 + R)) == 1,
        vanishes(feller_limit(R) - 1 / R),
        tails == [1, oo],
        vanishes(logarithm - any_ratio * (V - 1) + 1),
    )


def _curvature_alone() -> Finding:
    activation = tanh(X) + tanh(X) ** 2 / 2
    p2, value = ratios(activation)[0], growth(activation)
    return refuted(
        f"phi = tanh + tanh^2/2 has p_2 = {p2} and (3/4) p_2^2 + p_3 = {value}",
        claim_fails=p2 != 0 and bool(value < 0),
        correction_holds=bool(growth(ACTIVATIONS["SiLU"]) > 0)
        and vanishes(feller_limit(R) - 1 / R),
    )


CLAIMS = [
    Claim(
        "smooth-limit",
        "phi_s(x) = s phi(x/s) with s = a sqrt n, phi(0) = 0: b_ab = gamma^2 [p_2^2/(4 a^2) "
        "(V_aa V_bb + 2 V_ab^2 - 3 V_ab) + p_3/(2 a^2) V_ab (V_aa + V_bb - 2)] and Sigma = "
        "(2 lambda^2 gamma^2 + gamma^4 + gamma^4 n/d_ff) Sigma_lin.",
        r"$b_{ab}=\gamma^2[\frac{p_2^2}{4a^2}(V_{aa}V_{bb}+2V_{ab}^2-3V_{ab})+\frac{p_3}{2a^2}"
        r"V_{ab}(V_{aa}+V_{bb}-2)]$",
        Verdict.PROVEN,
        _smooth,
    ),
    Claim(
        "smooth-without-normalisation",
        "The factor c of a smooth shaped activation may be left out, as c phi'(0)^2 tends to 1.",
        r"without $c$ the drift is the same",
        Verdict.FALSE,
        _without_normalisation,
        "c phi'(0)^2 = 1 - ((3/4) p_2^2 + p_3)/(a^2 n) + ..., which changes the drift by "
        "-(gamma^2/a^2) ((3/4) p_2^2 + p_3) V_ab.",
        r"$c\,\phi'(0)^2=1-\frac{\frac34p_2^2+p_3}{a^2n}+\dots$",
    ),
    Claim(
        "smooth-activations",
        "(p_2, p_3) is (2 sqrt(2/pi), 0) for GELU, (1, 0) for SiLU, (1/2, 0) for softplus - ln 2 "
        "and (0, -2) for tanh; kappa = (gamma^2/a^2) ((3/4) p_2^2 + p_3) is positive for all but "
        "tanh.",
        r"$\kappa=\frac{\gamma^2}{a^2}(\frac34p_2^2+p_3)>0$ for GELU, SiLU, softplus, not tanh",
        Verdict.PROVEN,
        _ratios,
    ),
    Claim(
        "smooth-explosion",
        "dV = kappa (V^2 - V) dt + sqrt(2 k) V dB explodes with positive probability if and only "
        "if kappa > 0; it never reaches 0.",
        r"$dV=\kappa(V^2-V)dt+\sqrt{2k}V\,dB$ explodes iff $\kappa>0$",
        Verdict.PROVEN,
        _feller,
    ),
    Claim(
        "smooth-explosion-by-curvature",
        "With a smooth shaped activation one token explodes if and only if p_2 is not 0.",
        r"explosion iff $p_2\ne0$",
        Verdict.FALSE,
        _curvature_alone,
        "It explodes with positive probability if and only if (3/4) p_2^2 + p_3 > 0.",
        r"explosion iff $\frac34p_2^2+p_3>0$",
    ),
    Claim(
        "gate-limit",
        "A shaped gate u phi(beta + g/s)/phi(beta) has b_ab = (gamma^2/a^2) V_ab [r_1^2 (V_ab - 1) "
        "+ (r_2/2)(V_aa + V_bb - 2)], r_k = phi^(k)(beta)/phi(beta), and the diffusion of "
        "`smooth-limit`.",
        r"$b_{ab}=\frac{\gamma^2}{a^2}V_{ab}[r_1^2(V_{ab}-1)+\frac{r_2}2(V_{aa}+V_{bb}-2)]$",
        Verdict.PROVEN,
        _gate,
    ),
]
