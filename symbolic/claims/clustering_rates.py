"""Claims on how fast tokens reach one cluster, and whether they do in finite time."""

from __future__ import annotations

from sympy import (
    Expr,
    Integer,
    Matrix,
    Symbol,
    cancel,
    cos,
    diff,
    exp,
    expand,
    limit,
    oo,
    sin,
    symbols,
)

from symbolic.claims.gram_flow import COSINE, COUNT, rate_of_the_cosine
from symbolic.claims.inner_products import BETA
from symbolic.claims.ledger import Finding, Verdict, at, imprecise, note, refuted

CLUSTER = Matrix([0, 0, 1])
"""A token on the sphere; a rotation carries any other to it."""


def velocity(x: Matrix, other: Matrix, unnormalised: bool) -> Matrix:
    """Return the velocity of a token x among one other and N - 2 at the cluster."""
    sums, total = Matrix.zeros(3, 1), Integer(0)
    for place, number in ((x, 1), (other, 1), (CLUSTER, COUNT - 2)):
        weight = number * exp(BETA * x.dot(place))
        sums, total = sums + weight * place, total + weight
    average = sums / (COUNT if unnormalised else total)
    return average - x.dot(average) * x


def linear_rate(unnormalised: bool) -> Expr:
    """Return k in y_i' = k (mean(y) - y_i) for displacements y of N tokens at one cluster.

    The velocity of token i depends on y_j by k/N, and on y_i by k/N - k, times the identity on the
    tangent plane; so differences decay as e^(-k t).
    """
    first, second = symbols("y_1:3"), symbols("z_1:3")
    x, other = (CLUSTER + Matrix([*tangent, 0]) for tangent in (first, second))
    field = velocity(x, other, unnormalised)[:2]
    here = dict.fromkeys((*first, *second), 0)
    on_own, on_other = (
        Matrix(2, 2, lambda i, j, v=variables: cancel(diff(field[i], v[j]).subs(here)))
        for variables in (first, second)
    )
    rate = cancel(COUNT * on_other[0, 0])
    identity = Matrix.eye(2)
    if (on_other - rate / COUNT * identity).expand() != Matrix.zeros(2, 2) or (
        on_own - (rate / COUNT - rate) * identity
    ).expand() != Matrix.zeros(2, 2):
        raise ArithmeticError("displacements do not move as k (mean(y) - y)")
    return rate


def _convergence_rate() -> Finding:
    sa, usa = linear_rate(unnormalised=False), linear_rate(unnormalised=True)
    orthogonal = rate_of_the_cosine(unnormalised=False).subs(COSINE, 0)
    return imprecise(
        f"near one cluster the displacements have y_i' = k (mean(y) - y_i), k = {sa} for SA and "
        f"{usa} for USA (any N): |x_i - x*| ~ e^(-k t). The bound holds with smaller lambda too, "
        "but the rate is not O(e^-beta). That is the speed at which orthogonal tokens start, "
        "2/(e^beta + N - 1) for SA: e^beta is in the waiting time. 1 - cos has rate 2k. This "
        "judges what the slide prints; the theorem in arXiv 2312.10794 was not compared",
        part_that_holds=cancel(orthogonal - 2 / (exp(BETA) + COUNT - 1)) == 0
        and limit(orthogonal * exp(BETA), BETA, oo) == 2
        and usa == exp(BETA),
        part_that_fails=sa == 1 and limit(sa / exp(-BETA), BETA, oo) == oo,
    )


def derivatives_on_a_circle(kernel: Expr, gap: Expr, along: Expr) -> tuple[Expr, Expr]:
    """Return two derivatives of exp(beta <x, y>) along the great circle x cos t + v sin t at t = 0.

    <x, y> = 1 - gap, <v, y> = along, and the value at t = 0 is `kernel`.
    """
    t = Symbol("t", real=True)
    cosine = (1 - gap) * cos(t) + along * sin(t)
    change = exp(BETA * (cosine - (1 - gap)))
    return kernel * diff(change, t).subs(t, 0), kernel * diff(change, t, 2).subs(t, 0)


def excess_of_the_slope(unnormalised: bool) -> tuple[Expr, Expr]:
    """Return <D X v, v> plus 1 (SA) or plus the mean kernel (USA), and a sum of terms >= 0.

    The field X is the gradient of (1/beta) log sum k_j, k_j = w_j exp(beta <x, y_j>), or of the sum
    without the logarithm, so <D X v, v> is a second derivative along a great circle. Three places
    y_j with any weights.
    """
    gaps, along = symbols("u_1:4", nonnegative=True), symbols("s_1:4", real=True)
    kernels = symbols("k_1:4", positive=True)
    by_place = [
        derivatives_on_a_circle(k, u, s) for k, u, s in zip(kernels, gaps, along, strict=True)
    ]
    first, second = (sum(d) for d in zip(*by_place, strict=True))
    total = sum(kernels)
    if unnormalised:
        # In the average over the places e^beta is at least each kernel e^(beta (1 - u)).
        slope = second / BETA + total
        terms = sum(k * (BETA * s**2 + u) for k, s, u in zip(kernels, along, gaps, strict=True))
        return slope, terms
    p = [k / total for k in kernels]
    spread = sum(p[i] * p[j] * (along[i] - along[j]) ** 2 for i, j in ((0, 1), (0, 2), (1, 2)))
    slope = (second / total - (first / total) ** 2) / BETA + 1
    return slope, BETA * spread + sum(a * u for a, u in zip(p, gaps, strict=True))


def angle_within_chord() -> bool:
    """Return whether a sin a <= 2 (1 - cos a): second derivative a sin a, and 0 twice at 0."""
    a = Symbol("a", nonnegative=True)
    apart = 2 * (1 - cos(a)) - a * sin(a)
    return bool(
        expand(diff(apart, a, 2) - a * sin(a)) == 0
        and apart.subs(a, 0) == 0
        and diff(apart, a).subs(a, 0) == 0
    )


def _finite_time() -> Finding:
    rate = rate_of_the_cosine(unnormalised=False)
    slopes = [cancel(a - b) for a, b in map(excess_of_the_slope, (False, True))]
    return refuted(
        "any tokens and weights: along the great circle from x_i to x_j the field has <D X v, v> = "
        "beta Var<v, y> - mean <x, y> >= -1 for SA, and >= -mean e^(beta <x, y>) >= -e^beta for "
        "USA, as a sum of terms >= 0 "
        "(three places written out, each further one adds such terms). So the angle a has a' >= -a "
        "(-e^beta a), and with a sin a <= 2 (1 - cos a): 1 - cos >= (1 - cos at t = 0) e^(-2t) > 0 "
        "(USA: e^(-2 e^beta t)). Equal cosines come at the rate 2",
        claim_fails=slopes == [0, 0] and angle_within_chord(),
        correction_holds=rate.subs(COSINE, 1) == 0
        and cancel((rate / (1 - COSINE)).subs(COSINE, 1) - 2) == 0,
    )


CLAIMS = [
    note(
        "rate-of-convergence",
        "Theorem 6.3: for d >= n |x_i(t) - x*| <= C e^(-lambda t) with lambda = O(e^-beta).",
        Verdict.IMPRECISE,
        _convergence_rate,
        at("004:370", r"\|x_i(t) - x^*\| \leq Ce^{-\lambda t}", r"\lambda = O(e^{-\beta})"),
        corrected="For almost every start, with C depending on it: the final rate of |x_i - x*| "
        "is 1 for SA and e^beta for USA, for every n and beta; e^-beta enters only through the "
        "time until the tokens are near each other.",
        why="True as a bound, but the final rate is 1 (SA) or e^beta (USA); a small lambda only "
        "covers the waiting time.",
        test="test_sphere_theory.py::test_in_dimension_n_every_start_converges_at_the_final_rate",
    ),
    note(
        "collapse-in-finite-time",
        "Theorem 6.9: for d >= n the histogram of the inner products collapses to 1 in finite "
        "time.",
        Verdict.FALSE,
        _finite_time,
        at("004:371", r"d \geq n"),
        corrected="For independent uniform starts, n and beta fixed, all inner products follow "
        "one curve "
        "with probability tending to 1 as d -> infinity, that of tokens which start orthogonal: it "
        "tends to 1 as t -> infinity and is at 1 - delta after a finite time. Always 1 - cos >= "
        "(1 - cos at t = 0) e^(-2t) under SA. That d >= n is not enough: d must be large.",
        why="Distinct tokens stay distinct (uniqueness), so 1 is reached only as t -> infinity.",
        test="test_sphere_phase.py::test_phase_diagram_is_a_step_at_the_curve_in_high_dimension",
    ),
]
