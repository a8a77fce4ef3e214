"""Claims on the scores as a bilinear form, and on singular values."""

from __future__ import annotations

from random import Random

from sympy import (
    BlockMatrix,
    Expr,
    Integer,
    Matrix,
    MatrixExpr,
    MatrixSymbol,
    OneMatrix,
    Rational,
    Symbol,
    block_collapse,
    expand,
    eye,
    sqrt,
    symbols,
)

from symbolic.claims.ledger import Claim, Finding, Verdict, imprecise, proven, tested

TOKENS, WIDTH, KEYS = (Symbol(name, integer=True, positive=True) for name in ("m", "d", "k"))
X = MatrixSymbol("X", TOKENS, WIDTH)
W_Q, W_K = MatrixSymbol("W_Q", WIDTH, KEYS), MatrixSymbol("W_K", WIDTH, KEYS)
B_Q, B_K = MatrixSymbol("b_Q", KEYS, 1), MatrixSymbol("b_K", KEYS, 1)
ONE = OneMatrix(TOKENS, 1)

ROTATION = Matrix(
    [[Rational(3, 5), -Rational(4, 5), 0], [Rational(4, 5), Rational(3, 5), 0], [0, 0, 1]]
)
"""Rational orthogonal matrices give exact singular value decompositions."""
TURN = Matrix(
    [[1, 0, 0], [0, Rational(5, 13), -Rational(12, 13)], [0, Rational(12, 13), Rational(5, 13)]]
)


def _summands(expression: MatrixExpr) -> list[MatrixExpr]:
    """Return the noncommutative products in the sum of a matrix expression, in a fixed order."""
    expanded = expression.doit().expand().doit()
    return sorted(expanded.args if expanded.is_MatAdd else [expanded], key=str)


def _scores() -> MatrixExpr:
    return (X * W_Q + ONE * B_Q.T) * (X * W_K + ONE * B_K.T).T


def _four_terms() -> Finding:
    terms = [
        X * W_Q * W_K.T * X.T,
        X * W_Q * B_K * ONE.T,
        ONE * B_Q.T * W_K.T * X.T,
        ONE * B_Q.T * B_K * ONE.T,
    ]
    return proven(
        "noncommutative expansion, matrices of symbolic sizes m x d and d x k",
        _summands(_scores()) == sorted((term.doit() for term in terms), key=str),
    )


def _homogeneous_coordinates() -> Finding:
    omega = BlockMatrix([[W_Q * W_K.T, W_Q * B_K], [B_Q.T * W_K.T, B_Q.T * B_K]])
    tokens = BlockMatrix([[X, ONE]])
    form = block_collapse(tokens * omega * tokens.T)
    return proven(
        "block product of symbolic sizes, compared term by term",
        _summands(form) == _summands(_scores()),
    )


def _rank_one_form() -> Finding:
    """Check the Cauchy-Schwarz inequality in inner products, so in every dimension."""
    xx, yy = symbols("xx yy", positive=True)
    xu, uu = symbols("xu uu", real=True)
    length = xx - 2 * xu**2 + xu**2 * uu
    x, y = Matrix([3, 4]), Matrix([5, 12, 84])
    best = x * y.T / (x.norm() * y.norm())
    return proven(
        "D = u v^T with |u| = |v| = 1 gives x^T D y = <x,u> <v,y>, and |x|^2 - <x,u>^2 is the "
        "square of the length of x - <x,u> u, so at most |x||y|; D = x y^T / (|x||y|) attains it "
        "(x and y not 0)",
        expand(length.subs(uu, 1) - (xx - xu**2)) == 0,
        xx * yy / (sqrt(xx) * sqrt(yy)) == sqrt(xx) * sqrt(yy),
        (x.T * best * y)[0] == x.norm() * y.norm(),
        (best.T * best).trace() == 1,
    )


def _svd_terms() -> Finding:
    values = (Integer(5), Integer(3), Integer(2))
    left, right = ROTATION * TURN, TURN * ROTATION
    terms = [values[k] * left[:, k] * right[:, k].T for k in range(3)]
    zero = Matrix.zeros(3, 3)
    different = [(j, k) for j in range(3) for k in range(3) if j != k]
    orthogonal = all(
        terms[k].T * terms[j] == zero and terms[k] * terms[j].T == zero for j, k in different
    )
    return imprecise(
        "D_k = sigma_k u_k v_k^T: D_k^T D_j = sigma_k sigma_j v_k (u_k.u_j) v_j^T, where u_k.u_j = "
        "delta_kj (and the same on the right); exact rational decomposition of a 3 x 3 matrix",
        part_that_holds=left.T * left == eye(3) and right.T * right == eye(3) and orthogonal,
        part_that_fails=all(
            terms[k].T * terms[k] == values[k] ** 2 * right[:, k] * right[:, k].T != zero
            and terms[k] * terms[k].T == values[k] ** 2 * left[:, k] * left[:, k].T
            for k in range(3)
        ),
    )


def _courant_fischer() -> Finding:
    """Check lambda_k = max over k-dimensional S of min over unit x in S of x^T A x, A symmetric.

    In an eigenbasis, this needs two facts: the sign of the form minus lambda_k |x|^2 on the span of
    the first k and of the last n - k + 1 eigenvectors, as a polynomial in the differences h of
    consecutive eigenvalues; and the dimension of the intersection of a random S with the latter
    span, from the ranks of both bases.
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
    return tested(
        "in an eigenbasis: on span(e_1..e_k) the form exceeds lambda_k |x|^2 by a sum of squares; "
        "every S of dimension k meets span(e_k..e_n), of dimension n - k + 1, in some x, where "
        "lambda_k |x|^2 exceeds it by such a sum; n = 2, 3, 4, all k",
        *facts,
    )


def _has_nonnegative_coefficients(polynomial: Expr) -> bool:
    return all(c >= 0 for c in expand(polynomial).as_coefficients_dict().values())


def _svd_courant_fischer() -> Finding:
    left, right = ROTATION * TURN, TURN * ROTATION
    d = left * Matrix.diag(5, 3, 2) * right.T
    x = Matrix(symbols("x_1:4"))
    return tested(
        "|D x|^2 = x^T (D^T D) x, and D^T D has the eigenvalues sigma_k^2 (exact 3 x 3 rational "
        "decomposition): Courant-Fischer for D^T D",
        expand((d * x).dot(d * x) - (x.T * (d.T * d) * x)[0]) == 0,
        sorted((d.T * d).eigenvals()) == [4, 9, 25],
        d.T * d == right * Matrix.diag(25, 9, 4) * right.T,
        _courant_fischer().verdict is Verdict.TESTED,
    )


CLAIMS = [
    Claim(
        "scores-four-terms",
        "(X W_Q + 1 b_Q^T)(X W_K + 1 b_K^T)^T is the sum of the four stated terms.",
        r"$(XW_Q+1b_Q^\top)(XW_K+1b_K^\top)^\top = XW_QW_K^\top X^\top + XW_Qb_K1^\top + "
        r"1b_Q^\top W_K^\top X^\top + 1b_Q^\top b_K1^\top$",
        Verdict.PROVEN,
        _four_terms,
    ),
    Claim(
        "scores-homogeneous-coordinates",
        "The affine scores are x~ Omega x~^T with x~ = (x, 1) and Omega the 2 x 2 blocks.",
        r"$(XW_Q+1b_Q^\top)(XW_K+1b_K^\top)^\top = \tilde X\Omega\tilde X^\top$",
        Verdict.PROVEN,
        _homogeneous_coordinates,
    ),
    Claim(
        "scores-best-rank-one-form",
        "Among rank-one D of Frobenius norm 1, x^T D y is largest at D = x y^T / (|x||y|).",
        r"$\arg\max_{\mathrm{rank}\,D=1,\,|D|_F=1} x^\top Dy = xy^\top/(|x||y|)$",
        Verdict.PROVEN,
        _rank_one_form,
    ),
    Claim(
        "svd-terms-orthogonal",
        "The terms of a singular value decomposition satisfy D_k^T D_j = 0 and D_k D_j^T = 0.",
        r"$D_k^\top D_j = 0$, $D_kD_j^\top = 0$",
        Verdict.IMPRECISE,
        _svd_terms,
        "This holds for k != j. For k = j they are sigma_k^2 v_k v_k^T and sigma_k^2 u_k u_k^T.",
        r"$D_k^\top D_j = \delta_{kj}\sigma_k^2v_kv_k^\top$",
    ),
    Claim(
        "courant-fischer",
        "lambda_k(A) = max over S of dimension k of min over unit x in S of x^T A x, A symmetric.",
        r"$\lambda_k(A) = \max_{\dim S=k}\min_{x\in S,|x|=1}x^\top Ax$",
        Verdict.TESTED,
        _courant_fischer,
    ),
    Claim(
        "courant-fischer-svd",
        "sigma_k(D) = max over S of dimension k of min over unit x in S of |D x|.",
        r"$\sigma_k(D) = \max_{\dim S=k}\min_{x\in S,|x|=1}|Dx|$",
        Verdict.TESTED,
        _svd_courant_fischer,
    ),
]
