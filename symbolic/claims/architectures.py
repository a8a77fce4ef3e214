"""Claims on attention in use: centres, rotary positions, QK-norm, groups, activations."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import product
from typing import Any

from sympy import (
    QQ,
    Expr,
    Integer,
    Matrix,
    Rational,
    Symbol,
    asin,
    diff,
    erf,
    exp,
    expand,
    expand_func,
    factorial,
    gamma,
    integrate,
    limit,
    log,
    oo,
    pi,
    rf,
    simplify,
    sqrt,
    symbols,
    tanh,
)
from sympy.polys.matrices import DomainMatrix

from symbolic.activations import GATE_CURVATURE, GATE_SLOPE, SECOND, THIRD, GatedMLP, SmoothMLP
from symbolic.algebra import Algebra, Field, Pair, Poly, vech_pairs
from symbolic.blocks import ShapedAttention, gram_covariance
from symbolic.claims.explosion import vanishes
from symbolic.claims.ledger import Finding, proven, refuted, tested
from symbolic.expansion import attention_series
from symbolic.limit import Limit, algebra_of, derive
from symbolic.names import GAMMA, TAU
from symbolic.proof import check_at_points, expected, prove
from symbolic.recursion import Block, NoLimitError, Recursion, skip_only
from symbolic.series import HALF, Series

# Claims on attention with a position bias B or a mask, centred on w = softmax(B).
#
# A product o of matrices is entrywise.


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
    """Attention whose scores have a given covariance; only second moments are needed."""

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


def centre_moments() -> Finding:
    return tested(*cross_scores_hold(2), *cross_scores_hold(3))


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


def centre_limit() -> Finding:
    facts = []
    for m in (2, 3):
        block = ShapedAttention(centre=symbolic_centre(m))
        facts += [bool(prove(block, m).holds), drift_is(stated_drift, block, m)]
    block = ShapedAttention(centre=_rational_centre(4))
    return tested(*facts, bool(check_at_points(block, 4, points=1).holds))


class CentredOnTheMean(ShapedAttention):
    """Attention with a bias, I + softmax(Y / tau + B) - 11^T/m."""

    def attention(self, algebra: Algebra, order: int) -> Series:
        """Return the matrix A as a series."""
        m = algebra.tokens
        mean = algebra.matrix([[Rational(1, m)] * m for _ in range(m)])
        return super().attention(algebra, order) + (self.centre_in(algebra) - mean)


def centre_of_a_bias() -> Finding:
    centre = [[Rational(2, 3), Rational(1, 3)], [Rational(1, 2), Rational(1, 2)]]
    try:
        derive(CentredOnTheMean(centre=centre), 2)
        reason = ""
    except NoLimitError as error:
        reason = str(error)
    return refuted(
        claim_fails="n^0" in reason,
        correction_holds=drift_is(stated_drift, ShapedAttention(centre=centre), 2),
        witness=f"two tokens, softmax(B) = (2/3, 1/3) in row 0 and (1/2, 1/2) in row 1: {reason}",
    )


# Claims on rotary positions (RoPE): queries and keys are rotated before their product.
#
# The two coordinates j of a query or key at position a are rotated by a theta_j. Angles enter
# through cos theta_j and sin theta_j, generators of the ring, modulo cos^2 + sin^2 = 1.

COSINES = symbols("cos_1 cos_2", real=True)
SINES = symbols("sin_1 sin_2", real=True)


def multiple(cosine: Any, sine: Any, count: int, one: Any) -> tuple[Any, Any]:
    """Return cos(k theta) and sin(k theta) as polynomials in cos theta and sin theta."""
    x, y = one, 0 * one
    for _ in range(abs(count)):
        x, y = x * cosine - y * sine, y * cosine + x * sine
    return x, (y if count >= 0 else -y)


def on_circle(polynomial: Poly, algebra: Algebra, angles: int) -> Poly:
    """Return the remainder modulo cos_j^2 + sin_j^2 - 1, which is 0 for 0 on the circles alone."""
    relations = [
        algebra[COSINES[j]] ** 2 + algebra[SINES[j]] ** 2 - algebra.ring.one for j in range(angles)
    ]
    return polynomial.rem(relations)


class RotatedProducts(Block):
    """Scores sum_j (rotated q_aj) . (rotated k_bj) / sqrt d_h of Gaussian queries and keys.

    Parameters
    ----------
    angles
        The number of rotated pairs of coordinates, 1 or 2.
    unrotated
        Whether the head has one more coordinate, which is not rotated.
    """

    def __init__(self, angles: int, unrotated: bool) -> None:
        self.angles = angles
        self.size = 2 * angles + unrotated
        self.queries = [Field(f"q{j}_", self._queries) for j in range(angles + unrotated)]
        self.keys = [Field(f"k{j}_", _columns) for j in range(angles + unrotated)]
        self.fields = [*self.queries, *self.keys]

    def generators(self, v: Matrix) -> Sequence[Expr]:
        """Return cosines and sines."""
        return [*COSINES[: self.angles], *SINES[: self.angles]]

    def recursion(self, algebra: Algebra, order: int = 1) -> Recursion:
        """Raise TypeError: this describes the scores of a layer, not its branch."""
        raise TypeError("only scores are described here; a block with a branch is needed")

    def scores(self, algebra: Algebra) -> list[list[Poly]]:
        """Return S (m, m); a coordinate of a head is a column of a field."""
        m = algebra.tokens
        total = [[algebra.ring.zero] * m for _ in range(m)]
        for j, fields in enumerate(zip(self.queries, self.keys, strict=True)):
            rows = [
                [self._rotated(algebra, algebra.field(field), j, a) for a in range(m)]
                for field in fields
            ]
            for a, b in product(range(m), repeat=2):
                total[a][b] += sum(
                    (x * y for x, y in zip(rows[0][a], rows[1][b], strict=True)), algebra.ring.zero
                )
        return total

    def _rotated(self, algebra: Algebra, field: DomainMatrix, j: int, a: int) -> list[Poly]:
        if j == self.angles:
            return [field[a, 0].element]
        x, y = field[a, 0].element, field[a, 1].element
        cosine, sine = algebra[COSINES[j]], algebra[SINES[j]]
        c, s = multiple(cosine, sine, a, algebra.ring.one)
        return [c * x - s * y, s * x + c * y]

    def _queries(self, algebra: Algebra, first: Pair, second: Pair) -> Poly:
        return _columns(algebra, first, second) * algebra[Rational(1, self.size)]


def _columns(algebra: Algebra, first: Pair, second: Pair) -> Poly:
    """Return the covariance of independent columns N(0, V)."""
    same = first[1] == second[1]
    return algebra.entry(algebra.v, first[0], second[0]) if same else algebra.ring.zero


def rotated_covariance_holds(tokens: int, angles: int, unrotated: bool) -> bool:
    """Return whether E[S_ab S_cd] = V_ac V_bd r(b - a - d + c) for all a, b, c, d."""
    block = RotatedProducts(angles, unrotated)
    algebra = algebra_of([block], tokens)
    scores = block.scores(algebra)
    share = algebra[Rational(2, block.size)]
    for a, b, c, d in product(range(tokens), repeat=4):
        kernel = algebra[Rational(int(unrotated), block.size)]
        for j in range(angles):
            pair = algebra[COSINES[j]], algebra[SINES[j]]
            kernel += share * multiple(*pair, b - a - d + c, algebra.ring.one)[0]
        stated = algebra.entry(algebra.v, a, c) * algebra.entry(algebra.v, b, d) * kernel
        difference = algebra.expect(scores[a][b] * scores[c][d]) - stated
        if on_circle(difference, algebra, angles):
            return False
    return True


def rotary_scores() -> Finding:
    return tested(
        rotated_covariance_holds(2, 1, False),
        rotated_covariance_holds(2, 2, False),
        rotated_covariance_holds(3, 1, True),
        rotated_covariance_holds(3, 2, True),
    )


SHARE = Symbol("h", positive=True)
"""2 / d_h, the weight of an angle; 1 - h times the number of angles is left unrotated."""


class RotaryAttention(CorrelatedScores):
    """Attention with E[S_ab S_cd] = V_ac V_bd r(b - a - d + c), r(D) = h sum cos(D theta_j) + u."""

    def __init__(self, angles: int, **options: Any) -> None:
        super().__init__(**options)
        self.angles = angles

    def generators(self, v: Matrix) -> Sequence[Expr]:
        """Return the parameters, h, cosines and sines."""
        circle = [*COSINES[: self.angles], *SINES[: self.angles]]
        return [*super().generators(v), SHARE, *circle]

    def inner(self, algebra: Algebra) -> DomainMatrix:
        """Return V, the covariance of queries and keys."""
        return algebra.v

    def unrotated(self, algebra: Algebra) -> Poly:
        """Return u = 1 - h times the number of angles."""
        return algebra.ring.one - algebra[SHARE] * self.angles

    def turn(self, algebra: Algebra, j: int, distance: int) -> tuple[Poly, Poly]:
        """Return cos and sin of theta_j times a distance."""
        return multiple(algebra[COSINES[j]], algebra[SINES[j]], distance, algebra.ring.one)

    def kernel(self, algebra: Algebra, distance: int) -> Poly:
        """Return r(D)."""
        turns = (self.turn(algebra, j, distance)[0] for j in range(self.angles))
        return sum((algebra[SHARE] * turn for turn in turns), self.unrotated(algebra))

    def covariance(self, algebra: Algebra, first: Pair, second: Pair) -> Poly:
        """Return V_ac V_bd r(b - a - d + c)."""
        (a, b), (c, d) = first, second
        inner = self.inner(algebra)
        plain = algebra.entry(inner, a, c) * algebra.entry(inner, b, d)
        return plain * self.kernel(algebra, b - a - d + c)


def _with_factor(block: RotaryAttention, algebra: Algebra, factor: Any) -> DomainMatrix:
    """Return V o factor(a - b), with V as the scores have it."""
    size = range(algebra.tokens)
    matrix = algebra.matrix([[factor(a - b) for b in size] for a in size])
    return entrywise(block.inner(algebra), matrix)


def drift_by_angles(block: RotaryAttention, algebra: Algebra) -> DomainMatrix:
    """Return (gamma^2/tau_0^2) [B1 + A2 V + V A2^T], with B1 a sum over the angles."""
    w, v, inner = block.centre_in(algebra), algebra.v, block.inner(algebra)
    total = entrywise(inner, transported(w, inner, v)).scalarmul(block.unrotated(algebra))
    for j in range(block.angles):
        for part in (0, 1):
            m = _with_factor(
                block, algebra, lambda d, j=j, part=part: block.turn(algebra, j, d)[part]
            )
            total += entrywise(m, transported(w, m, v)).scalarmul(algebra[SHARE])
    return _with_second(block, algebra, total)


def multiplied_drift(block: RotaryAttention, algebra: Algebra) -> DomainMatrix:
    """Return the same with B1 = V~ o T(V~), as if V were replaced by V~ = V o r in both factors."""
    w = block.centre_in(algebra)
    m = _with_factor(block, algebra, lambda d: block.kernel(algebra, d))
    return _with_second(block, algebra, entrywise(m, transported(w, m, algebra.v)))


def _with_second(block: RotaryAttention, algebra: Algebra, first: DomainMatrix) -> DomainMatrix:
    w, v = block.centre_in(algebra), algebra.v
    keys = _with_factor(block, algebra, lambda d: block.kernel(algebra, d))
    moved = second_mean(w, block.inner(algebra), keys) * v
    gain = algebra[block.gamma] ** 2 * algebra[block.inverse_tau] ** 2
    return (first + moved + moved.transpose()).scalarmul(gain)


def differences(block: RotaryAttention, tokens: int, stated: Any) -> list[Poly]:
    """Return the entries of derived minus stated drift that are not zero."""
    limit = derive(block, tokens)
    difference = limit.drift_polynomials - stated(block, limit.algebra)
    entries = (
        on_circle(entry, limit.algebra, block.angles)
        for row in difference.to_list()
        for entry in row
    )
    return [entry for entry in entries if entry]


def rotary_drift() -> Finding:
    cases = [(2, 1), (2, 2), (3, 1), (3, 2)]
    return tested(
        *[
            not differences(RotaryAttention(n, centre=symbolic_centre(m)), m, drift_by_angles)
            for m, n in cases
        ]
    )


def rotary_multiplier() -> Finding:
    block = RotaryAttention(2, gamma=1, tau0=1)
    left = differences(block, 2, multiplied_drift)
    v = {"V[0,0]": Rational(1), "V[0,1]": Rational(1, 2), "V[1,1]": Rational(1)}
    point = {Symbol(name, real=True): value for name, value in v.items()} | {SHARE: Rational(1, 2)}
    # A quarter turn of the first pair, none of the second.
    point |= {COSINES[0]: 0, SINES[0]: 1, COSINES[1]: 1, SINES[1]: 0}
    values = [expand(entry.as_expr().subs(point)) for entry in left]
    nonzero = [value for value in values if value != 0]
    return refuted(
        claim_fails=bool(nonzero),
        correction_holds=not differences(block, 2, drift_by_angles),
        witness=(
            "V = [[1, 1/2], [1/2, 1]], d_h = 4, angles pi/2 and 0, gamma = tau_0 = 1: an entry of "
            "the "
            f"derived drift minus that of the stated one is {nonzero[0] if nonzero else 0}"
        ),
    )


# Claims on QK-norm: queries and keys of size d are divided by their lengths.

D = Symbol("d", positive=True)
"""The size of a head."""

LARGEST = 4
"""The kernel is compared in the powers x, x^3, ..., x^(2 LARGEST + 1)."""


ROOT = gamma((D + 1) / 2) / gamma(D / 2)
"""E sqrt t for t = |u|^2/2, u ~ N(0, I_d), which has the Gamma law of shape d/2."""


def laguerre(degree: int) -> list[Expr]:
    """Return the coefficients of t^0, ..., t^degree of the polynomial L_degree^(d/2)(t)."""
    return [
        (-1) ** i * _rising(D / 2 + i + 1, degree - i) / (factorial(degree - i) * factorial(i))
        for i in range(degree + 1)
    ]


def kernel_coefficient(j: int) -> Expr:
    """Return the coefficient of x^(2j + 1) in E u.v / (|u| |v|) for Gaussians of correlation x.

    u_1 L_j^(d/2)(|u|^2/2) is a Hermite polynomial of degree 2j + 1, so by Mehler's formula the
    coefficient is d times the square of its inner product with u_1 / |u|, over its square norm.
    By symmetry u_1^2 may be replaced by |u|^2 / d = 2 t / d.
    """
    polynomial = laguerre(j)
    # E t^(i + 1/2) = ROOT (d/2 + 1/2)_i, and E t^i = (d/2)_i.
    inner = sum(c * _rising(D / 2 + HALF, i) for i, c in enumerate(polynomial)) * ROOT / D
    norm = sum(
        first * second * _rising(D / 2, i + k + 1) / D
        for i, first in enumerate(polynomial)
        for k, second in enumerate(polynomial)
    )
    return D * inner**2 / norm


def stated_coefficient(j: int) -> Expr:
    """Return that of x (2/d) (Gamma((d+1)/2) / Gamma(d/2))^2 2F1(1/2, 1/2; d/2 + 1; x^2)."""
    series = _rising(HALF, j) ** 2 / (_rising(D / 2 + 1, j) * factorial(j))
    return 2 * ROOT**2 / D * series


def _rising(start: Expr, count: int) -> Expr:
    return expand_func(rf(start, count))


def qk_norm_kernel() -> Finding:
    x = Symbol("x")
    arc = 2 / pi * asin(x)
    return tested(
        *[
            vanishes((kernel_coefficient(j) - stated_coefficient(j)) / ROOT**2)
            for j in range(LARGEST + 1)
        ],
        *[
            simplify(
                stated_coefficient(j).subs(D, 1)
                - diff(arc, x, 2 * j + 1).subs(x, 0) / factorial(2 * j + 1)
            )
            == 0
            for j in range(LARGEST + 1)
        ],
    )


def qk_norm_correlations() -> Finding:
    slopes = [simplify(stated_coefficient(0).subs(D, size)) for size in (1, 2, 64)]
    return refuted(
        claim_fails=slopes[0] != 1,
        correction_holds=vanishes((kernel_coefficient(0) - stated_coefficient(0)) / ROOT**2)
        and bool(1 - slopes[2].evalf() < Rational(1, 100)),
        witness=(
            "d = 1: queries and keys are signs, and rho_d(x) = (2/pi) arcsin x, whose slope at 0 "
            "is "
            f"{slopes[0]}; it is {slopes[1]} for d = 2 and {slopes[2].evalf(4)} for d = 64"
        ),
    )


class NormalisedScores(RotaryAttention):
    """Attention with E[S_ab S_cd] = W_ac W_bd r(b - a - d + c), W_aa = 1 and symbols off it."""

    def generators(self, v: Matrix) -> Sequence[Expr]:
        """Return the parameters and the entries of W."""
        entries = [_cosine_symbol(a, b) for a in range(v.rows) for b in range(a)]
        return [*super().generators(v), *entries]

    def inner(self, algebra: Algebra) -> DomainMatrix:
        """Return W."""
        size = range(algebra.tokens)
        return algebra.matrix([[1 if a == b else _cosine_symbol(a, b) for b in size] for a in size])


def _cosine_symbol(a: int, b: int) -> Symbol:
    return Symbol(f"W_{min(a, b) + 1}{max(a, b) + 1}", real=True)


def qk_norm_drift() -> Finding:
    return tested(
        *[
            not differences(NormalisedScores(n, centre=symbolic_centre(m)), m, drift_by_angles)
            for m, n in ((2, 1), (2, 2), (3, 1))
        ]
    )


# Claims on grouped heads (GQA), parallel branches, and the rate of the linear noise.

RATIO = Symbol("f", positive=True)
"""f = n / (G d_h), the number of columns over the number of columns of all values."""

INVERSE_TAU = 1 / TAU


class GroupedAttention(Block):
    """Heads written out, with separate queries and G groups of keys and values, and W_O.

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


def grouped_heads() -> Finding:
    facts = []
    for groups, heads in ((1, 2), (2, 1), (2, 2)):
        block = GroupedAttention(groups, heads)
        facts.append(attention_noise_divided_by(block.heads, block, derive(block, 2)))
    return tested(*facts)


def grouped_heads_share_scores() -> Finding:
    block = GroupedAttention(1, 2)
    limit = derive(block, 2)
    return refuted(
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


def linear_rate() -> Finding:
    return tested(*[rate_holds(m, projected) for m in (1, 2, 3) for projected in (False, True)])


# Claims on MLPs with smooth shaped activations and gates, and on their explosion.

SCALE = Symbol("a", positive=True)
X = Symbol("x", real=True)


def smooth_drift(algebra: Algebra, a: int, b: int) -> Expr:
    """Return the stated drift of a smooth shaped activation."""
    v = algebra.v_expressions
    second = v[a, a] * v[b, b] + 2 * v[a, b] ** 2 - 3 * v[a, b]
    third = v[a, b] * (v[a, a] + v[b, b] - 2)
    return GAMMA**2 / SCALE**2 * (SECOND**2 / 4 * second + THIRD / 2 * third)


def gate_drift(algebra: Algebra, a: int, b: int) -> Expr:
    """Return the stated drift of a shaped gate."""
    v = algebra.v_expressions
    bracket = GATE_SLOPE**2 * (v[a, b] - 1) + GATE_CURVATURE / 2 * (v[a, a] + v[b, b] - 2)
    return GAMMA**2 / SCALE**2 * v[a, b] * bracket


def _diffusion(algebra: Algebra) -> DomainMatrix:
    """Return k Sigma_lin, k = 2 lambda^2 gamma^2 + gamma^4 + gamma^4 f."""
    gain = algebra[GAMMA] ** 2
    rate = gain * (2 - gain) + gain**2 * algebra[RATIO]
    pairs = vech_pairs(algebra.tokens)
    rows = [[gram_covariance(algebra, x, y) * rate for y in pairs] for x in pairs]
    return algebra.matrix(rows)


def limit_holds(block: SmoothMLP, tokens: int) -> bool:
    """Return whether drift and diffusion of the block are the stated ones."""
    derived = derive(block, tokens)
    drift = gate_drift if block.gated else smooth_drift
    return all(
        vanishes(derived.drift[a, b] - drift(derived.algebra, a, b)) for a, b in vech_pairs(tokens)
    ) and bool((derived.diffusion_polynomials - _diffusion(derived.algebra)).is_zero_matrix)


def smooth_limit() -> Finding:
    return proven(limit_holds(SmoothMLP(ratio=RATIO), 4))


def gate_limit() -> Finding:
    return proven(limit_holds(GatedMLP(ratio=RATIO), 4))


def smooth_without_normalisation() -> Finding:
    derived = derive(SmoothMLP(), 1)
    raw = derive(SmoothMLP(normalised=False), 1)
    at_one = {derived.algebra.v_expressions[0, 0]: 1}
    left = raw.drift[0, 0].subs(at_one).factor()
    return refuted(
        claim_fails=left != 0,
        correction_holds=derived.drift[0, 0].subs(at_one).expand() == 0
        and limit_holds(SmoothMLP(ratio=RATIO), 2),
        witness=f"one token at V = 1: the drift without c is {left}, with c it is 0",
    )


def ratios(activation: Expr) -> tuple[Expr, Expr]:
    """Return p_2 and p_3 of an activation in x."""
    slope, second, third = (simplify(diff(activation, X, k).subs(X, 0)) for k in (1, 2, 3))
    return simplify(second / slope), simplify(third / slope)


def growth(activation: Expr) -> Expr:
    """Return (3/4) p_2^2 + p_3, the sign of kappa, by the derived drift of one token."""
    p2, p3 = ratios(activation)
    derived = derive(SmoothMLP(), 1)
    v = derived.algebra.v_expressions[0, 0]
    rate = simplify(derived.drift[0, 0] * SCALE**2 / GAMMA**2 / (v**2 - v))
    return simplify(rate.subs({SECOND: p2, THIRD: p3}))


ACTIVATIONS = {
    "GELU": X * (1 + erf(X / sqrt(2))) / 2,
    "SiLU": X / (1 + exp(-X)),
    "softplus - ln 2": log(1 + exp(X)) - log(2),
    "tanh": tanh(X),
}
STATED = {
    "GELU": (2 * sqrt(2 / pi), Integer(0)),
    "SiLU": (Integer(1), Integer(0)),
    "softplus - ln 2": (Rational(1, 2), Integer(0)),
    "tanh": (Integer(0), Integer(-2)),
}


def smooth_activations() -> Finding:
    return proven(
        *[
            simplify(mine - theirs) == 0
            for name, phi in ACTIVATIONS.items()
            for mine, theirs in zip(ratios(phi), STATED[name], strict=True)
        ],
        *[bool((growth(phi) > 0) == (name != "tanh")) for name, phi in ACTIVATIONS.items()],
        witness=(
            "derivatives at 0, and the derived drift of one token: (3/4) p_2^2 + p_3 is "
            + ", ".join(f"{growth(phi)} for {name}" for name, phi in ACTIVATIONS.items())
        ),
    )


V, R = Symbol("V", positive=True), Symbol("r", positive=True)
"""R is |kappa| / k."""

VARIATION = 2 * V**2
"""sigma^2, in time units of 1/k."""


def scale_slope(ratio: Expr) -> Expr:
    """Return (log s')' = -2 b / sigma^2 for the ratio kappa / k."""
    return -2 * drift(ratio) / VARIATION


def drift(ratio: Expr) -> Expr:
    """Return b = kappa (V^2 - V), in time units of 1/k."""
    return ratio * (V**2 - V)


def scale_density(ratio: Expr) -> Expr:
    """Return s' = V^ratio exp(-ratio V)."""
    return V**ratio * exp(-ratio * V)


def feller_limit(ratio: Expr) -> Expr:
    """Return the limit of Feller's integrand times V^2 at infinity, for a positive ratio.

    The integrand is s' times the integral of 2 / (sigma^2 s'). L'Hopital's rule with the quotient
    of that integral and V^-2 / s' needs the derivatives alone, in which s' cancels.
    """
    slope = diff(V**-2, V) - V**-2 * scale_slope(ratio)
    return limit(simplify(2 / (VARIATION * slope)), V, oo)


def smooth_explosion() -> Finding:
    any_ratio = Symbol("kappa", real=True)
    mass = integrate(scale_density(R), (V, 0, oo))
    tails = [limit(scale_density(ratio), V, oo) for ratio in (Integer(0), -R)]
    # Ito's formula.
    logarithm = drift(any_ratio) / V - VARIATION / (2 * V**2)
    return proven(
        vanishes(diff(log(scale_density(any_ratio)), V) - scale_slope(any_ratio)),
        simplify(mass * R ** (1 + R) / gamma(1 + R)) == 1,
        vanishes(feller_limit(R) - 1 / R),
        tails == [1, oo],
        vanishes(logarithm - any_ratio * (V - 1) + 1),
        witness=(
            "s' = V^r exp(-r V), r = kappa/k. For r > 0 it is integrable, and Feller's integrand "
            "is "
            "asymptotic to V^-2/r at infinity; for r <= 0 s' tends to "
            f"{tails[0]} or {tails[1]}, so s is infinite there; log V has drift kappa (V - 1) - k, "
            "bounded near 0"
        ),
    )


def smooth_explosion_by_curvature() -> Finding:
    activation = tanh(X) + tanh(X) ** 2 / 2
    p2, value = ratios(activation)[0], growth(activation)
    return refuted(
        claim_fails=p2 != 0 and bool(value < 0),
        correction_holds=bool(growth(ACTIVATIONS["SiLU"]) > 0)
        and vanishes(feller_limit(R) - 1 / R),
        witness=f"phi = tanh + tanh^2/2 has p_2 = {p2} and (3/4) p_2^2 + p_3 = {value}",
    )
