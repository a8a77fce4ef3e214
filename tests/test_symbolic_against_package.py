"""`shaped_attention.drift` and `diffusion` against the machine derivation.

The package's formulas were written by hand in torch; the functions here come from the recursion
alone. Agreement to rounding at random V is asked for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import shaped_attention as sa
import symbolic as sy
from symbolic.activations import GatedMLP, SmoothMLP

SIGMOID = 1.0 / (1.0 + np.exp(-0.5))
BEND = SIGMOID * (1.0 - SIGMOID)
SILU = 0.5 * SIGMOID, SIGMOID + 0.5 * BEND, 2.0 * BEND + 0.5 * BEND * (1.0 - 2.0 * SIGMOID)
"""The function and two derivatives at 1/2."""

PAIRS: list[tuple[Any, Any, dict[str, float]]] = [
    (sa.ShapedAttention(gamma=0.6, tau0=0.7), sy.ShapedAttention(), {"gamma": 0.6, "tau_0": 0.7}),
    (
        sa.ShapedAttention(gamma=0.6, tau0=0.7, mask="causal", output_projection=True),
        sy.ShapedAttention(mask="causal", output_projection=True),
        {"gamma": 0.6, "tau_0": 0.7},
    ),
    (
        sa.ShapedAttention(gamma=0.6, tau0=0.7, heads=3),
        sy.ShapedAttention(heads=3),
        {"gamma": 0.6, "tau_0": 0.7},
    ),
    (
        sa.ShapedAttention(gamma=0.6, heads=2, mask="causal", query_bias=0.8, key_bias=0.3),
        sy.ShapedAttention(heads=2, mask="causal", query_bias="s_Q", key_bias="s_K"),
        {"gamma": 0.6, "tau_0": 1.0, "s_Q": 0.8, "s_K": 0.3},
    ),
    (
        sa.ShapedMLP(gamma=0.4, c_plus=0.3, c_minus=-1.0),
        sy.ShapedMLP(),
        {"gamma": 0.4, "c_plus": 0.3, "c_minus": -1.0},
    ),
    (
        [sa.ShapedAttention(gamma=0.6, tau0=0.7), sa.ShapedMLP(gamma=0.6, c_plus=0.3)],
        [sy.ShapedAttention(), sy.ShapedMLP()],
        {"gamma": 0.6, "tau_0": 0.7, "c_plus": 0.3, "c_minus": -1.0},
    ),
    (
        sa.ShapedMLP(0.6, activation="tanh", scale=0.7),
        SmoothMLP(),
        {"gamma": 0.6, "a": 0.7, "p_2": 0.0, "p_3": -2.0},
    ),
    (
        sa.ShapedMLP(0.6, activation="silu", scale=0.7),
        SmoothMLP(),
        {"gamma": 0.6, "a": 0.7, "p_2": 1.0, "p_3": 0.0},
    ),
    (
        sa.ShapedMLP(0.6, activation="silu", gated=True, scale=0.7, gate_bias=0.5),
        GatedMLP(),
        {"gamma": 0.6, "a": 0.7, "r_1": SILU[1] / SILU[0], "r_2": SILU[2] / SILU[0]},
    ),
]


def random_covariances(tokens: int) -> np.ndarray:
    factor = np.random.default_rng(5).normal(size=(7, tokens, tokens + 1))
    return factor @ factor.swapaxes(1, 2) / tokens


@pytest.mark.parametrize("tokens", [1, 2, 3, 4])
@pytest.mark.parametrize(("ours", "derived", "values"), PAIRS)
def test_drift_and_diffusion(
    ours: Any, derived: Any, values: dict[str, float], tokens: int
) -> None:
    v = random_covariances(tokens)
    limit = sy.derive(derived, tokens)
    for functions, array in ((limit.to_numpy, v), (limit.to_torch, torch.from_numpy(v))):
        drift, diffusion = functions(**values)
        np.testing.assert_allclose(drift(array), sa.drift(ours, v), rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(diffusion(array), sa.diffusion(ours, v), rtol=1e-11, atol=1e-12)


def test_a_small_error_would_be_seen() -> None:
    """Negative control: tau_0 off by 1e-6."""
    v = random_covariances(3)
    drift, _ = sy.derive(sy.ShapedAttention(), 3).to_numpy(gamma=0.6, tau_0=0.7 * (1 + 1e-6))
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(
            drift(v), sa.drift(sa.ShapedAttention(gamma=0.6, tau0=0.7), v), rtol=1e-11, atol=1e-12
        )
