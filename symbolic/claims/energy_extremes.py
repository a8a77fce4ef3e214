"""Claims on the laws of least and largest interaction energy: the uniform one and point masses.

With nu = d/2 - 1 the kernel has the expansion

    exp(beta t) = Gamma(nu) (2/beta)^nu sum_k (k + nu) I_(k+nu)(beta) C_k^nu(t)      (d >= 3),
    exp(beta cos a) = sum over all integers k of I_k(beta) e^(i k a)                (d = 2).

All coefficients are positive. By the addition theorem (I. J. Schoenberg, 1942) int int C_k^nu
dmu dmu is a positive multiple of the sum of the squares of the moments of mu of degree k, so
E(mu) - E(uniform) is a sum of squares, zero only if every moment is that of the uniform law.
"""

from __future__ import annotations

from sympy import (
    Expr,
    Matrix,
    Rational,
    Symbol,
    besseli,
    cancel,
    expand,
    factorial,
    gamma,
    gammasimp,
    gegenbauer,
    kronecker_product,
    simplify,
    sinh,
    sqrt,
    symbols,
)

from symbolic.claims.inner_products import BETA
from symbolic.claims.ledger import Finding, Verdict, at, note, proven

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


def _minimiser() -> Finding:
    uniform = gamma(Rational(1, 2)) * sqrt(2 / BETA) * besseli(Rational(1, 2), BETA) / 2
    mean = sinh(BETA) / BETA
    return proven(
        "induction over m with the recurrence of the polynomials: t^m/m! has positive coefficients "
        "(k + nu) Gamma(nu) / (j! Gamma(nu + k + j + 1) 2^m) in C_k^nu, m = k + 2j, for all k, j "
        "and nu > 0, so exp(beta t) has (k + nu) I_(k+nu)(beta) > 0 times a constant; 1/(j! (k + "
        "j)! 2^m) on the circle. Hence E(mu) - E(uniform) is a sum of squares of moments, 0 only "
        "for the uniform law (addition theorem: Schoenberg 1942)",
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


def _maximisers() -> Finding:
    return proven(
        "exp(beta <x, y>) = e^beta exp(-beta |x - y|^2 / 2) on the sphere, so E(mu) <= e^beta / (2 "
        "beta), with equality only if x = y for almost all pairs drawn from mu: a point mass",
        kernel_below_its_maximum() == 0,
    )


CLAIMS = [
    note(
        "energy-minimiser",
        "Proposition 3.4: for beta > 0 and d >= 2 the uniform measure is the only minimiser of E "
        "among all probability measures on the sphere (outline: Gegenbauer polynomials).",
        Verdict.PROVEN,
        _minimiser,
        at("004:274"),
        at("004:275"),
    ),
    note(
        "energy-maximisers",
        "Proposition 3.4: for beta > 0 every maximiser of E is a point mass.",
        Verdict.PROVEN,
        _maximisers,
        at("004:274", r"δ_{x^*}$ at some $x^* \in \mathbb{S}^{d-1}"),
        at("004:364"),
    ),
]
