"""Fitted rates, and distances of networks and chains from the SDE by width."""

from __future__ import annotations

import numpy as np
import pytest

import shaped_attention as sa
from shaped_attention.statistics.rates import fitted_rate
from tests.refusals import refused


def test_the_rate_of_a_power_law_is_found():
    """a n^-r with noise of the stated size: r within 4 standard errors; a constant has rate 0."""
    rng = np.random.default_rng(0)
    widths = np.array([8.0, 16.0, 32.0, 64.0])
    noise = np.full(4, 0.01)
    for rate in (0.0, 0.5, 1.0, 1.5):
        errors = 2.0 * (widths / 8.0) ** -rate + 0.01 * rng.standard_normal(4)
        found, error = fitted_rate(widths, errors, noise)
        assert abs(found - rate) < 4 * error < 0.2


def test_the_error_of_a_rate_is_its_own():
    """2,000 fits at amplitude 10 and noise 0.01: errors over stated errors spread as 1, to 10 %.

    The standard error of that spread is 1.6 %; the error of the amplitude is 10 times as large.
    """
    rng, scores = np.random.default_rng(1), []
    widths, noise = np.array([8.0, 16.0, 32.0, 64.0]), np.full(4, 0.01)
    for _ in range(2000):
        errors = 10.0 * (widths / 8.0) ** -1.0 + noise * rng.standard_normal(4)
        found, error = fitted_rate(widths, errors, noise)
        scores.append((found - 1.0) / error)
    assert np.std(scores) == pytest.approx(1.0, abs=0.1)


def test_distances_fall_like_one_over_the_width():
    """gamma = 1/sqrt 2, n = 10 to 40: rate 1 within 0.25 and excludes 1/2 by 3 standard errors.

    Control: at tau_0 = 0.3 many paths of the SDE explode, which the chain hardly does at these
    widths; that distance stays where it is: its rate, with a standard error of 0.04, is below 1/2.
    """
    block, v0 = sa.ShapedAttention(2**-0.5), sa.equicorrelated(3, 0.2)
    widths = (10, 20, 40)
    data = sa.distances_by_width(block, v0, widths, samples=2**15).sel(observable="log det V")
    rate, error = float(data["rate"]), float(data["rate_error"])
    assert abs(rate - 1.0) < 0.25 + 2 * error
    assert rate > 0.5 + 3 * error
    strong = sa.ShapedAttention(2**-0.5, 0.3)
    data = sa.distances_by_width(strong, v0, widths, samples=2**13, steps_per_layer=5)
    data = data.sel(observable="log largest eigenvalue")
    assert float(data["rate"]) < 0.5 - 3 * float(data["rate_error"])


def test_the_noise_of_a_distance_is_that_of_two_samples():
    """The spread of F_N - G_N at the median of one law in 4,000 repetitions, to 5 % (4 errors)."""
    block, samples = sa.ShapedAttention(0.5), 50
    data = sa.distances_by_width(block, np.eye(2), (4, 8), samples=samples, steps_per_layer=1)
    below = np.random.default_rng(2).binomial(samples, 0.5, (2, 4000)) / samples
    assert float(data["noise"]) == pytest.approx((below[0] - below[1]).std(), rel=0.05)


test_bad_arguments = refused(
    ({"widths": (32, 16)}, r"widths must be at least two increasing numbers; got \[32, 16\]"),
    ({"widths": (11, 20)}, r"width \* horizon for width 11 must be an integer; got 5.5"),
    by=lambda options: sa.distances_by_width(sa.ShapedAttention(0.5), np.eye(2), **options),
)
