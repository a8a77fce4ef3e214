"""Claims on attention on the sphere as a gradient: of which functional, in which metric."""

from __future__ import annotations

from sympy import Integer, Matrix, Symbol, cancel, diff, exp, expand, log, symbols

from symbolic.claims.inner_products import BETA
from symbolic.claims.ledger import Claim, Finding, Verdict, proven


def _softmax_average_forms() -> Finding:
    """Check the weights as a measure, and as the gradient of log-sum-exp."""
    x = symbols("x_1:4")
    y, rest = symbols("y_1:4"), symbols("rest", positive=True)
    kernel = exp(BETA * sum(a * b for a, b in zip(x, y, strict=True)))
    gradient = [
        cancel(diff(log(kernel + rest), a) / BETA - kernel * b / (kernel + rest)) == 0
        for a, b in zip(x, y, strict=True)
    ]
    count, total = symbols("N Z", positive=True)
    weight = Symbol("w")
    return proven(
        "with mu = (1/N) sum of point masses the factor 1/N of integral and normaliser cancels; "
        "term by term the gradient of (1/beta) log sum_j exp(beta <x, x_j>) has the softmax "
        "weights (the other terms of the sum, and dependence on x alone, in one constant)",
        cancel((weight / count) / (total / count) - weight / total) == 0,
        *gradient,
    )


def _usa_is_the_gradient() -> Finding:
    a, b = symbols("a b", positive=True)
    w, self_a, self_b = symbols("w w_aa w_bb", positive=True)
    energy = (a**2 * self_a + b**2 * self_b + 2 * a * b * w) / (2 * BETA)
    x, y = symbols("x_1:4"), symbols("y_1:4")
    kernel = exp(BETA * sum(s * t for s, t in zip(x, y, strict=True)))
    return proven(
        "the derivative of E by the mass at x is (1/beta) int exp(beta <x, y>) dmu(y); its "
        "gradient in x, coordinate by coordinate, is int exp(beta <x, y>) y dmu(y), whose "
        "projection by P_x is the USA field",
        expand(diff(energy, a) - (a * self_a + b * w) / BETA) == 0,
        *[expand(diff(kernel / BETA, s) - kernel * t) == 0 for s, t in zip(x, y, strict=True)],
    )


def _z_weighted_gradient() -> Finding:
    facts = []
    for count in (2, 3):
        x = [Matrix(symbols(f"x_{i}1:{i}4")) for i in range(count)]
        total = sum(exp(BETA * a.dot(b)) for a in x for b in x)
        energy = total / (2 * BETA * count**2)
        z = sum(exp(BETA * x[0].dot(b)) for b in x)
        for k in range(3):
            field = sum((exp(BETA * x[0].dot(b)) * b[k] for b in x), Integer(0)) / z
            gradient = diff(energy, x[0][k])
            facts.append(expand(count**2 * gradient - field * z) == 0)
    return proven(
        "N^2 dE/dx_i = sum_j exp(beta <x_i, x_j>) x_j = Z_i times the softmax average, by "
        "differentiation (N = 2, 3 in R^3; the sum over j is the same for any N); then apply P_x",
        *facts,
    )


CLAIMS = [
    Claim(
        "softmax-average-forms",
        "The softmax average as a sum over tokens, as an integral by the empirical measure, and as "
        "the gradient of log-sum-exp are equal.",
        r"$\frac1{Z}\sum_je^{\beta\langle x,x_j\rangle}x_j = \frac{\int e^{\beta\langle x,y\rangle}"
        r"y\,d\mu}{\int e^{\beta\langle x,y\rangle}d\mu} = \frac1\beta\nabla\log\sum_j"
        r"e^{\beta\langle x,x_j\rangle}$",
        Verdict.PROVEN,
        _softmax_average_forms,
    ),
    Claim(
        "usa-is-the-gradient",
        "The spherical gradient of the first variation of E is the USA field.",
        r"$\nabla_{S}\frac{\delta E}{\delta\mu}(x) = P_x\int e^{\beta\langle x,y\rangle}y\,d\mu$",
        Verdict.PROVEN,
        _usa_is_the_gradient,
    ),
    Claim(
        "sa-is-a-weighted-gradient",
        "SA is the gradient of E in the metric weighted by Z: Z_i x_i' = N^2 P_x dE/dx_i.",
        r"SA: $Z_i\dot x_i = N^2P_{x_i}\nabla_{x_i}E$",
        Verdict.PROVEN,
        _z_weighted_gradient,
    ),
]
