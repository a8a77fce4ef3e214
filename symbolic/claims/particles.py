"""Claims on tokens as interacting particles: Gram flow, mean field, energies, gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise, permutations, product

from sympy import (
    DiracDelta,
    Expr,
    Function,
    Integer,
    Matrix,
    Symbol,
    besseli,
    cos,
    cosh,
    exp,
    factorial,
    gamma,
    gegenbauer,
    integrate,
    log,
    nsolve,
    oo,
    pi,
    sin,
    sinh,
    sqrt,
    symbols,
)

from symbolic.algebra import symbolic_covariance
from symbolic.claims.explosion import vanishes
from symbolic.claims.ledger import Finding, imprecise, proven, refuted, tested
from symbolic.layer_step import average
from symbolic.series import HALF

# Tokens on the sphere through their inner products.
#
# For a token x and a vector y the symbols are xx = <x, x>, xy, yy, with xx = 1 on the sphere. The
# identities therefore hold in every dimension, and for y = sum_j w_j x_j with any number of tokens.

BETA = Symbol("beta", positive=True)
XX, XY, YY = symbols("xx xy yy", real=True)
PROJECTED_SQUARE = YY - 2 * XY**2 + XY**2 * XX
"""|P_x y|^2 for P_x y = y - <x, y> x."""

X, Y = (Matrix(symbols(f"{name}_1:4", real=True)) for name in "xy")
KERNEL = exp(BETA * X.dot(Y))
TIME = Symbol("t", real=True)


def gradient(function: Expr) -> Matrix:
    """Return the derivative by the coordinates of x."""
    return Matrix([function.diff(x) for x in X])


def projected(x: Matrix, y: Matrix) -> Matrix:
    """Return P_x y = y - <x, y> x of vectors."""
    return y - x.dot(y) * x


def gram_symbols(count: int) -> tuple[Matrix, Matrix]:
    """Return inner products c_ij with c_ii = 1, and weights w_ij = exp(beta c_ij), as symbols."""
    c, w = (symbolic_covariance(count, name) for name in "cw")
    return c.subs({c[i, i]: 1 for i in range(count)}), w


# Claims on the flow of the Gram matrix on the sphere, and of tokens with equal cosines.


def velocity(gram: Matrix, p: Matrix) -> Matrix:
    """Return the rate M + M^T - (diag(M) 1^T + 1 diag(M)^T) V, entrywise, with M = p V."""
    m = p * gram
    return Matrix(*gram.shape, lambda i, j: m[i, j] + m[j, i] - (m[i, i] + m[j, j]) * gram[i, j])


def velocity_by_weights(gram: Matrix, weights: Matrix, causal: bool = False) -> Matrix:
    """Return the rate of the cosines for weights w_ij normalised by row, all or j <= i."""
    seen = weights.lower_triangular() if causal else weights
    return velocity(gram, Matrix(*gram.shape, lambda i, j: seen[i, j] / sum(seen.row(i))))


def along(c: Matrix, p: Matrix) -> Matrix:
    """Return <x_i', x_j> for x_i' = sum_k p_ik P_i x_k."""
    n = c.rows
    return Matrix(n, n, lambda i, j: sum(p[i, k] * (c[k, j] - c[i, k] * c[i, j]) for k in range(n)))


def gram_flow() -> Finding:
    cases = [(gram_symbols(n)[0], Matrix(n, n, symbols(f"p_1:{n**2 + 1}"))) for n in (2, 3)]
    defects = [along(*case) + along(*case).T - velocity(*case) for case in cases]
    return tested(*[defect.expand().is_zero_matrix for defect in defects])


COUNT = Symbol("N", positive=True)
COSINE = Symbol("g", real=True)
OWN, OTHER = exp(BETA), exp(BETA * COSINE)
TOTALS = {True: COUNT, False: OWN + (COUNT - 1) * OTHER}
"""The divisor of the weights of a token, without and with normalisation."""


def rate_of_the_cosine(unnormalised: bool) -> Expr:
    """Return g' of N tokens with equal cosines g, as the paper has it."""
    return 2 * OTHER * (1 - COSINE) * ((COUNT - 1) * COSINE + 1) / TOTALS[unnormalised]


def _equiangular(unnormalised: bool) -> Finding:
    # V = (1 - g) I + g 11^T: an off-diagonal and a diagonal entry of p V.
    off = OWN * COSINE + OTHER * (1 + (COUNT - 2) * COSINE)
    diagonal = OWN + (COUNT - 1) * OTHER * COSINE
    rate = 2 * (off - diagonal * COSINE) / TOTALS[unnormalised]
    return proven(vanishes(rate - rate_of_the_cosine(unnormalised)))


def equiangular_sa() -> Finding:
    return _equiangular(unnormalised=False)


def equiangular_usa() -> Finding:
    return _equiangular(unnormalised=True)


# Claims on the measure of the tokens on the sphere: the field, its values, how the law moves.


def empirical_field(count: Expr, moved: Expr, total: Expr) -> Expr:
    """Return the fraction of the two integrals by (1/n) sum of point masses, in one coordinate."""
    return (moved / count) / (total / count)


def empirical_measure_form() -> Finding:
    count, moved, total = symbols("n moved total", positive=True)
    return proven(vanishes(empirical_field(count, moved, total) - moved / total))


def field_at(x: Matrix, places: list[Matrix]) -> Matrix:
    """Return X[mu](x), mu with equal masses at some places."""
    weights = Matrix([exp(BETA * x.dot(y)) for y in places])
    return projected(x, Matrix.hstack(*places) * weights / sum(weights))


def field_is_tangent() -> Finding:
    x, y = Matrix([1, 0]), Matrix([0, 1])
    return refuted(
        claim_fails=field_at(y, [y]).is_zero_matrix and field_at(x, [x, y]).norm() != 1,
        correction_holds=(XY - XY * XX).subs(XX, 1) == 0,
    )


def defect_of_the_density(sign: int) -> Expr:
    """Return d rho/dt - sign d(rho X)/da at beta = 0 for the Poisson kernel, r' = r (1 - r^2)/2.

    Its mean on the circle is (r, 0). The field of SA and USA at beta = 0 is the projected mean,
    X = -r sin a.
    """
    a, r = symbols("a r", real=True)
    rho = (1 - r**2) / (2 * pi * (1 - 2 * r * cos(a) + r**2))
    return (rho.diff(r) * r * (1 - r**2) / 2 + sign * (rho * r * sin(a)).diff(a)).simplify()


def continuity_equation_on_the_sphere() -> Finding:
    # d f(x(t))/dt is <grad f, P_x y> for a token on the sphere and any f and y.
    path = Matrix([Function(f"x_{k}")(TIME) for k in range(3)])
    f = Function("f")(*path)
    moves = dict(zip(path.diff(TIME), projected(path, Y), strict=True))
    slopes = Matrix([f.diff(coordinate) for coordinate in path])
    weak = f.diff(TIME).subs(moves) - projected(path, slopes).dot(Y)
    return proven(weak.expand() == 0, defect_of_the_density(-1) == 0)


# Claims on the interaction energy of tokens and its derivative along the flows.


def energy_rate(count: int, unnormalised: bool, value: int = 1) -> tuple[Expr, Expr]:
    """Return dE/dt from the chain rule in inner products, V = value I, and the sum of squares.

    The row weights are a_i w_ij with a_i = 1/N (USA) or the symbol a_i = 1/Z_i (SA); the claimed
    sum has the factor 1/a_i in row i: N for USA, after division by N^2, and Z_i for SA.
    """
    c, w = gram_symbols(count)
    a = [1 / Integer(count)] * count if unnormalised else symbols(f"a_1:{count + 1}", positive=True)
    moved, averages = along(c, value * Matrix.diag(*a) * w), w * c
    # E = (1 / (2 beta N^2)) sum exp(beta c_ij); its derivative by c_ij is w_ij / (2 N^2).
    rate = sum(w.multiply_elementwise(moved + moved.T)) / Integer(2 * count**2)
    squares = [(averages * w)[i, i] - averages[i, i] ** 2 for i in range(count)]
    return rate, sum(s * square for s, square in zip(a, squares, strict=True)) / Integer(count**2)


def _gradient_of_the_energy() -> bool:
    """Check N^2 dE/dx = sum_j exp(beta <x, x_j>) x_j for any N, term by term.

    E has exp(beta <x, x_j>) twice for each other token, exp(beta |x|^2) once, over 2 beta N^2.
    """
    own = exp(BETA * X.dot(X))
    return gradient(KERNEL / BETA) == KERNEL * Y and gradient(own / (2 * BETA)) == own * X


def _energy_identity(unnormalised: bool) -> Finding:
    rates = [energy_rate(count, unnormalised) for count in (2, 3, 4)]
    return proven(
        _gradient_of_the_energy(),
        vanishes(YY - XY**2 - PROJECTED_SQUARE.subs(XX, 1)),
        *[vanishes(rate - claimed) for rate, claimed in rates],
    )


def energy_derivative_usa() -> Finding:
    return _energy_identity(unnormalised=True)


def energy_derivative_sa() -> Finding:
    return _energy_identity(unnormalised=False)


def two_token_rate() -> tuple[Expr, Expr]:
    """Return dE/dt of two tokens at the cosine g under SA, and the rate of g."""
    speed = rate_of_the_cosine(unnormalised=False).subs(COUNT, 2)
    return ((OWN + OTHER) / (4 * BETA)).diff(COSINE) * speed, speed


def energy_rate_increases() -> Finding:
    rate, speed = two_token_rate()
    slope = rate.diff(COSINE).subs(COSINE, 1)
    return refuted(
        claim_fails=vanishes(slope + exp(BETA) / 2) and speed.subs(COSINE, 0).is_positive,
        correction_holds=bool((rate / (1 - COSINE**2)).cancel().is_positive)
        and rate.subs(COSINE, 1) == 0,
    )


def energy_decreases_when_repelling() -> Finding:
    rates = [energy_rate(*case, value=-1) for case in product((2, 3, 4), (True, False))]
    return proven(_gradient_of_the_energy(), *[vanishes(sum(both)) for both in rates])


# Claims on the laws of least and largest interaction energy: the uniform one and point masses.
#
# With nu = d/2 - 1 the kernel has the expansion
#
# exp(beta t) = Gamma(nu) (2/beta)^nu sum_k (k + nu) I_(k+nu)(beta) C_k^nu(t)      (d >= 3),
# exp(beta cos a) = sum over all integers k of I_k(beta) e^(i k a)                (d = 2).
#
# All coefficients are positive. By the addition theorem (I. J. Schoenberg, 1942) int int C_k^nu
# dmu dmu is a positive multiple of the sum of the squares of the moments of mu of degree k, so
# E(mu) - E(uniform) is a sum of squares, zero only if every moment is that of the uniform law.

DEGREE, LATER = symbols("k j", positive=True, integer=True)
NU = Symbol("nu", positive=True)


def gegenbauer_coefficient(degree: Expr, later: Expr) -> Expr:
    """Return the coefficient of C_k^nu(t) in t^m / m!, m = k + 2j.

    The sum over j of beta^m times it is Gamma(nu) (2/beta)^nu (k + nu) I_(k+nu)(beta).
    """
    falling = gamma(NU) / gamma(NU + degree + later + 1)
    return (degree + NU) * falling / (factorial(later) * 2 ** (degree + 2 * later))


def fourier_coefficient(degree: Expr, later: Expr) -> Expr:
    """Return the coefficient of e^(i k a) in cos(a)^m / m!, m = k + 2j."""
    return 1 / (factorial(later) * factorial(degree + later) * 2 ** (degree + 2 * later))


def _induction(coefficient: Callable[[Expr, Expr], Expr], below: Expr, above: Expr) -> bool:
    """Check that t times the expansion of t^(m-1)/(m-1)! is m times that of t^m/m!, any k, j, nu.

    `below` and `above` are the shares of the degrees k - 1 and k + 1 that degree k gets from t.
    """
    k, j = DEGREE, LATER
    neighbours = below * coefficient(k - 1, j) + above * coefficient(k + 1, j - 1)
    return vanishes((neighbours / coefficient(k, j)).gammasimp() - (k + 2 * j))


def energy_minimiser() -> Finding:
    k, t = DEGREE, Symbol("t")
    c = [gegenbauer(degree, NU, t) for degree in range(8)]
    # 2 (k + nu) t C_k = (k + 1) C_(k+1) + (k + 2 nu - 1) C_(k-1).
    recurrences = [
        2 * (m + NU) * t * c[m] - (m + 1) * c[m + 1] - (m + 2 * NU - 1) * c[m - 1]
        for m in range(1, 7)
    ]
    below, above = k / (2 * (k - 1 + NU)), (k + 2 * NU) / (2 * (k + 1 + NU))
    # The mean of the kernel in three dimensions, from its term k = 0.
    uniform = gamma(HALF) * sqrt(2 / BETA) * besseli(HALF, BETA) / 2
    return proven(
        *map(vanishes, recurrences),
        gegenbauer_coefficient(Integer(0), Integer(0)).gammasimp() == 1,
        _induction(gegenbauer_coefficient, below, above),
        _induction(fourier_coefficient, HALF, HALF),
        bool(gegenbauer_coefficient(k, LATER).is_positive),
        bool(fourier_coefficient(k, LATER).is_positive),
        # The kernel as squares of moments: <x, y>^2 is the inner product of x x^T and y y^T.
        vanishes((X * X.T * Y * Y.T).trace() - X.dot(Y) ** 2),
        (uniform - sinh(BETA) / BETA).simplify() == 0,
    )


def kernel_below_its_maximum() -> Expr:
    """Return log of e^beta / exp(beta <x, y>) minus beta |x - y|^2 / 2, for unit vectors."""
    return (BETA - BETA * XY - BETA * (1 - 2 * XY + 1) / 2).expand()


def energy_maximisers() -> Finding:
    return proven(kernel_below_its_maximum() == 0)


# Claims on attention on the sphere as a gradient: of which function, and of which functional.
#
# f is the L_2 gradient of a functional of measures only if its derivative by the mass at y, K(x,
# y), is symmetric up to functions of one argument (f may be changed by a constant, which moves
# nothing): K(x, y) - K(y, x) = c(x) - c(y), so that its cyclic sum over any three points is zero.

REST = Symbol("rest", positive=True)
"""The part of an integral or a sum that other tokens contribute."""


def gradient_of_logarithm(scale: Expr) -> list[Expr]:
    """Return the gradient in x of log int scale exp(beta <x, y>) dmu, minus beta times the average.

    One point of mu is written out, and the others are in a constant; so term by term.
    """
    mean = KERNEL * Y / (KERNEL + REST)
    return [*(gradient(log(scale * (KERNEL + REST))) - BETA * mean).applyfunc(Expr.cancel)]


def softmax_average_forms() -> Finding:
    # With 1/beta inside the logarithm the gradient is beta times the average, and so it is without.
    return refuted(
        claim_fails=not any(gradient_of_logarithm(1 / BETA)),
        correction_holds=not any(gradient_of_logarithm(Integer(1))),
    )


Q = Symbol("q", positive=True)
"""e^-beta"""


def sa_kernel(first: Expr, cosine: Expr) -> Expr:
    """Return e^(beta <x, y>) / Z(x) for mu = a point mass at e_1; the cosines are -1, 0 or 1."""
    return Q**-cosine / Q**-first


def usa_kernel(_first: Expr, cosine: Expr) -> Expr:
    """Return e^(beta <x, y>) without the denominator."""
    return Q**-cosine


def cyclic_sum(kernel: Callable[[Expr, Expr], Expr]) -> Expr:
    """Return the cyclic sum of K(x, y) - K(y, x) over e_1, e_2 and -e_1, mu = delta at e_1."""
    points = [Matrix([1, 0]), Matrix([0, 1]), Matrix([-1, 0])]
    pairs = [(points[k - 1], points[k]) for k in range(3)]
    return sum(kernel(x[0], x.dot(y)) - kernel(y[0], x.dot(y)) for x, y in pairs)


def sa_is_no_l2_gradient() -> Finding:
    # Zero for beta = 0 only.
    stated = -((1 - Q) ** 2) * (1 + Q) / Q
    return proven(vanishes(cyclic_sum(sa_kernel) - stated), cyclic_sum(usa_kernel) == 0)


def tangential(x: Matrix, slopes: Matrix) -> Matrix:
    """Return P_x of a gradient."""
    return projected(x, slopes)


def spherical_gradient() -> Finding:
    v, slopes = (Matrix(symbols(f"{name}_1:4", real=True)) for name in "vg")
    circle, along_the_sphere = X * cos(TIME) + v * sin(TIME), tangential(X, slopes)
    # Two extensions of a function differ by a multiple of |x|^2 - 1, whose gradient is radial.
    f, level = Function("f")(*X), X.dot(X) - 1
    left = tangential(X, gradient(f * level)) - level * (tangential(X, gradient(f)) - 2 * f * X)
    return proven(
        circle.diff(TIME).subs(TIME, 0) == v,
        vanishes(along_the_sphere.dot(v) - slopes.dot(v) + slopes.dot(X) * X.dot(v)),
        vanishes(X.dot(along_the_sphere) + X.dot(slopes) * level),
        left.expand().is_zero_matrix,
    )


# Claims on attention without the denominator: USA, its energy, and what Sinkformers do instead.


def sinkformer_removes_the_denominator() -> Finding:
    # Three tokens at 0, 90 and 180 degrees, beta = 1; then any three.
    kernel, one = Matrix(3, 3, lambda i, j: exp(1 - abs(i - j))), Matrix.ones(3, 1)
    u, v = symbols("u v")
    doubly = Matrix.diag(u, v, u) * kernel * Matrix.diag(u, v, u)
    ends, middle = nsolve((doubly * one - one)[:2], (u, v), (0.5, 0.5))
    totals, sums = (doubly * one).subs({u: ends, v: middle}), kernel * one
    softmax = Matrix.diag(*sums).inv() * kernel
    s, masses = symbolic_covariance(3, "s"), Matrix.diag(*symbols("m_1:4"))
    symmetric = (Matrix.eye(3) + s * masses) * s - s * (Matrix.eye(3) + masses * s)
    return refuted(
        claim_fails=abs(float(sums[0] / 3) - 1) > 0.1
        and abs(float(sum(softmax.col(0))) - 1) > 0.01,
        correction_holds=all(abs(float(total) - 1) < 1e-12 for total in totals)
        and symmetric.expand().is_zero_matrix
        and _potential_derivative(),
    )


def _potential_derivative() -> bool:
    """Check that phi_i = log sum_j K_ij m_j e^(-phi_j) changes by (I + S M) dphi = S dm.

    S_ij = e^(-phi_i) K_ij e^(-phi_j), and the sum is e^(phi_i) at the solution.
    """
    phi, masses = (Matrix(symbols(f"{name}_1:4")) for name in ("phi", "m"))
    scale = Matrix.diag(*(-phi).applyfunc(exp))
    total = symbolic_covariance(3, "k") * scale * masses
    s = scale * symbolic_covariance(3, "k") * scale
    by_masses, by_potential = (scale * total.jacobian(variables) for variables in (masses, phi))
    return by_masses == s and by_potential == -s * Matrix.diag(*masses)


def usa_continuity_equation() -> Finding:
    """Put the two integrals into P_x, one point of mu written out."""
    try:
        projected(X, KERNEL)
        defined = True
    except TypeError:
        defined = False
    mended = projected(X, KERNEL * Y)
    change = mended - projected(X, gradient(first_variation(KERNEL)))
    return refuted(
        claim_fails=not defined,
        correction_holds=change.expand().is_zero_matrix
        and vanishes(X.dot(mended) - KERNEL * X.dot(Y) * (1 - X.dot(X))),
    )


def first_variation(kernel: Expr) -> Expr:
    """Return what a unit of mass at y adds to the L_2 gradient of E at x."""
    return kernel / BETA


def usa_is_the_gradient() -> Finding:
    a, b, w, self_a, self_b = symbols("a b w w_aa w_bb", positive=True)
    energy = (a**2 * self_a + b**2 * self_b + 2 * a * b * w) / (2 * BETA)
    by_mass = energy.diff(a) - first_variation(a * self_a + b * w)
    return proven(vanishes(by_mass), gradient(first_variation(KERNEL)) == KERNEL * Y)


# Claims on attention with V = Q^T K symmetric as a gradient in the metric weighted by Z.

SYMMETRIC = symbolic_covariance(2, "v")


def field(tokens: Sequence[Matrix], value: Matrix) -> Matrix:
    """Return sum_j exp(beta <V x_1, x_j>) V x_j."""
    weights = [exp(BETA * (value * tokens[0]).dot(b)) for b in tokens]
    return value * Matrix.hstack(*tokens) * Matrix(weights)


def normaliser(tokens: Sequence[Matrix], value: Matrix) -> Expr:
    """Return Z_1 = sum_j exp(beta <V x_1, x_j>); the one printed has V = I."""
    return sum((exp(BETA * (value * tokens[0]).dot(b)) for b in tokens), Integer(0))


def differs_from_the_gradient(value: Matrix, count: int) -> bool:
    """Return whether `field` is not the gradient of (1/(2 beta)) sum_ij exp(beta <V x_i, x_j>)."""
    tokens = [Matrix(symbols(f"x_{i}1:{i}3")) for i in range(1, count + 1)]
    pairs = product(tokens, repeat=2)
    energy = sum(exp(BETA * (value * a).dot(b)) for a, b in pairs) / (2 * BETA)
    slopes = Matrix([energy.diff(s) for s in tokens[0]])
    return not (slopes - field(tokens, value)).expand().is_zero_matrix


def weighted_gradient_exercise() -> Finding:
    tokens, value = (Matrix([1, 0]), Matrix([0, 1])), Matrix([[2, 1], [1, 1]])
    # The motion of the first along the second: as printed, by the printed metric, and under SA.
    moved = projected(tokens[0], field(tokens, value))[1]
    printed, with_v = ((moved / normaliser(tokens, v)).simplify() for v in (Matrix.eye(2), value))
    return refuted(
        claim_fails=vanishes(moved - exp(2 * BETA) - exp(BETA)) and printed == exp(BETA),
        correction_holds=not any(differs_from_the_gradient(SYMMETRIC, n) for n in (2, 3))
        and with_v == 1,
    )


def sa_is_a_weighted_gradient() -> Finding:
    return proven(
        *[not differs_from_the_gradient(SYMMETRIC, count) for count in (2, 3)],
        differs_from_the_gradient(Matrix([[0, 1], [0, 0]]), 2),
    )


# Claims on layers as flows: the normalised update, the ODE, tokens as particles.

STEP = Symbol("h", positive=True)
TOKEN = Matrix([0, 0, 1])
"""A token on the sphere; a rotation carries any other to it."""


def step_expansion(normalised: bool) -> tuple[Matrix, Matrix]:
    """Return (x + h y)/|x + h y|, or x + h y, at h = 0 and its derivative there."""
    moved = TOKEN + STEP * Y
    if normalised:
        moved = moved / sqrt(moved.dot(moved).expand())
    return moved.subs(STEP, 0), moved.diff(STEP).subs(STEP, 0)


def row_squares(moved: Matrix, by_token: bool) -> list[Expr]:
    """Return |row|^2 after division of each row, or of the whole matrix, by its norm."""
    squares = [sum(entry**2 for entry in moved.row(i)) for i in range(moved.rows)]
    return [(square / (square if by_token else sum(squares))).cancel() for square in squares]


def normalised_update() -> Finding:
    moved = Matrix(3, 2, symbols("a_1:7", positive=True))
    together = row_squares(moved, by_token=False)
    return imprecise(
        part_that_holds=row_squares(moved, by_token=True) == [1, 1, 1]
        and step_expansion(normalised=True) == (TOKEN, projected(TOKEN, Y)),
        part_that_fails=vanishes(sum(together) - 1) and all(square != 1 for square in together),
    )


def layers_as_ode() -> Finding:
    return tested(
        step_expansion(normalised=True) == (TOKEN, projected(TOKEN, Y)),
        step_expansion(normalised=False) == (TOKEN, Y),
    )


def velocities(tokens: Sequence[Symbol], causal: bool = False) -> list[Expr]:
    """Return the softmax averages of v(x_j), weights w(x_i, x_j), over all or earlier tokens."""
    weight, value = Function("w"), Function("v")
    result = []
    for i, token in enumerate(tokens):
        seen = tokens[: i + 1] if causal else tokens
        total = sum(weight(token, other) for other in seen)
        result.append(sum(weight(token, other) * value(other) for other in seen) / total)
    return result


def exchangeable(causal: bool) -> bool:
    """Return whether permuted tokens have permuted velocities, for three tokens."""
    tokens = symbols("x_1:4")
    plain = dict(zip(tokens, velocities(tokens, causal), strict=True))
    return all(
        vanishes(velocity - plain[token])
        for order in permutations(tokens)
        for token, velocity in zip(order, velocities(order, causal), strict=True)
    )


def tokens_as_particles() -> Finding:
    tokens = symbols("x_1:4")
    doubled = velocities((*tokens, *tokens))[:3]
    same = [vanishes(a - b) for a, b in zip(doubled, velocities(tokens), strict=True)]
    return tested(exchangeable(causal=False), not exchangeable(causal=True), *same)


# Claims on attention as the slides introduce it: queries, scale, shapes, temperature.


def coupled_queries(by_row: bool) -> list[tuple[int, int]]:
    """Return the pairs (i, k), i not k, for which output i of attention depends on query k.

    The weights are normalised over the keys of each query or, if not by_row, over the queries.
    """
    queries, values = symbols("q_1:4"), Matrix(symbols("v_1:4"))
    weights = Matrix(3, 3, lambda i, j: exp(Function(f"s_{j}")(queries[i])))
    totals = weights * Matrix.ones(3) if by_row else Matrix.ones(3) * weights
    outputs = Matrix(3, 3, lambda i, j: weights[i, j] / totals[i, j]) * values
    pairs = permutations(range(3), 2)
    return [(i, k) for i, k in pairs if outputs[i].diff(queries[k]) != 0]


def attention_parallel_queries() -> Finding:
    return tested(not coupled_queries(by_row=True), len(coupled_queries(by_row=False)) == 6)


def score_variance(dimension: int, scale: Expr) -> Expr:
    """Return the variance of scale <q, k>: independent entries of mean 0 and variance 1.

    No entry has a power above 2, so that its law does not matter.
    """
    q, k = (symbols(f"{name}_1:{dimension + 1}") for name in "qk")
    square = (scale * sum(a * b for a, b in zip(q, k, strict=True))) ** 2
    return average(square, [*q, *k], lambda a, b: Integer(a == b))


def scaled_scores_variance() -> Finding:
    d, spread = symbols("d s", positive=True)
    weight = 1 / (1 + exp(-spread))
    slope = 1 / (4 * cosh(spread / 2) ** 2)
    return tested(
        *[score_variance(n, Integer(1)) == n for n in (1, 2, 5)],
        *[score_variance(n, 1 / sqrt(Integer(n))) == 1 for n in (1, 2, 5)],
        (weight * (1 - weight) - slope).rewrite(exp).simplify() == 0,
        slope.subs(spread, sqrt(d) * spread).limit(d, oo) == 0,
    )


Shape = tuple[int, int]


def chained(*shapes: Shape) -> Shape | None:
    """Return the shape of a product of matrices, None if it does not exist."""
    fits = all(left[1] == right[0] for left, right in pairwise(shapes))
    return (shapes[0][0], shapes[-1][1]) if fits else None


def printed_shape(n: int, d: int, size: int) -> Shape | None:
    """Return the shape of softmax(Q x^T (K x)) V x with Q, K, V of shape n x l."""
    return chained((n, size), (d, n), (n, size), (n, d), (n, size), (n, d))


def corrected_shape(n: int, d: int, size: int) -> Shape | None:
    """Return the shape of softmax((x Q^T)(x K^T)^T) x V^T with Q, K: l x d and V: d x d."""
    return chained((n, d), (d, size), (size, d), (d, n), (n, d), (d, d))


def attention_shapes() -> Finding:
    sizes = list(product(range(1, 5), repeat=3))
    return refuted(
        claim_fails=[s for s in sizes if printed_shape(*s)] == [(k, k, k) for k in range(1, 5)],
        correction_holds=all(corrected_shape(n, d, k) == (n, d) for n, d, k in sizes),
    )


def attention_temperature() -> Finding:
    beta, spread = symbols("beta s", positive=True)
    weight = 1 / (1 + exp(-beta * spread))
    inverse = weight.subs(beta, 1 / beta)
    return imprecise(
        part_that_holds=vanishes(inverse.subs(beta, 1 / beta) - weight)
        and (inverse - weight).subs(beta, 1) == 0,
        part_that_fails=abs(float((weight - inverse).subs({beta: 2, spread: 1}))) > 0.25,
    )


# Claims on attention as an average: the weights, the scores, and the average by a measure.

KERNEL_AT = Function("h", positive=True)
"""The kernel of one token at a point of the line."""


def integrals(places: Sequence[Symbol], numerator: Expr, y: Symbol) -> Expr:
    """Return int numerator(y) dmu / int h(y) dmu for mu = (1/n) sum of point masses, d = 1."""
    masses = sum(DiracDelta(y - place) for place in places) / len(places)
    above, below = (
        sum(integrate(term, (y, -oo, oo)) for term in (f * masses).expand().args)
        for f in (numerator, KERNEL_AT(y))
    )
    return (above / below).cancel()


def _is_the_mean_of(count: int) -> bool:
    """Return whether the integral with y at this many point masses is their weighted mean."""
    y, *places = symbols(f"y a_1:{count + 1}", real=True)
    weights = [KERNEL_AT(a) for a in places]
    mean = sum(w * a for w, a in zip(weights, places, strict=True)) / sum(weights)
    return vanishes(integrals(places, y * KERNEL_AT(y), y) - mean)


def ratio_of_integrals_lacks_y() -> Finding:
    y, *places = symbols("y a_1:4", real=True)
    return refuted(
        claim_fails=integrals(places, KERNEL_AT(y), y) == 1, correction_holds=_is_the_mean_of(3)
    )


def attention_of_the_empirical_measure() -> Finding:
    # One atom is written out, and the others are in constants.
    count, weight, place, rest, moved = symbols("n w a r s", positive=True)
    above, below = weight * place + moved, weight + rest
    scaled = empirical_field(count, above, below)
    return proven(vanishes(scaled - above / below), _is_the_mean_of(2), _is_the_mean_of(4))


LONG_KEY = Matrix([2, 3])


def inner_product_as_similarity() -> Finding:
    """Compare inner products with distances and angles."""
    want, square = Matrix([1, 0]), (XX - 2 * XY + YY).subs({XX: 1, YY: 1})
    return imprecise(
        part_that_holds=vanishes(square - (2 - 2 * XY)),
        part_that_fails=want.dot(LONG_KEY) > want.dot(want) and (want - LONG_KEY).norm() > 0,
    )


def scores(query: Matrix, key: Matrix, x: Matrix, y: Matrix) -> tuple[Expr, Expr, Expr]:
    """Return <Qx, Ky>, x^T Q K y and x^T Q^T K y."""
    return ((query * x).dot(key * y), (x.T * query * key * y)[0], (x.T * query.T * key * y)[0])


def scores_without_transpose() -> Finding:
    score, printed, transposed = scores(
        Matrix([[0, 1], [0, 0]]), Matrix.eye(2), Matrix([0, 1]), Matrix([1, 1])
    )
    # For all matrices of 3 x 2 symbols, for which Q K does not exist.
    query, key = (Matrix(3, 2, symbols(f"{name}_1:7")) for name in "qk")
    x, y = X[:2, :], Y[:2, :]
    general = (query * x).dot(key * y) - (x.T * query.T * key * y)[0]
    return refuted(
        claim_fails=(score, printed) == (1, 0),
        correction_holds=transposed == score and vanishes(general),
    )


def simplified_attention() -> Finding:
    """Put V = Id and Q^T K = beta Id into the weights of the scores x^T Q^T K y."""
    x, y, z = (Matrix(symbols(f"{name}_1:3")) for name in "xyz")
    query = Matrix([[1, 2], [0, 1]])
    key = BETA * query.T.inv()
    weights = [exp(scores(query, key, x, t)[2].expand()) for t in (y, z)]
    simple = [exp((BETA * x.dot(t)).expand()) for t in (y, z)]
    moved = [(a * y + b * z) / (a + b) for a, b in (weights, simple)]
    return proven(query.T * key == BETA * Matrix.eye(2), *map(vanishes, moved[0] - moved[1]))
