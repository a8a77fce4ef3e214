"""Chain and SDE coupled through the same Gaussians."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention import ensemble as en
from shaped_attention.blocks.coupling import normal_of_chi
from shaped_attention.convergence import Coupled, convergence
from shaped_attention.draws import Draws, stream_key
from tests.laws import same_law
from tests.user_block import Linear

BLOCK = sa.ShapedAttention(0.5)
V0 = sa.equicorrelated(2, 0.2)
FAMILY = {
    "attention": BLOCK,
    "causal": sa.ShapedAttention(0.5, mask="causal"),
    "biases": sa.ShapedAttention(0.5, query_bias=0.5, key_bias=0.5),
    "projection": sa.ShapedAttention(0.5, output_projection=True),
    "heads": sa.ShapedAttention(0.5, heads=2),
    "heads, projection": sa.ShapedAttention(0.5, heads=2, output_projection=True),
    "MLP": sa.ShapedMLP(0.5),
    "transformer": [sa.ShapedAttention(0.5, heads=2, mask="causal"), sa.ShapedMLP(0.5)],
}


def pairs(layer, width, depth, count, seed=0):
    request = en.make_ensemble(
        layer, V0, width=width, steps=depth, dt=1.0 / width, samples=count, seed=seed, times=None,
        save_every=None, radius=1e30, device="cpu", dtype="float64", chunk=None, memory=10**9,
    )  # fmt: skip
    coupled = Coupled(request, width, 0, count)
    for step in range(depth):
        coupled.step(step, torch.ones(count, dtype=torch.bool))
    chain, limit = coupled.chain, coupled.limit
    return (chain @ chain.mT).numpy(), (limit @ limit.mT).numpy()


@pytest.mark.parametrize("member", FAMILY)
def test_the_chain_of_a_pair_is_the_chain(member):
    """To rounding, path by path, with the same seed."""
    chain, _ = pairs(FAMILY[member], 40, 10, 20, seed=3)
    alone = sa.simulate_chain(FAMILY[member], V0, width=40, depth=10, samples=20, seed=3)
    np.testing.assert_allclose(chain, alone.V.values[-1], rtol=1e-10)


@pytest.mark.parametrize("member", FAMILY)
def test_the_sde_of_a_pair_has_the_law_of_the_sde(member):
    """KS against `integrate_sde` at the same step; a limit with another gamma is rejected."""
    layer = FAMILY[member]
    _, limit = pairs(layer, 32, 16, 4000)
    run = {"horizon": 0.5, "step": 1 / 32, "samples": 20_000, "seed": 8}
    alone = sa.integrate_sde(layer, V0, **run)
    coupled = alone.isel(sample=slice(0, 4000)).copy(deep=True)
    coupled["V"][-1] = limit
    assert same_law(coupled, alone)
    other = sa.integrate_sde(sa.ShapedAttention(0.65, mask="causal"), V0, **run)
    assert not same_law(coupled, other)


@pytest.mark.parametrize("member", FAMILY)
def test_pairs_approach_each_other_for_the_whole_family(member):
    """The strong rate is 1/2 within 2 standard errors and 0.07 (heads: the next order shows)."""
    data = convergence(FAMILY[member], V0, (16, 32), horizon=0.25, samples=1024)
    assert abs(float(data["strong_rate"]) - 0.5) < 0.07 + 2 * float(data["strong_rate_error"])
    assert (data["gain"].mean("observable") > 10).all()


@dataclass(frozen=True)
class _ForeignScores(sa.ShapedAttention):
    """Attention whose limit is driven by the keys in the wrong place (transposed)."""

    def coupled_noise(self, numbers, width):
        numbers = [numbers[0], numbers[1].mT, *numbers[2:]]
        return super().coupled_noise(numbers, width)


@dataclass(frozen=True)
class _ForeignProjection(sa.ShapedAttention):
    """Attention whose limit sees W_O with the wrong sign."""

    def coupled_noise(self, numbers, width):
        mixing, keys = super().coupled_noise(numbers, width)
        return -mixing, keys


@dataclass(frozen=True)
class _ForeignMLP(sa.ShapedMLP):
    """An MLP whose limit is driven by the hidden Gaussians with the wrong sign."""

    def coupled_noise(self, numbers, width):
        mixing, keys = super().coupled_noise(numbers, width)
        return -mixing, keys


@pytest.mark.parametrize(
    "wrong",
    [
        _ForeignScores(0.9, 0.3),
        _ForeignProjection(0.9, output_projection=True),
        _ForeignMLP(0.9),
    ],
)
def test_a_wrong_coupling_does_not_converge(wrong):
    """The laws are right but the numbers are not: the strong rate is below 0.3."""
    data = convergence(wrong, V0, (16, 32), horizon=0.25, samples=1024)
    assert float(data["strong_rate"]) + 2 * float(data["strong_rate_error"]) < 0.3


@pytest.mark.parametrize("dof", [4, 30, 1000])
def test_quantile_coupling_makes_normals(dof):
    """Moments of the coupled diagonal within 5 standard errors: mean 0, variance 2, kurtosis 3."""
    chi = Draws(stream_key(0, "chain"), torch.arange(40_000), 0).chi([dof, dof - 1])
    x = normal_of_chi(chi, dof).numpy() / np.sqrt(2)
    for power, moment, error in ((1, 0, 1), (2, 1, 2**0.5), (3, 0, 15**0.5), (4, 3, 96**0.5)):
        assert (np.abs((x**power).mean(0) - moment) < 5 * error / np.sqrt(40_000)).all()


def test_strong_rate_one_half_and_what_is_gained():
    """Strong rate 1/2 within 0.03, and excludes 1; the gain grows with the width, above 20.

    The weak error of log det V is 3 standard errors at the smallest width, and then smaller.
    """
    data = convergence(BLOCK, V0, (16, 32, 64, 128), horizon=0.25, samples=8192)
    assert abs(float(data["strong_rate"]) - 0.5) < 0.03
    assert float(data["strong_rate_error"]) < 0.01
    gain = data["gain"].sel(observable="log det V").values
    assert gain[0] > 20
    assert gain[-1] > 4 * gain[0]
    weak = np.abs(data["weak"].sel(observable="log det V").values)
    error = data["weak_error"].sel(observable="log det V").values
    assert weak[0] > 3 * error[0]
    assert weak[-1] < weak[0]
    assert np.isfinite(data["extrapolated"]).all()


def test_the_extrapolated_value_is_the_limit():
    """tau_0 -> infinity: E log det V_T = log det V_0 - k m (m + 1) T / 2 exactly.

    The chain's own value at the largest width is more than 4 standard errors away from it.
    """
    horizon, samples, k = 0.25, 200_000, 0.25 * 1.75
    data = convergence(sa.ShapedAttention(0.5, 1e9), V0, (8, 16), horizon=horizon, samples=samples)
    exact = np.log(np.linalg.det(V0)) - 3 * k * horizon
    found = float(data["extrapolated"].sel(observable="log det V"))
    error = np.sqrt(4 * k * horizon / samples)
    assert abs(found - exact) < 4 * np.sqrt(5) * error + 0.002
    alone = float(data["chain"].sel(observable="log det V", width=16))
    assert abs(alone - exact) > 4 * error + 0.002


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": sa.ShapedAttention(0.5, key_size=2)}, "keys have size 2, below 4"),
        ({"layer": sa.ShapedAttention(0.5, key_size=4, query_bias=1.0)}, "size 4, below 5"),
        (
            {"layer": sa.ShapedAttention(0.5, heads=8, output_projection=True, key_size=9)},
            "heads have size 2",
        ),
        ({"layer": sa.ShapedAttention(0.5, heads=4)}, "widths contain 16: at least 24"),
        ({"layer": sa.Normalised(BLOCK)}, "has no limit"),
        ({"layer": Linear(0.5)}, "cannot be coupled: it does not say"),
        ({"widths": (32, 16)}, r"widths=\[32, 16\]: at least two, increasing"),
        ({"widths": (4, 8)}, "widths contain 4: at least 6 is needed"),
        (
            {"widths": (10, 20), "horizon": 0.25},
            r"whole number width \* horizon is needed, not 2.5",
        ),
        ({"radius": 0.0}, "radius=0.0: a positive"),
    ],
)
def test_bad_arguments(options, message):
    options = {"layer": BLOCK, "v0": V0, "samples": 10} | options
    with pytest.raises(ValueError, match=message):
        convergence(**options)
