"""What the three samplers share: randomness, chunks, save times, stopping, float32."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch

import shaped_attention.samplers.network as network_module
from shaped_attention import (
    Normalised,
    ShapedAttention,
    ShapedMLP,
    equicorrelated,
    integrate_sde,
    simulate_chain,
    simulate_network,
)
from shaped_attention.numerics import named_numbers
from shaped_attention.samplers.steppers import blas
from tests.laws import final, same_law, threads

LAYER = [ShapedAttention(0.5, 0.7), ShapedMLP(0.4)]
MASKED = ShapedAttention(0.5, 0.7, mask="causal")
V0 = equicorrelated(3, 0.2, 1.3)


def network(layer=LAYER, v0=V0, **options):
    options = {"samples": 70, "seed": 1} | options
    return simulate_network(layer, v0, width=10, depth=5, **options)


def chain(layer=LAYER, v0=V0, **options):
    options = {"samples": 70, "seed": 1} | options
    return simulate_chain(layer, v0, width=10, depth=5, **options)


def sde(layer=LAYER, v0=V0, **options):
    options = {"samples": 70, "seed": 1} | options
    return integrate_sde(layer, v0, horizon=0.5, step=0.1, **options)


def fixed_steps(layer=LAYER, v0=V0, **options):
    return sde(layer, v0, method="direct", **options)


def library(layer=LAYER, v0=V0, **options):
    """The chain by library routines."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blas, "FEWEST_LARGE_TOKENS", 1)
        return chain(layer, v0, **options)


SAMPLERS = pytest.mark.parametrize("sampler", [network, chain, sde])
INTEGRATORS_TOO = pytest.mark.parametrize("sampler", [network, chain, library, sde, fixed_steps])


@pytest.mark.portability
@INTEGRATORS_TOO
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("layer", [LAYER, MASKED])
def test_chunks_and_threads_do_not_change_a_result(sampler, layer, dtype):
    reference = sampler(layer, dtype=dtype)
    v = final(reference)
    np.testing.assert_array_equal(v, v.swapaxes(-1, -2))
    for chunk in (1, 33, 1000):
        np.testing.assert_array_equal(sampler(layer, dtype=dtype, chunk=chunk).V, reference.V)
    np.testing.assert_array_equal(sampler(layer, dtype=dtype, memory=1000).V, reference.V)
    with threads(1):
        np.testing.assert_array_equal(sampler(layer, dtype=dtype).V, reference.V)


NETWORKS = {
    "attention": ShapedAttention(0.5, 0.7),
    "projected heads": ShapedAttention(0.5, 0.7, heads=2, output_projection=True),
    "rotated, QK-norm": ShapedAttention(0.5, rope=[0.3], qk_norm=True),
    "gated": ShapedMLP(0.5, activation="silu", gated=True, hidden_ratio=1.5),
    "LayerNorm": Normalised(ShapedAttention(0.5), "sandwich", norm="layer"),
    "RMSNorm": Normalised(ShapedMLP(0.5), "after"),
}


@pytest.mark.portability
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("width", [38, 300])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_do_not_depend_on_those_beside_them(name, width, dtype):
    """Sums of torch and of its BLAS depend on the shape of a batch, at some of these widths."""
    options = {"width": width, "depth": 2, "seed": 3, "dtype": dtype, "progress": False}
    layer, v0 = NETWORKS[name], equicorrelated(5, 0.2)
    whole = simulate_network(layer, v0, samples=9, **options)
    for samples, chunk in ((1, 1), (2, 1), (9, 1), (9, 4), (5, 5)):
        other = simulate_network(layer, v0, samples=samples, chunk=chunk, **options)
        np.testing.assert_array_equal(other.V, whole.V[:, :samples])
    for number in (1, 3):
        with threads(number):
            again = simulate_network(layer, v0, samples=9, **options)
            assert torch.get_num_threads() == number
        np.testing.assert_array_equal(again.V, whole.V)


@pytest.mark.portability
@INTEGRATORS_TOO
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_samples_do_not_depend_on_which_others_are_asked_for(sampler, dtype):
    few, many = sampler(samples=5, dtype=dtype), sampler(samples=70, dtype=dtype)
    np.testing.assert_array_equal(few.V, many.V.isel(sample=slice(5)))


@INTEGRATORS_TOO
def test_save_times_do_not_change_a_path(sampler):
    every = sampler(save_every=1)
    np.testing.assert_allclose(every.time, np.arange(6) * 0.1, rtol=4e-15)
    some = sampler(times=[0.2, 0.5])
    np.testing.assert_array_equal(some.V, every.V.isel(time=[2, 5]))
    ends = sampler()
    np.testing.assert_array_equal(ends.V, every.V.isel(time=[0, 5]))
    early = sampler(times=[0.1])
    np.testing.assert_array_equal(early.V, every.V.isel(time=[1]))
    np.testing.assert_allclose(every.V.isel(time=0), np.broadcast_to(V0, (70, 3, 3)), rtol=1e-14)
    assert list(sampler(save_every=2).time.values) == pytest.approx([0.0, 0.2, 0.4, 0.5])


@SAMPLERS
def test_each_sampler_has_a_stream_of_its_own(sampler, monkeypatch):
    """With one seed no two samplers may see the same numbers: they are compared as independent."""
    streams = set()
    for module in (named_numbers, network_module):

        def recorded(*arguments, make=module.stream_key):
            streams.add(arguments[1])
            return make(*arguments)

        monkeypatch.setattr(module, "stream_key", recorded)
    for layer in (LAYER, MASKED):
        sampler(layer)
    assert streams == {sampler.__name__}


@INTEGRATORS_TOO
def test_stopped_paths_keep_their_value(sampler):
    """The clock stops a path between stored times, and below the radius by the barrier's shift."""
    fixed = pytest.warns(UserWarning, match="reached the radius with a fixed step")
    with fixed if sampler is fixed_steps else nullcontext():
        every = sampler(save_every=1, radius=3.0)
    least = 2.0 if sampler is sde else 3.0
    norm = np.linalg.norm(every.V.values, axis=(-2, -1))
    stop = every.stopping_time.values
    assert 0 < np.isfinite(stop).sum() < len(stop)
    for path in np.flatnonzero(np.isfinite(stop)):
        index = int(np.searchsorted(every.time.values, stop[path] - 1e-9))
        assert (norm[:index, path] < 3.0).all()
        assert norm[index, path] >= least
        kept = np.broadcast_to(every.V.values[index, path], every.V.values[index:, path].shape)
        np.testing.assert_array_equal(every.V.values[index:, path], kept)
    free = sampler(save_every=1)
    moving = ~np.isfinite(stop)
    np.testing.assert_array_equal(every.V.values[:, moving], free.V.values[:, moving])


@SAMPLERS
def test_float32_has_the_law_of_float64(sampler):
    """KS at level 10^-3; the numbers themselves agree to 5 10^-3 where they are those of float64.

    Except where |V| exceeds 100, which amplifies rounding errors: in less than 3 % of the paths.
    Chains in float32 draw other normals; 1,600 of their paths against 24,000 have the power of
    3,000 against 3,000. Weights of branches that are 10 % too large are rejected.
    """
    few, many = (3000, 3000) if sampler is network else (1600, 24_000)
    single, double = sampler(dtype="float32", samples=few), sampler(samples=few)
    assert same_law(single, sampler(samples=many, seed=9))
    wrong = [ShapedAttention(0.55, 0.7), ShapedMLP(0.44)]
    assert not same_law(single, sampler(wrong, samples=many, seed=9))
    if sampler is chain:
        return
    calm = np.linalg.norm(final(double), axis=(-2, -1)) < 100.0
    assert calm.mean() > 0.97
    np.testing.assert_allclose(single.V[:, calm], double.V[:, calm], rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("tokens", [1, 8, 64])
@pytest.mark.parametrize("width", [64, 10**6])
def test_chain_for_few_and_many_tokens_at_any_width(tokens, width):
    """The rank of V_0, half of the tokens, is kept but for the second order of the scores, 1/n^2.

    After 3 layers of width 10^6, all V are V_0 to 2 %; of width 64 not one in 10^3 triples is.
    """
    rank = max(1, tokens // 2)
    x = np.random.default_rng(0).standard_normal((tokens, rank)) / rank**0.5
    v = final(simulate_chain(ShapedAttention(0.5, 4.0), x @ x.T, width=width, depth=3, samples=3))
    values = np.linalg.eigvalsh(v)
    assert (np.abs(values[:, : tokens - rank]) < max(1e-3 / width**2, 1e-12) * values[:, -1:]).all()
    assert (values[:, tokens - rank] > 1e-3 * values[:, -1]).all()
    moved = np.linalg.norm(v - x @ x.T, axis=(1, 2)) / np.linalg.norm(x @ x.T)
    assert (moved.max() < 0.02) == (width == 10**6)
