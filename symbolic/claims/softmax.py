"""Claims on softmax and its derivatives at any point; those at 0 are in `softmax_at_zero`."""

from __future__ import annotations

from collections.abc import Callable
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
    ones,
    simplify,
    symbols,
)

from symbolic.claims.ledger import Claim, Finding, Verdict, at, imprecise, note, proven, refuted
from symbolic.softmax import PROBABILITIES, derivative, derivative_at_zero, differentiated_tensor

M = Symbol("m", integer=True, positive=True)

Z = symbols("z_i z_j z_k rest")
"""Three tokens; the others enter softmax and its derivatives through one constant, `rest`."""


def values() -> list[Expr]:
    """Return s_i, s_j, s_k for any number of tokens."""
    total = exp(Z[0]) + exp(Z[1]) + exp(Z[2]) + Z[3]
    return [exp(z) / total for z in Z[:3]]


def _first_derivatives() -> Finding:
    value = values()[0]
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


def _distribution() -> Finding:
    positive = {z: Symbol(z.name, real=True) for z in Z[:3]} | {Z[3]: Symbol("r", positive=True)}
    s = values()
    others = Z[3] / (exp(Z[0]) + exp(Z[1]) + exp(Z[2]) + Z[3])
    return proven(
        "every s_i is positive for real z, and they sum to 1: three of them, the others in one",
        all(value.subs(positive).is_positive is True for value in s),
        cancel(sum(s) + others) == 1,
    )


def _of_a_component() -> Finding:
    s = values()
    ratio = cancel(s[0] / s[1])
    return imprecise(
        "the formula is softmax: s_i/s_j = e^(z_i - z_j); but ds_i/dz_j is not 0 for j != i, so "
        "s_i is not a function of z_i alone",
        part_that_holds=simplify(ratio - exp(Z[0] - Z[1])) == 0,
        part_that_fails=cancel(diff(s[0], Z[1])) != 0,
    )


def _cases() -> Finding:
    s = values()
    return proven(
        "quotient rule at any z and m, the other tokens in one constant",
        cancel(diff(s[0], Z[0]) - s[0] * (1 - s[0])) == 0,
        cancel(diff(s[0], Z[1]) + s[0] * s[1]) == 0,
    )


def _kronecker_form() -> Finding:
    i, j = symbols("i j", integer=True)
    probability = PROBABILITIES
    return proven(
        "both cases by the quotient rule; joint cumulants of one-hot vectors agree, at any z and "
        "at 0",
        _cases().verdict is Verdict.PROVEN,
        expand(derivative(i, j) - probability[i] * (KroneckerDelta(i, j) - probability[j])) == 0,
        expand(derivative_at_zero(i, j) - (KroneckerDelta(i, j) - 1 / M) / M) == 0,
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
    t = values()

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
        f"are an array of shape {hessian.shape} with entry (0, 0, 0) = {hessian[0, 0, 0]} at 0",
        claim_fails=claimed_is_first and hessian.shape != (3, 3),
        correction_holds=correction,
    )


def _has_shape(product: Callable[[], Matrix]) -> bool:
    try:
        product()
    except ShapeError:
        return False
    return True


def _slice(jacobian: Matrix, s: Matrix, k: int) -> Matrix:
    """Return what is right: the formula with the column J e_k in place of J."""
    column = jacobian[:, k]
    return Matrix.diag(*column) - column * s.T - s * column.T


def _matrix_formula() -> Finding:
    z, s = _general_point(3)
    jacobian = _jacobian(s)
    hessian = [diff(s.jacobian(Matrix(z)), z[k]) for k in range(3)]
    # The products can also be meant entry by entry: J s^T and s J^T as J diag(s) and diag(s) J.
    diagonal = Matrix.diag(*jacobian.diagonal())
    at_zero = dict.fromkeys(z, 0)
    entrywise = (diagonal - jacobian * Matrix.diag(*s) - Matrix.diag(*s) * jacobian).subs(at_zero)
    slices = [matrix.subs(at_zero) for matrix in hessian]
    return refuted(
        "m = 3: J s^T multiplies a 3 x 3 by a 1 x 3 matrix, s J^T a 3 x 1 by a 3 x 3 matrix; meant "
        f"entry by entry, all entries at 0 are {entrywise[0, 0]}, but the first slice is "
        f"{slices[0].tolist()}; with columns J e_k in place of J the formula is the k-th slice, at "
        "any z",
        claim_fails=not _has_shape(lambda: jacobian * s.T)
        and not _has_shape(lambda: s * jacobian.T)
        and entrywise == ones(3, 3) * entrywise[0, 0]
        and entrywise not in slices,
        correction_holds=all(
            (_slice(jacobian, s, k) - hessian[k]).applyfunc(cancel).is_zero_matrix for k in range(3)
        ),
    )


_SAME = (
    r"\frac{\partial \text{softmax}(z_i)}{\partial z_i} = "
    r"\text{softmax}(z_i) \cdot (1 - \text{softmax}(z_i))"
)
_OTHER = (
    r"\frac{\partial \text{softmax}(z_i)}{\partial z_j} = "
    r"- \text{softmax}(z_i) \cdot \text{softmax}(z_j)"
)

CLAIMS = [
    Claim(
        "softmax-first-derivatives",
        "At z = 0, ds_i/dz_j is (m - 1)/m^2 for i = j and -1/m^2 for i != j.",
        r"$\partial_j s_i(0) = \frac{m-1}{m^2}$ for $i=j$, $-\frac{1}{m^2}$ for $i\ne j$",
        Verdict.PROVEN,
        _first_derivatives,
    ),
    note(
        "softmax-is-a-distribution",
        "Softmax converts a vector of arbitrary values to a probability distribution.",
        Verdict.PROVEN,
        _distribution,
        at("000:29"),
        at("001:17"),
    ),
    note(
        "softmax-of-a-component",
        "The softmax of the i-th component is softmax(z_i) = exp(z_i) / sum_j exp(z_j).",
        Verdict.IMPRECISE,
        _of_a_component,
        at("000:31-32", r"\text{softmax}(z_i) = \frac{\exp(z_i)}{\sum_{j=1}^{n} \exp(z_j)}"),
        corrected="softmax(z)_i = exp(z_i) / sum_j exp(z_j): a component of softmax(z).",
        why="Harmless abuse of notation: it depends on the whole of z, not on z_i alone.",
    ),
    note(
        "softmax-derivative-cases",
        "ds_i/dz_i = s_i (1 - s_i), and ds_i/dz_j = -s_i s_j for i != j.",
        Verdict.PROVEN,
        _cases,
        at("000:34-35", _SAME),
        at("000:36-37", _OTHER),
        at("001:20-21", _SAME),
        at("001:22-23", _OTHER),
    ),
    note(
        "softmax-kronecker-form",
        "ds_i/dz_j = s_i (delta_ij - s_j), delta_ij the Kronecker delta.",
        Verdict.PROVEN,
        _kronecker_form,
        at(
            "000:39-41",
            r"\frac{\partial \text{softmax}(z_i)}{\partial z_j} = \text{softmax}(z_i) \cdot "
            r"(\delta_{ij} - \text{softmax}(z_j))",
        ),
    ),
    note(
        "softmax-second-derivative",
        "The second derivative of softmax is diag(s) - s s^T.",
        Verdict.FALSE,
        _second_derivative_is_the_jacobian,
        at(
            "000:45-46",
            r"\frac{\partial^2 \text{softmax}(z)}{\partial z \partial z} = "
            r"\text{diag}(\text{softmax}(z)) - \text{softmax}(z) \cdot \text{softmax}(z)^\top",
        ),
        corrected="That is the Jacobian. The second derivative is the third-order tensor s_i "
        "[(delta_ij - s_j)(delta_ik - s_k) - s_j (delta_jk - s_k)].",
        why="The matrix holds the first derivatives; second derivatives of a vector have three "
        "indices.",
    ),
    note(
        "softmax-hessian-matrix-formula",
        "With J = diag(s) - s s^T the second derivative is diag(J) - J s^T - s J^T.",
        Verdict.FALSE,
        _matrix_formula,
        at(
            "000:47-50",
            r"\frac{\partial^2 \text{softmax}(z)}{\partial z^2} = "
            r"\text{diag}(\text{diag}(\text{softmax}(z)) - "
            r"\text{softmax}(z) \cdot \text{softmax}(z)^\top) - "
            r"(\text{diag}(\text{softmax}(z)) - "
            r"\text{softmax}(z) \cdot \text{softmax}(z)^\top) \cdot \text{softmax}(z)^\top - "
            r"\text{softmax}(z) \cdot \left(\text{diag}(\text{softmax}(z)) - "
            r"\text{softmax}(z) \cdot \text{softmax}(z)^\top\right)^\top",
        ),
        corrected="The k-th slice of the Hessian, the derivative of J by z_k, is diag(J e_k) - "
        "(J e_k) s^T - s (J e_k)^T.",
        why="The shapes do not agree (J is m x m, s^T is 1 x m); with columns J e_k for J it is "
        "right, slice by slice.",
    ),
]
