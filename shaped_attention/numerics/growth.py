"""How fast the value of a traced matrix grows with its inputs, read off the graph.

The order of a matrix is the power p of x with which it grows if all inputs of order 1 are
multiplied by x, as x tends to infinity. Terms that cancel are not noticed, so the order is an upper
bound for what has no divisions. Each operation has its rule in its own file (`operations`).
"""

from __future__ import annotations

from collections.abc import Mapping

from shaped_attention.numerics.graph import Matrix, Node
from shaped_attention.numerics.operations.registry import OPERATIONS


def order(matrix: Matrix, inputs: Mapping[int, float]) -> float:
    """Return the order of a matrix; `inputs` has those of input nodes, by their `id`."""
    known: dict[int, float] = dict(inputs)

    def of(node: Node) -> float:
        if id(node) not in known:
            known[id(node)] = (
                0.0
                if node.data is not None
                else OPERATIONS[node.kind].growth([of(x) for x in node.inputs])
            )
        return known[id(node)]

    return of(matrix.node)
