"""Limits of normalised blocks: Ito's formula, relaxing variances, chains, and refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

import shaped_attention as sa
from shaped_attention import Normalised, Pattern, Schedule, ShapedAttention, ShapedMLP
from shaped_attention.blocks.base import blocks_of
from shaped_attention.blocks.normalised_limit import Relaxation, relaxations
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.theory.moments import Moments, quotient_diffusion, quotient_drift
from tests.laws import assert_executors_agree
from tests.refusals import refused

V0 = sa.equicorrelated(3, 0.3, 2.0)
R0 = np.array([[1.0, 0.3, 0.1], [0.3, 1.0, -0.2], [0.1, -0.2, 1.0]])
FULL, CAUSAL = ShapedAttention(0.6, 0.5), ShapedAttention(0.5, 0.5, mask="causal")
HEADS = ShapedAttention(0.6, 0.4, heads=2, output_projection=True)
MLP = ShapedMLP(0.6)
INNER = {"heads": [HEADS], "causal, then MLP": [CAUSAL, MLP]}
PLACES = ("before", "after")
LAYERS = {
    f"{place}, {name}": [Normalised(block, place) for block in blocks]
    for place in PLACES
    for name, blocks in INNER.items()
} | {
    "after, lambda = 1": Normalised(ShapedAttention(0.6, 0.5, skip=1.0), "after"),
    "before, pattern": Pattern([Normalised(FULL), [Normalised(CAUSAL), Normalised(MLP)]]),
    "sandwich": Normalised(ShapedAttention(0.7, 0.4), "sandwich"),
    "branch, causal, then MLP": [Normalised(CAUSAL, "branch"), Normalised(MLP, "branch")],
    "before, LayerNorm": Normalised(FULL, "before", "layer"),
}


def correlations(result):
    """Return R_21, R_31 and R_32 (3, samples) at the end."""
    v = result.V.values[-1]
    lengths = np.sqrt(np.diagonal(v, axis1=1, axis2=2))
    r = v / (lengths[:, :, None] * lengths[:, None, :])
    return r[:, [1, 2, 2], [0, 0, 1]].T


def chain(layer, width, samples):
    depth = width // 2
    return correlations(
        sa.simulate_chain(layer, V0, width=width, depth=depth, samples=samples, seed=1)
    )


def limit(layer, samples):
    return correlations(
        sa.integrate_sde(layer, V0, horizon=0.5, step=0.01, samples=samples, seed=2)
    )


def smallest(a, b):
    return min(stats.ks_2samp(x, y).pvalue for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("name", LAYERS)
def test_chains_approach_the_limit(name):
    """KS of three correlations at n = 256, 4,000 samples: p > 0.01 / 3 (Bonferroni)."""
    assert smallest(chain(LAYERS[name], 256, 4000), limit(LAYERS[name], 4000)) > 0.01 / 3


def test_the_relaxing_variances_matter():
    """Negative control: the limit of post-norm in place of pre-norm, at 20,000 samples."""
    wrong = LAYERS["after, heads"]
    assert smallest(chain(LAYERS["before, heads"], 256, 20_000), limit(wrong, 20_000)) < 1e-4


def test_the_norm_of_the_branch_matters():
    """Negative control: the limit of pre-norm in place of the sandwich, at 12,000 samples."""
    wrong = Normalised(ShapedAttention(0.7, 0.4))
    assert smallest(chain(LAYERS["sandwich"], 256, 12_000), limit(wrong, 12_000)) < 1e-3


def moments_at(r):
    rng = np.random.default_rng(4)
    b = rng.normal(size=(3, 3))
    noise = rng.normal(size=(9, 3, 3))
    noise = torch.from_numpy(noise + noise.swapaxes(1, 2))
    return Moments(torch.from_numpy(b + b.T), torch.einsum("eab,ecd->abcd", noise, noise))


def test_drift_and_diffusion_are_those_of_the_quotient():
    """Ito's formula with derivatives by automatic differentiation, to rounding."""
    r = torch.from_numpy(R0)
    moments = moments_at(r)

    def quotient(v):
        lengths = v.diagonal().sqrt()
        return v / (lengths[:, None] * lengths[None, :])

    slope = torch.func.jacrev(quotient)(r)
    bend = torch.func.jacfwd(torch.func.jacrev(quotient))(r)
    drift = torch.einsum("abcd,cd->ab", slope, moments.drift)
    drift = drift + 0.5 * torch.einsum("abcdef,cdef->ab", bend, moments.diffusion)
    torch.testing.assert_close(quotient_drift(moments, r), drift, rtol=1e-12, atol=1e-12)
    wanted = torch.einsum("abcd,cdef,ghef->abgh", slope, moments.diffusion, slope)
    found = quotient_diffusion(moments.diffusion, r)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "name",
    ["after, heads", "before, causal, then MLP", "branch, causal, then MLP"],
)
def test_a_step_has_the_moments_of_drift_and_diffusion(name):
    """1.6 million steps of 0.01: drift within 4 standard errors, variances within 3 %.

    Without the correction for relaxing variances the drift is 6 standard errors off.
    """
    layer, h, count = LAYERS[name], 0.01, 1_600_000
    with pytest.warns(UserWarning, match="one Euler step covers the whole"):
        result = sa.integrate_sde(
            layer, R0, horizon=h, step=h, samples=count, seed=3, method="direct"
        )
    change = (result.V.values[-1] - R0)[:, [1, 2, 2], [0, 0, 1]]
    drift, diffusion = sa.drift(layer, R0), sa.diffusion(layer, R0)
    wanted = drift[[1, 2, 2], [0, 0, 1]]
    error = change.std(axis=0) / math.sqrt(count) / h
    assert (np.abs(change.mean(axis=0) / h - wanted) < 4.0 * error + 0.01).all()
    places = [1, 3, 4]
    exact = diffusion[np.ix_(places, places)]
    np.testing.assert_allclose(np.cov(change.T) / h, exact, rtol=0.03, atol=0.01)
    assert not diffusion[[0, 2, 5]].any() or np.abs(diffusion[[0, 2, 5]]).max() < 1e-12
    if name.startswith("before"):
        after = sa.drift([Normalised(x.inner, "after") for x in blocks_of(layer)], R0)
        assert (np.abs(after[[1, 2, 2], [0, 0, 1]] - wanted) > 4.0 * error).any()


def test_relaxations_follow_the_recursion_of_the_variances():
    """beta by following a unit kick of the variances around the cycle for 400 blocks."""
    weights = [(0.7, 0.3), (0.4, 0.6), (0.9, 0.1)]
    for i, beta in enumerate(relaxations(weights)):
        kick, total = 1.0, 0.0
        for j in range(i + 1, i + 400):
            skip, gamma = weights[j % 3]
            total += kick**2 * skip * gamma / 4.0
            kick *= skip
        assert beta == pytest.approx(total, rel=1e-12)
    (single,) = relaxations([(0.5, 0.5)])
    assert single == pytest.approx(0.5 / (4.0 * 1.5))


@pytest.mark.parametrize("inner", [[FULL], [CAUSAL, MLP], [HEADS]])
def test_growth_by_relaxation_is_the_correction_of_the_drift(inner):
    """After division by the lengths it is the drift of pre-norm less that of post-norm, exactly."""
    before, after = ([Normalised(block, place) for block in inner] for place in PLACES)
    parts = [(block.limit, at_depth(block, 0.0)) for block in before]
    growth = Relaxation(parts).growth(None, torch.from_numpy(R0)).numpy()
    length = np.diag(growth)
    found = growth - 0.5 * R0 * (length[:, None] + length[None, :])
    wanted = sa.drift(before, R0) - sa.drift(after, R0)
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-14)
    assert np.abs(wanted).max() > 0.01


def test_the_start_is_that_of_wide_chains():
    """After 60 layers at n = 10^6 the chain is at the start of the limit, within 1/sqrt n."""
    v0 = np.array([[4.0, 1.0, 0.2], [1.0, 0.5, 0.0], [0.2, 0.0, 1.0]])
    layer = [Normalised(FULL), Normalised(HEADS)]
    result = sa.simulate_chain(layer, v0, width=10**6, depth=60, samples=4)
    start = sa.integrate_sde(layer, v0, horizon=0.1, step=0.05, samples=1)
    found = result.V.values[-1].mean(axis=0)
    np.testing.assert_allclose(found, start.V.values[0, 0], atol=0.02)
    lengths = np.sqrt(np.diag(v0))
    assert np.abs(found - v0 / np.outer(lengths, lengths)).max() > 0.05
    np.testing.assert_array_equal(start.initial_covariance, v0)


@pytest.mark.parametrize("name", LAYERS)
def test_executors_agree(name, monkeypatch):
    run = {"horizon": 0.2, "step": 0.05, "samples": 40, "seed": 5, "method": "direct"}
    assert_executors_agree(lambda: sa.integrate_sde(LAYERS[name], V0, **run).V.values, monkeypatch)


test_what_has_no_limit_is_refused = refused(
    (
        lambda: sa.drift([Normalised(FULL, "after"), Normalised(MLP)], R0),
        r"layer contains Normalised.* has no limit: .* the sums of all blocks must be normalised",
    ),
    (
        lambda: sa.drift(Normalised(ShapedAttention(0.6, skip=1.0)), R0),
        r"its skip weight is not sqrt\(1 - gamma\^2\)",
    ),
    (
        lambda: sa.integrate_sde(Normalised(FULL), R0, horizon=0.1, samples=1, method="clock"),
        "method must be .* for normalised blocks, whose paths cannot explode; got 'clock'",
    ),
    (
        lambda: sa.integrate_sde(
            Normalised(ShapedAttention(Schedule([(0.0, 0.0), (1.0, 0.5)]))), R0, horizon=0.1,
            samples=1,
        ),
        "layer has gamma=0 at depth 0, so that its variances do not relax",
    ),
)  # fmt: skip
