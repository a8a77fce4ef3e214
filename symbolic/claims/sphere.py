"""Claims on self-attention on the sphere: fields, energies, equiangular tokens.

Vectors appear only through their inner products: for a token x and a vector y the symbols are
xx = <x, x>, xy, yy, with xx = 1 on the sphere. The identities therefore hold in every dimension,
and for y = sum_j w_j x_j with any number of tokens.
"""

from __future__ import annotations

from itertools import product

from sympy import Expr, Integer, Matrix, Rational, Symbol, cancel, diff, exp, expand, log, symbols

from symbolic.claims.ledger import Claim, Finding, Verdict, imprecise, proven, tested

BETA = Symbol("beta", positive=True)
XX, XY, YY = symbols("xx xy yy", real=True)


def _projected_square() -> Expr:
    """Return |P_x y|^2 for P_x y = y - <x, y> x."""
    return YY - 2 * XY**2 + XY**2 * XX


def _stays_on_the_sphere() -> Finding:
    rate = expand(2 * (XY - XY * XX))
    return proven(
        "d|x|^2/dt = 2 <x, P_x y> = 2 <x, y> (1 - |x|^2), which is 0 on the sphere, for every y",
        rate.subs(XX, 1) == 0,
        expand(rate - 2 * XY * (1 - XX)) == 0,
    )


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


def _gram_symbols(count: int) -> tuple[Matrix, Matrix]:
    """Return inner products c_ij with c_ii = 1, and weights w_ij = exp(beta c_ij), as symbols."""
    c = Matrix(
        count,
        count,
        lambda i, j: Integer(1) if i == j else Symbol(f"c_{min(i, j)}{max(i, j)}", real=True),
    )
    w = Matrix(count, count, lambda i, j: Symbol(f"w_{min(i, j)}{max(i, j)}", positive=True))
    return c, w


def _energy_rate(count: int, unnormalised: bool) -> tuple[Expr, Expr]:
    """Return dE/dt from the chain rule in inner products, and the claimed sum of squares.

    The row weights are a_i w_ij with a_i = 1/N (USA) or the symbol a_i = 1/Z_i (SA); the claimed
    sum has the factor 1/a_i in row i: N for USA, after division by N^2, and Z_i for SA.
    """
    c, w = _gram_symbols(count)
    tokens = range(count)
    a = [Rational(1, count) if unnormalised else Symbol(f"a_{i}", positive=True) for i in tokens]
    velocity = [
        [a[i] * sum(w[i, k] * (c[k, j] - c[i, k] * c[i, j]) for k in tokens) for j in tokens]
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
        for rate, claimed in (_energy_rate(count, unnormalised) for count in (2, 3, 4))
    ]
    return proven(
        "y = N^2 dE/dx is sum_j exp(beta <x, x_j>) x_j and the velocity a multiple of P_x y, where "
        "<y, P_x y> = |P_x y|^2 on the sphere: any N and dimension; also the whole identity from "
        "the chain rule in inner products, N = 2, 3, 4",
        _gradient_of_the_energy(),
        expand((YY - XY**2) - _projected_square().subs(XX, 1)) == 0,
        *cases,
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


def _equiangular(unnormalised: bool) -> Finding:
    count = Symbol("N", positive=True)
    g = Symbol("g", real=True)
    own, other = exp(BETA), exp(BETA * g)
    total = count if unnormalised else own + (count - 1) * other
    p_own, p_other = own / total, other / total
    # V = (1 - g) I + g 11^T: an off-diagonal and a diagonal entry of M = p V.
    off = p_own * g + p_other * (1 + (count - 2) * g)
    diagonal = p_own + (count - 1) * p_other * g
    rate = 2 * off - 2 * diagonal * g
    claimed = 2 * other * (1 - g) * ((count - 1) * g + 1) / total
    return proven(
        "Gram flow dV = M + M^T - (diag(M) 1^T + 1 diag(M)^T) V at V = (1-g) I + g 11^T, any N",
        cancel(rate - claimed) == 0,
    )


def _gram_flow() -> Finding:
    """Check dV_ij = <x_i', x_j> + <x_i, x_j'> against the matrix form, N = 2, 3, any weights."""
    cases = []
    for count in (2, 3):
        c, _ = _gram_symbols(count)
        p = Matrix(count, count, symbols(f"p_1:{count**2 + 1}"))
        m = p * c
        for i, j in product(range(count), repeat=2):
            direct = sum(
                p[i, k] * (c[k, j] - c[i, k] * c[i, j]) + p[j, k] * (c[k, i] - c[j, k] * c[j, i])
                for k in range(count)
            )
            form = m[i, j] + m[j, i] - (m[i, i] + m[j, j]) * c[i, j]
            cases.append(expand(direct - form) == 0)
    return tested("inner products of the projected field, row weights as symbols, N = 2, 3", *cases)


def _two_energies() -> Finding:
    cosine = Symbol("c", real=True)
    first = exp(-(BETA / 2) * (2 - 2 * cosine)) / 2
    second = exp(BETA * cosine) / (2 * BETA)
    ratio = (first / second).simplify()
    norm = Symbol("r", positive=True)
    off_sphere = exp(-(BETA / 2) * (1 + norm**2 - 2 * norm * cosine)) / exp(BETA * norm * cosine)
    rates = [_energy_rate(3, unnormalised) for unnormalised in (True, False)]
    return imprecise(
        f"|x - y|^2 = 2 - 2 <x, y> on the sphere makes the first {ratio} times the second; off it "
        "the ratio depends on |x|. Along USA and SA with V = I (three tokens) the energy has the "
        "rate sum a_i |P y_i|^2 / N^2 >= 0 with row weights a_i; V = -I reverses the velocity and "
        "so the sign",
        part_that_holds=expand(ratio - BETA * exp(-BETA)) == 0,
        part_that_fails=off_sphere.simplify().has(norm)
        and all(expand(rate - squares) == 0 for rate, squares in rates),
    )


CLAIMS = [
    Claim(
        "sphere-invariant",
        "The projected field x' = P_x y keeps |x| = 1.",
        r"$\dot x = P_xy$ keeps $|x|=1$",
        Verdict.PROVEN,
        _stays_on_the_sphere,
    ),
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
        "gram-flow",
        "On the sphere dV = M + M^T - (diag(M) 1^T + 1 diag(M)^T) V entrywise, M = p V.",
        r"$\dot V = M + M^\top - (\mathrm{diag}(M)1^\top + 1\mathrm{diag}(M)^\top)\circ V$",
        Verdict.TESTED,
        _gram_flow,
    ),
    Claim(
        "energy-derivative-usa",
        "Along USA dE/dt = (1/N) sum_i |x_i'|^2.",
        r"USA: $\dot E = \frac1N\sum_i|\dot x_i|^2$",
        Verdict.PROVEN,
        lambda: _energy_identity(unnormalised=True),
    ),
    Claim(
        "energy-derivative-sa",
        "Along SA dE/dt = (1/N^2) sum_i Z_i |x_i'|^2.",
        r"SA: $\dot E = \frac1{N^2}\sum_iZ_i|\dot x_i|^2$",
        Verdict.PROVEN,
        lambda: _energy_identity(unnormalised=False),
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
    Claim(
        "equiangular-sa",
        "Equal cosines g: SA has g' = 2 e^(beta g) (1-g) ((N-1) g + 1) / (e^beta + (N-1) "
        "e^(beta g)).",
        r"SA: $\dot g = \frac{2e^{\beta g}(1-g)((N-1)g+1)}{e^\beta+(N-1)e^{\beta g}}$",
        Verdict.PROVEN,
        lambda: _equiangular(unnormalised=False),
    ),
    Claim(
        "equiangular-usa",
        "Equal cosines g: USA has g' = (2/N) e^(beta g) (1-g) ((N-1) g + 1).",
        r"USA: $\dot g = \frac2Ne^{\beta g}(1-g)((N-1)g+1)$",
        Verdict.PROVEN,
        lambda: _equiangular(unnormalised=True),
    ),
    Claim(
        "two-energies",
        "The energy is (1/2) sum exp(-(beta/2) |x_i - x_j|^2), the same as (1/(2 beta)) sum "
        "exp(beta <x_i, x_j>), and the flow decreases it.",
        r"$\frac12\sum e^{-\frac\beta2|x_i-x_j|^2}$ is $\frac1{2\beta}\sum e^{\beta\langle "
        r"x_i,x_j\rangle}$",
        Verdict.IMPRECISE,
        _two_energies,
        "On the sphere the first is beta e^(-beta) times the second, a change of the unit of time. "
        "Both increase along SA and USA with V = I (attraction); descent is V = -I.",
        r"$\frac12\sum e^{-\frac\beta2|x_i-x_j|^2} = \beta e^{-\beta}\cdot\frac1{2\beta}\sum "
        r"e^{\beta\langle x_i,x_j\rangle}$ on the sphere; $V=I$ ascends",
    ),
]
