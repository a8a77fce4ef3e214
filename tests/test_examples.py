"""The worked examples of CONTRIBUTING.md have their laws."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

import shaped_attention as sa
from shaped_attention.numerics.primitives import constant, tanh
from tests.example_biased import BiasedAttention
from tests.example_gelu import GeluMLP
from tests.example_linear import Linear
from tests.laws import same_law

BIAS = np.array([[0.0, -0.5, -1.0], [0.7, 0.0, -0.5], [1.0, 0.3, 0.0]])
V0 = sa.equicorrelated(3, 0.2, 1.3)


@dataclass(frozen=True)
class Tanh(GeluMLP):
    """A wrong twin: another activation in the chain."""

    def activation(self, x):
        return tanh(x)


@dataclass(frozen=True)
class FlatCentre(BiasedAttention):
    """A wrong twin: 1/m is subtracted in the place of softmax(B)."""

    def attend(self, scores, values):
        w = constant(softmax(BIAS, axis=1) - 1 / 3, like=scores)
        return super().attend(scores, values) + w @ values


EXAMPLES = {
    "gelu": (GeluMLP(0.5), Tanh(0.5)),
    "biased": (BiasedAttention(0.6, 0.8, BIAS), FlatCentre(0.6, 0.8, BIAS)),
}
"""Blocks and their wrong twins."""


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_chain_has_the_law_of_networks(name):
    """KS of every observable, 3000 samples; the chain of a wrong twin is rejected."""
    (block, wrong), size = EXAMPLES[name], {"width": 8, "depth": 8, "samples": 3000}
    network = sa.simulate_network(block, V0, seed=1, **size)
    assert same_law(network, sa.simulate_chain(block, V0, seed=2, **size))
    assert not same_law(network, sa.simulate_chain(wrong, V0, seed=2, **size))


def test_a_schedule_moves_the_logarithm_of_the_determinant_where_it_says():
    """E log det V falls at the exact rate k m (m + 1) / 2, k = gamma^2 (2 - gamma^2) on the way.

    Nothing moves while gamma is 0. 4000 samples: the standard error is 0.01, and the mean of gamma
    would be off by 0.3.
    """
    layer = Linear(sa.Schedule([(0.0, 0.0), (0.5, 0.0), (1.0, 1.0)]))
    result = sa.integrate_sde(
        layer,
        V0,
        horizon=0.5,
        step=1 / 200,
        samples=4000,
        seed=3,
        times=[0.25, 0.5],
        progress=False,
    )
    np.testing.assert_allclose(result.V[0], np.broadcast_to(V0, (4000, 3, 3)), atol=1e-14)
    moved = np.linalg.slogdet(result.V.values[-1])[1] - np.linalg.slogdet(V0)[1]
    g = np.maximum(2.0 * np.arange(100) / 100 - 1.0, 0.0)
    expected = -6.0 * 0.5 * (g**2 * (2 - g**2)).mean()
    error = moved.std() / len(moved) ** 0.5
    assert abs(moved.mean() - expected) < 5 * error + 0.02
    assert abs(moved.mean() + 6.0 * 0.5 * 0.25**2 * (2 - 0.25**2)) > 5 * error + 0.1


def test_the_guide_shows_the_example_as_it_is():
    """The code in CONTRIBUTING.md runs, and its block has the bits of the file's."""
    guide = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    code = guide.split("```python\n")[1].split("```")[0]
    names: dict[str, object] = {"__name__": __name__}
    exec(compile(code, "guide", "exec"), names)
    size = {"width": 12, "depth": 4, "samples": 20, "progress": False}
    shown, file = (sa.simulate_chain(x(0.5), V0, **size) for x in (names["GeluMLP"], GeluMLP))
    np.testing.assert_array_equal(shown.V, file.V)
