"""Which power of 1/n each Taylor term of the softmax has, and what it does to V.

The branch of attention is gamma^2 A V A^T. A term A_k of A of order n^(-p) enters the mean of V' at
order n^(-p) if E[A_k] is not 0 and at order n^(-2p) in any case, and the covariance of V' at order
n^(-2p). A limit on the time scale t = layer / n needs mean and covariance of order 1/n.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sympy import Expr, Integer, Rational, Symbol
from sympy.polys.matrices import DomainMatrix

from symbolic.blocks import ShapedAttention
from symbolic.checks import check_count
from symbolic.expansion import attention_series, taylor_term
from symbolic.limit import algebra_of, derive
from symbolic.recursion import NoLimitError
from symbolic.series import HALF


@dataclass(frozen=True)
class TermOrder:
    """One Taylor term of the attention matrix.

    Attributes
    ----------
    degree
        k, the power of the scores.
    power
        The term has order n^(-power).
    entry
        The entry (a, b) for any m, in x = G_ab / tau_0 and mu_j = mean_c (G_ac / tau_0)^j; the
        identity is not part of it.
    mean_vanishes
        Whether E[A_k - I delta_k0] = 0.
    role
        What the term does to V.
    """

    degree: int
    power: Rational
    entry: Expr
    mean_vanishes: bool
    role: str


def term_orders(
    order: int = 2, identity: bool = True, centred: bool = True, temperature_power: Any = HALF
) -> list[TermOrder]:
    """The Taylor terms of degrees 0 to `order` with their orders in n and their roles.

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
    block = ShapedAttention(identity=identity, centred=centred, temperature_power=temperature_power)
    return list(_terms(block, order))


def limit_or_reason(block: ShapedAttention, tokens: int = 2) -> str:
    """Whether a limit exists, in words: the engine's own answer."""
    try:
        derive(block, tokens)
    except NoLimitError as error:
        return str(error)
    return "a limit exists: all terms of mean and covariance below the order 1/n vanish"


def _terms(block: ShapedAttention, order: int) -> Iterator[TermOrder]:
    power = block.temperature_power
    for degree in range(order + 1):
        entry = taylor_term(degree)
        if degree == 0 and block.centred:
            entry = Integer(0)
        zero_mean = all(_mean_vanishes(block, degree, tokens) for tokens in (2, 3))
        role = _role(block, degree, Rational(degree * power), zero_mean)
        yield TermOrder(degree, Rational(degree * power), entry, zero_mean, role)


def _mean_vanishes(block: ShapedAttention, degree: int, tokens: int) -> bool:
    algebra = algebra_of([block], tokens)
    # At temperature power 1/2 the degrees are told apart by their orders.
    terms = attention_series(
        algebra,
        algebra.field(block.scores),
        algebra[block.inverse_tau],
        order=Rational(degree, 2),
        identity=False,
        centred=block.centred,
    ).terms
    matrix: DomainMatrix | None = terms.get(Rational(degree, 2))
    return matrix is None or not any(algebra.expect(e) for row in matrix.to_list() for e in row)


def _role(block: ShapedAttention, degree: int, power: Rational, zero_mean: bool) -> str:
    if degree == 0:
        if not block.centred:
            return "an order-zero change of V: kills the limit; the centring removes it"
        if not block.identity:
            return "A vanishes as n grows and lambda^2 V is left: kills the limit; I removes it"
        return "A = I to leading order: V is kept, since lambda^2 + gamma^2 = 1"
    if power == 0:
        return "as large as the identity, and random: kills the limit; the temperature removes it"
    mean = 2 * power if zero_mean else power
    if 2 * power < 1 or mean < 1:
        return f"a change of order {_size(min(mean, 2 * power))} in mean or covariance: too large"
    roles = []
    if 2 * power == 1:
        roles.append("noise of order 1/sqrt n")
    if mean == 1:
        roles.append("drift of order 1/n")
    return " and ".join(roles) if roles else "smaller than 1/n: absent from the limit"


def _size(power: Rational) -> str:
    return str(Symbol("n") ** -power)
