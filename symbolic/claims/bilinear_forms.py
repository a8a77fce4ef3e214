"""Claims on the algebra of attention: quadratic forms, scores, copying, lengths."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise, permutations, product
from random import Random

from sympy import (  # isort: skip
    Abs, BlockMatrix, Expr, Function, Identity, Integer, Matrix, MatrixExpr, MatrixSymbol, Max,
    OneMatrix, Rational, ShapeError, Sum, Symbol, Trace, ZeroMatrix, block_collapse, cancel, diff,
    exp, expand, eye, limit, ones, oo, pi, simplify, sqrt, symbols, zeros,
)  # fmt: skip

from symbolic.algebra import symbolic_covariance
from symbolic.claims.ledger import Finding, Verdict, imprecise, proven, refuted, tested
from symbolic.claims.particles import PROJECTED_SQUARE, XX, XY, YY, projected
from symbolic.claims.proportional_limit import Z, values

# The largest value of a quadratic form: the theorem of Courant and Fischer.

ROTATION = Matrix([[3, -4, 0], [4, 3, 0], [0, 0, 5]]) / 5
SIZE, T = Symbol("n", integer=True, positive=True), Symbol("t", real=True)
FORM = MatrixSymbol("A", SIZE, SIZE)


def general_courant_fischer() -> bool:
    """Check lambda_k = max over dim S = k of min over unit x in S of x^T A x, in an eigenbasis.

    The form less lambda_k |x|^2 has a sign on the first k and on the last n - k + 1 eigenvectors,
    as a polynomial in the differences h of eigenvalues; and a random S meets the latter span.
    """
    facts, random = [], Random(1)
    for size in (2, 3, 4):
        steps, x = symbols(f"h_1:{size + 1}", nonnegative=True), symbols(f"x_1:{size + 1}")
        for k in range(1, size + 1):
            gap = sum((sum(steps[i:]) - sum(steps[k - 1 :])) * e**2 for i, e in enumerate(x))
            signs = gap.subs(dict.fromkeys(x[k:], 0)), -gap.subs(dict.fromkeys(x[: k - 1], 0))
            space, last = Matrix(size, k, lambda *_: random.randint(-9, 9)), eye(size)[:, k - 1 :]
            meeting = space.rank() + last.rank() - Matrix.hstack(space, last).rank()
            facts += [*map(_has_nonnegative_coefficients, signs), space.rank() == k, meeting >= 1]
    a = ROTATION * Matrix.diag(5, 3, 2) * ROTATION.T
    return all(facts) and sorted(a.eigenvals()) == [2, 3, 5]


def _has_nonnegative_coefficients(polynomial: Expr) -> bool:
    return all(c >= 0 for c in expand(polynomial).as_coefficients_dict().values())


def largest_eigenvalue(matrix: Matrix) -> Expr:
    return max(value for value in matrix.eigenvals() if value.is_real)


def courant_fischer() -> Finding:
    nilpotent, best = Matrix([[0, 1], [0, 0]]), ones(2, 1) / sqrt(2)
    x, general = Matrix(symbols("x_1:5")), Matrix(4, 4, symbols("a_1:17"))
    halves = (x.T * general * x - x.T * (general + general.T) / 2 * x)[0]
    attained = (best.T * nilpotent * best)[0]
    own, symmetric = map(largest_eigenvalue, (nilpotent, (nilpotent + nilpotent.T) / 2))
    return refuted(
        claim_fails=(best.T * best)[0] == 1 and attained == Rational(1, 2) and own == 0,
        correction_holds=expand(halves) == 0
        and symmetric == attained
        and general_courant_fischer(),
    )


def _is_zero(difference: MatrixExpr) -> bool:
    return bool(difference.doit().expand().doit().is_ZeroMatrix)


def form_is_bilinear() -> Finding:
    x, y, z = (MatrixSymbol(name, SIZE, 1) for name in "xyz")
    sums = (x + z).T * FORM * y - x.T * FORM * y - z.T * FORM * y
    scaled = ((T * x).T * FORM * (T * x)).doit()
    return imprecise(_is_zero(sums), scaled == T**2 * x.T * FORM * x != T * x.T * FORM * x)


def quotient(x: Matrix, form: Matrix) -> Expr:
    return (x.T * form * x)[0] / (x.T * x)[0]


def rayleigh_quotient() -> Finding:
    t, x = Symbol("t", positive=True), MatrixSymbol("x", SIZE, 1)
    entries, form = Matrix(symbols("x_1:4", positive=True)), Matrix(3, 3, symbols("a_1:10"))
    return proven(
        ((t * x).T * FORM * (t * x)).doit() == t**2 * x.T * FORM * x,
        ((t * x).T * (t * x)).doit() == t**2 * x.T * x,
        simplify(quotient(t * entries, form) - quotient(entries, form)) == 0,
    )


# Affine maps, the shear and homogeneous coordinates.

FROM, TO = symbols("d k", integer=True, positive=True)
LINEAR, SHIFT = MatrixSymbol("A", TO, FROM), MatrixSymbol("b", TO, 1)
POINTS = MatrixSymbol("x", FROM, 1), MatrixSymbol("y", FROM, 1)


def affine(point: MatrixExpr) -> MatrixExpr:
    return LINEAR * point + SHIFT


def cube(number: Expr | int) -> Expr:
    """Return x^3, which maps the line onto the line, one to one, and is not affine."""
    return number**3


def affine_maps_take_lines_to_lines() -> Finding:
    x, y = POINTS
    a, b = symbols("a b", real=True)
    # (x, y) -> (x^3, y^3) is one to one on the plane, and bends the line y = x + 1.
    p, q, r = (Matrix([cube(k), cube(k + 1)]) for k in (0, 1, 2))
    return refuted(
        claim_fails=2 * cube(1) != cube(0) + cube(2)
        and expand(cube(a) - cube(b) - (a - b) * ((a + b / 2) ** 2 + 3 * b**2 / 4)) == 0,
        correction_holds=_is_zero(affine((1 - T) * x + T * y) - (1 - T) * affine(x) - T * affine(y))
        and Matrix.hstack(q - p, r - p).det() != 0,
    )


def _line_through(point: Matrix) -> bool:
    """Return whether point + t (1, 2) is a subspace, which it is if and only if it contains 0."""
    return Matrix.hstack(point, Matrix([1, 2])).rank() < 2


def lines_are_no_subspaces() -> Finding:
    outside, *through = (_line_through(Matrix(point)) for point in ([0, 1], [0, 0], [3, 6]))
    return imprecise(part_that_holds=not outside, part_that_fails=all(through))


def affine_maps_are_not_linear() -> Finding:
    x, y = POINTS
    defect = affine(x + y) - affine(x) - affine(y)
    linear = defect.subs(SHIFT, ZeroMatrix(TO, 1))
    return imprecise(part_that_holds=_is_zero(defect + SHIFT), part_that_fails=_is_zero(linear))


SLOPE, PLACE, OTHER_PLACE = Symbol("a", real=True), *(Matrix(symbols(f"{x}_1:3")) for x in "xy")
SHEAR = Matrix([[1, SLOPE], [0, 1]])


def shear_as_example() -> Finding:
    s, p, q = SHEAR, PLACE, OTHER_PLACE
    line = s * ((1 - T) * p + T * q) - (1 - T) * s * p - T * s * q
    linear = (s * (p + q) - s * p - s * q).expand().is_zero_matrix
    return imprecise(line.expand().is_zero_matrix and s != eye(2), linear)


def shear_keeps_heights() -> Finding:
    return proven((SHEAR * PLACE)[1] == PLACE[1])


def shear_translates() -> Finding:
    (x, height), (y, other) = PLACE, OTHER_PLACE
    places = (x, height), (y, height), (x, other), (x, Integer(0))
    moved, same_height, higher, lowest = (expand((SHEAR * Matrix(p))[0] - p[0]) for p in places)
    return imprecise(moved == same_height == SLOPE * height, moved != higher and lowest == 0)


def translation(shift: MatrixExpr) -> BlockMatrix:
    return BlockMatrix([[Identity(TO), shift], [ZeroMatrix(1, TO), Identity(1)]])


def translation_in_homogeneous_coordinates() -> Finding:
    point, (a, c), (x, y) = MatrixSymbol("x", TO, 1), symbols("a c"), PLACE
    moved = block_collapse(translation(SHIFT) * BlockMatrix([[point], [Identity(1)]]))
    matrix = Matrix([[1, 0, a], [0, 1, c], [0, 0, 1]])
    return proven(
        moved.blocks[0, 0] == SHIFT + point,
        moved.blocks[1, 0] == Identity(1),
        matrix * Matrix([x, y, 1]) == Matrix([x + a, y + c, 1]),
    )


# The scores of an attention head with biases, as a bilinear form.

TOKENS, WIDTH, KEYS = symbols("m d k", integer=True, positive=True)
X, ONE = MatrixSymbol("X", TOKENS, WIDTH), OneMatrix(TOKENS, 1)
W_Q, W_K = MatrixSymbol("W_Q", WIDTH, KEYS), MatrixSymbol("W_K", WIDTH, KEYS)
B_Q, B_K = MatrixSymbol("b_Q", KEYS, 1), MatrixSymbol("b_K", KEYS, 1)
OMEGA = BlockMatrix([[W_Q * W_K.T, W_Q * B_K], [B_Q.T * W_K.T, B_Q.T * B_K]])
"""The matrix of the bilinear form, in blocks, as printed."""
SCORES = (X * W_Q + ONE * B_Q.T) * (X * W_K + ONE * B_K.T).T
TOKEN, OTHER_TOKEN = MatrixSymbol("x", WIDTH, 1), MatrixSymbol("y", WIDTH, 1)


def _summands(expression: MatrixExpr) -> list[MatrixExpr]:
    """Return the noncommutative products in the sum of a matrix expression, in a fixed order."""
    expanded = expression.doit().expand().doit()
    return sorted(expanded.args if expanded.is_MatAdd else [expanded], key=str)


def scores_as_attention_module() -> Finding:
    x, queries, keys = (Matrix(2, 2, symbols(f"{name}_1:5")) for name in ("x", "q", "k"))
    b_q, b_k, one = Matrix(symbols("b_1:3")), Matrix(symbols("c_1:3")), ones(2, 1)
    replaced = {X: x, W_Q: queries, W_K: keys, B_Q: b_q, B_K: b_k, ONE: one}
    small = {TOKENS: 2, WIDTH: 2, KEYS: 2}
    entries = SCORES.subs(small).subs({a.subs(small): b for a, b in replaced.items()}).doit()
    products = (x * queries + one * b_q.T) * (x * keys + one * b_k.T).T
    example = Matrix([1, -1]) * Matrix([[1, -1]])  # Two tokens, weights 1 and no biases.
    return imprecise(
        part_that_holds=SCORES.shape == (TOKENS, TOKENS)
        and (Matrix(entries) - products).expand().is_zero_matrix,
        part_that_fails=example == Matrix([[1, -1], [-1, 1]]),
    )


def biases_are_translations() -> Finding:
    i, j = symbols("i j", integer=True)
    return proven((ONE * B_Q.T)[i, j] == B_Q[j, 0], (ONE * B_K.T)[i, j] == B_K[j, 0])


def scores_four_terms() -> Finding:
    left, right = (X * W_Q, ONE * B_Q.T), (W_K.T * X.T, B_K * ONE.T)
    terms = [(a * b).doit() for a, b in product(left, right)]
    return proven(_summands(SCORES) == sorted(terms, key=str))


def scores_homogeneous_coordinates() -> Finding:
    tokens = BlockMatrix([[X, ONE]])
    return proven(_summands(block_collapse(tokens * OMEGA * tokens.T)) == _summands(SCORES))


def score(left: int, right: int) -> int:
    return left * right


def scores_are_biaffine() -> Finding:
    mixed = score(1, 1) - score(1, 0) - score(0, 1) + score(0, 0)
    return imprecise(scores_homogeneous_coordinates().verdict is Verdict.PROVEN, mixed == 1)


def _exists(formula: Callable[[], object]) -> bool:
    """Return whether the shapes of the matrices in a formula agree."""
    try:
        formula()
    except ShapeError:
        return False
    return True


def scores_as_bilinear_form() -> Finding:
    left, right = (BlockMatrix([[x], [Identity(1)]]) for x in (TOKEN, OTHER_TOKEN))
    form = block_collapse(left.T * OMEGA * right)
    entry = (TOKEN.T * W_Q + B_Q.T) * (OTHER_TOKEN.T * W_K + B_K.T).T
    printed = _exists(lambda: ones(3, 1) * eye(3))  # x~ Omega for a column x~, d = 2.
    return imprecise(_summands(form) == _summands(entry), not printed)


# Singular values and singular vectors of the matrix of a bilinear form.

TURN = Matrix([[13, 0, 0], [0, 5, -12], [0, 12, 5]]) / 13
LEFT, RIGHT = ROTATION * TURN, TURN * ROTATION
EXAMPLE = LEFT * Matrix.diag(5, 3, 2) * RIGHT.T
"""A matrix with the singular values 5, 3 and 2, and singular vectors in LEFT and RIGHT."""

ROWS, OTHER = symbols("n k", integer=True, positive=True)
MATRIX = MatrixSymbol("A", ROWS, OTHER)


def courant_fischer_svd() -> Finding:
    x, gram = Matrix(symbols("x_1:4")), EXAMPLE.T * EXAMPLE
    attained = [(LEFT[:, k].T * EXAMPLE * RIGHT[:, k])[0] for k in range(3)]
    return imprecise(
        part_that_holds=attained[0] == 5
        and sorted((25 * eye(3) - gram).eigenvals()) == [0, 16, 21]
        and expand((EXAMPLE * x).dot(EXAMPLE * x) - (x.T * gram * x)[0]) == 0
        and RIGHT * Matrix.diag(25, 9, 4) * RIGHT.T == gram
        and general_courant_fischer(),
        part_that_fails=attained[1:] == [3, 2],
    )


def theorem_fixes_the_matrix() -> Finding:
    t, x, y = Symbol("t", positive=True), Matrix([1, 2]), Matrix([3, 1])
    scaled = (x.T * (t * x * y.T) * y)[0] == t * (x.T * x)[0] * (y.T * y)[0]
    return imprecise(scaled, min((25 * eye(3) - EXAMPLE.T * EXAMPLE).eigenvals()) == 0)


def decomposition(matrix: Matrix) -> list[tuple[Matrix, Expr, Matrix]]:
    """Return u_k, sigma_k, v_k with sigma_k > 0, from the eigenvectors of A^T A."""
    spaces = (matrix.T * matrix).eigenvects()
    pairs = [(sqrt(value), v[0] / v[0].norm()) for value, _, v in spaces if value != 0]
    return [(matrix * v / sigma, sigma, v) for sigma, v in pairs]


def gram_of_left_vectors(k: int, j: int) -> Expr:
    """Return u_k^T u_j of u_k = A v_k / sigma_k, A^T A v_k = sigma_k^2 v_k, v_k orthonormal."""
    values = symbols("sigma_:2", positive=True)
    v = [MatrixSymbol(f"v_{index}", OTHER, 1) for index in range(2)]
    gram = ((MATRIX * v[k] / values[k]).T * (MATRIX * v[j] / values[j])).doit()
    gram = gram.subs(MATRIX.T * MATRIX * v[j], values[j] ** 2 * v[j]).doit()
    return gram.subs(v[k].T * v[j], Identity(1) if k == j else ZeroMatrix(1, 1)).doit()


def svd_of_omega() -> Finding:
    factors = BlockMatrix([[W_Q], [B_Q.T]]) * BlockMatrix([[W_K], [B_K.T]]).T
    omega = Matrix([[1, 0], [0, 1], [1, 1]]) * Matrix([[1, 1], [0, 1], [1, 0]]).T
    terms = decomposition(omega)
    # The terms A v_k v_k^T over all k, (A V) V^T, add up to A, as V V^T = I; those with sigma_k = 0
    # are 0: |A v|^2 = v^T A^T A v = sigma^2 v^T v.
    orthogonal, v = MatrixSymbol("V", OTHER, OTHER), MatrixSymbol("v", OTHER, 1)
    whole = (MATRIX * orthogonal * orthogonal.T).subs(orthogonal * orthogonal.T, Identity(OTHER))
    square = ((MATRIX * v).T * (MATRIX * v)).doit()
    return proven(
        *[
            gram_of_left_vectors(k, j) == (Identity(1) if k == j else ZeroMatrix(1, 1))
            for k, j in product(range(2), repeat=2)
        ],
        whole.doit() == MATRIX,
        square.subs(MATRIX.T * MATRIX * v, ZeroMatrix(OTHER, 1)).doit() == ZeroMatrix(1, 1),
        block_collapse(factors) == block_collapse(OMEGA),
        len(terms) == omega.rank() == 2,
        sum((s * u * v.T for u, s, v in terms), zeros(3, 3)) == omega,
        *[
            simplify(terms[i][side].dot(terms[j][side])) == int(i == j)
            for side, i, j in product((0, 2), *[range(len(terms))] * 2)
        ],
    )


INNER_PRODUCT = ZeroMatrix(1, 1)
"""u_k^T u_j for two singular vectors of one side, k != j."""


def svd_terms_orthogonal() -> Finding:
    left = [MatrixSymbol(name, ROWS, 1) for name in ("u_k", "u_j")]
    right = [MatrixSymbol(name, OTHER, 1) for name in ("v_k", "v_j")]
    terms = [s * u * v.T for s, u, v in zip(symbols("sigma_k sigma_j"), left, right, strict=True)]
    products = [(a, b, (terms[a].T * terms[b]).doit()) for a, b in ((0, 1), (1, 0))]
    d = [s * LEFT[:, k] * RIGHT[:, k].T for k, s in enumerate((5, 3, 2))]
    zero = zeros(3, 3)
    return proven(
        *[
            moved.has(left[a].T * left[b])
            and moved.subs(left[a].T * left[b], INNER_PRODUCT).doit() == ZeroMatrix(OTHER, OTHER)
            for a, b, moved in products
        ],
        sum(d, zero) == EXAMPLE,
        all(d[k].T * d[j] == zero == d[k] * d[j].T for j, k in permutations(range(3), 2)),
    )


# Which Omega gives two tokens the largest score, and what training does to it.


def scores_best_rank_one_form() -> Finding:
    """Check that |D - D*|^2 = 2 - 2 x^T D y / (|x||y|) for |D| = 1, in inner products."""
    xx, yy = symbols("xx yy", positive=True)
    form, dd = symbols("form dd", real=True)
    scale = 1 / sqrt(xx * yy)
    # |D - scale x y^T|^2, of which <D, x y^T> = x^T D y and |x y^T|^2 = |x|^2 |y|^2.
    distance = dd - 2 * scale * form + scale**2 * xx * yy
    x, y, d = Matrix(symbols("x_1:3")), Matrix(symbols("y_1:4")), Matrix(2, 3, symbols("d_1:7"))
    u, v = Matrix([3, 4]), Matrix([5, 12, 84])
    best = u * v.T / (5 * 85)
    return proven(
        expand(distance.subs(dd, 1) - (2 - 2 * form * scale)) == 0,
        expand(((x * y.T).T * d).trace() - (x.T * d * y)[0]) == 0,
        expand(((x * y.T).T * (x * y.T)).trace() - x.dot(x) * y.dot(y)) == 0,
        (u.T * best * v)[0] == 5 * 85,
        (best.T * best).trace() == 1,
        best.rank() == 1,
    )


_OMEGA = MatrixSymbol("Omega", WIDTH, WIDTH)
DERIVATIVE = Trace(TOKEN.T * _OMEGA * OTHER_TOKEN).diff(_OMEGA).doit()
"""The derivative of x^T Omega y by Omega, for any width."""


def row_of_derivatives() -> list[Expr]:
    """Return dL/dA at equal scores for keys of the values 0 and 1, L half the output squared."""
    first, second = symbols("A_1 A_2", real=True)
    loss = (exp(second) / (exp(first) + exp(second))) ** 2 / 2
    return [diff(loss, a).subs({first: 0, second: 0}) for a in (first, second)]


def training_maximises_scores() -> Finding:
    row, t = row_of_derivatives(), Symbol("t")
    # Scores z + t 1 in place of z, for any number of tokens.
    shifted = {z: z + t for z in Z[:3]} | {Z[3]: Z[3] * exp(t)}
    return refuted(
        claim_fails=row == [-Rational(1, 8), Rational(1, 8)]
        and all(
            cancel(expand(s.subs(shifted, simultaneous=True) - s, power_exp=True)) == 0
            for s in values()
        ),
        correction_holds=DERIVATIVE == TOKEN * OTHER_TOKEN.T,
    )


REST, FEATURE = (Matrix([7, 0]), Matrix([0, 0])), (Matrix([0, 1]), Matrix([0, 1]))
"""v_i and v_j, f_i and f_j of two tokens v + f; the parts are orthogonal."""


def feature_part_maximises_score() -> Finding:
    v, f = symbols("V_i V_j", positive=True), symbols("F_i F_j", positive=True)
    # Squares of the scores at both matrices, in the squares of the lengths.
    excess = expand((v[0] + f[0]) * (v[1] + f[1]) - f[0] * f[1])
    x, y = (rest + feature for rest, feature in zip(REST, FEATURE, strict=True))
    printed, best = ((x.T * (a * b.T / (a.norm() * b.norm())) * y)[0] for a, b in (FEATURE, (x, y)))
    return refuted(
        claim_fails=all(a.dot(b) == 0 for a, b in zip(REST, FEATURE, strict=True))
        and (printed, best) == (1, 5 * sqrt(2))
        and excess == v[0] * v[1] + v[0] * f[1] + f[0] * v[1],
        correction_holds=best == x.norm() * y.norm()
        and scores_best_rank_one_form().verdict is Verdict.PROVEN,
    )


def optimisation_copies_features() -> Finding:
    v, f = Matrix([1, 0]), Matrix([0, 1])
    parts = [(a.T * (v + f) * (v + f).T * b)[0] for a, b in product((v, f), repeat=2)]
    signs = row_of_derivatives() == [-Rational(1, 8), Rational(1, 8)]
    return refuted(
        parts == [1, 1, 1, 1] and signs, correction_holds=DERIVATIVE == TOKEN * OTHER_TOKEN.T
    )


# Layers of self-attention: the matrix form, the layer norm, and the continuous time.


def printed_form_exists(rows: bool, transposed: bool = False) -> bool:
    """Return whether (Qx) . (Kx), or Q x^T (K x), and A V x exist, for 4 tokens in 3 dimensions."""
    x = MatrixSymbol("x", 4, 3) if rows else MatrixSymbol("x", 3, 4)
    q, k = MatrixSymbol("Q", 2, 3), MatrixSymbol("K", 2, 3)
    a, v = MatrixSymbol("A", 4, 4), MatrixSymbol("V", 3, 3)
    return _exists(lambda: (q * x.T * (k * x) if transposed else (q * x).T * (k * x), a * v * x))


def entries_agree(transposed: bool = True) -> bool:
    """Return whether x Q^T, x K^T and x V^T (or x V) are Q x_i, K x_j and V x_j, for all sizes."""
    n, d, size = symbols("n d l", integer=True, positive=True)
    i, j, a, b = symbols("i j a b", integer=True)
    x, value = MatrixSymbol("x", n, d), MatrixSymbol("V", d, d)
    query, key = (MatrixSymbol(name, size, d) for name in "QK")
    found = (x * query.T)[i, a], (x * key.T)[j, a], (x * (value.T if transposed else value))[j, a]
    pairs = (query, i), (key, j), (value, j)
    tokens = [Sum(w[a, b] * x[t, b], (b, 0, d - 1)) for w, t in pairs]
    return (
        all(map(_same_sum, found, tokens))
        and ((x * query.T) * (x * key.T).T).shape == (n, n)
        and (MatrixSymbol("A", n, n) * x * value.T).shape == (n, d)
    )


def _same_sum(first: Expr, second: Expr) -> bool:
    terms = [s.function.subs(s.limits[0][0], Symbol("k", integer=True)) for s in (first, second)]
    return expand(terms[0] - terms[1]) == 0 and first.limits[0][1:] == second.limits[0][1:]


def self_attention_matrix_form() -> Finding:
    forms = product((True, False), repeat=2)
    return imprecise(entries_agree(), not any(printed_form_exists(*form) for form in forms))


def softmax_row(exponentials: Matrix) -> Matrix:
    return exponentials / sum(exponentials)


def self_attention_components() -> Finding:
    beta, facts = Symbol("beta", positive=True), []
    query, key, value = (Matrix(2, 2, symbols(f"{name}_1:5")) for name in "qkv")
    for count in (2, 3):
        x = Matrix(count, 2, symbols(f"x_1:{2 * count + 1}"))
        scores = (beta * (x * query.T) * (x * key.T).T).applyfunc(lambda s: exp(expand(s)))
        row, tokens = softmax_row(scores.row(0)), [x.row(i).T for i in range(count)]
        by_token = [exp(expand(beta * (query * tokens[0]).dot(key * r))) for r in tokens]
        moved = sum((w * value * r for w, r in zip(by_token, tokens, strict=True)), zeros(2, 1))
        defect = (row * x * value.T).T - moved / sum(by_token)
        facts += [defect.applyfunc(expand) == zeros(2, 1), cancel(sum(row)) == 1]
    return proven(*facts)


def layer_norm(x: Matrix, centred: bool) -> Matrix:
    """Return x / rms(x), of x or of x minus its mean: RMS norm, layer norm, gain 1 and no bias."""
    away = x - ones(len(x), 1) * sum(x) / len(x) if centred else x
    return away / sqrt(away.dot(away) / len(x))


def layer_norm_as_unit_norm() -> Finding:
    x, away = Matrix([1, 2, 2]), Matrix([2, -1, -1])
    normed = layer_norm(x, centred=True)
    return imprecise(
        part_that_holds=layer_norm(x, centred=False) == sqrt(3) * x / 3
        and layer_norm(away, centred=True) == sqrt(3) * away / sqrt(6),
        part_that_fails=normed == Matrix([-2, 1, 1]) / sqrt(2) and x.cross(normed) != zeros(3, 1),
    )


def coefficients_of_a_step(length: Expr) -> tuple[Expr, Expr]:
    """Return how d/dh of (x + h y) / |x + h y| at h = 0 is made of x and of y, |x|^2 = `length`."""
    h = Symbol("h")
    scale = (length + 2 * h * XY + h**2 * YY) ** Rational(-1, 2)
    return diff(scale, h).subs(h, 0), diff(h * scale, h).subs(h, 0)


def sphere_invariant() -> Finding:
    return proven(
        coefficients_of_a_step(Rational(1)) == (-XY, 1),
        expand(XY - XY * XX - XY * (1 - XX)) == 0,
        expand(PROJECTED_SQUARE.subs(XX, 1) - (YY - XY**2)) == 0,
    )


# A prompt as a measure: what it keeps of the tokens, and the map of measures. Tokens are points
# with rational coordinates, and attention is evaluated exactly for Q = K = V = I.

Point = tuple[int, ...]
A, B, C = (1, 0), (1, 1), (0, 2)


def empirical(tokens: Sequence[Point]) -> dict[Point, Rational]:
    """Return the masses of (1/n) sum of point masses."""
    return {x: Rational(count, len(tokens)) for x, count in Counter(tokens).items()}


def attended(measure: Mapping[Point, Expr], x: Point) -> Matrix:
    """Return the average of y with weights exp(<x, y>) by a measure."""
    kernel = {y: mass * exp(Matrix(x).dot(Matrix(y))) for y, mass in measure.items()}
    moved = sum((k * Matrix(y) for y, k in kernel.items()), zeros(len(x), 1))
    return moved / sum(kernel.values())


def token_velocity(tokens: Sequence[Point], i: int, causal: bool = False) -> Matrix:
    """Return the softmax average that token i of a list sees, token by token."""
    seen = tokens[: i + 1] if causal else tokens
    kernel = [exp(Matrix(tokens[i]).dot(Matrix(y))) for y in seen]
    moved = sum((k * Matrix(y) for k, y in zip(kernel, seen, strict=True)), zeros(2, 1))
    return moved / sum(kernel)


def same(a: Matrix, b: Matrix) -> bool:
    return all(entry.simplify() == 0 for entry in a - b)


def apart(a: Matrix, b: Matrix) -> bool:
    """Return whether two exact vectors differ, by their values."""
    return any(abs(entry.evalf()) > 1e-6 for entry in a - b)


def tokens_have_position_encodings() -> Finding:
    order, other, places = (A, B, C), (B, A, C), ((0, 0), (3, 5))
    first, second = (
        [(x[0] + p[0], x[1] + p[1]) for x, p in zip(words, places, strict=True)]
        for words in ((A, C), (C, A))
    )
    moved = [token_velocity(p, p.index(A)) for p in permutations(order)]
    causal = [token_velocity(p, p.index(A), causal=True) for p in (order, other)]
    return imprecise(
        part_that_holds=all(same(velocity, token_velocity(order, 0)) for velocity in moved)
        and empirical(first) != empirical(second),
        part_that_fails=apart(*causal) and len(Matrix([A, B])) == 4,
    )


def tokens_as_a_measure() -> Finding:
    first, *others = [empirical(p) for p in [*permutations((A, A, B)), (A, A, B) * 2]]
    holds = first == {A: Rational(2, 3), B: Rational(1, 3)} != empirical((A, B))
    return imprecise(holds, all(measure == first for measure in others))


def point_masses_as_indicators() -> Finding:
    mass = empirical((A, A, B))
    holds = mass.get(C, Integer(0)) == 0 and min(mass.values()) > 0
    return imprecise(holds, part_that_fails=mass[A] != mass[B] and sum(mass.values()) == 1)


def labels_of_input_and_output() -> Finding:
    following = {A: B, B: A}  # A language in which a follows b, and b follows a.
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
    speeds = [token_velocity(p, p.index(A)) for p in ((A, A, B), (B, A, A), (A, A, B) * 2)]
    causal = [token_velocity(p, p.index(A), causal=True) for p in ((A, B), (B, A))]
    return imprecise(
        part_that_holds=all(same(speed, speeds[0]) for speed in speeds),
        part_that_fails=limit(exp(y) / (pi * (1 + y**2)), y, oo) == oo and apart(*causal),
    )


def mean_field_system() -> Finding:
    prompts = ((A,), (A, B), (A, A, B), (C, A, C, B), (A, B, C, B, B))
    places = [(tokens, i) for tokens in prompts for i in range(len(tokens))]
    return tested(*[same(token_velocity(p, i), attended(empirical(p), p[i])) for p, i in places])


def mean_field_of_the_others() -> Finding:
    velocity, masses = token_velocity((A, B), 0), empirical((A, B))
    others = {y: mass for y, mass in masses.items() if y != A}
    alone = same(token_velocity((A,), 0), Matrix(A))
    return imprecise(
        same(velocity, attended(masses, A)), alone and apart(velocity, attended(others, A))
    )


# The MLP and the heads of a layer, against layers in use: x + h attention(x), then x + h MLP(x),
# with one MLP after the sum of the heads (Vaswani et al. 2017).

SUBLAYER, PERCEPTRON = Function("A"), Function("M")


def speed_of_two_sublayers() -> Expr:
    """Return the derivative at h = 0 of x + h A(x), followed by x + h M(x)."""
    x, h = symbols("x h", real=True)
    between = x + h * SUBLAYER(x)
    return diff(between + h * PERCEPTRON(between), h).doit().subs(h, 0).doit()


def mlp_in_between() -> Finding:
    x, speed = Symbol("x", real=True), speed_of_two_sublayers()
    values = [
        e.replace(SUBLAYER, lambda s: 2 * s).replace(PERCEPTRON, lambda s: Max(0, s)).subs(x, 1)
        for e in (speed, PERCEPTRON(SUBLAYER(x)))
    ]
    return imprecise(expand(speed - SUBLAYER(x) - PERCEPTRON(x)) == 0, values == [3, 2])


def relu(x: Matrix) -> Matrix:
    return x.applyfunc(lambda entry: Max(0, entry))


def mlp_of_each_head() -> Finding:
    x, first, second = Matrix([3, 4]) / 5, Matrix(symbols("a_1:3")), Matrix(symbols("b_1:3"))
    defect = projected(x, first) + projected(x, second) - 2 * projected(x, (first + second) / 2)
    up, down = Matrix([1, 0]), Matrix([-1, 0])
    return imprecise(
        part_that_holds=defect.expand() == zeros(2, 1),
        part_that_fails=relu((up + down) / 2) == zeros(2, 1) and relu(up) + relu(down) == up,
    )


# The lengths of tokens: weighted sums, layer normalisation, velocities on the sphere.


def weights(count: int) -> list[Expr]:
    """Return weights of sum 1, of which all but the last are symbols."""
    free = symbols(f"p_1:{count}")
    return [*free, 1 - sum(free)]


def defect_of_the_mean(count: int) -> Expr:
    """Return sum p |x|^2 - |sum p x|^2 - (1/2) sum p_i p_j |x_i - x_j|^2 for weights of sum 1."""
    p, pairs, c = weights(count), [*product(range(count), repeat=2)], symbolic_covariance(count)
    mean = sum(p[i] * p[j] * c[i, j] for i, j in pairs)
    spread = sum(p[i] * p[j] * (c[i, i] + c[j, j] - 2 * c[i, j]) / 2 for i, j in pairs)
    return expand(sum(p[i] * c[i, i] for i in range(count)) - mean - spread)


def average_of_orthogonal(count: int) -> Expr:
    return (ones(count, 1) / count).norm()


def gradient_of_unit_vector(x: Matrix) -> Matrix:
    """Return the derivative (I - u u^T) / |x| of x / |x|, u = x / |x|."""
    unit = x / x.norm()
    return (eye(len(x)) - unit * unit.T) / x.norm()


def sums_make_norms_explode() -> Finding:
    x, s, sizes = Matrix([3, 4]), symbols("s_1:3", positive=True), (2, 3, 4, 5)
    unit = Matrix(s) / sqrt(s[0] ** 2 + s[1] ** 2)
    by_hand = unit.jacobian(s).subs(dict(zip(s, x, strict=True)))
    return refuted(
        claim_fails=all(defect_of_the_mean(count) == 0 for count in sizes),
        correction_holds=simplify(by_hand - gradient_of_unit_vector(x)) == zeros(2, 2)
        and all(average_of_orthogonal(count) == 1 / sqrt(count) for count in sizes)
        and gradient_of_unit_vector(10 * x) == gradient_of_unit_vector(x) / 10,
    )


def lengths(depth: int, normalise_the_sum: bool) -> list[Expr]:
    """Return |x| of one token by layer: x + V y with V = Id, y = x / |x|, or that normalised."""
    x = Matrix([3, 4])
    result = [x.norm()]
    for _ in range(depth):
        x += x / x.norm()
        x /= x.norm() if normalise_the_sum else 1
        result.append(x.norm())
    return result


def layer_norm_prevents_explosion() -> Finding:
    normed, plain = (lengths(6, normalise_the_sum=of_the_sum) for of_the_sum in (True, False))
    # Without normalisation the length after k layers x + V x is 5 2^k.
    holds = normed[1:] == [1] * 6 and 10 * plain[-1] < 5 * 2**6
    return imprecise(holds, part_that_fails=plain == [5 + k for k in range(7)])


def velocity_printed_as_position() -> Finding:
    h, x, velocity = Symbol("h"), Matrix([1, 0]), token_velocity(((1, 0), (0, 1)), 0)
    fails = velocity != x and all(entry.is_positive for entry in velocity)
    return refuted(fails, correction_holds=diff(x + h * velocity, h) == velocity)


def velocity_printed_as_second_token() -> Finding:
    x, y = Matrix([3, 4]) / 5, Matrix([2, -1])
    fails = x.dot(x) == 1 and x.dot(projected(x, y)) == 0 and projected(x, y) != x
    # 2 <x, P_x y> = 0, against <x_2, x_2> = 1.
    return refuted(fails, correction_holds=expand(2 * (XY - XY * XX).subs(XX, 1)) == 0)


# Residual networks: layers as Euler steps of a flow, and maps of their first state.

FIRST_PRINTED = 1


def states(indices: Iterable[int]) -> list[Expr]:
    """Return the states after the layers x_(k+1) = x_k + g(W_k x_k + b_k), k in `indices`."""
    x = list(symbols("x_:5"))
    for k in indices:
        x[k + 1] = x[k] + Function("g")(Symbol(f"W_{k}") * x[k] + Symbol(f"b_{k}"))
    return x


def resnet_indices() -> Finding:
    starts = symbols("x_:4")
    printed, mended = (states(range(first, 4))[4].free_symbols for first in (FIRST_PRINTED, 0))
    return imprecise(mended & {*starts} == {starts[0]}, starts[0] not in printed)


START, WEIGHT = 0.7, -3.0


def euler(field: Callable[[float, float], float], start: float, step: float, count: int) -> float:
    """Return the state after the layers x + step * field(k step, x), k from 0 to `count` - 1."""
    x = start
    for k in range(count):
        x += step * field(k * step, x)
    return x


def flow(integral: float) -> float:
    """Return the state under x' = w(t) tanh(a x), where sinh(a x) grows by exp(a int w)."""
    return math.asinh(math.exp(WEIGHT * integral) * math.sinh(WEIGHT * START)) / WEIGHT


def _layers_and_flow(growth: float) -> tuple[bool, bool]:
    """Return whether layers x + h (1 + growth t) tanh(a x) converge, and long ones fail."""

    def field(time: float, x: float) -> float:
        return (1 + growth * time) * math.tanh(WEIGHT * x)

    errors = [euler(field, START, 1 / n, n) - flow(1 + growth / 2) for n in (512, 1024)]
    steady = euler(lambda _time, x: math.tanh(WEIGHT * x), START, 1.0, 20)
    return abs(errors[0] / errors[1] - 2) < 0.05, abs(steady) > 0.1 and abs(flow(20.0)) < 1e-20


def resnet_continuous_time() -> Finding:
    rate, count = symbols("a L", positive=True)
    linear = limit(count * (exp(rate) - (1 + rate / count) ** count), count, oo)
    converge, fail = _layers_and_flow(0.0)
    return imprecise((linear - rate**2 * exp(rate) / 2).simplify() == 0 and converge, fail)


def residual_layers_in_continuous_time() -> Finding:
    return imprecise(*_layers_and_flow(1.0))


def layer(x: Expr, step: Expr) -> Expr:
    return x + step * Max(0, -2 * x)


def resnet_flow_map() -> Finding:
    points, small, one = [Rational(k, 4) for k in range(-8, 9)], Rational(1, 4), Integer(1)
    return imprecise(
        part_that_holds=all(a < b for a, b in pairwise(layer(x, small) for x in points)),
        part_that_fails=all(layer(x, one) == Abs(x) for x in points)
        and layer(-one, one) == layer(one, one),
    )
