"""The neural tangent kernel in law: against explicit networks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

import shaped_attention as sa
from shaped_attention.lazy import deep
from tests.explicit_networks import TWO_EQUAL, Explicit
from tests.test_gradient_norms import GPT

ENTRIES = [(0, 0), (0, 1), (2, 2), (2, 3), (0, 3)]
PAIRS = {
    "shaped": (sa.ShapedAttention(0.6, 0.5, output_projection=True), 24),
    "gpt": (GPT, 24),
}


def explicitly(layer, width, samples):
    """The kernel of the layers' weights, from m backward passes of torch."""
    network = Explicit(layer, width, 2, samples, 3)
    last = network.tokens()[-1]
    f = (last @ network.normal(samples, width, 1))[..., 0] / width**0.5
    weights = list(network.weights.values())
    rows = [
        torch.cat(
            [
                x.flatten(1)
                for x in torch.autograd.grad(f[:, a].sum(), weights, retain_graph=True)
            ],
            1,
        )
        for a in range(4)
    ]  # fmt: skip
    jacobian = torch.stack(rows, 1)
    return (jacobian @ jacobian.mT).numpy()


def p_value(kernel, real):
    p = [stats.ks_2samp(kernel[:, a, b], real[:, a, b]).pvalue for a, b in ENTRIES]
    eigenvalues = [np.linalg.eigvalsh(x)[:, -1] for x in (kernel, real)]
    p.append(stats.ks_2samp(*eigenvalues).pvalue)
    return min(p) * len(p)


@pytest.mark.parametrize("name", PAIRS)
def test_law_is_that_of_explicit_networks(name):
    layer, width = PAIRS[name]
    data = sa.neural_tangent_kernel(layer, TWO_EQUAL, width=width, depth=2, samples=1500)
    kernel = data.kernel.values
    assert p_value(kernel, explicitly(layer, width, 1500)) > 1e-3
    np.testing.assert_allclose(kernel, kernel.transpose(0, 2, 1))
    assert np.linalg.eigvalsh(kernel).min() > -1e-9 * kernel.max()


def test_gradients_that_go_down_apart_are_rejected(monkeypatch):
    """Each with its own directions outside the span: products are then too small."""
    stacked = deep.stacked

    def apart(rows):
        whole = stacked(rows)
        for number, part in enumerate(whole.parts):
            # Turned at random, outside the span, from one gradient to the next.
            shared = 4
            count = part.shape[-1] - shared
            for k in range(1, len(rows)):
                sign = (-1.0) ** ((torch.arange(count) + k) % 2 + number)
                part[:, 4 * k : 4 * k + 4, shared:] *= sign.to(part.dtype)
        return whole

    monkeypatch.setattr(deep, "stacked", apart)
    layer, width = PAIRS["shaped"]
    with sa.eager():
        data = sa.neural_tangent_kernel(layer, TWO_EQUAL, width=width, depth=2, samples=1500)
    assert p_value(data.kernel.values, explicitly(layer, width, 1500)) < 1e-6


@pytest.mark.quick
def test_chunks_do_not_change_the_result():
    run = {"width": 24, "depth": 2, "samples": 3}
    whole = sa.neural_tangent_kernel(GPT, TWO_EQUAL, **run)
    parts = sa.neural_tangent_kernel(GPT, TWO_EQUAL, chunk=2, **run)
    np.testing.assert_allclose(whole.kernel, parts.kernel, rtol=1e-9)
    np.testing.assert_allclose(whole.readout_kernel, parts.readout_kernel, rtol=1e-9)


SHAPED = {
    "attention, W_O, then MLP": [
        sa.ShapedAttention(0.6, heads=2, output_projection=True), sa.ShapedMLP(0.5)
    ],
    "pattern, schedule": sa.Pattern([
        sa.ShapedAttention(sa.Schedule([(0.0, 0.2), (1.0, 0.8)])), sa.ShapedMLP(0.5),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPED)
def test_the_kernel_of_infinite_width_is_approached(name):
    """The error falls like 1 / sqrt n; at another rate it would stay."""
    errors = []
    for width in (64, 256, 1024, 4096):
        data = sa.neural_tangent_kernel(
            SHAPED[name], TWO_EQUAL, width=width, depth=4, samples=24, seed=5
        )
        limit = data["infinite_width_kernel"]
        errors.append(float(np.sqrt(((data.kernel - limit) ** 2).mean()) / limit.max()))
    slope = np.polyfit(np.log([64, 256, 1024, 4096]), np.log(errors), 1)[0]
    assert -0.65 < slope < -0.35, errors
    assert errors[-1] < 0.05
