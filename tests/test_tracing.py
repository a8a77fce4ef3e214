"""Tracing a description: what is shared, what is broadcast, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention.numerics.graph import Graph, Matrix
from shaped_attention.numerics.primitives import column_sums, lower, row_squares
from shaped_attention.numerics.scalars import Scalar

V0 = sa.equicorrelated(3, 0.2)
RUN: dict[str, Any] = {"width": 8, "depth": 2, "samples": 3, "progress": False}


def _input(graph: Graph, rows: int = 3, columns: int = 3) -> Matrix:
    return graph.node("input", (), (rows, columns))


def test_equal_operations_are_done_once() -> None:
    """Different scalars, also ones that are known only when the program runs, stay apart."""
    graph = Graph()
    a, b = _input(graph), _input(graph)
    assert (a @ b).node is (a @ b).node
    assert (a @ b).node is not (b @ a).node
    assert (a - column_sums(a) / 3).node is (a - column_sums(a) / 3).node
    one, two = (Scalar(lambda depths, x=x: x) for x in (1.0, 2.0))
    assert (a + one * b).node is (a + one * b).node
    assert (a + one * b).node is not (a + two * b).node
    assert (a + 0.5 * b).node is not (a + 0.25 * b).node


@dataclass(frozen=True)
class Described(sa.Block):
    """A block for tests, whose root is one of those below."""

    gamma: float
    kind: str

    def branch(self, p: Any, tokens: Any, project: Any) -> Any:
        return project(tokens, tokens.shape[-1]) / tokens.shape[-1] ** 0.5

    def root(self, p: Any, factor: Any, numbers: Any, width: int) -> Any:
        return ROOTS[self.kind](factor)


def _array(factor: Any) -> Any:
    return np.eye(3) @ factor


def _added(factor: Any) -> Any:
    return factor + np.ones((3, 3))


def _torch(factor: Any) -> Any:
    return torch.relu(factor)


def _entries(factor: Any) -> Any:
    return factor if factor > 0 else -factor


def _broadcast(factor: Any) -> Any:
    """A column with a row, in sums, products and quotients."""
    column, row = row_squares(factor), column_sums(factor)
    outer = (column + row) * (column - 2.0 * row)
    return factor + 0.1 * outer + 0.1 * (column / (1.0 + row * row))


def _twice(factor: Any) -> Any:
    """A triangular factor of a matrix that is used again, and of the state itself."""
    wide = factor + 0.1 * (factor @ factor)
    return 0.5 * lower(wide) + 0.5 * wide + 0.1 * lower(factor)


ROOTS = {"array": _array, "added": _added, "torch": _torch, "entries": _entries,
         "broadcast": _broadcast, "twice": _twice}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("array", r"TypeError: .*ndarray.*"),
        ("added", r"TypeError: .*ndarray: .* primitives.constant\(array, like=matrix\)"),
        ("torch", "TypeError: .*must be Tensor, not Matrix"),
        ("entries", "TypeError: .*'>'.*"),
    ],
)
def test_what_cannot_be_traced(kind: str, reason: str) -> None:
    message = f"^layer contains Described, whose description cannot be traced .*{reason}.*sa.eager"
    with pytest.raises(ValueError, match=message):
        sa.simulate_chain(Described(0.5, kind), V0, **RUN)


@pytest.mark.parametrize("kind", ["broadcast", "twice"])
def test_traced_and_torch_agree(kind: str) -> None:
    traced = sa.simulate_chain(Described(0.5, kind), V0, **RUN)
    with sa.eager():
        eager = sa.simulate_chain(Described(0.5, kind), V0, **RUN)
    np.testing.assert_allclose(traced["V"], eager["V"], rtol=1e-12)


class WishartLimit(sa.Limit):
    """A limit that asks for something else than increments."""

    def factor_noise(self, p: Any, factor: Any, numbers: Any) -> Any:
        return factor @ numbers.wishart("wrong", 3, 10)


@dataclass(frozen=True)
class DrivenByWishart(Described):
    limit = WishartLimit()


def test_a_limit_has_increments_alone() -> None:
    layer = DrivenByWishart(0.5, "twice")
    run = {"horizon": 0.1, "step": 0.05, "samples": 2, "progress": False}
    message = "^a limit is driven by Brownian increments alone: numbers.normal is needed$"
    with pytest.raises(ValueError, match=message):
        sa.integrate_sde(layer, V0, **run)
    with sa.eager(), pytest.raises(ValueError, match=message):
        sa.integrate_sde(layer, V0, **run)
    with pytest.raises(ValueError, match=message):
        sa.diffusion(layer, V0)
