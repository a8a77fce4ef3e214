"""What networks on rows need to run on matrices of a graph, which is a program for all samples."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shaped_attention.numerics.draws import slot_number
from shaped_attention.numerics.graph import Graph, Matrix
from shaped_attention.numerics.primitives import concatenate
from shaped_attention.rows.sources import Source


class TracedSource(Source):
    """A source whose numbers and constants are operations of a graph."""

    def __init__(self, graph: Graph, seed: int) -> None:
        super().__init__(1, seed)
        self._graph = graph

    def draws(self, address: tuple[int, ...], step: int) -> TracedDraws:
        """Return the numbers of a step of a stream; a program has those of all steps."""
        return TracedDraws(self._graph, address)

    def constant(self, entries: ArrayLike) -> Any:
        """Return a constant of the graph."""
        return self._graph.constant(np.asarray(entries, dtype=np.float64))

    def filled(self, rows: int, columns: int, number: float) -> Any:
        """Return a constant of equal entries."""
        return self.constant(np.full((rows, columns), number))


class TracedDraws:
    """Random numbers as operations of a graph; the slots are those of `numerics.draws.Draws`."""

    def __init__(self, graph: Graph, address: tuple[int, ...]) -> None:
        self._graph, self._address, self._next = graph, address, 0

    def normal(self, rows: int, columns: int) -> Matrix:
        """Return independent standard normals (rows, columns)."""
        return self._drawn("normal", 1, (rows, columns), 1.0)

    def normals_beside_wishart(self, m: int, known: int, dof: int) -> Matrix:
        """Return [G, B] with normals G (m, known), and B B^T ~ Wishart_m(dof, I)."""
        parts = [self.normal(m, known)] if known else []
        if not known:
            self._next += 1
        if dof < m + 2:
            rest = self._drawn("normal", 2, (m, dof), 1.0)
        else:
            rest = self._drawn("wishart", 2, (m, m), float(dof), lower=True)
        return concatenate([*parts, rest])

    def _drawn(
        self, kind: str, slots: int, shape: tuple[int, int], number: float, **named: Any
    ) -> Matrix:
        slot = slot_number(0, self._next)
        self._next += slots
        return self._graph.node(kind, (), shape, (number,), (slot,), address=self._address, **named)
