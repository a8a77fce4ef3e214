"""Clusters of tokens, how long they last, and energies along the flows."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import connected_components

from shaped_attention.sphere import (
    SphereAttention,
    close_pairs,
    cluster_count,
    cluster_masses,
    sphere_flow,
    uniform_start,
)
from shaped_attention.sphere.theory import meeting_time
from tests.refusals import refused
from tests.sphere_tokens import polygon_energy, uniform_energy


def grams(tokens, dimension, samples, seed=0):
    x = uniform_start(tokens, dimension, samples, seed)
    return x @ x.mT


@pytest.mark.parametrize("tokens", [1, 2, 33])
@pytest.mark.parametrize("delta", [1e-3, 0.5])
def test_clusters_are_the_connected_components(tokens, delta):
    """And masses are their sizes, on 60 random graphs of each kind."""
    for dimension in (2, 6):
        gram = grams(tokens, dimension, 60)
        known = [connected_components(v >= 1.0 - delta, directed=False) for v in gram.numpy()]
        assert cluster_count(gram, delta).tolist() == [count for count, _ in known]
        for (count, labels), mass in zip(known, cluster_masses(gram, delta), strict=True):
            sizes = np.sort(np.bincount(labels))[::-1] / tokens
            np.testing.assert_allclose(mass, np.pad(sizes, (0, tokens - count)), rtol=1e-15)
    assert cluster_count(gram.reshape(3, 20, tokens, tokens), delta).shape == (3, 20)


@pytest.mark.parametrize("tokens", [4, 34])
def test_the_ends_of_a_path_are_joined_when_they_come_first(tokens):
    """Tokens on a line; the first two are its ends, N - 1 links apart, more than half of 2^k.

    One squaring fewer does not join them, and would count two clusters.
    """
    place = [0, tokens - 1, *range(1, tokens - 1)]
    angle = 0.05 * torch.tensor(place, dtype=torch.float64)
    gram = torch.cos(angle[:, None] - angle)
    assert int(cluster_count(gram, 1.0 - math.cos(0.06))) == 1
    assert int(cluster_count(gram, 1.0 - math.cos(0.04))) == tokens


def test_close_pairs_are_counted():
    x = uniform_start(9, 4, 5, seed=2)
    for found, tokens in zip(close_pairs(x @ x.mT, 0.3), x.numpy(), strict=True):
        pairs = [tokens[i] @ tokens[j] >= 0.7 for i in range(9) for j in range(i)]
        assert float(found) == np.mean(pairs)


def test_clusters_last_for_large_beta_only():
    """N = 32 on the circle, 8 starts, times 20 to 60: at beta = 9 none is one cluster, at 1 all."""
    start, times = uniform_start(32, 2, 8), [0.0, 20.0, 40.0, 60.0]
    small, large = (
        cluster_count(sphere_flow(SphereAttention(beta), start, times, tolerance=1e-3)["V"], 1e-3)
        for beta in (1.0, 9.0)
    )
    assert float(small[0].min()) > 15.0
    assert float(small[-1].max()) == 1.0
    assert float(large[1:].min()) >= 2.0
    assert float(large[1:].max()) <= 8.0


def test_repulsion_on_the_circle_ends_in_the_regular_polygon():
    """20 starts of 5 tokens: energy to 1e-9 of the polygon's, and no lower; above the uniform law.

    The energy of the polygon of 6 is more than 1e-3 away.
    """
    beta = 4.0
    flow = sphere_flow(
        SphereAttention(beta, repulsion=True), uniform_start(5, 2, 20, seed=1), [100.0],
        tolerance=1e-6,
    )  # fmt: skip
    energy = SphereAttention(beta).energy(torch.from_numpy(flow["V"].values[0])).numpy()
    np.testing.assert_allclose(energy, polygon_energy(5, beta), atol=1e-9)
    assert (energy > polygon_energy(5, beta) - 1e-12).all()
    assert abs(polygon_energy(6, beta) - polygon_energy(5, beta)) > 1e-3
    assert polygon_energy(5, beta) > uniform_energy(beta, 2) + 1e-3
    # The mean over the polygon is the trapezoidal rule for that over the circle.
    assert polygon_energy(64, beta) == pytest.approx(uniform_energy(beta, 2), rel=1e-13)


def test_measures_of_tokens_with_lengths_are_those_of_their_directions():
    """Lengths from 0.3 to 30. A flow may keep a measure too."""
    x = uniform_start(6, 3, 20, seed=4)
    gram, lengths = x @ x.mT, torch.logspace(-0.5, 1.5, 6, dtype=torch.float64)
    longer = gram * lengths[:, None] * lengths
    for measure in (cluster_count, cluster_masses, close_pairs):
        torch.testing.assert_close(measure(longer, 0.3), measure(gram, 0.3), atol=1e-13, rtol=0)
    assert not torch.equal(longer >= 0.7, gram >= 0.7)
    flow = sphere_flow(
        SphereAttention(1.0), x.abs(), [0.0, 100.0], normalise="before",
        keep=lambda v: cluster_count(v, 0.1),
    )  # fmt: skip
    assert (flow["kept"][-1] == 1).all()
    assert (flow["kept"][0] > 1).any()


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


test_bad_input = refused(
    (lambda: cluster_count(torch.eye(2), 0.0), r"delta must be in \(0, 1\); got 0.0"),
    (lambda: close_pairs(torch.ones(1, 1), 0.5), r"gram must be .* two tokens; got \(1, 1\)"),
)
