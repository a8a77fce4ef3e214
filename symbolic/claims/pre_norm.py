"""Claims on blocks whose branch sees normalised tokens (Pre-RMS), with lambda^2 + gamma^2 = 1.

V_aa relaxes to 1 + x_a / sqrt n, where x is a stationary autoregression. Its fluctuation changes
the drift of R = V_ab / sqrt(V_aa V_bb), and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from sympy import Expr, Integer, Matrix, Rational, Symbol, factor, prod, solve, sqrt, symbols

from symbolic.claims.ito import vanishes
from symbolic.claims.ledger import Claim, Finding, Verdict, proven, refuted, tested
from symbolic.claims.normalised import (
    CENTRED,
    KEPT,
    LENGTHS,
    PAIRS,
    R,
    drift_of_correlation,
    linear_diffusion,
    post_norm_drift,
    post_norm_layer,
    pre_norm_layer,
    spread_of_lengths,
    stated_share,
    symbolic_diffusion,
    symbolic_drift,
)
from symbolic.layer_step import layer_orders


@cache
def correction_given_lengths() -> Expr:
    """Return the drift of R with Pre-RMS minus that with Post-RMS, given the lengths."""
    b, sigma = symbolic_drift(), symbolic_diffusion()
    pre = drift_of_correlation(pre_norm_layer(b)[0], sigma)
    return factor(pre - drift_of_correlation(post_norm_layer(b), sigma))


def spreads_before_blocks(kept: Sequence[Expr], added: Sequence[Expr]) -> list[Expr]:
    """Return the stationary E (x_a - x_b)^2 before each block of a layer.

    Block i maps it to lambda_i^4 times it plus D_i, by x_a' = lambda^2 x_a + xi_aa.
    """
    first = Symbol("first")
    values: list[Expr] = [first]
    for share, spread in zip(kept, added, strict=True):
        values.append(share**2 * values[-1] + spread)
    (start,) = solve(values[-1] - first, first)
    return [factor(value.subs(first, start)) for value in values[:-1]]


def averaged_correction(kept: Sequence[Expr], added: Sequence[Expr]) -> Expr:
    """Return the mean correction of the drift of R, summed over the blocks of a layer."""
    squared = (LENGTHS[0] - LENGTHS[1]) ** 2
    share = correction_given_lengths() / squared
    before = spreads_before_blocks(kept, added)
    return sum(share.subs(KEPT, p) * spread for p, spread in zip(kept, before, strict=True))


def _lengths_follow_autoregression() -> bool:
    start, _ = layer_orders(pre_norm_layer(symbolic_drift())[1], 1)
    return bool(vanishes(start - KEPT * LENGTHS[0] - CENTRED[1]))


def _noise_is_that_of_post_norm() -> bool:
    b = symbolic_drift()
    pre, post = (
        layer_orders(f(b), 1)[1] for f in (lambda b: pre_norm_layer(b)[0], post_norm_layer)
    )
    return bool(vanishes(pre - post))


def _one_block() -> Finding:
    x_a, x_b = LENGTHS
    spread = Symbol("D", positive=True)
    return proven(
        "Taylor expansion of a layer in 1/sqrt n from V_aa = 1 + x_a/sqrt n: x_a' = lambda^2 x_a "
        "+ xi_aa; R' - R has the noise of Post-RMS, and given x the further drift -lambda^2 "
        "gamma^2/8 R (x_a - x_b)^2, where E (x_a - x_b)^2 = D/(1 - lambda^4)",
        _lengths_follow_autoregression(),
        _noise_is_that_of_post_norm(),
        vanishes(correction_given_lengths() + KEPT * (1 - KEPT) / 8 * R * (x_a - x_b) ** 2),
        vanishes(spreads_before_blocks([KEPT], [spread])[0] - spread / (1 - KEPT**2)),
        vanishes(averaged_correction([KEPT], [spread]) + stated_share() / 2 * R * spread),
    )


def stated_shares(kept: Sequence[Expr]) -> list[Expr]:
    """Return the stated beta_i of the blocks of a layer."""
    count = len(kept)
    shares = []
    for i in range(count):
        total, passed = Integer(0), Integer(1)
        for j in [(i + step) % count for step in range(1, count + 1)]:
            total += passed * kept[j] * (1 - kept[j]) / 4
            passed *= kept[j] ** 2
        shares.append(total / (1 - prod(p**2 for p in kept)))
    return shares


def _several_blocks() -> Finding:
    facts = []
    for count in (1, 2, 3):
        kept = symbols(f"p_1:{count + 1}", positive=True)
        added = symbols(f"D_1:{count + 1}", positive=True)
        stated = sum(beta * d for beta, d in zip(stated_shares(kept), added, strict=True))
        facts.append(vanishes(averaged_correction(kept, added) + R / 2 * stated))
    return tested(
        "the stationary E (x_a - x_b)^2 before each of 1, 2, 3 blocks, as rational functions of "
        "the lambda_i^2 and D_i",
        *facts,
    )


def _same_as_post_norm() -> Finding:
    k = 1 - KEPT**2
    sigma = linear_diffusion(k)
    half = Rational(1, 2)
    point = {KEPT: half, R: half}
    post = post_norm_drift(dict.fromkeys(PAIRS, Integer(0)), sigma)
    correction = averaged_correction([KEPT], [spread_of_lengths(sigma)])
    return refuted(
        "a linear branch at lambda^2 = 1/2, R_ab = 1/2, where k = 1 - lambda^4 = 3/4: the drift is "
        f"{(post + correction).subs(point)} with Pre-RMS and {post.subs(point)} with Post-RMS",
        claim_fails=correction.subs(point) != 0,
        correction_holds=vanishes(correction + stated_share() / 2 * R * spread_of_lengths(sigma)),
    )


def limit_of_large_width(v: Matrix, kept: Rational, layers: int = 60) -> Expr:
    """Return R_01 after `layers` layers V_ab <- V_ab (lambda^2 + gamma^2/sqrt(V_aa V_bb))."""
    ab, aa, bb = (v[i].evalf(30) for i in ((0, 1), (0, 0), (1, 1)))
    for _ in range(layers):
        ab *= kept + (1 - kept) / sqrt(aa * bb)
        aa, bb = kept * aa + 1 - kept, kept * bb + 1 - kept
    return ab / sqrt(aa * bb)


def _start() -> Finding:
    v = Matrix([[4, 1], [1, Rational(1, 4)]])
    reached = limit_of_large_width(v, Rational(1, 2))
    root_a, root_b = symbols("root_a root_b", positive=True)
    before = KEPT * root_a * root_b + 1 - KEPT
    lengths = [KEPT * root**2 + 1 - KEPT for root in (root_a, root_b)]
    # (R'/R)^2 = before^2 / (lengths product); the defect is a square.
    defect = lengths[0] * lengths[1] - before**2
    return refuted(
        "V_0 = [[4, 1], [1, 1/4]] at lambda^2 = 1/2: R(V_0) = 1, but the layers tend to "
        f"{reached:.4f}; the squared factor of R_ab in a layer is 1 - lambda^2 gamma^2 "
        "(sqrt V_aa - sqrt V_bb)^2/(V_aa' V_bb'), an identity",
        claim_fails=bool(abs(reached - 1) > Rational(1, 10)),
        correction_holds=vanishes(defect - KEPT * (1 - KEPT) * (root_a - root_b) ** 2)
        and bool(abs(reached - Rational(7357, 10**4)) < Rational(1, 10**4)),
    )


CLAIMS = [
    Claim(
        "pre-rms-correction",
        "With Pre-RMS the drift of R_ab is that with Post-RMS minus (beta/2) R_ab D_ab, beta = "
        "lambda^2/(4 (1 + lambda^2)), D_ab = Sigma_aa,aa + Sigma_bb,bb - 2 Sigma_aa,bb; the noise "
        "is the same.",
        r"Pre-RMS: $N[b,\Sigma]_{ab}-\frac\beta2R_{ab}D_{ab}$, "
        r"$\beta=\frac{\lambda^2}{4(1+\lambda^2)}$",
        Verdict.PROVEN,
        _one_block,
    ),
    Claim(
        "pre-rms-several-blocks",
        "With several blocks in a layer the correction is the sum of -(beta_i/2) R_ab D_i,ab, "
        "beta_i = sum_j W_j lambda_j^2 gamma_j^2/4/(1 - prod lambda^4), j over the blocks that "
        "follow i cyclically, i last, W_j the product of lambda^4 of the blocks between i and j.",
        r"$\beta_i=\frac{\sum_jW_j\lambda_j^2\gamma_j^2/4}{1-\prod_j\lambda_j^4}$",
        Verdict.TESTED,
        _several_blocks,
    ),
    Claim(
        "pre-rms-as-post-rms",
        "With lambda^2 + gamma^2 = 1, Pre-RMS and Post-RMS have the same limit of R.",
        r"Pre-RMS and Post-RMS have the same limit",
        Verdict.FALSE,
        _same_as_post_norm,
        "The lengths fluctuate by 1/sqrt n, and the drift differs by -(beta/2) R_ab D_ab.",
        r"the drift differs by $-\frac\beta2R_{ab}D_{ab}$",
    ),
    Claim(
        "pre-rms-initial",
        "With Pre-RMS the limit of R starts from R(V_0).",
        r"Pre-RMS: $R_0 = R(V_0)$",
        Verdict.FALSE,
        _start,
        "It starts from the limit of V_ab <- V_ab (lambda^2 + gamma^2/sqrt(V_aa V_bb)), which is "
        "R(V_0) if and only if V_aa = V_bb or R_ab = 0.",
        r"from the limit of $V_{ab}\leftarrow V_{ab}(\lambda^2+\gamma^2/\sqrt{V_{aa}V_{bb}})$",
    ),
]
