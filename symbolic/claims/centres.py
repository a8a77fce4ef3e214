"""Claims on attention with a position bias B or a mask, centred on w = softmax(B).

A product o of matrices is entrywise.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from sympy import QQ, Expr, Matrix, Rational, Symbol
from sympy.polys.matrices import DomainMatrix

from symbolic.algebra import Algebra, Field, Pair, Poly
from symbolic.blocks import ShapedAttention
from symbolic.claims.ledger import Claim, Finding, Verdict, refuted, tested
from symbolic.expansion import attention_series
from symbolic.limit import algebra_of, derive
from symbolic.proof import check_at_points, prove
from symbolic.recursion import NoLimitError
from symbolic.series import HALF, Series


def symbolic_centre(tokens: int) -> list[list[Expr]]:
    """Return m rows w_a1, ..., w_am of symbols; the last entry is 1 minus the others."""
    rows = []
    for a in range(1, tokens + 1):
        row = [Symbol(f"w_{a}{b}") for b in range(1, tokens)]
        rows.append([*row, 1 - sum(row)])
    return rows


def entrywise(left: DomainMatrix, right: DomainMatrix) -> DomainMatrix:
    """Return left o right."""
    rows = zip(left.to_list(), right.to_list(), strict=True)
    entries = [[x * y for x, y in zip(*pair, strict=True)] for pair in rows]
    return DomainMatrix(entries, left.shape, left.domain)


def transported(w: DomainMatrix, m: DomainMatrix, v: DomainMatrix) -> DomainMatrix:
    """Return T(M) = w(M o V)w^T - (wM o wV)w^T - w(Mw^T o Vw^T) + (wMw^T) o (wVw^T)."""
    t = w.transpose()
    return (
        w * entrywise(m, v) * t
        - entrywise(w * m, w * v) * t
        - w * entrywise(m * t, v * t)
        + entrywise(w * m * t, w * v * t)
    )


def second_mean(w: DomainMatrix, q: DomainMatrix, m: DomainMatrix) -> DomainMatrix:
    """Return (w_ai Q_aa/2) [M_ii - 2 (wM)_ai - (w diag M)_a + 2 (wMw^T)_aa]."""
    size = w.shape[0]
    means, both = w * m, w * m * w.transpose()

    def entry(a: int, i: int) -> Poly:
        diagonal = sum((w[a, b].element * m[b, b].element for b in range(size)), w.domain.zero)
        bracket = m[i, i].element - 2 * means[a, i].element - diagonal + 2 * both[a, a].element
        return w[a, i].element * q[a, a].element * bracket * QQ(1, 2)

    return DomainMatrix(
        [[entry(a, i) for i in range(size)] for a in range(size)], w.shape, w.domain
    )


class CorrelatedScores(ShapedAttention):
    """Attention whose scores have a covariance of their own; only second moments are needed."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.scores = Field("G", self.covariance)
        self.fields = (self.scores,)

    @abstractmethod
    def covariance(self, algebra: Algebra, first: Pair, second: Pair) -> Poly:
        """Return E[G_ab G_cd]."""


class CrossScores(CorrelatedScores):
    """Attention whose scores have E[G_ab G_cd] = Q_ac M_bd with symmetric matrices of symbols."""

    def generators(self, v: Matrix) -> Sequence[Expr]:
        """Return the parameters and the entries of Q and M."""
        entries = [_entry(name, a, b) for name in "QM" for a in range(v.rows) for b in range(a + 1)]
        return [*super().generators(v), *entries]

    def covariance(self, algebra: Algebra, first: Pair, second: Pair) -> Poly:
        """Return Q_ac M_bd."""
        (a, b), (c, d) = first, second
        return algebra[_entry("Q", a, c)] * algebra[_entry("M", b, d)]


def _entry(name: str, a: int, b: int) -> Symbol:
    return Symbol(f"{name}_{min(a, b) + 1}{max(a, b) + 1}")


def _of_symbols(algebra: Algebra, name: str) -> DomainMatrix:
    size = range(algebra.tokens)
    return algebra.matrix([[algebra[_entry(name, a, b)] for b in size] for a in size])


def _means(algebra: Algebra, matrix: DomainMatrix) -> DomainMatrix:
    return algebra.matrix([[algebra.expect(e) for e in row] for row in matrix.to_list()])


def cross_scores_hold(tokens: int) -> list[bool]:
    """Return whether A_1, E A_2 and E[A_1 V A_1^T] are as stated, for symbols w, Q, M and V."""
    block = CrossScores(centre=symbolic_centre(tokens))
    algebra = algebra_of([block], tokens)
    w, g = block.centre_in(algebra), algebra.field(block.scores)
    terms = attention_series(algebra, g, algebra.ring.one, centre=w).terms
    first, second = terms[HALF], terms[Rational(1)]
    weighted = entrywise(w, g)
    ones = algebra.matrix([[1] * tokens for _ in range(tokens)])
    q, m = _of_symbols(algebra, "Q"), _of_symbols(algebra, "M")
    product = _means(algebra, first * algebra.v * first.transpose())
    return [
        (first - (weighted - entrywise(w, weighted * ones))).is_zero_matrix,
        (_means(algebra, second) - second_mean(w, q, m)).is_zero_matrix,
        (product - entrywise(q, transported(w, m, algebra.v))).is_zero_matrix,
    ]


def _cross_scores() -> Finding:
    return tested(
        "softmax(Y / tau + B) expanded by its differential equation, averaged over G; polynomials "
        "in w, Q, M and V, m = 2, 3",
        *cross_scores_hold(2),
        *cross_scores_hold(3),
    )


def stated_drift(block: ShapedAttention, algebra: Algebra) -> DomainMatrix:
    """Return (gamma^2/tau_0^2) [V o T(V) + A2 V + V A2^T]."""
    w, v = block.centre_in(algebra), algebra.v
    moved = second_mean(w, v, v) * v
    total = entrywise(v, transported(w, v, v)) + moved + moved.transpose()
    return total.scalarmul(algebra[block.gamma] ** 2 * algebra[block.inverse_tau] ** 2)


def drift_is(stated: Any, block: ShapedAttention, tokens: int) -> bool:
    """Return whether the derived drift is the stated one, a function of block and ring."""
    limit = derive(block, tokens)
    return bool((limit.drift_polynomials - stated(block, limit.algebra)).is_zero_matrix)


def _rational_centre(tokens: int) -> list[list[Rational]]:
    """Return rows with zeros and unequal weights: a causal mask and a bias."""
    rows = []
    for a in range(tokens):
        weights = [b + 1 + a * b if b <= a else 0 for b in range(tokens)]
        rows.append([Rational(weight, sum(weights)) for weight in weights])
    return rows


def _limit() -> Finding:
    facts = []
    for m in (2, 3):
        block = ShapedAttention(centre=symbolic_centre(m))
        facts += [bool(prove(block, m).holds), drift_is(stated_drift, block, m)]
    block = ShapedAttention(centre=_rational_centre(4))
    return tested(
        "difference of polynomials in V and w is 0 for m = 2, 3; a causal mask with a bias at a "
        "rational V for m = 4",
        *facts,
        bool(check_at_points(block, 4, points=1).holds),
    )


class CentredOnTheMean(ShapedAttention):
    """Attention with a bias, I + softmax(Y / tau + B) - 11^T/m."""

    def attention(self, algebra: Algebra, order: int) -> Series:
        """Return the matrix A as a series."""
        m = algebra.tokens
        mean = algebra.matrix([[Rational(1, m)] * m for _ in range(m)])
        return super().attention(algebra, order) + (self.centre_in(algebra) - mean)


def _wrong_centre() -> Finding:
    centre = [[Rational(2, 3), Rational(1, 3)], [Rational(1, 2), Rational(1, 2)]]
    try:
        derive(CentredOnTheMean(centre=centre), 2)
        reason = ""
    except NoLimitError as error:
        reason = str(error)
    return refuted(
        f"two tokens, softmax(B) = (2/3, 1/3) in row 0 and (1/2, 1/2) in row 1: {reason}",
        claim_fails="n^0" in reason,
        correction_holds=drift_is(stated_drift, ShapedAttention(centre=centre), 2),
    )


CLAIMS = [
    Claim(
        "centre-moments",
        "With A = I + softmax(Y/tau + B) - w, w = softmax(B), and E[G_ab G_cd] = Q_ac M_bd: "
        "tau_0 A_1 = w o (G - (w o G) 1 1^T), tau_0^2 E[A_1 V A_1^T] = Q o T(M), T(M) = w(M o V)"
        "w^T - (wM o wV)w^T - w(Mw^T o Vw^T) + wMw^T o wVw^T, and tau_0^2 E[A_2]_ai = (w_ai Q_aa/2)"
        " [M_ii - 2 (wM)_ai - (w diag M)_a + 2 (wMw^T)_aa].",
        r"$\tau_0^2E[A_1VA_1^\top]=Q\circ T(M)$, $\tau_0^2E[A_2]_{ai}=\frac{w_{ai}Q_{aa}}2[M_{ii}-"
        r"2(wM)_{ai}-(w\,\mathrm{diag}M)_a+2(wMw^\top)_{aa}]$",
        Verdict.TESTED,
        _cross_scores,
    ),
    Claim(
        "centre-limit",
        "With any row-stochastic centre w, b = (gamma^2/tau_0^2) [V o T(V) + E[A_2] V + V E[A_2]^T]"
        ", and the diffusion is the masked one with C_a = diag(w_a) - w_a w_a^T.",
        r"$b=\frac{\gamma^2}{\tau_0^2}[V\circ T(V)+A_2V+VA_2^\top]$",
        Verdict.TESTED,
        _limit,
    ),
    Claim(
        "centre-of-a-bias",
        "With a position bias B, centring on 1/m gives a limit.",
        r"$A=I+\mathrm{softmax}(Y/\tau+B)-\frac1m11^\top$ has a limit",
        Verdict.FALSE,
        _wrong_centre,
        "softmax(B) - 11^T/m is left, which changes V by order 1 in each layer; the centre is "
        "softmax(B).",
        r"$A=I+\mathrm{softmax}(Y/\tau+B)-\mathrm{softmax}(B)$",
    ),
]
