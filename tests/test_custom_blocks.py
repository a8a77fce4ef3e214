"""Custom blocks: what is derived for them, and what they cannot get wrong in silence."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

import shaped_attention as sa
from shaped_attention.blocks.limits.derived import DerivedLimit
from shaped_attention.blocks.parameters import bounded
from shaped_attention.numerics.primitives import exp, sigmoid, softplus, sqrt, tanh
from tests.custom_blocks import (
    Doubled,
    Hotter,
    HotterByMixin,
    LinearAttention,
    SigmoidAttention,
    Unchecked,
)
from tests.example_linear import Linear
from tests.own_roots import OwnRoot

V0 = sa.equicorrelated(2, 0.2)


@pytest.mark.parametrize(
    ("block", "v0", "horizon", "step"),
    [
        (LinearAttention(0.6, 0.5), np.diag([1.6, 0.0]), 0.75, 0.01),
        (SigmoidAttention(0.5, 0.7), np.eye(1), 1.0, 0.1),
    ],
)
def test_a_block_without_a_speed_explodes_with_its_probability(block, v0, horizon, step):
    """20,000 paths by the clock, the default, within 4 standard errors of the exact law.

    A standard error is 4 % of it. Fixed steps are off by more than 6, and say so.
    """
    p = sa.explosion_law(block, v0).probability(horizon=horizon)
    assert 0.03 < p < 0.1
    call = {"horizon": horizon, "samples": 20_000, "seed": 3, "radius": 1e8, "progress": False}
    error = math.sqrt(p * (1.0 - p) / call["samples"])
    result = sa.integrate_sde(block, v0, **call)
    assert "steps_taken" in result
    assert abs(float(np.isfinite(result.stopping_time).mean()) - p) < 4.0 * error
    with pytest.warns(UserWarning, match="paths reached the radius with a fixed step"):
        fixed = sa.integrate_sde(block, v0, step=step, method="direct", **call)
    assert abs(float(np.isfinite(fixed.stopping_time).mean()) - p) > 6.0 * error


CALLS = {
    "drift": lambda block: sa.drift(block, V0),
    "normalised": lambda block: sa.drift(sa.Normalised(block), sa.equicorrelated(2, 0.3)),
    "parallel": lambda block: sa.drift(sa.Parallel(block, sa.ShapedMLP(0.5)), V0),
}


@pytest.mark.parametrize("kind", [Hotter, HotterByMixin])
@pytest.mark.parametrize("call", CALLS)
def test_the_limit_of_a_class_that_overrides_is_its_own(call, kind):
    """It is that of the doubled temperature, and not that of the parent."""
    ours = CALLS[call](kind(0.35, 1.0))
    np.testing.assert_allclose(ours, CALLS[call](sa.ShapedAttention(0.35, 2.0)), rtol=1e-10)
    assert np.abs(ours - CALLS[call](sa.ShapedAttention(0.35, 1.0))).max() > 1e-4
    assert "compiled" in sa.explain(kind(0.35)).limit


def test_the_noise_of_twice_the_softmax_is_four_times_that_of_one():
    linear = sa.diffusion(Linear(0.5), V0)
    once = sa.diffusion(sa.ShapedAttention(0.5), V0) - linear
    np.testing.assert_allclose(sa.diffusion(Doubled(0.5), V0) - linear, 4.0 * once, atol=1e-12)


@pytest.mark.parametrize("gamma", [math.nan, 1.5])
def test_parameters_out_of_range_have_no_limit(gamma):
    for call in (sa.drift, sa.diffusion, partial(sa.integrate_sde, horizon=0.4, samples=3)):
        with pytest.raises(ValueError, match="has no limit: a parameter is outside its range"):
            call(Unchecked(gamma), V0)


@pytest.mark.parametrize("method", ["direct", "clock"])
def test_coefficients_that_are_not_finite_are_errors(method):
    """gamma^2 > 2 at relative depth 0.75 only."""
    block = Unchecked(sa.Schedule([(0.0, 0.5), (0.5, 0.5), (0.7, 2.0), (1.0, 0.5)]))
    call = {"horizon": 0.4, "step": 0.1, "samples": 3, "method": method, "progress": False}
    message = "limit has a coefficient that is not finite at relative depth 0.75: a parameter"
    with pytest.raises(FloatingPointError, match=message):
        sa.integrate_sde(block, V0, **call)


@pytest.fixture
def negative_roots(monkeypatch):
    """The root of negative numbers in the drift, which no coefficient shows."""

    def drift(limit, p, factor):
        return sqrt(-1.0 * (factor * factor))

    monkeypatch.setattr(DerivedLimit, "factor_drift", drift)


@pytest.mark.usefixtures("negative_roots")
@pytest.mark.parametrize("tokens", [2, 96])
@pytest.mark.parametrize("method", ["direct", "clock"])
@pytest.mark.parametrize("eager", [False, True])
def test_steps_that_are_not_numbers_are_errors(method, eager, tokens):
    call = {"horizon": 0.2, "step": 0.1, "samples": 3, "method": method, "progress": False}
    v0 = sa.equicorrelated(tokens, 0.2)
    run = sa.eager() if eager else nullcontext()
    with run, pytest.raises(FloatingPointError, match="is not a number on 3 of 3 paths"):
        sa.integrate_sde(LinearAttention(0.5), v0, **call)


@dataclass(frozen=True)
class Declared(Linear):
    gamma: float = bounded(0.0, 1.0)
    beta: float = bounded(above=-1.0, default=0.0)


def test_a_field_declares_its_range_in_one_line():
    assert Declared(np.float32(0.5)).gamma == 0.5
    for arguments, message in (
        ({"gamma": math.nan}, r"^gamma must be a finite number; got nan$"),
        ({"gamma": 1.5}, r"^gamma must be in \[0, 1\]; got 1.5$"),
        ({"gamma": sa.Schedule([(0, 0.5), (1, 2)])}, r"^gamma must be in \[0, 1\]; got 2.0"),
        ({"gamma": 0.5, "beta": -1.0}, r"^beta must be above -1; got -1.0$"),
    ):
        with pytest.raises(ValueError, match=message):
            Declared(**arguments)
    with pytest.raises(ValueError, match=r"^gamma must be in \[0, 1\]; got 1.5$"):
        LinearAttention(1.5)


@dataclass(frozen=True)
class Damped(LinearAttention):
    """Functions of parameters by the primitives' names."""

    def attend(self, p, scores, width, values):
        weaker = exp(-p.tau0) + tanh(p.gamma) + sigmoid(p.gamma) + softplus(p.gamma) + sqrt(p.gamma)
        return super().attend(p, weaker * scores, width, values)


@dataclass(frozen=True)
class DampedByMath(OwnRoot, LinearAttention):
    def root(self, p, factor, numbers, width):
        return math.exp(-p.tau0) * factor


def test_primitives_act_on_parameters_and_functions_of_math_name_them():
    call = {"horizon": 0.1, "step": 0.05, "samples": 3, "method": "direct", "progress": False}
    compiled = sa.integrate_sde(Damped(0.5), V0, **call)
    with sa.eager():
        eager = sa.integrate_sde(Damped(0.5), V0, **call)
    np.testing.assert_allclose(compiled.V, eager.V, rtol=1e-12)
    message = "exp, sqrt, tanh and others of shaped_attention.numerics.primitives accept it"
    with pytest.raises(ValueError, match=message):
        sa.simulate_chain(DampedByMath(0.5), V0, width=8, depth=1, samples=2)


@dataclass(frozen=True)
class Several(Linear):
    """A block with a tuple of parameters."""

    strengths: tuple[object, ...] = ()


RISING = sa.Schedule([(0.0, 0.2), (1.0, 0.6)])


@pytest.mark.parametrize(
    "block",
    [
        Linear(RISING),
        Several(0.3, (0.1, RISING)),
        sa.Parallel(Linear(0.3), Several(0.3, (0.1, RISING))),
    ],
)
def test_the_drift_of_a_schedule_needs_a_depth(block):
    """Also of one in a tuple."""
    for function in (sa.drift, sa.diffusion):
        with pytest.raises(ValueError, match=r"^at, a relative depth in .0, 1., must be given"):
            function(block, V0)


def test_the_diffusion_of_a_schedule_is_that_of_its_value():
    """And a tuple of numbers does not change with depth."""
    expected = pytest.approx(2 * 0.36 * (2 - 0.36))
    assert sa.diffusion(Linear(RISING), np.eye(1), at=1.0) == expected
    assert sa.diffusion(Several(0.6, (0.1, 0.2)), np.eye(1)) == expected
