"""Drift and diffusion: symmetries, kernels of the MLP, the flow of a step, gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from shaped_attention import (
    ShapedAttention,
    ShapedMLP,
    diffusion,
    drift,
    equicorrelated,
)
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.numerics.primitives import cholesky
from shaped_attention.samplers.steps import flowed

GAMMA, TAU = 0.6, 0.8
ATTENTION = ShapedAttention(GAMMA, TAU)
MLP = ShapedMLP(GAMMA, 0.3, -1.0)


def random_covariances(tokens: int, count: int = 4, seed: int = 0) -> np.ndarray:
    x = np.random.default_rng(seed).standard_normal((count, tokens, tokens + 2))
    return x @ x.swapaxes(-1, -2) / (tokens + 2)


@pytest.mark.portability
def test_equal_tokens_have_no_drift_and_no_attention_noise():
    v = np.full((4, 4), 1.3)
    np.testing.assert_allclose(drift([ATTENTION, MLP], v), 0.0, atol=1e-14)  # rounding of sums
    k = GAMMA**2 * (2 - GAMMA**2)
    np.testing.assert_allclose(diffusion(ATTENTION, v), 2 * k * 1.3**2, rtol=1e-12)


def test_mlp_drift_is_the_limit_of_the_exact_kernel():
    """n (c E[s(g_a) s(g_b)] - rho) of the closed form at n = 10^8, against nu(rho)."""
    for rho in (-0.9, -0.2, 0.0, 0.5, 0.95):
        plus, minus = MLP.slopes(at_depth(MLP, 0.0), 10**8)
        nonlinear = (math.sqrt(1 - rho**2) - rho * math.acos(rho)) / (2 * math.pi)
        exact = 2 * (plus - minus) ** 2 / (plus**2 + minus**2) * nonlinear
        value = drift(MLP, equicorrelated(2, rho))[0, 1] / GAMMA**2
        assert value == pytest.approx(1e8 * exact, rel=3e-4)


@pytest.mark.parametrize("rho", [-0.7, 0.0, 0.3, 0.9])
def test_finite_width_kernel_of_the_mlp(rho):
    """c E[s(g_a) s(g_b)] at n = 4, by quadrature over the angle, against the closed form.

    The activation is homogeneous and E |g|^2 = 2, so only the mean over the angle is left. A
    variant with (s_+ + s_-)^2 is rejected.
    """
    angle = (np.arange(200_000) + 0.5) * (2 * np.pi / 200_000)
    g = torch.tensor(np.stack([np.cos(angle), np.cos(angle - math.acos(rho))]))
    s = MLP.activated(at_depth(MLP, 0.0), g, 4).numpy()
    numeric = 2.0 / MLP.mean_square(4) * (s[0] * s[1]).mean()
    plus, minus = MLP.slopes(at_depth(MLP, 0.0), 4)
    nonlinear = (math.sqrt(1 - rho**2) - rho * math.acos(rho)) / (2 * math.pi)
    exact = rho + 2 * (plus - minus) ** 2 / (plus**2 + minus**2) * nonlinear
    assert numeric == pytest.approx(exact, abs=1e-8)
    wrong = rho + 2 * (plus + minus) ** 2 / (plus**2 + minus**2) * nonlinear
    assert abs(numeric - wrong) > 1e-3


def test_blocks_of_a_layer_add():
    v = random_covariances(3)
    np.testing.assert_allclose(
        drift([ATTENTION, MLP], v), drift(ATTENTION, v) + drift(MLP, v), rtol=1e-13
    )
    np.testing.assert_allclose(
        diffusion([ATTENTION, MLP], v), diffusion(ATTENTION, v) + diffusion(MLP, v), rtol=1e-13
    )


@pytest.mark.parametrize("layer", [MLP, ShapedAttention(GAMMA, TAU, mask="causal", query_bias=0.3)])
def test_a_step_of_the_flow_keeps_v_positive_and_has_its_drift(layer):
    """(flow(V, h) - V) / h -> growth - decay V, and no eigenvalue turns negative at any step."""
    v = torch.tensor(random_covariances(4))
    pairs = [(layer.limit, at_depth(layer, 0.0))]
    limit, p = pairs[0]
    rate = limit.growth(p, v) - limit.decay(p) * v
    root = flowed(pairs, torch.linalg.cholesky(v), 1e-6)
    np.testing.assert_allclose((root @ root.mT - v) / 1e-6, rate, atol=1e-5)
    singular = torch.ones(1, 4, 4, dtype=torch.float64)
    for step in (0.1, 1.0, 10.0):
        moved = flowed(pairs, cholesky(singular), step)
        assert bool(torch.isfinite(moved).all())


@pytest.mark.parametrize("start", ["random", "two equal tokens", "two opposite tokens"])
@pytest.mark.parametrize(
    "layer",
    [[ATTENTION, MLP], ShapedAttention(0.6, mask="causal", query_bias=0.5)],
    ids=["both", "causal"],
)
@pytest.mark.parametrize("function", [drift, diffusion])
def test_gradients_are_those_of_finite_differences(function, layer, start):
    """Central differences in tokens, to 1e-5; at equal tokens the MLP's are numbers too."""
    x = torch.tensor(np.random.default_rng(3).normal(size=(3, 5)))
    if start != "random":
        x[1] = x[0] if start == "two equal tokens" else -x[0]
    g = torch.tensor(np.random.default_rng(4).normal(size=(3, 5)))
    weights = torch.tensor(np.random.default_rng(5).normal(size=(6, 6)))

    def value(t):
        moved = x + t * (g if start == "random" else torch.ones(3, 1) * g[:1] * x.sign())
        out = function(layer, moved @ moved.mT / 5)
        return (out * weights[: out.shape[-1], : out.shape[-1]]).sum()

    t = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(value(t), t)
    h = 1e-5
    numeric = float(value(torch.tensor(h)) - value(torch.tensor(-h))) / (2 * h)
    assert float(slope) == pytest.approx(numeric, rel=1e-5, abs=1e-6)
