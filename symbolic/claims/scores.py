"""Claims on the scores of an attention head with biases, as a bilinear form."""

from __future__ import annotations

from sympy import (
    BlockMatrix,
    Identity,
    Matrix,
    MatrixExpr,
    MatrixSymbol,
    OneMatrix,
    ShapeError,
    Symbol,
    block_collapse,
    eye,
    ones,
    symbols,
)

from symbolic.claims.ledger import Finding, Verdict, at, imprecise, note, proven

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


def _attention_module() -> Finding:
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
        "entry (i, j) of the product is <q_i, k_j> of the queries and keys with biases: the scores "
        "of m tokens, an m x m matrix. No attention module yet: for tokens 1 and -1, weights 1, "
        f"its rows are {list(example.row(0))} and {list(example.row(1))}, no weights that add up "
        "to 1, and there are no values",
        part_that_holds=scores().shape == (TOKENS, TOKENS)
        and all((entries[i, j] - left.row(i).dot(right.row(j))).expand() == 0 for i, j in pairs),
        part_that_fails=min(example) < 0 and sum(example.row(0)) != 1,
    )


def _biases() -> Finding:
    i, j = symbols("i j", integer=True)
    return proven(
        "entry (i, j) of 1 b^T is b_j: adding it moves every row of X W by the same vector b",
        (ONE * B_Q.T)[i, j] == B_Q[j, 0],
        (ONE * B_K.T)[i, j] == B_K[j, 0],
    )


def _four_terms() -> Finding:
    terms = [
        X * W_Q * W_K.T * X.T,
        X * W_Q * B_K * ONE.T,
        ONE * B_Q.T * W_K.T * X.T,
        ONE * B_Q.T * B_K * ONE.T,
    ]
    return proven(
        "noncommutative expansion, matrices of symbolic sizes m x d and d x k (W_k is W_K)",
        _summands(scores()) == sorted((term.doit() for term in terms), key=str),
    )


def _homogeneous_coordinates() -> Finding:
    tokens = BlockMatrix([[X, ONE]])
    form = block_collapse(tokens * OMEGA * tokens.T)
    return proven(
        "block product of symbolic sizes, compared term by term",
        _summands(form) == _summands(scores()),
    )


def score(left: int, right: int) -> int:
    """Return the score of two tokens of one entry, with weights 1 and no bias."""
    return left * right


def _biaffine() -> Finding:
    mixed = score(1, 1) - score(1, 0) - score(0, 1) + score(0, 0)
    return imprecise(
        "the blocks are right; but for d = k = 1 and no bias the score is x y, whose mixed second "
        f"difference is {mixed} and not 0: no affine map of the tokens",
        part_that_holds=_homogeneous_coordinates().verdict is Verdict.PROVEN,
        part_that_fails=mixed != 0,
    )


def _shapes_agree() -> bool:
    """Whether x~ Omega is defined for a column x~, as printed (d = 2)."""
    try:
        _ = ones(3, 1) * eye(3)
    except ShapeError:
        return False
    return True


def _as_bilinear_form() -> Finding:
    left, right = MatrixSymbol("x_i", WIDTH, 1), MatrixSymbol("x_j", WIDTH, 1)
    columns = [BlockMatrix([[x], [Identity(1)]]) for x in (left, right)]
    form = block_collapse(columns[0].T * OMEGA * columns[1])
    entry = (left.T * W_Q + B_Q.T) * (right.T * W_K + B_K.T).T
    return imprecise(
        "x~_i^T Omega x~_j is <q_i, k_j>, blocks of symbolic sizes; x~_i is defined as a column, "
        "for which x~_i Omega has no meaning",
        part_that_holds=_summands(form) == _summands(entry),
        part_that_fails=not _shapes_agree(),
    )


CLAIMS = [
    note(
        "scores-as-attention-module",
        "The expression for an attention module is (X W_Q + 1 b_Q^T)(X W_K + 1 b_K^T)^T.",
        Verdict.IMPRECISE,
        _attention_module,
        at(
            "003:42-44",
            r"(XW_Q + \bm{1} \mathbf{b}_Q^T) (X W_K + \bm{1} \mathbf{b}_K^T)^T",
        ),
        corrected="That is the matrix of the scores. The module is Softmax(scores / sqrt k) (X W_V "
        "+ 1 b_V^T), softmax by rows, k the size of a key.",
        why="Harmless: softmax, its scale and the values are left out; what follows is about "
        "scores only.",
    ),
    note(
        "biases-are-translations",
        "The terms 1 b_Q^T and 1 b_K^T are translations.",
        Verdict.PROVEN,
        _biases,
        at("003:46", r"\bm{1} \mathbf{b}_Q^T", r"\bm{1} \mathbf{b}_K^T"),
    ),
    note(
        "scores-four-terms",
        "(X W_Q + 1 b_Q^T)(X W_K + 1 b_K^T)^T is the sum of the four stated terms.",
        Verdict.PROVEN,
        _four_terms,
        at(
            "003:48-50",
            r"X W_Q W_k^T X^T + X W_Q \mathbf{b}_K \bm{1}^T + \bm{1}\mathbf{b}_Q^T W_K^T X^T + "
            r"\bm{1} \mathbf{b}_Q^T \mathbf{b}_K \bm{1}^T",
        ),
    ),
    note(
        "scores-homogeneous-coordinates",
        "With x~ = (x, 1) the scores have the matrix Omega of the 2 x 2 blocks.",
        Verdict.PROVEN,
        _homogeneous_coordinates,
        at(
            "003:52-54",
            r"\begin{bmatrix} W_Q W_k^T & W_Q \mathbf{b}_K \\ \mathbf{b}_Q^T W_K^T & "
            r"\mathbf{b}_Q^T \mathbf{b}_K\end{bmatrix}",
        ),
    ),
    note(
        "scores-are-biaffine",
        "In homogeneous coordinates this affine transformation, the scores, is a linear one.",
        Verdict.IMPRECISE,
        _biaffine,
        at("003:52-54"),
        corrected="The scores are affine in x_i and in x_j, each with the other fixed "
        "(biaffine); in homogeneous coordinates they are a bilinear form with the matrix Omega.",
        why="Harmless: scores are products of two tokens, so affine in each but not in both.",
    ),
    note(
        "scores-as-bilinear-form",
        "A_ij = x~_i Omega x~_j for columns x~_i and x~_j.",
        Verdict.IMPRECISE,
        _as_bilinear_form,
        at("003:56-58", r"A_{ij} = \tilde{\mathbf{x}}_i\Omega\tilde{\mathbf{x}}_j"),
        at("003:67", r"A_{ij} = \tilde{\mathbf{x}}_i\Omega\tilde{\mathbf{x}}_j"),
        corrected="A_ij = x~_i^T Omega x~_j.",
        why="Harmless: x~_i is a column, so that the transpose is missing.",
    ),
]
