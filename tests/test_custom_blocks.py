"""Custom blocks: what is derived for them, and what they cannot get wrong in silence."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import pytest

import shaped_attention as sa
from shaped_attention.blocks.limits.derived import DerivedLimit
from shaped_attention.blocks.parameters import bounded
from shaped_attention.numerics.primitives import sqrt
from tests.custom_blocks import (
    Hotter,
    LinearAttention,
    SigmoidAttention,
)
from tests.example_linear import Linear

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


def test_the_limit_of_a_class_that_overrides_is_its_own():
    """It is that of the doubled temperature, and not that of the parent."""
    ours = sa.drift(Hotter(0.35, 1.0), V0)
    np.testing.assert_allclose(ours, sa.drift(sa.ShapedAttention(0.35, 2.0), V0), rtol=1e-10)
    assert np.abs(ours - sa.drift(sa.ShapedAttention(0.35, 1.0), V0)).max() > 1e-4


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
