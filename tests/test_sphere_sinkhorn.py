"""Doubly stochastic attention: its weights, its energy, and where it is softmax attention."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.integrate import simpson

from shaped_attention.sphere import (
    SphereAttention,
    TokenAttention,
    equiangular_start,
    sinkhorn,
    sphere_flow,
    sphere_network,
    uniform_start,
)
from shaped_attention.sphere.sinkhorn import doubly_stochastic
from shaped_attention.sphere.theory import equiangular_cosine
from tests.sphere_tokens import direct_tokens, gradient_gap, heads_of, matrices, random_tokens


def sums_off(weights):
    """Largest distance from 1 of a sum of a row, and of a column."""
    return tuple(float((weights.sum(axis) - 1.0).abs().max()) for axis in (-1, -2))


def alternating(logits, iterations=3000):
    """Sinkhorn's own iterations for one matrix: all rows, then all columns."""
    w = np.exp(logits)
    for _ in range(iterations):
        w = w / w.sum(1, keepdims=True)
        w = w / w.sum(0, keepdims=True)
    return w


@pytest.mark.parametrize("beta", [-4.0, 0.0, 1.0, 9.0, 600.0])
@pytest.mark.parametrize("dimension", [2, 10])
def test_rows_and_columns_sum_to_one_and_symmetric_kernels_stay_symmetric(beta, dimension):
    """To rounding; columns of SA differ from 1 by more than 0.1, USA also in its rows.

    At larger beta the weights of SA are near the identity.
    """
    x = uniform_start(16, dimension, 20)
    gram = x @ x.mT
    rounding = 1e-14 * (1.0 + abs(beta))
    weights = SphereAttention(beta, "sinkhorn").weights(gram)
    assert max(sums_off(weights)) < rounding
    torch.testing.assert_close(weights, weights.mT, atol=rounding, rtol=0)
    if 0.0 < abs(beta) < 9.0:
        rows, columns = sums_off(SphereAttention(beta).weights(gram))
        assert rows < rounding
        assert columns > 0.1
        assert min(sums_off(SphereAttention(beta, False).weights(gram))) > 0.1


def test_general_queries_and_keys_have_the_limit_of_sinkhorns_iterations():
    """To 1e-12, two heads, one matrix for each sample; the weights are then not symmetric."""
    x = random_tokens(7, 5, 3)
    q, k = matrices(3, 2, 4, 5, seed=1), matrices(3, 2, 4, 5, seed=2)
    attention = TokenAttention(3.0, q, k, normalised="sinkhorn")
    logits = 3.0 * attention.scores(x)
    weights = attention.weights(attention.scores(x))
    assert max(sums_off(weights)) < 1e-12
    for sample in range(3):
        for head in range(2):
            known = alternating(logits[sample, head].numpy())
            np.testing.assert_allclose(weights[sample, head], known, atol=1e-12)
    assert float((weights - weights.mT).abs().max()) > 0.1
    assert float((weights - torch.softmax(logits, dim=-1)).abs().max()) > 0.05


def test_separate_clusters_converge_all_the_same(monkeypatch):
    """Three tokens and two opposite ones, at beta = 40: sums to 1e-12 in 60 iterations.

    A thousand of Sinkhorn's alternating iterations leave 1e-5.
    """
    monkeypatch.setattr(sinkhorn, "_MOST_ITERATIONS", 60)
    x = torch.tensor(
        [[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [-1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64
    )
    weights = SphereAttention(40.0, "sinkhorn").weights(x @ x.mT)
    assert max(sums_off(weights)) < 1e-12
    torch.testing.assert_close(weights[3:, 3:], torch.full((2, 2), 0.5).double())
    assert float(weights[:3, 3:].max()) < 1e-20
    left = alternating(40.0 * (x @ x.mT).numpy(), 1000)
    assert np.abs(left.sum(1) - 1.0).max() > 1e-5


@pytest.mark.parametrize("beta", [0.0, 3.0])
def test_where_all_rows_have_one_sum_it_is_softmax_attention(beta):
    """Equiangular tokens: to rounding, and the exact curve to 1e-6; uniform ones differ by 0.01."""
    start, doubly = equiangular_start(8, -0.1), SphereAttention(beta, "sinkhorn")
    gram = start @ start.mT
    torch.testing.assert_close(
        doubly.weights(gram), SphereAttention(beta).weights(gram), atol=1e-13, rtol=0
    )
    times = [0.5, 2.0]
    flow = sphere_flow(doubly, start, times, tolerance=1e-7)["V"].values[:, 0, 0, 1]
    np.testing.assert_allclose(flow, equiangular_cosine(times, 8, beta, -0.1), atol=1e-6)
    one = torch.ones(5, 5, dtype=torch.float64)
    torch.testing.assert_close(doubly.weights(one), one / 5)
    assert float(doubly.energy(one)) == pytest.approx(0.5, abs=1e-14)
    if beta > 0.0:
        x = uniform_start(8, 3, 4)
        apart = doubly.weights(x @ x.mT) - SphereAttention(beta).weights(x @ x.mT)
        assert float(apart.abs().max()) > 0.01


@pytest.mark.parametrize("beta", [1.0, 4.0])
def test_it_is_a_gradient_flow_in_the_plain_metric(beta):
    """dE/dt = (1/N) sum_i |dx_i/dt|^2 to 1e-12, for symmetric V = Q^T K with heads too.

    V = Q^T K without symmetry, another V, the field of SA, and its energy miss it by 1e-4 or more.
    """
    x = random_tokens(8, 10, 20, seed=3)

    def drawn(ensemble):
        return TokenAttention.random(ensemble, 10, beta, 20, 1, normalised="sinkhorn")

    assert gradient_gap(TokenAttention(beta, normalised="sinkhorn"), x) < 1e-12
    assert gradient_gap(drawn("wigner-gradient"), x) < 1e-12
    w = matrices(3, 10, 10, seed=4)
    w = w + w.mT
    # Sums are 1 to 32 eps (1 + the largest logit), here 1e-13, and forces are of order 10.
    assert gradient_gap(TokenAttention(beta, None, w, w, "sinkhorn"), x) < 1e-11
    assert gradient_gap(TokenAttention(beta, None, w, w[:1], "sinkhorn"), x) > 1e-2
    assert gradient_gap(drawn("ginibre-gradient"), x) > 1e-2

    x.requires_grad_()
    doubly, softmax = SphereAttention(beta, "sinkhorn"), SphereAttention(beta)
    (slope,) = torch.autograd.grad(doubly.energy(x @ x.mT).sum(), x)
    field = softmax.field(x.detach())
    gap = (slope * field).sum((1, 2)) - field.pow(2).sum(-1).mean(-1)
    assert float(gap.abs().max()) > 1e-4
    (slope,) = torch.autograd.grad(softmax.energy(x @ x.mT).sum(), x)
    field = doubly.field(x.detach())
    gap = (slope * field).sum((1, 2)) - field.pow(2).sum(-1).mean(-1)
    assert float(gap.abs().max()) > 1e-4


def test_its_energy_rises_along_the_flow_and_falls_for_repulsion():
    """Between stored times by the integral of the squared speed, to 1e-4 of the total rise."""
    start, times = uniform_start(10, 3, 5), np.linspace(0.0, 6.0, 121)
    for repulsion, sign in ((False, 1.0), (True, -1.0)):
        attention = SphereAttention(2.0, "sinkhorn", repulsion)
        flow = sphere_flow(attention, start, times, tolerance=1e-7, keep_tokens=True)
        tokens = torch.from_numpy(flow["tokens"].values)
        energy = attention.energy(tokens @ tokens.mT).numpy()
        assert (sign * np.diff(energy, axis=0) > -1e-12).all()
        speed = attention.field(tokens.flatten(0, 1)).pow(2).sum(-1).mean(-1)
        rise = sign * simpson(speed.unflatten(0, tokens.shape[:2]).numpy(), times, axis=0)
        change = energy[-1] - energy[0]
        assert np.abs(change).min() > 1e-3
        np.testing.assert_allclose(change, rise, rtol=1e-4)


def test_near_one_cluster_the_rate_is_that_of_softmax_attention():
    """1 - <x_1, x_2> falls as e^{-2t}: the weights are 1 / N there. To 0.01; USA is faster."""
    start = equiangular_start(6, 0.999)
    start[:, 1] = start[:, 0] + 0.5 * (start[:, 1] - start[:, 0])
    start = start / start.norm(dim=-1, keepdim=True)
    for normalised, rate in (("sinkhorn", 2.0), (False, 2.0 * math.exp(2.0))):
        flow = sphere_flow(SphereAttention(2.0, normalised), start, [0.0, 0.2], tolerance=1e-9)
        gaps = 1.0 - flow["V"].values[:, 0, 0, 1]
        assert math.log(gaps[0] / gaps[1]) / 0.2 == pytest.approx(rate, rel=5e-3)


def test_the_energy_is_continuous_at_beta_zero_and_that_of_the_best_plan():
    """E(beta) - E(0) falls with beta; no plan of other sums of 1 gives more than w."""
    x = uniform_start(6, 3, 5)
    gram = x @ x.mT
    at_zero = SphereAttention(0.0, "sinkhorn").energy(gram)
    gaps = [
        float((SphereAttention(b, "sinkhorn").energy(gram) - at_zero).abs().max())
        for b in (1e-2, 1e-4)
    ]
    assert 0.0 < gaps[1] < 0.02 * gaps[0]
    attention = SphereAttention(3.0, "sinkhorn")
    best = attention.energy(gram)
    for seed in range(3):
        other = doubly_stochastic(3.0 * gram + 0.3 * matrices(5, 6, 6, seed=seed))
        value = (other * gram - torch.xlogy(other, 6 * other) / 3.0).sum((-2, -1)) / 12.0
        assert bool((best - value > 1e-5).all())


def test_tokens_follow_the_flow_written_out():
    """Two heads with general matrices, to 1e-6; softmax ends further away than 1e-3."""
    x = random_tokens(4, 3, 1)
    q, k, v = (matrices(2, 3, 3, seed=s) for s in (1, 2, 3))
    heads = heads_of(q, k, v)

    def moved(y, _t):
        return sum(alternating(1.5 * (y @ a.T) @ (y @ b.T).T, 200) @ y @ c.T for a, b, c in heads)

    known = direct_tokens(x[0].numpy(), moved, 0.4)
    for normalised, near in (("sinkhorn", True), (True, False)):
        attention = TokenAttention(1.5, q, k, v, normalised)
        flow = sphere_flow(attention, x, [0.4], tolerance=1e-7, keep_tokens=True)
        gap = np.abs(flow["tokens"].values[0, 0] - known).max()
        assert gap < 1e-6 if near else gap > 1e-3
    layer = sphere_network(SphereAttention(2.0, "sinkhorn"), x, 0.1, 1)["V"].values[1, 0]
    y = x[0] + 0.1 * SphereAttention(2.0, "sinkhorn").moved(x)[0]
    y = y / y.norm(dim=-1, keepdim=True)
    np.testing.assert_allclose(layer, y @ y.mT, atol=1e-14)


def test_bad_input():
    with pytest.raises(ValueError, match="normalised must be True, False or 'sinkhorn'; got 'SA'"):
        SphereAttention(1.0, "SA")
    for kind in (SphereAttention, TokenAttention):
        with pytest.raises(ValueError, match="causal must be False with 'sinkhorn'"):
            kind(1.0, normalised="sinkhorn", causal=True)
    x = uniform_start(32, 2, 1)
    with pytest.raises(FloatingPointError, match="choose a smaller beta"):
        SphereAttention(-40.0, "sinkhorn").weights(x @ x.mT)
    assert bool(doubly_stochastic(torch.full((2, 2), math.inf)).isnan().all())
