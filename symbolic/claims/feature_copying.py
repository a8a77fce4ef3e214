"""Claims on which Omega gives two tokens the largest score, and on what training does to it."""

from __future__ import annotations

from sympy import (
    Expr,
    Matrix,
    MatrixExpr,
    MatrixSymbol,
    Trace,
    cancel,
    diff,
    exp,
    expand,
    sqrt,
    symbols,
)

from symbolic.claims.ledger import Finding, Verdict, at, not_to_be_judged, note, proven, refuted
from symbolic.claims.scores import WIDTH
from symbolic.claims.softmax import Z, values


def _rank_one_form() -> Finding:
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
        "|D - D*|^2 = 2 - 2 x^T D y/(|x||y|) for |D| = 1 and D* = x y^T/(|x||y|): so x^T D y is at "
        "most |x||y|, and D* alone attains it, even among matrices of any rank (x and y not 0)",
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


def _training() -> Finding:
    row = row_of_derivatives()
    return refuted(
        "softmax does not change if all scores of a query grow by the same amount, so their "
        "derivatives sum to 0 in every loss: none can raise all of them. Two keys with values 0 "
        f"and 1, loss half the square of the output: dL/dA = {row[0]}, {row[1]}, so that descent "
        "lowers the second score",
        claim_fails=sum(row) == 0 and max(row) > 0 and softmax_keeps_common_shifts(),
        correction_holds=_score_has_derivative(),
    )


REST, FEATURE = (Matrix([7, 0]), Matrix([0, 0])), (Matrix([0, 1]), Matrix([0, 1]))
"""v_i and v_j, f_i and f_j of two tokens v + f; the parts are orthogonal."""


def _unit(left: Matrix, right: Matrix) -> Matrix:
    return left * right.T / (left.norm() * right.norm())


def _feature_part() -> Finding:
    v, f = symbols("V_i V_j", positive=True), symbols("F_i F_j", positive=True)
    # Squares of the scores at both matrices, in the squares of the lengths.
    excess = expand((v[0] + f[0]) * (v[1] + f[1]) - f[0] * f[1])
    x, y = REST[0] + FEATURE[0], REST[1] + FEATURE[1]
    printed = (x.T * _unit(*FEATURE) * y)[0]
    best = (x.T * _unit(x, y) * y)[0]
    return refuted(
        f"v_i = (7, 0), f_i = (0, 1), x~_j = f_j = (0, 1): the printed matrix scores {printed}, "
        f"x~_i x~_j^T/(|x~_i||x~_j|) scores {best}, and the lemma says that it is the best. The "
        "squares of the two scores differ by |v_i|^2|v_j|^2 + |v_i|^2|f_j|^2 + |f_i|^2|v_j|^2",
        claim_fails=all(a.dot(b) == 0 for a, b in zip(REST, FEATURE, strict=True))
        and printed < best
        and excess == v[0] * v[1] + v[0] * f[1] + f[0] * v[1],
        correction_holds=best == x.norm() * y.norm() and _rank_one_form().verdict is Verdict.PROVEN,
    )


def _copying() -> Finding:
    v, f = Matrix([1, 0]), Matrix([0, 1])
    step = (v + f) * (v + f).T
    parts = [(a.T * step * b)[0] for a in (v, f) for b in (v, f)]
    row = row_of_derivatives()
    return refuted(
        "dA_ij/dOmega = x~_i x~_j^T, in every dimension. For v_i = v_j = (1, 0) and f_i = f_j = "
        "(0, 1) it is v_i v_j^T + v_i f_j^T + f_i v_j^T + f_i f_j^T with equal weights "
        f"{parts}; the loss of `training-maximises-scores` has dL/dA = {row[0]} and {row[1]}, so "
        "that one pair is added and one taken away",
        claim_fails=parts == [1, 1, 1, 1] and min(row) < 0 < max(row),
        correction_holds=_score_has_derivative(),
    )


CLAIMS = [
    note(
        "linear-representation-hypothesis",
        "Features that matter to a head are encoded as vectors in subspaces of the residual.",
        Verdict.NOT_JUDGED,
        not_to_be_judged(
            "a hypothesis on trained models, which no computation with random weights can decide "
            "(Park, Choe and Veitch, 2024, for what it can mean)"
        ),
        at("003:64"),
    ),
    note(
        "locally-orthogonal-features",
        "Models represent correlated features in orthogonal dimensions.",
        Verdict.NOT_JUDGED,
        not_to_be_judged(
            "an observation on trained toy models (Elhage et al., 2022), which no computation with "
            "random weights can decide"
        ),
        at("003:65"),
    ),
    note(
        "scores-best-rank-one-form",
        "Among rank-one D of Frobenius norm 1, x^T D y is largest at D = x y^T / (|x||y|).",
        Verdict.PROVEN,
        _rank_one_form,
        at(
            "003:76-78",
            r"\mathbf{x}^TD\mathbf{y}",
            r"D = \frac{\mathbf{x}}{\|\mathbf{x}\|} \cdot\frac{\mathbf{y^T}}{\|\mathbf{y}\|}",
        ),
    ),
    note(
        "training-maximises-scores",
        "The optimisation of a transformer tries to maximise this, x^T D y.",
        Verdict.FALSE,
        _training,
        at("003:80"),
        corrected="Training lowers a loss; its derivative by Omega is the sum of (dL/dA_ij) x~_i "
        "x~_j^T, and the dL/dA_ij of one query i sum to 0: as some of its scores rise, others "
        "fall.",
        why="Softmax ignores a common shift of a query's scores, so no loss can ask for all of "
        "them to grow.",
    ),
    note(
        "feature-part-maximises-score",
        "With x~ = v + f, v orthogonal to f, the score is largest at Omega = f_i f_j^T / "
        "(|f_i||f_j|).",
        Verdict.FALSE,
        _feature_part,
        at(
            "003:87",
            r"\Omega = \frac{\mathbf{f}_i}{\|\mathbf{f}_i\|} \cdot"
            r"\frac{\mathbf{f_j^T}}{\|\mathbf{f_j}\|}",
        ),
        corrected="It is largest at Omega = x~_i x~_j^T/(|x~_i||x~_j|), by the lemma; at the "
        "printed matrix only if v_i = v_j = 0.",
        why="The lemma's vectors are the whole tokens v + f, not their parts f.",
    ),
    note(
        "optimisation-copies-features",
        "The optimisation process copies the features that we are looking for into Omega.",
        Verdict.FALSE,
        _copying,
        at("003:89", r"\Omega"),
        corrected="dA_ij/dOmega = x~_i x~_j^T: descent adds to Omega the products of whole "
        "tokens, with weights -dL/dA_ij of either sign; features, the rest and the products of "
        "both.",
        why="The gradient does not single out f: it holds v_i v_j^T, v_i f_j^T and f_i v_j^T as "
        "well.",
    ),
]
