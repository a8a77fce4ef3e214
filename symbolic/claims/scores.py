"""Claims on the scores of an attention head with biases, as a bilinear form."""

from __future__ import annotations

from sympy import (
    BlockMatrix,
    Identity,
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
