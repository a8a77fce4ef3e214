"""Random numbers of a block while its description is traced: operations with an address."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from shaped_attention.numerics.dual import Dual
from shaped_attention.numerics.graph import Graph, Matrix, Node, needed
from shaped_attention.numerics.operations.registry import OPERATIONS
from shaped_attention.numerics.primitives import NO_RULE, Numbers
from shaped_attention.numerics.scalars import Number


class TracedNumbers(Numbers):
    """The random numbers of one block while its description is traced.

    Parameters
    ----------
    graph
        The trace.
    place
        Place of the block in the layer, which distinguishes its numbers from those of other blocks.
    increments
        Standard deviation of the Brownian increments of a limit, the root of the step; None for
        the numbers of a chain.
    drawn
        Normals and Wishart roots by place, name and head, if the same realisation is traced again:
        those that are there are returned, and new ones are added.
    """

    def __init__(
        self,
        graph: Graph,
        place: tuple[int, ...],
        increments: Number | None = None,
        drawn: dict[Hashable, Matrix] | None = None,
    ) -> None:
        self._graph, self._place, self._increments = graph, place, increments
        self._taken: set[tuple[str, int]] = set()
        self._drawn = {} if drawn is None else drawn

    def inside(self, index: int) -> TracedNumbers:
        """Return the numbers of a block inside this one."""
        place = (*self._place, index)
        return TracedNumbers(self._graph, place, self._increments, self._drawn)

    def _address(self, name: str, head: int) -> Hashable:
        if (name, head) in self._taken:
            raise ValueError(
                f"the numbers {name!r} (head {head}) are drawn twice in one step of a block; "
                "give each draw a different name"
            )
        self._taken.add((name, head))
        return (self._place, name)

    def normal(self, name: str, rows: int, columns: int, head: int = 0) -> Matrix:
        """Return independent standard normals (rows, columns)."""
        address = self._address(name, head)
        scale = 1.0 if self._increments is None else self._increments
        if (address, head) not in self._drawn:
            self._drawn[address, head] = self._graph.node(
                "normal", (), (rows, columns), (scale,), (2 * head,), address=address
            )
        return self._drawn[address, head]

    def wishart(self, name: str, rows: int, dof: int, head: int = 0) -> Matrix:
        """Return a root of a Wishart matrix (see `Numbers`)."""
        if self._increments is not None:
            return super().wishart(name, rows, dof, head)
        address = self._address(name, head)
        bartlett = dof >= rows + 2
        if (address, head) not in self._drawn:
            self._drawn[address, head] = self._graph.node(
                "wishart", (), (rows, rows if bartlett else dof), (), (2 * head, dof),
                lower=bartlett, address=address,
            )  # fmt: skip
        return self._drawn[address, head]

    def activated_gram(
        self, name: str, factor: Any, count: int, activation: Callable[..., Any], copies: int = 1
    ) -> Matrix:
        """Return the Gram matrix of `count` activated columns (see `Numbers`)."""
        if self._increments is not None:
            return super().activated_gram(name, factor, count, activation, copies)
        if isinstance(factor, Dual):
            raise ValueError(NO_RULE)
        address = self._address(name, 0)
        flat = factor.value()
        inside = Graph()
        rows = flat.shape[0]
        hidden = [inside.node("input", (), (rows, 1)) for _ in range(copies)]
        result = activation(*hidden).value()
        check_activation(inside, [x.node for x in hidden], result.node)
        return self._graph.node(
            "activated_gram", (flat.node,), (rows, rows), (), (0, count, copies),
            address=address, inside=(inside, result.node),
        )  # fmt: skip


def check_activation(inside: Graph, hidden: list[Node], result: Node) -> None:
    """Raise ValueError unless an activation acts entry by entry, and on all its arguments."""
    nodes = needed([result], inside.nodes)
    for node in nodes:
        if node.kind != "input" and not OPERATIONS[node.kind].entrywise:
            raise ValueError(
                f"an activation must be a function of single entries; it uses {node.kind}"
            )
        for x in node.inputs:
            if not any(x is known for known in inside.nodes):
                raise ValueError("an activation uses a matrix besides its argument")
    if nodes[: len(hidden)] != hidden:
        raise ValueError("an activation does not depend on its argument")
