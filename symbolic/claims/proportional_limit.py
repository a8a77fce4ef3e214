"""Claims on the time of the layers, the size of their updates, and the limit at depth/width = T.

One token is solved exactly: the ratios V'/V of the layers are independent, with the cumulants of
`one_token_cumulants`.
"""

from __future__ import annotations

from sympy import Expr, Rational, Symbol, cancel, ceiling, diff, exp, expand, limit, log, oo, sqrt

from symbolic.blocks import ShapedAttention
from symbolic.claims.explosion_equations import two_tokens
from symbolic.claims.ledger import Finding, Verdict, at, imprecise, note, proven, refuted, tested
from symbolic.limit import derive
from symbolic.names import GAMMA

N = Symbol("n", positive=True)
T = Symbol("T", positive=True)


def one_token_cumulants(count: int) -> list[Expr]:
    """Return the exact cumulants of V'/V for one token at width n.

    A = 1, so V'/V = (1/n) sum_i (lambda x_i + gamma g_i)^2 with sum x_i^2 = n: a noncentral
    chi-square law, whose cumulant generating function is
    -(n/2) log(1 - 2 gamma^2 t / n) + lambda^2 t / (1 - 2 gamma^2 t / n).
    """
    t = Symbol("t")
    spread = 1 - 2 * GAMMA**2 * t / N
    function = -N / 2 * log(spread) + (1 - GAMMA**2) * t / spread
    cumulants = []
    for _ in range(count):
        function = diff(function, t)
        cumulants.append(expand(cancel(function.subs(t, 0))))
    return cumulants


def _times() -> Finding:
    depths = [(n, ceiling(Rational(3, 2) * n)) for n in range(1, 8)]
    return imprecise(
        "L/n - T can have either sign: with L = 3n/2 rounded up, T = 3/2, the last time is "
        f"{depths[2][1]}/3 at n = 3; it tends to T",
        part_that_holds=all(0 <= depth / n - Rational(3, 2) < Rational(1, n) for n, depth in depths)
        and limit((T * N + 1) / N, N, oo) == T,
        part_that_fails=any(depth / n > Rational(3, 2) for n, depth in depths),
    )


def time_of(layer: Expr) -> Expr:
    """Return the time of a layer."""
    return layer / N


def _gaps() -> Finding:
    layer = Symbol("l", integer=True, nonnegative=True)
    gap = expand(time_of(layer + 1) - time_of(layer))
    return proven(
        "(l + 1)/n - l/n = 1/n for every l, which tends to 0", gap == 1 / N, limit(gap, N, oo) == 0
    )


def _second_moment(depth: Expr) -> Expr:
    """Return the limit of E (V_L/V_0)^2 for one token and a depth L(n)."""
    rate = Symbol("c", positive=True)
    return limit((1 + rate / N) ** depth, N, oo)


def _constant_ratio() -> Finding:
    mean, variance = one_token_cumulants(2)
    derived = derive(ShapedAttention(), 1)
    v = derived.algebra.v_expressions[0, 0]
    rate = Symbol("c", positive=True)
    diffusion = expand(N * variance) * v**2
    return tested(
        "one token, exactly: E (V_L/V_0)^2 = (1 + c/n)^L, c = 2 gamma^2 (2 - gamma^2); it tends to "
        "e^(cT), the second moment of the SDE, if L/n tends to T, to 1 for L = sqrt n, and to "
        "infinity for L = n^2",
        mean == 1,
        expand(diffusion - derived.diffusion[0, 0]) == 0,
        _second_moment(T * N) == exp(rate * T),
        _second_moment(T * N + sqrt(N)) == exp(rate * T),
        _second_moment(sqrt(N)) == 1,
        _second_moment(N**2) == oo,
    )


def standard_deviation(order: Rational) -> Expr:
    """Return the limit of n^order times the standard deviation of V'/V for one token."""
    return limit(N**order * sqrt(one_token_cumulants(2)[1].subs(GAMMA, 1)), N, oo)


def _order_of_moments() -> Finding:
    mean, variance = one_token_cumulants(2)
    limit_ = derive(ShapedAttention(), 2)
    derived = derive(ShapedAttention(), 1)
    v = derived.algebra.v_expressions[0, 0]
    return imprecise(
        "one token, exactly: E V'/V = 1, Var V'/V = 2 gamma^2 (2 - gamma^2)/n; two tokens: "
        "n E[V' - V] and n Cov[V'] both tend to polynomials that are not 0. So mean and covariance "
        "of an update are O(1/n), and its standard deviation is of order 1/sqrt n",
        part_that_holds=mean == 1
        and limit_.drift[0, 0] != 0
        and expand(N * variance * v**2 - derived.diffusion[0, 0]) == 0,
        part_that_fails=limit_.diffusion[0, 0] != 0 and standard_deviation(Rational(1)) == oo,
    )


def _size_of_updates() -> Finding:
    mean, _ = one_token_cumulants(2)
    return refuted(
        "one token, gamma = 1, exactly: n times the standard deviation of V'/V is infinite in the "
        "limit, and sqrt(n) times it tends to sqrt(2); the mean update is 0",
        claim_fails=standard_deviation(Rational(1)) == oo,
        correction_holds=mean == 1 and standard_deviation(Rational(1, 2)) == sqrt(2),
    )


def squares(update: Expr) -> Expr:
    """Return the limit of the sum of the squares of T n updates of a size."""
    return limit(T * N * update**2, N, oo)


def _size_allows_sde() -> Finding:
    size = Symbol("C", positive=True)
    mean, variance, _, fourth = one_token_cumulants(4)
    remaining = expand(T * N * variance)
    return refuted(
        "the squares of T n updates of size at most C/n sum to at most C^2 T/n, which tends to 0: "
        f"an ODE is left. For one token the variances sum to {remaining}",
        claim_fails=squares(size / N) == 0
        and squares(size / sqrt(N)) == T * size**2
        and remaining.subs(GAMMA, 1) == 2 * T,
        correction_holds=mean == 1
        and not remaining.has(N)
        and limit(T * N * (fourth + 3 * variance**2), N, oo) == 0,
    )


def _euler_scheme() -> Finding:
    mean, variance, third, fourth = one_token_cumulants(4)
    derived = derive(ShapedAttention(), 1)
    v = derived.algebra.v_expressions[0, 0]
    same_moments = (
        derived.drift[0, 0] == 0
        and mean == 1
        and expand(N * variance * v**2 - derived.diffusion[0, 0]) == 0
        and limit(N * third, N, oo) == 0
        and limit(N * fourth, N, oo) == 0
    )
    ratio = two_tokens(1).ratio.subs(GAMMA, Rational(1, 2))
    return imprecise(
        "one token: mean and variance of a layer are those of an Euler-Maruyama step of length 1/n "
        "and n times the third and fourth cumulants tend to 0, as convergence in law needs; but "
        f"the third is {third} and not 0, so at finite n the laws differ; two tokens at gamma = "
        f"1/2: a = {ratio} > 1/2, so that the SDE explodes in finite time with positive "
        "probability (`explosion-feller`)",
        part_that_holds=same_moments,
        part_that_fails=third != 0 and ratio > Rational(1, 2),
    )


CLAIMS = [
    note(
        "layer-times",
        "The times t = l/n of the layers lie in [0, T], where T = d/w is the limit of L/n.",
        Verdict.IMPRECISE,
        _times,
        at("000:6", r"t = l/n \in [0, T]", "T = d/w"),
        at("001:4", r"t = l/n \in [0, T]", "T = d/w"),
        corrected="They lie in [0, L/n], which tends to [0, T].",
        why="Harmless: at finite n the last time L/n can exceed T.",
    ),
    note(
        "layer-gaps",
        "As n tends to infinity the gaps 1/n between the times of successive layers vanish.",
        Verdict.PROVEN,
        _gaps,
        at("000:7", "1/n"),
        at("001:5", "1/n"),
    ),
    note(
        "moments-of-order-1/n",
        "The attention operation gives covariance updates of size O(1/n).",
        Verdict.IMPRECISE,
        _order_of_moments,
        at("000:8", "O(1/n)"),
        at("001:6", "O(1/n)"),
        corrected="The mean and the covariance of the update are of order 1/n.",
        why="True of the update's mean and covariance, not of the update (next line).",
    ),
    note(
        "updates-of-order-1/n",
        "The updates V_(l+1) - V_l of the covariance are small, O(1/n).",
        Verdict.FALSE,
        _size_of_updates,
        at("000:9", "V_{l+1} - V_l", "O(1/n)"),
        at("001:7", "V_{l+1} - V_l", "O(1/n)"),
        corrected="V_(l+1) - V_l is of order 1/sqrt n; its mean and its covariance are of order "
        "1/n.",
        why="The covariance is of order 1/n, so the standard deviation is of order 1/sqrt n.",
    ),
    note(
        "constant-ratio-gives-time",
        "Since L/n tends to a constant, the discrete steps can be embedded into a continuous time "
        "in [0, T] as n tends to infinity.",
        Verdict.TESTED,
        _constant_ratio,
        at("000:10", r"t \in [0, T]"),
        at("000:13", "d/w"),
        at("001:8", r"t \in [0, T]"),
        at("001:11", "d/w"),
    ),
    note(
        "euler-step-1/n",
        "The chain V_l is approximated by the discretised SDE with step 1/n, V_(l+1) = V_l + drift "
        "and diffusion terms, and converges to the SDE.",
        Verdict.IMPRECISE,
        _euler_scheme,
        at("000:11", "dV_t", "1/n"),
        at("000:12", r"V_{l+1} \approx V_l + \text{(SDE drift and diffusion terms)}"),
        at("000:16"),
        at("001:9", "dV_t", "1/n"),
        at("001:10", r"V_{l+1} \approx V_l + \text{(SDE drift and diffusion terms)}"),
        at("001:13"),
        corrected="It does so in law, and up to the exit from a ball: the chain converges in law "
        "to the SDE "
        "stopped when V leaves a ball, on [0, T] without stopping only if the SDE does not "
        "explode.",
        why="Two qualifications are missing: in law (chain and SDE have no common noise), and up "
        "to the exit (the SDE may explode before T).",
    ),
    note(
        "update-size-allows-sde",
        "The SDE can be approximated by the updates because they have size O(1/n).",
        Verdict.FALSE,
        _size_allows_sde,
        at("000:14", "O(1/n)"),
        at("000:18", "O(1/n)"),
        at("001:12", "O(1/n)"),
        corrected="Updates give an SDE if their mean and covariance are of order 1/n, so that "
        "they have size 1/sqrt n, and their fourth moments are of smaller order than 1/n.",
        why="Updates of size O(1/n) sum to an ODE: n squares of size 1/n^2 vanish, and the noise "
        "with them.",
    ),
]
