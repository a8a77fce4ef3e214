"""Tracing a description: what is shared, what is broadcast, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention.numerics.graph import Graph, Matrix
from shaped_attention.numerics.primitives import column_sums, constant, lower, row_squares
from shaped_attention.numerics.scalars import Scalar
from shaped_attention.rows.step import State
from tests.own_roots import OwnRoot

V0 = sa.equicorrelated(3, 0.2)
RUN: dict[str, Any] = {"width": 8, "depth": 2, "samples": 3, "progress": False}


def assert_executors_agree(layer: Any, tolerance: float = 1e-12, **run: Any) -> None:
    traced = sa.simulate_chain(layer, V0, **{**RUN, **run})
    with sa.eager():
        eager = sa.simulate_chain(layer, V0, **{**RUN, **run})
    np.testing.assert_allclose(traced["V"], eager["V"], rtol=tolerance)


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
class Described(OwnRoot, sa.Block):
    """A block for tests, whose root is one of those below."""

    gamma: float
    kind: str

    def branch(self, p: Any, tokens: Any, project: Any) -> Any:
        return project(tokens, tokens.shape[-1]) / tokens.shape[-1] ** 0.5

    def root(self, p: Any, factor: Any, numbers: Any, width: int) -> Any:
        return ROOTS[self.kind](factor)


def _broadcast(factor: Any) -> Any:
    """A column with a row, in sums, products and quotients."""
    column, row = row_squares(factor), column_sums(factor)
    outer = (column + row) * (column - 2.0 * row)
    return factor + 0.1 * outer + 0.1 * (column / (1.0 + row * row))


def _twice(factor: Any) -> Any:
    """A triangular factor of a matrix that is used again, and of the state itself."""
    wide = factor + 0.1 * (factor @ factor)
    return 0.5 * lower(wide) + 0.5 * wide + 0.1 * lower(factor)


ROOTS: dict[str, Callable[[Any], Any]] = {
    "array": lambda factor: np.eye(3) @ factor,
    "added": lambda factor: factor + np.ones((3, 3)),
    "torch": torch.relu,
    "entries": lambda factor: factor if factor > 0 else -factor,
    "numbers": lambda factor: factor * (1.0 + factor) + 1.0 / (2.0 + factor * factor),
    "broadcast": _broadcast,
    "twice": _twice,
}


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("array", r"TypeError: .*ndarray; primitives.constant\(array, like=matrix\)"),
        ("added", r"TypeError: .*ndarray; primitives.constant\(array, like=matrix\)"),
        ("torch", "TypeError: .*must be Tensor, not Matrix"),
        ("entries", "TypeError: a description may branch on sizes, never on entries of a matrix"),
    ],
)
def test_what_cannot_be_traced(kind: str, reason: str) -> None:
    message = f"^layer contains Described, whose description cannot be traced .*{reason}.*sa.eager"
    with pytest.raises(ValueError, match=message):
        sa.simulate_chain(Described(0.5, kind), V0, **RUN)


@pytest.mark.parametrize("kind", ["numbers", "broadcast", "twice"])
def test_traced_and_torch_agree(kind: str) -> None:
    assert_executors_agree(Described(0.5, kind))


@dataclass(frozen=True)
class Compared(Described):
    """Its description depends on a parameter's value."""

    def root(self, p: Any, factor: Any, numbers: Any, width: int) -> Any:
        return factor if p.gamma == 0.5 else 2.0 * factor


@dataclass(frozen=True)
class WithParameter(Described):
    """A parameter to the left of a matrix, in each operation."""

    def root(self, p: Any, factor: Any, numbers: Any, width: int) -> Any:
        return factor * (p.gamma + factor) - (p.gamma - factor) * (
            p.gamma / (2.0 + factor * factor)
        )


def test_parameters_in_descriptions() -> None:
    """A trace serves all values of a parameter, so none can be asked for."""
    message = "a description may branch on sizes and on the fields of its block, never on a"
    with pytest.raises(ValueError, match=message):
        sa.simulate_chain(Compared(0.5, ""), V0, **RUN)
    assert_executors_agree(WithParameter(0.5, ""))


@dataclass(frozen=True)
class Turned(Described):
    """A step that is no residual step: V stays, but F = F Q is not triangular."""

    def step(self, p: Any, state: State, numbers: Any, width: int) -> State:
        turn = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
        return State(tuple(f @ constant(turn, like=f) for f in state.factors))


@dataclass(frozen=True)
class Swapped(Described):
    """Two groups of columns that change places."""

    groups = 2

    def step(self, p: Any, state: State, numbers: Any, width: int) -> State:
        return State(state.factors[::-1])


@pytest.mark.parametrize(
    "layer",
    [
        sa.Pattern([sa.ShapedAttention(0.5), Turned(0.5, "")]),
        [sa.ShapedAttention(0.5, heads=2), Swapped(0.5, "")],
        Swapped(0.5, ""),
    ],
    ids=["a layer whose factor is not triangular", "after heads", "swapped groups"],
)
def test_steps_that_are_no_residual_steps(layer: Any) -> None:
    assert_executors_agree(layer, 1e-11, depth=4)
