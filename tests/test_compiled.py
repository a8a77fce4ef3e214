"""The compiled faces of the blocks give the paths of the readable torch faces, to rounding."""

from __future__ import annotations

import numpy as np
import pytest

from shaped_attention import (
    ShapedAttention,
    ShapedMLP,
    equicorrelated,
    integrate_sde,
    simulate_chain,
    simulate_network,
)
from shaped_attention.ensemble import Ensemble
from tests.laws import same_law
from tests.user_block import Linear

MASK = np.array([[True, False, True], [True, True, False], [False, False, True]])
LAYERS = {
    "attention": ShapedAttention(0.5, 0.7),
    "mlp": ShapedMLP(0.5, 0.3, -1.0),
    "both": [ShapedAttention(0.35), ShapedMLP(0.35)],
    "linear mlp": ShapedMLP(0.5, 0.4, 0.4),
    "few keys": ShapedAttention(0.5, 0.7, key_size=2),
    "projection": ShapedAttention(0.5, 0.7, output_projection=True),
    "causal": ShapedAttention(0.5, 0.7, mask="causal"),
    "key bias": ShapedAttention(0.5, 0.7, key_bias=0.5),
    "mask": [ShapedAttention(0.5, 0.7, mask=MASK), ShapedMLP(0.4)],
}


def test_a_users_block_has_the_law_of_attention_without_scores():
    """KS, in all three samplers, against shaped attention at tau_0 = 10^9."""
    v0, known = equicorrelated(3, 0.2), ShapedAttention(0.5, 1e9)
    for run in (
        lambda layer, seed: simulate_network(layer, v0, width=8, depth=4, samples=3000, seed=seed),
        lambda layer, seed: simulate_chain(layer, v0, width=8, depth=4, samples=3000, seed=seed),
        lambda layer, seed: integrate_sde(
            layer, v0, horizon=0.5, step=0.05, samples=3000, seed=seed
        ),
    ):
        assert same_law(run(Linear(0.5), 1), run(known, 2))
        assert not same_law(run(Linear(0.7), 1), run(known, 2))


@pytest.fixture
def without_kernels(monkeypatch):
    """Run a function once as it is and once with compiled kernels forbidden."""

    def both(run):
        compiled = run()
        with monkeypatch.context() as patch:
            patch.setattr(Ensemble, "compiled_device", property(lambda self: False))
            return compiled, run()

    return both


@pytest.mark.parametrize("width", [3, 4, 5, 40])
@pytest.mark.parametrize("name", LAYERS)
def test_chain(name, width, without_kernels):
    v0 = equicorrelated(3, 0.2, 1.3)
    fast, slow = without_kernels(
        lambda: simulate_chain(LAYERS[name], v0, width=width, depth=6, samples=50, seed=2)
    )
    scale = np.abs(slow.V.values).max()
    np.testing.assert_allclose(fast.V.values, slow.V.values, atol=1e-8 * scale)
    if width == 40:
        np.testing.assert_allclose(fast.V.values, slow.V.values, atol=1e-12 * scale)


def test_chain_with_more_hidden_units_than_are_drawn_at_once(without_kernels):
    """150 units in groups of 64: those of one group are not those of the next."""
    fast, slow = without_kernels(
        lambda: simulate_chain(
            ShapedMLP(0.7, 0.3, -6.0),
            equicorrelated(3, 0.2),
            width=150,
            depth=3,
            samples=20,
            seed=2,
        )
    )
    np.testing.assert_allclose(fast.V.values, slow.V.values, atol=1e-12)


@pytest.mark.parametrize("tokens", [1, 2, 5])
@pytest.mark.parametrize("name", [name for name in LAYERS if name not in ("mask", "causal")])
def test_sde(name, tokens, without_kernels):
    v0 = equicorrelated(tokens, 0.2, 1.3)
    fast, slow = without_kernels(
        lambda: integrate_sde(LAYERS[name], v0, horizon=0.5, step=0.05, samples=50, seed=2)
    )
    scale = np.abs(slow.V.values).max()
    np.testing.assert_allclose(fast.V.values, slow.V.values, atol=1e-12 * scale)
    np.testing.assert_array_equal(fast.stopping_time, slow.stopping_time)


def test_sde_of_several_heads(without_kernels):
    """The chain of heads has no compiled face; its SDE has."""
    layer, v0 = [ShapedAttention(0.5, 0.7, heads=h) for h in (1, 3)], equicorrelated(3, 0.2, 1.3)
    fast, slow = without_kernels(
        lambda: integrate_sde(layer, v0, horizon=0.5, step=0.05, samples=50, seed=2)
    )
    np.testing.assert_allclose(fast.V.values, slow.V.values, atol=1e-12 * np.abs(slow.V).max())


@pytest.mark.parametrize("sampler", ["chain", "sde"])
def test_stopping(sampler, without_kernels):
    layer, v0 = ShapedAttention(0.6, 0.5), equicorrelated(4, 0.2, 2.0)
    runs = {
        "chain": lambda: simulate_chain(
            layer, v0, width=50, depth=50, samples=200, seed=2, radius=20.0
        ),
        "sde": lambda: integrate_sde(
            layer, v0, horizon=1.0, step=0.02, samples=200, seed=2, radius=20.0
        ),
    }
    fast, slow = without_kernels(runs[sampler])
    assert 0.05 < np.isfinite(slow.stopping_time).mean() < 0.95
    np.testing.assert_array_equal(fast.stopping_time, slow.stopping_time)
    np.testing.assert_allclose(fast.V.values, slow.V.values, rtol=1e-8, atol=1e-10)
