"""Claims on how fast tokens reach one cluster, and whether they do in finite time."""

from __future__ import annotations

from sympy import Expr, Integer, Matrix, cancel, diff, exp, expand, limit, oo, symbols

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


def slack() -> Expr:
    """Return what is left of the denominator in g' = 2 (1 - g) a / (a + slack), SA."""
    own, other = exp(BETA), exp(BETA * COSINE)
    return own + (COUNT - 1) * other - other * ((COUNT - 1) * COSINE + 1)


def _finite_time() -> Finding:
    """Compare g' with 2 (1 - g) for tokens with equal cosines, and look at the fixed point."""
    own, other = exp(BETA), exp(BETA * COSINE)
    rate = rate_of_the_cosine(unnormalised=False)
    pull = other * ((COUNT - 1) * COSINE + 1)
    form = cancel(rate - 2 * (1 - COSINE) * pull / (pull + slack()))
    nonnegative = (own - other) + (COUNT - 1) * (1 - COSINE) * other
    return refuted(
        "tokens with equal cosines g: g' = 2 (1 - g) a/(a + b), b = e^beta - e^(beta g) + (N - 1)"
        "(1 - g) e^(beta g) >= 0, so 1 - g(t) >= (1 - g(0)) e^(-2t) > 0 at all times; g -> 1 with "
        "the rate 2. In general one cluster is a fixed point of a Lipschitz field, which "
        "by uniqueness no other trajectory reaches in finite time",
        claim_fails=form == 0 and expand(slack() - nonnegative) == 0,
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
        corrected="For fixed n and beta and d -> infinity all inner products follow one curve, "
        "that of tokens which start orthogonal: it tends to 1 as t -> infinity and is at 1 - "
        "delta after a finite time. That d >= n is not enough for this: d must be large.",
        why="Distinct tokens stay distinct (uniqueness), so 1 is reached only as t -> infinity.",
        test="test_sphere_phase.py::test_phase_diagram_is_a_step_at_the_curve_in_high_dimension",
    ),
]
