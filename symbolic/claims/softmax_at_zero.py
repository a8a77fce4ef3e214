"""Claims on softmax, its Jacobian and its second derivatives at z = 0."""

from __future__ import annotations

from sympy import (
    Expr,
    Integer,
    KroneckerDelta,
    Matrix,
    cancel,
    diff,
    expand,
    eye,
    ones,
    symbols,
    zeros,
)

from symbolic.claims.ledger import Claim, Finding, Verdict, at, note, proven, refuted
from symbolic.claims.softmax import M, Z, values
from symbolic.softmax import derivative_at_zero, derivative_tensor, differentiated_tensor

SIZES = range(2, 7)

AT_ZERO = {Z[0]: 0, Z[1]: 0, Z[2]: 0, Z[3]: M - 3}
"""The point 0 of m tokens, of which three are z_i, z_j, z_k."""


def at_zero(tokens: int) -> Matrix:
    """Return softmax at 0, a column."""
    return Matrix(derivative_tensor(0, tokens).tolist())


def jacobian_at_zero(tokens: int) -> Matrix:
    """Return the first derivatives of softmax at 0, by differentiation."""
    return Matrix(differentiated_tensor(1, tokens).tolist())


def hessian_at_zero(same: Expr | int, first: Expr | int, second: Expr | int) -> Expr:
    """Return d^2 s_i / dz_j dz_k at 0 from the values of delta_jk, delta_ij and delta_ik."""
    return first * second / M - (same + first + second) / M**2 + 2 / M**3


def slice_at_zero(tokens: int, k: int) -> Matrix:
    """Return slice k of the second derivatives at 0, in matrices."""
    column = eye(tokens)[:, k] / tokens - ones(tokens, 1) / tokens**2
    one = ones(tokens, 1)
    return Matrix.diag(*column) - (column * one.T + one * column.T) / tokens


def _diagonal() -> Finding:
    return proven(
        "s_i(0) = 1 / (1 + (m - 1)) = 1/m for any m; the matrix for m = 2..6",
        values()[0].subs(AT_ZERO) == 1 / M,
        *[Matrix.diag(*at_zero(m)) == eye(m) / m for m in SIZES],
    )


def printed_value(tokens: int) -> Matrix:
    """Return what is printed for softmax(0)."""
    return ones(tokens, tokens) / tokens


def _value() -> Finding:
    outer = {m: printed_value(m) * printed_value(m).T for m in SIZES}
    return refuted(
        "softmax(0) is a column of m numbers, and 11^T/m is m x m. For the softmax of a matrix 0, "
        "by rows (line 26), 11^T/m is right, but then s s^T = 11^T/m, and the next line has "
        "11^T/m^2: m = 2..6",
        claim_fails=all(
            at_zero(m).shape != printed_value(m).shape and outer[m] != ones(m, m) / m**2
            for m in SIZES
        ),
        correction_holds=values()[0].subs(AT_ZERO) == 1 / M
        and all(
            at_zero(m) == ones(m, 1) / m and at_zero(m) * at_zero(m).T == ones(m, m) / m**2
            for m in SIZES
        ),
    )


def _jacobian() -> Finding:
    s = values()
    same, other = (diff(s[0], z).subs(AT_ZERO) for z in Z[:2])
    return proven(
        "diag(s) - s s^T with s = 1/m, entry by entry for any m; differentiated, m = 2..6",
        cancel(same - (1 / M - 1 / M**2)) == 0,
        cancel(other + 1 / M**2) == 0,
        *[jacobian_at_zero(m) == eye(m) / m - ones(m, m) / m**2 for m in SIZES],
    )


def _first_term() -> Finding:
    jacobians = {m: jacobian_at_zero(m) for m in SIZES}
    terms = {m: [Matrix.diag(*j[:, k]) for k in range(m)] for m, j in jacobians.items()}
    printed = {m: Matrix.diag(*j.diagonal()) for m, j in jacobians.items()}
    return refuted(
        f"the printed term is {printed[3].tolist()} for m = 3, whatever the slice; slice 1 has "
        f"{terms[3][0].tolist()}. For m = 2..6 no slice has it, and the sum of the slices is 0",
        claim_fails=all(
            printed[m] not in terms[m] and sum(terms[m], zeros(m, m)) == zeros(m, m) for m in SIZES
        ),
        correction_holds=all(
            terms[m][k] == Matrix.diag(*(eye(m)[:, k] - ones(m, 1) / m)) / m
            for m in SIZES
            for k in range(m)
        )
        and _hessian().verdict is Verdict.PROVEN,
    )


def _hessian() -> Finding:
    s = values()
    i, j, k = symbols("i j k", integer=True)
    deltas = (KroneckerDelta(j, k), KroneckerDelta(i, j), KroneckerDelta(i, k))
    # A triple of indices has all of them equal, two, or none.
    kinds = {
        (0, 0, 0): (M - 1) * (M - 2) / M**3,
        (0, 0, 1): -(M - 2) / M**3,
        (0, 1, 1): -(M - 2) / M**3,
        (0, 1, 2): 2 / M**3,
    }
    derivatives = [
        cancel(diff(s[a], Z[b], Z[c]).subs(AT_ZERO) - value) == 0
        for (a, b, c), value in kinds.items()
    ]
    formulas = [
        cancel(hessian_at_zero(int(b == c), int(a == b), int(a == c)) - value) == 0
        for (a, b, c), value in kinds.items()
    ]
    slices = [
        slice_at_zero(m, c) == Matrix(differentiated_tensor(2, m)[:, :, c].tolist())
        for m in (1, 2, 3, 4)
        for c in range(m)
    ]
    return proven(
        "differentiated twice with the other tokens in one constant, for any m >= 3; all entries "
        "of all slices for m = 1..4; joint cumulants of one-hot vectors; m = 3, slice 1: "
        f"{slice_at_zero(3, 0).tolist()}",
        *derivatives,
        *formulas,
        *slices,
        expand(derivative_at_zero(i, j, k) - hessian_at_zero(*deltas)).simplify() == Integer(0),
    )


CLAIMS = [
    note(
        "softmax-at-zero-diagonal",
        "diag(softmax(0)) = I/m.",
        Verdict.PROVEN,
        _diagonal,
        at("000:51-55", r"\text{diag}(\text{softmax}(0)) = \frac{1}{m}I"),
    ),
    note(
        "softmax-at-zero",
        "softmax(0) = 11^T/m.",
        Verdict.FALSE,
        _value,
        at("000:51-55", r"\text{softmax}(0) = \frac{1}{m}11^\top"),
        corrected="softmax(0) = 1/m, the vector with all entries 1/m; softmax(0) softmax(0)^T = "
        "11^T/m^2. "
        "11^T/m is right for the matrix softmax of line 26, Softmax(0), but not here.",
        why="A vector is not an m x m matrix; the next line needs s s^T = 11^T/m^2, which the "
        "printed matrix does not give.",
    ),
    note(
        "softmax-jacobian-at-zero",
        "diag(softmax(0)) - softmax(0) softmax(0)^T = I/m - 11^T/m^2, with a further diag on both "
        "sides.",
        Verdict.PROVEN,
        _jacobian,
        at(
            "000:57-58",
            r"\text{diag}(\text{diag}(\text{softmax}(0)) - \text{softmax}(0) \cdot "
            r"\text{softmax}(0)^\top) = \text{diag}\left(\frac{1}{m}I - "
            r"\frac{1}{m^2}11^\top\right)",
        ),
    ),
    note(
        "softmax-hessian-first-term",
        "The first term of the second derivative at 0 is diag(I/m - 11^T/m^2).",
        Verdict.FALSE,
        _first_term,
        at("000:57-58", r"\text{diag}\left(\frac{1}{m}I - \frac{1}{m^2}11^\top\right)"),
        corrected="The first term of slice k is diag(J e_k) = diag(e_k - 1/m)/m. The whole slice "
        "is diag(e_k - 1/m)/m - ((e_k - 1/m) 1^T + 1 (e_k - 1/m)^T)/m^2.",
        why="A slice needs column k of the Jacobian on the diagonal, not the Jacobian's "
        "diagonal, which is the same for all k.",
    ),
    Claim(
        "softmax-hessian-at-zero",
        "At z = 0, d^2 s_i/dz_j dz_k is (m - 1)(m - 2)/m^3 if i = j = k, -(m - 2)/m^3 if two "
        "indices are equal, 2/m^3 if none; slice k is diag(e_k - 1/m)/m - ((e_k - 1/m) 1^T + 1 "
        "(e_k - 1/m)^T)/m^2.",
        r"$\partial_j\partial_k s_i(0) = \frac{\delta_{ij}\delta_{ik}}{m} - "
        r"\frac{\delta_{ij}+\delta_{ik}+\delta_{jk}}{m^2} + \frac{2}{m^3}$",
        Verdict.PROVEN,
        _hessian,
    ),
]
