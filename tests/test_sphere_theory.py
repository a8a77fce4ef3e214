"""What is known exactly against the flows: two tokens, many tokens, final rates."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import linear_sum_assignment

from shaped_attention.sphere import (
    SphereAttention,
    equiangular_start,
    sphere_flow,
    uniform_start,
)
from shaped_attention.sphere.theory import (
    equiangular_cosine,
    final_rate,
    meeting_time,
)
from tests.refusals import refused
from tests.sphere_tokens import many_token_cosine


def spread(attention, start, times, tolerance):
    """1 - the smallest cosine (time, sample): 0 for one cluster."""
    flow = sphere_flow(
        attention, start, times, keep=lambda v: v.amin((-2, -1)), tolerance=tolerance
    )
    return 1.0 - flow["kept"].values


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


def fitted_slopes(attention, start, speed):
    """Slope of -log(1 - smallest cosine) of each sample between 1e-4 and 1e-7."""
    times = np.linspace(0.0, 30.0, 151) / speed
    values = spread(attention, start, times, 1e-6)
    inside = (values < 1e-4) & (values > 1e-7)
    assert (inside.sum(0) > 5).all()
    logs = np.log(values.clip(1e-300))
    return np.array(
        [-np.polyfit(times[inside[:, k]], logs[inside[:, k], k], 1)[0] for k in range(len(start))]
    )


@pytest.mark.parametrize(("beta", "normalised"), [(2.0, True), (1.0, False)])
def test_in_dimension_n_every_start_converges_at_the_final_rate(beta, normalised):
    """60 uniform starts, N = d = 5: each fitted rate within 1 % of 2, or of 2 e^beta (USA).

    With causal attention token 1 closes at half the speed: every rate is below 0.75 of that.
    """
    rate = final_rate(5, beta, normalised)
    start = uniform_start(5, 5, 60, seed=6)
    slopes = fitted_slopes(SphereAttention(beta, normalised), start, 0.5 * rate)
    np.testing.assert_allclose(slopes, rate, rtol=0.01)
    causal = SphereAttention(beta, normalised, causal=True)
    assert (fitted_slopes(causal, start[:10], 0.25 * rate) < 0.75 * rate).all()


@pytest.mark.parametrize("beta", [0.0, 0.2, 1.0])
def test_small_beta_gives_one_cluster_on_the_circle(beta):
    """All of 500 uniform starts of 5 tokens, d = 2, at time 100; with V = -I none."""
    start = uniform_start(5, 2, 500, seed=3)
    end = spread(SphereAttention(beta), start, [100.0], 1e-3)[0]
    assert end.max() < 1e-4
    apart = spread(SphereAttention(beta, repulsion=True), start[:50], [100.0], 1e-3)[0]
    assert apart.min() > 0.5


TURN, TIMES = 2.0 * math.pi, np.linspace(0.0, 1.0, 41)


def assignment(x, y):
    """Return W2^2 of as many points on the circle, and y in the order of x without wrapping."""
    nearest = x[:, None] + (y - x[:, None] + math.pi) % TURN - math.pi
    cost = (nearest - x[:, None]) ** 2
    pairs = linear_sum_assignment(cost)
    return cost[pairs].mean(), nearest[pairs]


def kinetic(paths):
    """Return int int |b|^2 of paths (time, N)."""
    return ((np.diff(paths, axis=0) ** 2).mean(-1) / np.diff(TIMES)).sum()


@pytest.mark.parametrize("seed", range(3))
def test_the_least_kinetic_energy_is_the_distance(seed):
    """To 1e-12, also between any two times; every other pairing, turn, detour or pace costs more.

    So twice the mean of the kinetic energy |b|^2 / 2 is W2^2, and the mean itself is not.
    """
    generator, time = np.random.default_rng(seed), TIMES[:, None]
    x, y = generator.uniform(-math.pi, math.pi, (2, 12))
    square, end = assignment(x, y)
    path = x + time * (end - x)
    assert kinetic(path) == pytest.approx(square, abs=1e-12)
    steps = [assignment(a, b)[0] ** 0.5 for a, b in itertools.pairwise(path)]
    np.testing.assert_allclose(steps, math.sqrt(square) / 40, atol=1e-9)
    assert kinetic(x + time**2 * (end - x)) > 1.3 * square
    assert kinetic(x + time * (end + TURN * np.eye(12)[0] - x)) > square + 0.1
    for _ in range(50):
        assert kinetic(x + time * (generator.permutation(end) - x)) >= square - 1e-12
        detour = np.sin(math.pi * time) * generator.normal(size=12)
        assert kinetic(path + detour) > square + 0.1
