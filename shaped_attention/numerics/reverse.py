"""Reverse mode on a graph: the gradients of matrices from those of what was computed from them.

Each kind of operation has one rule. It takes the node, its value and the gradient G of that value,
and returns the gradients of its inputs; None stands for 0. Rules are written in primitives, so that
what goes back is part of the same graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np

from shaped_attention.numerics.graph import Matrix, Node, Shape
from shaped_attention.numerics.operations.arc_cosine import arc_cosine_kernel
from shaped_attention.numerics.operations.entrywise import exp, leaky, sigmoid, sign, sqrt
from shaped_attention.numerics.operations.parts import columns, concatenate, diagonal
from shaped_attention.numerics.operations.registry import OPERATIONS
from shaped_attention.numerics.operations.rotate import rotate
from shaped_attention.numerics.operations.sums import column_sums, row_sums

Rule: TypeAlias = Callable[[Node, Matrix, Matrix], Sequence[Matrix | None]]


def gradients(
    above: Iterable[tuple[Matrix, Matrix]], below: Iterable[Matrix]
) -> dict[Node, Matrix]:
    """Take gradients back to the nodes of some matrices.

    `above` are pairs of a matrix and its gradient; the way back ends at the matrices `below`.
    Return the gradients of the nodes of these that the matrices above depend on; `of_matrix`
    returns that of a matrix. Raise ValueError if an operation on the way has no derivative, as
    factorisations.
    """
    known: dict[Node, Matrix] = {}
    ends = {x.node for x in below}
    for matrix, gradient in above:
        g = of_node(matrix, gradient)
        known[matrix.node] = known[matrix.node] + g if matrix.node in known else g
    for node in reversed(between(list(known), ends)):
        if node in ends or node not in known:
            continue
        g = known.pop(node)
        graph = g.graph
        if OPERATIONS[node.kind].entry is None or any(x.shape != node.shape for x in node.inputs):
            g = stretched(g, node.shape)
        for x, more in zip(node.inputs, rule_of(node)(node, Matrix(graph, node), g), strict=True):
            if more is not None:
                known[x] = known[x] + more if x in known else more
    return {node: stretched(g, node.shape) for node, g in known.items() if node in ends}


def rule_of(node: Node) -> Rule:
    """Return the rule of an operation; raise ValueError if it has no derivative."""
    if node.kind not in RULES:
        raise ValueError(f"{node.kind} has no derivative")
    return RULES[node.kind]


def of_node(matrix: Matrix, gradient: Matrix) -> Matrix:
    """Return the gradient of the node of a matrix, summed where the matrix was broadcast."""
    g = _reduced(gradient, matrix.shape)
    return matrix.coefficient * (g.mT if matrix.transposed else g)


def of_matrix(matrix: Matrix, gradient: Matrix) -> Matrix:
    """Return the gradient of a matrix with a constant coefficient, from that of its node."""
    number = matrix.coefficient
    assert isinstance(number, float | int)
    g = gradient if number == 1.0 else gradient * (1.0 / number)
    return g.mT if matrix.transposed else g


def depends(node: Node, ends: set[Node]) -> bool:
    """Return whether a node is one of some others, or is computed from one."""
    return bool(between([node], ends))


def between(above: Iterable[Node], ends: set[Node]) -> list[Node]:
    """Return the nodes from `ends` to those above that depend on them, inputs first."""
    leads: dict[Node, bool] = {}
    order: list[Node] = []
    stack = [(node, False) for node in above]
    while stack:
        node, opened = stack.pop()
        if node in leads:
            continue
        if node in ends:
            leads[node] = True
            order.append(node)
        elif not opened:
            stack.append((node, True))
            stack += [(x, False) for x in node.inputs]
        else:
            leads[node] = any(leads[x] for x in node.inputs)
            if leads[node]:
                order.append(node)
    return order


def _input(node: Node, y: Matrix, k: int = 0) -> Matrix:
    return Matrix(y.graph, node.inputs[k])


def stretched(g: Matrix, shape: Shape) -> Matrix:
    """Repeat the rows or columns of a gradient that is the same for all."""
    if g.shape[0] < shape[0]:
        g = g.graph.constant(np.ones((shape[0], 1))) @ g
    return g if g.shape[1] == shape[1] else g @ g.graph.constant(np.ones((1, shape[1])))


def _reduced(g: Matrix, shape: Shape) -> Matrix:
    """Sum a gradient where an operand was broadcast."""
    if shape[0] < g.shape[0]:
        g = column_sums(g)
    return row_sums(g) if shape[1] < g.shape[1] else g


def _combine(node: Node, y: Matrix, g: Matrix) -> Sequence[Matrix]:
    s, t = node.scalars
    return s * g, t * _reduced(g, node.inputs[1].shape)


def _times(node: Node, y: Matrix, g: Matrix) -> Sequence[Matrix]:
    a, b = _input(node, y), _input(node, y, 1)
    return g * b, _reduced(g * a, b.shape)


def _over(node: Node, y: Matrix, g: Matrix) -> Sequence[Matrix]:
    b = _input(node, y, 1)
    first = g / b
    return first, -_reduced(first * y, b.shape)


def _product(node: Node, y: Matrix, g: Matrix) -> Sequence[Matrix | None]:
    (a, b), (first, second) = (_input(node, y), _input(node, y, 1)), node.integers
    if node.is_gram:
        return a @ (g + g.mT) if first else (g + g.mT) @ a, None
    left, right = a.mT if first else a, b.mT if second else b
    return right @ g.mT if first else g @ right.mT, g.mT @ left if second else left.mT @ g


def _reshape(node: Node, y: Matrix, g: Matrix) -> Sequence[Matrix]:
    flat = g.plain()
    back = y.graph.node("reshape", (flat.node,), node.inputs[0].shape)
    return (flat.coefficient * back,)


def _columns(node: Node, y: Matrix, g: Matrix) -> Sequence[Matrix]:
    (rows, whole), start = node.inputs[0].shape, node.integers[0]
    widths = start, whole - start - g.shape[1]
    before, after = ([y.graph.constant(np.zeros((rows, c)))] if c else [] for c in widths)
    return (concatenate([*before, g, *after]),)


def _concatenate(node: Node, y: Matrix, g: Matrix) -> Sequence[Matrix]:
    result, start = [], 0
    for x, s in zip(node.inputs, node.scalars, strict=True):
        result.append(s * columns(g, start, start + x.shape[1]))
        start += x.shape[1]
    return result


def _unit_rows(node: Node, y: Matrix, g: Matrix) -> Sequence[Matrix]:
    """Project orthogonally to the row and divide by its length; 0 for a row of zeros."""
    length = row_sums(y * _input(node, y))
    some = sign(length)
    return ((some / (length + (1.0 - some))) * (g - y * row_sums(y * g)),)


def _arc_cosine(node: Node, y: Matrix, g: Matrix) -> Sequence[Matrix]:
    """Use dK_ab = (pi - phi) dV_ab + sin(phi) (s_b dV_aa / s_a + s_a dV_bb / s_b) / 2.

    Here s_a^2 = V_aa and cos(phi) = V_ab / (s_a s_b). The angle comes from the kernel itself,
    J(cos x) = sin x + cos x (pi - x), at x = arccos(|cos phi|) / 2, where cos x >= 1 / sqrt 2.
    """
    v = _input(node, y)
    length = sqrt(diagonal(v))
    some = sign(length)
    safe = length + (1.0 - some)
    ratio = v / (safe @ safe.mT)
    cosine = sqrt(0.5 * leaky(ratio, 1.0, -1.0) + 0.5)
    # At equal tokens, where the root has no derivative, it does not move.
    square = leaky(1.0 - cosine * cosine, 1.0, 0.0)
    apart = sign(square)
    sine = apart * sqrt(square + (1.0 - apart))
    half = math.pi - (arc_cosine_kernel(cosine) - sine) / cosine
    angle = (some @ some.mT) * (sign(ratio) * (0.5 * math.pi - 2.0 * half) + 0.5 * math.pi)
    turned = (sine * cosine) * g
    along = (turned + turned.mT) @ length * (some / safe)
    return (angle * g + y.graph.constant(np.eye(y.shape[0])) * along,)


def _rotate(node: Node, y: Matrix, g: Matrix) -> Sequence[Matrix | None]:
    turns = node.inputs[1].data
    assert turns is not None
    pairs = turns.shape[1] // 2
    return rotate(g, np.concatenate([turns[:, :pairs], -turns[:, pairs:]], axis=1)), None


def _leaky(node: Node, y: Matrix, g: Matrix) -> Sequence[Matrix]:
    """Multiply by the slope, which is the mean of both slopes at 0."""
    plus, minus = node.scalars
    slope = (0.5 * (plus - minus)) * sign(_input(node, y)) + 0.5 * (plus + minus)
    return (slope * g,)


def _slope(derivative: Callable[[Matrix, Matrix], Matrix]) -> Rule:
    """Return the rule of a function of single entries; its derivative takes argument and value."""
    return lambda node, y, g: (derivative(_input(node, y), y) * g,)


RULES: dict[str, Rule] = {
    "combine": _combine, "times": _times, "over": _over,
    "scale": lambda node, y, g: (node.scalars[0] * g,),
    "shift": lambda node, y, g: (node.scalars[0] * g,),
    "product": _product,
    "transpose": lambda node, y, g: (g.mT,), "reshape": _reshape, "columns": _columns,
    "concatenate": _concatenate, "rotate": _rotate, "arc_cosine": _arc_cosine,
    "diagonal": lambda node, y, g: (y.graph.constant(np.eye(y.shape[0])) * g,),
    "softmax": lambda node, y, g: (node.scalars[0] * (y * (g - row_sums(y * g))), None),
    "row_squares": lambda node, y, g: (2.0 * (_input(node, y) * g),),
    "row_sums": lambda node, y, g: (g,), "column_sums": lambda node, y, g: (g,),
    "unit_rows": _unit_rows, "leaky": _leaky, "sign": lambda node, y, g: (None,),
    "reciprocal": _slope(lambda x, y: -(y * y)), "sqrt": _slope(lambda x, y: 0.5 / y),
    "exp": _slope(lambda x, y: y), "tanh": _slope(lambda x, y: 1.0 - y * y),
    "sigmoid": _slope(lambda x, y: y * sigmoid(-x)), "softplus": _slope(lambda x, y: sigmoid(x)),
    "normal_cdf": _slope(lambda x, y: (2.0 * math.pi) ** -0.5 * exp(-0.5 * (x * x))),
}  # fmt: skip
"""The rules by the kinds of operations; a gradient with one row or column is the same for all."""

WITHOUT = {
    "input", "constant", "normal", "wishart", "activated_gram", "cholesky", "lower", "orthonormal",
    "symmetric",
}  # fmt: skip
"""Kinds that gradients do not pass: numbers, factorisations, and what only limits use."""

if missing := OPERATIONS.keys() - RULES.keys() - WITHOUT:
    raise TypeError(f"operations without a rule for gradients: {sorted(missing)}")
