"""The attention matrix in powers of 1/n, and the size of its terms.

With Y = sqrt(n_k) G and tau = tau_0 sqrt(n n_k) the argument of the softmax is G / (tau_0 sqrt n),
so its Taylor term of degree k has order n^(-k/2). The centring cancels the term of degree zero,
1/m, and the identity replaces it: A = I + A_1 / sqrt n + A_2 / n + ...
"""

from __future__ import annotations

from typing import Any

from sympy import Expr, IndexedBase, Matrix, Rational, Symbol, expand, factorial, series
from sympy.polys.matrices import DomainMatrix

from symbolic.algebra import Algebra, Field, Poly
from symbolic.checks import Mask, allowed_sets, check_count
from symbolic.names import TAU
from symbolic.series import HALF, Series
from symbolic.softmax import softmax_series

INVERSE_TAU = 1 / TAU


def attention_series(
    algebra: Algebra,
    scores: DomainMatrix,
    inverse_tau: Poly,
    mask: Mask = None,
    order: Any = 1,
    identity: bool = True,
    centring: bool = True,
    temperature_power: Any = HALF,
    centre: DomainMatrix | None = None,
) -> Series:
    """Return ``A = I + softmax(Y / tau) - (1/m_a on the allowed set of row a)`` as a series.

    Parameters
    ----------
    algebra
        The ring.
    scores, inverse_tau
        The field G (m, m) and 1/tau_0, both in the ring.
    mask
        None, "causal" or rows of booleans; m_a counts the allowed tokens of row a.
    order
        The largest power of 1/n that is kept.
    identity, centring
        Whether I is added and 1/m_a subtracted.
    temperature_power
        The power p > 0 in tau = tau_0 sqrt(n_k) n^p. With p = 0 every Taylor term would have
        order n^0.
    centre
        softmax(B) of a bias B of the scores, in the ring; then the mask is None, and
        ``A = I + softmax(Y / tau + B) - centre``.
    """
    power = Rational(temperature_power)
    if power <= 0:
        raise ValueError(f"temperature_power must be positive; got {power}")
    degree = int(Rational(order) // power)
    allowed = allowed_sets(mask, algebra.tokens)
    entries = scores.to_list()
    zero = algebra.ring.zero
    taylor = [[[zero] * algebra.tokens for _ in allowed] for _ in range(degree + 1)]
    for a, columns in enumerate(allowed):
        row = [entries[a][b] * inverse_tau for b in columns]
        start = None if centre is None else [centre[a, b].element for b in columns]
        coefficients = softmax_series(row, degree, algebra.ring.one, start)
        for k, values in enumerate(coefficients):
            for b, value in zip(columns, values, strict=True):
                taylor[k][a][b] = value
        if centring:
            taylor[0][a] = [zero] * algebra.tokens
    total = Series({}, order)
    if identity:
        total = total + algebra.identity
    for k, rows in enumerate(taylor):
        total = total + Series({k * power: algebra.matrix(rows)}, order)
    return total


def expand_attention(
    tokens: int, order: int = 2, mask: Mask = None, identity: bool = True, centring: bool = True
) -> dict[Rational, Matrix]:
    """Return the matrices A_0, A_1, ... of ``A = sum_k A_k n^(-k/2)`` as functions of the scores G.

    Parameters
    ----------
    tokens
        The number of tokens m >= 1.
    order
        The largest k.
    mask, identity, centring
        As in `attention_series`.

    Returns
    -------
    dict
        Power of 1/n (0, 1/2, 1, ...) -> m x m matrix of polynomials in G_ab and 1/tau_0.

    Examples
    --------
    >>> expand_attention(tokens=2, order=1)[HALF][0, 0]
    G[0,0]/(4*tau_0) - G[0,1]/(4*tau_0)
    """
    check_count("order", order, at_least=0)
    field = Field("G", lambda algebra, _x, _y: algebra.ring.zero)
    algebra = Algebra(tokens, [INVERSE_TAU], [field])
    terms = attention_series(
        algebra,
        algebra.field(field),
        algebra[INVERSE_TAU],
        mask,
        order=Rational(order, 2),
        identity=identity,
        centring=centring,
    ).terms
    zero = Matrix.zeros(tokens, tokens)
    powers = [Rational(k, 2) for k in range(order + 1)]
    return {p: terms[p].to_Matrix() if p in terms else zero for p in powers}


def taylor_term(degree: int) -> Expr:
    """Return the Taylor term of degree k of softmax at 0 for any number of tokens m.

    For row a, let x = G_ab / tau_0 and let mu_j = (1/m) sum_c (G_ac / tau_0)^j be the means of the
    row. The term is the coefficient of epsilon^k in (1/m) exp(epsilon x) / sum_j mu_j epsilon^j /
    j!. It has order n^(-k/2).

    The result is an expression in the symbol x, the indexed symbols mu[1], mu[2], ... and m.

    Examples
    --------
    >>> taylor_term(1)
    (x - mu[1])/m
    """
    check_count("degree", degree, at_least=0)
    x, mu = Symbol("x"), IndexedBase("mu")
    epsilon, m = Symbol("epsilon"), Symbol("m", positive=True, integer=True)
    numerator = sum(x**j * epsilon**j / factorial(j) for j in range(degree + 1))
    denominator = 1 + sum(mu[j] * epsilon**j / factorial(j) for j in range(1, degree + 1))
    term = series(numerator / denominator, epsilon, 0, degree + 1).removeO().coeff(epsilon, degree)
    return expand(term) / m
