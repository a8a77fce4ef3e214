"""Claims on the lengths of tokens: weighted sums, layer normalisation, velocities on the sphere."""

from __future__ import annotations

from sympy import Expr, Matrix, Rational, Symbol, diff, exp, expand, eye, sqrt, symbols

from symbolic.claims.ledger import Finding, Verdict, at, imprecise, note, refuted

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


def _sums() -> Finding:
    x = Matrix([3, 4])
    s = symbols("s_1:3", positive=True)
    unit = Matrix(s) / sqrt(s[0] ** 2 + s[1] ** 2)
    by_hand = Matrix(2, 2, lambda i, j: diff(unit[i], s[j])).subs(dict(zip(s, x, strict=True)))
    return refuted(
        "softmax weights are positive of sum 1: |sum p x|^2 is sum p |x|^2 minus half the sum of "
        "p_i p_j |x_i - x_j|^2 (2 to 5 tokens, in inner products), so at most the largest |x|^2: n "
        "equal tokens have the average x for every n, n orthogonal ones of length 1 an average of "
        "length 1/sqrt n, which the residual x prevents from vanishing. Length is no "
        "gradient: the derivative of x / |x| at 10 x is 1/10 of that at x",
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


def _layer_norm() -> Finding:
    depth = 6
    return imprecise(
        "one token of length 5, V = Id: without normalisation 5 2^k after k layers; with the sum "
        "normalised (post-norm, the flow on the sphere) 1; with the input of the attention "
        "normalised (pre-norm) 5 + k, which grows, but no longer exponentially",
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


def _position() -> Finding:
    """Compare place and velocity of two tokens at right angles."""
    x, y = Matrix([1, 0]), Matrix([0, 1])
    velocity = average(x, y)
    h = Symbol("h")
    moved = x + h * velocity
    return refuted(
        "two tokens (1, 0) and (0, 1), Q = K = V = I: the field at the first is (e, 1) / (e + 1), "
        "not the token; the derivative of x + h X is X",
        claim_fails=velocity != x and all(entry.is_positive for entry in velocity),
        correction_holds=diff(moved, h) == velocity,
    )


def _second_token() -> Finding:
    """Check <x, P_x y> = 0 in inner products, against <x_2, x_2> = 1."""
    xx, xy = symbols("xx xy", real=True)
    along = (xy - xy * xx).subs(xx, 1)
    x, y = Matrix([Rational(3, 5), Rational(4, 5)]), Matrix([2, -1])
    return refuted(
        "for i = 2 the right side is orthogonal to x_2 on the sphere, <x, y - <x, y> x> = 0, so it "
        "would give |x_2|^2 = 0, not 1; as a derivative it keeps |x| = 1, since d|x|^2/dt is twice "
        "that product",
        claim_fails=x.dot(x) == 1 and x.dot(projected(x, y)) == 0 and projected(x, y) != x,
        correction_holds=expand(2 * along) == 0,
    )


_PROJECTED = r"x_2(t) = \text{Proj}_{T_{x_i}(t)S^{d-1}}"

CLAIMS = [
    note(
        "layer-norm-prevents-explosion",
        "Layer normalisation prevents explosion.",
        Verdict.IMPRECISE,
        _layer_norm,
        at("002:86"),
        corrected="A norm after the addition (post-norm, the sphere) keeps the length; one before "
        "the "
        "attention (pre-norm) makes growth at most linear in depth instead of exponential.",
        why="Right on the sphere; with the norm before attention tokens still grow, by up to 1 a "
        "layer.",
    ),
    note(
        "sums-make-norms-explode",
        "Attention is a weighted sum of many vectors, so the lengths of the tokens grow (gradients "
        "explode) or shrink (they vanish) sharply between layers.",
        Verdict.FALSE,
        _sums,
        at("002:88"),
        corrected="The weights are positive and add up to 1, so with V = Id |sum p x| <= max |x| "
        "for any "
        "number of tokens. Tokens grow because of V and the residual connection, not because of "
        "their number. Without that connection averages do shrink: to 1/sqrt n for n orthogonal "
        "tokens of length 1 with equal weights. Gradients are a separate question: that of x / |x| "
        "shrinks as |x| grows.",
        why="An average is no longer than the longest token, and the length of a token is not a "
        "gradient.",
    ),
    note(
        "velocity-printed-as-position",
        "x_i(t) = X_t[mu(t)](x_i(t)).",
        Verdict.FALSE,
        _position,
        at("002:55", r"x_i(t) = X_t[\mu(t)](x_i(t))"),
        corrected="The derivative of x_i is X_t[mu(t)](x_i(t)), as in line 40.",
        why="The dot is missing: as printed each token would be equal to its velocity.",
    ),
    note(
        "velocity-printed-as-second-token",
        "x_2(t) is the projection of an average to the tangent space at x_i.",
        Verdict.FALSE,
        _second_token,
        *[at(f"002:{line}", _PROJECTED) for line in (96, 115)],
        at("002:120", r"x_2(t) = \frac{1}{K} \sum_{k=1}^K \text{Proj}"),
        *[at(f"002:{line}", _PROJECTED) for line in (124, 134, 140, 142)],
        corrected="The derivative of x_i is this projection.",
        why="x_2 stands for the derivative of x_i. A tangent vector at x_2 is orthogonal to x_2, "
        "so "
        "it cannot be x_2 itself.",
    ),
]
