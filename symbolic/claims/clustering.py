"""Claims on the long run: clusters, how long they last, and at what pace they form."""

from __future__ import annotations

from sympy import (
    Expr,
    Integer,
    Matrix,
    Rational,
    Symbol,
    cancel,
    cos,
    exp,
    limit,
    oo,
    pi,
    simplify,
    sin,
    symbols,
    trigsimp,
)

from symbolic.claims.gram_flow import COSINE as G
from symbolic.claims.gram_flow import COUNT, rate_of_the_cosine
from symbolic.claims.inner_products import BETA
from symbolic.claims.ledger import Finding, Verdict, at, imprecise, not_to_be_judged, note, refuted


def two_clusters(first: Expr, second: Expr, sign: int = 1) -> Expr:
    """Return g' of the cosine of two clusters with these masses, SA with V = sign Id.

    x' = P_x y multiplied by b e^(beta g) / Z_x, and <P_x y, y> = 1 - g^2; the same for y.
    """
    pull = exp(BETA * G)
    own = exp(BETA)
    speed = second * pull / (first * own + second * pull)
    return sign * (1 - G**2) * (speed + first * pull / (second * own + first * pull))


def _is_positive_inside(rate: Expr) -> bool:
    """Return whether rate / (1 - g^2) is a sum of positive terms, for all masses and beta."""
    return bool(cancel(rate / (1 - G**2)).is_positive)


def closing_speed(value: int) -> Expr:
    """Return the rate of the angle a between two tokens under SA with V = value I, over sin a."""
    angle, beta = symbols("a beta", positive=True)
    places = (-angle / 2, angle / 2)
    speeds = []
    for place in places:
        weights = [exp(beta * cos(place - other)) for other in places]
        pull = sum(w * sin(other - place) for w, other in zip(weights, places, strict=True))
        speeds.append(value * pull / sum(weights))
    return simplify(trigsimp((speeds[1] - speeds[0]) / sin(angle)))


def _long_run() -> Finding:
    a, b = symbols("a b", positive=True)
    x, turn = Matrix([Rational(3, 5), Rational(4, 5)]), Matrix([[0, -1], [1, 0]])
    speed = closing_speed(1)
    return imprecise(
        "the cosine g of two tokens, or of two clusters of any masses, has g' = (1 - g^2) times a "
        "positive number for V = Id (their angle a has a' = -c(a) sin a, c > 0, so that opposite "
        "tokens stay), and its negative for V = -Id: there they end opposite to each other. With a "
        "skew V of the plane a token has the velocity V x of length 1 for ever. In the tests all "
        "of 500 uniform starts on the circle reach one point for beta = 0, 0.2 and 1, and none "
        "with V = -Id, where tokens end in the regular polygon",
        part_that_holds=_is_positive_inside(two_clusters(a, b)) and bool(speed.is_negative),
        part_that_fails=_is_positive_inside(-two_clusters(a, b, sign=-1))
        and simplify(sin(pi) * speed) == 0
        and bool(closing_speed(-1).is_positive)
        and (turn * x - x.dot(turn * x) * x).norm() == 1,
    )


def _two_clusters() -> Finding:
    """Check that two clusters merge, and that the speed is exponentially small in beta."""
    a, b = symbols("a b", positive=True)
    rate = two_clusters(a, b)
    orders = [
        limit((rate * exp(BETA * (1 - G))).subs({G: g, a: Integer(2), b: Integer(1)}), BETA, oo)
        for g in (Rational(-1, 2), Rational(0), Rational(1, 2))
    ]
    return imprecise(
        "two clusters of masses a and b at the cosine g: g' > 0 for all -1 < g < 1, so they merge; "
        "for large beta the speed is e^(-beta (1 - g)) times (1 - g^2)(b/a + a/b), so they last "
        "for a time exponential in beta. That these are finance and geography is not judged",
        part_that_holds=all(
            order == (1 - g**2) * Rational(5, 2)
            for order, g in zip(orders, (Rational(-1, 2), 0, Rational(1, 2)), strict=True)
        ),
        part_that_fails=_is_positive_inside(rate),
    )


def pace() -> Expr:
    """Return the rate of log(1/(1 - g)) of N tokens with equal cosines."""
    return cancel(rate_of_the_cosine(unnormalised=False) / (1 - G))


def _linear_pace() -> Finding:
    more = Symbol("n", positive=True)
    simplex = -1 / (COUNT - 1)
    rate = rate_of_the_cosine(unnormalised=False)
    slow = pace().subs({G: 0, COUNT: 2})
    return refuted(
        "N tokens of equal cosines: g' = 0 at g = -1/(N - 1) and at g = 1, and positive at g = 0, "
        "so the pace is no constant; at g = 0 with N = 2 it is 2 / (e^beta + 1), exponentially "
        "small. Only log(1/(1 - g)) has a constant pace, 2, near the end",
        claim_fails=rate.subs(G, simplex) == 0
        and rate.subs(G, 1) == 0
        and rate.subs(COUNT, more + 1).subs(G, 0).is_positive
        and cancel(slow - 2 / (exp(BETA) + 1)) == 0,
        correction_holds=cancel(pace().subs(G, 1)) == 2,
    )


CLAIMS = [
    note(
        "clusters-in-the-long-run",
        "As t -> infinity the measure of the tokens becomes clusters (002), or a point mass (004, "
        "as a question).",
        Verdict.IMPRECISE,
        _long_run,
        at("002:124", r"t \rightarrow \infty \quad \mu(t) \rightarrow \text{clustering}"),
        at("004:60"),
        corrected="With Q = K = V = I and any beta >= 0, for almost every start: a point mass, if "
        "d >= 3 by "
        "Theorem 6.1, on the circle by Polyanskiy, Rigollet and Yao (2025, arXiv 2507.22857; "
        "proven here for beta <= 1/n and beta >= n^2/pi^2). For large beta several clusters last "
        "for a time exponential in beta. With V = -I tokens "
        "spread out, and for other V there need be no limit.",
        corrected_latex=r"\mu_t \to \delta_{x^*}\text{ for almost every start, }V = I",
        why="True for V = I and almost every start, and then it is one cluster; V = -I spreads "
        "the tokens.",
        test="test_sphere_theory.py::test_small_beta_gives_one_cluster_on_the_circle",
    ),
    note(
        "meanings-of-clusters",
        "A word such as bank belongs to a financial and to a geographical zone.",
        Verdict.NOT_JUDGED,
        not_to_be_judged("these equations do not say what a cluster of a trained model means"),
        at("002:126"),
    ),
    note(
        "two-clusters-last",
        "After many layers the tokens of finance converge to one cluster and those of geography to "
        "another.",
        Verdict.IMPRECISE,
        _two_clusters,
        at("002:128", "t+T"),
        corrected="Two clusters are metastable: they last for a time of order e^(beta (1 - g)), "
        "g their cosine, and then merge into one.",
        why="Right for a time that is exponential in beta; in the end there is one cluster.",
        test="test_sphere_clusters.py::test_clusters_last_for_large_beta_only",
    ),
    note(
        "log-log-rate",
        "d/dt ln log M_t = Theta(t), for a quantity M_t that is not defined.",
        Verdict.NOT_JUDGED,
        not_to_be_judged(
            "M_t is not defined: exp(exp(t^2/2)) satisfies it, while no M of the form e^(ct) does, "
            "since ln log M then has the rate 1/t. For tokens of cosine g, 1/(1 - g) ~ e^(2t)"
        ),
        at("002:168", r"\frac{d}{dt} \ln \log M_t = \Theta(t)"),
    ),
    note(
        "free-energy-as-order",
        "A free energy says how far the tokens are from chaos to order.",
        Verdict.NOT_JUDGED,
        not_to_be_judged("neither a free energy nor chaos or order is defined"),
        at("002:169"),
    ),
    note(
        "linear-pace",
        "Each layer turns disorder into order at a linear, controllable pace.",
        Verdict.FALSE,
        _linear_pace,
        at("002:171"),
        corrected="Waiting that can be exponential in beta, then a fast rise, then log(1/(1 - "
        "g)) ~ 2t.",
        why="g(t) is a sigmoid curve; only log(1/(1 - g)) is linear, at the end.",
        test="test_sphere_theory.py::test_waiting_times_grow_exponentially_with_beta",
    ),
]
