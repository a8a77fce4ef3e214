"""Compiled code in single precision has its own normals, and the law of double precision."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import shaped_attention as sa

ATTENTION, MLP = sa.ShapedAttention(0.5), sa.ShapedMLP(0.4, activation="gelu", hidden=21)
LAYERS = {
    "heads, mask, MLP": [
        sa.ShapedAttention(0.4, heads=2, mask="causal", output_projection=True), MLP,
    ],
    "LayerNorm": [sa.Normalised(ATTENTION, norm="layer"), sa.Normalised(MLP, norm="layer")],
}  # fmt: skip


def chain(layer, tokens, dtype, samples=50, **options):
    named = {"width": 128, "depth": 64, "seed": 5} | options
    v0 = sa.equicorrelated(tokens, 0.3)
    return sa.simulate_chain(layer, v0, samples=samples, dtype=dtype, **named)


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
