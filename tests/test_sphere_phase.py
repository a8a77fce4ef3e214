"""Phase diagrams of clustering from uniform starts."""

from __future__ import annotations

import math

import pytest

from shaped_attention.sphere import SphereAttention, close_pairs, sphere_flow, uniform_start
from shaped_attention.sphere.theory import meeting_time


def probability(dimension, beta, times):
    """Share of pairs of 8 uniform tokens with a cosine of at least 0.999, from 100 starts."""
    flow = sphere_flow(
        SphereAttention(beta), uniform_start(8, dimension, 100), times,
        keep=lambda v: close_pairs(v, 1e-3), tolerance=1e-4,
    )  # fmt: skip
    return flow["kept"].mean("sample").values


def test_phase_diagram_is_a_step_at_the_curve_in_high_dimension():
    """d = 10^5, N = 8: no pair has met at 0.8 of the curve's time and all have at 1.2 of it.

    In d = 2 neither holds: there tokens start close, and meet late.
    """
    betas = [0.0, 2.0]
    curve = [meeting_time(1e-3, 8, beta) for beta in betas]
    # At beta = 0 log(((N - 1) g + 1) / (1 - g)) grows at the rate 2.
    assert curve[0] == pytest.approx(0.5 * math.log((7 * 0.999 + 1) / 1e-3), rel=1e-10)
    for beta, time in zip(betas, curve, strict=True):
        high, flat = (probability(d, beta, [0.8 * time, 1.2 * time]) for d in (100_000, 2))
        assert high[0] < 0.01
        assert high[1] > 0.99
        assert flat[0] > 0.1
