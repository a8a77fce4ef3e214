"""Claims on softmax at 0, on the scaling of its terms, and on drift and diffusion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from sympy import (
    QQ,
    Expr,
    Integer,
    KroneckerDelta,
    Matrix,
    Rational,
    ShapeError,
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
from symbolic.claims.explosion import two_tokens
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

# Claims on softmax and its derivatives at any point; those at 0 are in `softmax_at_zero`.

M = Symbol("m", integer=True, positive=True)

Z = symbols("z_i z_j z_k rest")
"""Three tokens; the others enter softmax and its derivatives through one constant, `rest`."""


def values() -> list[Expr]:
    """Return s_i, s_j, s_k for any number of tokens."""
    total = exp(Z[0]) + exp(Z[1]) + exp(Z[2]) + Z[3]
    return [exp(z) / total for z in Z[:3]]


def softmax_first_derivatives() -> Finding:
    value = values()[0]
    same, other = diff(value, Z[0]), diff(value, Z[1])
    at_zero = {Z[0]: 0, Z[1]: 0, Z[2]: 0, Z[3]: M - 3}
    tensors = all(
        differentiated_tensor(1, m)[i, j] == (Integer(m - 1) if i == j else -1) / Integer(m**2)
        for m in range(2, 7)
        for i, j in product(range(m), repeat=2)
    )
    return proven(
        cancel(same.subs(at_zero) - (M - 1) / M**2) == 0,
        cancel(other.subs(at_zero) + 1 / M**2) == 0,
        tensors,
    )


def softmax_is_a_distribution() -> Finding:
    positive = {z: Symbol(z.name, real=True) for z in Z[:3]} | {Z[3]: Symbol("r", positive=True)}
    s = values()
    others = Z[3] / (exp(Z[0]) + exp(Z[1]) + exp(Z[2]) + Z[3])
    return proven(
        all(value.subs(positive).is_positive is True for value in s), cancel(sum(s) + others) == 1
    )


def softmax_of_a_component() -> Finding:
    s = values()
    ratio = cancel(s[0] / s[1])
    return imprecise(
        part_that_holds=simplify(ratio - exp(Z[0] - Z[1])) == 0,
        part_that_fails=cancel(diff(s[0], Z[1])) != 0,
    )


def softmax_derivative_cases() -> Finding:
    s = values()
    return proven(
        cancel(diff(s[0], Z[0]) - s[0] * (1 - s[0])) == 0,
        cancel(diff(s[0], Z[1]) + s[0] * s[1]) == 0,
    )


def softmax_kronecker_form() -> Finding:
    i, j = symbols("i j", integer=True)
    probability = PROBABILITIES
    return proven(
        softmax_derivative_cases().verdict is Verdict.PROVEN,
        expand(derivative(i, j) - probability[i] * (KroneckerDelta(i, j) - probability[j])) == 0,
        expand(derivative_at_zero(i, j) - (KroneckerDelta(i, j) - 1 / M) / M) == 0,
    )


def _jacobian(s: Matrix) -> Matrix:
    return Matrix.diag(*s) - s * s.T


def _general_point(m: int) -> tuple[tuple[Symbol, ...], Matrix]:
    z = symbols(f"z_1:{m + 1}")
    total = sum(exp(entry) for entry in z)
    return z, Matrix([exp(entry) / total for entry in z])


def softmax_second_derivative() -> Finding:
    z, s = _general_point(3)
    jacobian = s.jacobian(Matrix(z))
    claimed_is_first = (jacobian - _jacobian(s)).applyfunc(cancel).is_zero_matrix
    hessian = differentiated_tensor(2, 3)
    t = values()

    def delta(a: int, b: int) -> int:
        return int(a == b)

    # The corrected statement as printed, at all 27 triples, for any m.
    correction = all(
        cancel(
            diff(t[i], Z[j], Z[k])
            - t[i] * ((delta(i, j) - t[j]) * (delta(i, k) - t[k]) - t[j] * (delta(j, k) - t[k]))
        )
        == 0
        for i, j, k in product(range(3), repeat=3)
    )
    return refuted(
        claim_fails=claimed_is_first and hessian.shape != (3, 3),
        correction_holds=correction,
        witness=(
            "diag(s) - s s^T is the matrix of first derivatives (m = 3, any z); the second "
            "derivatives "
            f"are an array of shape {hessian.shape} with entry (0, 0, 0) = {hessian[0, 0, 0]} at 0"
        ),
    )


def _has_shape(product: Callable[[], Matrix]) -> bool:
    try:
        product()
    except ShapeError:
        return False
    return True


def _slice(jacobian: Matrix, s: Matrix, k: int) -> Matrix:
    """Return what is right: the formula with the column J e_k in place of J."""
    column = jacobian[:, k]
    return Matrix.diag(*column) - column * s.T - s * column.T


def softmax_hessian_matrix_formula() -> Finding:
    z, s = _general_point(3)
    jacobian = _jacobian(s)
    hessian = [diff(s.jacobian(Matrix(z)), z[k]) for k in range(3)]
    # The products can also be meant entry by entry: J s^T and s J^T as J diag(s) and diag(s) J.
    diagonal = Matrix.diag(*jacobian.diagonal())
    at_zero = dict.fromkeys(z, 0)
    entrywise = (diagonal - jacobian * Matrix.diag(*s) - Matrix.diag(*s) * jacobian).subs(at_zero)
    slices = [matrix.subs(at_zero) for matrix in hessian]
    return refuted(
        claim_fails=not _has_shape(lambda: jacobian * s.T)
        and not _has_shape(lambda: s * jacobian.T)
        and entrywise == ones(3, 3) * entrywise[0, 0]
        and entrywise not in slices,
        correction_holds=all(
            (_slice(jacobian, s, k) - hessian[k]).applyfunc(cancel).is_zero_matrix for k in range(3)
        ),
        witness=(
            "m = 3: J s^T multiplies a 3 x 3 by a 1 x 3 matrix, s J^T a 3 x 1 by a 3 x 3 matrix; "
            "meant "
            f"entry by entry, all entries at 0 are {entrywise[0, 0]}, but the first slice is "
            f"{slices[0].tolist()}; with columns J e_k in place of J the formula is the k-th "
            "slice, at "
            "any z"
        ),
    )


_SAME = (
    r"\frac{\partial \text{softmax}(z_i)}{\partial z_i} = "
    r"\text{softmax}(z_i) \cdot (1 - \text{softmax}(z_i))"
)
_OTHER = (
    r"\frac{\partial \text{softmax}(z_i)}{\partial z_j} = "
    r"- \text{softmax}(z_i) \cdot \text{softmax}(z_j)"
)


# Claims on softmax, its Jacobian and its second derivatives at z = 0.

SIZES = range(2, 7)

AT_ZERO = {Z[0]: 0, Z[1]: 0, Z[2]: 0, Z[3]: M - 3}
"""The point 0 of m tokens, of which three are z_i, z_j, z_k."""


def at_zero(tokens: int) -> Matrix:
    """Return softmax at 0, a column."""
    return Matrix(derivative_tensor(0, tokens).tolist())


def jacobian_at_zero(tokens: int) -> Matrix:
    """Return the first derivatives of softmax at 0, by differentiation."""
    return Matrix(differentiated_tensor(1, tokens).tolist())


def hessian_at_zero(same: Expr | int, first: Expr | int, second: Expr | int) -> Expr:
    """Return d^2 s_i / dz_j dz_k at 0 from the values of delta_jk, delta_ij and delta_ik."""
    return first * second / M - (same + first + second) / M**2 + 2 / M**3


def slice_at_zero(tokens: int, k: int) -> Matrix:
    """Return slice k of the second derivatives at 0, in matrices."""
    column = eye(tokens)[:, k] / tokens - ones(tokens, 1) / tokens**2
    one = ones(tokens, 1)
    return Matrix.diag(*column) - (column * one.T + one * column.T) / tokens


def softmax_at_zero_diagonal() -> Finding:
    return proven(
        values()[0].subs(AT_ZERO) == 1 / M, *[Matrix.diag(*at_zero(m)) == eye(m) / m for m in SIZES]
    )


def printed_value(tokens: int) -> Matrix:
    """Return what is printed for softmax(0)."""
    return ones(tokens, tokens) / tokens


def softmax_at_zero() -> Finding:
    outer = {m: printed_value(m) * printed_value(m).T for m in SIZES}
    return refuted(
        claim_fails=all(
            at_zero(m).shape != printed_value(m).shape and outer[m] != ones(m, m) / m**2
            for m in SIZES
        ),
        correction_holds=values()[0].subs(AT_ZERO) == 1 / M
        and all(
            at_zero(m) == ones(m, 1) / m and at_zero(m) * at_zero(m).T == ones(m, m) / m**2
            for m in SIZES
        ),
    )


def softmax_jacobian_at_zero() -> Finding:
    s = values()
    same, other = (diff(s[0], z).subs(AT_ZERO) for z in Z[:2])
    return proven(
        cancel(same - (1 / M - 1 / M**2)) == 0,
        cancel(other + 1 / M**2) == 0,
        *[jacobian_at_zero(m) == eye(m) / m - ones(m, m) / m**2 for m in SIZES],
    )


def softmax_hessian_first_term() -> Finding:
    jacobians = {m: jacobian_at_zero(m) for m in SIZES}
    terms = {m: [Matrix.diag(*j[:, k]) for k in range(m)] for m, j in jacobians.items()}
    printed = {m: Matrix.diag(*j.diagonal()) for m, j in jacobians.items()}
    return refuted(
        claim_fails=all(
            printed[m] not in terms[m] and sum(terms[m], zeros(m, m)) == zeros(m, m) for m in SIZES
        ),
        correction_holds=all(
            terms[m][k] == Matrix.diag(*(eye(m)[:, k] - ones(m, 1) / m)) / m
            for m in SIZES
            for k in range(m)
        )
        and softmax_hessian_at_zero().verdict is Verdict.PROVEN,
        witness=(
            f"the printed term is {printed[3].tolist()} for m = 3, whatever the slice; slice 1 has "
            f"{terms[3][0].tolist()}. For m = 2..6 no slice has it, and the sum of the slices is 0"
        ),
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
    derivatives = [
        cancel(diff(s[a], Z[b], Z[c]).subs(AT_ZERO) - value) == 0
        for (a, b, c), value in kinds.items()
    ]
    formulas = [
        cancel(hessian_at_zero(int(b == c), int(a == b), int(a == c)) - value) == 0
        for (a, b, c), value in kinds.items()
    ]
    slices = [
        slice_at_zero(m, c) == Matrix(differentiated_tensor(2, m)[:, :, c].tolist())
        for m in (1, 2, 3, 4)
        for c in range(m)
    ]
    return proven(
        *derivatives,
        *formulas,
        *slices,
        expand(derivative_at_zero(i, j, k) - hessian_at_zero(*deltas)).simplify() == Integer(0),
        witness=(
            "differentiated twice with the other tokens in one constant, for any m >= 3; all "
            "entries "
            "of all slices for m = 1..4; joint cumulants of one-hot vectors; m = 3, slice 1: "
            f"{slice_at_zero(3, 0).tolist()}"
        ),
    )


# The equation for a factor F of V = F F^T, checked by Ito's formula in polynomials of F.


def factor_equation_holds(m: int) -> bool:
    """Return whether V = F F^T has the derived drift and diffusion, as polynomials in F.

    dF = F [ sqrt(k)/2 dZ_1 + gamma^2/(tau_0 m) dZ_2 (F^T C F) ] + [ -k(m+1)/8
    + gamma^2 (1 - gamma^2) |P|^2 / (2 tau_0^2 m^2) ] F dt + gamma^2/(2 m tau_0^2) q (s^T F) dt.
    """
    cold = 1 / TAU
    root = Symbol("sqrt_k")
    ring = PolyRing([GAMMA, cold, root, *symbols(f"F_1:{m * m + 1}")], QQ)
    gamma, inverse_tau, rate, *entries = ring.gens
    domain = ring.to_domain()

    def matrix(rows: list[list[Any]]) -> DomainMatrix:
        return DomainMatrix(
            [[ring(0) + e for e in row] for row in rows], (len(rows), len(rows[0])), domain
        )

    f = matrix([entries[a * m : (a + 1) * m] for a in range(m)])
    v = f * f.transpose()
    centring = matrix([[QQ(int(a == b)) - QQ(1, m) for b in range(m)] for a in range(m)])
    p = centring * v * centring
    norm = sum((e**2 for row in p.to_list() for e in row), ring.zero)
    trace = sum((p[a, a].element for a in range(m)), ring.zero)
    s = matrix([[p[a, a].element - trace * QQ(1, m)] for a in range(m)])
    q = matrix([[v[a, a].element] for a in range(m)])
    strength = gamma**2 * inverse_tau * QQ(1, m)
    inner = f.transpose() * centring * f
    noises = []
    for a in range(m):
        for b in range(a + 1):
            unit = [[ring.zero] * m for _ in range(m)]
            unit[a][b] = unit[b][a] = ring.one
            # Z_1 is symmetric with variance 1 off and 2 on the diagonal.
            noises.append((f * matrix(unit)).scalarmul(rate * QQ(1, 2)))
            if a == b:
                noises.append(noises[-1])
    for a in range(m):
        for b in range(m):
            unit = [[ring.zero] * m for _ in range(m)]
            unit[a][b] = ring.one
            noises.append((f * matrix(unit) * inner).scalarmul(strength))
    first = f.scalarmul(
        rate**2 * QQ(-(m + 1), 8)
        + gamma**2 * (1 - gamma**2) * norm * inverse_tau**2 * QQ(1, 2 * m**2)
    )
    second = (q * s.transpose() * f).scalarmul(gamma**2 * inverse_tau**2 * QQ(1, 2 * m))
    moved = (first + second) * f.transpose()
    drift = moved + moved.transpose()
    for noise in noises:
        drift += noise * noise.transpose()
    changes = []
    for noise in noises:
        half = noise * f.transpose()
        changes.append((half + half.transpose()).to_list())
    limit = derive(ShapedAttention(), m)
    names = {limit.algebra.v_expressions[a, b]: v[a, b].element for a, b in vech_pairs(m)} | {
        GAMMA: gamma,
        cold: inverse_tau,
    }
    images = [names[g] for g in limit.algebra.coefficient_generators]

    def differs(ours: Any, derived: Any) -> bool:
        image = sum(
            (
                _product([g**e for g, e in zip(images, powers, strict=False)], ring.one) * c
                for powers, c in derived.items()
            ),
            ring.zero,
        )
        return bool(_without_root(ours - image, ring, gamma))

    pairs = vech_pairs(m)
    for a, b in pairs:
        if differs(drift[a, b].element, limit.drift_polynomials[a, b].element):
            return False
    for i, (a, b) in enumerate(pairs):
        for j, (c, d) in enumerate(pairs[: i + 1]):
            total = sum((change[a][b] * change[c][d] for change in changes), ring.zero)
            if differs(total, limit.diffusion_polynomials[i, j].element):
                return False
    return True


def _product(factors: list[Any], one: Any) -> Any:
    total = one
    for factor in factors:
        total = total * factor
    return total


def _without_root(polynomial: Any, ring: PolyRing, gamma: Any) -> Any:
    """Replace sqrt(k)^2 by k = gamma^2 (2 - gamma^2); odd powers must cancel."""
    total = ring.zero
    for powers, coefficient in polynomial.items():
        if powers[2] % 2:
            return polynomial
        rest = ring.from_dict({(*powers[:2], 0, *powers[3:]): coefficient})
        total += rest * (gamma**2 * (2 - gamma**2)) ** (powers[2] // 2)
    return total


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
    shaped = {term.degree: term for term in term_orders(2)}
    return imprecise(
        part_that_holds=shaped[2].power == 1 and not shaped[2].mean_vanishes,
        part_that_fails=shaped[1].power == HALF and shaped[1].mean_vanishes,
    )


def _has_limit(block: ShapedAttention) -> bool:
    try:
        derive(block, 2)
    except NoLimitError:
        return False
    return True


def three_modifications_needed() -> Finding:
    colder = [Rational(1, 4), Rational(1, 3), Rational(2, 5)]
    hotter = [Rational(2, 3), Rational(1)]
    without_trace = []
    for power in hotter:
        limit = derive(ShapedAttention(temperature_power=power), 2)
        without_trace.append(limit.drift.is_zero_matrix and TAU not in limit.diffusion.free_symbols)
    return imprecise(
        part_that_holds=_has_limit(ShapedAttention())
        and not _has_limit(ShapedAttention(identity=False))
        and not _has_limit(ShapedAttention(centring=False))
        and not any(_has_limit(ShapedAttention(temperature_power=p)) for p in colder),
        part_that_fails=all(without_trace),
    )


def equal_tokens() -> Finding:
    limit = derive(ShapedAttention(), 3)
    p = symbols("p", positive=True)
    equal = dict.fromkeys(limit.algebra.v_expressions, p)
    diffusion = limit.diffusion.subs(equal)
    return tested(
        limit.drift.subs(equal) == Matrix.zeros(3, 3),
        TAU not in diffusion.free_symbols,
        limit.drift != Matrix.zeros(3, 3),
    )


# Claims on the time of the layers, the size of their updates, and the limit at depth/width = T.
#
# One token is solved exactly: the ratios V'/V of the layers are independent, with the cumulants of
# `one_token_cumulants`.

N = Symbol("n", positive=True)
T = Symbol("T", positive=True)


def one_token_cumulants(count: int) -> list[Expr]:
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


def layer_times() -> Finding:
    depths = [(n, ceiling(Rational(3, 2) * n)) for n in range(1, 8)]
    return imprecise(
        part_that_holds=all(0 <= depth / n - Rational(3, 2) < Rational(1, n) for n, depth in depths)
        and limit((T * N + 1) / N, N, oo) == T,
        part_that_fails=any(depth / n > Rational(3, 2) for n, depth in depths),
        witness=(
            "L/n - T can have either sign: with L = 3n/2 rounded up, T = 3/2, the last time is "
            f"{depths[2][1]}/3 at n = 3; it tends to T"
        ),
    )


def time_of(layer: Expr) -> Expr:
    """Return the time of a layer."""
    return layer / N


def layer_gaps() -> Finding:
    layer = Symbol("l", integer=True, nonnegative=True)
    gap = expand(time_of(layer + 1) - time_of(layer))
    return proven(gap == 1 / N, limit(gap, N, oo) == 0)


def _second_moment(depth: Expr) -> Expr:
    """Return the limit of E (V_L/V_0)^2 for one token and a depth L(n)."""
    rate = Symbol("c", positive=True)
    return limit((1 + rate / N) ** depth, N, oo)


def constant_ratio_gives_time() -> Finding:
    mean, variance = one_token_cumulants(2)
    derived = derive(ShapedAttention(), 1)
    v = derived.algebra.v_expressions[0, 0]
    rate = Symbol("c", positive=True)
    diffusion = expand(N * variance) * v**2
    return tested(
        mean == 1,
        expand(diffusion - derived.diffusion[0, 0]) == 0,
        _second_moment(T * N) == exp(rate * T),
        _second_moment(T * N + sqrt(N)) == exp(rate * T),
        _second_moment(sqrt(N)) == 1,
        _second_moment(N**2) == oo,
    )


def standard_deviation(order: Rational) -> Expr:
    """Return the limit of n^order times the standard deviation of V'/V for one token."""
    return limit(N**order * sqrt(one_token_cumulants(2)[1].subs(GAMMA, 1)), N, oo)


def moments_of_order_1_n() -> Finding:
    mean, variance = one_token_cumulants(2)
    limit_ = derive(ShapedAttention(), 2)
    derived = derive(ShapedAttention(), 1)
    v = derived.algebra.v_expressions[0, 0]
    return imprecise(
        part_that_holds=mean == 1
        and limit_.drift[0, 0] != 0
        and expand(N * variance * v**2 - derived.diffusion[0, 0]) == 0,
        part_that_fails=limit_.diffusion[0, 0] != 0 and standard_deviation(Rational(1)) == oo,
    )


def updates_of_order_1_n() -> Finding:
    mean, _ = one_token_cumulants(2)
    return refuted(
        claim_fails=standard_deviation(Rational(1)) == oo,
        correction_holds=mean == 1 and standard_deviation(Rational(1, 2)) == sqrt(2),
    )


def squares(update: Expr) -> Expr:
    """Return the limit of the sum of the squares of T n updates of a size."""
    return limit(T * N * update**2, N, oo)


def update_size_allows_sde() -> Finding:
    size = Symbol("C", positive=True)
    mean, variance, _, fourth = one_token_cumulants(4)
    remaining = expand(T * N * variance)
    return refuted(
        claim_fails=squares(size / N) == 0
        and squares(size / sqrt(N)) == T * size**2
        and remaining.subs(GAMMA, 1) == 2 * T,
        correction_holds=mean == 1
        and not remaining.has(N)
        and limit(T * N * (fourth + 3 * variance**2), N, oo) == 0,
        witness=(
            "the squares of T n updates of size at most C/n sum to at most C^2 T/n, which tends "
            "to 0: "
            f"an ODE is left. For one token the variances sum to {remaining}"
        ),
    )


def euler_step_1_n() -> Finding:
    mean, variance, third, fourth = one_token_cumulants(4)
    derived = derive(ShapedAttention(), 1)
    v = derived.algebra.v_expressions[0, 0]
    same_moments = (
        derived.drift[0, 0] == 0
        and mean == 1
        and expand(N * variance * v**2 - derived.diffusion[0, 0]) == 0
        and limit(N * third, N, oo) == 0
        and limit(N * fourth, N, oo) == 0
    )
    ratio = two_tokens(1).ratio.subs(GAMMA, Rational(1, 2))
    return imprecise(
        part_that_holds=same_moments,
        part_that_fails=third != 0 and ratio > Rational(1, 2),
        witness=(
            "one token: mean and variance of a layer are those of an Euler-Maruyama step of "
            "length 1/n "
            "and n times the third and fourth cumulants tend to 0, as convergence in law needs; "
            "but "
            f"the third is {third} and not 0, so at finite n the laws differ; two tokens at gamma "
            "= "
            f"1/2: a = {ratio} > 1/2, so that the SDE explodes in finite time with positive "
            "probability (`explosion-feller`)"
        ),
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


def attention_limit_heads() -> Finding:
    same = []
    for heads, projection in ((2, False), (3, False), (4, True)):
        limit = derive(ExplicitHeads(heads, projection), 2)
        forms = expected(ShapedAttention(heads=heads, output_projection=projection), limit.algebra)
        assert forms is not None
        same += [
            (limit.drift_polynomials - forms[0]).is_zero_matrix,
            (limit.diffusion_polynomials - forms[1]).is_zero_matrix,
        ]
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
        claim_fails=derived.subs(linear) == 0
        and printed.subs(linear) != 0
        and printed.subs(wrong_sign) != derived.subs(wrong_sign),
        correction_holds=simplify(derived - (C_PLUS - C_MINUS) ** 2 * ARC) == 0,
        witness=(
            "c_+ = c_- = 1 is a linear network, whose kernel is rho: nu = 0, but the printed one "
            "gives "
            f"{printed.subs(linear)} at rho = 0; at c_+ = 0, c_- = -1, rho = -1 it gives "
            f"{printed.subs(wrong_sign)} instead of {derived.subs(wrong_sign)}"
        ),
    )


def attention_drift_exchangeable() -> Finding:
    p, q = symbols("p q", real=True)
    facts = []
    for m in (2, 3, 4):
        limit = derive(ShapedAttention(), m)
        v = Matrix(m, m, lambda a, b: q if a == b else p)
        drift = limit.drift.subs(dict(zip(limit.algebra.v_expressions, v, strict=True)))
        expected = GAMMA**2 / TAU**2 * Rational(m - 1, m**2) * (q - p) ** 2 * v
        facts.append((drift - expected).expand().is_zero_matrix)
    return tested(*facts)


def log_determinant() -> Finding:
    """Check Ito's formula for log det V with diffusion k Sigma_lin and no drift."""
    facts = []
    k = Symbol("k", positive=True)
    for m, v in [(1, symbolic_covariance(1)), (2, symbolic_covariance(2))] + [
        (m, rational_covariance(m, seed)) for m, seed in ((3, 1), (4, 2))
    ]:
        inverse = v.inv()
        pairs = [(a, b) for a in range(m) for b in range(m)]
        second, first = 0, 0
        for a, b in pairs:
            for c, d in pairs:
                sigma = k * (v[a, c] * v[b, d] + v[a, d] * v[b, c])
                second -= inverse[b, c] * inverse[d, a] * sigma / 2
                first += inverse[a, b] * inverse[c, d] * sigma
        facts += [cancel(second + k * m * (m + 1) / 2) == 0, cancel(first - 2 * m * k) == 0]
    return tested(*facts)


def factor_equation() -> Finding:
    return tested(*[factor_equation_holds(m) for m in (1, 2, 3)])


def attention_limit_output_projection() -> Finding:
    return attention_limit(output_projection=True)


def attention_limit_biases() -> Finding:
    return attention_limit(query_bias="s_Q", key_bias="s_K")


def attention_limit_causal() -> Finding:
    return attention_limit(mask="causal")
