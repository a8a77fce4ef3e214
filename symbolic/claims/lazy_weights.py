"""Claims on Gaussian weights that are revealed by products from both sides, in the 2 x 2 case.

W has independent N(0, s^2) entries. First a = P W is asked for, with a unit row P of angle alpha;
then q = W Q^T, with a unit row Q whose angle beta may depend on a. P' and Q' are P and Q turned by
a right angle. What is then known of W is its entries along P and along Q; the rest is the number
r = P' W Q'^T.
"""

from __future__ import annotations

from sympy import (
    Expr,
    Function,
    Matrix,
    Symbol,
    cos,
    diff,
    eye,
    kronecker_product,
    simplify,
    sin,
    symbols,
    zeros,
)

from symbolic.claims.ledger import Claim, Finding, Verdict, proven

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


def _fixed() -> Finding:
    p, q = turned(ALPHA), turned(BETA)
    mean, covariance = conditional_law(ALPHA, BETA)
    rest = kronecker_product(p[1, :], q[1, :])
    known = eye(4) - rest.T * rest
    return proven(
        "Gaussian conditioning of the four entries on the three numbers P W, P' W Q^T: the mean is "
        "W - P'^T r Q', and the covariance is s^2 times the projection on P'^T Q'",
        (mean - known).applyfunc(simplify) == zeros(4, 4),
        (covariance - S**2 * rest.T * rest).applyfunc(simplify) == zeros(4, 4),
        simplify((rest * covariance * rest.T)[0]) == S**2,
    )


def weights(angle_out: Expr) -> Matrix:
    """Return W as a function of a, b and r: P^T a + P'^T (b Q + r Q')."""
    p, q = turned(ALPHA), turned(angle_out)
    return p[0, :].T * A + p[1, :].T * (B * q[0, :] + R * q[1, :])


def _adaptive() -> Finding:
    w = weights(Function("beta", real=True)(*A))
    variables = [*A, B, R]
    jacobian = Matrix([[diff(entry, x) for x in variables] for entry in w])
    squares = sum(entry**2 for entry in w) - sum(x**2 for x in variables)
    return proven(
        "change of variables from W to (a, b, r), for any function beta(a): the Jacobian has the "
        "determinant 1 and |W|^2 = |a|^2 + b^2 + r^2, so that the density of W is "
        "a product of densities of N(0, s^2)",
        simplify(jacobian.det() ** 2) == 1,
        simplify(squares) == 0,
    )


def _image() -> Finding:
    p = turned(ALPHA)
    # After W Q^T, the question P W: along Q it is known, and the rest is that of a new vector.
    w = weights(BETA)
    q = turned(BETA)
    fresh = Matrix([symbols("g_1 g_2", real=True)])
    image = (p[1, :] * w * q[0, :].T)[0] * q[0, :] + fresh * (eye(2) - q[0, :].T * q[0, :])
    return proven(
        "the difference between P' W and (P' W Q^T) Q is r Q', and that between g and (g Q^T) Q is "
        "(g Q'^T) Q' with g Q'^T ~ N(0, s^2) for independent N(0, s^2) entries of g",
        (p[1, :] * w - B * q[0, :] - R * q[1, :]).applyfunc(simplify) == zeros(1, 2),
        (image - B * q[0, :] - (fresh * q[1, :].T)[0] * q[1, :]).applyfunc(simplify) == zeros(1, 2),
        simplify((q[1, :] * q[1, :].T)[0]) == 1,
    )


CLAIMS = [
    Claim(
        "revealed-from-both-sides",
        "Given P W and W Q^T, a 2 x 2 matrix W of independent N(0, s^2) entries is known but for "
        "r = P' W Q'^T, which is N(0, s^2) and independent of both.",
        r"$W\mid PW,\,WQ^\top\sim W-P'^\top rQ'+P'^\top N(0,s^2)\,Q'$",
        Verdict.PROVEN,
        _fixed,
    ),
    Claim(
        "revealed-by-answers",
        "The same holds if Q is chosen by the answer P W: a = P W, b = P' W Q(a)^T and "
        "r = P' W Q'(a)^T are independent N(0, s^2) numbers.",
        r"$(a,b,r)\sim N(0,s^2)^{\otimes4}$",
        Verdict.PROVEN,
        _adaptive,
    ),
    Claim(
        "revealed-image",
        "A new input direction P' has the image P' W = (P' W Q^T) Q + g - (g Q^T) Q in law, where "
        "g has independent N(0, s^2) entries.",
        r"$P'W=(P'WQ^\top)Q+g(I-Q^\top Q)$",
        Verdict.PROVEN,
        _image,
    ),
]
