"""Claims on attention in use: centres, rotary positions, QK-norm, groups, activations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    assoc_laguerre,
    erf,
    exp,
    factorial,
    gamma,
    log,
    oo,
    pi,
    rf,
    sqrt,
    symbols,
    tanh,
)
from sympy.polys.matrices import DomainMatrix

from symbolic.activations import GATE_CURVATURE, GATE_SLOPE, SECOND, THIRD, GatedMLP, SmoothMLP
from symbolic.algebra import Algebra, Field, Pair, Poly, symbolic_covariance, vech, vech_pairs
from symbolic.blocks import ShapedAttention, gram_covariance
from symbolic.claims.explosion import vanishes
from symbolic.claims.ledger import Finding, proven, refuted, tested
from symbolic.claims.particles import gram_symbols
from symbolic.expansion import INVERSE_TAU, attention_series
from symbolic.limit import Limit, algebra_of, derive
from symbolic.names import GAMMA
from symbolic.proof import check_at_points, prove
from symbolic.recursion import Block, NoLimitError, Recursion, skip_only
from symbolic.series import HALF, Series

Covariance = Callable[[Algebra, Pair, Pair], Poly]
Parts = Sequence[tuple[Poly, DomainMatrix]]

# Claims on attention with a position bias B or a mask, centred on w = softmax(B).
#
# A product o of matrices is entrywise.


def symbolic_centre(tokens: int) -> list[list[Expr]]:
    """Return m rows w_a1, ..., w_am of symbols; the last entry is 1 minus the others."""
    rows = [[Symbol(f"w_{a}{b}") for b in range(1, tokens)] for a in range(1, tokens + 1)]
    return [[*row, 1 - sum(row)] for row in rows]


def transported(w: DomainMatrix, m: DomainMatrix, v: DomainMatrix) -> DomainMatrix:
    """Return T(M) = w(M o V)w^T - (wM o wV)w^T - w(Mw^T o Vw^T) + (wMw^T) o (wVw^T)."""
    t = w.transpose()
    return (
        w * m.mul_elementwise(v) * t
        - (w * m).mul_elementwise(w * v) * t
        - w * (m * t).mul_elementwise(v * t)
        + (w * m * t).mul_elementwise(w * v * t)
    )


def second_mean(w: DomainMatrix, q: DomainMatrix, m: DomainMatrix) -> DomainMatrix:
    """Return (w_ai Q_aa/2) [M_ii - 2 (wM)_ai - (w diag M)_a + 2 (wMw^T)_aa]."""
    size = range(w.shape[0])
    centre, inner, means, both = (x.to_list() for x in (w, m, w * m, w * m * w.transpose()))

    def entry(a: int, i: int) -> Poly:
        diagonal = sum(centre[a][b] * inner[b][b] for b in size)
        bracket = inner[i][i] - 2 * means[a][i] - diagonal + 2 * both[a][a]
        return centre[a][i] * q[a, a].element * bracket * QQ(1, 2)

    return DomainMatrix([[entry(a, i) for i in size] for a in size], w.shape, w.domain)


class CorrelatedScores(ShapedAttention):
    """Attention whose scores have a given covariance in further generators."""

    def __init__(self, covariance: Covariance, further: Sequence[Expr], **options: Any) -> None:
        super().__init__(**options)
        self.scores, self.further = Field("G", covariance), further
        self.fields = (self.scores,)

    def generators(self, v: Matrix) -> Sequence[Expr]:
        """Return the parameters and the generators of the covariance."""
        return [*super().generators(v), *self.further]


def cross_scores_hold(tokens: int) -> list[bool]:
    """Return whether A_1, E A_2 and E[A_1 V A_1^T] are as stated, for symbols w, Q, M and V."""
    q, m = (symbolic_covariance(tokens, name) for name in "QM")
    block = CorrelatedScores(
        lambda algebra, x, y: algebra[q[x[0], y[0]] * m[x[1], y[1]]],
        [*vech(q), *vech(m)],
        centre=symbolic_centre(tokens),
    )
    algebra = algebra_of([block], tokens)
    w, g = block.centre_in(algebra), algebra.field(block.scores)
    queries, keys, ones = (algebra.matrix(x.tolist()) for x in (q, m, q.ones(tokens)))
    terms = attention_series(algebra, g, algebra.ring.one, centre=w).terms
    first, second = terms[HALF], terms[Integer(1)]
    square = (first * algebra.v * first.transpose()).applyfunc(algebra.expect)
    defects = (
        first - w.mul_elementwise(g - w.mul_elementwise(g) * ones),
        second.applyfunc(algebra.expect) - second_mean(w, queries, keys),
        square - queries.mul_elementwise(transported(w, keys, algebra.v)),
    )
    return [defect.is_zero_matrix for defect in defects]


def centre_moments() -> Finding:
    return tested(*cross_scores_hold(2), *cross_scores_hold(3))


def drift_of(
    block: ShapedAttention, algebra: Algebra, parts: Parts, inner: DomainMatrix, keys: DomainMatrix
) -> DomainMatrix:
    """Return (gamma^2/tau_0^2) [B1 + A2 V + V A2^T], B1 the sum over some p and M of p M o T(M)."""
    w, v = block.centre_in(algebra), algebra.v
    moved = second_mean(w, inner, keys) * v
    total = moved + moved.transpose()
    for weight, m in parts:
        total += m.mul_elementwise(transported(w, m, v)).scalarmul(weight)
    return total.scalarmul(algebra[block.gamma] ** 2 * algebra[block.inverse_tau] ** 2)


def stated_drift(block: ShapedAttention, algebra: Algebra) -> DomainMatrix:
    """Return the drift with B1 = V o T(V)."""
    v = algebra.v
    return drift_of(block, algebra, [(algebra.ring.one, v)], v, v)


def differences(block: ShapedAttention, tokens: int, stated: Any) -> list[Poly]:
    """Return the entries of derived minus stated drift, of block and ring, that are not zero."""
    limit = derive(block, tokens)
    difference = limit.drift_polynomials - stated(block, limit.algebra)
    entries = (on_circle(entry, limit.algebra) for row in difference.to_list() for entry in row)
    return [entry for entry in entries if entry]


def centre_limit() -> Finding:
    facts = []
    for m in (2, 3):
        block = ShapedAttention(centre=symbolic_centre(m))
        facts += [bool(prove(block, m).holds), not differences(block, m, stated_drift)]
    # A causal mask and a bias.
    weights = [[Rational(b + 1 + a * b if b <= a else 0) for b in range(4)] for a in range(4)]
    block = ShapedAttention(centre=[[weight / sum(row) for weight in row] for row in weights])
    return tested(*facts, bool(check_at_points(block, 4, points=1).holds))


class CentredOnTheMean(ShapedAttention):
    """Attention with a bias, I + softmax(Y / tau + B) - 11^T/m."""

    def attention(self, algebra: Algebra, order: int) -> Series:
        """Return the matrix A as a series."""
        m = algebra.tokens
        mean = algebra.matrix([[Rational(1, m)] * m for _ in range(m)])
        return super().attention(algebra, order) + (self.centre_in(algebra) - mean)


def centre_of_a_bias() -> Finding:
    centre = [[Rational(2, 3), Rational(1, 3)], [HALF, HALF]]
    try:
        derive(CentredOnTheMean(centre=centre), 2)
        reason = ""
    except NoLimitError as error:
        reason = str(error)
    return refuted(
        claim_fails="n^0" in reason,
        correction_holds=not differences(ShapedAttention(centre=centre), 2, stated_drift),
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


def turn(algebra: Algebra, j: int, distance: int) -> tuple[Poly, Poly]:
    """Return cos and sin of theta_j times a distance."""
    return multiple(algebra[COSINES[j]], algebra[SINES[j]], distance, algebra.ring.one)


def on_circle(polynomial: Poly, algebra: Algebra) -> Poly:
    """Return the remainder modulo cos_j^2 + sin_j^2 - 1, which is 0 for 0 on the circles alone."""
    angles = [pair for pair in zip(COSINES, SINES, strict=True) if pair[0] in algebra.ring.symbols]
    return polynomial.rem([algebra[c] ** 2 + algebra[s] ** 2 - 1 for c, s in angles])


def _columns(algebra: Algebra, first: Pair, second: Pair) -> Poly:
    """Return the covariance of independent columns N(0, V)."""
    same = first[1] == second[1]
    return algebra.entry(algebra.v, first[0], second[0]) if same else algebra.ring.zero


def rotated_covariance_holds(tokens: int, angles: int, unrotated: bool) -> bool:
    """Return whether d_h E[S_ab S_cd] = V_ac V_bd d_h r(b - a - d + c) for all a, b, c, d.

    The scores are sums over the rotated pairs of coordinates, the columns of a field of queries and
    one of keys, and over one coordinate that is not rotated.
    """
    blocks = range(angles + unrotated)
    queries, keys = ([Field(f"{name}{j}_", _columns) for j in blocks] for name in "qk")
    algebra = Algebra(tokens, [*COSINES[:angles], *SINES[:angles]], [*queries, *keys])

    def coordinates(fields: list[Field], a: int) -> list[Poly]:
        pairs = [[algebra.field(field)[a, k].element for k in (0, 1)] for field in fields]
        for j, (x, y) in enumerate(pairs[:angles]):
            c, s = turn(algebra, j, a)
            pairs[j] = [c * x - s * y, s * x + c * y]
        return [x for pair in pairs for x in pair][: 2 * angles + unrotated]

    def score(a: int, b: int) -> Poly:
        pairs = zip(coordinates(queries, a), coordinates(keys, b), strict=True)
        return sum((x * y for x, y in pairs), algebra.ring.zero)

    for a, b, c, d in product(range(tokens), repeat=4):
        turns = (2 * turn(algebra, j, b - a - d + c)[0] for j in range(angles))
        plain = algebra.entry(algebra.v, a, c) * algebra.entry(algebra.v, b, d)
        stated = plain * sum(turns, algebra[int(unrotated)])
        if on_circle(algebra.expect(score(a, b) * score(c, d)) - stated, algebra):
            return False
    return True


def rotary_scores() -> Finding:
    cases = (2, 1, False), (2, 2, False), (3, 1, True), (3, 2, True)
    return tested(*[rotated_covariance_holds(*case) for case in cases])


SHARE = Symbol("h", positive=True)
"""2 / d_h, the weight of an angle; 1 - h times the number of angles is left unrotated."""


class RotaryAttention(CorrelatedScores):
    """Attention with E[S_ab S_cd] = U_ac U_bd r(b - a - d + c), r(D) = h sum cos(D theta_j) + u.

    U is V, or with QK-norm a matrix of symbols.
    """

    def __init__(self, angles: int, inner: Matrix | None = None, **options: Any) -> None:
        self.angles, self.inner = angles, inner
        circle = [*COSINES[:angles], *SINES[:angles]]
        entries = [] if inner is None else sorted(inner.free_symbols, key=str)
        super().__init__(self.covariance, [SHARE, *circle, *entries], **options)

    def inner_in(self, algebra: Algebra) -> DomainMatrix:
        """Return U, the covariance of queries and keys."""
        return algebra.v if self.inner is None else algebra.matrix(self.inner.tolist())

    def unrotated(self, algebra: Algebra) -> Poly:
        """Return u = 1 - h times the number of angles."""
        return algebra.ring.one - algebra[SHARE] * self.angles

    def kernel(self, algebra: Algebra, distance: int) -> Poly:
        """Return r(D)."""
        turns = (turn(algebra, j, distance)[0] for j in range(self.angles))
        return sum((algebra[SHARE] * cosine for cosine in turns), self.unrotated(algebra))

    def covariance(self, algebra: Algebra, first: Pair, second: Pair) -> Poly:
        """Return U_ac U_bd r(b - a - d + c)."""
        (a, b), (c, d) = first, second
        inner = self.inner_in(algebra)
        plain = algebra.entry(inner, a, c) * algebra.entry(inner, b, d)
        return plain * self.kernel(algebra, b - a - d + c)

    def times(self, algebra: Algebra, factor: Callable[..., Poly]) -> DomainMatrix:
        """Return U o factor(a - b)."""
        size = range(algebra.tokens)
        matrix = algebra.matrix([[factor(a - b) for b in size] for a in size])
        return self.inner_in(algebra).mul_elementwise(matrix)

    def keys(self, algebra: Algebra) -> DomainMatrix:
        """Return U o r(a - b)."""
        return self.times(algebra, lambda distance: self.kernel(algebra, distance))


def drift_by_angles(block: RotaryAttention, algebra: Algebra) -> DomainMatrix:
    """Return the drift with B1 a sum over the angles."""
    parts = [(block.unrotated(algebra), block.inner_in(algebra))]
    for j, part in product(range(block.angles), (0, 1)):
        turned = block.times(algebra, lambda d, j=j, part=part: turn(algebra, j, d)[part])
        parts.append((algebra[SHARE], turned))
    return drift_of(block, algebra, parts, block.inner_in(algebra), block.keys(algebra))


def multiplied_drift(block: RotaryAttention, algebra: Algebra) -> DomainMatrix:
    """Return the drift with B1 = V~ o T(V~), as if V were V~ = V o r in both factors."""
    keys = block.keys(algebra)
    return drift_of(block, algebra, [(algebra.ring.one, keys)], block.inner_in(algebra), keys)


def rotary_drift() -> Finding:
    cases = [(m, RotaryAttention(n, centre=symbolic_centre(m))) for m in (2, 3) for n in (1, 2)]
    return tested(*[not differences(block, m, drift_by_angles) for m, block in cases])


def rotary_multiplier() -> Finding:
    block = RotaryAttention(2, gamma=1, tau0=1)
    # A quarter turn of the first pair, none of the second.
    point = dict(zip((*COSINES, *SINES), (0, 1, 1, 0), strict=True)) | {SHARE: HALF}
    point |= dict(zip(vech(symbolic_covariance(2)), (1, HALF, 1), strict=True))
    left = [entry.as_expr().subs(point) for entry in differences(block, 2, multiplied_drift)]
    return refuted(
        claim_fails=Rational(-1, 128) in left,
        correction_holds=not differences(block, 2, drift_by_angles),
    )


# Claims on QK-norm: queries and keys of size d are divided by their lengths.

D = Symbol("d", positive=True)
"""The size of a head."""

ROOT = gamma((D + 1) / 2) / gamma(D / 2)
"""E sqrt t for t = |u|^2/2, u ~ N(0, I_d), which has the Gamma law of shape d/2."""


def kernel_coefficient(j: int) -> Expr:
    """Return the coefficient of x^(2j + 1) in E u.v / (|u| |v|) for Gaussians of correlation x.

    u_1 L_j^(d/2)(|u|^2/2) is a Hermite polynomial of degree 2j + 1, so by Mehler's formula the
    coefficient is d times the square of its inner product with u_1 / |u|, over its square norm.
    By symmetry u_1^2 may be replaced by |u|^2 / d = 2 t / d.
    """
    t = Symbol("t")
    polynomial = assoc_laguerre(j, D / 2, t).as_poly(t)
    # E t^(i + 1/2) = ROOT (d/2 + 1/2)_i, and E t^i = (d/2)_i.
    inner = sum(c * rf(D / 2 + HALF, i) for (i,), c in polynomial.terms()) * ROOT / D
    norm = sum(c * rf(D / 2, i + 1) for (i,), c in (polynomial**2).terms()) / D
    return D * inner**2 / norm


def stated_coefficient(j: int) -> Expr:
    """Return that of x (2/d) (Gamma((d+1)/2) / Gamma(d/2))^2 2F1(1/2, 1/2; d/2 + 1; x^2)."""
    return 2 * ROOT**2 / D * rf(HALF, j) ** 2 / (rf(D / 2 + 1, j) * factorial(j))


def qk_norm_kernel() -> Finding:
    x, facts = Symbol("x"), []
    for j in range(5):
        stated, power = stated_coefficient(j), 2 * j + 1
        arc = (2 / pi * asin(x)).diff(x, power).subs(x, 0) / factorial(power)
        facts.append(vanishes((kernel_coefficient(j) - stated) / ROOT**2))
        facts.append((stated.subs(D, 1) - arc).simplify() == 0)
    return tested(*facts)


def qk_norm_correlations() -> Finding:
    small, medium, large = (stated_coefficient(0).subs(D, size).simplify() for size in (1, 2, 64))
    return refuted(
        claim_fails=(small, medium) == (2 / pi, pi / 4),
        correction_holds=vanishes((kernel_coefficient(0) - stated_coefficient(0)) / ROOT**2)
        and bool(abs(large - 0.9922) < 1e-4),
    )


def qk_norm_drift() -> Finding:
    cases = [
        (m, RotaryAttention(n, gram_symbols(m)[0], centre=symbolic_centre(m)))
        for m, n in ((2, 1), (2, 2), (3, 1))
    ]
    return tested(*[not differences(block, m, drift_by_angles) for m, block in cases])


# Claims on grouped heads (GQA), parallel branches, and the rate of the linear noise.

RATIO = Symbol("f", positive=True)
"""f = n / (G d_h), the number of columns over the number of columns of all values."""


class GroupedAttention(Block):
    """Heads written out, with separate queries and G groups of keys and values, and W_O.

    The head size of queries and keys is 1, so that m heads of a group are the columns of one field
    of queries, and a key is the first column of another. V_g = V + sqrt(G f) N_g / sqrt n is the
    Gram matrix of the d_h = n/(G f) columns of a group's values.
    """

    def __init__(self, groups: int, heads_per_group: int) -> None:
        self.heads, self.heads_per_group = groups * heads_per_group, heads_per_group
        self.groups = [
            (
                Field(f"q{g}_", _columns),
                Field(f"k{g}_", _columns),
                Field(f"N{g}_", lambda *a: gram_covariance(*a) * a[0][RATIO] * groups),
            )
            for g in range(1, groups + 1)
        ]
        self.fields = [field for group in self.groups for field in group]

    def generators(self, v: Matrix) -> Sequence[Expr]:
        """Return the parameters."""
        return [GAMMA, INVERSE_TAU, RATIO]

    def recursion(self, algebra: Algebra, order: int = 1) -> Recursion:
        """Return skip lambda^2 V and branch gamma^2 mean_h A_h V_g(h) A_h^T."""
        gain, rows = algebra[GAMMA] ** 2, range(algebra.tokens)
        branch = Series({}, order)
        for group in self.groups:
            queries, keys, values = map(algebra.field, group)
            gram = Series({0: algebra.v, HALF: values}, order)
            for head in range(self.heads_per_group):
                scores = queries.extract(rows, [head]) * keys.extract(rows, [0]).transpose()
                attention = attention_series(algebra, scores, algebra[INVERSE_TAU], order=order)
                branch += attention * gram * attention.T
        share = gain * algebra[Rational(1, self.heads)]
        return Recursion(skip_only(algebra, 1 - gain, order), branch * share)


def linear_diffusion(algebra: Algebra) -> DomainMatrix:
    """Return Sigma_lin in the ring."""
    pairs = vech_pairs(algebra.tokens)
    return algebra.matrix([[gram_covariance(algebra, x, y) for y in pairs] for x in pairs])


def is_that_of(attention: ShapedAttention, limit: Limit, rate: Poly) -> bool:
    """Return whether b is that of attention, and Sigma that of attention plus rate Sigma_lin."""
    algebra = limit.algebra
    alone = derive(attention, algebra.tokens)
    drift, diffusion = map(algebra.transfer, (alone.drift_polynomials, alone.diffusion_polynomials))
    stated = diffusion + linear_diffusion(algebra).scalarmul(rate)
    same = (limit.drift_polynomials - drift).is_zero_matrix
    return bool(same and (limit.diffusion_polynomials - stated).is_zero_matrix)


def has_noise_divided_by(heads: int, limit: Limit) -> bool:
    """Return whether b is that of one head, and Sigma has Att / `heads` and the stated k."""
    # Without W_O k = 2 lambda^2 gamma^2 + gamma^4; the values add gamma^4 f.
    rate = limit.algebra[GAMMA] ** 4 * limit.algebra[RATIO]
    return is_that_of(ShapedAttention(heads=heads), limit, rate)


def grouped_heads() -> Finding:
    blocks = [GroupedAttention(*sizes) for sizes in ((1, 2), (2, 1), (2, 2))]
    return tested(*[has_noise_divided_by(block.heads, derive(block, 2)) for block in blocks])


def grouped_heads_share_scores() -> Finding:
    limit = derive(GroupedAttention(1, 2), 2)
    return refuted(
        claim_fails=not has_noise_divided_by(1, limit),
        correction_holds=has_noise_divided_by(2, limit),
    )


WEIGHTS = symbols("gamma_1 gamma_2", positive=True)
RATIOS = symbols("f_1 f_2", positive=True)


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


def linear_rate() -> Finding:
    facts = []
    for m, projected in product((1, 2, 3), (False, True)):
        limit = derive(ParallelBranches(projected), m)
        # Sigma is k Sigma_lin + gamma_1^4/tau_0^2 Att, and Att is in the limit of attention alone.
        gain = limit.algebra[WEIGHTS[0]] ** 2
        rate = stated_rate(limit.algebra, projected) - gain * (2 - gain)
        facts.append(is_that_of(ShapedAttention(gamma=WEIGHTS[0]), limit, rate))
    return tested(*facts)


# Claims on MLPs with smooth shaped activations and gates, and on their explosion.

SCALE, V, R = symbols("a V r", positive=True)
"""R is |kappa| / k."""
X = Symbol("x", real=True)


def smooth_drift(v: Matrix, a: int, b: int) -> Expr:
    """Return the stated drift of a smooth shaped activation."""
    second = v[a, a] * v[b, b] + 2 * v[a, b] ** 2 - 3 * v[a, b]
    third = v[a, b] * (v[a, a] + v[b, b] - 2)
    return GAMMA**2 / SCALE**2 * (SECOND**2 / 4 * second + THIRD / 2 * third)


def gate_drift(v: Matrix, a: int, b: int) -> Expr:
    """Return the stated drift of a shaped gate."""
    bracket = GATE_SLOPE**2 * (v[a, b] - 1) + GATE_CURVATURE / 2 * (v[a, a] + v[b, b] - 2)
    return GAMMA**2 / SCALE**2 * v[a, b] * bracket


def limit_holds(block: SmoothMLP, tokens: int) -> bool:
    """Return whether the drift is stated, and Sigma k Sigma_lin, k = g (2 - g) + g^2 f, g gamma^2.

    g (2 - g) is 2 lambda^2 gamma^2 + gamma^4.
    """
    derived = derive(block, tokens)
    algebra, drift = derived.algebra, gate_drift if block.gated else smooth_drift
    gain = algebra[GAMMA] ** 2
    noise = linear_diffusion(algebra).scalarmul(gain * (2 - gain) + gain**2 * algebra[RATIO])
    defects = [
        derived.drift[pair] - drift(algebra.v_expressions, *pair) for pair in vech_pairs(tokens)
    ]
    return all(map(vanishes, defects)) and (derived.diffusion_polynomials - noise).is_zero_matrix


def smooth_limit() -> Finding:
    return proven(limit_holds(SmoothMLP(ratio=RATIO), 4))


def gate_limit() -> Finding:
    return proven(limit_holds(GatedMLP(ratio=RATIO), 4))


def drift_of_one_token(value: Expr, normalised: bool = True) -> Expr:
    """Return the derived drift at V = `value`, over gamma^2/a^2."""
    derived = derive(SmoothMLP(normalised=normalised), 1)
    moved = derived.drift[0, 0].subs(derived.algebra.v_expressions[0, 0], value)
    return (moved * SCALE**2 / GAMMA**2).expand()


def smooth_without_normalisation() -> Finding:
    left = drift_of_one_token(Integer(1), normalised=False)
    return refuted(
        claim_fails=vanishes(left - (3 * SECOND**2 + 4 * THIRD) / 4),
        correction_holds=drift_of_one_token(Integer(1)) == 0
        and limit_holds(SmoothMLP(ratio=RATIO), 2),
    )


def ratios(activation: Expr) -> tuple[Expr, Expr]:
    """Return p_2 and p_3 of an activation in x."""
    slope, second, third = (activation.diff(X, k).subs(X, 0).simplify() for k in (1, 2, 3))
    return (second / slope).simplify(), (third / slope).simplify()


def growth(activation: Expr) -> Expr:
    """Return (3/4) p_2^2 + p_3, the sign of kappa, by the derived drift of one token."""
    p2, p3 = ratios(activation)
    rate = (drift_of_one_token(V) / (V**2 - V)).simplify()
    return rate.subs({SECOND: p2, THIRD: p3}).simplify()


SILU = X / (1 + exp(-X))
ACTIVATIONS = (
    (X * (1 + erf(X / sqrt(2))) / 2, 2 * sqrt(2 / pi), Integer(0), 6 / pi),
    (SILU, Integer(1), Integer(0), Rational(3, 4)),
    (log(1 + exp(X)) - log(2), HALF, Integer(0), Rational(3, 16)),
    (tanh(X), Integer(0), Integer(-2), Integer(-2)),
)
"""GELU, SiLU, softplus - ln 2 and tanh with p_2, p_3 and (3/4) p_2^2 + p_3, negative for tanh."""


def smooth_activations() -> Finding:
    return proven(
        *[
            (derived - stated).simplify() == 0
            for phi, *all_stated in ACTIVATIONS
            for derived, stated in zip((*ratios(phi), growth(phi)), all_stated, strict=True)
        ]
    )


VARIATION = 2 * V**2
"""sigma^2, in time units of 1/k."""


def drift(ratio: Expr) -> Expr:
    """Return b = kappa (V^2 - V), in time units of 1/k."""
    return ratio * (V**2 - V)


def scale_slope(ratio: Expr) -> Expr:
    """Return (log s')' = -2 b / sigma^2 for the ratio kappa / k."""
    return -2 * drift(ratio) / VARIATION


def scale_density(ratio: Expr) -> Expr:
    """Return s' = V^ratio exp(-ratio V)."""
    return V**ratio * exp(-ratio * V)


def feller_limit_holds() -> bool:
    """Return whether Feller's integrand times V^2 tends to 1/r at infinity, for a positive ratio r.

    The integrand is s' times the integral of 2 / (sigma^2 s'). L'Hopital's rule with the quotient
    of that integral and V^-2 / s' needs the derivatives alone, in which s' cancels.
    """
    slope = (V**-2).diff(V) - V**-2 * scale_slope(R)
    return vanishes((2 / (VARIATION * slope)).simplify().limit(V, oo) - 1 / R)


def smooth_explosion() -> Finding:
    any_ratio = Symbol("kappa", real=True)
    mass = scale_density(R).integrate((V, 0, oo))
    # Ito's formula.
    logarithm = drift(any_ratio) / V - VARIATION / (2 * V**2)
    return proven(
        vanishes(log(scale_density(any_ratio)).diff(V) - scale_slope(any_ratio)),
        (mass * R ** (1 + R) / gamma(1 + R)).simplify() == 1,
        feller_limit_holds(),
        [scale_density(ratio).limit(V, oo) for ratio in (Integer(0), -R)] == [1, oo],
        vanishes(logarithm - any_ratio * (V - 1) + 1),
    )


def smooth_explosion_by_curvature() -> Finding:
    activation = tanh(X) + tanh(X) ** 2 / 2
    return refuted(
        claim_fails=ratios(activation)[0] == 1 and growth(activation) == Rational(-5, 4),
        correction_holds=bool(growth(SILU) > 0) and feller_limit_holds(),
    )
