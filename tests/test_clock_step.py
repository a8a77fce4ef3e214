"""A step of the clock against the law of one token, over the layers of a pattern, at a barrier."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

import shaped_attention as sa
from shaped_attention import ShapedAttention, ShapedMLP
from shaped_attention.blocks.base import blocks_of
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.numerics.primitives import Numbers
from shaped_attention.samplers import clock_step, steppers
from shaped_attention.samplers.steppers import compiled
from shaped_attention.samplers.steps import Parts

GAMMA = 0.5
K = GAMMA**2 * (2.0 - GAMMA**2)
"""Linear rate of attention, which is linear for one token."""


class Given(Numbers):
    """Normals that are given, the same for all entries."""

    def __init__(self, values):
        self.values = values

    def normal(self, name, rows, columns, head=0):
        return self.values * torch.ones((rows, columns), dtype=torch.float64)


def test_a_step_has_the_moments_of_the_law_to_the_second_order():
    """One token: log F ~ N(-k dt / 2, k dt / 2), so E F^q = exp((q^2 / 4 - q / 2) k dt).

    By quadrature at k dt = 1/500, to within 2 (k dt)^3; Euler's drift is off by (k dt)^2 / 32.
    """
    block, kdt = ShapedAttention(GAMMA), 2e-3
    z, weights = np.polynomial.hermite_e.hermegauss(20)
    numbers = Given(torch.from_numpy(z[:, None, None]))
    new = clock_step.clock_step(
        Parts.of([[block]], [[at_depth(block, 0.0)]]),
        torch.ones((20, 1, 1), dtype=torch.float64),
        torch.full((1, 1), kdt / K, dtype=torch.float64),
        lambda place: numbers,
    )
    for q in (1, 2, 4):
        found = weights @ new[:, 0, 0].numpy() ** q / weights.sum()
        assert abs(found - math.exp((0.25 * q**2 - 0.5 * q) * kdt)) < 2.0 * kdt**3


@pytest.mark.parametrize(
    "layer", [ShapedMLP(0.5), [ShapedAttention(0.6, 0.5, mask="causal"), ShapedMLP(0.5)]]
)
def test_layers_of_a_pattern_share_the_time(layer):
    """Equal layers have the speed and spread of one, and its step where the noise is zero."""
    blocks = blocks_of(layer)
    factor = torch.from_numpy(np.random.default_rng(3).normal(size=(4, 4)))
    parameters = [at_depth(block, 0.0) for block in blocks]
    step = torch.full((1, 1), 1e-3, dtype=torch.float64)
    numbers = Given(torch.zeros((1, 1), dtype=torch.float64))

    def found(count):
        parts = Parts.of([blocks] * count, [parameters] * count)
        return (
            clock_step.clock_speed(parts, factor),
            clock_step.norm_spread(parts, factor),
            clock_step.clock_step(parts, factor, step, lambda place: numbers),
        )

    for one, three in zip(found(1), found(3), strict=True):
        torch.testing.assert_close(three, one, rtol=1e-12, atol=1e-12)


def test_the_barrier_is_moved_by_what_a_path_passes_between_steps(monkeypatch):
    """One token: the maximum of a geometric Brownian motion, by the reflection principle.

    100,000 paths of 20 steps, within 4 standard errors of 1.1 %; half of the shift is 13 % off.
    """
    horizon, b = 0.5, 1.0
    kt = K * horizon
    s = math.sqrt(2.0 * kt)
    exact = stats.norm.cdf((-b - kt) / s) + math.exp(-b) * stats.norm.cdf((-b + kt) / s)

    def apart():
        result = sa.integrate_sde(
            ShapedAttention(GAMMA), np.eye(1), horizon=horizon, step=horizon / 20,
            samples=100_000, seed=5, radius=math.exp(b), method="clock",
        )  # fmt: skip
        found = float(np.isfinite(result.stopping_time).mean())
        return (found - exact) / math.sqrt(exact * (1.0 - exact) / 100_000)

    assert abs(apart()) < 4.0
    monkeypatch.setattr(compiled, "SHIFT", 0.5 * steppers.SHIFT)
    assert apart() < -8.0
