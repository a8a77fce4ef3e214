"""Exact laws (oracles) that every sampler must pass.

The laws hold for the limit, with errors of order 1/n at finite width and of order h for Euler's
scheme. So the finite samplers run at a large width (the chain costs no more) and the SDE at a
small step; for networks, whose width is small, the finite-n law is used where it is known.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from shaped_attention import (
    ShapedAttention,
    ShapedMLP,
    equicorrelated,
    integrate_sde,
    simulate_chain,
    simulate_network,
)
from tests import exact_laws
from tests.laws import final, log_det, same_law

GAMMA, T = 0.5, 0.5
K = GAMMA**2 * (2 - GAMMA**2)
FREE = ShapedAttention(GAMMA, 1e9)


def sde(layer, v0, samples=8000, seed=1, step=1 / 400, **kwargs):
    return integrate_sde(layer, v0, horizon=T, step=step, samples=samples, seed=seed, **kwargs)


def chain(layer, v0, samples=8000, seed=1, width=1000):
    width = width if isinstance(layer, ShapedAttention) else min(width, 100)  # the MLP costs O(n)
    return simulate_chain(layer, v0, width=width, depth=int(T * width), samples=samples, seed=seed)


def network(layer, v0, samples=4000, seed=1):
    return simulate_network(layer, v0, width=12, depth=6, samples=samples, seed=seed)


def test_network_of_one_token_has_its_finite_law():
    """V_L is a product of L independent factors |lambda e + gamma g|^2 / n for m = 1.

    Exact at n = 16: E log V' from the mean over a noncentral chi-square, n |.|^2 / gamma^2.
    """
    n, depth = 16, 8
    v = final(simulate_network(ShapedAttention(GAMMA), np.eye(1), width=n, depth=depth,
                               samples=6000, seed=1))  # fmt: skip
    law = exact_laws.token_factor(GAMMA, n)
    mean = law.expect(np.log, lb=law.ppf(1e-12), ub=law.ppf(1 - 1e-12))
    second = law.expect(lambda x: np.log(x) ** 2, lb=law.ppf(1e-12), ub=law.ppf(1 - 1e-12))
    expected, spread = depth * mean, math.sqrt(depth * (second - mean**2))
    assert abs(np.log(v).mean() - expected) < 4 * spread / math.sqrt(6000)
    assert np.log(v).std() == pytest.approx(spread, rel=0.05)


def clock(layer, v0, **options):
    return sde(layer, v0, method="clock", **options)


@pytest.mark.parametrize("sampler", [sde, clock, chain])
def test_one_token(sampler):
    """log V_T ~ N(-kT, 2kT) for m = 1: KS at 30,000 samples: a shift by 6 % of a standard deviation
    has a distance of 0.024 on average, whose p-value is 10^-15.
    """
    x = np.log(final(sampler(ShapedAttention(GAMMA), np.eye(1), samples=30_000)))[:, 0, 0]
    law = exact_laws.log_determinant(K, 1, T)
    assert stats.kstest(x, law.cdf).pvalue > 1e-3
    assert stats.kstest(x + 0.06 * law.std(), law.cdf).pvalue < 1e-3


@pytest.mark.parametrize("tokens", [2, 4])
def test_log_determinant_of_the_sde(tokens):
    """log det V_T - log det V_0 ~ N(-k m (m+1) T / 2, 2 m k T) as tau_0 -> infinity."""
    v0 = equicorrelated(tokens, 0.2)
    x = log_det(final(sde(FREE, v0, step=1 / 800))) - log_det(v0)
    assert stats.kstest(x, exact_laws.log_determinant(K, tokens, T).cdf).pvalue > 1e-3
    wrong = exact_laws.log_determinant(K * (2 / (2 - GAMMA**2)), tokens, T)
    assert stats.kstest(x, wrong.cdf).pvalue < 1e-3


@pytest.mark.parametrize("sampler", ["chain", "network"])
@pytest.mark.parametrize("tokens", [2, 4])
def test_log_determinant_at_finite_width(sampler, tokens):
    """The exact mean and variance at n = 12, where det V' / det V is a product of chi-squares."""
    n, depth, samples = 12, 5, 8000
    v0, layer = equicorrelated(tokens, 0.2), ShapedAttention(1.0, 1e9)
    function = simulate_chain if sampler == "chain" else simulate_network
    v = final(function(layer, v0, width=n, depth=depth, samples=samples, seed=3))
    x = log_det(v) - log_det(v0)
    mean, spread = exact_laws.log_determinant_moments(n, depth, tokens)
    assert abs(x.mean() - mean) < 4 * spread / math.sqrt(samples)
    assert x.std() == pytest.approx(spread, rel=0.04)


@pytest.mark.parametrize("sampler", [sde, chain, network])
def test_linear_maps_of_the_start(sampler):
    """As tau_0 -> infinity, A V A^T started from A V_0 A^T has the law of V transformed.

    It holds at every width, so networks are narrow here.
    """
    a = np.array([[1.0, 0.5, 0.0], [0.0, 2.0, -1.0], [0.3, 0.0, 1.0]])
    v0 = equicorrelated(3, 0.2)
    first, second = sampler(FREE, v0, seed=1), sampler(FREE, a @ v0 @ a.T, seed=2)
    moved = first.assign(V=(first.V.dims, a @ first.V.values @ a.T))
    assert same_law(moved, second)
    assert not same_law(first, second)


@pytest.mark.parametrize("sampler", [sde, chain, network])
def test_equal_tokens_stay_equal(sampler):
    """All tokens equal: V stays a multiple of 11^T, and that multiple has the law of m = 1."""
    layer = [ShapedAttention(GAMMA, 0.3), ShapedMLP(GAMMA)]
    v = final(sampler(layer, np.ones((4, 4))))
    np.testing.assert_allclose(v, np.broadcast_to(v[:, :1, :1], v.shape), rtol=1e-9)
    single = final(sampler(layer, np.eye(1), seed=2))
    assert stats.ks_2samp(v[:, 0, 0], single[:, 0, 0]).pvalue > 1e-3


@pytest.mark.parametrize("sampler", [sde, chain, network])
def test_exchangeable_tokens_stay_exchangeable(sampler):
    """From p 11^T + (q - p) I every token has one law, and so has every pair, at every width."""
    layer = [ShapedAttention(GAMMA, 0.7), ShapedMLP(GAMMA)]
    first = sampler(layer, equicorrelated(3, 0.3, 1.2), seed=1)
    second = sampler(layer, equicorrelated(3, 0.3, 1.2), seed=2)
    order = [2, 0, 1]
    moved = second.assign(V=(second.V.dims, second.V.values[:, :, order][:, :, :, order]))
    assert same_law(first, moved)
    uneven = np.diag([1.0, 1.3, 1.0]) @ first.V.values @ np.diag([1.0, 1.3, 1.0])
    assert not same_law(first.assign(V=(first.V.dims, uneven)), moved)
