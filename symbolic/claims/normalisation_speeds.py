"""Claims on where the layers on the sphere normalise: this sets the speed of every token.

A token is x = r u with |u| = 1, and A is its attention, which sees directions only. As h -> 0,

    Post-LN  x' = N(x + h A),    Peri-LN  x' = x + h N(A),           N(y) = y / |y|,
    Pre-LN   x' = x + h A,       nGPT     x' = N(x + alpha h N(A)),

and Mix-LN is Post-LN up to some time, Pre-LN from then on.
"""

from __future__ import annotations

from sympy import (
    Expr,
    Integer,
    Rational,
    Symbol,
    cancel,
    diff,
    exp,
    expand,
    limit,
    oo,
    simplify,
    sqrt,
    symbols,
)

from symbolic.claims.gram_flow import COSINE, COUNT, rate_of_the_cosine
from symbolic.claims.inner_products import BETA
from symbolic.claims.ledger import Claim, Finding, Verdict, not_to_be_judged, proven

STEP, LENGTH, SIZE, ALPHA = symbols("h r a alpha", positive=True)
ALONG = Symbol("b", real=True)
"""Step; |x|; |A|; weight of the branch of nGPT; <u, A>."""

P, Q = symbols("p q", positive=True)
"""Weights of the token itself and of each other one."""

ONE = Integer(1)
SCHEMES: dict[str, tuple[Expr, Expr, Expr, Expr]] = {
    "Post-LN": (ONE, ONE, ONE, ALONG),
    "Pre-LN": (LENGTH, ONE, LENGTH, ALONG),
    "Peri-LN": (LENGTH, 1 / SIZE, LENGTH * SIZE, ALONG / SIZE),
    "nGPT": (ONE, ALPHA / SIZE, SIZE / ALPHA, ALPHA * ALONG / SIZE),
}
"""|x|, the factor of A in a layer, the claimed s, and the growth of |x| before it is normalised."""


def motion(length: Expr, factor: Expr, kept: Expr = ONE) -> tuple[Expr, Expr]:
    """Return k and r' if N(k(h) r u + h f A) moves u by k P_u A, and its length is r + h r'.

    With <u, A> and |A| as symbols this is every dimension.

    Raises
    ------
    ArithmeticError
        If u moves in another direction than P_u A = A - <u, A> u.
    """
    square = (kept * length) ** 2 + 2 * STEP * factor * kept * length * ALONG
    size = sqrt(square + (STEP * factor * SIZE) ** 2)
    on_u, on_attention, growth = (
        simplify(diff(part, STEP).subs(STEP, 0))
        for part in (kept * length / size, STEP * factor / size, size)
    )
    if simplify(on_u + ALONG * on_attention) != 0:
        raise ArithmeticError("the direction does not move along P_u A")
    return on_attention, growth


def _speeds() -> Finding:
    weighted = motion(ONE, ALPHA / SIZE, 1 - ALPHA * STEP)[0]
    return proven(
        "the derivative at h = 0 of the new direction and length, with <u, A> and |A| as symbols; "
        "for nGPT also with the interpolation N(u + alpha h (N(A) - u)). A weight alpha(t) is a "
        "change of time. The s of two tokens may differ: then they follow other paths, not only "
        "other clocks",
        *[
            simplify(moved * divisor - 1) == 0 and simplify(growth - grown) == 0
            for length, factor, divisor, grown in SCHEMES.values()
            for moved, growth in [motion(length, factor)]
        ],
        simplify(weighted - ALPHA / SIZE) == 0,
    )


def along(g: Expr = COSINE) -> Expr:
    """Return <u, A> of tokens with equal cosines."""
    return P + (COUNT - 1) * Q * g


def square(g: Expr = COSINE) -> Expr:
    """Return |A|^2 of tokens with equal cosines: A = (p - q) u_i + q sum_j u_j."""
    total = 1 + (COUNT - 1) * g
    return (P - Q) ** 2 + 2 * (P - Q) * Q * total + Q**2 * COUNT * total


def with_softmax(expression: Expr) -> Expr:
    """Return an expression in p and q for the weights of SA."""
    total = exp(BETA) + (COUNT - 1) * exp(BETA * COSINE)
    return expression.subs({P: exp(BETA) / total, Q: exp(BETA * COSINE) / total})


def _equiangular() -> Finding:
    other = P * COSINE + Q * (1 + (COUNT - 2) * COSINE)
    rate = 2 * (other - along() * COSINE)
    written = P**2 + 2 * P * Q * (COUNT - 1) * COSINE
    written += Q**2 * (COUNT - 1) * (1 + (COUNT - 2) * COSINE)
    return proven(
        "<u_i, A_i> and <u_j, A_i> of A_i = p u_i + q sum of the others; they and |A| are equal "
        "for all tokens, which keep equal lengths and cosines, so that s is a clock for all",
        expand(rate - 2 * Q * (1 - COSINE) * (1 + (COUNT - 1) * COSINE)) == 0,
        cancel(with_softmax(rate) - rate_of_the_cosine(unnormalised=False)) == 0,
        expand(square() - written) == 0,
    )


def first_speeds() -> tuple[Expr, Expr]:
    """Return g' of orthogonal tokens of length 1 with s = 1 and, squared, with s = |A|."""
    slow = rate_of_the_cosine(unnormalised=False).subs(COSINE, 0)
    return slow, slow**2 / with_softmax(square()).subs(COSINE, 0)


def _start() -> Finding:
    slow, fast = first_speeds()
    faster = cancel(fast / slow**2)
    missing = (COUNT - 1) * (exp(BETA) - 1) ** 2 / (exp(2 * BETA) + COUNT - 1)
    return proven(
        "|A|^2 = (e^(2 beta) + N - 1)/(e^beta + N - 1)^2 at g = 0; N less the squared ratio of the "
        "speeds is (N - 1)(e^beta - 1)^2/(e^(2 beta) + N - 1) >= 0, and 0 for beta = 0 only. The "
        "factor is near sqrt N for N >> e^(2 beta); for fixed N and beta -> oo it is 1",
        cancel(slow - 2 / (exp(BETA) + COUNT - 1)) == 0,
        cancel(fast - 4 / (exp(2 * BETA) + COUNT - 1)) == 0,
        cancel(COUNT - faster - missing) == 0,
        limit(faster / COUNT, COUNT, oo) == 1,
        limit(faster, BETA, oo) == 1,
    )


def closing(divisor: Expr = ONE) -> Expr:
    """Return g' / (1 - g) of SA at g = 1, where |A| = 1."""
    rate = cancel(rate_of_the_cosine(unnormalised=False) / (1 - COSINE))
    return simplify((rate / divisor.subs(SIZE, 1)).subs(COSINE, 1))


def _exponential() -> Finding:
    return proven(
        "tokens with equal cosines: g'/(1 - g) is analytic at g = 1, with these values, so that "
        "e^(rt) (1 - g) has a positive limit. |A| = 1 there for SA (with USA |A| = e^beta, and the "
        "rate of Post-LN is 2 e^beta, that of nGPT still 2 alpha)",
        cancel(with_softmax(square()).subs(COSINE, 1)) == 1,
        closing(SCHEMES["Post-LN"][2]) == 2,
        simplify(closing(SCHEMES["nGPT"][2]) - 2 * ALPHA) == 0,
    )


def growth(scheme: str) -> Expr:
    """Return d log r / dg of SA as a function of g."""
    _, _, divisor, grown = SCHEMES[scheme]
    ratio = (grown * divisor / LENGTH).subs(ALONG, with_softmax(along()))
    return cancel(ratio / rate_of_the_cosine(unnormalised=False))


def _powers() -> Finding:
    weighted = [cancel(growth(scheme) * (1 - COSINE)) for scheme in ("Pre-LN", "Peri-LN")]
    return proven(
        "d log r/dg is the same for Pre-LN and Peri-LN, and at g = 1 it is 1/(2 (1 - g)) plus an "
        "analytic function: r (1 - g)^(1/2) -> C > 0. As |A| -> 1, dt/dg ~ r/(2 (1 - g)) ~ (C/2) "
        "(1 - g)^(-3/2), so t (1 - g)^(1/2) -> C and t^2 (1 - g) -> C^2, and r/t -> 1. What was "
        "before, such as the first stage of Mix-LN, changes C only",
        cancel(weighted[0] - weighted[1]) == 0,
        cancel(weighted[0] - with_softmax(along() / (2 * Q * (1 + (COUNT - 1) * COSINE)))) == 0,
        weighted[0].subs(COSINE, 1) == Rational(1, 2),
        closing() == 2,
    )


def _order() -> Finding:
    # For SA p + (N - 1) q = 1.
    one = (P + (COUNT - 1) * Q) ** 2
    left = (1 - COSINE) * (COUNT - 1) * Q * (2 * P + (COUNT - 2) * Q)
    return proven(
        "1 - |A|^2 = (1 - g)(N - 1) q (2 p + (N - 2) q) >= 0, and r' has the sign of <u, A> = p + "
        "(N - 1) q g > 0: at every g |A| <= 1 <= r and |A| <= r |A| <= r, r that of Mix-LN below "
        "that of Pre-LN, and the time to reach g is the integral of s dg / g' along one path. "
        "Peri-LN starts with s = |A| < 1, Post-LN's e^(-2t) is below t^(-2) in the end",
        expand(one - square() - left) == 0,
        along().subs(COSINE, 0) == P,
        diff(along(), COSINE) == (COUNT - 1) * Q,
        closing() == 2,
    )


CLAIMS = [
    Claim(
        "normalisation-speeds",
        "Abstract: normalisation acts as a regulation of speed. With x = r u the layers converge "
        "to u' = P_u A / s, where s = 1 for Post-LN, r for Pre-LN, r |A| for Peri-LN, |A| / alpha "
        "for nGPT; r' = <u, A> for Pre-LN and <u, A> / |A| for Peri-LN.",
        r"$\dot u=P_uA/s$, $s=1,\ r,\ r|A|,\ |A|/\alpha$",
        Verdict.PROVEN,
        _speeds,
    ),
    Claim(
        "normalisation-equal-cosines",
        "Tokens with equal cosines g and lengths keep them in every scheme, and g' = 2 q (1 - g) "
        "(1 + (N - 1) g) / s with weights p of the token itself and q of each other; <u, A> = p + "
        "(N - 1) q g, |A|^2 = p^2 + 2 p q (N - 1) g + q^2 (N - 1) (1 + (N - 2) g).",
        r"$\dot g=2q(1-g)(1+(N-1)g)/s$",
        Verdict.PROVEN,
        _equiangular,
    ),
    Claim(
        "normalisation-start",
        "From orthogonal tokens Peri-LN, and nGPT with alpha = 1, start with g' = 2 / (e^(2 beta) "
        "+ N - 1)^(1/2) (SA), Post-LN and Pre-LN with 2 / (e^beta + N - 1): faster by at most "
        "sqrt N, and by about sqrt N as N -> oo at fixed beta.",
        r"$\dot g(0)=\frac2{\sqrt{e^{2\beta}+N-1}}$ against $\frac2{e^\beta+N-1}$",
        Verdict.PROVEN,
        _start,
    ),
    Claim(
        "normalisation-exponential",
        "In the end 1 - g ~ e^(-2t) for Post-LN and e^(-2 alpha t) for nGPT with constant alpha "
        "(V = I, SA, equal cosines).",
        r"$1-g\sim e^{-2t}$, $e^{-2\alpha t}$",
        Verdict.PROVEN,
        _exponential,
    ),
    Claim(
        "normalisation-powers",
        "In the end 1 - g ~ t^-2 for Pre-LN, Mix-LN and Peri-LN (V = I, SA, equal cosines).",
        r"$1-g\sim t^{-2}$",
        Verdict.PROVEN,
        _powers,
    ),
    Claim(
        "normalisation-order",
        "From the same tokens with equal cosines g >= 0 (SA) the cosines are ordered at all times: "
        "Pre-LN <= Mix-LN <= Post-LN <= nGPT with alpha = 1, and Pre-LN <= Peri-LN <= nGPT. "
        "Peri-LN is ahead of Post-LN at first and behind in the end.",
        r"$g_{\mathrm{Pre}}\le g_{\mathrm{Mix}}\le g_{\mathrm{Post}}\le g_{\mathrm{nGPT}}$, "
        r"$g_{\mathrm{Pre}}\le g_{\mathrm{Peri}}\le g_{\mathrm{nGPT}}$",
        Verdict.PROVEN,
        _order,
    ),
    Claim(
        "normalisation-best",
        "Abstract: Peri-LN is a particularly effective choice.",
        "Peri-LN is particularly effective",
        Verdict.NOT_JUDGED,
        not_to_be_judged(
            "no measure of effectiveness is stated; that it starts like nGPT and ends like Pre-LN "
            "is proven above"
        ),
    ),
]
