"""Two tokens of a normalised block: its layer as a function of s = 1/sqrt n, and the drift of R.

R_ab = V_ab / sqrt(V_aa V_bb). An entry of its drift involves two tokens, so two tokens cover any m.
b and Sigma are those of the block without the norm at V = R, and lambda^2 + gamma^2 = 1.
"""

from __future__ import annotations

from collections.abc import Callable

from sympy import Expr, Rational, Symbol, expand, sqrt, symbols

from symbolic.layer_step import STEP, average, layer_orders

R = Symbol("R", real=True)
KEPT = Symbol("p", positive=True)
"""lambda^2, the share of V that the skip connection keeps."""

PAIRS = ("ab", "aa", "bb")
CENTRED = symbols("xi_ab xi_aa xi_bb", real=True)
"""The noise of V'_ab, V'_aa, V'_bb, without its factor s."""

LENGTHS = symbols("x_a x_b", real=True)
"""x in V_aa = 1 + x_a s."""

Values = dict[str, Expr]
"""Values by pair of tokens, such as the drift, or by two pairs, such as the diffusion."""


def symbolic_drift(name: str = "b") -> Values:
    """Return symbols for the drift of the three entries."""
    return {pair: Symbol(f"{name}_{pair}", real=True) for pair in PAIRS}


def symbolic_diffusion(name: str = "Sigma") -> Values:
    """Return symbols for the diffusion of the three entries."""
    return {
        first + second: Symbol(f"{name}_{min(first, second)},{max(first, second)}", real=True)
        for first in PAIRS
        for second in PAIRS
    }


def linear_diffusion(rate: Expr) -> Values:
    """Return `rate` times V_ac V_bd + V_ad V_bc at V = R."""

    def v(first: str, second: str) -> Expr:
        return Rational(1) if first == second else R

    return {
        x + y: rate * (v(x[0], y[0]) * v(x[1], y[1]) + v(x[0], y[1]) * v(x[1], y[0]))
        for x in PAIRS
        for y in PAIRS
    }


def noise_covariance(diffusion: Values) -> Callable[[Symbol, Symbol], Expr]:
    """Return the covariance of two symbols of `CENTRED`."""
    names = dict(zip(CENTRED, PAIRS, strict=True))
    return lambda x, y: diffusion[names[x] + names[y]]


def post_norm_layer(drift: Values) -> Expr:
    """Return R' after a layer from V = R whose output is normalised."""
    ab, aa, bb = (
        start + STEP * noise + STEP**2 * drift[pair]
        for start, noise, pair in zip((R, 1, 1), CENTRED, PAIRS, strict=True)
    )
    return ab / sqrt(aa * bb)


def pre_norm_layer(drift: Values, kept: Expr = KEPT) -> tuple[Expr, Expr]:
    """Return R' and x_a' of a layer whose branch sees normalised tokens; lengths 1 + x s."""
    first, second = (1 + STEP * x for x in LENGTHS)
    ab, aa, bb = (
        kept * start + (1 - kept) * seen + STEP * noise + STEP**2 * drift[pair]
        for start, seen, noise, pair in zip(
            (R * sqrt(first * second), first, second), (R, 1, 1), CENTRED, PAIRS, strict=True
        )
    )
    return ab / sqrt(aa * bb), expand((aa - 1) / STEP)


def drift_of_correlation(layer: Expr, diffusion: Values) -> Expr:
    """Return the coefficient of 1/n in E[R'] - R, given the lengths.

    Raises
    ------
    ArithmeticError
        If the mean has a term of order 1 or 1/sqrt n.
    """
    start, first, second = layer_orders(layer)
    covariance = noise_covariance(diffusion)
    if expand(start - R) != 0 or expand(average(first, CENTRED, covariance)) != 0:
        raise ArithmeticError("the mean of R' - R has a term larger than 1/n")
    return expand(average(second, CENTRED, covariance))


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
