"""Claims on attention as an average: the weights, the scores, and the average by a measure."""

from __future__ import annotations

from collections.abc import Sequence

from sympy import (
    DiracDelta,
    Expr,
    Function,
    Matrix,
    Symbol,
    cancel,
    exp,
    eye,
    integrate,
    oo,
    symbols,
)

from symbolic.claims.ledger import (
    Finding,
    Verdict,
    at,
    imprecise,
    not_to_be_judged,
    note,
    proven,
    refuted,
)

PAIR = (3, 2)
"""Sizes of the matrices that are written out, as keys x width."""


def integrals(places: Sequence[Symbol], numerator: Expr, y: Symbol) -> Expr:
    """Return int numerator(y) dmu / int h(y) dmu for mu = (1/n) sum of point masses, d = 1."""
    kernel = Function("h", positive=True)
    masses = sum(DiracDelta(y - place) for place in places) / len(places)
    above, below = (
        sum(integrate(term, (y, -oo, oo)) for term in (f * masses).expand().args)
        for f in (numerator, kernel(y))
    )
    return cancel(above / below)


def _ratio() -> Finding:
    """Integrate a general kernel h(y) against three point masses, with and without y."""
    y = Symbol("y", real=True)
    places = symbols("a_1:4", real=True)
    h = Function("h", positive=True)
    mean = sum(h(a) * a for a in places) / sum(h(a) for a in places)
    return refuted(
        "with the same integral above and below the fraction is the number 1, for every measure, "
        "and V times the number 1 is a matrix, not a vector; with y in the numerator it is the "
        "mean of y with weights "
        "exp(<Qx, Ky>) (any positive kernel, three point masses, one coordinate)",
        claim_fails=integrals(places, h(y), y) == 1,
        correction_holds=cancel(integrals(places, y * h(y), y) - mean) == 0,
    )


def _empirical_measure() -> Finding:
    """Check one atom, and that 1/n cancels with all other atoms in one constant."""
    y, place = symbols("y a", real=True)
    h = Function("h", positive=True)
    count, rest, moved = symbols("n r s", positive=True)
    sums = (h(place) * place + moved) / (h(place) + rest)
    scaled = ((h(place) * place + moved) / count) / ((h(place) + rest) / count)
    return proven(
        "a point mass at x_j turns the integral of f into f(x_j), and 1/n cancels; the terms of "
        "the other tokens enter as constants, so for every n, and each coordinate of y by itself",
        integrate(y * h(y) * DiracDelta(y - place), (y, -oo, oo)) == h(place) * place,
        cancel(scaled - sums) == 0,
        *[
            cancel(
                integrals(places, y * h(y), y)
                - sum(h(a) / sum(h(b) for b in places) * a for a in places)
            )
            == 0
            for places in (symbols("a_1:3", real=True), symbols("a_1:5", real=True))
        ],
    )


LONG_KEY = Matrix([2, 3])


def _similarity() -> Finding:
    """Compare inner products with distances and angles."""
    want, key, other = Matrix([1, 0]), Matrix([1, 0]), LONG_KEY
    xx, xy, yy = symbols("xx xy yy", real=True)
    square = (xx - 2 * xy + yy).subs({xx: 1, yy: 1})
    return imprecise(
        "|Qx - Ky|^2 = 2 - 2 <Qx, Ky> for vectors of length 1, so there the largest product is the "
        "nearest key. In general length counts too: for Qx = (1, 0) the key (2, 3) has the product "
        "2, the key (1, 0), which is Qx itself, only 1",
        part_that_holds=(square - (2 - 2 * xy)).expand() == 0,
        part_that_fails=want.dot(other) > want.dot(key)
        and (want - other).norm() > (want - key).norm() == 0,
    )


def scores(query: Matrix, key: Matrix, x: Matrix, y: Matrix) -> tuple[Expr, Expr, Expr]:
    """Return <Qx, Ky>, x^T Q K y and x^T Q^T K y."""
    return (
        (query * x).dot(key * y),
        (x.T * query * key * y)[0],
        (x.T * query.T * key * y)[0],
    )


def _transpose() -> Finding:
    x, y = Matrix([0, 1]), Matrix([1, 1])
    query, key = Matrix([[0, 1], [0, 0]]), eye(2)
    wide = (Matrix(*PAIR, symbols("q_1:7")), Matrix(*PAIR, symbols("k_1:7")))
    general = scores(query, key, x, y)
    inner = (wide[0] * Matrix(symbols("x_1:3"))).dot(wide[1] * Matrix(symbols("y_1:3")))
    form = (Matrix(symbols("x_1:3")).T * wide[0].T * wide[1] * Matrix(symbols("y_1:3")))[0]
    return refuted(
        "Q = [[0, 1], [0, 0]], K = I, x = (0, 1), y = (1, 1): <Qx, Ky> = 1 but x^T Q K y = 0; "
        "x^T Q^T K y = <Qx, Ky> for all matrices of 3 x 2 symbols, for which Q K does not exist",
        claim_fails=general[0] == 1 and general[1] == 0,
        correction_holds=general[2] == general[0] and (inner - form).expand() == 0,
    )


def _simplified() -> Finding:
    """Put V = Id and Q^T K = beta Id into the weights of the scores x^T Q^T K y."""
    beta = Symbol("beta", positive=True)
    x, y, z = (Matrix(symbols(f"{name}_1:3")) for name in "xyz")
    query = Matrix([[1, 2], [0, 1]])
    key = beta * query.T.inv()
    weights = [exp(scores(query, key, x, t)[2].expand()) for t in (y, z)]
    simple = [exp((beta * x.dot(t)).expand()) for t in (y, z)]
    moved = [(a * y[k] + b * z[k]) / (a + b) for a, b in (weights, simple) for k in range(2)]
    return proven(
        "Q^T K = beta Id makes x^T Q^T K y = beta <x, y>, here for a Q that is not symmetric; the "
        "averages agree coordinate by coordinate (two tokens; each further one adds the same term "
        "to both); Q = K = I with beta <Qx, Ky> is the same. Lines 140 and 142 of 002 print the "
        "same: without the denominator 142 would be USA",
        query.T * key == beta * eye(2),
        *[cancel(a - b) == 0 for a, b in zip(moved[:2], moved[2:], strict=True)],
    )


_AVERAGE = (
    r"\frac{\int e^{\langle Q_t x, K_t y \rangle} \mu(t)(dy)}"
    r"{\int e^{\langle Q_t x, K_t y \rangle} \mu(t)(dy)}"
)
_SIMPLE = (
    r"\frac{\sum_{j=1}^n e^{\beta \langle x_i(t), x_j(t) \rangle} x_j(t)}"
    r"{\sum_{k=1}^n e^{\beta \langle x_i(t), x_k(t) \rangle}}"
)

CLAIMS = [
    note(
        "ratio-of-integrals-lacks-y",
        "The field is V times int exp(<Qx, Ky>) mu(dy) / int exp(<Qx, Ky>) mu(dy), which is the "
        "mean V E[Y].",
        Verdict.FALSE,
        _ratio,
        at("002:59", _AVERAGE),
        at("002:73", _AVERAGE),
        corrected="V times int y exp(<Qx, Ky>) mu(dy) / int exp(<Qx, Ky>) mu(dy).",
        why="The numerator lacks y: as printed the fraction is 1, and V times the number 1 is a "
        "matrix, not a vector.",
    ),
    note(
        "query-key-value",
        "Queries say what a token wants, keys what it is, values what it has to tell.",
        Verdict.NOT_JUDGED,
        not_to_be_judged(
            "pictures of what trained matrices may do; nothing in the equations distinguishes Q "
            "from K but their places in <Qx, Ky>"
        ),
        at("002:63"),
        at("002:65"),
        at("002:67"),
    ),
    note(
        "inner-product-as-similarity",
        "The inner product indicates similarity: the better a key y matches what x wants, the "
        "larger is <Qx, Ky>.",
        Verdict.IMPRECISE,
        _similarity,
        at("002:69", r"\langle \cdot, \cdot \rangle"),
        at("002:71", r"\langle Q_t x, K_t y \rangle"),
        corrected="For vectors of length 1 (tokens on the sphere with orthogonal Q and K, or "
        "normalised "
        "queries and keys) the inner product is the cosine; in general it is also proportional to "
        "the length of Ky.",
        why="A long key can have a larger inner product than the key that is equal to Qx.",
    ),
    note(
        "attention-of-the-empirical-measure",
        "For mu = (1/n) sum of point masses the field is V sum_j p_ij x_j, with the softmax "
        "weights p_ij of the scores <Q x_i, K x_j>.",
        Verdict.PROVEN,
        _empirical_measure,
        at(
            "002:77-82",
            r"X_t[\mu(t)](x_i(t)) = V_t \left(\sum_{j=1}^n p_{ij}(t) x_j(t) \right)",
            r"p_{ij}(t) = \frac{e^{\langle Q_t x_i(t), K_t x_j(t) \rangle}}"
            r"{\sum_{k=1}^n e^{\langle Q_t x_i(t), K_t x_k(t) \rangle}}",
        ),
    ),
    note(
        "scores-without-transpose",
        "The score of the simple model is x_i^T Q K x_j.",
        Verdict.FALSE,
        _transpose,
        at("002:136", r"e^{x_i(t)^T Q_t K_t x_j(t)}"),
        corrected="x_i^T Q^T K x_j, which is <Q x_i, K x_j> of line 82.",
        why="The transpose of Q is missing; line 138 has it.",
    ),
    note(
        "simplified-attention",
        "With V = Id and Q^T K = beta Id (in 004: Q = K = V = I and the scores multiplied by beta) "
        "the average is sum_j exp(beta <x_i, x_j>) x_j / sum_k "
        "exp(beta <x_i, x_k>).",
        Verdict.PROVEN,
        _simplified,
        at("002:138", r"V_t = \text{Id}$ $Q_t^T K_t = \beta \text{Id}"),
        at("002:140", _SIMPLE),
        at("002:142", _SIMPLE),
        at(
            "004:240-242",
            r"\frac{1}{Z_{\beta,i}(t)} \sum_{j=1}^n \exp\left(\beta \langle x_i(t), x_j(t) "
            r"\rangle\right) x_j(t)",
        ),
    ),
]
