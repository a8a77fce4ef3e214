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
    order_parameter,
    sphere_flow,
    uniform_start,
)
from shaped_attention.sphere.theory import mode_growth
from tests.refusals import refused
from tests.sphere_tokens import dirac_energy, polygon_energy, uniform_energy


def grams(tokens, dimension, samples, seed=0):
    x = uniform_start(tokens, dimension, samples, seed)
    return x @ x.mT


def components(gram, delta):
    return connected_components(gram >= 1.0 - delta, directed=False)


@pytest.mark.parametrize("tokens", [1, 2, 7, 33])
@pytest.mark.parametrize("delta", [1e-3, 0.1, 0.5])
def test_clusters_are_the_connected_components(tokens, delta):
    """And masses are their sizes: on 60 random graphs of each kind, and on a chain."""
    for dimension in (2, 3, 6):
        gram = grams(tokens, dimension, 60)
        known = [components(v, delta) for v in gram.numpy()]
        assert cluster_count(gram, delta).tolist() == [count for count, _ in known]
        for (count, labels), mass in zip(known, cluster_masses(gram, delta), strict=True):
            sizes = np.sort(np.bincount(labels))[::-1] / tokens
            np.testing.assert_allclose(mass, np.pad(sizes, (0, tokens - count)), rtol=1e-15)
    # Tokens on a line, each joined to the next only: one component of the largest diameter.
    angle = torch.arange(tokens, dtype=torch.float64) * math.acos(1.0 - delta) * 0.9999
    angle = angle * min(1.0, 3.0 / max(float(angle[-1]), 1e-9))
    chain = torch.cos(angle[:, None] - angle)
    assert int(cluster_count(chain, delta)) == components(chain.numpy(), delta)[0] == 1
    assert cluster_count(gram.reshape(3, 20, tokens, tokens), delta).shape == (3, 20)


@pytest.mark.parametrize("tokens", [4, 6, 8, 34])
def test_the_ends_of_a_path_are_joined_when_they_come_first(tokens):
    """Tokens on a line; the first two are its ends, N - 1 links apart, more than half of 2^k.

    One squaring fewer does not join them, and would count two clusters.
    """
    place = [0, tokens - 1, *range(1, tokens - 1)]
    angle = 0.05 * torch.tensor(place, dtype=torch.float64)
    gram = torch.cos(angle[:, None] - angle)
    assert int(cluster_count(gram, 1.0 - math.cos(0.06))) == 1
    assert int(cluster_count(gram, 1.0 - math.cos(0.04))) == tokens


def test_measures_are_those_of_the_tokens():
    """Against loops over tokens, to 1e-14."""
    x = uniform_start(9, 4, 5, seed=2)
    gram = x @ x.mT
    for k, tokens in enumerate(x.numpy()):
        assert float(order_parameter(gram)[k]) == pytest.approx(
            np.linalg.norm(tokens.mean(0)), abs=1e-14
        )
        pairs = [tokens[i] @ tokens[j] >= 0.7 for i in range(9) for j in range(i)]
        assert float(close_pairs(gram, 0.3)[k]) == np.mean(pairs)  # of counts
    one = torch.ones(1, 4, 4, dtype=torch.float64)
    assert float(order_parameter(one)) == float(close_pairs(one, 0.1)) == 1.0
    # Two opposite clusters.
    sign = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
    assert float(order_parameter(torch.outer(sign, sign))) == 0.0


def test_clusters_last_for_large_beta_only():
    """N = 32 on the circle, 8 starts, times 20 to 60: at beta = 9 none is one cluster, at 1 all.

    The order parameter says the same at the end.
    """
    flow = sphere_flow(
        SphereAttention(1.0), uniform_start(32, 2, 8), [0.0, 20.0, 40.0, 60.0], betas=[1.0, 9.0],
        tolerance=1e-3,
    )  # fmt: skip
    clusters = cluster_count(flow["V"], 1e-3)
    late = clusters.isel(time=slice(1, None))
    assert float(late.sel(beta=9.0).min()) >= 2.0
    assert float(late.sel(beta=9.0).max()) <= 8.0
    assert float(clusters.isel(time=0).min()) > 15.0
    assert float(clusters.sel(beta=1.0, time=60.0).max()) == 1.0
    order = order_parameter(flow["V"]).sel(time=60.0)
    assert float(order.sel(beta=1.0).min()) > 1.0 - 1e-5
    assert float(order.sel(beta=9.0).max()) < 0.99
    np.testing.assert_array_equal(clusters[0, 0], clusters[1, 0])


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


test_bad_input = refused(
    (lambda: cluster_count(torch.eye(2), 0.0), r"delta must be in \(0, 1\); got 0.0"),
    (lambda: close_pairs(torch.ones(1, 1), 0.5), r"gram must be .* two tokens; got \(1, 1\)"),
    (lambda: order_parameter(torch.ones(2, 3)), r"gram must be of shape \(..., N, N\); got"),
    (lambda: order_parameter(torch.full((2, 2), math.nan)), "gram must be finite"),
)


@pytest.mark.parametrize("dimension", [2, 3, 20])
def test_uniform_starts_have_the_energy_expected(dimension):
    """e^beta / (2 beta N) + (1 - 1 / N) E_uniform, 20,000 starts, 4 standard errors.

    Without the tokens' meeting themselves, or in another dimension, it is 8 or more away.
    """
    tokens, beta = 6, 3.0
    energy = SphereAttention(beta).energy(grams(tokens, dimension, 20_000, seed=4)).numpy()
    error = energy.std() / math.sqrt(len(energy))

    def away(d, share):
        known = share * dirac_energy(beta) + (1.0 - share) * uniform_energy(beta, d)
        return abs(energy.mean() - known) / error

    assert away(dimension, 1.0 / tokens) < 4.0
    assert away(dimension, 0.0) > 8.0
    assert away(dimension + 1, 1.0 / tokens) > 8.0


def test_masses_of_a_result_have_the_dimension_cluster():
    flow = sphere_flow(SphereAttention(1.0), uniform_start(4, 3, 2), [0.0, 50.0])
    masses = cluster_masses(flow["V"], 0.1)
    assert masses.dims == ("time", "sample", "cluster")
    np.testing.assert_array_equal(masses[1], [[1.0, 0.0, 0.0, 0.0]] * 2)


def test_the_fastest_mode_is_near_the_root_of_two_beta():
    for beta in (4.0, 9.0, 16.0, 100.0):
        fastest = max(range(1, 40), key=lambda k, beta=beta: mode_growth(k, beta))
        assert abs(fastest - math.sqrt(2.0 * beta)) < 1.0
    for mode, beta, message in ((0, 1.0, "mode must"), (1, 0.0, "beta must be nonzero")):
        with pytest.raises(ValueError, match=message):
            mode_growth(mode, beta)


def test_measures_of_tokens_with_lengths_are_those_of_their_directions():
    """Lengths from 0.3 to 30; a token of length 0 is refused. A flow may keep the number too."""
    x = uniform_start(6, 3, 20, seed=4)
    gram, lengths = x @ x.mT, torch.logspace(-0.5, 1.5, 6, dtype=torch.float64)
    longer = gram * lengths[:, None] * lengths
    for measure in (
        lambda v: cluster_count(v, 0.3), lambda v: cluster_masses(v, 0.3),
        lambda v: close_pairs(v, 0.3), order_parameter,
    ):  # fmt: skip
        torch.testing.assert_close(measure(longer), measure(gram), atol=1e-13, rtol=0)
        with pytest.raises(ValueError, match="gram must have a positive diagonal"):
            measure(torch.zeros(2, 2))
    assert not torch.equal(longer >= 0.7, gram >= 0.7)
    flow = sphere_flow(
        SphereAttention(1.0),
        x.abs(),
        [0.0, 100.0],
        normalise="before",
        keep=lambda v: cluster_count(v, 0.1),
    )
    assert (flow["kept"][-1] == 1).all()
    assert (flow["kept"][0] > 1).any()
