"""Claims on the order of the terms of the expansion, and on which modifications are needed."""

from __future__ import annotations

from sympy import Matrix, Rational, symbols

from symbolic.blocks import ShapedAttention
from symbolic.claims.ledger import Claim, Finding, Verdict, at, imprecise, note, tested
from symbolic.limit import derive
from symbolic.names import TAU
from symbolic.orders import term_orders
from symbolic.recursion import NoLimitError
from symbolic.series import HALF


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
    note(
        "temperature-gives-1/n",
        "The scaling of the temperature makes the terms of the Taylor expansion of A O(1/n).",
        Verdict.IMPRECISE,
        _temperature,
        at("000:18", "O(1/n)", r"\(A\)"),
        corrected="The first term is of order 1/sqrt n and has mean 0. Products of two first "
        "terms and the mean of the second term give a mean change of V of order 1/n.",
        why="A = I + A_1/sqrt n + A_2/n + ...: the first term is of order 1/sqrt n and has mean 0.",
    ),
    Claim(
        "three-modifications-needed",
        "Identity, centring and temperature tau_0 sqrt(n n_k) are each needed for a limit.",
        r"$I$, $-\frac1m 11^\top$ and $\tau\propto\sqrt{n n_k}$ are each necessary",
        Verdict.IMPRECISE,
        _three_modifications,
        "With lambda^2 + gamma^2 = 1, identity and centring are needed, and a temperature of at "
        "least this order; at any larger order there is a limit, but one on which attention has "
        "no effect.",
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
