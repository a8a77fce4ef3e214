"""Initial conditions per sample, the end of another run among them, and what is kept of a run."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.numerics.observables import observables
from tests.example_linear import Linear
from tests.laws import ks_p_values

V0 = sa.equicorrelated(3, 0.2, 1.3)
ATTENTION = sa.ShapedAttention(0.5, 0.5)


def network(layer, v0=V0, depth=10, samples=70, **options):
    return sa.simulate_network(layer, v0, width=8, depth=depth, samples=samples, **options)


def chain(layer, v0=V0, depth=10, samples=70, **options):
    return sa.simulate_chain(layer, v0, width=8, depth=depth, samples=samples, **options)


def sde(layer, v0=V0, depth=10, samples=70, **options):
    return sa.integrate_sde(layer, v0, horizon=depth / 8, step=1 / 8, samples=samples, **options)


SAMPLERS = pytest.mark.parametrize("sampler", [network, chain, sde])


@SAMPLERS
def test_a_run_in_two_parts_has_the_law_of_a_run_in_one(sampler):
    """KS at 10^-3 (Bonferroni). With the numbers of the first part again it is rejected.

    There the increments of both parts are correlated, by .7 to .8 in networks, which widens the
    law: 1500 samples reject it with p-values far below 1e-10.
    """
    layer, options = [sa.ShapedAttention(0.35), sa.ShapedMLP(0.35)], {"samples": 1500}
    whole = sampler(layer, depth=10, seed=3, **options)
    first = sampler(layer, depth=5, seed=1, **options)
    options |= {"radius": first.attrs["radius"], "depth": 5}
    last = first.V.isel(time=-1)
    p = ks_p_values(whole, sampler(layer, last, seed=2, **options))
    assert min(p.values()) > 1e-3 / len(p)
    with pytest.raises(ValueError, match=r"^seed must differ from that of the result that v0 com"):
        sampler(layer, last, seed=1, **options)
    wrong = ks_p_values(whole, sampler(layer, last.values, seed=1, **options))
    assert min(wrong.values()) < 1e-3 / len(wrong)


@pytest.mark.parametrize("seed", [7, 2**70])
def test_a_start_knows_its_sampler_and_seed_from_a_file_too(tmp_path, seed):
    """Other samplers and seeds may go on, and so may samples that are chosen."""
    first = chain(ATTENTION, samples=3, depth=2, seed=seed)
    loaded = sa.load(sa.save(first, tmp_path / "first.nc"))
    for result in (first, loaded, first.isel(sample=[2, 0, 1])):
        last = result.V.isel(time=-1)
        with pytest.raises(ValueError, match=rf"repeat; got {seed} for both$"):
            chain(ATTENTION, last, samples=3, seed=seed)
        for run, other in ((chain, 8), (network, seed)):
            rest = run(ATTENTION, last, samples=3, seed=other)
            np.testing.assert_allclose(rest.V[0], last)


@pytest.mark.portability
@SAMPLERS
def test_each_sample_has_its_start_and_its_own_numbers(sampler):
    starts = np.stack([V0 * (1.0 + k) for k in range(70)])
    result = sampler(sa.ShapedAttention(0.5, 1e15), starts)
    np.testing.assert_allclose(result.V[0], starts, rtol=1e-12)
    plain = sampler(sa.ShapedAttention(0.5, 1e15))
    # Without scores the map is linear, so a scaled start gives the scaled path.
    factors = (1.0 + np.arange(70))[:, None, None]
    np.testing.assert_allclose(result.V[-1], factors * plain.V[-1].values, rtol=1e-9)
    again = sa.rerun(result)
    np.testing.assert_array_equal(again.V, result.V)
    with pytest.raises(
        ValueError, match=r"^v0 must be a matrix .m, m., or one for .*; got shape .70, 3, 3.$"
    ):
        sampler(sa.ShapedAttention(0.5), starts, samples=10)


@pytest.mark.portability
@SAMPLERS
def test_observables_are_kept_while_the_run_goes_on(sampler):
    layer = [sa.ShapedAttention(0.5, 0.5, mask="causal"), sa.ShapedMLP(0.4)]
    whole = sampler(layer, save_every=5)
    kept = sampler(layer, save_every=5, keep="observables")
    for k in range(len(whole.time)):
        for name, values in observables(whole.V.values[k]).items():
            np.testing.assert_array_equal(kept["kept"].sel(observable=name)[k], values)
    own = sampler(layer, keep="tests.test_starts:trace")
    np.testing.assert_allclose(
        own["kept"][-1, :, 0], np.trace(whole.V.values[-1], axis1=1, axis2=2)
    )
    with pytest.raises(ValueError, match=r"^keep must be 'V', 'observables' or 'module:function';"):
        sampler(layer, keep="tests.test_starts:gone")


def trace(v):
    return np.trace(v, axis1=1, axis2=2)


def test_the_limit_of_a_pattern_is_the_mean_of_its_limits():
    layer = sa.Pattern([ATTENTION, sa.ShapedMLP(0.4)])
    parts = [sa.drift(block, V0) for block in layer.layers]
    np.testing.assert_allclose(sa.drift(layer, V0), sum(parts) / 2, rtol=1e-12)
    parts = [sa.diffusion(block, V0) for block in layer.layers]
    np.testing.assert_allclose(sa.diffusion(layer, V0), sum(parts) / 2, rtol=1e-12)


def test_parallel_branches_add_up_by_their_weights():
    """Exactly, with the identity in the place of the weights."""
    tokens = torch.arange(12.0, dtype=torch.float64).reshape(3, 4)
    block = sa.Parallel(Linear(0.3), Linear(0.4))
    moved = block.forward(at_depth(block, 0.0), tokens, lambda x, columns, *_: x)
    torch.testing.assert_close(moved, (0.75**0.5 + 0.35) * tokens)


def test_the_limit_of_parallel_branches():
    """Its rate is 2 lambda^2 Gamma + Gamma^2 + the MLP's gamma^4; drifts add."""
    parallel = sa.Parallel(sa.ShapedAttention(0.6, 0.5, heads=2), sa.ShapedMLP(0.5, 0.0, -2.0))
    parts = [sa.drift(block, V0) for block in parallel.blocks]
    np.testing.assert_allclose(sa.drift(parallel, V0), sum(parts), rtol=1e-12)
    flat = sa.Parallel(sa.ShapedAttention(0.6, 1e12), sa.ShapedMLP(0.5, 0.0, 0.0))
    total = 0.36 + 0.25
    rate = 2 * (1 - total) * total + total**2 + 0.25**2
    assert sa.diffusion(flat, np.eye(1))[0, 0] / 2 == pytest.approx(rate, rel=1e-12)


def test_the_drift_of_a_schedule_is_that_at_its_depth():
    rising = sa.ShapedAttention(sa.Schedule([(0.0, 0.1), (1.0, 0.9)]), 0.5)
    for function in (sa.drift, sa.diffusion):
        for at, gamma in ((0.0, 0.1), (0.25, 0.3), (1.0, 0.9)):
            known = function(sa.ShapedAttention(gamma, 0.5), V0)
            np.testing.assert_allclose(function(rising, V0, at=at), known, rtol=1e-12)
        with pytest.raises(ValueError, match=r"^at, a relative depth in .0, 1., must be given"):
            function(rising, V0)


def test_branches_and_starts_that_are_none_are_refused():
    with pytest.raises(ValueError, match=r"add up to at most 1 if no skip weight is .*; got 1\.28"):
        sa.Parallel(sa.ShapedMLP(0.8), sa.ShapedMLP(0.8))
    with pytest.raises(ValueError, match=r"^v0 must be an array, not a result; to start from its"):
        chain(ATTENTION, chain(ATTENTION))
