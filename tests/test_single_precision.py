"""Compiled code in single precision: with rounded normals it follows double precision's paths."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy import stats

import shaped_attention as sa
from shaped_attention.numerics.mover import Mover
from shaped_attention.samplers.steppers import compiled

ATTENTION, MLP = sa.ShapedAttention(0.5), sa.ShapedMLP(0.4, activation="gelu", hidden=21)
LAYERS = {
    "attention": ATTENTION,
    "heads, mask, MLP": [
        sa.ShapedAttention(0.4, heads=2, mask="causal", output_projection=True), MLP,
    ],
    "LayerNorm": [sa.Normalised(ATTENTION, norm="layer"), sa.Normalised(MLP, norm="layer")],
}  # fmt: skip


def chain(layer, tokens, dtype, samples=50, **options):
    named = {"width": 128, "depth": 64, "seed": 5} | options
    v0 = sa.equicorrelated(tokens, 0.3)
    return sa.simulate_chain(layer, v0, samples=samples, dtype=dtype, **named)


@pytest.mark.quick
@pytest.mark.portability
@pytest.mark.parametrize("tokens", [3, 9])
@pytest.mark.parametrize("name", LAYERS)
def test_with_the_same_normals_the_paths_are_those_of_double_precision(name, tokens, monkeypatch):
    """To 1e-5 of the largest entry after 64 layers of attention; others lose as much in torch.

    With its own normals they are other paths.
    """
    double = chain(LAYERS[name], tokens, "float64").V.values[-1]
    own = chain(LAYERS[name], tokens, "float32").V.values[-1]
    monkeypatch.setattr(compiled, "Mover", partial(Mover, rounded=True))
    single = chain(LAYERS[name], tokens, "float32").V.values[-1]
    scale = np.abs(double).max((1, 2), keepdims=True)
    with sa.eager():
        by_torch = chain(LAYERS[name], tokens, "float32").V.values[-1]
    lost = (np.abs(by_torch - double) / scale).max()
    assert (np.abs(single - double) / scale).max() < max(1e-5, 1.5 * lost)
    assert lost < 1e-4
    assert (np.abs(own - double) / scale).max() > 0.1


@pytest.mark.parametrize("name", LAYERS)
def test_its_own_normals_have_the_same_law(name):
    """KS of 12,000 paths for the correlation and the trace; 6 % of gamma or more is seen.

    The control is the layer at depth 80 in place of 64.
    """

    def of(dtype, seed, depth=64):
        v = chain(LAYERS[name], 3, dtype, 12_000, seed=seed, depth=depth).V.values[-1]
        return v[:, 0, 1] / np.sqrt(v[:, 0, 0] * v[:, 1, 1]), np.trace(v, axis1=1, axis2=2)

    single, double, longer = of("float32", 1), of("float64", 2), of("float32", 3, 80)
    for a, b in zip(single, double, strict=True):
        if np.ptp(b) > 1e-3:
            assert stats.ks_2samp(a, b).pvalue > 1e-3
    assert min(stats.ks_2samp(a, b).pvalue for a, b in zip(longer, double, strict=True)) < 1e-6


@pytest.mark.quick
@pytest.mark.portability
def test_chunks_threads_and_other_samples_do_not_change_a_bit():
    whole = chain(LAYERS["heads, mask, MLP"], 5, "float32").V.values
    for options in ({"chunk": 7}, {"samples": 31}):
        part = chain(LAYERS["heads, mask, MLP"], 5, "float32", **options).V.values
        np.testing.assert_array_equal(part, whole[:, : part.shape[1]])
