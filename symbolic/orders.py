"""The power of 1/n of each Taylor term of the softmax, and its effect on V.

A limit on the time scale t = layer / n needs mean and covariance of V' - V of order 1/n. The effect
of a term A_k of A is found by leaving it out: it is given by the lowest orders at which mean and
covariance of A V A^T over the scores change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sympy import Expr, Integer, Rational

from symbolic.algebra import Poly, vech_pairs
from symbolic.blocks import ShapedAttention
from symbolic.checks import check_count
from symbolic.expansion import attention_series, taylor_term
from symbolic.limit import algebra_of, derive
from symbolic.recursion import NoLimitError
from symbolic.series import HALF, Series


@dataclass(frozen=True)
class TermOrder:
    """Taylor term of the attention matrix.

    Attributes
    ----------
    degree
        The power k of the scores.
    power
        The order in n: the term has order n^(-power).
    entry
        The entry (a, b) for any m, in x = G_ab / tau_0 and mu_j = mean_c (G_ac / tau_0)^j, without
        the identity.
    mean_vanishes
        Whether E[A_k - I delta_k0] = 0.
    role
        The effect of the term on V, in words.
    """

    degree: int
    power: Rational
    entry: Expr
    mean_vanishes: bool
    role: str


def term_orders(
    order: int = 2, identity: bool = True, centring: bool = True, temperature_power: Any = HALF
) -> list[TermOrder]:
    """Return the Taylor terms of degrees 0 to `order` with their orders in n and their roles.

    Raises
    ------
    ValueError
        If `order` < 0 or `temperature_power` is not a rational number >= 0.

    Examples
    --------
    >>> [str(term.power) for term in term_orders(order=3)]
    ['0', '1/2', '1', '3/2']
    """
    check_count("order", order, at_least=0)
    block = ShapedAttention(
        identity=identity, centring=centring, temperature_power=temperature_power
    )
    return list(_terms(block, order))


def limit_or_reason(block: ShapedAttention) -> str:
    """Say whether a limit exists, in the words of the engine."""
    try:
        derive(block, 2)
    except NoLimitError as error:
        return str(error)
    return "a limit exists: all terms of mean and covariance below the order 1/n vanish"


def _terms(block: ShapedAttention, order: int) -> Iterator[TermOrder]:
    power = block.temperature_power
    for degree in range(order + 1):
        entry = taylor_term(degree)
        if degree == 0 and block.centring:
            entry = Integer(0)
        # The law of the scores is symmetric.
        zero_mean = degree % 2 == 1 or _mean_vanishes(block, degree)
        role = _role(block, degree, Rational(degree * power))
        yield TermOrder(degree, Rational(degree * power), entry, zero_mean, role)


def _mean_vanishes(block: ShapedAttention, degree: int) -> bool:
    algebra = algebra_of([block], 3)
    # At temperature power 1/2 each degree has its own order.
    terms = attention_series(
        algebra,
        algebra.field(block.scores),
        algebra[block.inverse_tau],
        order=Rational(degree, 2),
        identity=False,
        centring=block.centring,
    ).terms
    matrix = terms.get(Rational(degree, 2), algebra.zeros(3))
    return not any(algebra.expect(e) for row in matrix.to_list() for e in row)


def _role(block: ShapedAttention, degree: int, power: Rational) -> str:
    if degree == 0 and not block.centring:
        return "an order-zero change of V: kills the limit; the centring removes it"
    if degree == 0 and not block.identity:
        return "A vanishes as n grows and lambda^2 V is left: kills the limit; I removes it"
    if degree == 0:
        return "A = I to leading order: V is kept, since lambda^2 + gamma^2 = 1"
    if power == 0:
        return "as large as the identity, and random: kills the limit; the temperature removes it"
    mean, covariance = _lowest_orders(block, degree)
    effects = []
    for name, order in (("mean", mean), ("covariance", covariance)):
        if order is not None and order < 1:
            effects.append(f"{name} of order n^(-{order}): kills the limit")
    if covariance == 1:
        effects.append("covariance of order 1/n (noise of order 1/sqrt n)")
    if mean == 1:
        effects.append("mean of order 1/n (drift)")
    return "; ".join(effects) if effects else "changes no mean or covariance down to 1/n: absent"


def _lowest_orders(block: ShapedAttention, degree: int) -> tuple[Rational | None, Rational | None]:
    """Return the lowest orders <= 1 at which mean and covariance of A V A^T depend on A_degree.

    There are three tokens, because the second term vanishes for two.
    """
    algebra = algebra_of([block], 3)
    whole = attention_series(
        algebra,
        algebra.field(block.scores),
        algebra[block.inverse_tau],
        identity=block.identity,
        centring=block.centring,
        temperature_power=block.temperature_power,
    )
    rest = Series(
        {p: m for p, m in whole.terms.items() if p != degree * block.temperature_power}, whole.order
    )
    with_term, without = (a * algebra.v * a.T for a in (whole, rest))
    entries, zero = vech_pairs(algebra.tokens), algebra.zeros(algebra.tokens)

    def mean(series: Series, order: Rational) -> list[Poly]:
        matrix = series.terms.get(order, zero)
        return [algebra.expect(matrix[e].element) for e in entries]

    def variance(series: Series, order: Rational) -> list[Poly]:
        couples = [(m, series.terms.get(order - p, zero)) for p, m in series.terms.items()]
        return [
            sum((algebra.covariance(x[e].element, y[e].element) for x, y in couples), algebra[0])
            for e in entries
        ]

    powers = sorted({*with_term.terms, *without.terms})
    sums = sorted({p + q for p in powers for q in powers if p + q <= 1})
    means = (p for p in powers if mean(with_term, p) != mean(without, p))
    variances = (p for p in sums if variance(with_term, p) != variance(without, p))
    return next(means, None), next(variances, None)
