"""What a description may be: traced once into a program, run eagerly, explained or refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention.numerics.primitives import (
    constant,
    lower,
)
from shaped_attention.rows.step import State
from tests.own_roots import OwnRoot
from tests.test_executors import assert_executors_agree

V0 = sa.equicorrelated(3, 0.2)
RUN: dict[str, Any] = {"width": 8, "depth": 2, "samples": 3, "progress": False}
BOTH = [sa.ShapedAttention(0.5, mask="causal"), sa.ShapedMLP(0.4)]


@dataclass(frozen=True)
class Described(OwnRoot, sa.Block):
    """A block for tests, whose root is one of those below."""

    gamma: float
    kind: str

    def branch(self, p: Any, tokens: Any, project: Any) -> Any:
        return project(tokens, tokens.shape[-1]) / tokens.shape[-1] ** 0.5

    def root(self, p: Any, factor: Any, numbers: Any, width: int) -> Any:
        return ROOTS[self.kind](factor, p)


def _twice(factor: Any, p: Any) -> Any:
    """A triangular factor of a matrix that is used again, and of the state itself."""
    wide = factor + 0.1 * (factor @ factor)
    return 0.5 * lower(wide) + 0.5 * wide + 0.1 * lower(factor)


ROOTS: dict[str, Callable[[Any, Any], Any]] = {
    "array": lambda factor, p: np.eye(3) @ factor,
    "torch": lambda factor, p: torch.relu(factor),
    "entries": lambda factor, p: factor if factor > 0 else -factor,
    "value": lambda factor, p: factor if p.gamma == 0.5 else 2.0 * factor,
    "twice": _twice,
}


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("array", r"TypeError: .*ndarray; primitives.constant\(array, like=matrix\)"),
        ("torch", "TypeError: .*must be Tensor, not Matrix"),
        ("entries", "TypeError: a description may branch on sizes, never on entries of a matrix"),
        ("value", "a description may branch on sizes and on the fields of its block, never on a"),
    ],
)
def test_what_cannot_be_traced(kind: str, reason: str) -> None:
    message = f"^layer contains Described, whose description cannot be traced .*{reason}.*sa.eager"
    with pytest.raises(ValueError, match=message):
        sa.simulate_chain(Described(0.5, kind), V0, **RUN)
    assert "cannot be traced into a program" in sa.explain(Described(0.5, kind)).chain


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


LAYERS: dict[str, Any] = {
    "twice": Described(0.5, "twice"),
    "a factor that is not triangular": sa.Pattern([sa.ShapedAttention(0.5), Turned(0.5, "")]),
    "swapped groups after heads": [sa.ShapedAttention(0.5, heads=2), Swapped(0.5, "")],
}


@pytest.mark.parametrize("name", LAYERS)
def test_descriptions_of_ones_own(name: str) -> None:
    run = RUN | {"depth": 4}
    assert_executors_agree(lambda: sa.simulate_chain(LAYERS[name], V0, **run))


def test_explain_names_what_runs_a_layer() -> None:
    found = sa.explain(BOTH)
    assert found.network == "torch, with real weight matrices"
    assert found.chain == found.limit == "compiled code on the CPU, torch otherwise"
    assert str(found).splitlines()[1] == f"chain    {found.chain}"
    assert sa.explain(BOTH, tokens=96).chain.startswith("BLAS and LAPACK on the")
    with sa.eager():
        assert sa.explain(BOTH).chain == "torch, as requested by shaped_attention.eager()"
    with pytest.raises(ValueError, match="tokens"):
        sa.explain(BOTH, tokens=0)


@pytest.mark.parametrize(
    ("layer", "face", "words"),
    [
        (sa.ShapedAttention(0.5, centring=False), "limit", "by order 1, not 1/n"),
        (sa.Normalised(sa.ShapedAttention(0.5, heads=8), norm="layer"), "chain", "LayerNorm"),
        (sa.ShapedAttention(0.5, heads=3), "chain", "must be a multiple of heads=3; got 8"),
    ],
)
def test_what_is_missing_has_its_reason(layer: Any, face: str, words: str) -> None:
    """Those of a block, and of a layer with a complete block besides."""
    for asked in (layer, [sa.ShapedMLP(0.4), layer]):
        text = getattr(sa.explain(asked, width=8), face)
        assert text.startswith("none: ")
        assert words in text
