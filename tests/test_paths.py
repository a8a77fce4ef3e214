"""Few tokens by library routines: the paths of the torch executor, with the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import shaped_attention as sa
from shaped_attention.numerics.graph import Graph
from shaped_attention.numerics.program import assemble
from shaped_attention.numerics.threads import Team
from shaped_attention.samplers.paths import Paths
from shaped_attention.samplers.specification import specify
from shaped_attention.samplers.steppers.blas import BlasStepper
from shaped_attention.samplers.steppers.torch_descriptions import DescriptionStepper
from tests.emitted import run_alone
from tests.test_large import CHAINS

Array = NDArray[np.float64]

MORE = {
    "gelu": sa.ShapedMLP(0.5, activation="gelu", hidden_ratio=2.5, skip=1.0),
    "gated": sa.ShapedMLP(0.5, activation="silu", gated=True, hidden=333, skip=1.0),
    "softplus": sa.ShapedMLP(0.5, activation="softplus", scale=1.0),
    "tanh": sa.ShapedMLP(0.5, activation="tanh", scale=1.0, gated=True, gate_bias=0.3),
    "rope": sa.ShapedAttention(
        0.5, 0.7, heads=4, key_size=8, rope=1e4, kv_heads=2, output_projection=True
    ),
    "qk norm": sa.ShapedAttention(0.5, 0.7, heads=4, key_size=8, qk_norm="head"),
    "parallel": sa.Parallel([sa.ShapedAttention(0.5, 0.7), sa.ShapedMLP(0.4)]),
    "softcap": sa.ShapedAttention(0.5, 0.7, softcap=3.0, mask="causal"),
}
LAYERS: dict[str, Any] = CHAINS | MORE


def both_of(layer: Any, v0: Array, width: int, depth: int = 3) -> tuple[Paths, Paths]:
    """Return samples 5 and 6 of the same run by library routines, and in torch."""
    spec = specify(
        layer, v0, width=width, steps=depth, dt=1.0 / width, samples=2, seed=3,
        radius=1e9,
    )  # fmt: skip
    steppers = BlasStepper(spec), DescriptionStepper(spec, size=1)
    fast, slow = (Paths(stepper, 5, 2) for stepper in steppers)
    return fast, slow


def assert_same_paths(fast: Paths, slow: Paths, tolerance: float = 1e-12) -> None:
    for paths in (fast, slow):
        while paths.behind(paths.spec.steps):
            paths.advance(paths.spec.steps)
    ours, theirs = fast.covariances(), slow.covariances()
    assert np.isfinite(theirs).all()
    np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=tolerance * np.abs(theirs).max())
    np.testing.assert_array_equal(fast.stopping_times(), slow.stopping_times())


@pytest.mark.portability
@pytest.mark.parametrize("tokens", [1, 5, 16])
@pytest.mark.parametrize("name", LAYERS)
def test_chain(name: str, tokens: int) -> None:
    """Odd numbers of tokens too: a pair of normals then belongs to two hidden units."""
    v0 = sa.equicorrelated(tokens, 0.2, 1.3) if tokens > 1 else np.full((1, 1), 1.3)
    fast, slow = both_of(LAYERS[name], v0, 64)
    assert_same_paths(fast, slow)


STARTS = {
    "repeated tokens": np.kron(sa.equicorrelated(4, 0.2), np.ones((2, 2))),
    "rank 1": np.outer(np.arange(1.0, 9.0), np.arange(1.0, 9.0)) / 20.0,
    "a zero token": sa.equicorrelated(8, 0.2) * np.outer(np.arange(8) != 3, np.arange(8) != 3),
    "only zero tokens": np.zeros((8, 8)),
}


@pytest.mark.portability
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("name", ["attention", "heads", "mlp", "before", "layer norm"])
def test_singular_starts(name: str, start: str) -> None:
    """A nearly singular factor magnifies rounding: compiled code differs from torch by as much."""
    fast, slow = both_of(LAYERS[name], STARTS[start], 40)
    assert_same_paths(fast, slow, tolerance=1e-11)


def test_more_hidden_units_than_a_tile_or_a_part() -> None:
    """5,000 units in parts of whole blocks, the last of which is not full."""
    fast, slow = both_of(sa.ShapedMLP(0.7, 0.3, -6.0), sa.equicorrelated(16, 0.2), 5000, 1)
    assert_same_paths(fast, slow)


def test_an_activation_that_changes_with_depth() -> None:
    """The slopes of a ReLU follow a schedule: those of the first layer would give other paths."""
    rising = sa.Schedule([(0.0, -6.0), (1.0, 6.0)])
    layer = sa.ShapedMLP(0.7, rising, -1.0)
    fast, slow = both_of(layer, sa.equicorrelated(5, 0.2), 40)
    assert_same_paths(fast, slow)


@pytest.mark.parametrize("tokens", [3, 100])
def test_a_result_may_be_a_constant_or_there_twice(tokens: int) -> None:
    states, graph = np.random.default_rng(2).normal(size=(3, tokens, tokens)), Graph()
    x = graph.node("input", (), (tokens, tokens))
    double, entries = 2.0 * x, np.arange(4.0).reshape(2, 2)
    program = assemble(graph, [x], [graph.constant(entries), double, double])
    for result, expected in zip(
        run_alone(program, states), ([entries] * 3, 2.0 * states, 2.0 * states), strict=True
    ):
        np.testing.assert_array_equal(result, expected, strict=True)


@pytest.mark.portability
@pytest.mark.parametrize("tokens", [5, 97])
def test_a_team_does_not_change_a_sample(tokens: int) -> None:
    layer = [
        sa.ShapedAttention(0.5, 0.7, heads=4, key_size=8, rope=1e4, output_projection=True),
        sa.ShapedMLP(0.5, activation="silu", gated=True, hidden=20_000, skip=1.0),
    ]
    paths, _ = both_of(layer, sa.equicorrelated(tokens, 0.2), 128, 1)
    assert isinstance(paths.stepper, BlasStepper)
    (plan,) = paths.stepper.plans
    (alone,), (shared,) = (plan.run(paths.state[0], 5, 0, team=Team(k)) for k in (1, 3))
    np.testing.assert_array_equal(alone, shared)
