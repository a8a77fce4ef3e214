"""How fast the value of a traced matrix grows with its inputs, read off the graph.

The order of a matrix is the power p of x with which it grows if all inputs of order 1 are
multiplied by x, as x tends to infinity. Terms that cancel are not noticed, so the order is an upper
bound for what has no divisions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from shaped_attention.numerics.graph import Matrix, Node

_Rule = Callable[[list[float]], float]


def _same(orders: list[float]) -> float:
    return orders[0]


def _sum(orders: list[float]) -> float:
    return sum(orders)


def _twice(orders: list[float]) -> float:
    return 2.0 * orders[0]


def _half(orders: list[float]) -> float:
    return 0.5 * orders[0]


def _bounded(orders: list[float]) -> float:
    return min(0.0, max(orders, default=0.0))


def _exponential(orders: list[float]) -> float:
    return math.inf if orders[0] > 0.0 else 0.0


RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(("constant", "normal", "wishart", "softmax", "unit_rows"), lambda orders: 0.0),
    **dict.fromkeys(("multiply_nn", "multiply_nt", "multiply_tn", "times"), _sum),
    **dict.fromkeys(("gram", "cogram", "row_squares", "activated_gram"), _twice),
    **dict.fromkeys(("combine", "concatenate"), max),
    **dict.fromkeys(
        ("scale", "transpose", "reshape", "columns", "row_sums", "column_sums", "diagonal",
         "rotate", "symmetric", "lower", "arc_cosine", "leaky", "softplus"), _same,
    ),
    **dict.fromkeys(("sqrt", "cholesky"), _half),
    **dict.fromkeys(("tanh", "normal_cdf", "sigmoid"), _bounded),
    "over": lambda orders: orders[0] - orders[1],
    "shift": lambda orders: max(orders[0], 0.0),
    "exp": _exponential,
}  # fmt: skip
"""Order of the value of each operation, from those of its inputs."""


def order(matrix: Matrix, inputs: Mapping[int, float]) -> float:
    """Return the order of a matrix; `inputs` has those of input nodes, by their `id`."""
    known: dict[int, float] = dict(inputs)

    def of(node: Node) -> float:
        if id(node) not in known:
            known[id(node)] = RULES[node.kind]([of(x) for x in node.inputs])
        return known[id(node)]

    return of(matrix.node)
