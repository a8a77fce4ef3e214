"""Claims on grouped heads (GQA), parallel branches, and the rate of the linear noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sympy import Expr, Matrix, Rational, Symbol
from sympy.polys.matrices import DomainMatrix

from symbolic.algebra import Algebra, Field, Pair, Poly, vech_pairs
from symbolic.blocks import ShapedAttention, gram_covariance
from symbolic.claims.ledger import Claim, Finding, Verdict, refuted, tested
from symbolic.expansion import attention_series
from symbolic.limit import Limit, derive
from symbolic.names import GAMMA, TAU
from symbolic.proof import expected
from symbolic.recursion import Block, Recursion, skip_only
from symbolic.series import HALF, Series

RATIO = Symbol("f", positive=True)
"""f = n / (G d_h), the number of columns over the number of columns of all values."""

INVERSE_TAU = 1 / TAU


class GroupedAttention(Block):
    """Heads written out, with queries of their own and G groups of keys and values, and W_O.

    The head size of queries and keys is 1, so that m heads of a group are the columns of one field
    of queries, and a key is the first column of another. V_g = V + sqrt(G f) N_g / sqrt n is the
    Gram matrix of the d_h = n/(G f) columns of a group's values.
    """

    def __init__(self, groups: int, heads_per_group: int) -> None:
        self.groups = groups
        self.heads_per_group = heads_per_group
        numbers = range(1, groups + 1)
        self.queries = [Field(f"q{g}_", _columns) for g in numbers]
        self.keys = [Field(f"k{g}_", _columns) for g in numbers]
        self.values = [Field(f"N{g}_", self._value_covariance) for g in numbers]
        self.fields = [*self.queries, *self.keys, *self.values]

    @property
    def heads(self) -> int:
        """The number of heads H."""
        return self.groups * self.heads_per_group

    def generators(self, v: Matrix) -> Sequence[Expr]:
        """Return the parameters."""
        return [GAMMA, INVERSE_TAU, RATIO]

    def recursion(self, algebra: Algebra, order: int = 1) -> Recursion:
        """Return skip lambda^2 V and branch gamma^2 mean_h A_h V_g(h) A_h^T."""
        gain, m = algebra[GAMMA] ** 2, algebra.tokens
        branch = Series({}, order)
        for queries, keys, values in zip(self.queries, self.keys, self.values, strict=True):
            q, k = algebra.field(queries), algebra.field(keys)
            gram = Series({0: algebra.v, HALF: algebra.field(values)}, order)
            for head in range(self.heads_per_group):
                scores = algebra.matrix(
                    [[q[a, head].element * k[b, 0].element for b in range(m)] for a in range(m)]
                )
                attention = attention_series(algebra, scores, algebra[INVERSE_TAU], order=order)
                branch += attention * gram * attention.T
        share = gain * algebra[Rational(1, self.heads)]
        return Recursion(skip_only(algebra, 1 - gain, order), branch * share)

    def _value_covariance(self, algebra: Algebra, first: Pair, second: Pair) -> Poly:
        return gram_covariance(algebra, first, second) * algebra[RATIO] * self.groups


def _columns(algebra: Algebra, first: Pair, second: Pair) -> Poly:
    """Return the covariance of independent columns N(0, V)."""
    same = first[1] == second[1]
    return algebra.entry(algebra.v, first[0], second[0]) if same else algebra.ring.zero


def linear_diffusion(algebra: Algebra) -> DomainMatrix:
    """Return Sigma_lin in the ring."""
    pairs = vech_pairs(algebra.tokens)
    return algebra.matrix([[gram_covariance(algebra, x, y) for y in pairs] for x in pairs])


def attention_noise_divided_by(heads: int, block: GroupedAttention, limit: Limit) -> bool:
    """Return whether b is that of one head, and Sigma has Att / `heads` and the stated k."""
    forms = expected(ShapedAttention(heads=heads), limit.algebra)
    if forms is None:
        raise ArithmeticError("attention has a closed form")
    # Without W_O k = 2 lambda^2 gamma^2 + gamma^4; the values add gamma^4 f.
    more = limit.algebra[GAMMA] ** 4 * limit.algebra[RATIO]
    stated = forms[1] + linear_diffusion(limit.algebra).scalarmul(more)
    same_drift = (limit.drift_polynomials - forms[0]).is_zero_matrix
    return bool(same_drift and (limit.diffusion_polynomials - stated).is_zero_matrix)


def _groups() -> Finding:
    facts = []
    for groups, heads in ((1, 2), (2, 1), (2, 2)):
        block = GroupedAttention(groups, heads)
        facts.append(attention_noise_divided_by(block.heads, block, derive(block, 2)))
    return tested(
        "the recursion with queries, keys and values of every head written out, at head size 1 of "
        "the scores, m = 2: G = 1, H = 2; G = 2, H = 2; G = 2, H = 4",
        *facts,
    )


def _divided_by_groups() -> Finding:
    block = GroupedAttention(1, 2)
    limit = derive(block, 2)
    return refuted(
        "H = 2 heads that share G = 1 group of keys and values, m = 2: their scores are "
        "uncorrelated because the queries are, and the derived diffusion has Att/2",
        claim_fails=not attention_noise_divided_by(1, block, limit),
        correction_holds=attention_noise_divided_by(2, block, limit),
    )


WEIGHTS = (Symbol("gamma_1", positive=True), Symbol("gamma_2", positive=True))
RATIOS = (Symbol("f_1", positive=True), Symbol("f_2", positive=True))


class ParallelBranches(Block):
    """X' = lambda X + gamma_1 (attention) + gamma_2 (MLP), both of X, lambda^2 = 1 - Gamma.

    Each branch ends in its own Gaussian matrix, so their covariances add. Both have fluctuations
    of hidden columns, f_i N_i: f_1 = n/(G d_h) with W_O, 0 without it, and f_2 = n/d_ff.
    """

    def __init__(self, projected: bool) -> None:
        self.projected = projected
        self.attention = ShapedAttention(gamma=WEIGHTS[0])
        self.values = Field("N", lambda *a: gram_covariance(*a) * a[0][RATIOS[0]])
        self.hidden = Field("U", lambda *a: gram_covariance(*a) * a[0][RATIOS[1]])
        self.fields = [self.attention.scores, self.values, self.hidden]

    def generators(self, v: Matrix) -> Sequence[Expr]:
        """Return the parameters."""
        return [*WEIGHTS, INVERSE_TAU, *RATIOS]

    def recursion(self, algebra: Algebra, order: int = 1) -> Recursion:
        """Return skip lambda^2 V and the sum of the branches."""
        gains = [algebra[gamma] ** 2 for gamma in WEIGHTS]
        a = self.attention.attention(algebra, order)
        gram = Series({0: algebra.v}, order)
        if self.projected:
            gram += Series({HALF: algebra.field(self.values)}, order)
        units = Series({0: algebra.v, HALF: algebra.field(self.hidden)}, order)
        branch = a * gram * a.T * gains[0] + units * gains[1]
        return Recursion(skip_only(algebra, 1 - sum(gains), order), branch)


def stated_rate(algebra: Algebra, projected: bool) -> Any:
    """Return k = 2 lambda^2 Gamma + Gamma^2 + sum gamma_i^4 f_i."""
    gains = [algebra[gamma] ** 2 for gamma in WEIGHTS]
    total = sum(gains, algebra.ring.zero)
    rate = 2 * (1 - total) * total + total**2 + gains[1] ** 2 * algebra[RATIOS[1]]
    return rate + gains[0] ** 2 * algebra[RATIOS[0]] if projected else rate


def rate_holds(tokens: int, projected: bool) -> bool:
    """Return whether Sigma = k Sigma_lin + gamma_1^4/tau_0^2 Att."""
    limit = derive(ParallelBranches(projected), tokens)
    algebra = limit.algebra
    forms = expected(ShapedAttention(gamma=WEIGHTS[0]), algebra)
    if forms is None:
        raise ArithmeticError("attention has a closed form")
    # What is left of the closed form of attention alone without its linear part is Att.
    gain = algebra[WEIGHTS[0]] ** 2
    rate = stated_rate(algebra, projected) - gain * (2 - gain)
    stated = forms[1] + linear_diffusion(algebra).scalarmul(rate)
    same_drift = (limit.drift_polynomials - forms[0]).is_zero_matrix
    return bool(same_drift and (limit.diffusion_polynomials - stated).is_zero_matrix)


def _rate() -> Finding:
    return tested(
        "attention in parallel with a linear MLP of n/f_2 hidden columns, with and without W_O, as "
        "polynomials in gamma_1, gamma_2, f_1, f_2 and V, m = 1, 2, 3",
        *[rate_holds(m, projected) for m in (1, 2, 3) for projected in (False, True)],
    )


CLAIMS = [
    Claim(
        "linear-rate",
        "With parallel branches, Gamma = sum gamma_i^2 and lambda^2 + Gamma = 1, the linear noise "
        "is k Sigma_lin, k = 2 lambda^2 Gamma + Gamma^2 + sum gamma_i^4 f_i: f = n/(G d_h) for "
        "attention with W_O and G groups of keys and values, 0 without W_O, n/d_ff for an MLP.",
        r"$k=2\lambda^2\Gamma+\Gamma^2+\sum_i\gamma_i^4f_i$",
        Verdict.TESTED,
        _rate,
    ),
    Claim(
        "grouped-heads",
        "With H heads in G groups that share keys and values, Att is divided by H, the drift is "
        "that of one head, and f = n/(G d_h).",
        r"$H$ heads, $G$ groups: $\mathrm{Att}/H$, $f=n/(Gd_h)$",
        Verdict.TESTED,
        _groups,
    ),
    Claim(
        "grouped-heads-share-scores",
        "Heads that share keys share their score noise, so Att is divided by the number of groups "
        "G.",
        r"$\mathrm{Att}/G$",
        Verdict.FALSE,
        _divided_by_groups,
        "Att is divided by the number of heads H.",
        r"$\mathrm{Att}/H$",
    ),
]
