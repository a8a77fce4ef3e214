"""Least kinetic energy on the circle is W2^2 (Benamou and Brenier, Numer. Math. 84, 2000)."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.integrate import simpson
from scipy.optimize import linear_sum_assignment

from shaped_attention.sphere import SphereAttention
from shaped_attention.sphere.mean_field import cell_averages
from tests.sphere_tokens import angle_field, drawn_angles, particle_angles, two_bumps

TURN = 2.0 * math.pi
TIMES = np.linspace(0.0, 1.0, 41)


def energy(paths, times=TIMES):
    """Return int int |b|^2 of points that move at constant speed between times; (..., time, N)."""
    return ((np.diff(paths, axis=-2) ** 2).mean(-1) / np.diff(times)).sum(-1)


def straight(start, end):
    """Return the paths of constant speed (time, N)."""
    return start + TIMES[:, None] * (end - start)


def matched(x, y):
    """Return the angles y, without wrapping, in the order of the points x with the least energy."""
    nearest = x[:, None] + (y - x[:, None] + math.pi) % TURN - math.pi
    return nearest[np.arange(len(x)), linear_sum_assignment((nearest - x[:, None]) ** 2)[1]]


def distance(x, y):
    """Return W2 of as many points on the circle, by the assignment problem for the arc length."""
    cost = np.angle(np.exp(1j * (x[:, None] - y))) ** 2
    return math.sqrt(cost[linear_sum_assignment(cost)].mean())


@pytest.mark.parametrize("seed", range(5))
def test_the_least_kinetic_energy_is_the_distance(seed):
    """To 1e-12, also between any two times; every other pairing, turn, detour or pace costs more.

    So twice the mean of the kinetic energy |b|^2 / 2 is W2^2, and the mean itself is not.
    """
    generator = np.random.default_rng(seed)
    x, y = generator.uniform(-math.pi, math.pi, (2, 12))
    square = distance(x, y) ** 2
    end = matched(x, y)
    path = straight(x, end)
    assert energy(path) == pytest.approx(square, abs=1e-12)
    steps = [distance(a, b) for a, b in itertools.pairwise(path)]
    np.testing.assert_allclose(steps, math.sqrt(square) / 40, atol=1e-9)
    assert energy(path / math.sqrt(2.0)) < 0.6 * square

    assert energy(x + TIMES[:, None] ** 2 * (end - x)) > 1.3 * square
    turned = end + TURN * np.eye(12)[0]
    assert energy(straight(x, turned)) > square + 0.1
    for _ in range(50):
        assert energy(straight(x, generator.permutation(end))) >= square - 1e-12
        detour = np.sin(math.pi * TIMES)[:, None] * generator.normal(size=12)
        assert energy(path + detour) > square + 0.1


def test_a_flow_of_tokens_has_at_least_the_energy_of_the_distance():
    """T int mean |b|^2 over W2^2 under SA: 1 to 0.1 % for T = 0.02, above 1.01 for T = 2."""
    attention = SphereAttention(2.0)
    start = drawn_angles(cell_averages(two_bumps, 64), 24, 4, seed=3)
    for time, low, high in ((0.02, 1.0, 1.001), (2.0, 1.01, 1.2)):
        times = time * TIMES
        angles = particle_angles(attention, start, times, 1e-8)
        speeds = angle_field(attention, torch.from_numpy(angles)).numpy()
        used = time * simpson((speeds**2).mean(-1), x=times, axis=0)
        square = np.array([distance(a, b) ** 2 for a, b in zip(angles[0], angles[-1], strict=True)])
        ratio = used / square
        assert (ratio > low - 1e-6).all()
        assert (ratio < high).all()
