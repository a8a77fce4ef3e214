"""The integrator: torchsde's Euler scheme, its weak order, stopping and explosion."""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
import torch

from shaped_attention import (
    Pattern,
    Schedule,
    ShapedAttention,
    ShapedMLP,
    diffusion,
    drift,
    equicorrelated,
    integrate_sde,
    simulate_chain,
    vech,
)
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.numerics.named_numbers import Keys, TorchNumbers
from shaped_attention.numerics.primitives import Numbers
from shaped_attention.samplers.specification import Specification
from shaped_attention.samplers.steps import Parts, flowed, limit_step
from tests.laws import final, same_law

LAYER = [ShapedAttention(0.5, 0.7), ShapedMLP(0.4)]
V0 = equicorrelated(3, 0.2, 1.3)
FIXED_STEP = partial(pytest.warns, UserWarning, match="reached the radius with a fixed step")


def euler_by_hand(block, v0, horizon, steps, samples, seed):
    """Euler's scheme for dF of one head without a mask, path by path, from the formulas alone.

    With Z_1 symmetric, of variance 1 off and 2 on the diagonal, and Z_2 of independent entries,

        dF = F [ sqrt(k)/2 dZ_1 + gamma^2/(tau_0 m) dZ_2 (F^T C F) ]
             + [ -k(m+1)/8 + gamma^2 (1 - gamma^2) |P|^2/(2 tau_0^2 m^2) ] F dt
             + gamma^2/(2 m tau_0^2) q (s^T F) dt,

    C = I - 11^T/m, P = C V C, q = diag V, s = diag P - (tr P/m) 1. Yields V before every step.
    """
    gamma, tau0, m, h = block.gamma, block.tau0, len(v0), horizon / steps
    k = gamma**2 * (2 - gamma**2)
    centre = np.eye(m) - 1 / m
    keys, numbers = Keys(seed, "sde"), torch.arange(samples)
    pairs = [(i, j) for i in range(m) for j in range(i + 1)]
    paths = [np.linalg.cholesky(v0)] * samples
    for step in range(steps + 1):
        yield np.array([F @ F.T for F in paths])
        root = math.sqrt(h)
        common = root * TorchNumbers(keys, numbers, step).normal("linear", 1, len(pairs)).numpy()
        scores = root * TorchNumbers(keys, numbers, step, place=(0,)).normal("scores", m, m).numpy()
        for sample, (F, z2) in enumerate(zip(paths, scores, strict=True)):
            z1 = np.zeros((m, m))
            for (i, j), number in zip(pairs, common[sample, 0], strict=True):
                z1[i, j] = z1[j, i] = math.sqrt(2) * number if i == j else number
            v = F @ F.T
            p = centre @ v @ centre
            s = np.diag(p) - np.trace(p) / m
            noise = math.sqrt(k) / 2 * z1 + gamma**2 / (tau0 * m) * z2 @ F.T @ centre @ F
            rate = gamma**2 * (1 - gamma**2) * (p**2).sum() / (2 * tau0**2 * m**2)
            pull = gamma**2 / (2 * m * tau0**2) * np.outer(np.diag(v), s @ F)
            paths[sample] = F + F @ noise + h * ((rate - k * (m + 1) / 8) * F + pull)


@pytest.mark.portability
@pytest.mark.parametrize("compiled", [True, False])
def test_it_is_a_hand_written_euler_loop(compiled, monkeypatch):
    """The samplers' paths, compiled and in torch, are those of the formulas on their increments.

    To 1e-10 at every step; at a tau_0 of 0.71 instead of 0.7 they are not.
    """
    if not compiled:
        monkeypatch.setattr(Specification, "compiled_device", False)
    block, run = ShapedAttention(0.5, 0.7), {"horizon": 0.4, "samples": 8, "seed": 3}
    result = integrate_sde(block, V0, step=0.1, save_every=1, method="direct", **run)
    known = np.array(list(euler_by_hand(block, V0, steps=4, **run)))
    np.testing.assert_allclose(result["V"], known, rtol=1e-10, atol=1e-12)
    other = np.array(list(euler_by_hand(ShapedAttention(0.5, 0.71), V0, steps=4, **run)))
    assert np.abs(result["V"].values - other)[1:].max((1, 2, 3)).min() > 1e-4


@pytest.mark.portability
@pytest.mark.filterwarnings("ignore:method=.*reached the radius with a fixed step")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("radius", [None, 6.0])
@pytest.mark.parametrize(
    "layer",
    [
        LAYER,
        ShapedAttention(0.5, 0.7, mask="causal"),
        ShapedAttention(Schedule([(0, 0.2), (1, 0.6)])),
    ],
)
def test_torchsde_and_the_direct_method_give_the_same_bits(layer, radius, dtype):
    """Compiled and in torch, stopped or not, between save times or not."""
    common = {"horizon": 0.6, "step": 0.05, "samples": 80, "seed": 3, "radius": radius}
    runs = [
        integrate_sde(layer, V0, **common, method=method, dtype=dtype, times=[0.0, 0.2, 0.6])
        for method in ("torchsde", "direct")
    ]
    if radius is not None:
        assert 0 < np.isfinite(runs[0].stopping_time).sum() < 80
    np.testing.assert_array_equal(runs[0].V, runs[1].V)
    np.testing.assert_array_equal(runs[0].stopping_time, runs[1].stopping_time)


def mean_log_with_control(step: float, samples: int) -> tuple[float, float]:
    """E log V_T for m = 1 with Brownian motion as control variate, and its standard error."""
    block, horizon = ShapedAttention(0.8), 0.8
    k = block.limit.linear_rate(at_depth(block, 0.0))
    result = integrate_sde(block, np.eye(1), horizon=horizon, step=step, samples=samples, seed=4)
    keys, paths = Keys(4, "sde"), torch.arange(samples)
    steps = [TorchNumbers(keys, paths, i) for i in range(round(horizon / step))]
    total = math.sqrt(step) * sum(x.normal("linear", 1, 1)[:, 0, 0].numpy() for x in steps)
    exact = -k * horizon + math.sqrt(2 * k) * total
    x = np.log(final(result)[:, 0, 0]) - exact
    return float(x.mean()), float(x.std() / math.sqrt(samples))


def test_weak_order_one():
    """The error of E log V_T (m = 1, exact solution known) is proportional to the step.

    The exact solution driven by the same increments is the control variate, so 40,000 paths
    resolve an error of 1e-3. Halving the step halves the error, within 4 standard errors; a scheme
    of order 1/2 or an inconsistent one would not pass.
    """
    errors = {step: mean_log_with_control(step, 40_000) for step in (0.08, 0.04, 0.02)}
    for coarse, fine in ((0.08, 0.04), (0.04, 0.02)):
        (a, sa), (b, sb) = errors[coarse], errors[fine]
        assert abs(a) > 8 * sa
        # second-order terms: the ratio tends to 2 with corrections of order step
        assert abs(a - 2 * b) < 4 * math.hypot(sa, 2 * sb) + 2 * coarse * abs(a)
        assert abs(a) > 1.6 * abs(b)


class GivenNumbers(Numbers):
    """Increments (paths, count), in the order in which they are drawn."""

    def __init__(self, increments):
        self.left = increments

    def inside(self, index):
        return self

    def normal(self, name, rows, columns, head=0):
        drawn, self.left = self.left[:, : rows * columns], self.left[:, rows * columns :]
        return drawn.unflatten(1, (rows, columns))


def unit_steps(layers, F, count, step):
    """Drift and noise of F, divided by the step and for each unit increment."""
    parts = Parts.of([[x] for x in layers], [[at_depth(x, 0.0)] for x in layers])
    given = GivenNumbers(torch.eye(count, dtype=torch.float64))
    moved, noise = limit_step(parts, F.expand(count, -1, -1), lambda at: given, step)
    return (moved / step).numpy()[0], noise.numpy()


def test_a_step_of_a_pattern_has_its_drift_and_diffusion():
    """Exactly, from every unit increment: 6 of the noise in common, 9 of the scores of each."""
    layers = [ShapedAttention(0.5, 0.7), ShapedAttention(0.7, 0.4, output_projection=True)]
    F = torch.linalg.cholesky(torch.tensor(V0))
    moved, noise = unit_steps(layers, F, 24, 1e-3)
    both = noise @ F.numpy().T
    mean = moved @ F.numpy().T
    np.testing.assert_allclose(
        mean + mean.T + (noise @ noise.swapaxes(1, 2)).sum(0), drift(Pattern(layers), V0), rtol=1e-9
    )
    halves = vech(both + both.swapaxes(1, 2))
    np.testing.assert_allclose(halves.T @ halves, diffusion(Pattern(layers), V0), rtol=1e-9)


def test_the_noise_is_taken_after_the_flow():
    """At a large step the noise is that of the linear network at R, and not at F."""
    block, linear = ShapedMLP(1.0, 0.0, -2.0), ShapedMLP(1.0, 0.0, 0.0)
    F = torch.linalg.cholesky(torch.tensor(V0))
    R = flowed([(block.limit, at_depth(block, 0.0))], F, 0.5)
    _, noise = unit_steps([block], F, 6, 0.5)
    np.testing.assert_allclose(noise, unit_steps([linear], R, 6, 0.5)[1], rtol=1e-12, atol=1e-14)
    assert np.abs(noise - unit_steps([linear], F, 6, 0.5)[1]).max() > 0.01


def on_the_radius(result):
    """Return a result with the V of stopped paths scaled to |V| = radius."""
    stopped = np.isfinite(result.stopping_time)
    norm = np.sqrt((result.V.isel(time=-1) ** 2).sum(["row", "col"]))
    return result.assign(V=result.V * (result.radius / norm).where(stopped, 1.0))


def test_masked_limit_has_the_law_of_the_wide_chain():
    """KS of every observable, causal mask, stopped at |V| = 15: step 1/1000 against n = 2000.

    9 % of the paths stop. The chain ends beyond the radius and the clock close to it, so both are
    scaled back to it. Without the mask the same chain is rejected.
    """
    block, free = ShapedAttention(0.7, 0.7, mask="causal"), ShapedAttention(0.7, 0.7)
    options = {"samples": 6000, "radius": 15.0}
    limit = integrate_sde(block, V0, horizon=0.5, step=1 / 1000, seed=1, **options)
    wide = simulate_chain(block, V0, width=2000, depth=1000, seed=2, **options)
    assert same_law(on_the_radius(limit), on_the_radius(wide))
    unmasked = simulate_chain(free, V0, width=2000, depth=1000, seed=2, **options)
    assert not same_law(on_the_radius(limit), on_the_radius(unmasked))


@pytest.mark.parametrize("method", ["clock", "direct"])
def test_part_of_the_paths_explode_and_are_never_nan(method):
    """At gamma = 0.6, tau_0 = 0.5, T = 0.75; the networks of width 100 do not.

    The radius is far beyond what one fixed step can be sure not to leave.
    """
    block, v0 = ShapedAttention(0.6, 0.5), equicorrelated(4, 0.2)
    with nullcontext() if method == "clock" else FIXED_STEP():
        limit = integrate_sde(
            block, v0, horizon=0.75, step=0.0025, samples=4000, seed=1, radius=1e30, method=method
        )
    stopped = np.isfinite(limit.stopping_time.values).mean()
    assert 0.04 < stopped < 0.25
    assert np.isfinite(limit.V.values).all()
    network = simulate_chain(block, v0, width=100, depth=75, samples=4000, seed=1)
    assert np.isfinite(network.stopping_time).mean() < 0.2 * stopped
