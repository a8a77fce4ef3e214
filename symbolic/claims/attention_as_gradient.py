"""Claims on attention on the sphere as a gradient: of which function, and of which functional.

f is the L_2 gradient of a functional of measures only if its derivative by the mass at y, K(x, y),
is symmetric up to functions of one argument (f may be changed by a constant, which moves nothing):
K(x, y) - K(y, x) = c(x) - c(y), so that its cyclic sum over any three points is zero.
"""

from __future__ import annotations

from collections.abc import Callable

from sympy import (
    Expr,
    Function,
    Integer,
    Matrix,
    Symbol,
    cancel,
    cos,
    diff,
    exp,
    expand,
    factor,
    log,
    sin,
    sqrt,
    symbols,
)

from symbolic.claims.inner_products import BETA
from symbolic.claims.ledger import Finding, Verdict, at, note, proven, refuted

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


def _logarithmic_derivative() -> Finding:
    kernel = exp(BETA * X.dot(Y))
    outside = [
        cancel(diff(log(kernel + REST), x) / BETA - kernel * y / (kernel + REST)) == 0
        for x, y in zip(X, Y, strict=True)
    ]
    return refuted(
        "log of beta^-1 times the integral is -log(beta) plus log of the integral: the factor "
        "changes nothing. grad exp(beta <x, y>) = beta y exp(beta <x, y>), so the gradient is beta "
        "times the softmax average, and P_x of it beta X[mu] (term by term in mu, any beta)",
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


def _no_l2_gradient() -> Finding:
    """Check that the cyclic sum is -(1 - q)^2 (1 + q) / q, zero only for beta = 0."""
    apart = cyclic_sum(sa_kernel)
    return proven(
        "the derivative of log Z(x) by the mass at y is e^(beta <x, y>)/Z(x). At mu = delta_(e_1) "
        f"the cyclic sum over e_1, e_2, -e_1 is {apart} with q = e^-beta, and not 0 for any beta "
        "> 0 and d >= 2, so it is symmetric not even up to functions of one argument. Without the "
        "denominator the sum is 0",
        cancel(apart + (1 - Q) ** 2 * (1 + Q) / Q) == 0,
        cyclic_sum(usa_kernel) == 0,
    )


def tangential(x: Matrix, slopes: Matrix) -> Matrix:
    """Return P_x of a gradient."""
    return slopes - slopes.dot(x) * x


def _spherical_gradient() -> Finding:
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
        "along the great circle x cos t + v sin t the function has the rate <grad f, v>, which is "
        "<P grad f, v> + <x, v> <grad f, x>, and <x, v> = 0 for a tangent v; P grad f is itself "
        "tangent. Another continuation of f off the sphere, by (|x|^2 - 1) g, changes grad f by a "
        "multiple of x and P grad f not at all (every f and g, in coordinates)",
        expand(rate - slopes.dot(v)) == 0,
        expand(split) == 0,
        expand(X.dot(projected) - X.dot(slopes) * (1 - X.dot(X))) == 0,
        all(expand(entry) == 0 for entry in on_sphere),
    )


CLAIMS = [
    note(
        "softmax-average-forms",
        "The field of SA is a logarithmic derivative: the spherical gradient of log int beta^-1 "
        "exp(beta <x, y>) dmu(y) is P_x of the softmax average, X[mu](x).",
        Verdict.FALSE,
        _logarithmic_derivative,
        at(
            "004:287-289",
            r"\nabla_S \log \int \beta^{-1} \exp(\beta \langle x, y \rangle) d\mu(y)",
            r"P_x^\perp \left(Z_{\beta, \mu}^{-1}(x) \int \exp(\beta \langle x, y \rangle) y "
            r"d\mu(y) \right)",
        ),
        corrected="X[mu] is the spherical gradient of beta^-1 log int exp(beta <x, y>) dmu(y); "
        "with beta^-1 inside the logarithm the gradient is beta X[mu].",
        why="A constant factor inside the logarithm does not change the gradient; beta^-1 "
        "belongs in front.",
    ),
    note(
        "sa-is-no-l2-gradient",
        "log int beta^-1 exp(beta <x, y>) dmu(y) is not the L_2 gradient of any functional of mu.",
        Verdict.PROVEN,
        _no_l2_gradient,
        at("004:290", r"\log \int \beta^{-1} \exp(\beta \langle x, y \rangle) d\mu(y)"),
        test="test_sphere_mean_field.py::test_usa_is_the_gradient_flow_of_the_energy_and_sa_is_not",
    ),
    note(
        "spherical-gradient",
        "At x on the sphere tangent vectors are those with <v, x> = 0, D f(x)[v] = <grad f, v> - "
        "<grad f, x> <x, v> for them, and the spherical gradient is P_x grad f.",
        Verdict.PROVEN,
        _spherical_gradient,
        at(
            "004:292-301",
            r"T_x \mathbb{S}^{d-1} = \{v \in \mathbb{R}^d : \langle v, x \rangle = 0\}",
            r"\langle \nabla f(x), v \rangle - \langle \nabla f(x), x \rangle \langle x, v "
            r"\rangle",
            r"\nabla f(x) - \langle \nabla f(x), x \rangle x",
        ),
    ),
]
