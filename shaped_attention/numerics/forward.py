"""Forward mode: the derivative of a function in a direction.

On a graph it follows from reverse mode. The rule of an operation takes the gradient G of its value
to those of its inputs, J^T G, which is linear in G; the gradient of <J^T G, D> with respect to G is
J D. So there is one rule for each operation, in `reverse`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shaped_attention.libraries import Tensor, torch
from shaped_attention.numerics.graph import Matrix, Node
from shaped_attention.numerics.reverse import between, gradients, of_matrix, rule_of
from shaped_attention.numerics.scalars import Scalar


def pushed(function: Callable[[Any], Any], x: Any, tangent: Any) -> tuple[Any, Any]:
    """Return f(x) and its derivative at x in a direction, of the type of x.

    Raise ValueError if an operation on the way has no derivative, as factorisations.
    """
    if isinstance(x, Tensor):
        return _by_torch(function, x, tangent)
    if isinstance(x.coefficient, Scalar):
        x = x.value()
    value = function(x)
    found: dict[Node, Matrix] = {x.node: of_matrix(x, tangent)}
    for node in between([value.node], {x.node}):
        moved = None if node in found else _through(node, found)
        if moved is not None:
            found[node] = moved
    moved = found.get(value.node)
    if moved is None:
        return value, 0.0 * value
    return value, value.coefficient * (moved.mT if value.transposed else moved)


def _by_torch(function: Callable[[Tensor], Tensor], x: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """Do the same by autograd: torch's own forward mode has one level for all threads."""
    nested = torch.is_grad_enabled() and x.requires_grad  # a derivative of this one is taken
    with torch.enable_grad():
        start = x.view_as(x) if nested else x.detach().requires_grad_()
        value = function(start)
        if not value.requires_grad:
            return value, torch.zeros_like(value)
        above = torch.zeros_like(value, requires_grad=True)
        (pulled,) = torch.autograd.grad(
            value, start, above, create_graph=True, allow_unused=True, materialize_grads=True
        )
        if not pulled.requires_grad:
            return value, torch.zeros_like(value)
        (moved,) = torch.autograd.grad(
            pulled, above, d, create_graph=nested, allow_unused=True, materialize_grads=True
        )
    return (value, moved) if nested else (value.detach(), moved)


def _through(node: Node, tangents: dict[Node, Matrix]) -> Matrix | None:
    """Return the tangent of a value, from those of its inputs; None for 0."""
    graph = next(iter(tangents.values())).graph
    above = graph.node("input", (), node.shape)
    pulled = rule_of(node)(node, Matrix(graph, node), above)
    pairs = [
        (gradient, tangents[x])
        for x, gradient in zip(node.inputs, pulled, strict=True)
        if gradient is not None and x in tangents
    ]
    return gradients(pairs, [above]).get(above.node)
