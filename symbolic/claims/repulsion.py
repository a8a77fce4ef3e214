"""Claims on the interaction energy: which force belongs to it, and where it is largest.

F = (1/2) sum exp(-(beta/2) |x_i - x_j|^2). Its derivative by a token is written in vectors, its
rate along a flow in inner products, so that the identities hold for every number of tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sympy import (
    Expr,
    Integer,
    Matrix,
    Rational,
    Symbol,
    cancel,
    cos,
    diff,
    exp,
    expand,
    limit,
    nsolve,
    oo,
    pi,
    sin,
    symbols,
)

from symbolic.claims.gram_flow import COSINE as G
from symbolic.claims.gram_flow import COUNT, rate_of_the_cosine
from symbolic.claims.inner_products import BETA
from symbolic.claims.ledger import (
    Finding,
    Verdict,
    at,
    imprecise,
    not_to_be_judged,
    note,
    proven,
    refuted,
)


def gaussian_energy(cosine: Expr) -> Expr:
    """Return a summand of F for two unit vectors."""
    return exp(-(BETA / 2) * (2 - 2 * cosine)) / 2


def _two_energies() -> Finding:
    summand = exp(BETA * G) / (2 * BETA)
    return proven(
        "|x - y|^2 = 2 - 2 <x, y> on the sphere, so each summand of F is beta e^(-beta) times that "
        "of (1/(2 beta)) sum exp(beta <x_i, x_j>), for any tokens",
        (gaussian_energy(G) / summand - BETA * exp(-BETA)).simplify() == 0,
    )


def energy_of(tokens: Sequence[int]) -> Expr:
    """Return F of tokens on the circle, at multiples of 30 degrees."""
    return sum(gaussian_energy(cos((a - b) * pi / 6)) for a in tokens for b in tokens)


def _of_a_measure() -> Finding:
    single, double = energy_of([0, 3]), energy_of([0, 3, 0, 3])
    return imprecise(
        "the prompts (x, y) and (x, y, x, y) have the same measure, and F is four times as large; "
        "divided by N^2 it is the same",
        part_that_holds=cancel(double / 16 - single / 4) == 0,
        part_that_fails=cancel(double - 4 * single) == 0 and single != 0,
    )


def angular_field(angles: Sequence[Symbol], normalised: bool) -> list[Expr]:
    """Return the velocities of tokens at these angles on the circle, V = Id."""
    result = []
    for a in angles:
        kernel = {b: exp(BETA * cos(b - a)) for b in angles}
        moved = sum(k * sin(b - a) for b, k in kernel.items())
        result.append(moved / sum(kernel.values()) if normalised else moved)
    return result


def rotation(field: Sequence[Expr], angles: Sequence[Symbol]) -> Expr:
    """Return d field_1 / d angle_2 - d field_2 / d angle_1, which is 0 for a gradient."""
    return diff(field[0], angles[1]) - diff(field[1], angles[0])


def _gradient_flow() -> Finding:
    """Look for an integrating factor: none is needed for USA, Z for SA, and 1 does not serve."""
    angles = symbols("t_1:4", real=True)
    sa, usa = (angular_field(angles, normalised) for normalised in (True, False))
    energy = sum(exp(BETA * cos(a - b)) for a in angles for b in angles) / (2 * BETA)
    place = dict(zip(angles, (0, pi / 2, pi), strict=True))
    turn = rotation(sa, angles).subs(place).subs(BETA, 1)
    return imprecise(
        "three tokens on the circle at 0, 90 and 180 degrees, beta = 1: the derivatives of the "
        "velocities of 002:140 and 002:142 are not symmetric, so they are the gradient of nothing; "
        "without the denominator they are the gradient of the energy, so with it they are one in "
        "the metric weighted by Z_i",
        part_that_holds=all(
            expand(diff(energy, a) - v) == 0 for a, v in zip(angles, usa, strict=True)
        ),
        part_that_fails=abs(float(turn)) > 1e-3,
    )


def rate_of_the_energy(sign: int) -> tuple[Expr, Expr]:
    """Return <P y, sign P y> and |P y|^2 in inner products, on the sphere.

    P dF/dx_i = beta e^(-beta) P y_i with y_i = sum_j exp(beta <x_i, x_j>) x_j, and the velocity is
    a positive multiple of V P y_i, V = sign Id.
    """
    xy, yy = symbols("xy yy", real=True)
    square = expand(yy - 2 * xy**2 + xy**2)
    return expand(sign * (yy - xy**2)), square


def gradient_of_a_summand() -> bool:
    """Check P dF/dx = beta e^(-beta) exp(beta <x, y>) P y for the two summands with x and y.

    The derivative of exp(-(beta/2) |x - y|^2) is -beta (x - y) times itself, and P x = 0.
    """
    x, y = symbols("x_1:4", real=True), symbols("y_1:4", real=True)
    summand = exp(-(BETA / 2) * sum((a - b) ** 2 for a, b in zip(x, y, strict=True)))
    return all(
        expand(diff(summand, a) + BETA * (a - b) * summand) == 0 for a, b in zip(x, y, strict=True)
    )


def _repulsion() -> Finding:
    rate, square = rate_of_the_energy(sign=1)
    other, _ = rate_of_the_energy(sign=-1)
    return refuted(
        "with V = Id token i moves along P y_i with y_i = sum_j exp(beta <x_i, x_j>) x_j, and "
        "P dF/dx_i is a positive multiple of P y_i: tokens move up the gradient of F, which grows "
        "by positive multiples of |P y_i|^2 (any N and d). With V = -Id it falls: repulsion",
        claim_fails=gradient_of_a_summand() and expand(rate - square) == 0,
        correction_holds=expand(other + square) == 0,
    )


def at_distance(distance: Expr) -> Expr:
    """Return twice the summand of F of two tokens at a distance."""
    return exp(-(BETA / 2) * distance**2)


def _explodes() -> Finding:
    distance = Symbol("r", positive=True)
    term = at_distance(distance)
    return refuted(
        "a summand exp(-(beta/2) r^2) tends to 1 as r -> 0, falls with r, and has the slope 0 "
        "there: neither energy nor force is large, and F is at most N^2/2",
        claim_fails=limit(term, distance, 0) == 1 and diff(term, distance).is_negative,
        correction_holds=energy_of([0, 0, 0]) == Rational(9, 2)
        and limit(diff(term, distance), distance, 0) == 0,
    )


def _attraction() -> Finding:
    more, cosine = Symbol("n", positive=True), Symbol("g", nonnegative=True)
    rate = rate_of_the_cosine(unnormalised=False).subs(COUNT, more + 1).subs(G, cosine)
    x = Matrix([1, 0])
    return imprecise(
        "N tokens of equal cosines g >= 0 have g' > 0 up to g = 1, for every beta; 500 of 500 "
        "uniform starts on the circle end in one point. A token and its opposite have the "
        "projected velocity 0 and stay. Attraction only is the case V = Id of line 138",
        part_that_holds=bool((rate / (1 - cosine)).is_positive),
        part_that_fails=(-x + x.dot(x) * x) == Matrix.zeros(2, 1),
    )


def stability(cosine: Expr) -> Expr:
    """Return the derivative by g of g' of N tokens with equal cosines."""
    return cancel(diff(rate_of_the_cosine(unnormalised=False), G).subs(G, cosine))


def energy_by_cosines(cosines: Mapping[Expr, int], beta: int) -> Expr:
    """Return the sum of exp(beta c) over pairs with these cosines and their numbers."""
    return sum((count * exp(beta * c) for c, count in cosines.items()), Integer(0))


def bipyramid() -> dict[Expr, int]:
    """Return the cosines of two poles and a regular pentagon on the equator: least angle 72."""
    fifth = 2 * pi / 5
    return {Integer(-1): 1, Integer(0): 10, cos(fifth): 5, cos(2 * fifth): 5}


def widest_seven() -> dict[Expr, int]:
    """Return the cosines of seven points with the largest least angle (Schuette, van der Waerden).

    A pole and two triangles of latitudes a and b, turned by 60 degrees: c = cos a is the cosine
    within the second triangle and of each point of it with two of the first.
    """
    a, b = symbols("a b", positive=True)
    within = cos(b) ** 2 - sin(b) ** 2 / 2
    across = cos(a) * cos(b) + sin(a) * sin(b) / 2
    first, second = nsolve([within - cos(a), across - cos(a)], (a, b), (1.36, 2.33))
    c, s = (f(first) * f(second) for f in (cos, sin))
    return {
        cos(first): 12,
        cos(first) ** 2 - sin(first) ** 2 / 2: 3,
        cos(second): 3,
        c - s: 3,
    }


def _balance() -> Finding:
    more = Symbol("n", positive=True)
    simplex = stability(-1 / (COUNT - 1)).subs(COUNT, more + 1)
    point = cancel(stability(Integer(1)))
    triangle = energy_of([0, 4, 8])
    return refuted(
        "N tokens at the largest spacing, the simplex with cosines -1/(N - 1), are at rest but "
        "unstable: small changes of g grow, any N and beta; one point attracts with the rate 2. F "
        "is largest there (9/2 for three tokens; the triangle has (3 + 6 e^(-3 beta/2))/2). V = "
        "-Id descends F, on the circle to the regular polygon; for 7 tokens in R^3 and beta = 4 a "
        "bipyramid with least angle 72 degrees has less energy than the widest layout, 77.9",
        claim_fails=bool(simplex.is_positive) and point == -2,
        correction_holds=(triangle - (3 + 6 * exp(-3 * BETA / 2)) / 2).simplify() == 0
        and limit(triangle, BETA, oo) < energy_of([0, 0, 0])
        and bool(max(bipyramid()) > max(widest_seven()))
        and bool(energy_by_cosines(bipyramid(), 4) < energy_by_cosines(widest_seven(), 4))
        and bool(energy_by_cosines(bipyramid(), 40) > energy_by_cosines(widest_seven(), 40)),
    )


CLAIMS = [
    note(
        "two-energies",
        "The energy is F = (1/2) sum exp(-(beta/2) |x_i - x_j|^2), the same up to constants as "
        "(1/(2 beta)) sum exp(beta <x_i, x_j>).",
        Verdict.PROVEN,
        _two_energies,
        at("002:144", r"\frac{1}{2} \sum_{i,j} e^{-\frac{\beta}{2} \|x_i(t) - x_j(t)\|^2}"),
    ),
    note(
        "energy-of-a-measure",
        "The energy is a function F(mu) of the measure.",
        Verdict.IMPRECISE,
        _of_a_measure,
        at("002:144", r"F(\mu) ="),
        corrected="Divide by N^2, or write a double integral by mu.",
        why="The sum is N^2 times a function of mu: a prompt and its repetition have the same "
        "mu, but not the same F.",
    ),
    note(
        "gradient-flow-of-the-energy",
        "The system is a gradient flow of the energy.",
        Verdict.IMPRECISE,
        _gradient_flow,
        at("002:146", "it is a gradient flow"),
        at("004:363"),
        corrected="Without the denominator (USA) it is the gradient flow of E = (1/(2 beta)) sum "
        "exp(beta "
        "<x_i, x_j>), and F = beta e^(-beta) E; with the denominator (SA) only in the metric in "
        "which token i is weighted by Z_i. Both go up.",
        why="With the denominator, as printed, it is not a gradient in the usual metric.",
    ),
    note(
        "repulsive-energy",
        "The interaction energy F is repulsive, and the system follows its gradient.",
        Verdict.FALSE,
        _repulsion,
        at("002:146", "repulsive interaction energy"),
        at("002:154"),
        corrected="With V = Id tokens attract each other, and F grows to its maximum; with V = "
        "-Id they repel each other, and F falls.",
        why="F is largest where tokens meet, and the flow with V = Id goes up: attraction.",
        test="test_sphere.py::"
        "test_the_energy_never_decreases_and_has_the_derivative_of_the_identity",
    ),
    note(
        "semantic-attraction",
        "Attention pulls together what belongs together in meaning, such as apple and fruit.",
        Verdict.NOT_JUDGED,
        not_to_be_judged("these equations do not say which words are close in meaning"),
        at("002:150"),
        at("002:152"),
    ),
    note(
        "energy-explodes",
        "Tokens cannot be too near, since the energy would explode.",
        Verdict.FALSE,
        _explodes,
        at("002:156"),
        corrected="F is bounded by N^2/2, its value where all tokens are equal; its force "
        "vanishes there.",
        why="exp(-(beta/2) r^2) tends to 1 as r -> 0: nothing explodes.",
    ),
    note(
        "attraction-gathers",
        "With attraction only, all tokens gather at one point and can no longer be distinguished.",
        Verdict.IMPRECISE,
        _attraction,
        at("002:158"),
        corrected="This is the case V = Id of line 138: from almost every start, as at line 124, "
        "all tokens "
        "gather in a point; exceptions such as opposite tokens have the probability 0.",
        why="That is what the model does, not what it avoids; opposite tokens stay where they are.",
        test="test_sphere_theory.py::test_small_beta_gives_one_cluster_on_the_circle",
    ),
    note(
        "repulsion-balances-attraction",
        "The repulsion of F leads to an equilibrium, a layout of the clusters with the largest "
        "spacing on the sphere.",
        Verdict.FALSE,
        _balance,
        at("002:160-162"),
        corrected="There is one force. With V = Id it attracts, and a single point, where F is "
        "largest, is "
        "the end. With V = -Id almost every start ends at a local minimum of F: on the circle the "
        "regular "
        "polygon; in general its spacing is the largest possible only as beta -> infinity.",
        why="One attractive force: widely spaced tokens are unstable, a single point is stable.",
        test="test_sphere_clusters.py::test_repulsion_on_the_circle_ends_in_the_regular_polygon",
    ),
]
