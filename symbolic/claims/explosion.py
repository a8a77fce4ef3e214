"""Claims on the law of the explosion time, on its bounds, and on lazily revealed weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sympy import (
    Expr,
    Function,
    Integer,
    Matrix,
    Rational,
    Symbol,
    acos,
    asinh,
    cancel,
    cos,
    det,
    diff,
    exp,
    expand,
    eye,
    factor,
    factorial,
    kronecker_product,
    limit,
    log,
    ones,
    oo,
    pi,
    simplify,
    sin,
    sqrt,
    symbols,
    tanh,
    zeros,
)

from symbolic.algebra import (
    Algebra,
    Poly,
    rational_covariance,
    symbolic_covariance,
    vech,
    vech_pairs,
)
from symbolic.blocks import ShapedAttention, ShapedMLP, relu_function
from symbolic.claims.ledger import Finding, proven, refuted, tested
from symbolic.limit import Layer, Limit, derive
from symbolic.names import GAMMA, TAU
from symbolic.series import HALF, Series

# Ito's formula for functions of V, with drift and diffusion as the engine derives them.


class Ito:
    """Drifts and covariations of functions of V, where V solves a derived limit.

    Parameters
    ----------
    limit
        A limit derived at a symbolic V.
    """

    def __init__(self, limit: Limit) -> None:
        self.entries = vech(limit.algebra.v_expressions)
        self._drift = vech(limit.drift)
        self._diffusion = limit.diffusion

    def drift(self, function: Expr) -> Expr:
        """Return the drift of f(V): sum of b_i d_i f and of Sigma_ij d_i d_j f / 2."""
        slopes = [diff(function, entry) for entry in self.entries]
        total = sum(b * slope for b, slope in zip(self._drift, slopes, strict=True))
        for i, slope in enumerate(slopes):
            for j, entry in enumerate(self.entries):
                total += self._diffusion[i, j] * diff(slope, entry) / 2
        return total

    def covariation(self, first: Expr, second: Expr) -> Expr:
        """Return d[f(V), g(V)] / dt: the sum of Sigma_ij d_i f d_j g."""
        left = [diff(first, entry) for entry in self.entries]
        right = [diff(second, entry) for entry in self.entries]
        return sum(
            self._diffusion[i, j] * x * y for i, x in enumerate(left) for j, y in enumerate(right)
        )


def vanishes(expression: Expr) -> bool:
    """Return whether a rational function is zero."""
    return bool(cancel(expression) == 0)


# Attention on tokens that are all zero but one: a block of one row, for any number of tokens.

SHARE = Symbol("p", positive=True)
"""p, the weight of the live token in its row at score 0: 1 / (number of tokens that it sees)."""


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
        total = Series({0: algebra.identity}, order)
        power = algebra.identity
        for degree in range(1, 2 * order + 1):
            power = power * score
            coefficient = expand(diff(logistic, x, degree).subs(x, 0).simplify())
            term = Series({degree * HALF: power}, order)
            total += term * algebra[coefficient / factorial(degree)]
        return total


def at_live_token(tokens: int, live: int, value: Expr | Rational) -> Matrix:
    """Return v e_j e_j^T, with j = `live` counted from 0."""
    return Matrix(tokens, tokens, lambda a, b: value if a == b == live else 0)


# Claims on the scalar equations inside the limit, which decide whether V explodes.
#
# du = (alpha u^3 - mu u) dt + sqrt(2 k u^2 + delta u^4) dB for a quadratic form u of V. All drifts
# and diffusions here are derived from the recursion of a block.

MLP_GAMMA = Symbol("gamma_mlp", positive=True)
MLP = ShapedMLP(gamma="gamma_mlp")
PAIR = symbolic_covariance(2)
GAP = PAIR[0, 0] - 2 * PAIR[0, 1] + PAIR[1, 1]
"""u = V_00 - 2 V_01 + V_11 of two tokens."""

LAYERS = ((1, False), (2, False), (3, False), (2, True))
"""Numbers of heads, with and without an output projection. The engine makes the diffusion affine in
1/H, so equality at two values of H is equality for all."""


@dataclass(frozen=True)
class Law:
    """Coefficients of du = alpha u^3 dt + sqrt(2 k u^2 + delta u^4) dB."""

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
    return Law(
        GAMMA**2 / (16 * TAU**2), GAMMA**4 / (4 * TAU**2 * heads), linear_rate(output_projection)
    )


def one_live_token(share: Any, heads: Any, output_projection: bool = False) -> Law:
    """Return the stated coefficients for u = V_jj at V = V_jj e_j e_j^T; p = `share`."""
    rest = 1 - share
    return Law(
        GAMMA**2 * share * rest * (share * rest + rest - share) / TAU**2,
        4 * GAMMA**4 * share**2 * rest**2 / (TAU**2 * heads),
        linear_rate(output_projection),
    )


def has_law(layer: Layer, law: Law, form: Expr, tokens: int = 2) -> bool:
    """Return whether a form of V has the drift and quadratic variation of a law, for all V."""
    ito = Ito(derive(layer, tokens))
    drift = ito.drift(form) - law.alpha * form**3
    variation = ito.covariation(form, form) - 2 * law.rate * form**2 - law.delta * form**4
    return bool(expand(drift) == 0 and expand(variation) == 0)


def explosion_two_tokens() -> Finding:
    return proven(
        *[
            has_law(ShapedAttention(heads=h, output_projection=w), two_tokens(h, w), GAP)
            for h, w in LAYERS
        ]
    )


def repeats(copies: int, layer: Layer) -> bool:
    """Return whether two tokens, each repeated, have the limit of the two tokens."""
    many, few = derive(layer, 2 * copies), derive(layer, 2)
    pairs = vech_pairs(2 * copies)
    of = {pair: vech_pairs(2).index((pair[0] // copies, pair[1] // copies)) for pair in pairs}
    first = many.algebra.ring.ngens - len(pairs)

    def merged(polynomial: Poly) -> Poly:
        """Rename the entries of V by groups; the generators before them are parameters."""
        total = few.algebra.ring.zero
        for exponents, coefficient in polynomial.items():
            powers = [*exponents[:first], 0, 0, 0]
            for pair, power in zip(pairs, exponents[first:], strict=True):
                powers[first + of[pair]] += power
            total += few.algebra.ring.from_dict({tuple(powers): coefficient})
        return total

    return all(
        merged(many.drift_polynomials[pair].element)
        == few.drift_polynomials[vech_pairs(2)[of[pair]]].element
        for pair in pairs
    ) and all(
        merged(many.diffusion_polynomials[i, j].element)
        == few.diffusion_polynomials[of[x], of[y]].element
        for i, x in enumerate(pairs)
        for j, y in enumerate(pairs)
    )


def explosion_two_groups() -> Finding:
    first, second = symbols("y_1 y_2", real=True)
    copies = Symbol("g", positive=True)
    weight = copies * exp(first) / (copies * exp(first) + copies * exp(second))
    return proven(
        vanishes((weight - exp(first) / (exp(first) + exp(second))).rewrite(exp)),
        vanishes(copies / (2 * copies) - Rational(1, 2)),
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
    value = symbolic_covariance(1)[0, 0]
    return proven(
        *[
            has_law(LiveToken(heads=h, output_projection=w), one_live_token(SHARE, h, w), value, 1)
            for h, w in LAYERS
        ],
        *[
            live_token_holds(m, j, mask, Rational(3))
            for m in (2, 3, 4)
            for mask in (None, "causal")
            for j in range(m)
        ],
    )


def explosion_live_token_mlp() -> Finding:
    facts = []
    for m in (2, 3):
        limit = derive(MLP, m)
        v = limit.algebra.v_expressions
        functions = [relu_function(v, a, b) for a in range(m) for b in range(a)]
        places = [limit.algebra.ring.symbols.index(function) for function in functions]
        monomials = [
            powers for row in limit.drift_polynomials.to_list() for e in row for powers in e
        ]
        live = dict(zip(vech(v), vech(at_live_token(m, 0, v[0, 0])), strict=True))
        diffusion = limit.diffusion.xreplace(live)
        diffusion[0, 0] -= 4 * MLP_GAMMA**2 * v[0, 0] ** 2
        facts += [
            all(any(powers[place] for place in places) for powers in monomials),
            diffusion.expand().is_zero_matrix,
        ]
    return proven(*facts)


def rest_of_two_tokens(layer: Layer, law: Law) -> bool:
    """Return whether beta and d = det V / (u/2) have the stated law given u."""
    ito = Ito(derive(layer, 2))
    beta, d = (PAIR[0, 0] - PAIR[1, 1]) / GAP, 2 * det(PAIR) / GAP
    # Written in the entries along w and e, all denominators are powers of x = V_ww = u/2.
    x, y, z = symbols("x y z", positive=True)
    turned = {PAIR[0, 0]: (x + z) / 2 + y, PAIR[1, 1]: (x + z) / 2 - y, PAIR[0, 1]: (z - x) / 2}
    u, rest = 2 * x, z - y**2 / x
    facts = (
        (ito.drift(d), rest * ((law.alpha - law.delta / 4) * u**2 - law.rate)),
        (ito.covariation(d, d), 2 * law.rate * rest**2),
        (ito.drift(beta), 0),
        (ito.covariation(beta, beta), 2 * rest / u * (law.rate + law.delta * u**2 / 4)),
        (ito.covariation(GAP, d), 0),
        (ito.covariation(GAP, beta), 0),
        (ito.covariation(d, beta), 0),
    )
    return all(expand(derived.xreplace(turned) - stated) == 0 for derived, stated in facts)


def explosion_rest_of_v() -> Finding:
    return proven(
        *[
            rest_of_two_tokens(ShapedAttention(heads=h, output_projection=w), two_tokens(h, w))
            for h, w in ((1, False), (2, False), (2, True))
        ]
    )


def determinant_drift(layer: Layer, law: Law) -> Expr:
    """Return the derived drift of det V for two tokens, minus the stated one."""
    drift = Ito(derive(layer, 2)).drift(det(PAIR))
    return expand(drift - det(PAIR) * ((2 * law.alpha - law.delta / 4) * GAP**2 - law.rate))


def explosion_determinant() -> Finding:
    return proven(
        *[
            determinant_drift(ShapedAttention(heads=h, output_projection=w), two_tokens(h, w)) == 0
            for h, w in ((1, False), (2, False), (2, True))
        ]
    )


# Claims on the explosion of du = (alpha u^3 - mu u) dt + sqrt(2 k u^2 + delta u^4) dB.
#
# All are identities of rational functions of u, the parameters, and symbols for functions that are
# known by their equation. a = alpha / delta, r = mu / (2 k), Z = delta u^2 / (2 k + delta u^2).

U, K, DELTA = symbols("u k delta", positive=True)
RATIO, PULL = symbols("a r", positive=True)
"""a and r."""

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
    t = Symbol("t", positive=True)
    log_density = -(degrees + 1) / 2 * log(1 + t**2 / degrees)
    stretch = sqrt(degrees * DELTA / (2 * K))
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
    degrees = heads / (2 * GAMMA**2) - 1
    return proven(
        vanishes(student_slope(2 * RATIO - 1) - scale_slope(Integer(0))),
        vanishes(2 * two_tokens(heads).ratio - 1 - degrees),
    )


def speed_limits() -> tuple[Expr, Expr]:
    """Return the limits of Feller's integrand times u^3 at infinity and times u at 0.

    The integrand is (s(end) - s(u)) 2 / (sigma^2 s'). L'Hopital's rule with the quotient of
    s(end) - s(u) and sigma^2 s' u^p / 2 needs the derivatives alone, in which s' cancels.
    """
    ends = []
    for power, end, sign in ((-3, oo, -1), (-1, 0, 1)):
        bottom = VARIATION * U**power / 2
        slope = diff(bottom, U) + bottom * scale_slope()
        ends.append(factor(limit(factor(sign / slope), U, end)))
    return ends[0], ends[1]


def explosion_feller() -> Finding:
    at_infinity, at_zero = speed_limits()
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

    q = 4 k (kappa^2 - (1/2 + r) kappa), which is what kappa solves. F and F' are symbols, and F''
    is eliminated by the hypergeometric equation.
    """
    f, slope = symbols("F F_1")
    z = PLACE
    curvature = (first * second * f - (third - (first + second + 1) * z) * slope) / (z * (1 - z))
    drift, variation = generator(z), VARIATION * diff(z, U) ** 2
    rate = 4 * K * (kappa**2 - (HALF + PULL) * kappa)
    return vanishes(
        drift * (kappa * f / z + slope)
        + variation / 2 * (kappa * (kappa - 1) * f / z**2 + 2 * kappa * slope / z + curvature)
        - rate * f
    )


def explosion_time() -> Finding:
    kappa, q = symbols("kappa q", positive=True)
    second, third = kappa + 1 - RATIO - PULL, 2 * kappa + HALF - PULL
    root = (HALF + PULL + sqrt((HALF + PULL) ** 2 + q / K)) / 2
    at_rest = {kappa: HALF + PULL}
    return proven(
        solves_killed_equation(kappa, second, third, kappa),
        vanishes((4 * K * (root**2 - (HALF + PULL) * root) - q).expand()),
        vanishes(third - kappa - second - (RATIO - HALF)),
        vanishes(third - kappa - (kappa + HALF - PULL)),
        vanishes(third - second - (kappa + RATIO - HALF)),
        vanishes(second.subs(at_rest) - (1 - (RATIO - HALF))),
        vanishes(third.subs(at_rest) - (HALF + PULL + 1)),
    )


# Claims on the coordinates X = arcsinh(sqrt(2 k / delta) / u) and Q = sinh^2 X, and on means of u.
#
# The equation of u and the symbols are those of `explosion_law`.


def explosion_lamperti() -> Finding:
    x = asinh(sqrt(2 * K / DELTA) / U)
    # sinh X = sqrt(2 k / delta) / u gives coth X = cosh X / sinh X with cosh^2 = 1 + sinh^2.
    squared = 2 * K / (DELTA * U**2)
    hyperbolic = sqrt(1 + squared)
    coth_x, tanh_x = hyperbolic / sqrt(squared), sqrt(squared) / hyperbolic
    stated = 2 * K * ((1 - RATIO) * coth_x + (RATIO - HALF + PULL) * tanh_x)
    return proven(
        simplify(generator(x) - stated) == 0, simplify(VARIATION * diff(x, U) ** 2 - 2 * K) == 0
    )


def pearson() -> tuple[Expr, Expr]:
    """Return drift and variation of Q = sinh^2 X = 2 k / (delta u^2), in the symbol Q."""
    q = Symbol("Q", positive=True)
    value = 2 * K / (DELTA * U**2)
    back = {U: sqrt(2 * K / (DELTA * q))}
    return (
        simplify(generator(value).subs(back)),
        simplify((VARIATION * diff(value, U) ** 2).subs(back)),
    )


def explosion_pearson() -> Finding:
    q = Symbol("Q", positive=True)
    drift, variation = pearson()
    return proven(
        vanishes(drift - 2 * K * (3 - 2 * RATIO + (3 + 2 * PULL) * q)),
        vanishes(variation - 8 * K * q * (1 + q)),
    )


def mean_solves(mean: Expr, time: Symbol) -> bool:
    """Return whether a mean of u^-2 solves the equation that Ito's formula gives it."""
    growth = 6 * K + 4 * K * PULL
    closed = vanishes(generator(U**-2) - DELTA * (3 - 2 * RATIO) - growth / U**2)
    equation = diff(mean, time) - DELTA * (3 - 2 * RATIO) - growth * mean
    return closed and simplify(equation) == 0 and simplify(mean.subs(time, 0) - U**-2) == 0


def explosion_inverse_square() -> Finding:
    time = Symbol("T", positive=True)
    growth = 6 * K + 4 * K * PULL
    grown = exp(growth * time)
    mean = U**-2 * grown + DELTA * (3 - 2 * RATIO) * (grown - 1) / growth
    return proven(mean_solves(mean, time))


def mean_log_defect() -> tuple[bool, bool]:
    """Return whether the naive mean of log u fails, and whether the stated mean is right.

    At a = 1/2, mu = 0 let y = arcsinh(sqrt(delta/(2k)) u) and D = y coth y - 1. G = E log u_tau at
    an independent exponential time tau of rate 2 k solves 2 k G - L G = 2 k log u. Both
    log u - 1/2 and log u - 1/2 - D do; the mean is the one that stays bounded as u grows, because
    infinity is an entrance boundary.
    """
    critical = {RATIO: HALF, PULL: 0}
    y = Symbol("y", positive=True)
    value = sqrt(DELTA / (2 * K)) * U
    defect = asinh(value) * sqrt(1 + value**2) / value - 1

    def residual(mean: Expr) -> Expr:
        return simplify(2 * K * (mean - log(U)) - generator(mean).subs(critical))

    naive, stated = log(U) - HALF, log(U) - HALF - defect
    solve = residual(naive) == 0 and residual(stated) == 0
    # y coth y > 1: y - tanh y is 0 at 0 and has the derivative tanh^2 y.
    positive = simplify(diff(y - tanh(y), y) - tanh(y) ** 2) == 0
    unit = {K: HALF, DELTA: 1}
    bounded = limit(stated.subs(unit), U, oo).is_finite
    unbounded = limit(naive.subs(unit), U, oo) == oo
    return bool(solve and unbounded and positive), bool(solve and positive and bounded)


def explosion_mean_log() -> Finding:
    fails, holds = mean_log_defect()
    return refuted(claim_fails=fails, correction_holds=holds)


# Claims on explosion where u has no equation of its own: bounds, causal masks, more tokens.

SHAPE = (Symbol("c_plus", real=True) - Symbol("c_minus", real=True)) ** 2
"""(c_+ - c_-)^2."""

BOUND_ON_PULL = MLP_GAMMA**2 * SHAPE / 4
"""The largest mu of the bounds with an MLP."""


def pull_is_bounded(largest: Expr) -> bool:
    """Return whether 0 <= 2 gamma_mlp^2 nu(rho) sqrt(V_00 V_11) <= `largest` u.

    nu = SHAPE f / (2 pi) with f convex, f(1) = 0 and f'(1) = 0, so f lies between 0 and its chord
    on [-1, 1]; the chord gives a multiple of (1 - rho) sqrt(V_00 V_11), and u - 2 (1 - rho)
    sqrt(V_00 V_11) is a square. Both bounds of f are attained at rho = 1 and rho = -1.
    """
    rho = Symbol("rho", real=True)
    first, second = symbols("x y", positive=True)
    at = {PAIR[0, 0]: first**2, PAIR[1, 1]: second**2, PAIR[0, 1]: rho * first * second}
    f = sqrt(1 - rho**2) - rho * acos(rho)
    same_function = simplify(relu_function(PAIR, 1, 0).subs(at) - first * second * f / (2 * pi))
    convex = simplify(diff(f, rho, 2) - 1 / sqrt(1 - rho**2)) == 0
    ends = f.subs(rho, 1) == 0 and diff(f, rho).subs(rho, 1) == 0 and f.subs(rho, -1) == pi
    chord = 2 * MLP_GAMMA**2 * SHAPE / (2 * pi) * first * second * pi / 2 * (1 - rho)
    gap = GAP.subs(at)
    # At rho = -1 and equal norms the chord is all of `largest` u, so no smaller constant will do.
    return bool(
        same_function == 0
        and convex
        and ends
        and expand(largest * gap - chord - largest * (first - second) ** 2) == 0
    )


def explosion_mlp_bounds() -> Finding:
    ito = Ito(derive([ShapedAttention(), MLP], 2))
    law = two_tokens(1)
    pull = 2 * MLP_GAMMA**2 * SHAPE * relu_function(PAIR, 1, 0)
    variation = 2 * (law.rate + 2 * MLP_GAMMA**2) * GAP**2 + law.delta * GAP**4
    return proven(
        expand(ito.drift(GAP) - law.alpha * GAP**3 + pull) == 0,
        expand(ito.covariation(GAP, GAP) - variation) == 0,
        pull_is_bounded(BOUND_ON_PULL),
    )


def trace_formulas_hold(tokens: int) -> bool:
    """Return whether tr V has the stated drift and quadratic variation, for all V.

    Drift (gamma^2/tau_0^2) (|P|^2 tr V / m^2 + q^T V s / m), variation 2 k |V|^2 + 4 (gamma^4 /
    tau_0^2) tr(V^2 P V) / m^2.
    """
    ito = Ito(derive(ShapedAttention(), tokens))
    v = symbolic_covariance(tokens)
    centring = eye(tokens) - ones(tokens, tokens) / tokens
    p = centring * v * centring
    spread = Matrix([p[a, a] - p.trace() / tokens for a in range(tokens)])
    diagonal = Matrix([v[a, a] for a in range(tokens)])
    cubic = (p * p).trace() * v.trace() / tokens**2 + (diagonal.T * v * spread)[0] / tokens
    quartic = 4 * (v * v * p * v).trace() / tokens**2
    rate = linear_rate()
    variation = 2 * rate * (v * v).trace() + GAMMA**4 / TAU**2 * quartic
    return bool(
        expand(ito.drift(v.trace()) - GAMMA**2 / TAU**2 * cubic) == 0
        and expand(ito.covariation(v.trace(), v.trace()) - variation) == 0
    )


def norms_are_ordered(tokens: int) -> bool:
    """Return whether the gaps of three inequalities are sums that are >= 0 if V is semidefinite.

    m |V|^2 - (tr V)^2, tr V - tr P, and (tr P)^2 - |P|^2 for any semidefinite P.
    """
    v = symbolic_covariance(tokens)
    below = [(a, b) for a, b in vech_pairs(tokens) if a != b]
    centring = eye(tokens) - ones(tokens, tokens) / tokens
    squares = sum((v[a, a] - v[b, b]) ** 2 + 2 * tokens * v[a, b] ** 2 for a, b in below)
    minors = sum(2 * (v[a, a] * v[b, b] - v[a, b] ** 2) for a, b in below)
    total = sum(v) / tokens
    norm = (v * v).trace()
    return bool(
        expand(tokens * norm - v.trace() ** 2 - squares) == 0
        and expand(v.trace() - (centring * v * centring).trace() - total) == 0
        and expand(v.trace() ** 2 - norm - minors) == 0
    )


def drift_is_below(growth: Expr, covariances: list[Matrix]) -> bool:
    """Return whether tr b <= growth (gamma^2/tau_0^2) (tr V)^3 at some rational V."""
    unit = {GAMMA: 1, TAU: 1}
    return all(
        bool(
            derive(ShapedAttention(), v.rows, v).drift.trace().subs(unit) <= growth * v.trace() ** 3
        )
        for v in covariances
    )


def erf_argument(tokens: Expr) -> Expr:
    """Return the argument of the bound erf divided by tr V_0."""
    return GAMMA / TAU * sqrt((tokens + 1) / (2 * Symbol("k", positive=True) * tokens))


def is_concave_scale(argument: Expr, tokens: Expr) -> bool:
    """Return whether erf(argument y) has no drift at the extreme coefficients, and is concave.

    The extreme drift is (gamma^2/tau_0^2) ((m + 1)/m^2) y^3, the extreme variation 2 k y^2 / m.
    """
    y, rate = symbols("y k", positive=True)
    first = exp(-((argument * y) ** 2))
    second = diff(first, y)
    cubic = GAMMA**2 / TAU**2 * (tokens + 1) / tokens**2 * y**3
    drift = simplify((cubic * first + rate * y**2 / tokens * second) / first)
    return bool(drift == 0 and simplify(-second / first).is_positive)


def explosion_erf_bound() -> Finding:
    m = Symbol("m", positive=True)
    covariances = [rational_covariance(size, size) for size in (2, 3, 4)] + [
        at_live_token(size, 0, Rational(1)) for size in (2, 3, 4)
    ]
    return tested(
        *[trace_formulas_hold(size) for size in (2, 3)],
        *[norms_are_ordered(size) for size in (2, 3, 4)],
        *[drift_is_below(Rational(v.rows + 1, v.rows**2), [v]) for v in covariances],
        is_concave_scale(erf_argument(m), m),
        all(derive(MLP, size).drift[0, 0] == 0 for size in (2, 3)),
    )


def causal_equations_hold(heads: int) -> bool:
    """Return whether u, V_00, log u and u^(1 - 2a) under a causal mask are as stated, m = 2."""
    ito = Ito(derive(ShapedAttention(mask="causal", heads=heads), 2))
    law = two_tokens(heads)
    first, second = PAIR[0, 0], PAIR[1, 1]
    variation = 2 * law.rate * GAP**2 + law.delta * second * GAP**3

    def power_drift(power: Expr) -> Expr:
        """Return the drift of u^p over p u^p; at p = 0 that of log u."""
        spread = ito.covariation(GAP, GAP) / (2 * GAP**2)
        return ito.drift(GAP) / GAP + (power - 1) * spread

    surplus = (law.alpha - law.delta / 2) * second * GAP
    return (
        expand(ito.drift(GAP) - law.alpha * second * GAP**2) == 0
        and expand(ito.covariation(GAP, GAP) - variation) == 0
        and expand(ito.drift(first)) == 0
        and expand(ito.covariation(first, first) - 2 * law.rate * first**2) == 0
        and vanishes(power_drift(Integer(0)) + law.rate - surplus)
        and vanishes(power_drift(1 - 2 * law.ratio) + 2 * law.ratio * law.rate)
    )


def explosion_causal() -> Finding:
    heads = Symbol("H", positive=True)
    law = two_tokens(heads)
    excess = (law.delta / 2 - law.alpha) * 16 * TAU**2 * heads / GAMMA**2
    return proven(
        causal_equations_hold(1),
        causal_equations_hold(2),
        expand(excess - (2 * GAMMA**2 - heads)) == 0,
    )


def leading_block_is_autonomous(tokens: int, mask: str | None) -> bool:
    """Return whether the first tokens have the limit that they have without the last one."""
    fewer, more = (derive(ShapedAttention(mask=mask), m) for m in (tokens - 1, tokens))
    for ours, theirs in (
        (more.drift_polynomials, fewer.drift_polynomials),
        (more.diffusion_polynomials, fewer.diffusion_polynomials),
    ):
        rows, columns = theirs.shape
        if ours.extract(range(rows), range(columns)) != more.algebra.transfer(theirs):
            return False
    return True


def explosion_leading_block() -> Finding:
    return proven(
        leading_block_is_autonomous(3, "causal"),
        leading_block_is_autonomous(4, "causal"),
        not leading_block_is_autonomous(3, None),
    )


def explosion_threshold_many_tokens() -> Finding:
    extra, slack, heads_above = symbols("extra slack heads_above", nonnegative=True)
    m, heads = 3 + extra, 1 + heads_above
    ratio = one_live_token(1 / m, heads).ratio
    stated = heads * (m**2 - m - 1) / (4 * GAMMA**2 * (m - 1))
    # gamma^2 = 1 - slack <= 1.
    margin = expand(
        simplify((stated - Rational(1, 2)) * 4 * GAMMA**2 * (m - 1)).subs(GAMMA**2, 1 - slack)
    )
    example = one_live_token(Rational(1, 3), 1).ratio.subs(GAMMA, 1)
    law = one_live_token(SHARE, 1)
    return refuted(
        claim_fails=has_law(LiveToken(), law, symbolic_covariance(1)[0, 0], 1)
        and bool(example > Rational(1, 2)),
        correction_holds=vanishes(ratio - stated) and margin.is_positive,
        witness=f"m = 3, H = 1, gamma = 1, V_0 = e_1 e_1^T: gamma^2 > H/2, but a = {example} > 1/2",
    )


# Claims on Gaussian weights that are revealed by products from both sides, in the 2 x 2 case.
#
# W has independent N(0, s^2) entries. First a = P W is asked for, with a unit row P of angle alpha;
# then q = W Q^T, with a unit row Q whose angle beta may depend on a. P' and Q' are P and Q turned
# by a right angle. What is then known of W is its entries along P and along Q; the rest is the
# number r = P' W Q'^T.

S = Symbol("s", positive=True)
ALPHA, BETA = symbols("alpha beta", real=True)
A = Matrix([symbols("a_1 a_2", real=True)])
B, R = symbols("b r", real=True)
"""Entries of P W, the number P' W Q^T, and the rest."""


def turned(angle: Expr) -> Matrix:
    """Return the orthogonal matrix whose rows are a unit row and the one at a right angle to it."""
    return Matrix([[cos(angle), sin(angle)], [-sin(angle), cos(angle)]])


def conditional_law(angle_in: Expr, angle_out: Expr) -> tuple[Matrix, Matrix]:
    """Return mean and covariance of vec W given P W and W Q^T, by Gaussian conditioning.

    vec W has the rows of W one after the other; the mean is linear in W itself, and is returned as
    a matrix that acts on vec W. The four answers are dependent, since P W Q^T is asked twice; one
    of them is left out.
    """
    p, q = turned(angle_in), turned(angle_out)
    asked = Matrix.vstack(kronecker_product(p[0, :], eye(2)), kronecker_product(p[1, :], q[0, :]))
    covariance = S**2 * eye(4)
    gain = covariance * asked.T * (asked * covariance * asked.T).applyfunc(simplify).inv()
    mean = (gain * asked).applyfunc(simplify)
    return mean, (covariance - gain * asked * covariance).applyfunc(simplify)


def revealed_from_both_sides() -> Finding:
    p, q = turned(ALPHA), turned(BETA)
    mean, covariance = conditional_law(ALPHA, BETA)
    rest = kronecker_product(p[1, :], q[1, :])
    known = eye(4) - rest.T * rest
    return proven(
        (mean - known).applyfunc(simplify) == zeros(4, 4),
        (covariance - S**2 * rest.T * rest).applyfunc(simplify) == zeros(4, 4),
        simplify((rest * covariance * rest.T)[0]) == S**2,
    )


def weights(angle_out: Expr) -> Matrix:
    """Return W as a function of a, b and r: P^T a + P'^T (b Q + r Q')."""
    p, q = turned(ALPHA), turned(angle_out)
    return p[0, :].T * A + p[1, :].T * (B * q[0, :] + R * q[1, :])


def revealed_by_answers() -> Finding:
    w = weights(Function("beta", real=True)(*A))
    variables = [*A, B, R]
    jacobian = Matrix([[diff(entry, x) for x in variables] for entry in w])
    squares = sum(entry**2 for entry in w) - sum(x**2 for x in variables)
    return proven(simplify(jacobian.det() ** 2) == 1, simplify(squares) == 0)


def revealed_image() -> Finding:
    p = turned(ALPHA)
    # After W Q^T, the question P W: along Q it is known, and the rest is that of a new vector.
    w = weights(BETA)
    q = turned(BETA)
    fresh = Matrix([symbols("g_1 g_2", real=True)])
    image = (p[1, :] * w * q[0, :].T)[0] * q[0, :] + fresh * (eye(2) - q[0, :].T * q[0, :])
    return proven(
        (p[1, :] * w - B * q[0, :] - R * q[1, :]).applyfunc(simplify) == zeros(1, 2),
        (image - B * q[0, :] - (fresh * q[1, :].T)[0] * q[1, :]).applyfunc(simplify) == zeros(1, 2),
        simplify((q[1, :] * q[1, :].T)[0]) == 1,
    )
