"""Tokens on the circle: angles, Kuramoto's model, and distances between points on it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linear_sum_assignment
from scipy.stats import wasserstein_distance

from shaped_attention.sphere import (
    SphereAttention,
    angles_of,
    circle_wasserstein2,
    tokens_of,
)

KINDS = {
    "SA": {},
    "USA": {"normalised": False},
    "repulsion": {"repulsion": True},
    "causal": {"causal": True},
}
RANDOM_ANGLES = arrays(np.float64, 5, elements=st.floats(-7.0, 7.0))


def some_angles(n, seed=0, samples=None):
    return np.random.default_rng(seed).uniform(
        -math.pi, math.pi, n if not samples else (samples, n)
    )


def by_assignment(x, y):
    """W2 of points repeated to an equal number, by the assignment problem for the arc length."""
    parts = math.lcm(len(x), len(y))
    x, y = np.repeat(x, parts // len(x)), np.repeat(y, parts // len(y))
    cost = np.angle(np.exp(1j * (x[:, None] - y))) ** 2
    rows, columns = linear_sum_assignment(cost)
    return math.sqrt(cost[rows, columns].mean())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beta", [0.0, 0.7, 5.0, -2.0])
def test_the_field_of_angles_is_that_of_tokens_in_the_plane(kind, beta):
    """dx_i/dt = (-sin a_i, cos a_i) da_i/dt to 1e-13 of the largest speed; half of it is not."""
    attention = SphereAttention(beta, **KINDS[kind])
    a = torch.from_numpy(some_angles(9, samples=3))
    speed = attention.angle_field(a)
    tangent = torch.stack([-torch.sin(a), torch.cos(a)], dim=-1)
    found = attention.field(tokens_of(a))
    scale = float(speed.abs().max())
    torch.testing.assert_close(speed[..., None] * tangent, found, atol=1e-13 * scale, rtol=0)
    assert float((0.5 * speed[..., None] * tangent - found).abs().max()) > 0.1 * scale


def test_angles_and_tokens_are_inverse_to_each_other():
    """To 1e-14; tokens mirrored in the diagonal, or half a turn more, give other angles."""
    a = torch.from_numpy(some_angles(50))

    def error(tokens):
        return float((angles_of(tokens) - a).abs().max())

    assert error(tokens_of(a)) < 1e-14
    assert error(tokens_of(a + 4.0 * math.pi)) < 1e-13
    assert error(tokens_of(a).flip(-1)) > 1.0
    assert error(tokens_of(a + math.pi)) > 1.0


def test_at_beta_zero_it_is_the_model_of_kuramoto():
    """da_i/dt = -R sin(a_i - psi) to rounding, SA and USA; with beta = 0.1 it is not."""
    a = torch.from_numpy(some_angles(11, samples=4))
    mean = torch.polar(torch.ones_like(a), a).mean(-1)
    known = -mean.abs()[:, None] * torch.sin(a - mean.angle()[:, None])
    for normalised in (True, False):
        found = SphereAttention(0.0, normalised).angle_field(a)
        torch.testing.assert_close(found, known, atol=1e-14, rtol=0)
        other = SphereAttention(0.1, normalised).angle_field(a)
        assert float((other - known).abs().max()) > 1e-3


@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 2), (7, 7), (30, 30), (2, 3), (4, 6), (5, 1)])
def test_distances_are_those_of_the_assignment_problem(n, m):
    """To 1e-12; on the line, without wrapping, W2 differs, and is never smaller."""
    generator = np.random.default_rng(n + m)
    x, y = generator.uniform(-9.0, 9.0, (20, n)), generator.uniform(-9.0, 9.0, (20, m))
    y[10:] *= 0.1
    found = circle_wasserstein2(x, y)
    known = [by_assignment(a, b) for a, b in zip(x, y, strict=True)]
    np.testing.assert_allclose(found, known, atol=1e-12)
    if n == m:
        wrapped = np.sort(x % (2.0 * math.pi)), np.sort(y % (2.0 * math.pi))
        line = np.sqrt(((wrapped[0] - wrapped[1]) ** 2).mean(-1))
        assert (line > found - 1e-12).all()
        assert (line > found + 0.1).any()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(RANDOM_ANGLES, RANDOM_ANGLES, RANDOM_ANGLES, st.floats(-7.0, 7.0))
def test_it_is_a_distance_that_rotations_keep(x, y, z, angle):
    """Symmetry, the triangle inequality and rotations, to 1e-7 (a root of rounding near zero)."""
    there, back = float(circle_wasserstein2(x, y)), float(circle_wasserstein2(y, x))
    assert there == pytest.approx(back, abs=1e-7)
    assert there <= circle_wasserstein2(x, z) + circle_wasserstein2(z, y) + 1e-7
    assert float(circle_wasserstein2(x + angle, y + angle)) == pytest.approx(there, abs=1e-7)
    assert there <= math.pi


def test_the_distance_to_a_density_is_the_limit_of_that_to_its_quantiles():
    """To 1e-6 for some 20,000 quantiles of random cells, some empty; reversed ones are far."""
    generator = np.random.default_rng(3)
    counts = generator.integers(1, 5, 16) * (generator.random(16) < 0.6)
    density = counts / (counts.mean() * 2.0 * math.pi)
    below = np.concatenate([[0.0], np.cumsum(counts)]) / counts.sum()
    # Jumps of the quantile function lie between the points.
    middle = (np.arange(800 * counts.sum()) + 0.5) / (800 * counts.sum())
    points = np.interp(middle, below, np.linspace(-math.pi, math.pi, 17))
    x = some_angles(6, samples=8)
    found = circle_wasserstein2(x, density=density)
    np.testing.assert_allclose(found, circle_wasserstein2(x, points), atol=1e-6)
    assert np.abs(circle_wasserstein2(x, density=density[::-1]) - found).max() > 1e-2


def test_one_point_and_the_uniform_density():
    """W2^2 = pi^2 / 3 for a point, pi^2 / (3 N^2) for a regular polygon; to 1e-12."""
    uniform = np.full(32, 0.5 / math.pi)
    for count in (1, 3, 32):
        polygon = 0.3 + np.arange(count) * 2.0 * math.pi / count
        known = math.pi / math.sqrt(3.0) / count
        assert float(circle_wasserstein2(polygon, density=uniform)) == pytest.approx(
            known, abs=1e-12
        )
    # W2 is above W1, which on this arc is that of the line.
    x, y = some_angles(9, 1) / 4.0, some_angles(9, 2) / 4.0
    assert float(circle_wasserstein2(x, y)) >= wasserstein_distance(x, y)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: angles_of(torch.zeros(3, 3)), r"tokens must be of shape .*; got \(3, 3\)"),
        (lambda: circle_wasserstein2([], [1.0]), r"first must be of shape .*; got \(0,\)"),
        (lambda: circle_wasserstein2([1.0], [math.nan]), "second must be finite"),
        (lambda: circle_wasserstein2([math.inf], density=np.ones(8)), "first must be finite"),
        (lambda: circle_wasserstein2([0.0], density=np.ones(8)), "density must have mass 1"),
        (lambda: circle_wasserstein2([0.0]), "exactly one of second and density"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
