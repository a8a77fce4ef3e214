"""What is known exactly against the flows: two tokens, many tokens, final rates."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from shaped_attention.sphere import (
    SphereAttention,
    equiangular_start,
    sphere_flow,
)
from shaped_attention.sphere.theory import (
    equiangular_cosine,
    final_rate,
    meeting_time,
)
from tests.refusals import refused
from tests.sphere_tokens import many_token_cosine


def integrated(times, beta, start, normalised):
    """The cosine of two tokens by a Runge-Kutta method of order 8, in s = artanh g."""

    def speed(_, s):
        g = np.tanh(s)
        return 2.0 / (np.exp(beta * (1.0 - g)) + 1.0) if normalised else np.exp(beta * g)

    found = solve_ivp(
        speed, (0.0, times[-1]), [math.atanh(start)], "DOP853", times, rtol=1e-12, atol=1e-13
    )
    return np.tanh(found.y[0])


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("beta", [-2.0, 0.0, 4.0, 20.0])
def test_two_tokens_follow_the_differential_equation(beta, normalised):
    """To 1e-10; the other normalisation, or another beta, is 1e-6 away."""
    speed = 1.0 if normalised else math.exp(-beta)
    for start in (-0.9, 0.6):
        times = np.linspace(0.0, 4.0, 6) * speed
        known = integrated(times, beta, start, normalised)
        found = equiangular_cosine(times, 2, beta, start, normalised)
        np.testing.assert_allclose(found, known, atol=1e-10)
    others = [equiangular_cosine(times, 2, beta + 0.1, start, normalised)]
    if beta != 0.0:
        others.append(equiangular_cosine(times, 2, beta, start, not normalised))
    assert min(np.abs(other - known).max() for other in others) > 1e-6


def test_waiting_times_grow_exponentially_with_beta():
    """Two tokens from the cosine g_0 wait for e^{beta (1 - g_0)} / (2 beta (1 - g_0^2)) under SA.

    Laplace's method: the next order, O(1 / beta), is below 5 % at beta = 60 and half of that at
    120. The factor e^{beta (1 - g_0)} alone is away by more than 100.
    """
    start, errors = -0.5, []
    for beta in (60.0, 120.0):
        known = math.exp(1.5 * beta) / (2.0 * beta * (1.0 - start**2))
        errors.append(meeting_time(1e-3, 2, beta, start) / known - 1.0)
        assert math.exp(1.5 * beta) / meeting_time(1e-3, 2, beta, start) > 80.0
    assert abs(errors[0]) < 0.05
    assert errors[0] / errors[1] == pytest.approx(2.0, rel=0.1)


def test_many_equiangular_tokens_follow_the_logistic_curve_for_any_beta():
    """The error is O(1 / N): it falls by 10 from N = 10^4 to 10^5, to below 1e-3 at the latter."""
    times = np.linspace(0.0, 4.0, 9)
    known = many_token_cosine(times, 0.2)
    for beta in (0.0, 2.0, 4.0):
        errors = [
            np.abs(equiangular_cosine(times, tokens, beta, 0.2) - known).max()
            for tokens in (10**4, 10**5)
        ]
        assert errors[0] / errors[1] == pytest.approx(10.0, rel=0.02)
        assert errors[1] < 1e-3
    assert np.abs(equiangular_cosine(times, 10, 2.0, 0.2) - known).max() > 0.02


def test_causal_tokens_meet_at_half_the_rate_of_the_second_token():
    """1 - cos falls like e^{-t}, half as fast as with full attention, and token 0 leads.

    The slopes of log(1 - <x_0, x_i>), of token 1 and with full attention of all, are those of the
    rates to 1e-3; the negative control is the rate of the other mask. Later tokens of a decoder
    relax to them as e^{-t/6}, since their own rates are at least 2/3 in place of 1/2.
    """
    start = equiangular_start(5, 0.3)
    for causal, times in ((True, [0.0, 16.0, 20.0]), (False, [0.0, 8.0, 12.0])):
        attention = SphereAttention(1.0, causal=causal)
        flow = sphere_flow(attention, start, times, keep_tokens=True, tolerance=1e-9)
        x = flow["tokens"].to_numpy()[:, 0]
        # 1 - cos loses its digits; half of |x - y|^2 does not.
        apart = 0.5 * ((x[:, 1:] - x[:, :1]) ** 2).sum(-1)
        rates = -np.log(apart[2] / apart[1]) / (times[2] - times[1])
        rate, other = (final_rate(5, 1.0, causal=mask) for mask in (causal, not causal))
        assert abs((rates - rate)[: 1 if causal else None]).max() < 1e-3
        assert abs(rates / rate - 1.0).max() < 0.05
        assert abs(rates - other).min() > 0.9
        moved = np.abs(x[-1, 0] - x[0, 0]).max()
        assert moved < 1e-12 if causal else moved > 0.1


test_bad_input = refused(
    (lambda: equiangular_cosine([0.0], 2, 1.0, 1.1), "start must be a cosine in .*; got 1.1"),
    (lambda: equiangular_cosine([1.0, 0.0], 2, 1.0), "times must be increasing numbers >= 0"),
    (lambda: meeting_time(0.1, 4, 1.0, 0.95), "start must be a cosine above .*; got 0.95"),
)
