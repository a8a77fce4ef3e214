"""Second derivatives of the energy of tokens on the sphere, in inner products.

They are those of N^2 E, along great circles, of a pair of tokens: exp(beta <x, y>) / beta.
"""

from __future__ import annotations

from sympy import Expr, Symbol, cancel, cos, diff, exp, expand, factor, symbols

from symbolic.claims.inner_products import BETA

C = Symbol("c", real=True)
"""Cosine of two tokens."""
DIMENSION = Symbol("d", positive=True)


ANGLE = Symbol("a", positive=True)


def curvature_of_a_pair() -> Expr:
    """Return d^2/dt^2 exp(beta <x, y>) / beta at 0 along great circles with velocities a and b.

    The symbols are ab = <a, b>, aa, bb, and s = <a, y> + <x, b>.
    """
    t = Symbol("t")
    ab, aa, bb, s = symbols("ab aa bb s", real=True)
    # x + t a - t^2 |a|^2 x / 2 + O(t^3), and the same for y.
    cosine = C + t * s + t**2 * (ab - aa * C / 2 - bb * C / 2)
    return expand(diff(exp(BETA * cosine) / BETA, t, 2).subs(t, 0))


def mean_curvature() -> Expr:
    """Return its mean for a = P_x g and b = P_y g, one standard Gaussian vector g.

    <a, y> + <x, b> = (1 - c) <g, x + y>, <a, b> = |g|^2 - <g, x>^2 - <g, y>^2 + c <g, x> <g, y>.
    """
    s, ab, aa, bb = symbols("s ab aa bb", real=True)
    square = (1 - C) ** 2 * (2 + 2 * C)
    others = {ab: DIMENSION - 2 + C**2, aa: DIMENSION - 1, bb: DIMENSION - 1}
    curvature = curvature_of_a_pair()
    return factor(curvature.coeff(s, 2) * square + curvature.coeff(s, 0).subs(others))


def every_point_has_a_way_up(dimension: Expr) -> bool:
    """Return whether the mean second derivative is positive for every cosine from -1 to 1.

    With c = 1 - s and 1 + c = r it is a sum of terms in s > 0, r >= 0.
    """
    s, r = Symbol("s", positive=True), Symbol("r", nonnegative=True)
    bracket = cancel(mean_curvature() / (2 * exp(BETA * C) * (1 - C))).subs(DIMENSION, dimension)
    claimed = BETA * (1 - C) * (1 + C) + dimension - 2 - C
    in_terms = BETA * s * r + expand((dimension - 2 - C).subs(C, 1 - s))
    return bool(expand(bracket - claimed) == 0 and in_terms.is_positive)


def curvature_of_one_token() -> Expr:
    """Return the trace over the directions a of one token x of the curvature of the pair (x, y)."""
    # The sum over an orthonormal basis of <a, y>^2 is 1 - c^2, of |a|^2 it is d - 1; b = 0.
    curvature = curvature_of_a_pair()
    s, aa, ab, bb = symbols("s aa ab bb", real=True)
    fixed = {aa: DIMENSION - 1, ab: 0, bb: 0}
    return expand(curvature.coeff(s, 2) * (1 - C**2) + curvature.coeff(s, 0).subs(fixed))


def curvature_on_the_circle() -> Expr:
    """Return the second derivative of exp(beta cos a) / beta by the angle, over exp(beta cos a)."""
    kernel = exp(BETA * cos(ANGLE))
    return expand(cancel(diff(kernel / BETA, ANGLE, 2) / kernel))
