"""Claims on post-norm, pre-norm and sandwich norms in the proportional limit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product

from sympy import (
    Expr,
    Integer,
    Matrix,
    Rational,
    Symbol,
    prod,
    rem,
    solve,
    sqrt,
    symbols,
)

from symbolic.algebra import symbolic_covariance, vech
from symbolic.blocks import ShapedAttention
from symbolic.claims.explosion import Ito, vanishes
from symbolic.claims.ledger import Finding, proven, refuted, tested
from symbolic.layer_step import STEP, average, layer_orders
from symbolic.limit import derive
from symbolic.series import HALF

# Two tokens of a normalised block: its layer as a function of s = 1/sqrt n, and the drift of R.
#
# R_ab = V_ab / sqrt(V_aa V_bb). An entry of its drift involves two tokens, so two tokens cover any
# m. b and Sigma are those of the block without the norm at V = R, and lambda^2 + gamma^2 = 1.

R = Symbol("R", real=True)
KEPT = Symbol("p", positive=True)
"""lambda^2, the share of V that the skip connection keeps."""

ADDED = 1 - KEPT
"""gamma^2."""

PAIRS = ("ab", "aa", "bb")
CENTRED = symbols("xi_ab xi_aa xi_bb", real=True)
"""The noise of V'_ab, V'_aa, V'_bb or, with two norms, of the branch's Gram matrix, over s."""

CROSS = symbols("c_ab c_ba c_aa c_bb", real=True)
"""c, the products of a row of X and a row of the branch B."""

NOISES = dict(zip((*CENTRED, *CROSS), (*PAIRS, "ab", "ba", "aa", "bb"), strict=True))
"""All noises with their rows."""

LENGTHS = symbols("x_a x_b", real=True)
"""x in V_aa = 1 + x_a s."""

EQUAL = dict.fromkeys(LENGTHS, 0)
UNIT = R, Integer(1), Integer(1)
"""Lengths 1, and V_ab, V_aa, V_bb there."""

Values = dict[str, Expr]
"""Values by pair of tokens, such as the drift, or by two pairs, such as the diffusion."""


def symbolic_drift() -> Values:
    """Return symbols for the drift of the three entries."""
    return {pair: Symbol(f"b_{pair}", real=True) for pair in PAIRS}


def symbolic_diffusion() -> Values:
    """Return symbols for the diffusion of the three entries."""
    return {
        x + y: Symbol(f"Sigma_{min(x, y)},{max(x, y)}", real=True)
        for x, y in product(PAIRS, repeat=2)
    }


B, SIGMA = symbolic_drift(), symbolic_diffusion()


def inner(first: str, second: str) -> Expr:
    """Return the entry of V = R of two tokens."""
    return Integer(1) if first == second else R


def linear_diffusion(rate: Expr) -> Values:
    """Return `rate` times V_ac V_bd + V_ad V_bc at V = R."""

    def entry(a: str, b: str, c: str, d: str) -> Expr:
        return rate * (inner(a, c) * inner(b, d) + inner(a, d) * inner(b, c))

    return {x + y: entry(*x, *y) for x, y in product(PAIRS, repeat=2)}


def mean(expression: Expr, diffusion: Values) -> Expr:
    """Return the mean over the noises, given R and the lengths.

    c_ab and c_cd have the covariance V_ac R_bd. Given R and the Gram matrix B and -B have the same
    law, so c is centred and uncorrelated with its fluctuation.
    """

    def covariance(x: Symbol, y: Symbol) -> Expr:
        first, second = NOISES[x], NOISES[y]
        if (x in CROSS) != (y in CROSS):
            return Integer(0)
        if x in CROSS:
            return inner(first[0], second[0]) * inner(first[1], second[1])
        return diffusion[first + second]

    return average(expression.expand(), list(NOISES), covariance).expand()


def moved(starts: Sequence[Expr], drift: Values) -> list[Expr]:
    """Return three entries after a change by noise and drift."""
    changes = zip(starts, CENTRED, PAIRS, strict=True)
    return [start + STEP * noise + STEP**2 * drift[pair] for start, noise, pair in changes]


def post_norm_layer(drift: Values) -> Expr:
    """Return R' after a layer from V = R whose output is normalised."""
    ab, aa, bb = moved(UNIT, drift)
    return ab / sqrt(aa * bb)


def pre_norm_layer(drift: Values) -> tuple[Expr, Expr]:
    """Return R' and x_a' of a layer whose branch sees normalised tokens; lengths 1 + x s."""
    first, second = (1 + STEP * x for x in LENGTHS)
    kept = R * sqrt(first * second), first, second
    starts = [KEPT * own + ADDED * seen for own, seen in zip(kept, UNIT, strict=True)]
    ab, aa, bb = moved(starts, drift)
    return ab / sqrt(aa * bb), ((aa - 1) / STEP).expand()


def drift_of_correlation(layer: Expr, diffusion: Values) -> Expr:
    """Return the coefficient of 1/n in E[R'] - R, given the lengths.

    Raises
    ------
    ArithmeticError
        If the mean has a term of order 1 or 1/sqrt n.
    """
    start, first, second = layer_orders(layer)
    if (start - R).expand() != 0 or mean(first, diffusion) != 0:
        raise ArithmeticError("the mean of R' - R has a term larger than 1/n")
    return mean(second, diffusion)


def post_norm_drift(b: Values, sigma: Values) -> Expr:
    """Return the stated drift of R with Post-RMS, N[b, Sigma]."""
    return (
        b["ab"]
        - R * (b["aa"] + b["bb"]) / 2
        - (sigma["abaa"] + sigma["abbb"]) / 2
        + R * (3 * (sigma["aaaa"] + sigma["bbbb"]) / 8 + sigma["aabb"] / 4)
    )


def spread_of_lengths(sigma: Values) -> Expr:
    """Return D_ab = Sigma_aa,aa + Sigma_bb,bb - 2 Sigma_aa,bb, the variance of xi_aa - xi_bb."""
    return sigma["aaaa"] + sigma["bbbb"] - 2 * sigma["aabb"]


def stated_share(kept: Expr = KEPT) -> Expr:
    """Return the stated beta = lambda^2 / (4 (1 + lambda^2))."""
    return kept / (4 * (1 + kept))


# Claims on blocks whose output is normalised (Post-RMS), and on the factor of R.


def _projected(values: Values) -> Expr:
    """Return the derivative of R along a change of V at V = R."""
    return values["ab"] - R * (values["aa"] + values["bb"]) / 2


def post_rms_drift() -> Finding:
    layer = post_norm_layer(B)
    # The same by Ito's formula in the derived limit of attention.
    limit, order = derive(ShapedAttention(), 2), ("aa", "ab", "bb")
    aa, ab, bb = vech(limit.algebra.v_expressions)
    at_r = {aa: 1, ab: R, bb: 1}
    drift = Ito.of(limit).drift(ab / sqrt(aa * bb)).subs(at_r)
    b = dict(zip(order, vech(limit.drift.subs(at_r)), strict=True))
    pairs = [x + y for x, y in product(order, repeat=2)]
    sigma = dict(zip(pairs, limit.diffusion.subs(at_r), strict=True))
    return proven(
        vanishes(drift_of_correlation(layer, SIGMA) - post_norm_drift(B, SIGMA)),
        vanishes(layer_orders(layer, 1)[1] - _projected(dict(zip(PAIRS, CENTRED, strict=True)))),
        (drift - post_norm_drift(b, sigma)).simplify() == 0,
    )


def post_rms_projected_drift() -> Finding:
    nothing: Values = dict.fromkeys(PAIRS, Integer(0))
    k = Symbol("k", positive=True)
    derived = drift_of_correlation(post_norm_layer(nothing), linear_diffusion(k))
    return refuted(
        claim_fails=_projected(nothing) == 0 and derived != 0,
        correction_holds=vanishes(derived - post_norm_drift(nothing, linear_diffusion(k)))
        and vanishes(derived + k * R * (1 - R**2) / 2),
    )


def normalised_row_drift(size: int) -> tuple[Matrix, Matrix, Matrix]:
    """Return Ito's term in u + dg over its length, for |u| = 1, with u and S = E[dg dg^T] / dt.

    |u + s z|^2 = 1 + 2 s u.z + s^2 |z|^2 uses |u| = 1; the rest is an identity in u and S.
    """
    u, z = (Matrix(symbols(f"{name}_1:{size + 1}", real=True)) for name in "uz")
    covariance, places = symbolic_covariance(size, "S"), list(z)
    length = sqrt(1 + 2 * STEP * u.dot(z) + STEP**2 * z.dot(z))

    def entry(x: Symbol, y: Symbol) -> Expr:
        return covariance[places.index(x), places.index(y)]

    seconds = [layer_orders(image)[2] for image in (u + STEP * z) / length]
    return Matrix([average(second, places, entry) for second in seconds]), u, covariance


def row_noise(size: int) -> tuple[Matrix, Matrix, Matrix, Expr, Expr]:
    """Return S of a row u^T (sqrt(k)/2 Z_1 + c Z_2 Q) of dF with u, Q, k and c.

    Z_1 is symmetric with variance 1 off the diagonal and 2 on it, Z_2 has independent entries.
    """
    k, c = symbols("k c", positive=True)
    u, q = Matrix(symbols(f"u_1:{size + 1}", real=True)), symbolic_covariance(size, "Q")
    total = Matrix.zeros(size, size)
    for i, j in product(range(size), repeat=2):
        unit = Matrix.eye(size)[:, i] * Matrix.eye(size)[j, :]
        rows = [u.T * unit * q * c]
        if i <= j:
            rows.append(u.T * (unit + unit.T) * sqrt(k) / 2 / sqrt(Integer(1 + (i == j))))
        total += sum((row.T * row for row in rows), Matrix.zeros(size, size))
    return total, u, q, k, c


def _row_form(size: int) -> list[bool]:
    term, u, covariance = normalised_row_drift(size)
    projection = Matrix.eye(size) - u * u.T
    radial = covariance.trace() - (u.T * covariance * u)[0]
    general = -projection * covariance * u - radial * u / 2
    noise, u, q, k, c = row_noise(size)
    turned = (q * q).trace() - (q * u).dot(q * u)
    stated = -(c**2) * projection * q * q * u - (k * Rational(size - 1, 4) + c**2 * turned) * u / 2
    entries = dict(zip(vech(covariance), vech(noise), strict=True))
    defects = (term.subs(entries, simultaneous=True) - stated).expand()
    return [
        (term - general).expand().is_zero_matrix,
        *[rem(defect, u.dot(u) - 1, u[size - 1]).expand() == 0 for defect in defects],
    ]


def post_rms_factor() -> Finding:
    return tested(*_row_form(2), *_row_form(3))


# Claims on blocks whose branch sees normalised tokens (Pre-RMS), with lambda^2 + gamma^2 = 1.
#
# V_aa relaxes to 1 + x_a / sqrt n, where x is a stationary autoregression. Its fluctuation changes
# the drift of R = V_ab / sqrt(V_aa V_bb), and nothing else.


@cache
def correction_given_lengths() -> Expr:
    """Return the drift of R with Pre-RMS minus that with Post-RMS, given the lengths."""
    layers = pre_norm_layer(B)[0], post_norm_layer(B)
    pre, post = (drift_of_correlation(layer, SIGMA) for layer in layers)
    return (pre - post).factor()


def spreads_before_blocks(kept: Sequence[Expr], added: Sequence[Expr]) -> list[Expr]:
    """Return the stationary E (x_a - x_b)^2 before each block of a layer.

    Block i maps it to lambda_i^4 times it plus D_i, by x_a' = lambda^2 x_a + xi_aa.
    """
    first = Symbol("first")
    values: list[Expr] = [first]
    for share, spread in zip(kept, added, strict=True):
        values.append(share**2 * values[-1] + spread)
    (start,) = solve(values[-1] - first, first)
    return [value.subs(first, start).factor() for value in values[:-1]]


def averaged_correction(kept: Sequence[Expr], added: Sequence[Expr]) -> Expr:
    """Return the mean correction of the drift of R, summed over the blocks of a layer."""
    share = correction_given_lengths() / (LENGTHS[0] - LENGTHS[1]) ** 2
    before = spreads_before_blocks(kept, added)
    return sum(share.subs(KEPT, p) * spread for p, spread in zip(kept, before, strict=True))


def pre_rms_correction() -> Finding:
    (x_a, x_b), spread = LENGTHS, Symbol("D", positive=True)
    correlation, length = pre_norm_layer(B)
    noises = [layer_orders(layer, 1)[1] for layer in (correlation, post_norm_layer(B))]
    return proven(
        vanishes(layer_orders(length, 0)[0] - KEPT * x_a - CENTRED[1]),
        vanishes(noises[0] - noises[1]),
        vanishes(correction_given_lengths() + KEPT * ADDED / 8 * R * (x_a - x_b) ** 2),
        vanishes(spreads_before_blocks([KEPT], [spread])[0] - spread / (1 - KEPT**2)),
        vanishes(averaged_correction([KEPT], [spread]) + stated_share() / 2 * R * spread),
    )


def stated_shares(kept: Sequence[Expr]) -> list[Expr]:
    """Return the stated beta_i of the blocks of a layer."""
    shares = []
    for i in range(len(kept)):
        total, passed = Integer(0), Integer(1)
        for p in [*kept[i + 1 :], *kept[: i + 1]]:
            total += passed * p * (1 - p) / 4
            passed *= p**2
        shares.append(total / (1 - prod(p**2 for p in kept)))
    return shares


def pre_rms_several_blocks() -> Finding:
    facts = []
    for count in (1, 2, 3):
        kept, added = (symbols(f"{name}_1:{count + 1}", positive=True) for name in "pD")
        stated = sum(beta * d for beta, d in zip(stated_shares(kept), added, strict=True))
        facts.append(vanishes(averaged_correction(kept, added) + R / 2 * stated))
    return tested(*facts)


HALVES = {KEPT: HALF, R: HALF}


def pre_rms_as_post_rms() -> Finding:
    # A linear branch.
    sigma = linear_diffusion(1 - KEPT**2)
    spread = spread_of_lengths(sigma)
    post = post_norm_drift(dict.fromkeys(PAIRS, Integer(0)), sigma)
    correction = averaged_correction([KEPT], [spread])
    values = [drift.subs(HALVES) for drift in (post + correction, post)]
    return refuted(
        claim_fails=values == [Rational(-3, 16), Rational(-9, 64)],
        correction_holds=vanishes(correction + stated_share() / 2 * R * spread),
    )


def pre_rms_initial() -> Finding:
    # R after 60 layers V_ab <- V_ab (lambda^2 + gamma^2/sqrt(V_aa V_bb)), lambda^2 = 1/2.
    ab, aa, bb = (value.evalf(30) for value in (Integer(1), Integer(4), Rational(1, 4)))
    for _ in range(60):
        ab, aa, bb = ab * (1 + 1 / sqrt(aa * bb)) / 2, (aa + 1) / 2, (bb + 1) / 2
    reached = ab / sqrt(aa * bb)
    # (R'/R)^2 = before^2 / (product of the lengths); the defect is a square.
    root_a, root_b = symbols("root_a root_b", positive=True)
    before = KEPT * root_a * root_b + ADDED
    defect = (KEPT * root_a**2 + ADDED) * (KEPT * root_b**2 + ADDED) - before**2
    return refuted(
        claim_fails=bool(abs(reached - 1) > Rational(1, 10)),
        correction_holds=vanishes(defect - KEPT * ADDED * (root_a - root_b) ** 2)
        and bool(abs(reached - Rational(7357, 10**4)) < Rational(1, 10**4)),
    )


# Claims on blocks with a norm before and after the branch: X' = lambda X + gamma N(B(N(X))).
#
# The n columns of B have covariance R + b~/n and B B^T/n = R + s g + s^2 b~, where Sigma~ is the
# covariance of g. Let c_ab = X_a . B_b / sqrt n, and write |B_a|^2/n for (B B^T/n)_aa. Then
#
# V'_ab = lambda^2 V_ab + gamma^2 (B B^T/n)_ab / (|B_a| |B_b|/n)
# + s lambda gamma (c_ab sqrt n / |B_b| + c_ba sqrt n / |B_a|).


def sandwich_layer(b: Values) -> Values:
    """Return V'_ab, V'_aa, V'_bb from V_aa = 1 + x_a s, V_ab = R sqrt(V_aa V_bb).

    The length of a row of X enters c_ab as sqrt(V_aa): X is sqrt(V_aa) times its unit row.
    """
    size = {token: sqrt(1 + STEP * x) for token, x in zip("ab", LENGTHS, strict=True)}
    gram = dict(zip(PAIRS, moved(UNIT, b), strict=True))
    cross = {NOISES[noise]: noise for noise in CROSS}
    layer = {}
    for pair in PAIRS:
        x, y = pair[0], pair[1]
        seen = gram[pair] / sqrt(gram[x + x] * gram[y + y])
        mixed = size[x] * cross[x + y] / sqrt(gram[y + y])
        mixed += size[y] * cross[y + x] / sqrt(gram[x + x])
        start = inner(x, y) * size[x] * size[y]
        layer[pair] = KEPT * start + ADDED * seen + STEP * sqrt(KEPT * ADDED) * mixed
    return layer


def stated_moments(b: Values, sigma: Values) -> tuple[Values, Values]:
    """Return b = gamma^2 N[b~, Sigma~], Sigma = 2 lambda^2 gamma^2 Sigma_lin + gamma^4 J S~ J^T."""
    drift = dict.fromkeys(PAIRS, Integer(0)) | {"ab": ADDED * post_norm_drift(b, sigma)}
    weights = dict(zip(PAIRS, (Integer(1), -R / 2, -R / 2), strict=True))
    projected = sum(weights[x] * weights[y] * sigma[x + y] for x, y in product(PAIRS, repeat=2))
    diffusion = linear_diffusion(2 * KEPT * ADDED)
    diffusion["abab"] += ADDED**2 * projected
    return drift, diffusion


def sandwich_limit() -> Finding:
    orders = {pair: layer_orders(image.subs(EQUAL)) for pair, image in sandwich_layer(B).items()}
    drift, diffusion = stated_moments(B, SIGMA)
    projected = _projected(dict(zip(PAIRS, CENTRED, strict=True)))
    return proven(
        vanishes(orders["ab"][1] - sqrt(KEPT * ADDED) * (CROSS[0] + CROSS[1]) - ADDED * projected),
        *[vanishes(mean(orders[pair][2], SIGMA) - drift[pair]) for pair in PAIRS],
        *[
            vanishes(mean(orders[x][1] * orders[y][1], SIGMA) - diffusion[x + y])
            for x, y in product(PAIRS, repeat=2)
        ],
    )


@cache
def averaged_drift() -> Expr:
    """Return the drift of R at the stationary lengths, E (x_a - x_b)^2 = D/(1 - lambda^4)."""
    layer = sandwich_layer(B)
    given = drift_of_correlation(layer["ab"] / sqrt(layer["aa"] * layer["bb"]), SIGMA)
    constant = given.subs(EQUAL)
    # No length is left in the share.
    share = ((given - constant) / (LENGTHS[0] - LENGTHS[1]) ** 2).factor()
    spread = spread_of_lengths(stated_moments(B, SIGMA)[1])
    return constant + share * spread / (1 - KEPT**2)


def _correction_holds() -> bool:
    moments = stated_moments(B, SIGMA)
    correction = stated_share() / 2 * R * spread_of_lengths(moments[1])
    return vanishes(averaged_drift() - post_norm_drift(*moments) + correction)


def sandwich_correlations() -> Finding:
    length = layer_orders(sandwich_layer(B)["aa"], 1)[1]
    spread = spread_of_lengths(stated_moments(B, SIGMA)[1])
    return proven(
        _correction_holds(),
        vanishes(spread - 8 * KEPT * ADDED * (1 - R**2)),
        vanishes(length - KEPT * LENGTHS[0] - 2 * sqrt(KEPT * ADDED) * CROSS[2]),
    )


def sandwich_without_correction() -> Finding:
    # A linear branch.
    linear = {SIGMA[key]: value for key, value in linear_diffusion(Integer(1)).items()}
    point = dict.fromkeys(B.values(), Integer(0)) | linear
    drifts = averaged_drift(), post_norm_drift(*stated_moments(B, SIGMA))
    values = [drift.subs(point).subs(HALVES) for drift in drifts]
    return refuted(
        claim_fails=values == [Rational(-7, 32), Rational(-3, 16)],
        correction_holds=_correction_holds(),
    )
