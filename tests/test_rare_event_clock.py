"""Rare events of the SDE by the clock: branches, moved barriers, and the exact law of u."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

import shaped_attention as sa
from shaped_attention.blocks.base import pattern_of
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.samplers.clock_step import clock_speed
from shaped_attention.samplers.loop import starting_paths
from shaped_attention.samplers.paths import Paths
from shaped_attention.samplers.specification import Options, specify
from shaped_attention.samplers.steppers import stepper_of
from shaped_attention.samplers.task import task_of
from shaped_attention.statistics.rare_event_runs import Study, pilot
from shaped_attention.statistics.reaction import spread, step_deviation

STEP, STEPS = 0.05, 12
HOT, HOT_V0 = sa.ShapedAttention(0.6, 0.5), 0.8 * np.eye(2)
K = 0.5**2 * (2.0 - 0.5**2)


def test_a_path_that_begins_late_has_the_increments_of_its_number_from_there():
    """With its own number it is the same path, bit for bit; with another number it is not.

    Paths branch off after any number of steps, so also between two points of the grid. Those of the
    sampler are the same to rounding, which many steps near an explosion amplify.
    """
    count = 70
    spec = specify(
        HOT, HOT_V0, width=None, steps=STEPS, dt=STEP, samples=count, seed=5,
        options=Options(radius=1000000.0),
    )  # fmt: skip
    stepper = stepper_of(spec, task_of(spec, "sde", None, "clock"))
    result = sa.integrate_sde(
        HOT, HOT_V0, horizon=STEP * STEPS, step=STEP, samples=count, seed=5, radius=1e6,
        method="clock", progress=False,
    )  # fmt: skip
    starts = np.random.default_rng(0).integers(0, STEPS + 4, count)
    paths = starting_paths(spec, stepper, 0, count)
    factors, steps = paths.factors().copy(), np.zeros(count, dtype=np.int64)
    grid, left = paths.grid.copy(), paths.left.copy()
    while len(paths.step()):
        here = paths.taken <= starts
        factors[here], steps[here] = paths.factors()[here], paths.taken[here]
        grid[here], left[here] = paths.grid[here], paths.left[here]
    assert (np.abs(left - STEP) > 1e-3).sum() > 2

    def at_the_end(first):
        branches = Paths(stepper, first, factors, grid, steps, left)
        while len(branches.step()):
            pass
        return branches.covariances()

    v = paths.covariances()
    np.testing.assert_allclose(v, result["V"].to_numpy()[-1], rtol=1e-8)
    assert np.array_equal(at_the_end(0), v)
    late = steps < result["steps_taken"].to_numpy()
    assert late.sum() > 50
    assert (at_the_end(count) != v).any(axis=(1, 2))[late].all()


def test_passing_the_level_between_steps_counts():
    """One token: the maximum of a geometric Brownian motion, by the reflection principle.

    Within 4 standard errors of 2.5 %, 75 steps. Where only the steps count, as with "direct",
    the probability is lower by 14 %, and not within 4 standard errors.
    """
    b, horizon = 2.0, 0.75
    s = math.sqrt(2.0 * K * horizon)
    p = norm.cdf((-b - K * horizon) / s) + math.exp(-b) * norm.cdf((-b + K * horizon) / s)

    def apart(method):
        result = sa.rare_event(
            sa.ShapedAttention(0.5), np.eye(1), "log trace V", b, horizon=horizon, method=method,
            replicas=500, progress=False,
        )  # fmt: skip
        return (float(result.probability) / p - 1.0) / float(result.relative_error)

    assert abs(apart("clock")) < 4.0
    assert apart("direct") < -4.0


def test_deviation_of_pilot_steps_is_that_of_the_law():
    """One token: log V moves by N(-k dt, 2 k dt), shown by 15,360 steps within 4 %, 4 errors.

    The median of their squares, 0.4549 variances, is 2 % accurate; a factor not under the root is
    48 % off.
    """
    spec = specify(
        sa.ShapedAttention(0.5), np.eye(1), width=None, steps=60, dt=0.01, samples=8, seed=7,
        options=Options(radius=1000000.0),
    )  # fmt: skip
    found = pilot(Study(spec, None, "clock"), lambda v: np.log(v[:, 0, 0]), None)
    assert found.deviation == pytest.approx(math.sqrt(2.0 * K * 0.01), rel=0.04)


def test_the_clock_is_the_default_where_paths_can_explode():
    """One token cannot: its attention is linear."""
    call = {"horizon": 0.5, "step": 0.1, "replicas": 20, "runs": 2, "progress": False}
    hot = sa.rare_event(HOT, HOT_V0, "u", 5.0, **call)
    assert hot.equals(sa.rare_event(HOT, HOT_V0, "u", 5.0, **call).copy())
    assert float(hot.probability) == float(
        sa.rare_event(HOT, HOT_V0, "u", 5.0, **call, method="clock").probability
    )
    one = sa.rare_event(HOT, np.eye(1), "norm", 2.0, **call)
    assert float(one.probability) == float(
        sa.rare_event(HOT, np.eye(1), "norm", 2.0, **call, method="direct").probability
    )


@pytest.mark.parametrize("u", [0.1, 1.6, 30.0, 1e4])
def test_deviation_of_a_step_is_that_of_the_law(u):
    """With one live token d log u has the variance rate 2k + delta u^2; 2 % is visible at 30."""
    gamma, tau0 = HOT.gamma, HOT.tau0
    k, delta = gamma**2 * (2.0 - gamma**2), gamma**4 / (4.0 * tau0**2)
    speed = 0.2 * (gamma / tau0) ** 2 * (1.0 + 5.0 * gamma**2) * u**2 / 16.0
    found = step_deviation(pattern_of(HOT), 2, u, 0.01)
    assert found**2 == pytest.approx((2.0 * k + delta * u**2) * 0.01 / (1.0 + speed), rel=1e-12)


def test_deviation_of_a_step_for_many_tokens_is_that_of_a_live_token():
    """u = 4 |C V C| / m: the deviation at that u, for a causal mask too, and half of u is off."""
    for layer in (HOT, sa.ShapedAttention(HOT.gamma, HOT.tau0, mask="causal")):
        v = np.zeros((5, 5))
        v[4, 4] = 4.0
        pattern, u = pattern_of(layer), float(spread(v[None])[0])
        slope = np.zeros(15)
        slope[-1] = 1.0 / 4.0
        rate = slope @ sa.diffusion(layer, v) @ slope
        parameters = [[at_depth(block, 0.0) for block in blocks] for blocks in pattern]
        length = 0.01 / (1.0 + float(clock_speed(pattern, parameters, torch.from_numpy(v) / 2.0)))
        found = step_deviation(pattern, 5, u, 0.01)
        assert found**2 == pytest.approx(rate * length, rel=1e-10)
        assert step_deviation(pattern, 5, 0.5 * u, 0.01) != pytest.approx(found, rel=0.01)


@pytest.mark.validation
@pytest.mark.parametrize(
    ("gamma", "tau0", "exact"), [(0.6, 0.5, 0.0357069278), (0.35, 1.0, 2.65542042e-5)]
)
def test_the_law_of_u(gamma, tau0, exact):
    """P(u >= 1000 by T): within 4 standard errors, of 2 to 3 %, and 1 % of the step.

    Euler's fixed step of the same length is 25 % off and more.
    """
    layer, v0 = sa.ShapedAttention(gamma, tau0), sa.equicorrelated(2, 0.2)
    call = {"horizon": 0.75, "runs": 8, "replicas": 2000, "seed": 1, "progress": False}
    call["radius"] = 1e30  # paths that left a smaller one would count by their value there
    result = sa.rare_event(layer, v0, "u", 1000.0, **call)
    error = math.hypot(float(result.relative_error), 0.0025)
    assert abs(float(result.probability) / exact - 1.0) < 4.0 * error
    fixed = sa.rare_event(layer, v0, "u", 1000.0, **call, method="direct")
    assert abs(float(fixed.probability) / exact - 1.0) > 0.1
