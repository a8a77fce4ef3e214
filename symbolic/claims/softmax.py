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


def _quotient_rule() -> tuple[Expr, Expr, dict[Expr, Expr]]:
    """ds_i/dz_i, ds_i/dz_j for any m: the other tokens enter through one constant, the rest."""
    zi, zj, rest = symbols("z_i z_j rest")
    total = exp(zi) + exp(zj) + rest
    value = exp(zi) / total
    at_zero = {zi: 0, zj: 0, rest: M - 2}
    return diff(value, zi), diff(value, zj), at_zero


def _first_derivatives() -> Finding:
    same, other, at_zero = _quotient_rule()
    tensors = all(
        differentiated_tensor(1, m)[i, j] == (Integer(m - 1) if i == j else -1) / Integer(m**2)
        for m in range(2, 7)
        for i, j in product(range(m), repeat=2)
    )
    return proven(
        "quotient rule with the other m - 2 tokens as a constant, at 0; differentiation, m = 2..6",
        cancel(same.subs(at_zero) - (M - 1) / M**2) == 0,
        cancel(other.subs(at_zero) + 1 / M**2) == 0,
        tensors,
    )


def _kronecker_form() -> Finding:
    same, other, _ = _quotient_rule()
    zi, zj, rest = symbols("z_i z_j rest")
    total = exp(zi) + exp(zj) + rest
    si, sj = exp(zi) / total, exp(zj) / total
    i, j = symbols("i j", integer=True)
    s = PROBABILITIES
    return proven(
        "quotient rule at any z and m; at 0 the joint cumulants of one-hot vectors say the same",
        cancel(same - si * (1 - si)) == 0,
        cancel(other + si * sj) == 0,
        expand(derivative(i, j) - s[i] * (KroneckerDelta(i, j) - s[j])) == 0,
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
    values = {PROBABILITIES[i]: s[i] for i in range(3)}
    correction = all(
        cancel(derivative(i, j, k).subs(values) - diff(s[i], z[j], z[k])) == 0
        for i, j, k in [(0, 0, 0), (0, 0, 1), (0, 1, 1), (0, 1, 2), (2, 1, 0)]
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
