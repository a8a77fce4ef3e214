"""Trained models: hidden states against a forward pass by hand, and the law of their cosines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from shaped_attention.sphere.plots.trained import inner_product_histograms
from torch import Tensor, nn

from shaped_attention.models.recording import record_outputs
from shaped_attention.sphere.starts import uniform_start
from shaped_attention.sphere.trained import (
    example_hidden_states,
    inner_products,
    record_hidden_states,
)

RANDOM = np.random.default_rng(5)
STATES = RANDOM.standard_normal((3, 6, 4)) + 0.3
WIDTH = 8


@dataclass
class Output:
    """What Hugging Face models return, as far as it is used."""

    last_hidden_state: Tensor
    hidden_states: tuple[Tensor, ...] | None = None


class FaceModel(nn.Module):
    """Embeddings and three layers x -> tanh(W x), called like a Hugging Face model."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.table = nn.Parameter(torch.randn(11, WIDTH, generator=generator))
        self.maps = nn.Parameter(torch.randn(3, WIDTH, WIDTH, generator=generator) / WIDTH**0.5)

    def forward(self, input_ids: Tensor, output_hidden_states: bool = False) -> Output:
        x = self.table[input_ids]
        states = [x]
        for w in self.maps:
            x = torch.tanh(x @ w.mT)
            states.append(x)
        return Output(x, tuple(states) if output_hidden_states else None)


class Ragged(FaceModel):
    """Its states differ in their number of tokens."""

    def forward(self, *args: Tensor, **options: bool) -> Output:
        states = super().forward(*args, **options).hidden_states
        return Output(states[-1], (*states, states[-1][..., :2, :]))


def encoder(dtype=torch.float64):
    with torch.random.fork_rng():
        torch.manual_seed(7)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 2, 16, dropout=0.0, batch_first=True, dtype=dtype, norm_first=False
        )
        model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.5)
    return model


def cosines_by_hand(layer):
    found = []
    for i in range(len(layer)):
        for j in range(i):
            x, y = layer[i], layer[j]
            found.append(sum(x * y) / np.sqrt(sum(x * x) * sum(y * y)))
    return np.array(found)


def test_statistics_are_those_of_the_pairs():
    """To 1e-14 against a loop over pairs; the pairs i <= j have another mean."""
    data = inner_products(STATES, bins=7, quantiles=(0.1, 0.5), delta=0.6)
    for k, layer in enumerate(STATES):
        known = cosines_by_hand(layer)
        counts = np.zeros(7)
        for c in known:
            counts[min(int((c + 1.0) / 2.0 * 7), 6)] += 1
        np.testing.assert_allclose(data["density"][k], counts / 15 / (2 / 7), rtol=1e-14)
        assert float(data["mean"][k]) == pytest.approx(known.mean(), abs=1e-14)
        assert float(data["median"][k]) == pytest.approx(sorted(known)[7], abs=1e-14)
        assert float(data["quantile"].sel(level=0.5)[k]) == float(data["median"][k])
        tenth = sorted(known)[1] * 0.6 + sorted(known)[2] * 0.4
        assert float(data["quantile"].sel(level=0.1)[k]) == pytest.approx(tenth, abs=1e-14)
        assert float(data["close"][k]) == sum(c >= 0.4 for c in known) / 15
        with_itself = (known.sum() + 6.0) / 21.0
        assert abs(float(data["mean"][k]) - with_itself) > 0.05
    np.testing.assert_allclose(data["cosine"], [(2 * k - 6) / 7 for k in range(7)], atol=4e-15)
    np.testing.assert_allclose(data["density"].sum("cosine") * 2 / 7, 1.0, rtol=1e-14)


def test_the_mean_is_that_of_the_resultant():
    """(|sum_i u_i|^2 - N) / (N (N - 1)), to 1e-13; without the -N it is another number."""
    _, states = example_hidden_states()
    unit = states / np.linalg.norm(states, axis=-1, keepdims=True)
    square = (unit.sum(axis=1) ** 2).sum(axis=-1)
    found = inner_products(states)["mean"]
    np.testing.assert_allclose(found, (square - 70) / (70 * 69), atol=1e-13)
    assert np.abs(found - square / (70 * 69)).min() > 0.01


def test_samples_are_pooled_inside_and_not_across():
    """The mean over samples of the means; pairs across the two samples would give another."""
    both = np.stack([STATES, STATES @ np.diag([1.0, 2.0, -1.0, 0.5]) + 1.0], axis=1)
    data = inner_products(both)
    parts = [inner_products(both[:, k]) for k in range(2)]
    for name in ("mean", "close", "density"):
        np.testing.assert_allclose(data[name], (parts[0][name] + parts[1][name]) / 2, atol=1e-13)
    across = inner_products(both.reshape(3, 12, 4))
    assert np.abs(data["mean"] - across["mean"]).min() > 1e-3


def test_lengths_of_tokens_do_not_matter():
    """Factors from 1e-300 to 1e300 leave everything but rounding; a sign does not."""
    factors = 10.0 ** np.linspace(-300, 300, 18).reshape(3, 6, 1)
    data, scaled = inner_products(STATES), inner_products(STATES * factors)
    for name in ("mean", "median", "close", "density"):
        np.testing.assert_allclose(scaled[name], data[name], atol=1e-13)
    flipped = inner_products(STATES * np.array([-1.0, 1, 1, 1, 1, 1])[:, None])
    assert np.abs(flipped["mean"] - data["mean"]).min() > 0.01
    same = inner_products(np.full((1, 4, 3), 0.1), bins=10)
    assert float(same["close"][0]) == 1.0
    assert float(same["density"][0, -1]) == pytest.approx(5.0)


def test_uniform_tokens_have_the_dashed_law():
    """Binned cosines against the plotted density at d = 5: chi-square, below its 0.999 quantile.

    Pairs of a sample are pairwise independent, so counts have about binomial variances. The curve
    of d = 6 is rejected.
    """
    states = uniform_start(4, 5, samples=4000, seed=2)[None].numpy()
    data = inner_products(states, bins=16)
    figure = inner_product_histograms(data, "uniform")
    grid, curve = figure.axes[0].lines[1].get_data()
    pairs, statistics = 4000 * 6, []
    for density in (curve, (1 - grid**2) ** 1.5 * 2 / np.pi * 4 / 3):
        mass = np.interp(np.linspace(-1, 1, 1601), grid, density) / 800
        expected = pairs * mass[:-1].reshape(16, 100).sum(axis=1)
        seen = data["density"].values[0] * pairs / 8
        statistics.append(((seen - expected) ** 2 / expected).sum())
    # The 0.999 quantile of chi-square with 15 degrees of freedom.
    assert statistics[0] < 37.7
    assert statistics[1] > 200.0


def test_cosines_of_the_example_grow_with_depth_but_for_the_last_layer():
    """Means 0.066 to 0.321, then 0.266; with shuffled features there is no growth to be seen."""
    states = example_hidden_states()[1]
    mean = inner_products(states)["mean"].values
    np.testing.assert_allclose(
        mean, [0.0656, 0.1180, 0.1325, 0.1606, 0.2216, 0.3206, 0.2663], atol=1e-4
    )
    assert (np.diff(mean)[:5] > 0.01).all()
    assert mean[6] < mean[5] - 0.05
    shuffled = np.random.default_rng(1).permuted(states, axis=-1)
    assert np.abs(inner_products(shuffled)["mean"].values).max() < 0.01


def test_the_figure_shows_each_layer_and_its_mean():
    data = inner_products(example_hidden_states()[1])
    figure = inner_product_histograms(data, "MiniLM")
    panels = [axis for axis in figure.axes if axis.get_visible()]
    assert len(panels) == 7
    for k, axis in enumerate(panels):
        assert axis.lines[0].get_xdata()[0] == float(data["mean"][k])
        np.testing.assert_array_equal(axis.patches[0].get_data().values, data["density"][k])
        edges = axis.patches[0].get_data().edges
        np.testing.assert_allclose(edges, np.linspace(-1.0, 1.0, 81), atol=1e-12)
        assert axis.get_ylim() == panels[0].get_ylim()
        assert axis.get_ylim()[1] > float(data["density"].max())
    plain = inner_product_histograms(inner_products(np.ones((1, 2, 1))), "one feature")
    assert len(plain.axes[0].lines) == 1


ONE = np.ones((2, 1, 3))
ZERO = STATES.copy()
ZERO[2, 4] = 0.0
INFINITE = STATES.copy()
INFINITE[0, 0, 0] = np.inf


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: inner_products(STATES[0]), r"have shape \(6, 4\); \(layers, tokens, features\)"),
        (lambda: inner_products(STATES[:0]), r"have shape \(0, 6, 4\)"),
        (lambda: inner_products(ONE), "one token; at least two"),
        (lambda: inner_products(ZERO), "zero vector, .*: token 4 of layer 2"),
        (lambda: inner_products(INFINITE), "NaN or infinite"),
        (lambda: inner_products(STATES * np.nan), "NaN or infinite"),
        (lambda: inner_products(STATES * 1j), "complex"),
        (lambda: inner_products(STATES, bins=0), "bins must be an integer >= 1; got 0"),
        (
            lambda: inner_products(STATES, quantiles=(0.5, 1.5)),
            "quantiles must be in .0, 1.; got 1.5",
        ),
        (lambda: inner_products(STATES, delta=1.0), r"delta must be in \(0, 1\); got 1.0"),
        (lambda: inner_products(STATES, delta="x"), "delta must be a number; got 'x'"),
        (lambda: inner_product_histograms({}, "t"), "made by inner_products"),
        (lambda: record_hidden_states(nn.ReLU(), torch.ones(2, 3)), "choose=None: ReLU returns no"),
        (
            lambda: record_hidden_states(Ragged(), torch.tensor([[1, 2, 3]])),
            "hidden_states of Ragged are not all tokens",
        ),
        (
            lambda: record_hidden_states(encoder(), torch.ones(1, 5, WIDTH), lambda *_: False),
            "no module of the model is chosen",
        ),
        (
            lambda: record_hidden_states(
                nn.Sequential(nn.Identity(), nn.AvgPool1d(2)),
                torch.ones(5, 4),
                lambda name, _: bool(name),
            ),
            "do not all return tokens of one shape",
        ),
        (
            lambda: record_outputs(encoder(), torch.ones(1, 5, WIDTH).double(), unused),
            "do not all return tokens of one shape",
        ),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def unused(name, _module):
    # The encoder works with the weights of this module, and never calls it.
    return name == "layers.0.self_attn.out_proj"
