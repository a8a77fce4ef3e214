"""Claims on the sizes of the terms and on what the limit means for the network."""

from __future__ import annotations

from sympy import Expr, Matrix, Rational, Symbol, cancel, diff, expand, log, symbols

from symbolic.blocks import ShapedAttention
from symbolic.claims.ledger import Claim, Finding, Verdict, imprecise, tested
from symbolic.limit import derive
from symbolic.names import GAMMA, TAU
from symbolic.orders import term_orders
from symbolic.recursion import NoLimitError
from symbolic.series import HALF

N = Symbol("n", positive=True)


def _one_token_cumulants(count: int) -> list[Expr]:
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


def _size_of_updates() -> Finding:
    mean, variance = _one_token_cumulants(2)
    limit = derive(ShapedAttention(), 2)
    derived = derive(ShapedAttention(), 1)
    v = derived.algebra.v_expressions[0, 0]
    return imprecise(
        "one token, exactly: E V'/V = 1, Var V'/V = 2 gamma^2 (2 - gamma^2)/n; two tokens: "
        "n E[V' - V] and n Cov[V'] both tend to polynomials that are not 0",
        part_that_holds=mean == 1 and limit.drift[0, 0] != 0,
        part_that_fails=variance != 0
        and expand(N * variance * v**2 - derived.diffusion[0, 0]) == 0
        and limit.diffusion[0, 0] != 0,
    )


def _euler_scheme() -> Finding:
    mean, variance, third = _one_token_cumulants(3)
    limit = derive(ShapedAttention(), 1)
    v = limit.algebra.v_expressions[0, 0]
    same_moments = (
        limit.drift[0, 0] == 0
        and mean == 1
        and expand(N * variance * v**2 - limit.diffusion[0, 0]) == 0
    )
    return imprecise(
        "one token: mean and variance of a layer are those of an Euler-Maruyama step of length "
        f"1/n, but the third cumulant is {third}, not 0",
        part_that_holds=same_moments,
        part_that_fails=third != 0,
    )


def _temperature() -> Finding:
    shaped = {term.degree: term for term in term_orders(2)}
    return imprecise(
        "machine expansion: the term of degree 1 has order n^(-1/2) and mean 0, that of degree 2 "
        "has order n^(-1) and a nonzero mean",
        part_that_holds=shaped[2].power == 1 and not shaped[2].mean_vanishes,
        part_that_fails=shaped[1].power == HALF and shaped[1].mean_vanishes,
    )


def _has_limit(block: ShapedAttention) -> bool:
    try:
        derive(block, 2)
    except NoLimitError:
        return False
    return True


def _three_modifications() -> Finding:
    colder = [Rational(1, 4), Rational(1, 3), Rational(2, 5)]
    hotter = [Rational(2, 3), Rational(1)]
    without_trace = []
    for power in hotter:
        limit = derive(ShapedAttention(temperature_power=power), 2)
        without_trace.append(limit.drift.is_zero_matrix and TAU not in limit.diffusion.free_symbols)
    return imprecise(
        "two tokens, lambda^2 + gamma^2 = 1: the engine finds a limit with all three, and a term "
        "of order below 1/n without the identity, without the centring, and for tau = tau_0 "
        "sqrt(n_k) n^p with p = 1/4, 1/3, 2/5; for p = 2/3 and 1 it finds the limit of a linear "
        "network",
        part_that_holds=_has_limit(ShapedAttention())
        and not _has_limit(ShapedAttention(identity=False))
        and not _has_limit(ShapedAttention(centring=False))
        and not any(_has_limit(ShapedAttention(temperature_power=p)) for p in colder),
        part_that_fails=all(without_trace),
    )


def _orders_vanish_for_equal_tokens() -> Finding:
    limit = derive(ShapedAttention(), 3)
    p = symbols("p", positive=True)
    equal = dict.fromkeys(limit.algebra.v_expressions, p)
    diffusion = limit.diffusion.subs(equal)
    return tested(
        "three tokens, V = p 11^T: the drift is 0 and the diffusion does not depend on tau_0",
        limit.drift.subs(equal) == Matrix.zeros(3, 3),
        TAU not in diffusion.free_symbols,
        limit.drift != Matrix.zeros(3, 3),
    )


CLAIMS = [
    Claim(
        "updates-of-order-1/n",
        "The attention operation gives covariance updates of size O(1/n).",
        r"$V_{\ell+1} - V_\ell = O(1/n)$",
        Verdict.IMPRECISE,
        _size_of_updates,
        "The mean of the update is of order 1/n; the update itself fluctuates by order 1/sqrt n.",
        r"$E[V_{\ell+1}-V_\ell\mid V_\ell] = O(1/n)$, $V_{\ell+1}-V_\ell = O(n^{-1/2})$",
    ),
    Claim(
        "euler-step-1/n",
        "Euler's method with step 1/n approximates the chain of covariances.",
        r"$V_{\ell+1} \approx V_\ell + b(V_\ell)/n + \Sigma(V_\ell)^{1/2}\xi_\ell/\sqrt n$",
        Verdict.IMPRECISE,
        _euler_scheme,
        "It does so in law, up to the exit from a ball: to leading order a layer has the mean and "
        "covariance of an Euler-Maruyama step, but its increments are not Gaussian.",
        r"in law, up to the exit from a ball; $\xi_\ell$ is not Gaussian",
    ),
    Claim(
        "temperature-gives-1/n",
        "The scaling tau = tau_0 sqrt(n n_k) makes the terms of the expansion O(1/n).",
        r"$\tau=\tau_0\sqrt{n n_k}$ gives terms of order $1/n$",
        Verdict.IMPRECISE,
        _temperature,
        "The first term is of order 1/sqrt n and has mean 0. Products of two first terms and the "
        "mean of the second term give a mean change of V of order 1/n.",
        r"$A = I + A_1/\sqrt n + A_2/n + \dots$, $E A_1 = 0$",
    ),
    Claim(
        "three-modifications-needed",
        "Identity, centring and temperature tau_0 sqrt(n n_k) are each needed for a limit.",
        r"$I$, $-\frac1m 11^\top$ and $\tau\propto\sqrt{n n_k}$ are each necessary",
        Verdict.IMPRECISE,
        _three_modifications,
        "With lambda^2 + gamma^2 = 1, identity and centring are needed, and a temperature of at "
        "least this order; at any larger order there is a limit, but attention leaves no trace in "
        "it.",
        r"$\tau\propto\sqrt{n_k}\,n^p$ has a limit for $p\ge\frac12$, which depends on the scores "
        r"for $p=\frac12$ alone",
    ),
    Claim(
        "equal-tokens",
        "If all tokens are equal, attention has no drift and adds no noise of its own.",
        r"$V = p\,11^\top$: $b = 0$, no attention noise",
        Verdict.TESTED,
        _orders_vanish_for_equal_tokens,
    ),
]
