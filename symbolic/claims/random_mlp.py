"""Claims on the sphere with heads whose queries and keys are random, and with random MLPs.

Given the first matrices of a layer its noise is Gaussian with the covariance S / d between tokens:
S = (1/H) sum_h w_h R w_h^T for heads, S = (1/p) sum_a phi(u_a) phi(u_a)^T for an MLP, where the u_a
are normal with the covariance R. Drift and bracket of R are those of `random_values`.
"""

from __future__ import annotations

from itertools import combinations, product

from sympy import (
    E,
    Expr,
    Function,
    Integer,
    Matrix,
    Rational,
    Symbol,
    asin,
    cancel,
    cos,
    diff,
    exp,
    expand,
    factorial,
    floor,
    gammasimp,
    integrate,
    limit,
    pi,
    simplify,
    sin,
    sinh,
    sqrt,
    symbols,
)

from symbolic.claims import random_values
from symbolic.claims.ito import vanishes
from symbolic.claims.ledger import Claim, Finding, Verdict, proven
from symbolic.claims.random_values import PAIR, D, R
from symbolic.gaussian import isserlis

A, K, B = symbols("A K B", positive=True)
"""kappa(1) = E phi^2, kappa'(1) = E phi'^2, and S_01."""

KAPPA = Function("kappa")
ANGLE = Symbol("t", positive=True)


def _mean_of_s() -> Finding:
    r, s, t = (random_values.symmetric(name, 4) for name in "RST")
    c = Symbol("c", real=True)
    pairs = list(combinations(range(4), 2))
    drift, bracket = random_values.drift, random_values.bracket
    return proven(
        "both are linear in S, with symbols R and S, all pairs of four tokens; S is independent "
        "of the last matrix, so that the moments of a layer are the means over S",
        *[
            vanishes(f(r, s + c * t, *of) - f(r, s, *of) - c * f(r, t, *of))
            for f, cases in ((drift, pairs), (bracket, product(pairs[:1], pairs)))
            for of in cases
        ],
    )


def next_hermite(polynomial: Expr, u: Symbol) -> Expr:
    """Return He_(n+1) from He_n by the definition (-1)^n D^(n) / D, D = exp(-u^2 / 2)."""
    density = exp(-(u**2) / 2)
    return expand(simplify(-diff(polynomial * density, u) / density))


def by_parts(polynomial: Expr, u: Symbol) -> Expr:
    """Return phi' f D - phi (u f - f') D - (phi f D)', D the density: 0 for all phi and f."""
    function, density = Function("phi")(u), exp(-(u**2) / 2)
    left = (diff(function, u) * polynomial - function * next_hermite(polynomial, u)) * density
    return simplify(left - diff(function * polynomial * density, u))


def relu_kernel() -> Expr:
    """Return E relu(u) relu(v) of normals with the correlation cos t, in polar coordinates."""
    x = Symbol("x", real=True)
    both = expand(cos(x) * cos(x - ANGLE), trig=True)
    return simplify(integrate(both, (x, ANGLE - pi / 2, pi / 2)) / pi)


def _kernel() -> Finding:
    s, t, u = symbols("s t u")
    n = Symbol("n", integer=True, nonnegative=True)
    generating, any_polynomial = exp(s * u - s**2 / 2), Function("He")(u)
    following = next_hermite(any_polynomial, u)
    # E exp(s u + t v) = exp((s^2 + t^2 + 2 r s t) / 2).
    exponent = (s**2 + t**2 + 2 * R * s * t) / 2 - s**2 / 2 - t**2 / 2
    kernel = relu_kernel()
    at_one = kernel.subs(ANGLE, 0), limit(diff(kernel, ANGLE) / -sin(ANGLE), ANGLE, 0)
    return proven(
        "for every n He_n+1 = u He_n - He_n', from the definition with any function in the place "
        "of He_n. G = exp(s u - s^2 / 2) is 1 at s = 0 and dG/ds = u G - dG/du: by induction its "
        "derivatives there are He_n(u). The product of two such G has the mean exp(r s t), a "
        "function of s t, so by coefficients E He_m(u) He_n(v) = n! r^n [m = n]. By parts E phi' "
        "He_n = E phi He_n+1, so that phi' has the coefficients sqrt(n + 1) a_n+1, and kappa'(1) "
        "= sum n a_n^2 = E phi'^2. For ReLU an integral over the angle, as E rho^2 = 2",
        expand(exponent - R * s * t) == 0,
        expand(following - u * any_polynomial + diff(any_polynomial, u)) == 0,
        generating.subs(s, 0) == 1,
        simplify(diff(generating, s) - next_hermite(generating, u)) == 0,
        # E phi' f - E phi (u f - f'), with the density, is the integral of a derivative.
        by_parts(any_polynomial, u) == 0,
        # The squared ratio of the two coefficients, E phi He_n+1 over sqrt(n!) and sqrt((n + 1)!).
        gammasimp(factorial(n + 1) / factorial(n)) == n + 1,
        simplify(kernel - (sin(ANGLE) + (pi - ANGLE) * cos(ANGLE)) / (2 * pi)) == 0,
        tuple(simplify(value - Rational(1, 2)) for value in at_one) == (0, 0),
        simplify(kernel.subs(ANGLE, pi)) == 0,
    )


def of_two_tokens() -> tuple[Expr, Expr]:
    """Return drift and bracket of the cosine r of two tokens with S = [[A, B], [B, A]]."""
    return random_values.of_two_tokens(Matrix([[A, B], [B, A]]))


TOWARDS, ACROSS = B - R * A, A - R * B

SLOPE = (D - 2) * TOWARDS / ACROSS + R
"""g: the scale density in z = artanh r is exp(-int g)."""


def _two_tokens() -> Finding:
    b, a = of_two_tokens()
    p, q = random_values.P, random_values.Q
    values = {A: p**2 + q**2 + 2 * p * q * R, B: 2 * p * q + (p**2 + q**2) * R}
    return proven(
        "S = [[A, B], [B, A]] in the drift and bracket of R, Ito's formula for artanh r; "
        "S = w R w^T gives back the case of value matrices",
        vanishes(b - ((D - 2) * TOWARDS - R * ACROSS) / D),
        vanishes(a - 2 * (1 - R**2) * ACROSS / D),
        vanishes(random_values.slope_in_z(b, a) - SLOPE),
        vanishes(SLOPE.subs(values) - random_values.slope_in_z(*random_values.of_two_tokens())),
    )


def _at_one(slope: Expr) -> Expr:
    """Return the limit of a slope at r = 1 for B = kappa(r), by l'Hopital's rule."""
    quotient = (slope - R).subs(B, KAPPA(R)).together()
    above, below = quotient.as_numer_denom()
    ends = {KAPPA(R).diff(R): K, KAPPA(R): A}
    if any(simplify(part.subs(ends).subs(R, 1)) != 0 for part in (above, below)):
        raise ArithmeticError("numerator and denominator do not both vanish at r = 1")
    above, below = (diff(part, R).subs(ends).subs(R, 1) for part in (above, below))
    return simplify(above / below + 1)


def attraction_of_one_cluster() -> Expr:
    """Return (d - 1) A - (d - 3) K: one cluster attracts iff it is positive."""
    return (D - 1) * A - (D - 3) * K


def last_dimension(kernel: Expr) -> Expr:
    """Return the largest d with (d - 1) A > (d - 3) K, for a kernel in r with K > A."""
    value, slope = kernel.subs(R, 1), diff(kernel, R).subs(R, 1)
    if not slope.evalf() > value.evalf():
        raise ArithmeticError("there is no such dimension")
    return floor((3 * slope - value) / (slope - value))


def _synchronisation() -> Finding:
    end = _at_one(SLOPE)
    n = Symbol("n", positive=True)
    return proven(
        "kappa(r) - r A and A - r kappa(r) vanish at r = 1 with the slopes K - A and -(A + K), so "
        "(A + K) g(1) = (d - 1) A - (d - 3) K; the scale density is integrable at r = 1 iff "
        "g(1) > 0 (Feller's test; at equality if phi is smooth, where it tends to a constant). "
        "K - A = sum (n - 1) a_n^2. sin: kappa = sinh(r) / e; erf: kappa = (2 / pi) "
        "asin(2 r / 3); ReLU: A = K",
        simplify((A + K) * end - attraction_of_one_cluster()) == 0,
        # a_n^2 of kappa, and its part in K - A and in the two slopes.
        simplify(diff(R**n - R, R).subs(R, 1) - (n - 1)) == 0,
        simplify(diff(1 - R ** (n + 1), R).subs(R, 1) + n + 1) == 0,
        last_dimension(sinh(R) / E) == 9,
        last_dimension(2 * asin(2 * R / 3) / pi) == 11,
        simplify(end.subs(K, A)) == 1,
    )


def _with_attention() -> Finding:
    sigma, sign = Symbol("sigma", positive=True), Symbol("s", real=True)
    b, a = of_two_tokens()
    flow = 2 * sign * Rational(1, 2) * (1 - R**2)
    end = _at_one(simplify(random_values.slope_in_z(sigma**2 * b + flow, sigma**2 * a)))
    known = attraction_of_one_cluster() + 2 * sign * D / sigma**2
    return proven(
        "the flow of two tokens adds 2 s w_01 (1 - r^2) to the drift, and w_01 is 1/2 at r = 1",
        simplify((A + K) * end - known) == 0,
    )


def _antipode() -> Finding:
    b, a = of_two_tokens()
    there, half = Symbol("kappa_-1", real=True), Symbol("k", integer=True, nonnegative=True)
    # What a power r^n adds to kappa(1) + kappa(-1): for even and for odd n.
    even, odd = (1 + Integer(-1) ** (2 * half + rest) for rest in range(2))
    ends = {R: -1, B: there}
    rate = cancel(a / (1 + R)).subs(ends)
    flipped = {R: -R, B: -B}
    return proven(
        "kappa(1) + kappa(-1) = 2 sum of a_n^2 over even n, so it is 0 iff all even coefficients "
        "vanish: then g is odd, and "
        "drift and bracket vanish at r = -1. Otherwise x = 1 + r follows dx = b dt + sqrt(c x) dW "
        "near 0 with 4 b / c = d - 1: a squared Bessel process of this dimension, which reaches 0 "
        "iff it is less than 2, and leaves at once",
        vanishes(SLOPE.subs(flipped, simultaneous=True) + SLOPE),
        vanishes(b.subs(ends).subs(there, -A)),
        vanishes(b.subs(ends) - (D - 1) * (A + there) / D),
        simplify(4 * b.subs(ends) / rate - (D - 1)) == 0,
        (simplify(even), simplify(odd)) == (2, 0),
    )


def score_moment(width: int, indices: tuple[tuple[int, ...], ...]) -> Expr:
    """Return E of a product of scores <Q x_i, K x_j> / sqrt k of unit tokens, (i, j) each."""

    def covariance(x: tuple[str, int, int], y: tuple[str, int, int]) -> Expr:
        return PAIR[x[2], y[2]] if x[:2] == y[:2] else Integer(0)

    total = sum(
        isserlis(
            [label for a, (i, j) in zip(entries, indices, strict=True)
             for label in (("q", a, i), ("k", a, j))],
            covariance,
        )
        for entries in product(range(width), repeat=len(indices))
    )  # fmt: skip
    return expand(total / sqrt(width) ** len(indices))


def moments_of_a_sum(second: Expr, fourth: Expr, count: Expr) -> tuple[Expr, Expr]:
    """Return both moments of a sum of independent equal terms of mean 0, divided by sqrt(count).

    Only powers 4 and pairs of squares are left of the fourth: 3 for each two of the terms.
    """
    pairs = 3 * count * (count - 1) * second**2
    return count * second / count, (count * fourth + pairs) / count**2


def _scores() -> Finding:
    pairs, width = list(product(range(2), repeat=2)), Symbol("k", integer=True, positive=True)
    one = [score_moment(1, ((0, 1),) * power) for power in (2, 4)]
    variance, kurtosis = moments_of_a_sum(one[0], one[1], width)
    return proven(
        "by Isserlis for key width 1, two tokens, entry by entry; a score is a sum of k "
        "independent equal terms of mean 0 over sqrt k, so that covariances are those of one, and "
        "the fourth moment is (k 9 + 3 k (k - 1)) / k^2, for a symbol k. Widths 2 and 3 agree",
        simplify(variance - 1) == 0,
        simplify(kurtosis - 3 - 6 / width) == 0,
        *[
            expand(score_moment(width, (first, second)) - PAIR[first[0], second[0]]
                   * PAIR[first[1], second[1]]) == 0
            for width in (1, 2, 3) for first, second in product(pairs, repeat=2)
        ],
        *[
            score_moment(width, ((0, 1),) * 4) == 3 + Integer(6) / width for width in (1, 2, 3)
        ],
    )  # fmt: skip


CLAIMS = [
    Claim(
        "random-weights-mean",
        "With any random S that is new in each layer, mean and second moments of the increments "
        "of R are, to order h, the drift and bracket with E[S | R]: the number of heads and the "
        "hidden width do not matter as h -> 0.",
        r"$E\,dR=b(R,E[S])\,dt$, $d\langle R_{ij},R_{kl}\rangle=a(R,E[S])\,dt$",
        Verdict.PROVEN,
        _mean_of_s,
    ),
    Claim(
        "random-heads-scores",
        "Scores <Q x_i, K x_j> / sqrt k of unit tokens, with Gaussian Q and K (k, d), have the "
        "covariance R_ik R_jl for every key width k, so the standard deviation 1, and the "
        "kurtosis 3 + 6 / k.",
        r"$E\,s_{ij}s_{kl}=R_{ik}R_{jl}$, $E\,s_{ij}^4=3+6/k$",
        Verdict.PROVEN,
        _scores,
    ),
    Claim(
        "random-mlp-kernel",
        "For standard normal u and v with the correlation r, E phi(u) phi(v) = kappa(r) = "
        "sum_n a_n^2 r^n with the Hermite coefficients a_n of phi, and kappa'(1) = E phi'^2. For "
        "ReLU kappa(cos t) = (sin t + (pi - t) cos t) / (2 pi), kappa(1) = kappa'(1) = 1/2 and "
        "kappa(-1) = 0.",
        r"$\kappa(r)=\sum_na_n^2r^n$, $\kappa'(1)=E\,\varphi'^2$",
        Verdict.PROVEN,
        _kernel,
    ),
    Claim(
        "random-mlp-two-tokens",
        "Two tokens with S = [[A, B], [B, A]]: r has the drift ((d - 2) (B - r A) - r (A - r B)) / "
        "d and the bracket 2 (1 - r^2) (A - r B) / d; the scale density in artanh r is "
        "exp(-int g), g = (d - 2) (B - r A) / (A - r B) + r.",
        r"$g=(d-2)\frac{B-rA}{A-rB}+r$",
        Verdict.PROVEN,
        _two_tokens,
    ),
    Claim(
        "random-mlp-synchronises",
        "Two tokens under the noise of an MLP, value matrices of mean 0: r = 1 attracts iff "
        "(d - 1) E phi^2 > (d - 3) E phi'^2, so in every dimension iff E phi'^2 <= E phi^2. Then "
        "r -> 1 almost surely, or r -> 1 or -1 if phi is odd; otherwise r never converges. It "
        "holds for ReLU in every dimension, for sin up to d = 9, for erf up to d = 11.",
        r"$r\to1$ iff $(d-1)E\varphi^2>(d-3)E\varphi'^2$",
        Verdict.PROVEN,
        _synchronisation,
    ),
    Claim(
        "random-mlp-attention",
        "With the drift of SA, V = s I, and noise of strength sigma, r = 1 attracts iff "
        "(d - 1) E phi^2 - (d - 3) E phi'^2 + 2 s d / sigma^2 > 0.",
        r"$(d-1)E\varphi^2-(d-3)E\varphi'^2+2sd/\sigma^2>0$",
        Verdict.PROVEN,
        _with_attention,
    ),
    Claim(
        "random-mlp-antipode",
        "Under the noise of an MLP antipodes stay antipodes iff phi is odd, and then attract iff "
        "equal tokens do. Otherwise tokens leave r = -1 at once, with the drift (d - 1) "
        "(kappa(1) + kappa(-1)) / d, and reach it only in two dimensions.",
        r"$b(-1)=\frac{d-1}d(\kappa(1)+\kappa(-1))$",
        Verdict.PROVEN,
        _antipode,
    ),
]
