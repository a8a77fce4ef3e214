"""What is known exactly against the flows: two tokens, final rates, one cluster at the end."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from shaped_attention.sphere import SphereAttention, sphere_flow, uniform_start
from shaped_attention.sphere.theory import (
    equiangular_cosine,
    equiangular_field,
    final_rate,
    meeting_time,
)
from tests.refusals import refused
from tests.sphere_tokens import dirac_energy, many_token_cosine, polygon_energy, uniform_energy


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
@pytest.mark.parametrize("beta", [-2.0, 0.0, 0.5, 4.0, 9.0, 20.0])
def test_two_tokens_follow_the_differential_equation(beta, normalised):
    """To 1e-10; the other normalisation, or another beta, is 1e-6 away."""
    speed = 1.0 if normalised else math.exp(-beta)
    for start in (-0.9, 0.0, 0.6):
        times = np.linspace(0.0, 4.0, 6) * speed
        known = integrated(times, beta, start, normalised)
        found = equiangular_cosine(times, 2, beta, start, normalised)
        np.testing.assert_allclose(found, known, atol=1e-10)
        if start == 0.6:
            other = equiangular_cosine(times, 2, beta + 0.1, start, normalised)
            assert np.abs(other - known).max() > 1e-6
            if beta != 0.0:
                other = equiangular_cosine(times, 2, beta, start, not normalised)
                assert np.abs(other - known).max() > 1e-6


def test_two_tokens_at_the_ends():
    """tanh at beta = 0 for SA and USA; 1 at once infinity is reached; the start at time 0."""
    times = np.array([0.0, 0.5, 1.0, 2.0])
    for normalised in (True, False):
        found = equiangular_cosine(times, 2, 0.0, -0.4, normalised)
        np.testing.assert_allclose(found, np.tanh(times + math.atanh(-0.4)), atol=1e-11)
        near = equiangular_cosine(times, 2, 1e-7, -0.4, normalised)
        np.testing.assert_allclose(near, found, atol=1e-6)
        assert equiangular_cosine([0.0, 1e6], 2, 3.0, -0.4, normalised)[0] == pytest.approx(-0.4)
        assert equiangular_cosine([0.0, 1e6], 2, 3.0, -0.4, normalised)[1] == 1.0
    assert equiangular_cosine([1e9], 2, 300.0, -0.9)[0] == pytest.approx(-0.9, abs=1e-12)
    time = meeting_time(1e-3, 2, 5.0, -0.3)
    assert equiangular_cosine([time], 2, 5.0, -0.3)[0] == pytest.approx(0.999, abs=1e-10)


@pytest.mark.parametrize("normalised", [True, False])
def test_equiangular_tokens_have_the_final_rate(normalised):
    """g' / (1 - g) near 1 to 1e-6, for 2 to 1000 tokens; at g = 1/2 it is not that."""
    for tokens in (2, 3, 30, 1000):
        for beta in (0.0, 1.0, 9.0):
            rate = final_rate(tokens, beta, normalised)
            slope = float(equiangular_field(1.0 - 1e-8, tokens, beta, normalised)) / 1e-8
            assert slope == pytest.approx(rate, rel=1e-6)
            half = float(equiangular_field(0.5, tokens, beta, normalised)) / 0.5
            assert abs(half / rate - 1.0) > 0.05
            assert rate == final_rate(2, beta, normalised)


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


@pytest.mark.parametrize(("beta", "normalised"), [(0.5, True), (2.0, True), (1.0, False)])
def test_in_dimension_n_every_start_converges_at_the_final_rate(beta, normalised):
    """60 uniform starts, N = d = 5: each fitted rate within 1 % of 2, or of 2 e^beta (USA).

    With causal attention token 1 closes at half the speed: every rate is below 0.75 of that.
    """
    attention = SphereAttention(beta, normalised)
    rate = final_rate(5, beta, normalised)
    start = uniform_start(5, 5, 60, seed=6)
    slopes = fitted_slopes(attention, start, 0.5 * rate)
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


def test_extreme_energies_are_those_of_gram_matrices():
    """One cluster and the regular polygon, through `SphereAttention.energy`, for each beta."""
    angle = 2.0 * torch.pi * torch.arange(7, dtype=torch.float64) / 7
    polygon = torch.cos(angle[:, None] - angle)
    for beta in (0.0, 0.5, 4.0, -1.0):
        energy = SphereAttention(beta).energy
        assert float(energy(torch.ones_like(polygon))) == pytest.approx(dirac_energy(beta))
        known = polygon_energy(7, beta)
        assert float(energy(polygon)) == pytest.approx(known, rel=1e-13, abs=1e-15)
        if beta > 0.0:
            assert uniform_energy(beta, 2) < known < dirac_energy(beta)


test_bad_input = refused(
    (lambda: equiangular_cosine([0.0], 2, 1.0, 1.1), "start must be a cosine in .*; got 1.1"),
    (lambda: equiangular_cosine([-1.0], 2, 1.0), "times must be increasing finite numbers >= 0"),
    (lambda: equiangular_cosine([math.inf], 2, 1.0), "times must be increasing finite numbers"),
    (lambda: final_rate(1, 1.0), "tokens must be an integer >= 2; got 1"),
    (lambda: final_rate(2, math.inf), "beta must be a finite number; got inf"),
)
