"""Claims on blocks with a norm before and after the branch: X' = lambda X + gamma N(B(N(X))).

The n columns of B have covariance R + b~/n and B B^T/n = R + s g + s^2 b~, where Sigma~ is the
covariance of g. Let c_ab = X_a . B_b / sqrt n, and write |B_a|^2/n for (B B^T/n)_aa. Then

    V'_ab = lambda^2 V_ab + gamma^2 (B B^T/n)_ab / (|B_a| |B_b|/n)
        + s lambda gamma (c_ab sqrt n / |B_b| + c_ba sqrt n / |B_a|).

Given R and g, B and -B have the same law, so c is centred and uncorrelated with g.
"""

from __future__ import annotations

from functools import cache
from itertools import product

from sympy import Expr, Integer, Rational, Symbol, expand, factor, sqrt, symbols

from symbolic.claims.ito import vanishes
from symbolic.claims.ledger import Claim, Finding, Verdict, proven, refuted
from symbolic.claims.normalised import (
    KEPT,
    LENGTHS,
    PAIRS,
    R,
    Values,
    linear_diffusion,
    post_norm_drift,
    spread_of_lengths,
    stated_share,
    symbolic_diffusion,
    symbolic_drift,
)
from symbolic.gaussian import isserlis
from symbolic.layer_step import STEP, average, layer_orders

GRAM = symbols("g_ab g_aa g_bb", real=True)
"""g, the fluctuation of the branch's Gram matrix."""

CROSS = symbols("c_ab c_ba c_aa c_bb", real=True)
"""c, the products of a row of X and a row of B."""

NOISES = [*GRAM, *CROSS]

ADDED = 1 - KEPT
"""gamma^2."""


def sandwich_layer(b: Values) -> dict[str, Expr]:
    """Return V'_ab, V'_aa, V'_bb from V_aa = 1 + x_a s, V_ab = R sqrt(V_aa V_bb).

    The length of a row of X enters c_ab as sqrt(V_aa): X is sqrt(V_aa) times its unit row.
    """
    size = {"a": sqrt(1 + STEP * LENGTHS[0]), "b": sqrt(1 + STEP * LENGTHS[1])}
    ab, aa, bb = (
        start + STEP * noise + STEP**2 * b[pair]
        for start, noise, pair in zip((R, 1, 1), GRAM, PAIRS, strict=True)
    )
    gram = {"ab": ab, "aa": aa, "bb": bb}
    cross = dict(zip(("ab", "ba", "aa", "bb"), CROSS, strict=True))
    weight = sqrt(KEPT * ADDED)
    layer = {}
    for pair in PAIRS:
        x, y = pair[0], pair[1]
        seen = gram[pair] / sqrt(gram[x + x] * gram[y + y])
        mixed = size[x] * cross[x + y] / sqrt(gram[y + y])
        mixed += size[y] * cross[y + x] / sqrt(gram[x + x])
        start = (R if x != y else 1) * size[x] * size[y]
        layer[pair] = KEPT * start + ADDED * seen + STEP * weight * mixed
    return layer


def _covariance(sigma: Values) -> dict[tuple[Symbol, Symbol], Expr]:
    """Return the covariances of the noises; c_ab and c_cd have V_ac R_bd by Isserlis' theorem."""
    v = {True: Integer(1), False: R}

    def product_of_rows(first: str, second: str) -> Expr:
        # X is given: E[B_b B_d] remains, times X_a . X_c.
        rows = isserlis((first[1], second[1]), lambda x, y: v[x == y])
        return v[first[0] == second[0]] * rows

    names = dict(zip(CROSS, ("ab", "ba", "aa", "bb"), strict=True))
    grams = dict(zip(GRAM, PAIRS, strict=True))
    table: dict[tuple[Symbol, Symbol], Expr] = {}
    for x, y in product(NOISES, repeat=2):
        if x in names and y in names:
            table[x, y] = product_of_rows(names[x], names[y])
        elif x in grams and y in grams:
            table[x, y] = sigma[grams[x] + grams[y]]
        else:
            # One row of B against two: an odd moment.
            table[x, y] = isserlis("Bbb", lambda *_: Integer(1))
    return table


def _mean(expression: Expr, sigma: Values) -> Expr:
    table = _covariance(sigma)
    return expand(average(expand(expression), NOISES, lambda x, y: table[x, y]))


def moments_at_unit_lengths(b: Values, sigma: Values) -> tuple[Values, Values]:
    """Return the derived b and Sigma of V at V = R."""
    still = dict.fromkeys(LENGTHS, 0)
    orders = {pair: layer_orders(image.subs(still)) for pair, image in sandwich_layer(b).items()}
    drift = {pair: _mean(orders[pair][2], sigma) for pair in PAIRS}
    diffusion = {
        x + y: _mean(orders[x][1] * orders[y][1], sigma) for x, y in product(PAIRS, repeat=2)
    }
    return drift, diffusion


def stated_moments(b: Values, sigma: Values) -> tuple[Values, Values]:
    """Return b = gamma^2 N[b~, Sigma~], Sigma = 2 lambda^2 gamma^2 Sigma_lin + gamma^4 J S~ J^T."""
    zero = Integer(0)
    drift = {"ab": ADDED * post_norm_drift(b, sigma), "aa": zero, "bb": zero}
    half = Rational(1, 2)
    weights = {"ab": Integer(1), "aa": -R * half, "bb": -R * half}
    projected = sum(weights[x] * weights[y] * sigma[x + y] for x, y in product(PAIRS, repeat=2))
    diffusion = linear_diffusion(2 * KEPT * ADDED)
    diffusion["abab"] += ADDED**2 * projected
    return drift, diffusion


@cache
def drift_of_sandwich() -> Expr:
    """Return the drift of R given the lengths, with symbols for b~ and Sigma~."""
    b, sigma = symbolic_drift(), symbolic_diffusion()
    layer = sandwich_layer(b)
    orders = layer_orders(layer["ab"] / sqrt(layer["aa"] * layer["bb"]))
    return _mean(orders[2], sigma)


def _noise_is_stated() -> bool:
    """Return whether V'_ab - V_ab has the noise lambda gamma (c_ab + c_ba) + gamma^2 (J g)_ab."""
    still = dict.fromkeys(LENGTHS, 0)
    noise = layer_orders(sandwich_layer(symbolic_drift())["ab"].subs(still), 1)[1]
    projected = GRAM[0] - R * (GRAM[1] + GRAM[2]) / 2
    cross = sqrt(KEPT * ADDED) * (CROSS[0] + CROSS[1])
    return vanishes(noise - cross - ADDED * projected)


def _limit() -> Finding:
    b, sigma = symbolic_drift(), symbolic_diffusion()
    derived, stated = moments_at_unit_lengths(b, sigma), stated_moments(b, sigma)
    return proven(
        "Taylor expansion of a layer in 1/sqrt n: the noise of V'_ab is lambda gamma (c_ab + c_ba) "
        "+ gamma^2 (J g)_ab; c_ab = X_a . B_b/sqrt n is odd in B, so it is centred and "
        "uncorrelated with g, and E[c_ab c_cd] = V_ac R_bd",
        _noise_is_stated(),
        *[vanishes(derived[0][pair] - stated[0][pair]) for pair in PAIRS],
        *[vanishes(derived[1][key] - stated[1][key]) for key in stated[1]],
    )


def averaged_drift() -> Expr:
    """Return the drift of R at the stationary lengths, E (x_a - x_b)^2 = D/(1 - lambda^4).

    Raises
    ------
    ArithmeticError
        If the drift given the lengths depends on more than (x_a - x_b)^2.
    """
    _, diffusion = stated_moments(symbolic_drift(), symbolic_diffusion())
    x_a, x_b = LENGTHS
    given = drift_of_sandwich()
    constant = given.subs(dict.fromkeys(LENGTHS, 0))
    share = factor((given - constant) / (x_a - x_b) ** 2)
    if share.free_symbols & set(LENGTHS):
        raise ArithmeticError("the drift depends on more than (x_a - x_b)^2")
    return constant + share * spread_of_lengths(diffusion) / (1 - KEPT**2)


def _of_correlations() -> Finding:
    b, diffusion = stated_moments(symbolic_drift(), symbolic_diffusion())
    spread = spread_of_lengths(diffusion)
    return proven(
        "Taylor expansion of R' in 1/sqrt n from V_aa = 1 + x_a/sqrt n, where x_a' = lambda^2 x_a "
        "+ 2 lambda gamma c_aa: given x the further drift is -lambda^2 gamma^2/8 R (x_a - x_b)^2",
        vanishes(
            averaged_drift() - post_norm_drift(b, diffusion) + stated_share() / 2 * R * spread
        ),
        vanishes(spread - 8 * KEPT * ADDED * (1 - R**2)),
        vanishes(
            layer_orders(sandwich_layer(symbolic_drift())["aa"], 1)[1]
            - KEPT * LENGTHS[0]
            - 2 * sqrt(KEPT * ADDED) * CROSS[2]
        ),
    )


def _no_correction() -> Finding:
    b, diffusion = stated_moments(symbolic_drift(), symbolic_diffusion())
    half = Rational(1, 2)
    linear = linear_diffusion(Integer(1))
    values = {s: Integer(0) for s in symbolic_drift().values()} | {
        symbol: linear[key] for key, symbol in symbolic_diffusion().items()
    }
    point = {KEPT: half, R: half}
    derived = averaged_drift().subs(values).subs(point)
    stated = post_norm_drift(b, diffusion).subs(values).subs(point)
    spread = spread_of_lengths(diffusion)
    return refuted(
        "a linear branch at lambda^2 = 1/2, R_ab = 1/2: the diagonal of X . B still moves V_aa; "
        f"the derived drift is {derived}, the stated one {stated}",
        claim_fails=derived != stated,
        correction_holds=vanishes(
            averaged_drift() - post_norm_drift(b, diffusion) + stated_share() / 2 * R * spread
        ),
    )


CLAIMS = [
    Claim(
        "sandwich-limit",
        "With a norm after the branch too, b = gamma^2 N[b~, Sigma~] and Sigma = 2 lambda^2 "
        "gamma^2 Sigma_lin + gamma^4 J Sigma~ J^T at V = R: N is the drift of Post-RMS, J its "
        "projection of noise, b~ and Sigma~ are those of the branch's Gram matrix.",
        r"$b=\gamma^2N[\tilde b,\tilde\Sigma]$, $\Sigma=2\lambda^2\gamma^2\Sigma_{lin}+"
        r"\gamma^4J\tilde\Sigma J^\top$",
        Verdict.PROVEN,
        _limit,
    ),
    Claim(
        "sandwich-correlations",
        "With these b and Sigma the drift of R_ab is N[b, Sigma]_ab - (beta/2) R_ab D_ab, as with "
        "Pre-RMS; the branch has no part in D_ab = 8 lambda^2 gamma^2 (1 - R_ab^2).",
        r"$N[b,\Sigma]_{ab}-\frac\beta2R_{ab}D_{ab}$, $D_{ab}=8\lambda^2\gamma^2(1-R_{ab}^2)$",
        Verdict.PROVEN,
        _of_correlations,
    ),
    Claim(
        "sandwich-without-correction",
        "The branch of a sandwich norm has rows of unit length, so R needs no correction for "
        "fluctuating lengths: its drift is N[b, Sigma].",
        r"sandwich norm: the drift of $R$ is $N[b,\Sigma]$",
        Verdict.FALSE,
        _no_correction,
        "The product of skip connection and branch moves V_aa; the drift is N[b, Sigma]_ab - "
        "(beta/2) R_ab D_ab.",
        r"$N[b,\Sigma]_{ab}-\frac\beta2R_{ab}D_{ab}$",
    ),
]
