"""Claims on the algebra of attention: quadratic forms, scores, copying, lengths."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise, permutations
from random import Random

from sympy import (
    Abs,
    BlockMatrix,
    Expr,
    Function,
    Identity,
    Integer,
    Matrix,
    MatrixExpr,
    MatrixSymbol,
    Max,
    OneMatrix,
    Rational,
    ShapeError,
    Sum,
    Symbol,
    Trace,
    ZeroMatrix,
    block_collapse,
    cancel,
    diff,
    exp,
    expand,
    eye,
    limit,
    ones,
    oo,
    pi,
    simplify,
    sqrt,
    symbols,
)
from sympy import exp as exponential

from symbolic.claims.ledger import Finding, Verdict, imprecise, proven, refuted, tested
from symbolic.claims.particles import XX, XY, YY, projected_square
from symbolic.claims.proportional_limit import Z, values

# Claims on the largest value of a quadratic form: the theorem of Courant and Fischer.

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


def courant_fischer() -> Finding:
    nilpotent = Matrix([[0, 1], [0, 0]])
    best = ones(2, 1) / sqrt(2)
    attained = (best.T * nilpotent * best)[0]
    symmetric = (nilpotent + nilpotent.T) / 2
    x = Matrix(symbols("x_1:5"))
    general = Matrix(4, 4, symbols("a_1:17"))
    halves = (x.T * general * x - x.T * (general + general.T) / 2 * x)[0]
    return refuted(
        claim_fails=(best.T * best)[0] == 1 and attained > largest_eigenvalue(nilpotent),
        correction_holds=expand(halves) == 0
        and largest_eigenvalue(symmetric) == attained
        and general_courant_fischer(),
        witness=(
            f"A = [[0, 1], [0, 0]] has the only eigenvalue 0, but x^T A x = {attained} at x = (1, "
            "1)/sqrt 2; x^T A x sees the symmetric part alone, and for symmetric A, in an "
            "eigenbasis, "
            "lambda_1 |x|^2 exceeds the form by a sum of squares (Courant-Fischer for all k, n = "
            "2, 3, "
            "4)"
        ),
    )


def form_is_bilinear() -> Finding:
    x, y, z = (MatrixSymbol(name, SIZE, 1) for name in "xyz")
    t = Symbol("t")
    sums = ((x + z).T * FORM * y - x.T * FORM * y - z.T * FORM * y).doit().expand().doit()
    scaled = ((t * x).T * FORM * (t * x)).doit()
    return imprecise(
        part_that_holds=bool(sums.is_ZeroMatrix),
        part_that_fails=scaled == t**2 * x.T * FORM * x != t * x.T * FORM * x,
    )


def quotient(x: Matrix, form: Matrix) -> Expr:
    """Return x^T A x / x^T x."""
    return (x.T * form * x)[0] / (x.T * x)[0]


def rayleigh_quotient() -> Finding:
    t = Symbol("t", positive=True)
    x = MatrixSymbol("x", SIZE, 1)
    entries, form = Matrix(symbols("x_1:4", positive=True)), Matrix(3, 3, symbols("a_1:10"))
    length = sqrt((entries.T * entries)[0])
    return proven(
        ((t * x).T * FORM * (t * x)).doit() == t**2 * x.T * FORM * x,
        ((t * x).T * (t * x)).doit() == t**2 * x.T * x,
        simplify(quotient(t * entries, form) - quotient(entries, form)) == 0,
        simplify((entries.T * form * entries)[0] / length**2 - quotient(entries, form)) == 0,
    )


# Claims on affine maps, the shear and homogeneous coordinates.

FROM, TO = symbols("d k", integer=True, positive=True)
LINEAR = MatrixSymbol("A", TO, FROM)
SHIFT = MatrixSymbol("b", TO, 1)
POINTS = MatrixSymbol("x", FROM, 1), MatrixSymbol("y", FROM, 1)
T = Symbol("t", real=True)


def affine(point: MatrixExpr) -> MatrixExpr:
    """Return A x + b, of any sizes."""
    return LINEAR * point + SHIFT


def cube(number: Expr | int) -> Expr:
    """Return x^3, which maps the line onto the line, one to one, and is not affine."""
    return number**3


def _is_zero(difference: MatrixExpr) -> bool:
    return bool(difference.doit().expand().doit().is_ZeroMatrix)


def affine_maps_take_lines_to_lines() -> Finding:
    x, y = POINTS
    on_line = affine((1 - T) * x + T * y) - (1 - T) * affine(x) - T * affine(y)
    a, b = symbols("a b", real=True)
    # (x, y) -> (x^3, y^3) is one to one on the plane, and bends the line y = x + 1.
    p, q, r = (Matrix([cube(k), cube(k + 1)]) for k in (0, 1, 2))
    bent = Matrix.hstack(q - p, r - p).det() != 0
    return refuted(
        claim_fails=2 * cube(1) != cube(0) + cube(2)
        and expand(cube(a) - cube(b) - (a - b) * ((a + b / 2) ** 2 + 3 * b**2 / 4)) == 0,
        correction_holds=_is_zero(on_line) and bent,
    )


def _line_through(point: Matrix) -> bool:
    """Return whether point + t (1, 2) is a subspace, which it is if and only if it contains 0."""
    return Matrix.hstack(point, Matrix([1, 2])).rank() < 2


def lines_are_no_subspaces() -> Finding:
    return imprecise(
        part_that_holds=not _line_through(Matrix([0, 1])),
        part_that_fails=_line_through(Matrix([0, 0])) and _line_through(Matrix([3, 6])),
    )


def affine_maps_are_not_linear() -> Finding:
    x, y = POINTS
    return imprecise(
        part_that_holds=_is_zero(affine(x + y) - affine(x) - affine(y) + SHIFT),
        part_that_fails=_is_zero(
            (affine(x + y) - affine(x) - affine(y)).subs(SHIFT, ZeroMatrix(TO, 1))
        ),
    )


def shear(slope: Expr) -> Matrix:
    """Return the printed matrix of a shear."""
    return Matrix([[1, slope], [0, 1]])


_SLOPE, _SECOND, _X1, _X2, _Y1, _Y2 = symbols("a c x_1 x_2 y_1 y_2", real=True)


def shear_as_example() -> Finding:
    s, p, q = shear(_SLOPE), Matrix([_X1, _X2]), Matrix([_Y1, _Y2])
    return imprecise(
        part_that_holds=(s * ((1 - T) * p + T * q) - (1 - T) * s * p - T * s * q)
        .expand()
        .is_zero_matrix
        and s != eye(2),
        part_that_fails=(s * (p + q) - s * p - s * q).expand().is_zero_matrix,
    )


def shear_keeps_heights() -> Finding:
    return proven((shear(_SLOPE) * Matrix([_X1, _X2]))[1] == _X2)


def shear_translates() -> Finding:
    def moved(first: Expr, height: Expr) -> Expr:
        return expand((shear(_SLOPE) * Matrix([first, height]))[0] - first)

    return imprecise(
        part_that_holds=moved(_X1, _X2) == moved(_Y1, _X2) == _SLOPE * _X2,
        part_that_fails=moved(_X1, _X2) != moved(_X1, _Y2) and moved(_X1, Integer(0)) == 0,
    )


def translation(shift: MatrixExpr) -> BlockMatrix:
    """Return the matrix that translates in homogeneous coordinates."""
    return BlockMatrix([[Identity(TO), shift], [ZeroMatrix(1, TO), Identity(1)]])


def translation_in_homogeneous_coordinates() -> Finding:
    point = MatrixSymbol("x", TO, 1)
    moved = block_collapse(translation(SHIFT) * BlockMatrix([[point], [Identity(1)]]))
    matrix = Matrix([[1, 0, _SLOPE], [0, 1, _SECOND], [0, 0, 1]])
    return proven(
        moved.blocks[0, 0] == SHIFT + point,
        moved.blocks[1, 0] == Identity(1),
        matrix * Matrix([_X1, _X2, 1]) == Matrix([_X1 + _SLOPE, _X2 + _SECOND, 1]),
    )


# Claims on the scores of an attention head with biases, as a bilinear form.

TOKENS, WIDTH, KEYS = (Symbol(name, integer=True, positive=True) for name in ("m", "d", "k"))
X = MatrixSymbol("X", TOKENS, WIDTH)
W_Q, W_K = MatrixSymbol("W_Q", WIDTH, KEYS), MatrixSymbol("W_K", WIDTH, KEYS)
B_Q, B_K = MatrixSymbol("b_Q", KEYS, 1), MatrixSymbol("b_K", KEYS, 1)
ONE = OneMatrix(TOKENS, 1)
OMEGA = BlockMatrix([[W_Q * W_K.T, W_Q * B_K], [B_Q.T * W_K.T, B_Q.T * B_K]])
"""The matrix of the bilinear form, in blocks, as printed."""


def _summands(expression: MatrixExpr) -> list[MatrixExpr]:
    """Return the noncommutative products in the sum of a matrix expression, in a fixed order."""
    expanded = expression.doit().expand().doit()
    return sorted(expanded.args if expanded.is_MatAdd else [expanded], key=str)


def scores() -> MatrixExpr:
    """Return (X W_Q + 1 b_Q^T)(X W_K + 1 b_K^T)^T."""
    return (X * W_Q + ONE * B_Q.T) * (X * W_K + ONE * B_K.T).T


def scores_as_attention_module() -> Finding:
    x, queries, keys = (Matrix(2, 2, symbols(f"{name}_1:5")) for name in ("x", "q", "k"))
    b_q, b_k = Matrix(symbols("b_1:3")), Matrix(symbols("c_1:3"))
    replaced = {X: x, W_Q: queries, W_K: keys, B_Q: b_q, B_K: b_k, ONE: ones(2, 1)}
    left, right = x * queries + ones(2, 1) * b_q.T, x * keys + ones(2, 1) * b_k.T
    pairs = [(i, j) for i in range(2) for j in range(2)]
    small = {TOKENS: 2, WIDTH: 2, KEYS: 2}
    entries = scores().subs(small).subs({a.subs(small): b for a, b in replaced.items()}).doit()
    # Two tokens 1 and -1, weights 1 and no biases.
    tokens = Matrix([1, -1])
    example = tokens * tokens.T
    return imprecise(
        part_that_holds=scores().shape == (TOKENS, TOKENS)
        and all((entries[i, j] - left.row(i).dot(right.row(j))).expand() == 0 for i, j in pairs),
        part_that_fails=min(example) < 0 and sum(example.row(0)) != 1,
        witness=(
            "entry (i, j) of the product is <q_i, k_j> of the queries and keys with biases: the "
            "scores "
            "of m tokens, an m x m matrix. No attention module yet: for tokens 1 and -1, weights "
            "1, "
            f"its rows are {list(example.row(0))} and {list(example.row(1))}, no weights that add "
            "up "
            "to 1, and there are no values"
        ),
    )


def biases_are_translations() -> Finding:
    i, j = symbols("i j", integer=True)
    return proven((ONE * B_Q.T)[i, j] == B_Q[j, 0], (ONE * B_K.T)[i, j] == B_K[j, 0])


def scores_four_terms() -> Finding:
    terms = [
        X * W_Q * W_K.T * X.T,
        X * W_Q * B_K * ONE.T,
        ONE * B_Q.T * W_K.T * X.T,
        ONE * B_Q.T * B_K * ONE.T,
    ]
    return proven(_summands(scores()) == sorted((term.doit() for term in terms), key=str))


def scores_homogeneous_coordinates() -> Finding:
    tokens = BlockMatrix([[X, ONE]])
    form = block_collapse(tokens * OMEGA * tokens.T)
    return proven(_summands(form) == _summands(scores()))


def score(left: int, right: int) -> int:
    """Return the score of two tokens of one entry, with weights 1 and no bias."""
    return left * right


def scores_are_biaffine() -> Finding:
    mixed = score(1, 1) - score(1, 0) - score(0, 1) + score(0, 0)
    return imprecise(
        part_that_holds=scores_homogeneous_coordinates().verdict is Verdict.PROVEN,
        part_that_fails=mixed != 0,
        witness=(
            "the blocks are right; but for d = k = 1 and no bias the score is x y, whose mixed "
            "second "
            f"difference is {mixed} and not 0: no affine map of the tokens"
        ),
    )


def _shapes_agree() -> bool:
    """Whether x~ Omega is defined for a column x~, as printed (d = 2)."""
    try:
        _ = ones(3, 1) * eye(3)
    except ShapeError:
        return False
    return True


def scores_as_bilinear_form() -> Finding:
    left, right = MatrixSymbol("x_i", WIDTH, 1), MatrixSymbol("x_j", WIDTH, 1)
    columns = [BlockMatrix([[x], [Identity(1)]]) for x in (left, right)]
    form = block_collapse(columns[0].T * OMEGA * columns[1])
    entry = (left.T * W_Q + B_Q.T) * (right.T * W_K + B_K.T).T
    return imprecise(
        part_that_holds=_summands(form) == _summands(entry), part_that_fails=not _shapes_agree()
    )


# Claims on the singular values and singular vectors of the matrix of a bilinear form.

TURN = Matrix(
    [[1, 0, 0], [0, Rational(5, 13), -Rational(12, 13)], [0, Rational(12, 13), Rational(5, 13)]]
)
LEFT, RIGHT = ROTATION * TURN, TURN * ROTATION
EXAMPLE = LEFT * Matrix.diag(5, 3, 2) * RIGHT.T
"""A matrix with the singular values 5, 3 and 2, and singular vectors in LEFT and RIGHT."""

ROWS, OTHER = symbols("n k", integer=True, positive=True)


def courant_fischer_svd() -> Finding:
    x = Matrix(symbols("x_1:4"))
    excess = 25 * eye(3) - EXAMPLE.T * EXAMPLE
    attained = [(LEFT[:, k].T * EXAMPLE * RIGHT[:, k])[0] for k in range(3)]
    return imprecise(
        part_that_holds=attained[0] == 5
        and sorted(excess.eigenvals()) == [0, 16, 21]
        and expand((EXAMPLE * x).dot(EXAMPLE * x) - (x.T * (EXAMPLE.T * EXAMPLE) * x)[0]) == 0
        and RIGHT * Matrix.diag(25, 9, 4) * RIGHT.T == EXAMPLE.T * EXAMPLE
        and general_courant_fischer(),
        part_that_fails=attained[1:] == [3, 2],
        witness=(
            f"singular values 5, 3, 2, exactly: x^T A y = {attained[0]} at u_1, v_1, and it never "
            "exceeds |x||A y| <= 5 |x||y|, as the eigenvalues of 25 I - A^T A are 0, 16, 21; but "
            "at "
            f"u_2, v_2 it is {attained[1]}. Courant-Fischer for A^T A gives every sigma_k"
        ),
    )


def theorem_fixes_the_matrix() -> Finding:
    x, y = Matrix([1, 2]), Matrix([3, 1])
    t = Symbol("t", positive=True)
    value = (x.T * (t * x * y.T) * y)[0]
    return imprecise(
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


MATRIX = MatrixSymbol("A", ROWS, OTHER)


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


def svd_of_omega() -> Finding:
    queries = BlockMatrix([[W_Q], [B_Q.T]])
    keys = BlockMatrix([[W_K], [B_K.T]])
    factors = block_collapse(queries * keys.T)
    q, k = Matrix([[1, 0], [0, 1], [1, 1]]), Matrix([[1, 1], [0, 1], [1, 0]])
    omega = q * k.T
    terms = decomposition(omega)
    pairs = [(i, j) for i in range(len(terms)) for j in range(len(terms))]
    return proven(
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
        witness=(
            "any matrix A: A^T A is symmetric and has orthonormal eigenvectors v_k (spectral "
            "theorem) "
            "with eigenvalues sigma_k^2 = |A v_k|^2. With u_k = A v_k/sigma_k where sigma_k > 0, "
            "u_k^T u_j = v_k^T A^T A v_j/(sigma_k sigma_j) = [k = j]; A v_k = 0 for the others, so "
            "the sum of D_k is A sum_k v_k v_k^T = A: symbolic sizes. The number of terms is the "
            "rank "
            "r, at most the size of a key, as Omega = (W_Q; b_Q^T)(W_K; b_K^T)^T. A rational 3 x 3 "
            f"Omega of rank 2 has {len(terms)} terms, whose sum it is exactly"
        ),
    )


INNER_PRODUCT = ZeroMatrix(1, 1)
"""u_k^T u_j for two singular vectors of one side, k != j."""


def svd_terms_orthogonal() -> Finding:
    """Check both products for terms of symbolic sizes n x k."""
    values = symbols("sigma_k sigma_j")
    left = [MatrixSymbol(name, ROWS, 1) for name in ("u_k", "u_j")]
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
        *[product == ZeroMatrix(OTHER, OTHER) for product in products],
        sum(d, zero) == EXAMPLE,
        all(d[k].T * d[j] == zero for j, k in different),
        all(d[k] * d[j].T == zero for j, k in different),
    )


# Claims on which Omega gives two tokens the largest score, and on what training does to it.


def scores_best_rank_one_form() -> Finding:
    """Check that |D - D*|^2 = 2 - 2 x^T D y / (|x||y|) for |D| = 1, in inner products."""
    xx, yy = symbols("xx yy", positive=True)
    form, dd = symbols("form dd", real=True)
    scale = 1 / sqrt(xx * yy)
    # |D - scale x y^T|^2, of which <D, x y^T> = x^T D y and |x y^T|^2 = |x|^2 |y|^2.
    distance = dd - 2 * scale * form + scale**2 * xx * yy
    x, y = Matrix(symbols("x_1:3", real=True)), Matrix(symbols("y_1:4", real=True))
    d = Matrix(2, 3, symbols("d_1:7", real=True))
    best = Matrix([3, 4]) * Matrix([5, 12, 84]).T / (5 * 85)
    return proven(
        expand(distance.subs(dd, 1) - (2 - 2 * form * scale)) == 0,
        expand(((x * y.T).T * d).trace() - (x.T * d * y)[0]) == 0,
        expand(((x * y.T).T * (x * y.T)).trace() - x.dot(x) * y.dot(y)) == 0,
        (Matrix([3, 4]).T * best * Matrix([5, 12, 84]))[0] == 5 * 85,
        (best.T * best).trace() == 1,
        best.rank() == 1,
    )


def derivative_of_the_score() -> MatrixExpr:
    """Return the derivative of x^T Omega y by Omega, for any width."""
    x, y = MatrixSymbol("x", WIDTH, 1), MatrixSymbol("y", WIDTH, 1)
    return Trace(x.T * MatrixSymbol("Omega", WIDTH, WIDTH) * y).diff(
        MatrixSymbol("Omega", WIDTH, WIDTH)
    )


def _score_has_derivative() -> bool:
    x, y = MatrixSymbol("x", WIDTH, 1), MatrixSymbol("y", WIDTH, 1)
    return bool(derivative_of_the_score().doit() == x * y.T)


def row_of_derivatives() -> list[Expr]:
    """Return the derivatives of a loss by the scores of one query, at equal scores.

    The query sees two keys with the values 0 and 1, and the loss is half the square of its output.
    """
    first, second = symbols("A_1 A_2", real=True)
    loss = (exp(second) / (exp(first) + exp(second))) ** 2 / 2
    return [diff(loss, a).subs({first: 0, second: 0}) for a in (first, second)]


def softmax_keeps_common_shifts() -> bool:
    """Return whether softmax is the same at z + t 1, for any number of tokens."""
    t = symbols("t")
    shifted = {z: z + t for z in Z[:3]} | {Z[3]: Z[3] * exp(t)}
    return all(
        cancel(expand(s.subs(shifted, simultaneous=True) - s, power_exp=True)) == 0
        for s in values()
    )


def training_maximises_scores() -> Finding:
    row = row_of_derivatives()
    return refuted(
        claim_fails=sum(row) == 0 and max(row) > 0 and softmax_keeps_common_shifts(),
        correction_holds=_score_has_derivative(),
        witness=(
            "softmax does not change if all scores of a query grow by the same amount, so their "
            "derivatives sum to 0 in every loss: none can raise all of them. Two keys with values "
            "0 "
            f"and 1, loss half the square of the output: dL/dA = {row[0]}, {row[1]}, so that "
            "descent "
            "lowers the second score"
        ),
    )


REST, FEATURE = (Matrix([7, 0]), Matrix([0, 0])), (Matrix([0, 1]), Matrix([0, 1]))
"""v_i and v_j, f_i and f_j of two tokens v + f; the parts are orthogonal."""


def _unit(left: Matrix, right: Matrix) -> Matrix:
    return left * right.T / (left.norm() * right.norm())


def feature_part_maximises_score() -> Finding:
    v, f = symbols("V_i V_j", positive=True), symbols("F_i F_j", positive=True)
    # Squares of the scores at both matrices, in the squares of the lengths.
    excess = expand((v[0] + f[0]) * (v[1] + f[1]) - f[0] * f[1])
    x, y = REST[0] + FEATURE[0], REST[1] + FEATURE[1]
    printed = (x.T * _unit(*FEATURE) * y)[0]
    best = (x.T * _unit(x, y) * y)[0]
    return refuted(
        claim_fails=all(a.dot(b) == 0 for a, b in zip(REST, FEATURE, strict=True))
        and printed < best
        and excess == v[0] * v[1] + v[0] * f[1] + f[0] * v[1],
        correction_holds=best == x.norm() * y.norm()
        and scores_best_rank_one_form().verdict is Verdict.PROVEN,
        witness=(
            "v_i = (7, 0), f_i = (0, 1), x~_j = f_j = (0, 1): the printed matrix scores "
            f"{printed}, "
            f"x~_i x~_j^T/(|x~_i||x~_j|) scores {best}, and the lemma says that it is the best. "
            "The "
            "squares of the two scores differ by |v_i|^2|v_j|^2 + |v_i|^2|f_j|^2 + |f_i|^2|v_j|^2"
        ),
    )


def optimisation_copies_features() -> Finding:
    v, f = Matrix([1, 0]), Matrix([0, 1])
    step = (v + f) * (v + f).T
    parts = [(a.T * step * b)[0] for a in (v, f) for b in (v, f)]
    row = row_of_derivatives()
    return refuted(
        claim_fails=parts == [1, 1, 1, 1] and min(row) < 0 < max(row),
        correction_holds=_score_has_derivative(),
        witness=(
            "dA_ij/dOmega = x~_i x~_j^T, in every dimension. For v_i = v_j = (1, 0) and f_i = f_j "
            "= "
            "(0, 1) it is v_i v_j^T + v_i f_j^T + f_i v_j^T + f_i f_j^T with equal weights "
            f"{parts}; the loss of `training-maximises-scores` has dL/dA = {row[0]} and {row[1]}, "
            "so "
            "that one pair is added and one taken away"
        ),
    )


# Claims on layers of self-attention: the matrix form, the layer norm, and the continuous time.

LENGTH, FEATURES, KEY_SIZE = symbols("n d l", integer=True, positive=True)
QUERY, KEY = (MatrixSymbol(name, KEY_SIZE, FEATURES) for name in ("Q", "K"))
VALUE = MatrixSymbol("V", FEATURES, FEATURES)
ATTENTION = MatrixSymbol("A", LENGTH, LENGTH)


def printed_form_exists(rows: bool, transposed: bool = False) -> bool:
    """Return whether (Qx) . (Kx), or Q x^T (K x), and A V x exist, for tokens as rows or columns.

    4 tokens of 3 coordinates, 2 coordinates of queries and keys.
    """
    x = MatrixSymbol("x", 4, 3) if rows else MatrixSymbol("x", 3, 4)
    query, key = (MatrixSymbol(name, 2, 3) for name in ("Q", "K"))
    try:
        _ = query * x.T * (key * x) if transposed else (query * x).T * (key * x)
        _ = MatrixSymbol("A", 4, 4) * MatrixSymbol("V", 3, 3) * x
    except ShapeError:
        return False
    return True


def entries_agree(transposed: bool = True) -> bool:
    """Return whether x Q^T, x K^T and x V^T (or x V) are the tokens Q x_i, K x_j and V x_j.

    Entry by entry, and the shapes of (x Q^T)(x K^T)^T and A x V^T, for symbolic sizes.
    """
    moved = VALUE.T if transposed else VALUE
    x = MatrixSymbol("x", LENGTH, FEATURES)
    i, j, a, b = symbols("i j a b", integer=True)
    query, key = (Sum(w[a, b] * x[t, b], (b, 0, FEATURES - 1)) for w, t in ((QUERY, i), (KEY, j)))
    first = [(x * QUERY.T)[i, a], (x * KEY.T)[j, a]]
    values = Sum(x[j, b] * VALUE[a, b], (b, 0, FEATURES - 1))
    return (
        all(_same_sum(entry, claimed) for entry, claimed in zip(first, (query, key), strict=True))
        and _same_sum((x * moved)[j, a], values)
        and ((x * QUERY.T) * (x * KEY.T).T).shape == (LENGTH, LENGTH)
        and (ATTENTION * x * VALUE.T).shape == (LENGTH, FEATURES)
    )


def _same_sum(first: Expr, second: Expr) -> bool:
    """Compare two sums over the width term by term."""
    k = Symbol("k", integer=True)
    terms = [s.function.subs(s.limits[0][0], k) for s in (first, second)]
    ranges = [s.limits[0][1:] for s in (first, second)]
    return expand(terms[0] - terms[1]) == 0 and ranges[0] == ranges[1]


def self_attention_matrix_form() -> Finding:
    return imprecise(
        part_that_holds=entries_agree(),
        part_that_fails=not any(
            printed_form_exists(rows, transposed)
            for rows in (True, False)
            for transposed in (True, False)
        ),
    )


def softmax_row(exponentials: Matrix) -> Matrix:
    """Return a row of exponentials over its sum."""
    return exponentials / sum(exponentials)


def self_attention_components() -> Finding:
    """Check the entries of softmax(scores) x V^T for 2 and 3 tokens of 2 coordinates."""
    beta = Symbol("beta", positive=True)
    query, key, value = (Matrix(2, 2, symbols(f"{name}_1:5")) for name in "qkv")
    facts = []
    for count in (2, 3):
        x = Matrix(count, 2, symbols(f"x_1:{2 * count + 1}"))
        scores = (beta * (x * query.T) * (x * key.T).T).applyfunc(lambda s: exp(expand(s)))
        rows = [x.row(i).T for i in range(count)]
        matrix_form = (softmax_row(scores.row(0)) * x * value.T).T
        by_token = [exp(expand(beta * (query * rows[0]).dot(key * r))) for r in rows]
        moved = sum(
            (w * value * r for w, r in zip(by_token, rows, strict=True)), Matrix.zeros(2, 1)
        ) / sum(by_token)
        facts.append((matrix_form - moved).applyfunc(expand) == Matrix.zeros(2, 1))
        facts.append(cancel(sum(softmax_row(scores.row(0)))) == 1)
    return proven(*facts)


def layer_norm(x: Matrix, centred: bool) -> Matrix:
    """Return x / rms(x), of x or of x minus its mean: RMS norm, layer norm, gain 1 and no bias."""
    size = len(x)
    mean = sum(x) / size if centred else 0
    away = x - mean * Matrix.ones(size, 1)
    return away / sqrt(away.dot(away) / size)


def layer_norm_as_unit_norm() -> Finding:
    x, centred = Matrix([1, 2, 2]), Matrix([2, -1, -1])
    return imprecise(
        part_that_holds=layer_norm(x, centred=False) == sqrt(3) * x / 3
        and layer_norm(centred, centred=True) == sqrt(3) * centred / sqrt(6),
        part_that_fails=layer_norm(x, centred=True) == Matrix([-2, 1, 1]) / sqrt(2)
        and x.cross(layer_norm(x, centred=True)) != Matrix.zeros(3, 1),
    )


def coefficients_of_a_step(length: Expr) -> tuple[Expr, Expr]:
    """Return how d/dh of (x + h y) / |x + h y| at h = 0 is made of x and of y, |x|^2 = `length`."""
    h = Symbol("h")
    scale = (length + 2 * h * XY + h**2 * YY) ** Rational(-1, 2)
    return diff(scale, h).subs(h, 0), diff(h * scale, h).subs(h, 0)


def sphere_invariant() -> Finding:
    rate = expand(2 * (XY - XY * XX))
    tangent = expand(XY - XY * XX)
    return proven(
        coefficients_of_a_step(Rational(1)) == (-XY, 1),
        tangent.subs(XX, 1) == 0,
        expand(projected_square().subs(XX, 1) - (YY - XY**2)) == 0,
        rate.subs(XX, 1) == 0,
        expand(rate - 2 * XY * (1 - XX)) == 0,
    )


# Claims on a prompt as a measure: what it keeps of the tokens, and the map of measures.
#
# Tokens are points with rational coordinates, and the attention of a measure is evaluated exactly
# for Q = K = V = I.

Point = tuple[int, ...]
A, B, C = (1, 0), (1, 1), (0, 2)


def empirical(tokens: Sequence[Point]) -> dict[Point, Rational]:
    """Return the masses of (1/n) sum of point masses."""
    return {x: Rational(count, len(tokens)) for x, count in Counter(tokens).items()}


def attended(measure: Mapping[Point, Expr], x: Point) -> Matrix:
    """Return the average of y with weights exp(<x, y>) by a measure."""
    kernel = {y: mass * exp(Matrix(x).dot(Matrix(y))) for y, mass in measure.items()}
    total = sum(kernel.values())
    return sum((k * Matrix(y) for y, k in kernel.items()), Matrix.zeros(len(x), 1)) / total


def token_velocity(tokens: Sequence[Point], i: int, causal: bool = False) -> Matrix:
    """Return the softmax average that token i of a list sees, token by token."""
    seen = tokens[: i + 1] if causal else tokens
    kernel = [exp(Matrix(tokens[i]).dot(Matrix(y))) for y in seen]
    moved = sum((k * Matrix(y) for k, y in zip(kernel, seen, strict=True)), Matrix.zeros(2, 1))
    return moved / sum(kernel)


def same(a: Matrix, b: Matrix) -> bool:
    """Return whether two exact vectors are equal."""
    return all(entry.simplify() == 0 for entry in a - b)


def apart(a: Matrix, b: Matrix) -> bool:
    """Return whether two exact vectors differ, by their values."""
    return any(abs(entry.evalf()) > 1e-6 for entry in a - b)


def tokens_have_position_encodings() -> Finding:
    order, other = (A, B, C), (B, A, C)
    words, places = (A, C), ((0, 0), (3, 5))

    def prompt(first: Point, second: Point) -> list[Point]:
        pairs = zip((first, second), places, strict=True)
        return [(x[0] + p[0], x[1] + p[1]) for x, p in pairs]

    return imprecise(
        part_that_holds=all(
            same(token_velocity(p, p.index(A)), token_velocity(order, 0))
            for p in permutations(order)
        )
        and empirical(prompt(*words)) != empirical(prompt(*words[::-1])),
        part_that_fails=apart(
            token_velocity(order, 0, causal=True), token_velocity(other, 1, causal=True)
        )
        and len(Matrix([A, B])) == 4,
    )


def tokens_as_a_measure() -> Finding:
    measures = [empirical(p) for p in permutations((A, A, B))]
    return imprecise(
        part_that_holds=measures[0] == {A: Rational(2, 3), B: Rational(1, 3)}
        and measures[0] != empirical((A, B)),
        part_that_fails=all(m == measures[0] for m in measures)
        and empirical((A, A, B) * 2) == measures[0],
    )


def point_masses_as_indicators() -> Finding:
    measure = empirical((A, A, B))
    return imprecise(
        part_that_holds=measure.get(C, Integer(0)) == 0 and min(measure.values()) > 0,
        part_that_fails=measure[A] != measure[B] and sum(measure.values()) == 1,
    )


def labels_of_input_and_output() -> Finding:
    """Compare with a language in which a follows b, and b follows a."""
    following = {A: B, B: A}
    first, second = (A, B), (B, A)
    output = [Matrix(first[i]) + token_velocity(first, i) for i in range(2)]
    return refuted(
        claim_fails=empirical(first) == empirical(second)
        and following[first[-1]] != following[second[-1]]
        and all(apart(moved, Matrix(y)) for moved in output for y in first),
        correction_holds=empirical(first) == {x: Rational(first.count(x), 2) for x in first},
    )


def transformer_maps_measures() -> Finding:
    y = Symbol("y", positive=True)
    prompts = ((A, A, B), (B, A, A), (A, A, B) * 2)
    speeds = [token_velocity(p, p.index(A)) for p in prompts]
    return imprecise(
        part_that_holds=all(same(speed, speeds[0]) for speed in speeds),
        part_that_fails=limit(exp(y) / (pi * (1 + y**2)), y, oo) == oo
        and apart(token_velocity((A, B), 0, causal=True), token_velocity((B, A), 1, causal=True)),
    )


def mean_field_system() -> Finding:
    prompts = ((A,), (A, B), (A, A, B), (C, A, C, B), (A, B, C, B, B))
    return tested(
        *[
            same(token_velocity(tokens, i), attended(empirical(tokens), tokens[i]))
            for tokens in prompts
            for i in range(len(tokens))
        ]
    )


def mean_field_of_the_others() -> Finding:
    without = {y: mass for y, mass in empirical((A, B)).items() if y != A}
    return imprecise(
        part_that_holds=same(token_velocity((A, B), 0), attended(empirical((A, B)), A)),
        part_that_fails=same(token_velocity((A,), 0), Matrix(A))
        and apart(token_velocity((A, B), 0), attended(without, A)),
    )


# Claims on the MLP and the heads of a layer: which model their formulas define.
#
# The velocity of line 115 is the projection of MLP(attention), that of line 120 the mean over heads
# of the projections of MLP_k(attention_k). They are judged against layers in use, where each
# sublayer is added to the residual stream, x + h attention(x), then x + h MLP(x), and one MLP
# follows the sum of the heads (Vaswani et al. 2017).

SUBLAYER, PERCEPTRON = Function("A"), Function("M")


def speed_of_two_sublayers() -> Expr:
    """Return the derivative at h = 0 of x + h A(x), followed by x + h M(x)."""
    x, h = symbols("x h", real=True)
    between = x + h * SUBLAYER(x)
    return diff(between + h * PERCEPTRON(between), h).doit().subs(h, 0).doit()


def mlp_in_between() -> Finding:
    x = Symbol("x", real=True)
    speed = speed_of_two_sublayers()
    composed = PERCEPTRON(SUBLAYER(x))
    example = {SUBLAYER: lambda s: 2 * s, PERCEPTRON: lambda s: Max(0, s)}
    values = [
        e.replace(SUBLAYER, example[SUBLAYER]).replace(PERCEPTRON, example[PERCEPTRON]).subs(x, 1)
        for e in (speed, composed)
    ]
    return imprecise(
        part_that_holds=expand(speed - SUBLAYER(x) - PERCEPTRON(x)) == 0,
        part_that_fails=values == [3, 2],
    )


def relu(x: Matrix) -> Matrix:
    """Return the positive parts."""
    return x.applyfunc(lambda entry: Max(0, entry))


def mlp_of_each_head() -> Finding:
    x = Matrix([Rational(3, 5), Rational(4, 5)])
    first, second = Matrix(symbols("a_1:3")), Matrix(symbols("b_1:3"))

    def projected(y: Matrix) -> Matrix:
        return y - x.dot(y) * x

    mean = (projected(first) + projected(second)) / 2
    apart = (Matrix([1, 0]), Matrix([-1, 0]))
    return imprecise(
        part_that_holds=(mean - projected((first + second) / 2)).expand() == Matrix.zeros(2, 1),
        part_that_fails=relu((apart[0] + apart[1]) / 2) == Matrix.zeros(2, 1)
        and (relu(apart[0]) + relu(apart[1])) / 2 == Matrix([Rational(1, 2), 0]),
    )


# Claims on the lengths of tokens: weighted sums, layer normalisation, velocities on the sphere.

SIZES = (2, 3, 4, 5)


def weights(count: int) -> list[Expr]:
    """Return weights of sum 1, of which all but the last are symbols."""
    free = symbols(f"p_1:{count}")
    return [*free, 1 - sum(free)]


def defect_of_the_mean(count: int) -> Expr:
    """Return sum p |x|^2 - |sum p x|^2 - (1/2) sum p_i p_j |x_i - x_j|^2 for weights of sum 1."""
    tokens = range(count)
    p = weights(count)
    c = [[Symbol(f"c_{min(i, j)}{max(i, j)}", real=True) for j in tokens] for i in tokens]
    mean = sum(p[i] * p[j] * c[i][j] for i in tokens for j in tokens)
    spread = sum(
        p[i] * p[j] * (c[i][i] + c[j][j] - 2 * c[i][j]) / 2 for i in tokens for j in tokens
    )
    return expand(sum(p[i] * c[i][i] for i in tokens) - mean - spread)


def average_of_orthogonal(count: int) -> Expr:
    """Return the length of the plain average of orthogonal tokens of length 1."""
    return (Matrix.ones(count, 1) / count).norm()


def gradient_of_unit_vector(x: Matrix) -> Matrix:
    """Return the derivative (I - u u^T) / |x| of x / |x|, u = x / |x|."""
    unit = x / x.norm()
    return (eye(len(x)) - unit * unit.T) / x.norm()


def sums_make_norms_explode() -> Finding:
    x = Matrix([3, 4])
    s = symbols("s_1:3", positive=True)
    unit = Matrix(s) / sqrt(s[0] ** 2 + s[1] ** 2)
    by_hand = Matrix(2, 2, lambda i, j: diff(unit[i], s[j])).subs(dict(zip(s, x, strict=True)))
    return refuted(
        claim_fails=all(defect_of_the_mean(count) == 0 for count in SIZES),
        correction_holds=(by_hand - gradient_of_unit_vector(x)).applyfunc(lambda e: e.simplify())
        == Matrix.zeros(2, 2)
        and all(average_of_orthogonal(count) == 1 / sqrt(count) for count in SIZES)
        and gradient_of_unit_vector(10 * x) == gradient_of_unit_vector(x) / 10,
    )


def lengths(depth: int, normalise_the_sum: bool) -> list[Expr]:
    """Return |x| of one token by layer: x + V y with V = Id, y = x / |x|, or that normalised."""
    x = Matrix([3, 4])
    result = [x.norm()]
    for _ in range(depth):
        x = x + x / x.norm()
        if normalise_the_sum:
            x = x / x.norm()
        result.append(x.norm())
    return result


def plain_lengths(depth: int) -> list[Expr]:
    """Return |x| of one token by layer without normalisation: x + V x with V = Id."""
    return [Rational(5) * 2**k for k in range(depth + 1)]


def layer_norm_prevents_explosion() -> Finding:
    depth = 6
    return imprecise(
        part_that_holds=lengths(depth, normalise_the_sum=True)[1:] == [1] * depth
        and plain_lengths(depth)[-1] > 10 * lengths(depth, normalise_the_sum=False)[-1],
        part_that_fails=lengths(depth, normalise_the_sum=False)
        == [5 + k for k in range(depth + 1)],
    )


def projected(x: Matrix, y: Matrix) -> Matrix:
    """Return y - <x, y> x."""
    return y - x.dot(y) * x


def average(x: Matrix, y: Matrix) -> Matrix:
    """Return the field at x of two tokens x and y, Q = K = V = I."""
    own, other = exp(x.dot(x)), exp(x.dot(y))
    return (own * x + other * y) / (own + other)


def velocity_printed_as_position() -> Finding:
    """Compare place and velocity of two tokens at right angles."""
    x, y = Matrix([1, 0]), Matrix([0, 1])
    velocity = average(x, y)
    h = Symbol("h")
    moved = x + h * velocity
    return refuted(
        claim_fails=velocity != x and all(entry.is_positive for entry in velocity),
        correction_holds=diff(moved, h) == velocity,
    )


def velocity_printed_as_second_token() -> Finding:
    """Check <x, P_x y> = 0 in inner products, against <x_2, x_2> = 1."""
    xx, xy = symbols("xx xy", real=True)
    along = (xy - xy * xx).subs(xx, 1)
    x, y = Matrix([Rational(3, 5), Rational(4, 5)]), Matrix([2, -1])
    return refuted(
        claim_fails=x.dot(x) == 1 and x.dot(projected(x, y)) == 0 and projected(x, y) != x,
        correction_holds=expand(2 * along) == 0,
    )


_PROJECTED = r"x_2(t) = \text{Proj}_{T_{x_i}(t)S^{d-1}}"


# Claims on residual networks: layers as Euler steps of a flow, and maps of their first state.

LAYERS = 4
FIRST_PRINTED = 1


def states(indices: Iterable[int]) -> dict[int, Expr]:
    """Return the states after the layers x_(k+1) = x_k + g(W_k x_k + b_k), k in `indices`."""
    activation = Function("g")
    x: dict[int, Expr] = {k: Symbol(f"x_{k}") for k in range(LAYERS + 1)}
    for k in indices:
        x[k + 1] = x[k] + activation(Symbol(f"W_{k}") * x[k] + Symbol(f"b_{k}"))
    return x


def resnet_indices() -> Finding:
    """Check which starts the state x_L depends on."""
    printed = states(range(FIRST_PRINTED, LAYERS))[LAYERS]
    mended = states(range(LAYERS))[LAYERS]
    starts = {Symbol(f"x_{k}") for k in range(LAYERS)}
    return imprecise(
        part_that_holds=mended.free_symbols & starts == {Symbol("x_0")},
        part_that_fails=Symbol("x_0") not in printed.free_symbols,
        witness=(
            f"L = {LAYERS}: with k from 1 the state x_L is a function of x_1, and x_0 is in no "
            "layer; "
            "with k from 0 it is a function of x_0"
        ),
    )


Field = Callable[[float, float], float]
"""A velocity by time and place."""


def euler(field: Field, start: float, step: float, count: int) -> float:
    """Return the state after the layers x + step * field(k step, x), k from 0 to `count` - 1."""
    x = start
    for k in range(count):
        x += step * field(k * step, x)
    return x


def error_ratio(field: Field, start: float, end: float) -> float:
    """Return by which factor the error at time 1 falls from 512 layers to 1024."""
    return (euler(field, start, 1 / 512, 512) - end) / (euler(field, start, 1 / 1024, 1024) - end)


START, WEIGHT = 0.7, -3.0


def _steady(_time: float, x: float) -> float:
    return math.tanh(WEIGHT * x)


def flow(integral: float) -> float:
    """Return the state under x' = w(t) tanh(a x) when the integral of w has a value.

    sinh(a x) grows by the factor exp(a times the integral).
    """
    return math.asinh(math.exp(WEIGHT * integral) * math.sinh(WEIGHT * START)) / WEIGHT


def resnet_continuous_time() -> Finding:
    """Compare layers with the flow of tanh(w x)."""
    rate = Symbol("a", positive=True)
    count = Symbol("L", positive=True)
    linear = limit(count * (exponential(rate) - (1 + rate / count) ** count), count, oo)

    return imprecise(
        part_that_holds=(linear - rate**2 * exponential(rate) / 2).simplify() == 0
        and abs(error_ratio(_steady, START, flow(1.0)) - 2) < 0.05,
        part_that_fails=abs(euler(_steady, START, 1.0, 20)) > 0.1 and abs(flow(20.0)) < 1e-20,
    )


def residual_layers_in_continuous_time() -> Finding:
    """Compare layers with the flow of w(t) tanh(a x), w(t) = 1 + t."""

    def growing(time: float, x: float) -> float:
        return (1 + time) * _steady(time, x)

    return imprecise(
        part_that_holds=abs(error_ratio(growing, START, flow(1.5)) - 2) < 0.05,
        part_that_fails=abs(euler(_steady, START, 1.0, 20)) > 0.1 and abs(flow(20.0)) < 1e-20,
    )


def layer(x: Expr, step: Expr) -> Expr:
    """Return x + step * relu(-2x)."""
    return x + step * Max(0, -2 * x)


def resnet_flow_map() -> Finding:
    points = [Rational(k, 4) for k in range(-8, 9)]
    small = [layer(x, Rational(1, 4)) for x in points]
    return imprecise(
        part_that_holds=all(a < b for a, b in pairwise(small)),
        part_that_fails=all(layer(x, Integer(1)) == Abs(x) for x in points)
        and layer(Integer(-1), Integer(1)) == layer(Integer(1), Integer(1)),
    )
