"""Claims on explosion where u has no equation of its own: bounds, causal masks, more tokens."""

from __future__ import annotations

from sympy import (
    Expr,
    Integer,
    Matrix,
    Rational,
    Symbol,
    acos,
    diff,
    exp,
    expand,
    eye,
    ones,
    pi,
    simplify,
    sqrt,
    symbols,
)

from symbolic.algebra import rational_covariance, symbolic_covariance, vech_pairs
from symbolic.blocks import ShapedAttention, relu_function
from symbolic.claims.explosion_equations import (
    GAP,
    MLP,
    MLP_GAMMA,
    PAIR,
    has_law,
    linear_rate,
    one_live_token,
    two_tokens,
)
from symbolic.claims.ito import Ito, vanishes
from symbolic.claims.ledger import Claim, Finding, Verdict, proven, refuted, tested
from symbolic.claims.live_token import SHARE, LiveToken, at_live_token
from symbolic.limit import derive
from symbolic.names import GAMMA, TAU

SHAPE = (Symbol("c_plus", real=True) - Symbol("c_minus", real=True)) ** 2
"""(c_+ - c_-)^2."""

PULL = MLP_GAMMA**2 * SHAPE / 4
"""The largest mu of the bounds with an MLP."""


def pull_is_bounded(largest: Expr) -> bool:
    """Return whether 0 <= 2 gamma_mlp^2 nu(rho) sqrt(V_00 V_11) <= `largest` u.

    nu = SHAPE f / (2 pi) with f convex, f(1) = 0 and f'(1) = 0, so f lies between 0 and its chord
    on [-1, 1]; the chord gives a multiple of (1 - rho) sqrt(V_00 V_11), and u - 2 (1 - rho)
    sqrt(V_00 V_11) is a square. Both bounds of f are attained at rho = 1 and rho = -1.
    """
    rho = Symbol("rho", real=True)
    first, second = symbols("x y", positive=True)
    at = {PAIR[0, 0]: first**2, PAIR[1, 1]: second**2, PAIR[0, 1]: rho * first * second}
    f = sqrt(1 - rho**2) - rho * acos(rho)
    same_function = simplify(relu_function(PAIR, 1, 0).subs(at) - first * second * f / (2 * pi))
    convex = simplify(diff(f, rho, 2) - 1 / sqrt(1 - rho**2)) == 0
    ends = f.subs(rho, 1) == 0 and diff(f, rho).subs(rho, 1) == 0 and f.subs(rho, -1) == pi
    chord = 2 * MLP_GAMMA**2 * SHAPE / (2 * pi) * first * second * pi / 2 * (1 - rho)
    gap = GAP.subs(at)
    # At rho = -1 and equal norms the chord is all of `largest` u, so no smaller constant will do.
    return bool(
        same_function == 0
        and convex
        and ends
        and expand(largest * gap - chord - largest * (first - second) ** 2) == 0
    )


def _mlp_bounds() -> Finding:
    ito = Ito(derive([ShapedAttention(), MLP], 2))
    law = two_tokens(1)
    pull = 2 * MLP_GAMMA**2 * SHAPE * relu_function(PAIR, 1, 0)
    variation = 2 * (law.rate + 2 * MLP_GAMMA**2) * GAP**2 + law.delta * GAP**4
    return proven(
        "derived: the MLP takes 2 gamma_mlp^2 nu sqrt(V_00 V_11) from the drift of u and adds 2 "
        "gamma_mlp^2 to k; sqrt(1 - rho^2) - rho arccos rho is convex, so between 0 and its chord "
        "(pi/2) (1 - rho), and u - 2 (1 - rho) sqrt(V_00 V_11) is a square; comparison of scalar "
        "equations gives the rest",
        expand(ito.drift(GAP) - law.alpha * GAP**3 + pull) == 0,
        expand(ito.covariation(GAP, GAP) - variation) == 0,
        pull_is_bounded(PULL),
    )


def trace_formulas_hold(tokens: int) -> bool:
    """Return whether tr V has the stated drift and quadratic variation, for all V.

    Drift (gamma^2/tau_0^2) (|P|^2 tr V / m^2 + q^T V s / m), variation 2 k |V|^2 + 4 (gamma^4 /
    tau_0^2) tr(V^2 P V) / m^2.
    """
    ito = Ito(derive(ShapedAttention(), tokens))
    v = symbolic_covariance(tokens)
    centring = eye(tokens) - ones(tokens, tokens) / tokens
    p = centring * v * centring
    spread = Matrix([p[a, a] - p.trace() / tokens for a in range(tokens)])
    diagonal = Matrix([v[a, a] for a in range(tokens)])
    cubic = (p * p).trace() * v.trace() / tokens**2 + (diagonal.T * v * spread)[0] / tokens
    quartic = 4 * (v * v * p * v).trace() / tokens**2
    rate = linear_rate()
    variation = 2 * rate * (v * v).trace() + GAMMA**4 / TAU**2 * quartic
    return bool(
        expand(ito.drift(v.trace()) - GAMMA**2 / TAU**2 * cubic) == 0
        and expand(ito.covariation(v.trace(), v.trace()) - variation) == 0
    )


def norms_are_ordered(tokens: int) -> bool:
    """Return whether the gaps of three inequalities are sums that are >= 0 if V is semidefinite.

    m |V|^2 - (tr V)^2, tr V - tr P, and (tr P)^2 - |P|^2 for any semidefinite P.
    """
    v = symbolic_covariance(tokens)
    below = [(a, b) for a, b in vech_pairs(tokens) if a != b]
    centring = eye(tokens) - ones(tokens, tokens) / tokens
    squares = sum((v[a, a] - v[b, b]) ** 2 + 2 * tokens * v[a, b] ** 2 for a, b in below)
    minors = sum(2 * (v[a, a] * v[b, b] - v[a, b] ** 2) for a, b in below)
    total = sum(v) / tokens
    norm = (v * v).trace()
    return bool(
        expand(tokens * norm - v.trace() ** 2 - squares) == 0
        and expand(v.trace() - (centring * v * centring).trace() - total) == 0
        and expand(v.trace() ** 2 - norm - minors) == 0
    )


def drift_is_below(growth: Expr, covariances: list[Matrix]) -> bool:
    """Return whether tr b <= growth (gamma^2/tau_0^2) (tr V)^3 at some rational V."""
    unit = {GAMMA: 1, TAU: 1}
    return all(
        bool(
            derive(ShapedAttention(), v.rows, v).drift.trace().subs(unit) <= growth * v.trace() ** 3
        )
        for v in covariances
    )


def erf_argument(tokens: Expr) -> Expr:
    """Return the argument of the bound erf divided by tr V_0."""
    return GAMMA / TAU * sqrt((tokens + 1) / (2 * Symbol("k", positive=True) * tokens))


def is_concave_scale(argument: Expr, tokens: Expr) -> bool:
    """Return whether erf(argument y) has no drift at the extreme coefficients, and is concave.

    The extreme drift is (gamma^2/tau_0^2) ((m + 1)/m^2) y^3, the extreme variation 2 k y^2 / m.
    """
    y, rate = symbols("y k", positive=True)
    first = exp(-((argument * y) ** 2))
    second = diff(first, y)
    cubic = GAMMA**2 / TAU**2 * (tokens + 1) / tokens**2 * y**3
    drift = simplify((cubic * first + rate * y**2 / tokens * second) / first)
    return bool(drift == 0 and simplify(-second / first).is_positive)


def _erf_bound() -> Finding:
    m = Symbol("m", positive=True)
    covariances = [rational_covariance(size, size) for size in (2, 3, 4)] + [
        at_live_token(size, 0, Rational(1)) for size in (2, 3, 4)
    ]
    return tested(
        "derived drift and variation of tr V, m = 2, 3; |P| <= tr P <= tr V and m |V|^2 >= (tr "
        "V)^2 as identities, m = 2, 3, 4, and Cauchy-Schwarz for q^T V s give (m + 1)/m^2; erf has "
        "no drift at the extreme coefficients and is concave, for any m; an MLP has no drift on "
        "the diagonal",
        *[trace_formulas_hold(size) for size in (2, 3)],
        *[norms_are_ordered(size) for size in (2, 3, 4)],
        *[drift_is_below(Rational(v.rows + 1, v.rows**2), [v]) for v in covariances],
        is_concave_scale(erf_argument(m), m),
        all(derive(MLP, size).drift[0, 0] == 0 for size in (2, 3)),
    )


def causal_equations_hold(heads: int) -> bool:
    """Return whether u, V_00, log u and u^(1 - 2a) under a causal mask are as stated, m = 2."""
    ito = Ito(derive(ShapedAttention(mask="causal", heads=heads), 2))
    law = two_tokens(heads)
    first, second = PAIR[0, 0], PAIR[1, 1]
    variation = 2 * law.rate * GAP**2 + law.delta * second * GAP**3

    def power_drift(power: Expr) -> Expr:
        """Return the drift of u^p over p u^p; at p = 0 that of log u."""
        spread = ito.covariation(GAP, GAP) / (2 * GAP**2)
        return ito.drift(GAP) / GAP + (power - 1) * spread

    surplus = (law.alpha - law.delta / 2) * second * GAP
    return (
        expand(ito.drift(GAP) - law.alpha * second * GAP**2) == 0
        and expand(ito.covariation(GAP, GAP) - variation) == 0
        and expand(ito.drift(first)) == 0
        and expand(ito.covariation(first, first) - 2 * law.rate * first**2) == 0
        and vanishes(power_drift(Integer(0)) + law.rate - surplus)
        and vanishes(power_drift(1 - 2 * law.ratio) + 2 * law.ratio * law.rate)
    )


def _causal() -> Finding:
    heads = Symbol("H", positive=True)
    law = two_tokens(heads)
    excess = (law.delta / 2 - law.alpha) * 16 * TAU**2 * heads / GAMMA**2
    return proven(
        "derived du and dV_00 = sqrt(2 k) V_00 dB_1, H = 1, 2; d log u has the drift -k + (alpha - "
        "delta/2) V_11 u, and delta/2 - alpha has the sign of 2 gamma^2 - H: if that is not "
        "negative, log u is a local martingale less a nonnegative process, which cannot tend to "
        "infinity, and u^(1 - 2 a) has the drift -2 a (1 - 2 a) k u^(1 - 2 a)",
        causal_equations_hold(1),
        causal_equations_hold(2),
        expand(excess - (2 * GAMMA**2 - heads)) == 0,
    )


def leading_block_is_autonomous(tokens: int, mask: str | None) -> bool:
    """Return whether the first tokens have the limit that they have without the last one."""
    fewer, more = (derive(ShapedAttention(mask=mask), m) for m in (tokens - 1, tokens))
    for ours, theirs in (
        (more.drift_polynomials, fewer.drift_polynomials),
        (more.diffusion_polynomials, fewer.diffusion_polynomials),
    ):
        rows, columns = theirs.shape
        if ours.extract(range(rows), range(columns)) != more.algebra.transfer(theirs):
            return False
    return True


def _leading_block() -> Finding:
    return proven(
        "a token sees none after it, so the first tokens of X' are those of a shorter sequence, at "
        "every width; derived, m = 3 and 4: drift and diffusion of the leading block are those of "
        "one token fewer. With full attention they are not",
        leading_block_is_autonomous(3, "causal"),
        leading_block_is_autonomous(4, "causal"),
        not leading_block_is_autonomous(3, None),
    )


def _threshold_for_more_tokens() -> Finding:
    extra, slack, heads_above = symbols("extra slack heads_above", nonnegative=True)
    m, heads = 3 + extra, 1 + heads_above
    ratio = one_live_token(1 / m, heads).ratio
    stated = heads * (m**2 - m - 1) / (4 * GAMMA**2 * (m - 1))
    # gamma^2 = 1 - slack <= 1.
    margin = expand(
        simplify((stated - Rational(1, 2)) * 4 * GAMMA**2 * (m - 1)).subs(GAMMA**2, 1 - slack)
    )
    example = one_live_token(Rational(1, 3), 1).ratio.subs(GAMMA, 1)
    law = one_live_token(SHARE, 1)
    return refuted(
        f"m = 3, H = 1, gamma = 1, V_0 = e_1 e_1^T: gamma^2 > H/2, but a = {example} > 1/2",
        claim_fails=has_law(LiveToken(), law, symbolic_covariance(1)[0, 0], 1)
        and bool(example > Rational(1, 2)),
        correction_holds=vanishes(ratio - stated) and margin.is_positive,
    )


CLAIMS = [
    Claim(
        "explosion-mlp-bounds",
        "Two tokens, full attention and a shaped ReLU MLP: 0 <= nu sqrt(V_00 V_11) <= (c_+ - "
        "c_-)^2 u/8, so P lies between the laws with mu = gamma_mlp^2 (c_+ - c_-)^2/4 and with mu "
        "= 0, both with k + 2 gamma_mlp^2.",
        r"$0\le\nu\sqrt{V_{00}V_{11}}\le\frac{(c_+-c_-)^2}8u$",
        Verdict.PROVEN,
        _mlp_bounds,
    ),
    Claim(
        "explosion-erf-bound",
        "Full attention, any m >= 2 and H, with or without a ReLU MLP: P <= erf((gamma/tau_0) "
        "sqrt((m + 1)/(2 k m)) tr V_0).",
        r"$P\le\mathrm{erf}\big(\frac\gamma{\tau_0}\sqrt{\frac{m+1}{2km}}\,\mathrm{tr}V_0\big)$",
        Verdict.TESTED,
        _erf_bound,
    ),
    Claim(
        "explosion-causal",
        "Two tokens, causal mask: du = alpha V_11 u^2 dt + sqrt(2 k u^2 + delta V_11 u^3) dB; if "
        "gamma^2 >= H/2, no explosion, and P(u ever reaches R) <= (u_0/R)^(1 - 2 a).",
        r"causal, $m=2$: $du=\alpha V_{11}u^2dt+\sqrt{2ku^2+\delta V_{11}u^3}\,dB$",
        Verdict.PROVEN,
        _causal,
    ),
    Claim(
        "explosion-leading-block",
        "With a causal mask the first tokens have the law that they have without the others.",
        r"causal: leading blocks of $V$ are autonomous",
        Verdict.PROVEN,
        _leading_block,
    ),
    Claim(
        "explosion-threshold-many-tokens",
        "For m >= 3 tokens and full attention: no explosion iff gamma^2 >= H/2.",
        r"$m\ge3$: no explosion iff $\gamma^2\ge H/2$",
        Verdict.FALSE,
        _threshold_for_more_tokens,
        "One live token explodes with positive probability for every gamma <= 1, H >= 1 and m >= "
        "3: a = H (m^2 - m - 1)/(4 gamma^2 (m - 1)) > 1/2.",
        r"one live token: $a=\frac{H(m^2-m-1)}{4\gamma^2(m-1)}>\frac12$ for all $\gamma\le1$",
    ),
]
