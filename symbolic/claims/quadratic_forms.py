"""Claims on the largest value of a quadratic form: the theorem of Courant and Fischer."""

from __future__ import annotations

from random import Random

from sympy import (
    Expr,
    Integer,
    Matrix,
    MatrixSymbol,
    Rational,
    Symbol,
    expand,
    eye,
    ones,
    simplify,
    sqrt,
    symbols,
)

from symbolic.claims.ledger import Finding, Verdict, at, imprecise, note, proven, refuted

ROTATION = Matrix(
    [[Rational(3, 5), -Rational(4, 5), 0], [Rational(4, 5), Rational(3, 5), 0], [0, 0, 1]]
)
"""A rational orthogonal matrix, for exact decompositions."""

SIZE = Symbol("n", integer=True, positive=True)
FORM = MatrixSymbol("A", SIZE, SIZE)


def general_courant_fischer() -> bool:
    """Check lambda_k = max over k-dimensional S of min over unit x in S of x^T A x, A symmetric.

    In an eigenbasis, this needs two facts: the sign of the form minus lambda_k |x|^2 on the span of
    the first k and of the last n - k + 1 eigenvectors, as a polynomial in the differences h of
    consecutive eigenvalues; and the dimension of the intersection of a random S with the latter
    span, from the ranks of both bases. The notes have k = 1, S one line.
    """
    facts = []
    random = Random(1)
    for size in (2, 3, 4):
        steps = symbols(f"h_1:{size + 1}", nonnegative=True)
        values = [sum(steps[i:], Integer(0)) for i in range(size)]
        x = symbols(f"x_1:{size + 1}")
        for k in range(1, size + 1):
            form = sum((values[i] * x[i] ** 2 for i in range(size)), Integer(0))
            gap = form - values[k - 1] * sum(e**2 for e in x)
            facts.append(_has_nonnegative_coefficients(gap.subs(dict.fromkeys(x[k:], 0))))
            facts.append(_has_nonnegative_coefficients(-gap.subs(dict.fromkeys(x[: k - 1], 0))))
            space = Matrix(size, k, lambda _a, _b: random.randint(-9, 9))
            last = eye(size)[:, k - 1 :]
            meeting = space.rank() + last.rank() - Matrix.hstack(space, last).rank()
            facts.append(space.rank() == k and meeting >= 1)
    a = ROTATION * Matrix.diag(5, 3, 2) * ROTATION.T
    facts.append(sorted(a.eigenvals()) == [2, 3, 5])
    return all(facts)


def _has_nonnegative_coefficients(polynomial: Expr) -> bool:
    return all(c >= 0 for c in expand(polynomial).as_coefficients_dict().values())


def largest_eigenvalue(matrix: Matrix) -> Expr:
    """Return the largest real eigenvalue."""
    return max(value for value in matrix.eigenvals() if value.is_real)


def _courant_fischer() -> Finding:
    nilpotent = Matrix([[0, 1], [0, 0]])
    best = ones(2, 1) / sqrt(2)
    attained = (best.T * nilpotent * best)[0]
    symmetric = (nilpotent + nilpotent.T) / 2
    x = Matrix(symbols("x_1:5"))
    general = Matrix(4, 4, symbols("a_1:17"))
    halves = (x.T * general * x - x.T * (general + general.T) / 2 * x)[0]
    return refuted(
        f"A = [[0, 1], [0, 0]] has the only eigenvalue 0, but x^T A x = {attained} at x = (1, "
        "1)/sqrt 2; x^T A x sees the symmetric part alone, and for symmetric A, in an eigenbasis, "
        "lambda_1 |x|^2 exceeds the form by a sum of squares (Courant-Fischer for all k, n = 2, 3, "
        "4)",
        claim_fails=(best.T * best)[0] == 1 and attained > largest_eigenvalue(nilpotent),
        correction_holds=expand(halves) == 0
        and largest_eigenvalue(symmetric) == attained
        and general_courant_fischer(),
    )


def _quadratic_form() -> Finding:
    x, y, z = (MatrixSymbol(name, SIZE, 1) for name in "xyz")
    t = Symbol("t")
    sums = ((x + z).T * FORM * y - x.T * FORM * y - z.T * FORM * y).doit().expand().doit()
    scaled = ((t * x).T * FORM * (t * x)).doit()
    return imprecise(
        "x^T A y is linear in x and in y, and x^T A x is its value at y = x; but this is not "
        "linear in x: at 2 x it is 4 times as large",
        part_that_holds=bool(sums.is_ZeroMatrix),
        part_that_fails=scaled == t**2 * x.T * FORM * x != t * x.T * FORM * x,
    )


def quotient(x: Matrix, form: Matrix) -> Expr:
    """Return x^T A x / x^T x."""
    return (x.T * form * x)[0] / (x.T * x)[0]


def _rayleigh_quotient() -> Finding:
    t = Symbol("t", positive=True)
    x = MatrixSymbol("x", SIZE, 1)
    entries, form = Matrix(symbols("x_1:4", positive=True)), Matrix(3, 3, symbols("a_1:10"))
    length = sqrt((entries.T * entries)[0])
    return proven(
        "numerator and denominator of the quotient at t x are t^2 times those at x, for any size; "
        "at t = 1/|x| the denominator is 1, so that both maxima are the same; written out for n = "
        "3",
        ((t * x).T * FORM * (t * x)).doit() == t**2 * x.T * FORM * x,
        ((t * x).T * (t * x)).doit() == t**2 * x.T * x,
        simplify(quotient(t * entries, form) - quotient(entries, form)) == 0,
        simplify((entries.T * form * entries)[0] / length**2 - quotient(entries, form)) == 0,
    )


CLAIMS = [
    note(
        "courant-fischer",
        "For a square matrix A, the maximum of x^T A x over |x| = 1 is lambda_1 (called the "
        "theorem of Courant and Fischer).",
        Verdict.FALSE,
        _courant_fischer,
        at("003:9-10", r"\underset{\|x\| = 1}{\text{max}} \ x^TAx"),
        at("003:14", r"\frac{x^TAx}{x^Tx} = \lambda_1"),
        corrected="For A symmetric. For any square A the maximum is lambda_1 of (A + A^T)/2. "
        "Courant-Fischer is the statement for every k: lambda_k(A) = max over S of dimension k "
        "of min over unit x in S of x^T A x.",
        why="A must be symmetric: [[0, 1], [0, 0]] has the maximum 1/2 and the eigenvalue 0.",
    ),
    note(
        "form-is-bilinear",
        "x^T A x is a special case of a bilinear form.",
        Verdict.IMPRECISE,
        _quadratic_form,
        at("003:12"),
        corrected="x^T A x is the quadratic form of the bilinear form x^T A y: its value at y = x.",
        why="Harmless: a quadratic form is not linear in x.",
    ),
    note(
        "rayleigh-quotient",
        "The maximum of x^T A x over |x| = 1 is that of x^T A x / x^T x.",
        Verdict.PROVEN,
        _rayleigh_quotient,
        at("003:12"),
        at("003:14", r"\frac{x^TAx}{x^Tx}"),
    ),
]
