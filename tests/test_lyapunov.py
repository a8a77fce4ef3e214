"""Lyapunov exponents: exact means, and explicit Jacobians."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

import shaped_attention as sa
from figures.blocks.attentions import Differential
from tests.explicit_networks import TWO_EQUAL, Explicit
from tests.refusals import refused

LINEAR = sa.ShapedAttention(0.5)
K = 0.25 * 1.75


EXPLICIT = {
    "shaped": sa.ShapedAttention(0.6, 0.5, output_projection=True),
    "mlp": [sa.ShapedAttention(0.6, mask="causal"), sa.ShapedMLP(0.5)],
}


def explicitly(layer, width, depth, samples, wrong=False):
    """Forward tangents by the explicit Jacobian; `wrong` takes a single token's tangents."""
    network = Explicit(layer, width, depth, samples, 3)
    tangents = network.normal(2, samples, 4, width)
    if wrong:
        tangents[:, :, 1:] = 0.0

    def after(x):
        network.start = x
        return network.tokens()[-1]

    jvp = torch.autograd.functional.jvp
    moved = torch.stack([jvp(after, network.start, t)[1] for t in tangents])
    logs = []
    for rows in (tangents, moved):
        flat = rows.flatten(2).transpose(0, 1)
        gram = flat @ flat.mT
        logs.append(torch.linalg.cholesky(gram).diagonal(dim1=1, dim2=2).log())
    return ((logs[1] - logs[0]) / (depth / width)).detach().numpy().T


@pytest.mark.parametrize("name", EXPLICIT)
def test_law_is_that_of_explicit_jacobians(name):
    """Two of four tokens are equal; gradients that go back have the law of forward tangents."""
    layer = EXPLICIT[name]
    data = sa.lyapunov(layer, TWO_EQUAL, width=12, depth=3, samples=1500)

    def p(real):
        pairs = list(zip(data.exponent.values, real, strict=True))
        pairs.append((data.exponent.values.sum(0), real.sum(0)))
        return min(stats.ks_2samp(x, y).pvalue for x, y in pairs) * 3

    assert p(explicitly(layer, 12, 3, 1500)) > 1e-3
    assert p(explicitly(layer, 12, 3, 1500, wrong=True)) < 1e-6


V3 = sa.equicorrelated(3, 0.2)


def test_law_of_the_limit_is_that_of_networks():
    """A block of which only the branch is written; at tau0 = 1 in place of 0.4 the law differs."""
    horizon, samples = 0.25, 2000
    found = sa.lyapunov(Differential(0.6, 0.4), V3, horizon=horizon, samples=samples)
    chain = sa.lyapunov(Differential(0.6, 0.4), V3, width=200, depth=50, samples=samples, seed=1)
    other = sa.lyapunov(Differential(0.6, 1.0), V3, width=200, depth=50, samples=samples, seed=1)

    def p(networks):
        pairs = zip(found.exponent.values, networks.exponent.values, strict=True)
        return 2 * min(stats.ks_2samp(x, y).pvalue for x, y in pairs)

    assert p(chain) > 1e-3
    assert p(other) < 1e-3


def test_the_limit_of_one_token_is_linear():
    """Exponent i of one token has the mean -k i / 2, and the variance k / (2 T)."""
    data = sa.lyapunov(LINEAR, [[1.0]], horizon=0.5, samples=3000, exponents=2)
    mean, error = data.exponent.mean("sample"), data.exponent.std("sample") / 3000**0.5
    assert np.all(np.abs(mean + 0.5 * K * data.index) < 4 * error)
    # The control: the exponents in the other order.
    assert np.all(np.abs(mean + 0.5 * K * data.index.values[::-1]) > 8 * error)
    np.testing.assert_allclose(data.exponent.std("sample"), K**0.5, rtol=0.1)


def test_chunks_do_not_change_exponents():
    def exponents(chunk):
        return sa.lyapunov(
            LINEAR, TWO_EQUAL, width=20, depth=3, samples=5, chunk=chunk
        ).exponent.values

    np.testing.assert_array_equal(exponents(2), exponents(5))


test_refusals = refused(
    ({"width": 2, "depth": 2, "exponents": 9}, "exponents must be at most 8"),
    ({"depth": 2}, "width and depth or horizon must be given"),
    ({"layer": sa.Normalised(LINEAR), "horizon": 0.1}, "derived from the branch"),
    by=lambda where: sa.lyapunov(**{"layer": LINEAR, "v0": TWO_EQUAL, "samples": 2} | where),
)
