"""Claims on the derivatives of softmax."""

from __future__ import annotations

from itertools import product

from sympy import (
    Expr,
    Integer,
    KroneckerDelta,
    Matrix,
    ShapeError,
    Symbol,
    cancel,
    diff,
    exp,
    expand,
    eye,
    ones,
    symbols,
)

from symbolic.claims.ledger import Claim, Finding, Verdict, proven, refuted
from symbolic.softmax import (
    PROBABILITIES,
    derivative,
    derivative_at_zero,
    derivative_tensor,
    differentiated_tensor,
)

M = Symbol("m", integer=True, positive=True)


Z = symbols("z_i z_j z_k rest")
"""Three tokens; the others enter softmax and its derivatives through one constant, `rest`."""


def _values() -> list[Expr]:
    """Return s_i, s_j, s_k for any number of tokens."""
    total = exp(Z[0]) + exp(Z[1]) + exp(Z[2]) + Z[3]
    return [exp(z) / total for z in Z[:3]]


def _first_derivatives() -> Finding:
    value = _values()[0]
    same, other = diff(value, Z[0]), diff(value, Z[1])
    at_zero = {Z[0]: 0, Z[1]: 0, Z[2]: 0, Z[3]: M - 3}
    tensors = all(
        differentiated_tensor(1, m)[i, j] == (Integer(m - 1) if i == j else -1) / Integer(m**2)
        for m in range(2, 7)
        for i, j in product(range(m), repeat=2)
    )
    return proven(
        "quotient rule with the other tokens as a constant, at 0; differentiation, m = 2..6",
        cancel(same.subs(at_zero) - (M - 1) / M**2) == 0,
        cancel(other.subs(at_zero) + 1 / M**2) == 0,
        tensors,
    )


def _kronecker_form() -> Finding:
    s = _values()
    i, j = symbols("i j", integer=True)
    probability = PROBABILITIES
    return proven(
        "quotient rule at any z and m; at 0 the joint cumulants of one-hot vectors agree",
        cancel(diff(s[0], Z[0]) - s[0] * (1 - s[0])) == 0,
        cancel(diff(s[0], Z[1]) + s[0] * s[1]) == 0,
        expand(derivative(i, j) - probability[i] * (KroneckerDelta(i, j) - probability[j])) == 0,
        expand(derivative_at_zero(i, j) - (KroneckerDelta(i, j) - 1 / M) / M) == 0,
    )


def _values_at_zero() -> Finding:
    zi, rest = symbols("z_i rest")
    s = (exp(zi) / (exp(zi) + rest)).subs({zi: 0, rest: M - 1})
    cases = []
    for m in range(1, 7):
        column = Matrix(derivative_tensor(0, m).tolist())
        cases.append(Matrix.diag(*column) == eye(m) / m)
        cases.append(column * column.T == ones(m, m) / m**2)
    return proven(
        "s_i(0) = 1 / (1 + (m - 1)) = 1/m; both matrices for m = 1..6", s == 1 / M, *cases
    )


def _jacobian(s: Matrix) -> Matrix:
    return Matrix.diag(*s) - s * s.T


def _general_point(m: int) -> tuple[tuple[Symbol, ...], Matrix]:
    z = symbols(f"z_1:{m + 1}")
    total = sum(exp(entry) for entry in z)
    return z, Matrix([exp(entry) / total for entry in z])


def _second_derivative_is_the_jacobian() -> Finding:
    z, s = _general_point(3)
    jacobian = s.jacobian(Matrix(z))
    claimed_is_first = (jacobian - _jacobian(s)).applyfunc(cancel).is_zero_matrix
    hessian = differentiated_tensor(2, 3)
    t = _values()

    def delta(a: int, b: int) -> int:
        return int(a == b)

    # The corrected statement as printed, at all 27 triples, for any m.
    correction = all(
        cancel(
            diff(t[i], Z[j], Z[k])
            - t[i] * ((delta(i, j) - t[j]) * (delta(i, k) - t[k]) - t[j] * (delta(j, k) - t[k]))
        )
        == 0
        for i, j, k in product(range(3), repeat=3)
    )
    return refuted(
        "diag(s) - s s^T is the matrix of first derivatives (m = 3, any z); the second derivatives "
        f"are an array of shape {hessian.shape} with entry (1, 1, 1) = {hessian[0, 0, 0]} at 0",
        claim_fails=claimed_is_first and hessian.shape != (3, 3),
        correction_holds=correction,
    )


def _matrix_formula() -> Finding:
    z, s = _general_point(3)
    jacobian = _jacobian(s)
    try:
        _ = jacobian * s.T
        shapes_agree = True
    except ShapeError:
        shapes_agree = False
    slices = []
    for k in range(3):
        column = jacobian[:, k]
        formula = Matrix.diag(*column) - column * s.T - s * column.T
        slices.append((formula - diff(s.jacobian(Matrix(z)), z[k])).applyfunc(cancel))
    return refuted(
        "m = 3: J s^T multiplies a 3 x 3 by a 1 x 3 matrix; with columns J e_k in place of J the "
        "formula is the k-th slice of the Hessian, at any z",
        claim_fails=not shapes_agree,
        correction_holds=all(matrix.is_zero_matrix for matrix in slices),
    )


CLAIMS = [
    Claim(
        "softmax-first-derivatives",
        "At z = 0, ds_i/dz_j is (m - 1)/m^2 for i = j and -1/m^2 for i != j.",
        r"$\partial_j s_i(0) = \frac{m-1}{m^2}$ for $i=j$, $-\frac{1}{m^2}$ for $i\ne j$",
        Verdict.PROVEN,
        _first_derivatives,
    ),
    Claim(
        "softmax-kronecker-form",
        "ds_i/dz_j = s_i (delta_ij - s_j).",
        r"$\partial_j s_i = s_i(\delta_{ij} - s_j)$",
        Verdict.PROVEN,
        _kronecker_form,
    ),
    Claim(
        "softmax-at-zero",
        "diag(softmax(0)) = I/m and softmax(0) softmax(0)^T = 11^T/m^2.",
        r"$\mathrm{diag}(s(0)) = I/m$, $s(0)s(0)^\top = 11^\top/m^2$",
        Verdict.PROVEN,
        _values_at_zero,
    ),
    Claim(
        "softmax-second-derivative",
        "The second derivative of softmax is diag(s) - s s^T.",
        r"$\nabla^2 s = \mathrm{diag}(s) - ss^\top$",
        Verdict.FALSE,
        _second_derivative_is_the_jacobian,
        "That is the Jacobian. The second derivative is the third-order tensor s_i [(delta_ij - "
        "s_j)(delta_ik - s_k) - s_j (delta_jk - s_k)].",
        r"$\partial_j\partial_k s_i = s_i[(\delta_{ij}-s_j)(\delta_{ik}-s_k) - "
        r"s_j(\delta_{jk}-s_k)]$",
    ),
    Claim(
        "softmax-hessian-matrix-formula",
        "With J = diag(s) - s s^T the Hessian is diag(J) - J s^T - s J^T.",
        r"$\mathrm{diag}(J) - Js^\top - sJ^\top$, $J = \mathrm{diag}(s)-ss^\top$",
        Verdict.FALSE,
        _matrix_formula,
        "The shapes do not agree. The k-th slice of the Hessian, its derivative by z_k, is "
        "diag(J e_k) - (J e_k) s^T - s (J e_k)^T.",
        r"$\partial_k J = \mathrm{diag}(Je_k) - (Je_k)s^\top - s(Je_k)^\top$",
    ),
]
