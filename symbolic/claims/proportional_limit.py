"""Claims on softmax at 0, on the scaling of its terms, and on drift and diffusion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any

from sympy import (
    QQ,
    Expr,
    Integer,
    KroneckerDelta,
    Matrix,
    Rational,
    Symbol,
    acos,
    cancel,
    ceiling,
    diff,
    exp,
    expand,
    eye,
    limit,
    log,
    ones,
    oo,
    pi,
    simplify,
    sqrt,
    symbols,
    zeros,
)
from sympy.polys.matrices import DomainMatrix
from sympy.polys.rings import PolyRing

from symbolic.algebra import Algebra, Field, rational_covariance, symbolic_covariance, vech_pairs
from symbolic.blocks import ShapedAttention, ShapedMLP, gram_covariance
from symbolic.claims.explosion import two_tokens, vanishes
from symbolic.claims.ledger import Finding, Verdict, imprecise, proven, refuted, tested
from symbolic.expansion import attention_series
from symbolic.gaussian import nu, shaped_relu_kernel
from symbolic.limit import derive
from symbolic.names import GAMMA, TAU
from symbolic.orders import term_orders
from symbolic.proof import check_at_points, expected, prove
from symbolic.recursion import Block, NoLimitError, Recursion, skip_only
from symbolic.series import HALF, Series
from symbolic.softmax import (
    PROBABILITIES,
    derivative,
    derivative_at_zero,
    derivative_tensor,
    differentiated_tensor,
)

# Claims on softmax and its derivatives at any point.

M = Symbol("m", integer=True, positive=True)

Z = symbols("z_i z_j z_k rest")
"""Three tokens; the others enter softmax and its derivatives through one constant, `rest`."""

AT_ZERO = {Z[0]: 0, Z[1]: 0, Z[2]: 0, Z[3]: M - 3}
"""The point 0 of m tokens."""


def values() -> list[Expr]:
    """Return s_i, s_j, s_k for any number of tokens."""
    total = exp(Z[0]) + exp(Z[1]) + exp(Z[2]) + Z[3]
    return [exp(z) / total for z in Z[:3]]


def softmax_is_a_distribution() -> Finding:
    positive = {z: Symbol(z.name, real=True) for z in Z[:3]} | {Z[3]: Symbol("r", positive=True)}
    s = values()
    others = Z[3] / (exp(Z[0]) + exp(Z[1]) + exp(Z[2]) + Z[3])
    return proven(
        all(value.subs(positive).is_positive is True for value in s), vanishes(sum(s) + others - 1)
    )


def softmax_of_a_component() -> Finding:
    s = values()
    return imprecise(
        part_that_holds=simplify(cancel(s[0] / s[1]) - exp(Z[0] - Z[1])) == 0,
        part_that_fails=not vanishes(diff(s[0], Z[1])),
    )


def softmax_derivative_cases() -> Finding:
    s = values()
    return proven(
        vanishes(diff(s[0], Z[0]) - s[0] * (1 - s[0])), vanishes(diff(s[0], Z[1]) + s[0] * s[1])
    )


def softmax_kronecker_form() -> Finding:
    i, j = symbols("i j", integer=True)
    s, delta = PROBABILITIES, KroneckerDelta(i, j)
    return proven(
        softmax_derivative_cases().verdict is Verdict.PROVEN,
        expand(derivative(i, j) - s[i] * (delta - s[j])) == 0,
        expand(derivative_at_zero(i, j) - (delta - 1 / M) / M) == 0,
    )


def _jacobian(s: Matrix) -> Matrix:
    return Matrix.diag(*s) - s * s.T


def _general_point(m: int) -> tuple[Matrix, Matrix]:
    z = Matrix(symbols(f"z_1:{m + 1}"))
    return z, z.applyfunc(exp) / sum(z.applyfunc(exp))


def softmax_second_derivative() -> Finding:
    z, s = _general_point(3)
    second, t = differentiated_tensor(2, 3), values()

    def third_order(i: int, j: int, k: int) -> Expr:
        first, other, both = int(i == j), int(i == k), int(j == k)
        return t[i] * ((first - t[j]) * (other - t[k]) - t[j] * (both - t[k]))

    return refuted(
        claim_fails=(s.jacobian(z) - _jacobian(s)).applyfunc(cancel).is_zero_matrix
        and second.shape == (3, 3, 3)
        and second[0, 0, 0] == Rational(2, 27),
        correction_holds=all(
            vanishes(diff(t[i], Z[j], Z[k]) - third_order(i, j, k))
            for i, j, k in product(range(3), repeat=3)
        ),
    )


def softmax_hessian_matrix_formula() -> Finding:
    z, s = _general_point(3)
    jacobian = _jacobian(s)
    slices = [diff(s.jacobian(z), entry) for entry in z]
    # The products can also be meant entry by entry: J s^T and s J^T as J diag(s) and diag(s) J.
    entrywise = Matrix.diag(*jacobian.diagonal()) - jacobian * Matrix.diag(*s)
    entrywise -= Matrix.diag(*s) * jacobian
    at_0 = [matrix.subs(dict.fromkeys(z, 0)) for matrix in (entrywise, *slices)]
    right = [
        Matrix.diag(*column) - column * s.T - s * column.T
        for column in (jacobian[:, k] for k in range(3))
    ]
    return refuted(
        claim_fails=jacobian.cols != s.T.rows
        and s.cols != jacobian.T.rows
        and at_0[0] == ones(3, 3) * 2 / 27
        and at_0[0] not in at_0[1:],
        correction_holds=all(
            (a - b).applyfunc(cancel).is_zero_matrix for a, b in zip(right, slices, strict=True)
        ),
    )


# Claims on softmax, its Jacobian and its second derivatives at z = 0.


OF_ZERO = {m: Matrix(derivative_tensor(0, m).tolist()) for m in range(2, 7)}
"""Softmax at 0, a column, for some numbers of tokens."""


def jacobian_at_zero(tokens: int) -> Matrix:
    """Return the first derivatives of softmax at 0, by differentiation."""
    return Matrix(differentiated_tensor(1, tokens).tolist())


def hessian_at_zero(same: Expr | int, first: Expr | int, second: Expr | int) -> Expr:
    """Return d^2 s_i / dz_j dz_k at 0 from the values of delta_jk, delta_ij and delta_ik."""
    return first * second / M - (same + first + second) / M**2 + 2 / M**3


def softmax_at_zero_diagonal() -> Finding:
    return proven(
        values()[0].subs(AT_ZERO) == 1 / M,
        *[Matrix.diag(*s) == eye(m) / m for m, s in OF_ZERO.items()],
    )


def softmax_at_zero() -> Finding:
    printed = {m: ones(m, m) / m for m in OF_ZERO}
    return refuted(
        claim_fails=all(
            s.shape != printed[m].shape and printed[m] * printed[m].T != ones(m, m) / m**2
            for m, s in OF_ZERO.items()
        ),
        correction_holds=values()[0].subs(AT_ZERO) == 1 / M
        and all(s == ones(m, 1) / m for m, s in OF_ZERO.items()),
    )


def softmax_first_derivatives() -> Finding:
    same, other = (diff(values()[0], z).subs(AT_ZERO) for z in Z[:2])
    return proven(
        vanishes(same - (M - 1) / M**2),
        vanishes(other + 1 / M**2),
        *[jacobian_at_zero(m) == eye(m) / m - ones(m, m) / m**2 for m in OF_ZERO],
    )


softmax_jacobian_at_zero = softmax_first_derivatives


def softmax_hessian_first_term() -> Finding:
    fails, holds = [], []
    for m in OF_ZERO:
        jacobian = jacobian_at_zero(m)
        terms = [Matrix.diag(*jacobian[:, k]) for k in range(m)]
        right = [Matrix.diag(*(eye(m)[:, k] - ones(m, 1) / m)) / m for k in range(m)]
        holds.append(terms == right)
        fails.append(Matrix.diag(*jacobian.diagonal()) not in terms)
        fails.append(sum(terms, zeros(m, m)).is_zero_matrix)
    return refuted(
        claim_fails=all(fails),
        correction_holds=all(holds) and softmax_hessian_at_zero().verdict is Verdict.PROVEN,
    )


def softmax_hessian_at_zero() -> Finding:
    s = values()
    i, j, k = symbols("i j k", integer=True)
    deltas = (KroneckerDelta(j, k), KroneckerDelta(i, j), KroneckerDelta(i, k))
    # A triple of indices has all of them equal, two, or none.
    kinds = {
        (0, 0, 0): (M - 1) * (M - 2) / M**3,
        (0, 0, 1): -(M - 2) / M**3,
        (0, 1, 1): -(M - 2) / M**3,
        (0, 1, 2): 2 / M**3,
    }
    facts = [
        vanishes(other - value)
        for (a, b, c), value in kinds.items()
        for other in (
            diff(s[a], Z[b], Z[c]).subs(AT_ZERO),
            hessian_at_zero(int(b == c), int(a == b), int(a == c)),
        )
    ]
    for m in (1, 2, 3, 4):
        one, hessian = ones(m, 1), differentiated_tensor(2, m)
        for c in range(m):
            column = eye(m)[:, c] / m - one / m**2
            outer = column * one.T + one * column.T
            facts.append(Matrix.diag(*column) - outer / m == Matrix(hessian[:, :, c].tolist()))
    cumulant = derivative_at_zero(i, j, k) - hessian_at_zero(*deltas)
    return proven(*facts, expand(cumulant).simplify() == Integer(0))


# The equation for a factor F of V = F F^T, checked by Ito's formula in polynomials of F.


def factor_equation_holds(m: int) -> bool:
    """Return whether V = F F^T has the derived drift and diffusion, as polynomials in F.

    dF = F [ sqrt(k)/2 dZ_1 + gamma^2/(tau_0 m) dZ_2 (F^T C F) ] + [ -k(m+1)/8
    + gamma^2 (1 - gamma^2) |P|^2 / (2 tau_0^2 m^2) ] F dt + gamma^2/(2 m tau_0^2) q (s^T F) dt.
    """
    ring = PolyRing([GAMMA, 1 / TAU, *symbols(f"F_1:{m * m + 1}")], QQ)
    gamma, cold, *entries = ring.gens
    rate, pairs = gamma**2 * (2 - gamma**2), vech_pairs(m)

    def matrix(rows: int, columns: int, entry: Callable[[int, int], Any]) -> DomainMatrix:
        lists = [[ring(0) + entry(a, b) for b in range(columns)] for a in range(rows)]
        return DomainMatrix(lists, (rows, columns), ring.to_domain())

    def with_transpose(half: DomainMatrix) -> DomainMatrix:
        return half + half.transpose()

    f = matrix(m, m, lambda a, b: entries[a * m + b])
    v = f * f.transpose()
    centring = matrix(m, m, lambda a, b: QQ(int(a == b)) - QQ(1, m))
    p = centring * v * centring
    norm = sum((e**2 for row in p.to_list() for e in row), ring.zero)
    trace = sum((p[a, a].element for a in range(m)), ring.zero)
    s = matrix(1, m, lambda _, a: p[a, a].element - trace * QQ(1, m))
    q = matrix(m, 1, lambda a, _: v[a, a].element)
    # Variances and directions of independent noises. Z_1 is symmetric, with variance 1 off and 2 on
    # the diagonal.
    noises = [
        (rate * QQ(1 + (a == b), 4), f * matrix(m, m, lambda *at, e={(a, b), (b, a)}: int(at in e)))
        for a, b in pairs
    ] + [
        (
            gamma**4 * cold**2 * QQ(1, m**2),
            f * matrix(m, m, lambda *at, e=e: int(at == e)) * f.transpose() * centring * f,
        )
        for e in product(range(m), repeat=2)
    ]
    speed = gamma**2 * (1 - gamma**2) * norm * cold**2 * QQ(1, 2 * m**2) - rate * QQ(m + 1, 8)
    moved = f.scalarmul(speed) + (q * s * f).scalarmul(gamma**2 * cold**2 * QQ(1, 2 * m))
    drift = with_transpose(moved * f.transpose())
    for variance, noise in noises:
        drift += (noise * noise.transpose()).scalarmul(variance)
    changes = [(x, with_transpose(noise * f.transpose()).to_list()) for x, noise in noises]
    limit = derive(ShapedAttention(), m)
    names = {limit.algebra.v_expressions[a, b]: v[a, b].element for a, b in pairs}
    names |= {GAMMA: gamma, 1 / TAU: cold}
    images = [names[g] for g in limit.algebra.coefficient_generators]

    def agrees(ours: Any, derived: Any) -> bool:
        for powers, c in derived.items():
            ours -= prod([g**e for g, e in zip(images, powers, strict=False)], start=ring.one) * c
        return not ours

    return all(
        agrees(drift[a, b].element, limit.drift_polynomials[a, b].element) for a, b in pairs
    ) and all(
        agrees(
            sum((x * change[a][b] * change[c][d] for x, change in changes), ring.zero),
            limit.diffusion_polynomials[i, j].element,
        )
        for i, (a, b) in enumerate(pairs)
        for j, (c, d) in enumerate(pairs[: i + 1])
    )


# Heads written out: a block with the fields of every head, for the claim on H heads.
#
# It does not use the engine's treatment of heads, which is to derive one head and divide by H.


class ExplicitHeads(Block):
    """H heads with independent scores G1, G2, ... and the branch gamma^2 mean_h A_h V_h A_h^T.

    V_h is V or, with an output projection, the Gram matrix of the n / H columns of the head's
    values, V + sqrt(H / n) N_h. Then sqrt(H) must be rational for the ring, so H must be a square.
    """

    def __init__(self, heads: int, output_projection: bool = False) -> None:
        self.heads = heads
        self.output_projection = output_projection
        self.single = ShapedAttention()
        self.scores = [Field(f"G{h}", self.single.scores.covariance) for h in range(1, heads + 1)]
        self.values = [Field(f"N{h}", gram_covariance) for h in range(1, heads + 1)]
        self.fields = [*self.scores, *(self.values if output_projection else [])]
        self.root = Rational(heads) ** HALF
        if output_projection and not self.root.is_Rational:
            raise ValueError(
                f"heads must be a square number with an output projection; got {heads}"
            )

    def generators(self, v: Matrix) -> Sequence[Expr]:
        """Return the generators of one head."""
        return self.single.generators(v)

    def recursion(self, algebra: Algebra, order: int = 1) -> Recursion:
        """Return skip lambda^2 V and the mean of the heads' branches; the engine sees one head."""
        gain = algebra[self.single.gamma] ** 2
        inverse_tau: Any = algebra[self.single.inverse_tau]
        branch = Series({}, order)
        for score, value in zip(self.scores, self.values, strict=True):
            attention = attention_series(algebra, algebra.field(score), inverse_tau, order=order)
            gram = Series({0: algebra.v}, order)
            if self.output_projection:
                gram += Series({HALF: algebra.field(value)}, order) * algebra[self.root]
            branch += attention * gram * attention.T
        return Recursion(
            skip_only(algebra, 1 - gain, order), branch * (gain * algebra[Rational(1, self.heads)])
        )


# Claims on the order of the terms of the expansion, and on which modifications are needed.


def temperature_gives_1_n() -> Finding:
    _, first, second = term_orders(2)
    return imprecise(
        part_that_holds=second.power == 1 and not second.mean_vanishes,
        part_that_fails=first.power == HALF and first.mean_vanishes,
    )


def _has_limit(block: ShapedAttention) -> bool:
    try:
        derive(block, 2)
    except NoLimitError:
        return False
    return True


def three_modifications_needed() -> Finding:
    cold, hot = (
        [ShapedAttention(temperature_power=Rational(*power)) for power in powers]
        for powers in (((1, 4), (1, 3), (2, 5)), ((2, 3), (1, 1)))
    )
    without_trace = [derive(block, 2) for block in hot]
    return imprecise(
        part_that_holds=_has_limit(ShapedAttention())
        and not _has_limit(ShapedAttention(identity=False))
        and not _has_limit(ShapedAttention(centring=False))
        and not any(map(_has_limit, cold)),
        part_that_fails=all(
            x.drift.is_zero_matrix and TAU not in x.diffusion.free_symbols for x in without_trace
        ),
    )


def equal_tokens() -> Finding:
    limit = derive(ShapedAttention(), 3)
    equal = dict.fromkeys(limit.algebra.v_expressions, Symbol("p", positive=True))
    return tested(
        limit.drift.subs(equal).is_zero_matrix,
        TAU not in limit.diffusion.subs(equal).free_symbols,
        not limit.drift.is_zero_matrix,
    )


# Claims on the time of the layers, the size of their updates, and the limit at depth/width = T.
#
# One token is solved exactly: the ratios V'/V of the layers are independent, with the cumulants of
# `one_token_cumulants`.

N, T = symbols("n T", positive=True)


def one_token_cumulants(count: int) -> list[Expr]:
    """Return the exact cumulants of V'/V for one token at width n.

    A = 1, so V'/V = (1/n) sum_i (lambda x_i + gamma g_i)^2 with sum x_i^2 = n: a noncentral
    chi-square law, whose cumulant generating function is
    -(n/2) log(1 - 2 gamma^2 t / n) + lambda^2 t / (1 - 2 gamma^2 t / n).
    """
    t = Symbol("t")
    spread = 1 - 2 * GAMMA**2 * t / N
    function = -N / 2 * log(spread) + (1 - GAMMA**2) * t / spread
    return [expand(cancel(diff(function, t, order).subs(t, 0))) for order in range(1, count + 1)]


def _one_token_has_its_limit() -> bool:
    """Return whether mean and variance of V'/V are those of the derived limit."""
    mean, variance = one_token_cumulants(2)
    derived = derive(ShapedAttention(), 1)
    v = derived.algebra.v_expressions[0, 0]
    same_variance = expand(N * variance * v**2 - derived.diffusion[0, 0]) == 0
    return bool(mean == 1 and derived.drift[0, 0] == 0 and same_variance)


def layer_times() -> Finding:
    depths = {n: ceiling(Rational(3, 2) * n) for n in range(1, 8)}
    late = [depth / n - Rational(3, 2) for n, depth in depths.items()]
    return imprecise(
        part_that_holds=all(0 <= x < Rational(1, n) for n, x in zip(depths, late, strict=True))
        and limit((T * N + 1) / N, N, oo) == T,
        part_that_fails=depths[3] == 5 and any(x > 0 for x in late),
    )


def layer_gaps() -> Finding:
    layer = Symbol("l", integer=True, nonnegative=True)
    gap = expand((layer + 1) / N - layer / N)
    return proven(gap == 1 / N, limit(gap, N, oo) == 0)


def constant_ratio_gives_time() -> Finding:
    # E (V_L/V_0)^2 = (1 + c/n)^L for one token and depths L(n).
    rate = Symbol("c", positive=True)
    depths = (T * N, T * N + sqrt(N), sqrt(N), N**2)
    limits = [limit((1 + rate / N) ** depth, N, oo) for depth in depths]
    return tested(
        _one_token_has_its_limit(), limits == [exp(rate * T), exp(rate * T), Integer(1), oo]
    )


def standard_deviation(order: Rational) -> Expr:
    """Return the limit of n^order times the standard deviation of V'/V for one token."""
    return limit(N**order * sqrt(one_token_cumulants(2)[1].subs(GAMMA, 1)), N, oo)


def moments_of_order_1_n() -> Finding:
    two = derive(ShapedAttention(), 2)
    return imprecise(
        part_that_holds=_one_token_has_its_limit() and two.drift[0, 0] != 0,
        part_that_fails=two.diffusion[0, 0] != 0 and standard_deviation(Rational(1)) == oo,
    )


def updates_of_order_1_n() -> Finding:
    return refuted(
        claim_fails=standard_deviation(Rational(1)) == oo,
        correction_holds=one_token_cumulants(1) == [1] and standard_deviation(HALF) == sqrt(2),
    )


def update_size_allows_sde() -> Finding:
    size = Symbol("C", positive=True)
    mean, variance, _, fourth = one_token_cumulants(4)
    squares = [limit(T * N * update**2, N, oo) for update in (size / N, size / sqrt(N))]
    return refuted(
        claim_fails=squares == [0, T * size**2],
        correction_holds=mean == 1
        and expand(T * N * variance - 4 * T * GAMMA**2 + 2 * T * GAMMA**4) == 0
        and limit(T * N * (fourth + 3 * variance**2), N, oo) == 0,
    )


def euler_step_1_n() -> Finding:
    third, fourth = one_token_cumulants(4)[2:]
    return imprecise(
        part_that_holds=_one_token_has_its_limit()
        and limit(N * third, N, oo) == 0
        and limit(N * fourth, N, oo) == 0,
        part_that_fails=expand(third * N**2) == 24 * GAMMA**4 - 16 * GAMMA**6
        and two_tokens(1).ratio.subs(GAMMA, HALF) == 1,
    )


# Claims on drift and diffusion of the limit, and on the shaped ReLU.

RHO, C_PLUS, C_MINUS = symbols("rho c_plus c_minus", real=True)
ARC = (sqrt(1 - RHO**2) - RHO * acos(RHO)) / (2 * pi)


def attention_limit(**options: Any) -> Finding:
    block = ShapedAttention(**options)
    return tested(
        *[bool(prove(block, m).holds) for m in (1, 2, 3)],
        *[bool(check_at_points(block, m, points=1, seed=m).holds) for m in (4, 5, 6)],
    )


def attention_limit_output_projection() -> Finding:
    return attention_limit(output_projection=True)


def attention_limit_biases() -> Finding:
    return attention_limit(query_bias="s_Q", key_bias="s_K")


def attention_limit_causal() -> Finding:
    return attention_limit(mask="causal")


def attention_limit_heads() -> Finding:
    same = []
    for heads, projection in ((2, False), (3, False), (4, True)):
        limit = derive(ExplicitHeads(heads, projection), 2)
        forms = expected(ShapedAttention(heads=heads, output_projection=projection), limit.algebra)
        assert forms is not None
        derived = limit.drift_polynomials, limit.diffusion_polynomials
        same += [(a - b).is_zero_matrix for a, b in zip(derived, forms, strict=True)]
    return tested(*same, attention_limit(heads=3).verdict is Verdict.TESTED)


def mlp_limit() -> Finding:
    return proven(bool(prove(ShapedMLP(), 4).holds))


def relu_kernel() -> Finding:
    s_plus, s_minus = symbols("s_+ s_-", real=True)
    ratio = 2 * (s_plus - s_minus) ** 2 / (s_plus**2 + s_minus**2)
    return proven(simplify(shaped_relu_kernel(RHO, s_plus, s_minus) - RHO - ratio * ARC) == 0)


def relu_nu_printed() -> Finding:
    printed = (C_PLUS + C_MINUS) ** 2 / (2 * pi) * (sqrt(1 - RHO**2) + RHO * acos(RHO))
    derived = nu(RHO, C_PLUS, C_MINUS)
    linear = {C_PLUS: 1, C_MINUS: 1, RHO: 0}
    wrong_sign = {C_PLUS: 0, C_MINUS: -1, RHO: -1}
    return refuted(
        claim_fails=[f.subs(linear) for f in (derived, printed)] == [0, 2 / pi]
        and [f.subs(wrong_sign) for f in (derived, printed)] == [HALF, -HALF],
        correction_holds=simplify(derived - (C_PLUS - C_MINUS) ** 2 * ARC) == 0,
    )


def attention_drift_exchangeable() -> Finding:
    p, q = symbols("p q", real=True)
    facts = []
    for m in (2, 3, 4):
        limit = derive(ShapedAttention(), m)
        v = Matrix(m, m, lambda a, b: q if a == b else p)
        drift = limit.drift.subs(dict(zip(limit.algebra.v_expressions, v, strict=True)))
        stated = GAMMA**2 / TAU**2 * Rational(m - 1, m**2) * (q - p) ** 2 * v
        facts.append((drift - stated).expand().is_zero_matrix)
    return tested(*facts)


def log_determinant() -> Finding:
    """Check Ito's formula for log det V with diffusion k Sigma_lin and no drift."""
    facts, k = [], Symbol("k", positive=True)
    covariances = [*map(symbolic_covariance, (1, 2)), rational_covariance(3, 1)]
    for v in [*covariances, rational_covariance(4, 2)]:
        m, inverse = v.rows, v.inv()
        drift = variance = Integer(0)
        for a, b, c, d in product(range(m), repeat=4):
            sigma = k * (v[a, c] * v[b, d] + v[a, d] * v[b, c])
            drift -= inverse[b, c] * inverse[d, a] * sigma / 2
            variance += inverse[a, b] * inverse[c, d] * sigma
        facts += [vanishes(drift + k * m * (m + 1) / 2), vanishes(variance - 2 * m * k)]
    return tested(*facts)


def factor_equation() -> Finding:
    return tested(*[factor_equation_holds(m) for m in (1, 2, 3)])
