"""The module: at initialisation a sample of `simulate_network`; trainable; and the recorder."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp

import shaped_attention as sa
from shaped_attention.numerics.covariance import factor
from tests.refusals import refused

V0 = sa.equicorrelated(2, 0.2)
LAYERS = {
    "attention": sa.ShapedAttention(0.6, 0.5),
    "both": [sa.ShapedAttention(0.6, 0.5), sa.ShapedMLP(0.6)],
    "heads, projection": sa.ShapedAttention(0.6, 0.5, heads=4, output_projection=True),
    "causal, biases": sa.ShapedAttention(0.6, 0.5, mask="causal", query_bias=2.0, key_bias=0.5),
}


def at_initialisation(layer, count, width=16, depth=6):
    tokens = torch.zeros(2, width)
    tokens[:, :2] = width**0.5 * torch.tensor(factor(V0))
    out = np.empty((count, 2, 2))
    with torch.no_grad():
        for seed in range(count):
            x = sa.ShapedTransformer(layer, width=width, depth=depth, seed=seed)(tokens).double()
            out[seed] = x @ x.T / width
    return out


def smallest_p_value(a, b):
    pairs = [
        (np.log(np.linalg.det(a)), np.log(np.linalg.det(b))),
        (sa.correlations(a)[:, 0, 1], sa.correlations(b)[:, 0, 1]),
        (np.log(a[:, 1, 1]), np.log(b[:, 1, 1])),
    ]
    return min(ks_2samp(x, y).pvalue for x, y in pairs)


@pytest.mark.parametrize("name", LAYERS)
def test_at_initialisation_it_is_a_network(name):
    """KS of three observables at level 10^-3 (Bonferroni) over 400 seeds against the chain.

    Half of the time it sees a shift of 0.25 standard deviations. A chain with gamma = 0.45 in the
    place of 0.6 is rejected.
    """
    modules = at_initialisation(LAYERS[name], 400)
    run = {"width": 16, "depth": 6, "samples": 20_000, "seed": 5}
    assert smallest_p_value(modules, sa.simulate_chain(LAYERS[name], V0, **run).V.values[-1]) > 3e-4
    wrong = sa.simulate_chain(sa.ShapedAttention(0.45, 0.5), V0, **run).V.values[-1]
    assert smallest_p_value(modules, wrong) < 3e-4


def test_it_trains():
    """A hundred steps lower a regression loss by two thirds, and move gamma and the centring."""
    model = sa.ShapedTransformer(
        [sa.ShapedAttention(0.5, heads=2), sa.ShapedMLP(0.5)], width=16, depth=2, vocabulary=5
    )
    generator = torch.Generator().manual_seed(1)
    words = torch.randint(5, (32, 3), generator=generator)
    target = torch.randn(5, 16, generator=generator)[words.flip(-1)]
    optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
    losses = []
    for _ in range(100):
        loss = ((model(words) - target) ** 2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 3
    for name in ("gamma", "identity", "centring"):
        start = 0.5 if name == "gamma" else 1.0
        assert abs(getattr(model.blocks[0], name).item() - start) > 1e-3


def test_the_recorder_sees_every_block():
    model = sa.ShapedTransformer(LAYERS["both"], width=16, depth=3, seed=2)
    tokens = torch.randn(4, 2, 16, generator=torch.Generator().manual_seed(3))
    data = sa.record_covariances(model, tokens)
    assert data["V"].shape == (7, 4, 2, 2)
    with torch.no_grad():
        x = model(tokens).double()
    np.testing.assert_allclose(data["V"].values[0], tokens.double() @ tokens.double().mT / 16)
    np.testing.assert_allclose(data["V"].values[-1], x @ x.mT / 16, rtol=1e-6)
    # Two blocks are a layer, and a layer takes the time 1 / n.
    np.testing.assert_array_equal(data["time"], np.arange(7) / 32)
    assert np.isinf(data["stopping_time"]).all()
    assert data["module"].values[:2].tolist() == ["input", "blocks.0"]
    assert sa.record_covariances(model, tokens, initial=False).equals(data.isel(time=slice(1, 7)))
    # Hooks are gone, and another model's streams are recorded as well.
    assert not any(module._forward_hooks for module in model.modules())
    with torch.random.fork_rng():
        encoder = torch.nn.TransformerEncoder(
            torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True), 2
        )
    chosen = sa.record_covariances(
        encoder.train(), tokens, lambda name, _: name.count(".") == 1 and name.startswith("layers")
    )
    assert list(chosen["module"].values) == ["input", "layers.0", "layers.1"]
    np.testing.assert_array_equal(chosen["position"], [0, 1, 2])


test_what_is_refused = refused(
    (
        lambda: sa.ShapedTransformer(sa.Normalised(sa.ShapedMLP(0.5)), width=8, depth=1),
        "ShapedAttention and ShapedMLP can be trained",
    ),
    (
        lambda: sa.ShapedTransformer(sa.ShapedMLP(0.5), width=8, depth=1)(torch.zeros(2, 7)),
        r"inputs must be of shape \(..., m, 8\); got a Tensor of shape \(2, 7\)",
    ),
    (
        lambda: sa.record_covariances(torch.nn.ReLU(), torch.zeros(3), lambda *_: True),
        "is not a token stream",
    ),
)
