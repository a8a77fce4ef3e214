"""Claims on the MLP and the heads of a layer: which model their formulas define.

The velocity of line 115 is the projection of MLP(attention), that of line 120 the mean over heads
of the projections of MLP_k(attention_k). They are judged against layers in use, where each sublayer
is added to the residual stream, x + h attention(x), then x + h MLP(x), and one MLP follows the sum
of the heads (Vaswani et al. 2017).
"""

from __future__ import annotations

from sympy import Expr, Function, Matrix, Max, Rational, Symbol, diff, expand, symbols

from symbolic.claims.ledger import Finding, Verdict, at, imprecise, note

ATTENTION, PERCEPTRON = Function("A"), Function("M")


def speed_of_two_sublayers() -> Expr:
    """Return the derivative at h = 0 of x + h A(x), followed by x + h M(x)."""
    x, h = symbols("x h", real=True)
    between = x + h * ATTENTION(x)
    return diff(between + h * PERCEPTRON(between), h).doit().subs(h, 0).doit()


def _mlp() -> Finding:
    x = Symbol("x", real=True)
    speed = speed_of_two_sublayers()
    composed = PERCEPTRON(ATTENTION(x))
    example = {ATTENTION: lambda s: 2 * s, PERCEPTRON: lambda s: Max(0, s)}
    values = [
        e.replace(ATTENTION, example[ATTENTION]).replace(PERCEPTRON, example[PERCEPTRON]).subs(x, 1)
        for e in (speed, composed)
    ]
    return imprecise(
        "a step x + h A(x) of attention and then x + h M(x) of the MLP have the velocity A(x) + "
        "M(x) as h -> 0, for all functions A and M. M(A(x)) is another velocity: 2 and not 3 for "
        "A(x) = 2x, M = relu, x = 1. It is that of the step x + h M(A(x)), with one residual "
        "connection around both sublayers",
        part_that_holds=expand(speed - ATTENTION(x) - PERCEPTRON(x)) == 0,
        part_that_fails=values == [3, 2],
    )


def relu(x: Matrix) -> Matrix:
    """Return the positive parts."""
    return x.applyfunc(lambda entry: Max(0, entry))


def _heads() -> Finding:
    x = Matrix([Rational(3, 5), Rational(4, 5)])
    first, second = Matrix(symbols("a_1:3")), Matrix(symbols("b_1:3"))

    def projected(y: Matrix) -> Matrix:
        return y - x.dot(y) * x

    mean = (projected(first) + projected(second)) / 2
    apart = (Matrix([1, 0]), Matrix([-1, 0]))
    return imprecise(
        "the projection is linear, so the mean over heads of projections is the projection of the "
        "mean, and 1/K can be part of V_k (two heads of symbols). An MLP is not: for two opposite "
        "heads relu(mean) = 0, and the mean of relu is (1/2, 0)",
        part_that_holds=(mean - projected((first + second) / 2)).expand() == Matrix.zeros(2, 1),
        part_that_fails=relu((apart[0] + apart[1]) / 2) == Matrix.zeros(2, 1)
        and (relu(apart[0]) + relu(apart[1])) / 2 == Matrix([Rational(1, 2), 0]),
    )


CLAIMS = [
    note(
        "mlp-in-between",
        "With an MLP layer between two self-attention layers the velocity of token i is Proj "
        "MLP(V sum_j p_ij x_j): the MLP acts on the output of attention.",
        Verdict.IMPRECISE,
        _mlp,
        at("002:113"),
        at("002:115", r"\text{MLP}_t V_t \left(\sum_{j=1}^n p_{ij}(t) x_j(t) \right)"),
        corrected="Proj (V sum_j p_ij x_j + MLP(x_i)), the limit of layers in which attention and "
        "MLP each have a residual connection. The printed velocity is that of layers with a single "
        "residual connection around MLP(attention), which is a model too.",
        why="In a transformer the MLP reads the residual stream x_i, not the output of attention; "
        "as the step tends to 0 the two velocities add.",
    ),
    note(
        "mlp-of-each-head",
        "With K heads the velocity is (1/K) sum_k Proj MLP_k(V_k sum_j p_ij^k x_j): each head has "
        "its own MLP, and the heads are averaged.",
        Verdict.IMPRECISE,
        _heads,
        at("002:120", r"\frac{1}{K} \sum_{k=1}^K", r"\text{MLP}_t^{[k]} V_t^{[k]}"),
        corrected="The output of attention is the sum over heads, sum_k V_k sum_j p_ij^k x_j "
        "(1/K can be part of V_k), and one MLP serves all heads. With one MLP for each head it is "
        "another model.",
        why="A transformer has one MLP, after the heads have been summed; the mean of MLP_k over "
        "the heads is not an MLP of their mean.",
    ),
]
