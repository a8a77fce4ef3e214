"""Claims on tokens as interacting particles: Gram flow, mean field, energies, gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations, product

from sympy import (
    DiracDelta,
    Expr,
    Function,
    Integer,
    Matrix,
    Rational,
    Symbol,
    besseli,
    cancel,
    cos,
    cosh,
    diff,
    exp,
    expand,
    eye,
    factor,
    factorial,
    gamma,
    gammasimp,
    gegenbauer,
    integrate,
    kronecker_product,
    log,
    nsolve,
    oo,
    pi,
    simplify,
    sin,
    sinh,
    sqrt,
    symbols,
)

from symbolic.claims.ledger import Finding, imprecise, proven, refuted, tested

# Tokens on the sphere through their inner products.
#
# For a token x and a vector y the symbols are xx = <x, x>, xy, yy, with xx = 1 on the sphere. The
# identities therefore hold in every dimension, and for y = sum_j w_j x_j with any number of tokens.

BETA = Symbol("beta", positive=True)
XX, XY, YY = symbols("xx xy yy", real=True)


def projected_square() -> Expr:
    """Return |P_x y|^2 for P_x y = y - <x, y> x."""
    return YY - 2 * XY**2 + XY**2 * XX


def gram_symbols(count: int) -> tuple[Matrix, Matrix]:
    """Return inner products c_ij with c_ii = 1, and weights w_ij = exp(beta c_ij), as symbols."""
    c = Matrix(
        count,
        count,
        lambda i, j: Integer(1) if i == j else Symbol(f"c_{min(i, j)}{max(i, j)}", real=True),
    )
    w = Matrix(count, count, lambda i, j: Symbol(f"w_{min(i, j)}{max(i, j)}", positive=True))
    return c, w


# Claims on the flow of the Gram matrix on the sphere, and of tokens with equal cosines.


def velocity(gram: Matrix, p: Matrix) -> Matrix:
    """Return the rate M + M^T - (diag(M) 1^T + 1 diag(M)^T) V, entrywise, with M = p V."""
    m = p * gram
    return Matrix(*gram.shape, lambda i, j: m[i, j] + m[j, i] - (m[i, i] + m[j, j]) * gram[i, j])


def velocity_by_weights(gram: Matrix, weights: Matrix, causal: bool = False) -> Matrix:
    """Return the rate of the cosines for weights w_ij normalised by row, all or j <= i."""
    seen = Matrix(*gram.shape, lambda i, j: weights[i, j] if j <= i or not causal else 0)
    return velocity(gram, Matrix(*gram.shape, lambda i, j: seen[i, j] / sum(seen.row(i))))


def gram_flow() -> Finding:
    """Check dV_ij = <x_i', x_j> + <x_i, x_j'> against the matrix form, N = 2, 3, any weights."""
    cases = []
    for count in (2, 3):
        c, _ = gram_symbols(count)
        p = Matrix(count, count, symbols(f"p_1:{count**2 + 1}"))
        form = velocity(c, p)
        for i, j in product(range(count), repeat=2):
            direct = sum(
                p[i, k] * (c[k, j] - c[i, k] * c[i, j]) + p[j, k] * (c[k, i] - c[j, k] * c[j, i])
                for k in range(count)
            )
            cases.append(expand(direct - form[i, j]) == 0)
    return tested(*cases)


COUNT = Symbol("N", positive=True)
COSINE = Symbol("g", real=True)


def rate_of_the_cosine(unnormalised: bool) -> Expr:
    """Return g' of N tokens with equal cosines g, as the paper has it."""
    own, other = exp(BETA), exp(BETA * COSINE)
    total = COUNT if unnormalised else own + (COUNT - 1) * other
    return 2 * other * (1 - COSINE) * ((COUNT - 1) * COSINE + 1) / total


def _equiangular(unnormalised: bool) -> Finding:
    own, other = exp(BETA), exp(BETA * COSINE)
    total = COUNT if unnormalised else own + (COUNT - 1) * other
    p_own, p_other = own / total, other / total
    # V = (1 - g) I + g 11^T: an off-diagonal and a diagonal entry of M = p V.
    off = p_own * COSINE + p_other * (1 + (COUNT - 2) * COSINE)
    diagonal = p_own + (COUNT - 1) * p_other * COSINE
    rate = 2 * off - 2 * diagonal * COSINE
    return proven(
        cancel(rate - rate_of_the_cosine(unnormalised)) == 0,
        witness="Gram flow dV = M + M^T - (diag(M) 1^T + 1 diag(M)^T) V at V = (1-g) I + g 11^T, "
        "any N",
    )


def equiangular_sa() -> Finding:
    return _equiangular(unnormalised=False)


def equiangular_usa() -> Finding:
    return _equiangular(unnormalised=True)


# Claims on the measure of the tokens on the sphere: the field, its values, how the law moves.

TIME = Symbol("t", real=True)


def empirical_field(count: Expr, moved: Expr, total: Expr) -> Expr:
    """Return the fraction of the two integrals by (1/n) sum of point masses, in one coordinate."""
    return (moved / count) / (total / count)


def empirical_measure_form() -> Finding:
    count, weight, rest = symbols("n w rest", positive=True)
    place, others = symbols("y others", real=True)
    moved, total = weight * place + others, weight + rest
    return proven(
        cancel(empirical_field(count, moved, total) - moved / total) == 0,
        not empirical_field(count, moved, total).cancel().has(count),
    )


def field_at(x: Matrix, places: list[Matrix]) -> Matrix:
    """Return X[mu](x), mu with equal masses at some places."""
    weights = [exp(BETA * x.dot(y)) for y in places]
    terms = [w * y for w, y in zip(weights, places, strict=True)]
    average = sum(terms[1:], terms[0]) / sum(weights)
    return average - x.dot(average) * x


def field_is_tangent() -> Finding:
    """Evaluate the field of a point mass, at it and at a right angle, and check <x, X> = 0."""
    x, y = Matrix([1, 0]), Matrix([0, 1])
    at_the_mass = field_at(y, [y])
    along = XY - XY * XX
    return refuted(
        claim_fails=at_the_mass == Matrix.zeros(2, 1) and field_at(x, [x, y]).norm() != 1,
        correction_holds=along.subs(XX, 1) == 0,
    )


ANGLE, RADIUS = symbols("a r", real=True)


def poisson_kernel() -> Expr:
    """Return the density on the circle whose mean is (r, 0)."""
    return (1 - RADIUS**2) / (2 * pi * (1 - 2 * RADIUS * cos(ANGLE) + RADIUS**2))


def defect_of_the_density(sign: int) -> Expr:
    """Return d rho/dt - sign d(rho X)/da at beta = 0 for the Poisson kernel, r' = r (1 - r^2)/2.

    The field of SA and USA at beta = 0 is the projected mean, X = -r sin a.
    """
    rho, field = poisson_kernel(), -RADIUS * sin(ANGLE)
    change = diff(rho, RADIUS) * RADIUS * (1 - RADIUS**2) / 2
    return simplify(change - sign * diff(rho * field, ANGLE))


def weak_defect() -> Expr:
    """Return d f(x(t))/dt minus <grad f, P_x y> for a token on the sphere and any f and y."""
    path = [Function(f"x_{k}")(TIME) for k in range(1, 4)]
    y = symbols("y_1:4", real=True)
    along = sum(p * v for p, v in zip(path, y, strict=True))
    velocity = [v - along * p for p, v in zip(path, y, strict=True)]
    s = symbols("s_1:4")
    f = Function("f")(*s)
    here = dict(zip(s, path, strict=True))
    rate = diff(f.subs(here), TIME).doit()
    rate = rate.subs({diff(p, TIME): v for p, v in zip(path, velocity, strict=True)})
    slopes = [diff(f, a).subs(here) for a in s]
    radial = sum((g * p for g, p in zip(slopes, path, strict=True)), Integer(0))
    surface = sum((g - radial * p) * v for g, p, v in zip(slopes, path, y, strict=True))
    return expand((rate - surface).doit())


def continuity_equation_on_the_sphere() -> Finding:
    return proven(weak_defect() == 0, defect_of_the_density(-1) == 0)


# Claims on the interaction energy of tokens and its derivative along the flows.


def energy_rate(count: int, unnormalised: bool, value: int = 1) -> tuple[Expr, Expr]:
    """Return dE/dt from the chain rule in inner products, V = value I, and the sum of squares.

    The row weights are a_i w_ij with a_i = 1/N (USA) or the symbol a_i = 1/Z_i (SA); the claimed
    sum has the factor 1/a_i in row i: N for USA, after division by N^2, and Z_i for SA.
    """
    c, w = gram_symbols(count)
    tokens = range(count)
    a = [Rational(1, count) if unnormalised else Symbol(f"a_{i}", positive=True) for i in tokens]
    velocity = [
        [
            value * a[i] * sum(w[i, k] * (c[k, j] - c[i, k] * c[i, j]) for k in tokens)
            for j in tokens
        ]
        for i in tokens
    ]
    # E = (1 / (2 beta N^2)) sum exp(beta c_ij); its derivative by c_ij is w_ij / (2 N^2).
    rate = sum(
        w[i, j] * (velocity[i][j] + velocity[j][i]) for i, j in product(tokens, repeat=2)
    ) / Integer(2 * count**2)
    squares = sum(
        a[i]
        * sum(
            w[i, k] * w[i, j] * (c[k, j] - c[i, k] * c[i, j]) for k, j in product(tokens, repeat=2)
        )
        for i in tokens
    )
    return rate, squares / Integer(count**2)


def _gradient_of_the_energy() -> bool:
    """Check N^2 dE/dx = sum_j exp(beta <x, x_j>) x_j, term by term in E.

    E contains exp(beta <x, x_j>) twice for each other token and exp(beta |x|^2) once, over
    2 beta N^2. The sum over the other tokens is linear, so this is the gradient for any N.
    """
    x, y = symbols("x_1:4"), symbols("y_1:4")
    other = exp(BETA * sum(a * b for a, b in zip(x, y, strict=True)))
    own = exp(BETA * sum(a**2 for a in x))
    return all(
        expand(diff(2 * other / (2 * BETA), a) - other * b) == 0
        and expand(diff(own / (2 * BETA), a) - own * a) == 0
        for a, b in zip(x, y, strict=True)
    )


def _energy_identity(unnormalised: bool) -> Finding:
    cases = [
        expand(rate - claimed) == 0
        for rate, claimed in (energy_rate(count, unnormalised) for count in (2, 3, 4))
    ]
    return proven(
        _gradient_of_the_energy(),
        expand((YY - XY**2) - projected_square().subs(XX, 1)) == 0,
        *cases,
        witness=(
            "y = N^2 dE/dx is sum_j exp(beta <x, x_j>) x_j and the velocity a multiple of P_x y, "
            "where "
            "<y, P_x y> = |P_x y|^2 on the sphere: any N and dimension; also the whole identity "
            "from "
            "the chain rule in inner products, N = 2, 3, 4"
        ),
    )


def two_token_rate() -> tuple[Expr, Expr]:
    """Return dE/dt of two tokens at the cosine c under SA, and the rate of c."""
    c = Symbol("c", real=True)
    own, other = exp(BETA), exp(BETA * c)
    speed = 2 * other * (1 - c**2) / (own + other)
    energy = (2 * own + 2 * other) / (8 * BETA)
    return diff(energy, c) * speed, speed


def energy_rate_increases() -> Finding:
    c = Symbol("c", real=True)
    rate, speed = two_token_rate()
    slope = cancel(diff(rate, c).subs(c, 1))
    factor = cancel(rate / (1 - c**2))
    return refuted(
        claim_fails=expand(slope + exp(BETA) / 2) == 0 and speed.subs(c, 0).is_positive,
        correction_holds=bool(factor.is_positive) and rate.subs(c, 1) == 0,
        witness=(
            "two tokens at the cosine c: dE/dt = e^(2 beta c)(1 - c^2)/(2 (e^beta + e^(beta c))) "
            "is "
            f"positive for -1 < c < 1 and 0 at c = 1, where its derivative by c is {slope}: it "
            "falls "
            "while c, and E, still grow. In general E is bounded, so the integral of dE/dt >= 0 is "
            "finite, and dE/dt, with a bounded derivative, tends to 0"
        ),
    )


def energy_decreases_when_repelling() -> Finding:
    cases = [
        expand(rate + squares) == 0
        for rate, squares in (
            energy_rate(count, unnormalised, value=-1)
            for count in (2, 3, 4)
            for unnormalised in (True, False)
        )
    ]
    return proven(_gradient_of_the_energy(), *cases)


def energy_derivative_usa() -> Finding:
    return _energy_identity(unnormalised=True)


def energy_derivative_sa() -> Finding:
    return _energy_identity(unnormalised=False)


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


def _induction_in_space() -> bool:
    """Check that t times the expansion of t^(m-1)/(m-1)! is m times that of t^m/m!, any k, j, nu.

    2 (k + nu) t C_k = (k + 1) C_(k+1) + (k + 2 nu - 1) C_(k-1), so the degrees k - 1 and k + 1
    contribute to k.
    """
    k, j = DEGREE, LATER
    below = gegenbauer_coefficient(k - 1, j) * k / (2 * (k - 1 + NU))
    above = gegenbauer_coefficient(k + 1, j - 1) * (k + 2 * NU) / (2 * (k + 1 + NU))
    whole = gegenbauer_coefficient(k, j)
    return cancel(gammasimp((below + above) / whole) - (k + 2 * j)) == 0


def _induction_on_the_circle() -> bool:
    k, j = DEGREE, LATER
    neighbours = fourier_coefficient(k - 1, j) + fourier_coefficient(k + 1, j - 1)
    return cancel(gammasimp(neighbours / (2 * fourier_coefficient(k, j))) - (k + 2 * j)) == 0


def _recurrence() -> bool:
    t = Symbol("t")
    return all(
        expand(
            2 * (k + NU) * t * gegenbauer(k, NU, t)
            - (k + 1) * gegenbauer(k + 1, NU, t)
            - (k + 2 * NU - 1) * gegenbauer(k - 1, NU, t)
        )
        == 0
        for k in range(1, 7)
    )


def _first_powers() -> bool:
    """Check the expansion itself for t^0/0!, ..., t^6/6!."""
    t = Symbol("t")
    return all(
        cancel(
            gammasimp(
                sum(
                    gegenbauer_coefficient(Rational(m - 2 * j), Rational(j))
                    * gegenbauer(m - 2 * j, NU, t)
                    for j in range(m // 2 + 1)
                )
            )
            - t**m / factorial(m)
        )
        == 0
        for m in range(7)
    )


def _moments(dimension: int, degree: int) -> bool:
    """Check <x, y>^m = <x (x) ... (x) x, y (x) ... (x) y>: the kernel as squares of moments."""
    x, y = (Matrix(symbols(f"{name}_1:{dimension + 1}")) for name in "xy")
    powers = x, y
    for _ in range(degree - 1):
        powers = kronecker_product(powers[0], x), kronecker_product(powers[1], y)
    return expand(powers[0].dot(powers[1]) - x.dot(y) ** degree) == 0


def energy_minimiser() -> Finding:
    uniform = gamma(Rational(1, 2)) * sqrt(2 / BETA) * besseli(Rational(1, 2), BETA) / 2
    mean = sinh(BETA) / BETA
    return proven(
        _recurrence(),
        _first_powers(),
        _induction_in_space(),
        _induction_on_the_circle(),
        bool(gegenbauer_coefficient(DEGREE, LATER).is_positive),
        bool(fourier_coefficient(DEGREE, LATER).is_positive),
        *[_moments(dimension, degree) for dimension in (2, 3) for degree in (1, 2, 3)],
        simplify(uniform - mean) == 0,
    )


def kernel_below_its_maximum() -> Expr:
    """Return log of e^beta / exp(beta <x, y>) minus beta |x - y|^2 / 2, for unit vectors."""
    xy = Symbol("xy", real=True)
    return expand(BETA - BETA * xy - BETA * (1 - 2 * xy + 1) / 2)


def energy_maximisers() -> Finding:
    return proven(kernel_below_its_maximum() == 0)


# Claims on attention on the sphere as a gradient: of which function, and of which functional.
#
# f is the L_2 gradient of a functional of measures only if its derivative by the mass at y, K(x,
# y), is symmetric up to functions of one argument (f may be changed by a constant, which moves
# nothing): K(x, y) - K(y, x) = c(x) - c(y), so that its cyclic sum over any three points is zero.

X, Y = (Matrix(symbols(f"{name}_1:4", real=True)) for name in "xy")
REST = Symbol("rest", positive=True)
"""The part of an integral or a sum that other tokens contribute."""


def gradient_of_logarithm(scale: Expr) -> list[Expr]:
    """Return the gradient in x of log int scale exp(beta <x, y>) dmu, minus beta times the average.

    One point of mu is written out, and the others are in a constant; so term by term.
    """
    kernel = exp(BETA * X.dot(Y))
    integral = scale * (kernel + REST)
    average = [kernel * y / (kernel + REST) for y in Y]
    return [cancel(diff(log(integral), x) - BETA * a) for x, a in zip(X, average, strict=True)]


def softmax_average_forms() -> Finding:
    kernel = exp(BETA * X.dot(Y))
    outside = [
        cancel(diff(log(kernel + REST), x) / BETA - kernel * y / (kernel + REST)) == 0
        for x, y in zip(X, Y, strict=True)
    ]
    return refuted(
        claim_fails=all(apart == 0 for apart in gradient_of_logarithm(1 / BETA)),
        correction_holds=all(outside),
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
    total = Integer(0)
    for k in range(3):
        x, y = points[k], points[(k + 1) % 3]
        total += kernel(x[0], x.dot(y)) - kernel(y[0], x.dot(y))
    return factor(total)


def sa_is_no_l2_gradient() -> Finding:
    """Check that the cyclic sum is -(1 - q)^2 (1 + q) / q, zero only for beta = 0."""
    apart = cyclic_sum(sa_kernel)
    return proven(
        cancel(apart + (1 - Q) ** 2 * (1 + Q) / Q) == 0,
        cyclic_sum(usa_kernel) == 0,
        witness=(
            "the derivative of log Z(x) by the mass at y is e^(beta <x, y>)/Z(x). At mu = "
            "delta_(e_1) "
            f"the cyclic sum over e_1, e_2, -e_1 is {apart} with q = e^-beta, and not 0 for any "
            "beta "
            "> 0 and d >= 2, so it is symmetric not even up to functions of one argument. Without "
            "the "
            "denominator the sum is 0"
        ),
    )


def tangential(x: Matrix, slopes: Matrix) -> Matrix:
    """Return P_x of a gradient."""
    return slopes - slopes.dot(x) * x


def spherical_gradient() -> Finding:
    f = Function("f")
    t = Symbol("t", real=True)
    v = Matrix(symbols("v_1:4", real=True))
    slopes = Matrix(symbols("g_1:4", real=True))
    circle = [x * cos(t) + w * sin(t) for x, w in zip(X, v, strict=True)]
    place = symbols("s_1:4")
    rate = sum(slope * diff(c, t).subs(t, 0) for slope, c in zip(slopes, circle, strict=True))
    projected = tangential(X, slopes)
    split = projected.dot(v) - (slopes.dot(v) - slopes.dot(X) * X.dot(v))
    radial = f(*place) * (sum(s**2 for s in place) - 1)
    change = Matrix([diff(radial, s) for s in place]).subs(dict(zip(place, X, strict=True)))
    sphere = {X[2]: sqrt(1 - X[0] ** 2 - X[1] ** 2)}
    on_sphere = tangential(X, change).subs(sphere).doit()
    return proven(
        expand(rate - slopes.dot(v)) == 0,
        expand(split) == 0,
        expand(X.dot(projected) - X.dot(slopes) * (1 - X.dot(X))) == 0,
        all(expand(entry) == 0 for entry in on_sphere),
    )


# Claims on attention without the denominator: USA, its energy, and what Sinkformers do instead.


def sinkformer_removes_the_denominator() -> Finding:
    """Scale the kernel of three tokens at 0, 90 and 180 degrees, beta = 1; then any N = 3."""
    a, one, b = exp(1), Integer(1), exp(-1)
    kernel = Matrix([[a, one, b], [one, a, one], [b, one, a]])
    u, v = symbols("u v")
    ends, middle = nsolve(
        [u * (a * u + v + b * u) - 1, v * (2 * u + a * v) - 1], (u, v), (0.5, 0.5)
    )
    scale = Matrix.diag(ends, middle, ends)
    doubly = scale * kernel * scale
    softmax = Matrix(3, 3, lambda i, j: kernel[i, j] / sum(kernel.row(i)))
    sums = [sum(doubly[i, j] for j in range(3)) for i in range(3)]
    without = [sum(kernel.row(i)) / 3 for i in range(3)]
    s = Matrix(3, 3, lambda i, j: Symbol(f"s_{min(i, j)}{max(i, j)}"))
    masses = Matrix.diag(*symbols("m_1:4"))
    symmetric = (eye(3) + s * masses) * s - s * (eye(3) + masses * s)
    return refuted(
        claim_fails=abs(float(without[0]) - 1) > 0.1 and abs(float(sum(softmax.col(0))) - 1) > 0.01,
        correction_holds=all(abs(float(total) - 1) < 1e-12 for total in sums)
        and doubly.is_symmetric(simplify=False)
        and symmetric.expand() == Matrix.zeros(3, 3)
        and _potential_derivative(),
    )


def _potential_derivative() -> bool:
    """Check that phi_i = log sum_j K_ij m_j e^(-phi_j) changes by (I + S M) dphi = S dm.

    S_ij = e^(-phi_i) K_ij e^(-phi_j), and the sum is e^(phi_i) at the solution.
    """
    size = range(3)
    phi, masses = symbols("phi_1:4"), symbols("m_1:4")
    kernel = Matrix(3, 3, lambda i, j: Symbol(f"k_{min(i, j)}{max(i, j)}"))
    for i in size:
        total = sum(kernel[i, j] * masses[j] * exp(-phi[j]) for j in size)
        for j in size:
            s = exp(-phi[i]) * kernel[i, j] * exp(-phi[j])
            by_mass = diff(total, masses[j]) * exp(-phi[i])
            by_potential = diff(total, phi[j]) * exp(-phi[i])
            if expand(by_mass - s) != 0 or expand(by_potential + s * masses[j]) != 0:
                return False
    return True


def projected(x: Matrix, y: Matrix) -> Matrix:
    """Return P_x y = y - <x, y> x.

    Raises
    ------
    TypeError
        If y is not a vector.
    """
    return y - x.dot(y) * x


def usa_continuity_equation() -> Finding:
    """Put the two integrals into P_x, one point of mu written out."""
    kernel = exp(BETA * X.dot(Y))
    try:
        projected(X, kernel)
        defined = True
    except TypeError:
        defined = False
    mended = projected(X, kernel * Y)
    gradient = Matrix([diff(first_variation(kernel), x) for x in X])
    return refuted(
        claim_fails=not defined,
        correction_holds=(mended - projected(X, gradient)).expand() == Matrix.zeros(3, 1)
        and expand(X.dot(mended) - kernel * X.dot(Y) * (1 - X.dot(X))) == 0,
    )


def first_variation(kernel: Expr) -> Expr:
    """Return what a unit of mass at y adds to the L_2 gradient of E at x."""
    return kernel / BETA


def usa_is_the_gradient() -> Finding:
    a, b = symbols("a b", positive=True)
    w, self_a, self_b = symbols("w w_aa w_bb", positive=True)
    energy = (a**2 * self_a + b**2 * self_b + 2 * a * b * w) / (2 * BETA)
    kernel = exp(BETA * X.dot(Y))
    return proven(
        expand(diff(energy, a) - first_variation(a * self_a + b * w)) == 0,
        *[
            expand(diff(first_variation(kernel), x) - kernel * y) == 0
            for x, y in zip(X, Y, strict=True)
        ],
    )


# Claims on attention with V = Q^T K symmetric as a gradient in the metric weighted by Z.

SYMMETRIC = Matrix([symbols("v_11 v_12"), symbols("v_12 v_22")])


def energy(tokens: Sequence[Matrix], value: Matrix) -> Expr:
    """Return (1/(2 beta)) sum_ij exp(beta <V x_i, x_j>)."""
    return sum(exp(BETA * (value * a).dot(b)) for a in tokens for b in tokens) / (2 * BETA)


def field(tokens: Sequence[Matrix], value: Matrix) -> Matrix:
    """Return sum_j exp(beta <V x_1, x_j>) V x_j."""
    x = tokens[0]
    terms = [exp(BETA * (value * x).dot(b)) * value * b for b in tokens]
    return sum(terms[1:], terms[0])


def normaliser(tokens: Sequence[Matrix], value: Matrix) -> Expr:
    """Return Z_1 = sum_j exp(beta <V x_1, x_j>); the one printed has V = I."""
    return sum((exp(BETA * (value * tokens[0]).dot(b)) for b in tokens), Integer(0))


def differs_from_the_gradient(value: Matrix, count: int) -> bool:
    """Return whether the derivative of E by x_1 is another vector than `field`."""
    tokens = [Matrix(symbols(f"x_{i}1:{i}3")) for i in range(1, count + 1)]
    total, moved = energy(tokens, value), field(tokens, value)
    return any(
        expand(diff(total, s) - entry) != 0 for s, entry in zip(tokens[0], moved, strict=True)
    )


def _tangent(x: Matrix, y: Matrix) -> Matrix:
    return (y - x.dot(y) * x).applyfunc(expand)


EXAMPLE = (Matrix([1, 0]), Matrix([0, 1])), Matrix([[2, 1], [1, 1]])


def example() -> tuple[Expr, Expr, Expr]:
    """Return, for e_1 of the tokens e_1, e_2, the motion along e_2.

    As printed, by the gradient in the printed metric, and of SA with Q^T K = V.
    """
    tokens, value = EXAMPLE
    moved = _tangent(tokens[0], field(tokens, value))[1]
    printed = (moved / normaliser(tokens, eye(2))).simplify()
    return moved, printed, (moved / normaliser(tokens, value)).simplify()


def weighted_gradient_exercise() -> Finding:
    moved, printed, with_v = example()
    return refuted(
        claim_fails=expand(moved - printed) != 0 and printed != with_v,
        correction_holds=not any(differs_from_the_gradient(SYMMETRIC, n) for n in (2, 3))
        and with_v == 1,
        witness=(
            "dE/dx_i = sum_j exp(beta <V x_i, x_j>) V x_j for symmetric V (2 and 3 tokens, "
            "symbols): "
            "X. as printed is the gradient in the plain metric. In the metric of Z it is divided "
            "by "
            "Z_i, which is > 1. Tokens e_1, e_2 and V = [[2, 1], [1, 1]]: e_1 moves along e_2 by "
            f"{moved} as printed, {printed} by the printed metric, {with_v} (SA) if Z has V"
        ),
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
ATTENTION = Matrix(symbols("y_1:4", real=True))


def step_expansion(normalised: bool) -> tuple[Matrix, Matrix]:
    """Return (x + h y)/|x + h y|, or x + h y, at h = 0 and its derivative there."""
    moved = TOKEN + STEP * ATTENTION
    if normalised:
        moved = moved / sqrt(expand(moved.dot(moved)))
    start = moved.subs(STEP, 0)
    return start, diff(moved, STEP).subs(STEP, 0).applyfunc(simplify)


def row_squares(moved: Matrix, by_token: bool) -> list[Expr]:
    """Return |row|^2 after division of each row, or of the whole matrix, by its norm."""
    squares = [sum(entry**2 for entry in moved.row(i)) for i in range(moved.rows)]
    total = sum(squares)
    return [cancel(square / (square if by_token else total)) for square in squares]


def normalised_update() -> Finding:
    moved = Matrix(3, 2, symbols("a_1:7", positive=True))
    together = row_squares(moved, by_token=False)
    return imprecise(
        part_that_holds=row_squares(moved, by_token=True) == [1, 1, 1]
        and step_expansion(normalised=True) == (TOKEN, ATTENTION - ATTENTION.dot(TOKEN) * TOKEN),
        part_that_fails=cancel(sum(together)) == 1 and all(square != 1 for square in together),
    )


def layers_as_ode() -> Finding:
    projected = ATTENTION - ATTENTION.dot(TOKEN) * TOKEN
    return tested(
        step_expansion(normalised=True) == (TOKEN, projected),
        step_expansion(normalised=False) == (TOKEN, ATTENTION),
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
        cancel(velocity - plain[token]) == 0
        for order in permutations(tokens)
        for token, velocity in zip(order, velocities(order, causal), strict=True)
    )


def tokens_as_particles() -> Finding:
    tokens = symbols("x_1:4")
    doubled = velocities((*tokens, *tokens))[:3]
    same = [cancel(a - b) == 0 for a, b in zip(doubled, velocities(tokens), strict=True)]
    return tested(exchangeable(causal=False), not exchangeable(causal=True), *same)


# Claims on attention as the slides introduce it: queries, scale, shapes, temperature.

TOKENS = range(3)


def coupled_queries(by_row: bool) -> list[tuple[int, int]]:
    """Return the pairs (i, k), i not k, for which output i of attention depends on query k.

    The weights are normalised over the keys of each query or, if not by_row, over the queries.
    """
    queries, values = symbols("q_1:4"), symbols("v_1:4")
    score = [[Function(f"s_{j}")(q) for j in TOKENS] for q in queries]

    def total(i: int, j: int) -> Expr:
        return sum((exp(score[i][k] if by_row else score[k][j]) for k in TOKENS), Integer(0))

    outputs = [sum(exp(score[i][j]) / total(i, j) * values[j] for j in TOKENS) for i in TOKENS]
    pairs = product(TOKENS, repeat=2)
    return [(i, k) for i, k in pairs if i != k and diff(outputs[i], queries[k]) != 0]


def attention_parallel_queries() -> Finding:
    return tested(not coupled_queries(by_row=True), len(coupled_queries(by_row=False)) == 6)


def score_variance(dimension: int, scale: Expr) -> Expr:
    """Return the variance of scale <q, k>: independent entries of mean 0 and variance 1.

    Monomials have the expectation 1 if all exponents are 2, and 0 if one is 1.
    """
    q, k = symbols(f"q_1:{dimension + 1}"), symbols(f"k_1:{dimension + 1}")
    square = expand((scale * sum(a * b for a, b in zip(q, k, strict=True))) ** 2)
    variance = Integer(0)
    for term in square.as_ordered_terms():
        factor, rest = term.as_independent(*q, *k)
        exponents = rest.as_powers_dict()
        if not {exponents[s] for s in (*q, *k)} <= {0, 1, 2}:
            raise ArithmeticError("a moment above the second is needed")
        variance += factor if 1 not in {exponents[s] for s in (*q, *k)} else 0
    return variance


def scaled_scores_variance() -> Finding:
    d, spread = symbols("d s", positive=True)
    weight = 1 / (1 + exp(-spread))
    slope = 1 / (4 * cosh(spread / 2) ** 2)
    scaled_back = [score_variance(n, 1 / sqrt(Integer(n))) for n in (1, 2, 5)]
    return tested(
        *[score_variance(n, Integer(1)) == n for n in (1, 2, 5)],
        scaled_back == [1, 1, 1],
        simplify((weight * (1 - weight) - slope).rewrite(exp)) == 0,
        slope.subs(spread, sqrt(d) * spread).limit(d, "oo") == 0,
    )


Shape = tuple[int, int]


def chained(*shapes: Shape | None) -> Shape | None:
    """Return the shape of a product of matrices, None if it does not exist."""
    result = shapes[0]
    for shape in shapes[1:]:
        if result is None or shape is None or result[1] != shape[0]:
            return None
        result = (result[0], shape[1])
    return result


def printed_shape(n: int, d: int, size: int) -> Shape | None:
    """Return the shape of softmax(Q x^T (K x)) V x with Q, K, V of shape n x l."""
    weights = chained((n, size), (d, n), chained((n, size), (n, d)))
    return chained(weights, chained((n, size), (n, d)))


def corrected_shape(n: int, d: int, size: int) -> Shape | None:
    """Return the shape of softmax((x Q^T)(x K^T)^T) x V^T with Q, K: l x d and V: d x d."""
    query = chained((n, d), (d, size))
    key = chained((size, d), (d, n))
    return chained(query, key, (n, d), (d, d))


def attention_shapes() -> Finding:
    sizes = list(product(range(1, 5), repeat=3))
    composed = [size for size in sizes if printed_shape(*size) is not None]
    return refuted(
        claim_fails=composed == [(k, k, k) for k in range(1, 5)],
        correction_holds=all(corrected_shape(n, d, k) == (n, d) for n, d, k in sizes),
        witness=(
            "Q x^T needs l = d and K x needs l = n: of all sizes up to 4 the printed product "
            "exists "
            f"for {len(composed)} of {len(sizes)}, those with n = d = l, and there Q, K and V "
            "would "
            "mix the tokens. With Q, K in R^(l x d), as line 215 applies them to a token, it "
            "always "
            "exists and has the shape of x"
        ),
    )


def attention_temperature() -> Finding:
    beta, spread = symbols("beta s", positive=True)
    weight = 1 / (1 + exp(-beta * spread))
    inverse = weight.subs(beta, 1 / beta)
    return imprecise(
        part_that_holds=simplify(inverse.subs(beta, 1 / beta) - weight) == 0
        and simplify((inverse - weight).subs(beta, 1)) == 0,
        part_that_fails=abs(float((weight - inverse).subs({beta: 2, spread: 1}))) > 0.25,
    )


# Claims on attention as an average: the weights, the scores, and the average by a measure.

PAIR = (3, 2)
"""Sizes of the matrices that are written out, as keys x width."""


def integrals(places: Sequence[Symbol], numerator: Expr, y: Symbol) -> Expr:
    """Return int numerator(y) dmu / int h(y) dmu for mu = (1/n) sum of point masses, d = 1."""
    kernel = Function("h", positive=True)
    masses = sum(DiracDelta(y - place) for place in places) / len(places)
    above, below = (
        sum(integrate(term, (y, -oo, oo)) for term in (f * masses).expand().args)
        for f in (numerator, kernel(y))
    )
    return cancel(above / below)


def ratio_of_integrals_lacks_y() -> Finding:
    """Integrate a general kernel h(y) against three point masses, with and without y."""
    y = Symbol("y", real=True)
    places = symbols("a_1:4", real=True)
    h = Function("h", positive=True)
    mean = sum(h(a) * a for a in places) / sum(h(a) for a in places)
    return refuted(
        claim_fails=integrals(places, h(y), y) == 1,
        correction_holds=cancel(integrals(places, y * h(y), y) - mean) == 0,
    )


def attention_of_the_empirical_measure() -> Finding:
    """Check one atom, and that 1/n cancels with all other atoms in one constant."""
    y, place = symbols("y a", real=True)
    h = Function("h", positive=True)
    count, rest, moved = symbols("n r s", positive=True)
    sums = (h(place) * place + moved) / (h(place) + rest)
    scaled = ((h(place) * place + moved) / count) / ((h(place) + rest) / count)
    return proven(
        integrate(y * h(y) * DiracDelta(y - place), (y, -oo, oo)) == h(place) * place,
        cancel(scaled - sums) == 0,
        *[
            cancel(
                integrals(places, y * h(y), y)
                - sum(h(a) / sum(h(b) for b in places) * a for a in places)
            )
            == 0
            for places in (symbols("a_1:3", real=True), symbols("a_1:5", real=True))
        ],
    )


LONG_KEY = Matrix([2, 3])


def inner_product_as_similarity() -> Finding:
    """Compare inner products with distances and angles."""
    want, key, other = Matrix([1, 0]), Matrix([1, 0]), LONG_KEY
    xx, xy, yy = symbols("xx xy yy", real=True)
    square = (xx - 2 * xy + yy).subs({xx: 1, yy: 1})
    return imprecise(
        part_that_holds=(square - (2 - 2 * xy)).expand() == 0,
        part_that_fails=want.dot(other) > want.dot(key)
        and (want - other).norm() > (want - key).norm() == 0,
    )


def scores(query: Matrix, key: Matrix, x: Matrix, y: Matrix) -> tuple[Expr, Expr, Expr]:
    """Return <Qx, Ky>, x^T Q K y and x^T Q^T K y."""
    return ((query * x).dot(key * y), (x.T * query * key * y)[0], (x.T * query.T * key * y)[0])


def scores_without_transpose() -> Finding:
    x, y = Matrix([0, 1]), Matrix([1, 1])
    query, key = Matrix([[0, 1], [0, 0]]), eye(2)
    wide = (Matrix(*PAIR, symbols("q_1:7")), Matrix(*PAIR, symbols("k_1:7")))
    general = scores(query, key, x, y)
    inner = (wide[0] * Matrix(symbols("x_1:3"))).dot(wide[1] * Matrix(symbols("y_1:3")))
    form = (Matrix(symbols("x_1:3")).T * wide[0].T * wide[1] * Matrix(symbols("y_1:3")))[0]
    return refuted(
        claim_fails=general[0] == 1 and general[1] == 0,
        correction_holds=general[2] == general[0] and (inner - form).expand() == 0,
    )


def simplified_attention() -> Finding:
    """Put V = Id and Q^T K = beta Id into the weights of the scores x^T Q^T K y."""
    beta = Symbol("beta", positive=True)
    x, y, z = (Matrix(symbols(f"{name}_1:3")) for name in "xyz")
    query = Matrix([[1, 2], [0, 1]])
    key = beta * query.T.inv()
    weights = [exp(scores(query, key, x, t)[2].expand()) for t in (y, z)]
    simple = [exp((beta * x.dot(t)).expand()) for t in (y, z)]
    moved = [(a * y[k] + b * z[k]) / (a + b) for a, b in (weights, simple) for k in range(2)]
    return proven(
        query.T * key == beta * eye(2),
        *[cancel(a - b) == 0 for a, b in zip(moved[:2], moved[2:], strict=True)],
    )


_AVERAGE = (
    r"\frac{\int e^{\langle Q_t x, K_t y \rangle} \mu(t)(dy)}"
    r"{\int e^{\langle Q_t x, K_t y \rangle} \mu(t)(dy)}"
)
_SIMPLE = (
    r"\frac{\sum_{j=1}^n e^{\beta \langle x_i(t), x_j(t) \rangle} x_j(t)}"
    r"{\sum_{k=1}^n e^{\beta \langle x_i(t), x_k(t) \rangle}}"
)
