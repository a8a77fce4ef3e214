"""Claims on the law of the explosion time, on its bounds, and on lazily revealed weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sympy import (  # isort: skip
    Expr, Integer, Matrix, Rational, Symbol, acos, asinh, cancel, det, diff, exp, expand,
    eye, factor, factorial, hessian, kronecker_product, limit, log, ones, oo, pi, simplify, sqrt,
    symbols, tanh,
)  # fmt: skip

from symbolic.algebra import Algebra, rational_covariance, symbolic_covariance, vech, vech_pairs
from symbolic.blocks import ShapedAttention, ShapedMLP, relu_function
from symbolic.claims.ledger import Finding, proven, refuted, tested
from symbolic.limit import Layer, Limit, derive
from symbolic.names import GAMMA, TAU
from symbolic.series import HALF, Series


@dataclass(frozen=True)
class Ito:
    """Drifts and covariations of functions of variables of which these are given."""

    entries: list[Expr]
    drifts: Matrix
    diffusion: Matrix

    @classmethod
    def of(cls, limit: Limit) -> Ito:
        """Return that of V, the solution of a limit that is derived at a symbolic V."""
        return cls(vech(limit.algebra.v_expressions), Matrix(vech(limit.drift)), limit.diffusion)

    def drift(self, function: Expr) -> Expr:
        """Return the drift of f(V): sum of b_i d_i f and of Sigma_ij d_i d_j f / 2."""
        slopes = Matrix([function]).jacobian(self.entries)
        second = (self.diffusion * hessian(function, self.entries)).trace() / 2
        return (slopes * self.drifts)[0] + second

    def covariation(self, first: Expr, second: Expr) -> Expr:
        """Return d[f(V), g(V)] / dt: the sum of Sigma_ij d_i f d_j g."""
        left, right = (Matrix([f]).jacobian(self.entries) for f in (first, second))
        return (left * self.diffusion * right.T)[0]

    def turned(self, forms: Mapping[Symbol, Expr]) -> tuple[Ito, dict[Expr, Expr]]:
        """Return the same in linear forms of V as coordinates, and the entries of V in these."""
        turn = Matrix([*forms.values()]).jacobian(self.entries)
        old = dict(zip(self.entries, turn.inv() * Matrix([*forms]), strict=True))
        moved = turn * self.drifts, turn * self.diffusion * turn.T
        return Ito([*forms], *(m.xreplace(old).expand() for m in moved)), old


def vanishes(expression: Expr) -> bool:
    """Return whether a rational function is zero."""
    return bool(cancel(expression) == 0)


# Attention on tokens that are all zero but one: a block of one row, for any number of tokens.

SHARE = Symbol("p", positive=True)
"""The weight of the live token in its row at score 0: 1 / (number of tokens that it sees)."""


class LiveToken(ShapedAttention):
    """Row j of attention at V = v e_j e_j^T, with p as a symbol.

    E[G_ab G_cd] = V_ac V_bd leaves one score, G_jj. All rows of A but row j are those of the
    identity, and the other entries of row j meet tokens that are zero. Only A_jj is left:
    A_jj = 1 + p e^x / (1 - p + p e^x) - p with x = G_jj / (tau_0 sqrt n).
    """

    def generators(self, v: Matrix) -> Sequence[Expr]:
        """Return the parameters of attention, and p."""
        return [*super().generators(v), SHARE]

    def attention(self, algebra: Algebra, order: int) -> Series:
        """Return A_jj as a series of 1 x 1 matrices."""
        x = Symbol("x")
        logistic = SHARE * exp(x) / (1 - SHARE + SHARE * exp(x))
        score = algebra.field(self.scores) * algebra.matrix([[self.inverse_tau]])
        total, power = Series({0: algebra.identity}, order), algebra.identity
        for degree in range(1, 2 * order + 1):
            power = power * score
            coefficient = expand(diff(logistic, x, degree).subs(x, 0).simplify())
            term = Series({degree * HALF: power}, order)
            total += term * algebra[coefficient / factorial(degree)]
        return total


def at_live_token(tokens: int, live: int, value: Expr | Rational) -> Matrix:
    """Return v e_j e_j^T, with j = `live` counted from 0."""
    return Matrix(tokens, tokens, lambda a, b: value if a == b == live else 0)


# The scalar equations inside the limit, derived from the recursion of a block.

MLP_GAMMA, MLP = Symbol("gamma_mlp", positive=True), ShapedMLP(gamma="gamma_mlp")
PAIR, ONE = symbolic_covariance(2), symbolic_covariance(1)[0, 0]
GAP = PAIR[0, 0] - 2 * PAIR[0, 1] + PAIR[1, 1]
"""u = V_00 - 2 V_01 + V_11 of two tokens."""

LAYERS = ((1, False), (2, False), (3, False), (2, True))
"""Numbers of heads, with and without an output projection. The engine makes the diffusion affine in
1/H, so equality at two values of H is equality for all."""


@dataclass(frozen=True)
class Law:
    """Coefficients of du = alpha u^3 dt + sqrt(2 k u^2 + delta u^4) dB, with k = `rate`."""

    alpha: Expr
    delta: Expr
    rate: Expr

    @property
    def ratio(self) -> Expr:
        """a = alpha / delta."""
        return self.alpha / self.delta


def linear_rate(output_projection: bool = False) -> Expr:
    """Return k of attention alone."""
    return 2 * GAMMA**2 if output_projection else GAMMA**2 * (2 - GAMMA**2)


def two_tokens(heads: Any, output_projection: bool = False) -> Law:
    """Return the stated coefficients for u of two tokens under full attention."""
    alpha, delta = GAMMA**2 / (16 * TAU**2), GAMMA**4 / (4 * TAU**2 * heads)
    return Law(alpha, delta, linear_rate(output_projection))


def one_live_token(share: Any, heads: Any, output_projection: bool = False) -> Law:
    """Return the stated coefficients for u = V_jj at V = V_jj e_j e_j^T; p = `share`."""
    both = share * (1 - share)
    alpha = GAMMA**2 * both * (both + 1 - 2 * share) / TAU**2
    return Law(alpha, 4 * GAMMA**4 * both**2 / (TAU**2 * heads), linear_rate(output_projection))


def has_law(layer: Layer, law: Law, form: Expr, tokens: int = 2) -> bool:
    """Return whether a form of V has the drift and quadratic variation of a law, for all V."""
    ito = Ito.of(derive(layer, tokens))
    drift = ito.drift(form) - law.alpha * form**3
    variation = ito.covariation(form, form) - 2 * law.rate * form**2 - law.delta * form**4
    return bool(expand(drift) == 0 and expand(variation) == 0)


def _of_all_layers(
    holds: Callable[[ShapedAttention, Law], bool],
    stated: Callable[[Any, bool], Law] = two_tokens,
    block: type[ShapedAttention] = ShapedAttention,
) -> list[bool]:
    return [holds(block(heads=h, output_projection=w), stated(h, w)) for h, w in LAYERS]


def explosion_two_tokens() -> Finding:
    return proven(*_of_all_layers(lambda layer, law: has_law(layer, law, GAP)))


def repeats(copies: int, layer: Layer) -> bool:
    """Return whether two tokens, each repeated, have the limit of the two tokens."""
    many, few = derive(layer, 2 * copies), derive(layer, 2)
    pairs = [(a // copies, b // copies) for a, b in vech_pairs(2 * copies)]
    v = many.algebra.v.to_list()
    merged = [(v[a][b], v[a // copies][b // copies]) for a, b in vech_pairs(2 * copies)]
    cases = (
        (many.drift_polynomials, few.drift_polynomials, [a // copies for a in range(2 * copies)]),
        (many.diffusion_polynomials, few.diffusion_polynomials, [*map(vech_pairs(2).index, pairs)]),
    )
    return all(
        ours.applyfunc(lambda entry: entry.compose(merged))
        == many.algebra.transfer(theirs).extract(of, of)
        for ours, theirs, of in cases
    )


def explosion_two_groups() -> Finding:
    first, second = symbols("y_1 y_2", real=True)
    copies = Symbol("g", positive=True)
    weight = copies * exp(first) / (copies * exp(first) + copies * exp(second))
    return proven(
        vanishes((weight - exp(first) / (exp(first) + exp(second))).rewrite(exp)),
        vanishes(copies / (2 * copies) - HALF),
        repeats(2, ShapedAttention()),
        repeats(2, ShapedAttention(heads=2, output_projection=True)),
    )


def live_token_holds(tokens: int, live: int, mask: str | None, value: Rational) -> bool:
    """Return whether v e_j e_j^T keeps its form under attention, and v has the stated law."""
    limit = derive(ShapedAttention(mask=mask), tokens, at_live_token(tokens, live, value))
    drift, diffusion = limit.drift, limit.diffusion
    law = one_live_token(Rational(1, tokens if mask is None else live + 1), 1)
    index = vech_pairs(tokens).index((live, live))
    drift[live, live] -= law.alpha * value**3
    diffusion[index, index] -= 2 * law.rate * value**2 + law.delta * value**4
    return bool(drift.expand().is_zero_matrix and diffusion.expand().is_zero_matrix)


def explosion_live_token() -> Finding:
    cases = [(m, j, mask) for m in (2, 3, 4) for mask in (None, "causal") for j in range(m)]
    return proven(
        *_of_all_layers(lambda layer, law: has_law(layer, law, ONE, 1),
                        lambda h, w: one_live_token(SHARE, h, w), LiveToken),
        *[live_token_holds(*case, Rational(3)) for case in cases],
    )  # fmt: skip


def explosion_live_token_mlp() -> Finding:
    facts = []
    for m, derived in ((m, derive(MLP, m)) for m in (2, 3)):
        v, ring = derived.algebra.v_expressions, derived.algebra.ring
        places = [ring.symbols.index(relu_function(v, a, b)) for a, b in vech_pairs(m) if a != b]
        entries = [e for row in derived.drift_polynomials.to_list() for e in row]
        live = dict(zip(vech(v), vech(at_live_token(m, 0, v[0, 0])), strict=True))
        diffusion = derived.diffusion.xreplace(live)
        diffusion[0, 0] -= 4 * MLP_GAMMA**2 * v[0, 0] ** 2
        facts.append(all(any(powers[place] for place in places) for e in entries for powers in e))
        facts.append(diffusion.expand().is_zero_matrix)
    return proven(*facts)


def rest_of_two_tokens(layer: Layer, law: Law) -> bool:
    """Return whether beta and d = det V / (u/2) have the stated law given u."""
    # In the entries along w and e all denominators are powers of x = V_ww = u/2.
    x, y, z = symbols("x y z", positive=True)
    ito, old = Ito.of(derive(layer, 2)).turned(
        {x: GAP / 2, y: (PAIR[0, 0] - PAIR[1, 1]) / 2, z: sum(PAIR) / 2}
    )
    stated = (PAIR[0, 0] - PAIR[1, 1]) / GAP, 2 * det(PAIR) / GAP, GAP
    beta, d, u = (cancel(function.xreplace(old)) for function in stated)
    facts = (
        ito.drift(d) - d * ((law.alpha - law.delta / 4) * u**2 - law.rate),
        ito.covariation(d, d) - 2 * law.rate * d**2,
        ito.drift(beta),
        ito.covariation(beta, beta) - 2 * d / u * (law.rate + law.delta * u**2 / 4),
        *(ito.covariation(*pair) for pair in ((u, d), (u, beta), (d, beta))),
    )
    return all(expand(fact) == 0 for fact in facts)


def explosion_rest_of_v() -> Finding:
    return proven(*_of_all_layers(rest_of_two_tokens))


def determinant_holds(layer: Layer, law: Law) -> bool:
    """Return whether the derived drift of det V for two tokens is the stated one."""
    rate = (2 * law.alpha - law.delta / 4) * GAP**2 - law.rate
    return bool(expand(Ito.of(derive(layer, 2)).drift(det(PAIR)) - det(PAIR) * rate) == 0)


def explosion_determinant() -> Finding:
    return proven(*_of_all_layers(determinant_holds))


# The explosion of du = (alpha u^3 - mu u) dt + sqrt(2 k u^2 + delta u^4) dB: identities of rational
# functions of u, the parameters, and symbols for functions that are known by their equation.

U, K, DELTA = symbols("u k delta", positive=True)
RATIO, PULL = symbols("a r", positive=True)
"""a = alpha / delta and r = mu / (2 k)."""

DRIFT = RATIO * DELTA * U**3 - 2 * K * PULL * U
VARIATION = 2 * K * U**2 + DELTA * U**4
PLACE = DELTA * U**2 / (2 * K + DELTA * U**2)
"""Z, which maps u from 0 to infinity to 0 to 1."""


def generator(function: Expr) -> Expr:
    """Return the drift of f(u)."""
    return DRIFT * diff(function, U) + VARIATION * diff(function, U, 2) / 2


def scale_slope(pull: Expr = PULL) -> Expr:
    """Return (log s')' for the stated scale density s' = u^(2r) (2k + delta u^2)^(-a-r)."""
    return 2 * pull / U - (RATIO + pull) * 2 * DELTA * U / (2 * K + DELTA * U**2)


def solves_scale_equation(slope: Expr) -> bool:
    """Return whether s with (log s')' = `slope` has no drift."""
    return vanishes(DRIFT + VARIATION * slope / 2)


def beta_slope(first: Expr, second: Expr) -> Expr:
    """Return the logarithmic derivative in u of the density of I_Z(first, second)."""
    step = diff(PLACE, U)
    return (first - 1) * step / PLACE - (second - 1) * step / (1 - PLACE) + diff(PLACE, U, 2) / step


def student_slope(degrees: Expr) -> Expr:
    """Return the same for 2 F_nu(sqrt(nu delta / (2 k)) u) - 1, with the density of Student's t."""
    t, stretch = Symbol("t", positive=True), sqrt(degrees * DELTA / (2 * K))
    log_density = -(degrees + 1) / 2 * log(1 + t**2 / degrees)
    return stretch * diff(log_density, t).subs(t, stretch * U)


def explosion_scale() -> Finding:
    return proven(solves_scale_equation(scale_slope()), limit(U * scale_slope(), U, 0) == 2 * PULL)


def explosion_probability() -> Finding:
    return proven(
        vanishes(beta_slope(HALF + PULL, RATIO - HALF) - scale_slope()),
        limit(PLACE, U, 0) == 0,
        limit(PLACE, U, oo) == 1,
        diff(PLACE, U).factor().is_positive,
    )


def explosion_student() -> Finding:
    heads = Symbol("H", positive=True)
    return proven(
        vanishes(student_slope(2 * RATIO - 1) - scale_slope(Integer(0))),
        vanishes(2 * two_tokens(heads).ratio - 1 - (heads / (2 * GAMMA**2) - 1)),
    )


def explosion_feller() -> Finding:
    # Feller's integrand (s(end) - s(u)) 2 / (sigma^2 s') times u^3 at infinity and times u at 0, by
    # L'Hopital's rule for s(end) - s(u) and sigma^2 s' u^p / 2: s' cancels in the derivatives.
    at_infinity, at_zero = (
        limit(factor(sign / (diff(bottom, U) + bottom * scale_slope())), U, end)
        for bottom, end, sign in ((VARIATION / U**3 / 2, oo, -1), (VARIATION / U / 2, 0, 1))
    )
    return proven(
        limit(factor(U * scale_slope()), U, oo) == -2 * RATIO,
        vanishes(at_infinity - 2 / (DELTA * (2 * RATIO - 1))),
        vanishes(at_zero - 1 / (K * (1 + 2 * PULL))),
    )


def explosion_threshold() -> Finding:
    heads = Symbol("H", positive=True)
    excess = two_tokens(heads).ratio - HALF
    return proven(vanishes(excess - (heads - 2 * GAMMA**2) / (4 * GAMMA**2)))


def solves_killed_equation(first: Expr, second: Expr, third: Expr, kappa: Symbol) -> bool:
    """Return whether psi = Z^kappa 2F1(first, second; third; Z) has L psi = q psi.

    q = 4 k (kappa^2 - (1/2 + r) kappa), and F'' is eliminated by the hypergeometric equation.
    """
    z, (f, slope) = PLACE, symbols("F F_1")
    curvature = (first * second * f - (third - (first + second + 1) * z) * slope) / (z * (1 - z))
    rate = 4 * K * (kappa**2 - (HALF + PULL) * kappa)
    second_order = kappa * (kappa - 1) * f / z**2 + 2 * kappa * slope / z + curvature
    variation = VARIATION * diff(z, U) ** 2
    moved = generator(z) * (kappa * f / z + slope) + variation / 2 * second_order
    return vanishes(moved - rate * f)


def explosion_time() -> Finding:
    kappa, q = symbols("kappa q", positive=True)
    second, third = kappa + 1 - RATIO - PULL, 2 * kappa + HALF - PULL
    root = (HALF + PULL + sqrt((HALF + PULL) ** 2 + q / K)) / 2
    return proven(
        solves_killed_equation(kappa, second, third, kappa),
        vanishes((4 * K * (root**2 - (HALF + PULL) * root) - q).expand()),
        vanishes(third - kappa - second - (RATIO - HALF)),
        vanishes(third - kappa - (kappa + HALF - PULL)),
        vanishes(third - second - (kappa + RATIO - HALF)),
        vanishes(second.subs(kappa, HALF + PULL) - (1 - (RATIO - HALF))),
        vanishes(third.subs(kappa, HALF + PULL) - (HALF + PULL + 1)),
    )


def explosion_lamperti() -> Finding:
    x = asinh(sqrt(2 * K / DELTA) / U)
    # sinh X = sqrt(2 k / delta) / u gives coth X = cosh X / sinh X with cosh^2 = 1 + sinh^2.
    sinh_x = sqrt(2 * K / (DELTA * U**2))
    coth_x = sqrt(1 + sinh_x**2) / sinh_x
    stated = 2 * K * ((1 - RATIO) * coth_x + (RATIO - HALF + PULL) / coth_x)
    variation = VARIATION * diff(x, U) ** 2
    return proven(simplify(generator(x) - stated) == 0, simplify(variation - 2 * K) == 0)


def explosion_pearson() -> Finding:
    q = 2 * K / (DELTA * U**2)
    return proven(
        vanishes(generator(q) - 2 * K * (3 - 2 * RATIO + (3 + 2 * PULL) * q)),
        vanishes(VARIATION * diff(q, U) ** 2 - 8 * K * q * (1 + q)),
    )


def explosion_inverse_square() -> Finding:
    time, growth = Symbol("T", positive=True), 6 * K + 4 * K * PULL
    source = DELTA * (3 - 2 * RATIO)
    mean = U**-2 * exp(growth * time) + source * (exp(growth * time) - 1) / growth
    return proven(
        vanishes(generator(U**-2) - source - growth / U**2),
        simplify(diff(mean, time) - source - growth * mean) == 0,
        simplify(mean.subs(time, 0) - U**-2) == 0,
    )


def explosion_mean_log() -> Finding:
    # At a = 1/2, mu = 0 the mean G = E log u_tau at an exponential time tau of rate 2 k solves
    # 2 k G - L G = 2 k log u. So do log u - 1/2 and log u - 1/2 - (y coth y - 1); infinity is an
    # entrance boundary, so the mean is bounded. y - tanh y, 0 at 0, has the derivative tanh^2 y.
    y, value = Symbol("y", positive=True), sqrt(DELTA / (2 * K)) * U
    naive = log(U) - HALF
    stated = naive - (asinh(value) * sqrt(1 + value**2) / value - 1)
    defects = [2 * K * (mean - log(U)) - generator(mean) for mean in (naive, stated)]
    both = all(simplify(e.subs({RATIO: HALF, PULL: 0})) == 0 for e in defects)
    both = both and simplify(diff(y - tanh(y), y) - tanh(y) ** 2) == 0
    ends = [limit(mean.subs({K: HALF, DELTA: 1}), U, oo) for mean in (naive, stated)]
    return refuted(both and ends[0] == oo, bool(both and ends[1].is_finite))


# Explosion where u solves no closed equation: bounds, causal masks, more tokens.

SHAPE = (Symbol("c_plus", real=True) - Symbol("c_minus", real=True)) ** 2
BOUND_ON_PULL = MLP_GAMMA**2 * SHAPE / 4
"""The largest mu of the bounds with an MLP."""


def pull_is_bounded(largest: Expr) -> bool:
    """Return whether 0 <= 2 gamma_mlp^2 nu(rho) sqrt(V_00 V_11) <= `largest` u.

    nu = SHAPE f / (2 pi) with f convex, f(1) = 0 and f'(1) = 0, so f lies between 0 and its chord
    on [-1, 1]; the chord gives a multiple of (1 - rho) sqrt(V_00 V_11), and u - 2 (1 - rho)
    sqrt(V_00 V_11) is a square. At rho = -1 and equal norms the chord is all of `largest` u.
    """
    rho, (first, second) = Symbol("rho", real=True), symbols("x y", positive=True)
    at = {PAIR[0, 0]: first**2, PAIR[1, 1]: second**2, PAIR[0, 1]: rho * first * second}
    f = sqrt(1 - rho**2) - rho * acos(rho)
    chord = 2 * MLP_GAMMA**2 * SHAPE / (2 * pi) * first * second * pi / 2 * (1 - rho)
    return bool(
        simplify(relu_function(PAIR, 1, 0).subs(at) - first * second * f / (2 * pi)) == 0
        and simplify(diff(f, rho, 2) - 1 / sqrt(1 - rho**2)) == 0
        and (f.subs(rho, 1), diff(f, rho).subs(rho, 1), f.subs(rho, -1)) == (0, 0, pi)
        and expand(largest * GAP.subs(at) - chord - largest * (first - second) ** 2) == 0
    )


def explosion_mlp_bounds() -> Finding:
    ito, law = Ito.of(derive([ShapedAttention(), MLP], 2)), two_tokens(1)
    pull = 2 * MLP_GAMMA**2 * SHAPE * relu_function(PAIR, 1, 0)
    variation = 2 * (law.rate + 2 * MLP_GAMMA**2) * GAP**2 + law.delta * GAP**4
    return proven(
        expand(ito.drift(GAP) - law.alpha * GAP**3 + pull) == 0,
        expand(ito.covariation(GAP, GAP) - variation) == 0,
        pull_is_bounded(BOUND_ON_PULL),
    )


def _centring(tokens: int) -> Matrix:
    return eye(tokens) - ones(tokens, tokens) / tokens


def trace_formulas_hold(tokens: int) -> bool:
    """Return whether tr V has the drift (gamma^2/tau_0^2) (|P|^2 tr V / m^2 + q^T V s / m).

    And the quadratic variation 2 k |V|^2 + 4 (gamma^4 / tau_0^2) tr(V^2 P V) / m^2, for all V.
    """
    ito, v = Ito.of(derive(ShapedAttention(), tokens)), symbolic_covariance(tokens)
    p = _centring(tokens) * v * _centring(tokens)
    spread = Matrix([p[a, a] - p.trace() / tokens for a in range(tokens)])
    cubic = (p * p).trace() * v.trace() / tokens**2 + (v.diagonal() * v * spread)[0] / tokens
    quartic = GAMMA**4 / TAU**2 * 4 * (v * v * p * v).trace() / tokens**2
    drift = ito.drift(v.trace()) - GAMMA**2 / TAU**2 * cubic
    variation = ito.covariation(v.trace(), v.trace()) - 2 * linear_rate() * (v * v).trace()
    return bool(expand(drift) == 0 and expand(variation - quartic) == 0)


def norms_are_ordered(tokens: int) -> bool:
    """Return whether the gaps of three inequalities are sums that are >= 0 if V is semidefinite.

    m |V|^2 - (tr V)^2, tr V - tr P, and (tr P)^2 - |P|^2 for any semidefinite P.
    """
    v = symbolic_covariance(tokens)
    trace, norm, below = v.trace(), (v * v).trace(), [x for x in vech_pairs(tokens) if x[0] != x[1]]
    squares = sum((v[a, a] - v[b, b]) ** 2 + 2 * tokens * v[a, b] ** 2 for a, b in below)
    minors = sum(2 * (v[a, a] * v[b, b] - v[a, b] ** 2) for a, b in below)
    centred = (_centring(tokens) * v * _centring(tokens)).trace()
    gaps = tokens * norm - trace**2 - squares, trace - centred - sum(v) / tokens
    return all(expand(gap) == 0 for gap in (*gaps, trace**2 - norm - minors))


def drift_is_below(growth: Expr, v: Matrix) -> bool:
    """Return whether tr b <= growth (gamma^2/tau_0^2) (tr V)^3 at some rational V."""
    drift = derive(ShapedAttention(), v.rows, v).drift.trace().subs({GAMMA: 1, TAU: 1})
    return bool(drift <= growth * v.trace() ** 3)


def erf_argument(tokens: Expr) -> Expr:
    """Return the argument of the bound erf divided by tr V_0."""
    return GAMMA / TAU * sqrt((tokens + 1) / (2 * K * tokens))


def is_concave_scale(argument: Expr, tokens: Expr) -> bool:
    """Return whether erf(argument y) has no drift at the extreme coefficients, and is concave.

    The extreme drift is (gamma^2/tau_0^2) ((m + 1)/m^2) y^3, the extreme variation 2 k y^2 / m.
    """
    y = Symbol("y", positive=True)
    first = exp(-((argument * y) ** 2))
    cubic = GAMMA**2 / TAU**2 * (tokens + 1) / tokens**2 * y**3
    drift = simplify((cubic * first + K * y**2 / tokens * diff(first, y)) / first)
    return bool(drift == 0 and simplify(-diff(first, y) / first).is_positive)


def explosion_erf_bound() -> Finding:
    m, sizes = Symbol("m", positive=True), (2, 3, 4)
    covariances = [rational_covariance(size, size) for size in sizes]
    covariances += [at_live_token(size, 0, Rational(1)) for size in sizes]
    return tested(
        *map(trace_formulas_hold, (2, 3)),
        *map(norms_are_ordered, sizes),
        *[drift_is_below(Rational(v.rows + 1, v.rows**2), v) for v in covariances],
        is_concave_scale(erf_argument(m), m),
        all(derive(MLP, size).drift[0, 0] == 0 for size in (2, 3)),
    )


def causal_equations_hold(heads: int) -> bool:
    """Return whether u, V_00, log u and u^(1 - 2a) under a causal mask are as stated, m = 2."""
    ito, law = Ito.of(derive(ShapedAttention(mask="causal", heads=heads), 2)), two_tokens(heads)
    first, second = PAIR[0, 0], PAIR[1, 1]
    drift, variation = ito.drift(GAP), ito.covariation(GAP, GAP)

    def power_drift(power: Expr) -> Expr:
        """Return the drift of u^p over p u^p; at p = 0 that of log u."""
        return drift / GAP + (power - 1) * variation / (2 * GAP**2)

    surplus = (law.alpha - law.delta / 2) * second * GAP
    return (
        expand(drift - law.alpha * second * GAP**2) == 0
        and expand(variation - 2 * law.rate * GAP**2 - law.delta * second * GAP**3) == 0
        and expand(ito.drift(first)) == 0
        and expand(ito.covariation(first, first) - 2 * law.rate * first**2) == 0
        and vanishes(power_drift(Integer(0)) + law.rate - surplus)
        and vanishes(power_drift(1 - 2 * law.ratio) + 2 * law.ratio * law.rate)
    )


def explosion_causal() -> Finding:
    heads = Symbol("H", positive=True)
    law = two_tokens(heads)
    excess = (law.delta / 2 - law.alpha) * 16 * TAU**2 * heads / GAMMA**2
    return proven(*map(causal_equations_hold, (1, 2)), expand(excess - (2 * GAMMA**2 - heads)) == 0)


def leading_block_is_autonomous(tokens: int, mask: str | None) -> bool:
    """Return whether the first tokens have the limit that they have without the last one."""
    fewer, more = (derive(ShapedAttention(mask=mask), m) for m in (tokens - 1, tokens))
    pairs = (
        (more.drift_polynomials, fewer.drift_polynomials),
        (more.diffusion_polynomials, fewer.diffusion_polynomials),
    )
    return all(
        ours.extract(*map(range, theirs.shape)) == more.algebra.transfer(theirs)
        for ours, theirs in pairs
    )


def explosion_leading_block() -> Finding:
    causal = [leading_block_is_autonomous(tokens, "causal") for tokens in (3, 4)]
    return proven(*causal, not leading_block_is_autonomous(3, None))


def explosion_threshold_many_tokens() -> Finding:
    extra, slack, heads_above = symbols("extra slack heads_above", nonnegative=True)
    m, heads = 3 + extra, 1 + heads_above
    stated = heads * (m**2 - m - 1) / (4 * GAMMA**2 * (m - 1))
    margin = simplify((stated - HALF) * 4 * GAMMA**2 * (m - 1))
    example = one_live_token(Rational(1, 3), 1).ratio.subs(GAMMA, 1)
    return refuted(
        claim_fails=has_law(LiveToken(), one_live_token(SHARE, 1), ONE, 1)
        and example == Rational(5, 8),
        # gamma^2 = 1 - slack <= 1.
        correction_holds=vanishes(one_live_token(1 / m, heads).ratio - stated)
        and expand(margin.subs(GAMMA**2, 1 - slack)).is_positive,
    )


# Gaussian weights that are revealed by products from both sides, in the 2 x 2 case.
#
# W has independent N(0, s^2) entries. First a = P W is asked for, then W Q^T with a unit row Q that
# may depend on a. P' and Q' are P and Q turned by a right angle; what is left is r = P' W Q'^T.

S, ALPHA, BETA, B, R = symbols("s alpha beta b r")
A = Matrix([symbols("a_1 a_2")])
"""P W; b is P' W Q^T, and alpha and beta are the tangents of half the angles of P and Q."""


def turned(t: Expr) -> Matrix:
    """Return a unit row and the one at a right angle: every angle but pi, t = tan(angle / 2)."""
    return Matrix([[1 - t**2, 2 * t], [-2 * t, 1 - t**2]]) / (1 + t**2)


def conditional_law(rows: Expr, columns: Expr) -> tuple[Matrix, Matrix]:
    """Return mean, as a matrix on vec W, and covariance of vec W, row by row, given P W and W Q^T.

    The four answers are dependent, since P W Q^T is asked twice; one of them is left out.
    """
    p, q = turned(rows), turned(columns)
    asked = Matrix.vstack(kronecker_product(p[0, :], eye(2)), kronecker_product(p[1, :], q[0, :]))
    gain = asked.T * (asked * asked.T).applyfunc(cancel).inv()
    return gain * asked, S**2 * (eye(4) - gain * asked)


def _is_zero(matrix: Matrix) -> bool:
    return all(map(vanishes, matrix))


def revealed_from_both_sides() -> Finding:
    p, q = turned(ALPHA), turned(BETA)
    mean, covariance = conditional_law(ALPHA, BETA)
    rest = kronecker_product(p[1, :], q[1, :])
    return proven(
        _is_zero(mean - eye(4) + rest.T * rest),
        _is_zero(covariance - S**2 * rest.T * rest),
        vanishes((rest * covariance * rest.T)[0] - S**2),
    )


def weights(columns: Expr) -> Matrix:
    """Return W as a function of a, b and r: P^T a + P'^T (b Q + r Q')."""
    p, q = turned(ALPHA), turned(columns)
    return p[0, :].T * A + p[1, :].T * (B * q[0, :] + R * q[1, :])


def revealed_by_answers() -> Finding:
    w, variables = weights(BETA).reshape(4, 1), [*A, B, R]
    # The angle of Q may depend on a: beta_1 and beta_2 are the derivatives.
    by_angle = diff(w, BETA) * Matrix([[*symbols("beta_1 beta_2"), 0, 0]])
    jacobian = w.jacobian(variables) + by_angle
    squares = sum(entry**2 for entry in w) - sum(x**2 for x in variables)
    return proven(jacobian.to_DM().det() ** 2 == 1, vanishes(squares))


def revealed_image() -> Finding:
    # After W Q^T, the question P W: along Q it is known, and the rest is that of a new vector.
    p, q, w = turned(ALPHA), turned(BETA), weights(BETA)
    fresh = Matrix([symbols("g_1 g_2")])
    image = (p[1, :] * w * q[0, :].T)[0] * q[0, :] + fresh * (eye(2) - q[0, :].T * q[0, :])
    return proven(
        _is_zero(p[1, :] * w - B * q[0, :] - R * q[1, :]),
        _is_zero(image - B * q[0, :] - (fresh * q[1, :].T)[0] * q[1, :]),
        vanishes((q[1, :] * q[1, :].T)[0] - 1),
    )
