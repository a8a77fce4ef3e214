"""Functions of single entries give torch's values to rounding, on every executor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import shaped_attention as sa
from shaped_attention.numerics import primitives
from shaped_attention.numerics.graph import Graph
from shaped_attention.numerics.program import Program, assemble
from shaped_attention.rows.step import State
from shaped_attention.samplers.steppers import blas
from tests.emitted import run_alone, run_program
from tests.laws import with_state

Array = NDArray[np.float64]
ROWS = 3000
ROUNDING = 8 * 2.0**-52
"""Torch's functions and ours are each within 4 units in the last place of the exact value."""


def program_of(name: str) -> Program:
    graph = Graph()
    entry = graph.node("input", (), (ROWS, 1))
    return assemble(graph, [entry], [getattr(primitives, name)(entry)])


def emitted(name: str, x: Array) -> Array:
    return run_program(program_of(name), x.reshape(64, ROWS, 1))[0].reshape(-1)


def by_library(name: str, x: Array) -> Array:
    return run_alone(program_of(name), x.reshape(64, ROWS, 1))[0].reshape(-1)


EXECUTORS = pytest.mark.parametrize("executor", [emitted, by_library])
RANGES = {
    "exp": [(-708.0, 709.78), (-1.0, 1.0)],
    "tanh": [(-0.6, 0.6), (0.0, 1e-9), (-25.0, 25.0)],
    "softplus": [(-1.0, 1.0), (-50.0, 50.0), (-708.0, 708.0)],
}


@pytest.mark.portability
@EXECUTORS
@pytest.mark.parametrize("name", RANGES)
def test_values_are_those_of_torch(name: str, executor: Callable[[str, Array], Array]) -> None:
    """In the relative sense, also where a difference of exponentials would cancel."""
    for start, stop in RANGES[name]:
        x = np.random.default_rng(0).uniform(start, stop, ROWS * 64)
        expected = getattr(primitives, name)(torch.from_numpy(x)).numpy()
        np.testing.assert_allclose(executor(name, x), expected, rtol=ROUNDING, atol=0.0)


@pytest.mark.portability
@EXECUTORS
@pytest.mark.parametrize("name", RANGES)
def test_no_argument_is_clamped(name: str, executor: Callable[[str, Array], Array]) -> None:
    """At both ends of the doubles; the smallest are whole multiples of 2^-1074."""
    ends = [-np.inf, -1e300, -745.2, -740.0, -720.0, 0.0, 709.78, 709.79, 720.0, 1e300, np.inf]
    x = np.resize([*ends, np.nan], ROWS * 64)
    expected = getattr(primitives, name)(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(executor(name, x), expected, rtol=ROUNDING, atol=5e-324)


@dataclass(frozen=True)
class Curved(sa.Block):
    """A chain whose next factor is a function of every entry of the last."""

    gamma: float
    kind: str

    def branch(self, p: Any, tokens: Any, project: Any) -> Any:
        return 0.0 * tokens

    def step(self, p: Any, state: State, numbers: Any, width: int) -> State:
        return State(tuple(CURVES[self.kind](factor) for factor in state.factors))


CURVES: dict[str, Callable[[Any], Any]] = {
    "overflow": lambda factor: 1e-300 * primitives.exp(709.0 * factor),  # entries up to 1e8
    "zero": lambda factor: 1e9 * primitives.tanh(1e-9 * factor),
}


@pytest.mark.portability
@pytest.mark.parametrize("large", [2, 96])
@pytest.mark.parametrize("kind", CURVES)
def test_descriptions_that_use_them(kind: str, large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries of the factor of V are those of torch, not only those of V."""
    monkeypatch.setattr(blas, "FEWEST_LARGE_TOKENS", large)

    def factors() -> Array:
        _, states = with_state(
            lambda: sa.simulate_chain(
                Curved(0.5, kind), sa.equicorrelated(3, 0.2), width=8, depth=1, samples=3,
                radius=1e30, progress=False,
            )
        )  # fmt: skip
        return states

    ours = factors()
    with sa.eager():
        np.testing.assert_allclose(ours, factors(), rtol=ROUNDING, atol=0.0)
