"""Claims on layers of self-attention: the matrix form, the layer norm, and the continuous time."""

from __future__ import annotations

from sympy import (
    Expr,
    Matrix,
    MatrixSymbol,
    Rational,
    ShapeError,
    Sum,
    Symbol,
    cancel,
    diff,
    exp,
    expand,
    sqrt,
    symbols,
)

from symbolic.claims.inner_products import XX, XY, YY, projected_square
from symbolic.claims.ledger import Finding, Verdict, at, imprecise, note, proven

TOKENS, WIDTH, KEYS = symbols("n d l", integer=True, positive=True)
QUERY, KEY = (MatrixSymbol(name, KEYS, WIDTH) for name in ("Q", "K"))
VALUE = MatrixSymbol("V", WIDTH, WIDTH)
ATTENTION = MatrixSymbol("A", TOKENS, TOKENS)


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
    x = MatrixSymbol("x", TOKENS, WIDTH)
    i, j, a, b = symbols("i j a b", integer=True)
    query, key = (Sum(w[a, b] * x[t, b], (b, 0, WIDTH - 1)) for w, t in ((QUERY, i), (KEY, j)))
    first = [(x * QUERY.T)[i, a], (x * KEY.T)[j, a]]
    values = Sum(x[j, b] * VALUE[a, b], (b, 0, WIDTH - 1))
    return (
        all(_same_sum(entry, claimed) for entry, claimed in zip(first, (query, key), strict=True))
        and _same_sum((x * moved)[j, a], values)
        and ((x * QUERY.T) * (x * KEY.T).T).shape == (TOKENS, TOKENS)
        and (ATTENTION * x * VALUE.T).shape == (TOKENS, WIDTH)
    )


def _same_sum(first: Expr, second: Expr) -> bool:
    """Compare two sums over the width term by term."""
    k = Symbol("k", integer=True)
    terms = [s.function.subs(s.limits[0][0], k) for s in (first, second)]
    ranges = [s.limits[0][1:] for s in (first, second)]
    return expand(terms[0] - terms[1]) == 0 and ranges[0] == ranges[1]


def _matrix_form() -> Finding:
    return imprecise(
        "with the tokens as rows of x neither Q x nor K x exists; as columns softmax(...) V x, n x "
        "n times d x n, and Q x^T do not (4 tokens of 3 coordinates). Only with Q, K and V applied "
        "to each token, as in line 215, is there a meaning. As rows x Q^T and x K^T have the "
        "entries <q_a, x_i>, and the products have the shapes n x n and n x d, for symbolic sizes",
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


def _components() -> Finding:
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
    return proven(
        "entry by entry from softmax over each row, (x Q^T)(x K^T)^T and x V^T, for 2 and 3 tokens "
        "with symbols; further tokens and coordinates add terms of the same form. The weights are "
        "positive and sum to 1. Many texts call the exponents themselves the scores",
        *facts,
    )


def layer_norm(x: Matrix, centred: bool) -> Matrix:
    """Return x / rms(x), of x or of x minus its mean: RMS norm, layer norm, gain 1 and no bias."""
    size = len(x)
    mean = sum(x) / size if centred else 0
    away = x - mean * Matrix.ones(size, 1)
    return away / sqrt(away.dot(away) / size)


def _layer_norm() -> Finding:
    x, centred = Matrix([1, 2, 2]), Matrix([2, -1, -1])
    return imprecise(
        "RMS norm is sqrt(d) x / |x|, so the printed layer up to the unit of length, and so is "
        "layer norm for tokens with the mean 0 over their coordinates; (1, 2, 2) has the layer "
        "norm (-2, 1, 1) / sqrt(2) and not a multiple of itself. Gain and bias are left out too",
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


def _continuous_time() -> Finding:
    rate = expand(2 * (XY - XY * XX))
    tangent = expand(XY - XY * XX)
    return proven(
        "(x + h y)/|x + h y| has the derivative y - <x, y> x at h = 0 for |x| = 1 (inner products, "
        "any d): the layer with h SAtt is a step of the flow, as printed with h = 1. P_x y is "
        "tangent, P_x P_x y = P_x y, and d|x|^2/dt = 2 <x, y> (1 - |x|^2) is 0 on the sphere, "
        "which is compact, so the flow exists for all times",
        coefficients_of_a_step(Rational(1)) == (-XY, 1),
        tangent.subs(XX, 1) == 0,
        expand(projected_square().subs(XX, 1) - (YY - XY**2)) == 0,
        rate.subs(XX, 1) == 0,
        expand(rate - 2 * XY * (1 - XX)) == 0,
    )


CLAIMS = [
    note(
        "self-attention-matrix-form",
        "SAtt(x) = Softmax(beta (Q x) . (K x)) V x, or Softmax(beta^-1 (Q x^T (K x))) V x.",
        Verdict.IMPRECISE,
        _matrix_form,
        at(
            "004:211",
            r"\text{Softmax}(\beta(Q(k)\mathbf{x}(k)) \cdot (K(k)\mathbf{x}(k))) "
            r"V(k)\mathbf{x}(k)",
        ),
        at("004:44-45", r"(Q(k)\mathbf{x}(k)^T(K(k)\mathbf{x}(k)))) V(k)\mathbf{x}(k)"),
        corrected="With the tokens as rows of x: Softmax(beta (x Q^T)(x K^T)^T) x V^T.",
        why="The products exist neither for tokens as rows nor as columns; what is meant is clear "
        "from line 215.",
    ),
    note(
        "self-attention-components",
        "Token i receives sum_j A_ij V x_j, A_ij = exp(beta <Q x_i, K x_j>) / Z_i, Z_i = sum_j "
        "exp(beta <Q x_i, K x_j>).",
        Verdict.PROVEN,
        _components,
        at(
            "004:213-219",
            r"[SAtt(\mathbf{x}(k))]_i = \sum_{j=1}^n \frac{\exp\left(\beta \langle "
            r"Q(k)\mathbf{x}_i(k), K(k)\mathbf{x}_j(k) \rangle\right)}{Z_{\beta,i}(k)} "
            r"V(k)\mathbf{x}_j(k)",
            r"Z_{\beta,i}(k) = \sum_{j=1}^n \exp\left(\beta \langle Q(k)\mathbf{x}_i(k), "
            r"K(k)\mathbf{x}_j(k) \rangle\right)",
        ),
    ),
    note(
        "layer-norm-as-unit-norm",
        "Transformers use layer normalisation, x_i(k+1) = (x_i + SAtt_i) / |x_i + SAtt_i|.",
        Verdict.IMPRECISE,
        _layer_norm,
        at(
            "004:226-228",
            r"\mathbf{x}_i(k+1) = \frac{\mathbf{x}_i(k) + [\text{SAtt}(\mathbf{x}(k); K(k), "
            r"Q(k), V(k))]_i}",
        ),
        corrected="This is RMS norm, without gain and up to the factor sqrt(d). Layer norm "
        "subtracts the mean over the coordinates of the token.",
        why="x/|x| is RMS norm; layer norm centres the coordinates first.",
    ),
    note(
        "sphere-invariant",
        "In continuous time the normalised layer is a flow on the unit sphere: x_i' = P_x SAtt_i, "
        "P_x y = y - <x, y> x, the projection to the tangent space.",
        Verdict.PROVEN,
        _continuous_time,
        at(
            "004:230-233",
            r"\dot{\mathbf{x}}_i(t) = P_{\mathbf{x}_i(t)}^\perp",
            r"P_x^\perp y = y - \langle x, y \rangle x",
        ),
        test="test_sphere_layers.py::test_networks_converge_to_their_flows_at_rate_one",
    ),
]
