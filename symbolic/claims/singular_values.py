"""Claims on the singular values and singular vectors of the matrix of a bilinear form."""

from __future__ import annotations

from sympy import (
    BlockMatrix,
    Expr,
    Identity,
    Matrix,
    MatrixSymbol,
    Rational,
    Symbol,
    ZeroMatrix,
    block_collapse,
    expand,
    eye,
    simplify,
    sqrt,
    symbols,
)

from symbolic.claims.ledger import Finding, Verdict, at, imprecise, note, proven
from symbolic.claims.quadratic_forms import ROTATION, general_courant_fischer
from symbolic.claims.scores import B_K, B_Q, OMEGA, W_K, W_Q

TURN = Matrix(
    [[1, 0, 0], [0, Rational(5, 13), -Rational(12, 13)], [0, Rational(12, 13), Rational(5, 13)]]
)
LEFT, RIGHT = ROTATION * TURN, TURN * ROTATION
EXAMPLE = LEFT * Matrix.diag(5, 3, 2) * RIGHT.T
"""A matrix with the singular values 5, 3 and 2, and singular vectors in LEFT and RIGHT."""

SIZE, OTHER = symbols("n k", integer=True, positive=True)


def _svd_version() -> Finding:
    x = Matrix(symbols("x_1:4"))
    excess = 25 * eye(3) - EXAMPLE.T * EXAMPLE
    attained = [(LEFT[:, k].T * EXAMPLE * RIGHT[:, k])[0] for k in range(3)]
    return imprecise(
        f"singular values 5, 3, 2, exactly: x^T A y = {attained[0]} at u_1, v_1, and it never "
        "exceeds |x||A y| <= 5 |x||y|, as the eigenvalues of 25 I - A^T A are 0, 16, 21; but at "
        f"u_2, v_2 it is {attained[1]}. Courant-Fischer for A^T A gives every sigma_k",
        part_that_holds=attained[0] == 5
        and sorted(excess.eigenvals()) == [0, 16, 21]
        and expand((EXAMPLE * x).dot(EXAMPLE * x) - (x.T * (EXAMPLE.T * EXAMPLE) * x)[0]) == 0
        and RIGHT * Matrix.diag(25, 9, 4) * RIGHT.T == EXAMPLE.T * EXAMPLE
        and general_courant_fischer(),
        part_that_fails=attained[1:] == [3, 2],
    )


def _theorem_fixes_the_matrix() -> Finding:
    x, y = Matrix([1, 2]), Matrix([3, 1])
    t = Symbol("t", positive=True)
    value = (x.T * (t * x * y.T) * y)[0]
    return imprecise(
        "for given x and y, x^T Omega y grows without bound along Omega = t x y^T, so that no "
        "theorem on one Omega chooses it; but Omega is a matrix like any other, and |x^T Omega y| "
        "<= sigma_1(Omega) |x||y| holds for every pair of tokens (sigma_1 = 5, exactly)",
        part_that_holds=value == t * (x.T * x)[0] * (y.T * y)[0],
        part_that_fails=min((25 * eye(3) - EXAMPLE.T * EXAMPLE).eigenvals()) == 0,
    )


def decomposition(matrix: Matrix) -> list[tuple[Matrix, Expr, Matrix]]:
    """Return u_k, sigma_k, v_k with sigma_k > 0, from the eigenvectors of A^T A."""
    terms = []
    for value, _, vectors in (matrix.T * matrix).eigenvects():
        if value != 0:
            v = vectors[0] / vectors[0].norm()
            terms.append((matrix * v / sqrt(value), sqrt(value), v))
    return terms


MATRIX = MatrixSymbol("A", SIZE, OTHER)


def gram_of_left_vectors(k: int, j: int) -> Expr:
    """Return u_k^T u_j of u_k = A v_k / sigma_k, if A^T A v_k = sigma_k^2 v_k, v_k orthonormal.

    For matrices of symbolic sizes n x k: no size enters.
    """
    values = symbols("sigma_:2", positive=True)
    v = [MatrixSymbol(f"v_{index}", OTHER, 1) for index in range(2)]
    left = [MATRIX * vector / value for vector, value in zip(v, values, strict=True)]
    product = (left[k].T * left[j]).doit()
    product = product.subs(MATRIX.T * MATRIX * v[j], values[j] ** 2 * v[j]).doit()
    return product.subs(v[k].T * v[j], Identity(1) if k == j else ZeroMatrix(1, 1)).doit()


def _sum_of_terms() -> bool:
    """Check that the terms A v_k v_k^T over all k, (A V) V^T, add up to A, as V V^T = I.

    Those with sigma_k = 0 are 0: |A v|^2 = v^T A^T A v = sigma^2 v^T v.
    """
    orthogonal, v = MatrixSymbol("V", OTHER, OTHER), MatrixSymbol("v", OTHER, 1)
    whole = (MATRIX * orthogonal * orthogonal.T).subs(orthogonal * orthogonal.T, Identity(OTHER))
    square = ((MATRIX * v).T * (MATRIX * v)).doit()
    nothing = square.subs(MATRIX.T * MATRIX * v, ZeroMatrix(OTHER, 1)).doit()
    return whole.doit() == MATRIX and nothing == ZeroMatrix(1, 1)


def _svd_of_omega() -> Finding:
    queries = BlockMatrix([[W_Q], [B_Q.T]])
    keys = BlockMatrix([[W_K], [B_K.T]])
    factors = block_collapse(queries * keys.T)
    q, k = Matrix([[1, 0], [0, 1], [1, 1]]), Matrix([[1, 1], [0, 1], [1, 0]])
    omega = q * k.T
    terms = decomposition(omega)
    pairs = [(i, j) for i in range(len(terms)) for j in range(len(terms))]
    return proven(
        "any matrix A: A^T A is symmetric and has orthonormal eigenvectors v_k (spectral theorem) "
        "with eigenvalues sigma_k^2 = |A v_k|^2. With u_k = A v_k/sigma_k where sigma_k > 0, "
        "u_k^T u_j = v_k^T A^T A v_j/(sigma_k sigma_j) = [k = j]; A v_k = 0 for the others, so "
        "the sum of D_k is A sum_k v_k v_k^T = A: symbolic sizes. The number of terms is the rank "
        "r, at most the size of a key, as Omega = (W_Q; b_Q^T)(W_K; b_K^T)^T. A rational 3 x 3 "
        f"Omega of rank 2 has {len(terms)} terms, whose sum it is exactly",
        *[
            gram_of_left_vectors(k, j) == (Identity(1) if k == j else ZeroMatrix(1, 1))
            for k in range(2)
            for j in range(2)
        ],
        _sum_of_terms(),
        factors == block_collapse(OMEGA),
        len(terms) == omega.rank() == 2,
        sum((s * u * v.T for u, s, v in terms), Matrix.zeros(3, 3)) == omega,
        all(simplify(terms[i][0].dot(terms[j][0])) == int(i == j) for i, j in pairs),
        all(simplify(terms[i][2].dot(terms[j][2])) == int(i == j) for i, j in pairs),
    )


INNER_PRODUCT = ZeroMatrix(1, 1)
"""u_k^T u_j for two singular vectors of one side, k != j."""


def _svd_terms() -> Finding:
    """Check both products for terms of symbolic sizes n x k."""
    values = symbols("sigma_k sigma_j")
    left = [MatrixSymbol(name, SIZE, 1) for name in ("u_k", "u_j")]
    right = [MatrixSymbol(name, OTHER, 1) for name in ("v_k", "v_j")]
    terms = [s * u * v.T for s, u, v in zip(values, left, right, strict=True)]
    products = []
    for a, b in ((0, 1), (1, 0)):
        product = (terms[a].T * terms[b]).doit()
        dot = left[a].T * left[b]
        products.append(product.has(dot) and product.subs(dot, INNER_PRODUCT).doit())
    d = [s * LEFT[:, k] * RIGHT[:, k].T for k, s in enumerate((5, 3, 2))]
    different = [(j, k) for j in range(3) for k in range(3) if j != k]
    zero = Matrix.zeros(3, 3)
    return proven(
        "D_k^T D_j = sigma_k sigma_j v_k (u_k^T u_j) v_j^T and u_k^T u_j = 0 for k != j, "
        "matrices of symbolic sizes; the columns are along u_k, the rows along v_k, orthogonal to "
        "those of D_j; exact rational decomposition of a 3 x 3 matrix",
        *[product == ZeroMatrix(OTHER, OTHER) for product in products],
        sum(d, zero) == EXAMPLE,
        all(d[k].T * d[j] == zero for j, k in different),
        all(d[k] * d[j].T == zero for j, k in different),
    )


CLAIMS = [
    note(
        "theorem-fixes-the-matrix",
        "Courant-Fischer and its SVD version fix the matrix and not the vectors, so they cannot be "
        "applied to Omega.",
        Verdict.IMPRECISE,
        _theorem_fixes_the_matrix,
        at("003:60", r"\Omega"),
        at("003:67"),
        at("003:72", r"\Omega"),
        corrected="They do not say which Omega gives given tokens the largest score; they do "
        "apply to a given Omega, and bound every score: |A_ij| <= sigma_1(Omega) |x~_i||x~_j|.",
        why="Omega is a fixed matrix too; what the theorems cannot do is choose it.",
    ),
    note(
        "courant-fischer-svd",
        "The maximum of x^T A y over |x| = |y| = 1 is sigma_1, where x = u_i and y = v_i.",
        Verdict.IMPRECISE,
        _svd_version,
        at(
            "003:69-70",
            r"\underset{\|x\| = 1, \|y\|=1}{\text{max}} \ x^TAy = \sigma_1",
            "x = u_i",
            "y = v_i",
        ),
        corrected="The maximum is sigma_1, attained at x = u_1 and y = v_1; at u_i, v_i the "
        "value is sigma_i.",
        why="The index of the maximiser is 1, not i (0 in the numbering of line 93).",
    ),
    note(
        "svd-of-omega",
        "Omega is the sum of r terms D_k = u_k sigma_k v_k^T (singular value decomposition).",
        Verdict.PROVEN,
        _svd_of_omega,
        at("003:91-93", r"\Omega = \sum\limits_{k=0}^{r-1} \mathbf{u}_k \sigma_k \mathbf{v}_k^T"),
    ),
    note(
        "svd-terms-orthogonal",
        "D_k^T D_j = D_j^T D_k = 0 whenever k != j: the terms operate in different subspaces.",
        Verdict.PROVEN,
        _svd_terms,
        at("003:95", r"D_k^TD_j = D_j^TD_k = 0", r"k \neq j"),
    ),
]
