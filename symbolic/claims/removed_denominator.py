"""Claims on attention without the denominator: USA, its energy, and what Sinkformers do instead."""

from __future__ import annotations

from sympy import Expr, Integer, Matrix, Symbol, diff, exp, expand, eye, nsolve, symbols

from symbolic.claims.inner_products import BETA
from symbolic.claims.ledger import Finding, Verdict, at, note, proven, refuted

X, Y = (Matrix(symbols(f"{name}_1:4", real=True)) for name in "xy")


def _sinkformer() -> Finding:
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
        "three tokens at 0, 90, 180 degrees, beta = 1: Sinkhorn scaling u_i K_ij u_j has row and "
        "column sums 1, softmax has column sums other than 1, and without Z the rows do not sum to "
        "1. The log-potential of Sinkhorn attention has the derivative (I + S M)^-1 S by the "
        "masses, symmetric, so it is an L_2 gradient as well (M. Sander et al., 2022)",
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


def _usa_continuity_equation() -> Finding:
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
        "int exp(beta <x, x'>) dmu(x') is a number for each x, and P_x is defined for vectors; "
        "with x' in the integral P_x of it is the field of line 308, the projected gradient of "
        "(1/beta) int exp(beta <x, x'>) dmu(x'), and orthogonal to x on the sphere",
        claim_fails=not defined,
        correction_holds=(mended - projected(X, gradient)).expand() == Matrix.zeros(3, 1)
        and expand(X.dot(mended) - kernel * X.dot(Y) * (1 - X.dot(X))) == 0,
    )


def first_variation(kernel: Expr) -> Expr:
    """Return what a unit of mass at y adds to the L_2 gradient of E at x."""
    return kernel / BETA


def _usa_is_the_gradient() -> Finding:
    a, b = symbols("a b", positive=True)
    w, self_a, self_b = symbols("w w_aa w_bb", positive=True)
    energy = (a**2 * self_a + b**2 * self_b + 2 * a * b * w) / (2 * BETA)
    kernel = exp(BETA * X.dot(Y))
    return proven(
        "the derivative of E by the mass at x is (1/beta) int exp(beta <x, y>) dmu(y); its "
        "gradient in x, coordinate by coordinate, is int exp(beta <x, y>) y dmu(y), whose "
        "projection by P_x is the USA field",
        expand(diff(energy, a) - first_variation(a * self_a + b * w)) == 0,
        *[
            expand(diff(first_variation(kernel), x) - kernel * y) == 0
            for x, y in zip(X, Y, strict=True)
        ],
    )


CLAIMS = [
    note(
        "sinkformer-removes-the-denominator",
        "To remove Z from softmax is what a Sinkformer does.",
        Verdict.FALSE,
        _sinkformer,
        at("004:305", r"Z_{\beta,i}(t)"),
        corrected="Without Z attention is USA. A Sinkformer scales rows and columns of exp(beta "
        "<x_i, x_j>) until all of them sum to 1 (doubly stochastic attention): another "
        "normalisation, and another gradient flow.",
        why="A Sinkformer normalises twice, rows and columns; it does not leave out Z.",
    ),
    note(
        "usa-continuity-equation",
        "USA has the continuity equation d mu/dt = -div(P_x(int exp(beta <x, x'>) dmu(x') mu(x))).",
        Verdict.FALSE,
        _usa_continuity_equation,
        at(
            "004:310-312",
            r"P_x^\perp \left(\int \exp(\beta \langle x, x' \rangle) d\mu_t(x') \mu_t(x) "
            r"\right)",
        ),
        corrected="d mu/dt = -div(P_x(int exp(beta <x, x'>) x' dmu(x')) mu(x)).",
        why="x' is missing in the integral: as printed a number is projected.",
    ),
    note(
        "usa-is-the-gradient",
        "The L_2 gradient of E is (1/beta) int exp(beta <x, x'>) dmu(x'), and its spherical "
        "gradient P_x int exp(beta <x, x'>) x' dmu(x') is the field of USA.",
        Verdict.PROVEN,
        _usa_is_the_gradient,
        at(
            "004:314-326",
            r"\nabla_{L_2} E_\beta(\mu_t) = \frac{1}{\beta} \int \exp(\beta \langle x, x' "
            r"\rangle) d\mu_t(x')",
            r"\nabla_S \nabla_{L_2} E_\beta(\mu_t) = P_x^\perp \left(\int \exp(\beta \langle "
            r"x, x' \rangle) x' d\mu_t(x') \right)",
            r"X[\mu](x) = \nabla_S \nabla_{L_2} E_\beta[\mu](x)",
        ),
    ),
]
