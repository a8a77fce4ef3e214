"""Norms of gradients in law: against explicit networks, exact laws, and wrong variants."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import stats

import shaped_attention as sa
from shaped_attention.lazy import deep, forgetting
from shaped_attention.rows.coordinates import inner
from tests.explicit_networks import TWO_EQUAL, Explicit, norms
from tests.refusals import refused

PLAIN = {"centring": False, "identity": False, "scaled_temperature": False}
GPT = [
    sa.Normalised(
        sa.ShapedAttention(0.6, heads=2, mask="causal", output_projection=True, **PLAIN),
        norm="layer", eps=1e-5,
    ),
    sa.Normalised(sa.ShapedMLP(0.6, activation="gelu"), norm="layer", eps=1e-5),
]  # fmt: skip
LLAMA = [
    sa.Normalised(
        sa.ShapedAttention(
            0.6, heads=4, kv_heads=2, head_size=8, mask="causal", output_projection=True,
            rope=100.0, qk_norm=True, **PLAIN,
        )
    ),
    sa.Normalised(sa.ShapedMLP(0.6, activation="silu", gated=True, hidden=40)),
]  # fmt: skip


@dataclass(frozen=True)
class Entries(sa.Block):
    """A function of the entries of the tokens, which layers below must have drawn."""

    gamma: float = 0.7
    limit = "none"

    def branch(self, p, tokens, project):
        n = tokens.shape[-1]
        return project(torch.relu(project(torch.relu(tokens), n)), n) / n**0.5 / n**0.5


CASES = {
    "shaped": (sa.ShapedAttention(0.5), 32, "readout"),
    "gpt": (GPT, 24, "k"),
    "llama": (LLAMA, 24, "quadratic"),
    "parallel": (
        sa.Parallel(sa.ShapedAttention(0.4, heads=2, output_projection=True), sa.ShapedMLP(0.4)),
        20, "k",
    ),
    "narrow": ([sa.ShapedAttention(0.6, output_projection=True), sa.ShapedMLP(0.5)], 6, "k"),
}  # fmt: skip
DEPTH = 3


def lazily(layer, width, loss, samples, **changes):
    run = {"width": width, "depth": DEPTH, "samples": samples, "seed": 5, "loss": loss} | changes
    return sa.gradient_norms(layer, TWO_EQUAL, of=["weights", "tokens"], **run)


def explicitly(layer, width, loss, samples, seed=7):
    network = Explicit(layer, width, DEPTH, samples, seed)
    tokens = network.tokens()
    if loss == "readout":
        value = (network.normal(*tokens[-1].shape) * tokens[-1]).sum((1, 2))
    elif loss == "quadratic":
        value = 0.5 * network.outputs(tokens[-1], 1).square().sum((1, 2))
    else:
        f = network.outputs(tokens[-1], 3)
        value = -torch.log_softmax(f, -1)[:, range(4), torch.arange(4) % 3].mean(-1)
    value.sum().backward()
    gradients = {name: w.grad for name, w in network.weights.items()}
    gradients |= {f"tokens.{number}": x.grad for number, x in enumerate(tokens)}
    return {"loss": value.detach().numpy()} | norms(gradients)


def by_name(data):
    names = map(str, data.parameter.values)
    of = {name: data.gradient_norm.sel(parameter=name).values for name in names}
    return {"loss": data.loss.values} | of


def p_values(ours, theirs):
    """Of the laws of all norms, times their number; and the largest difference of correlations."""
    # A gradient that vanishes exactly is rounding: that of the keys' biases, in the softmax.
    names = [name for name in theirs if theirs[name].std() > 1e-9]
    assert set(ours) == set(theirs)
    p = [stats.ks_2samp(ours[name], theirs[name]).pvalue * len(names) for name in names]
    logs = [
        np.corrcoef([np.log(x[name]) for name in names if name != "loss"]) for x in (ours, theirs)
    ]
    samples = len(ours["loss"])
    return min(p), np.abs(logs[0] - logs[1]).max() * (samples / 2) ** 0.5


@pytest.mark.parametrize("name", CASES)
def test_laws_are_those_of_explicit_networks(name):
    """All norms, two of four tokens equal; correlations of their logarithms within 4 errors."""
    layer, width, loss = CASES[name]
    loss = "cross-entropy:3" if loss == "k" else loss
    ours = by_name(lazily(layer, width, loss, 1500))
    p, correlation = p_values(ours, explicitly(layer, width, loss, 1500))
    assert p > 1e-3
    assert correlation < 4.5


def cosines(width, samples):
    """Of <x_l, g_l> with tokens two of which are equal; two layers, frames that forget."""
    collected = []
    down = forgetting.Border.down

    def watched(self, gradient):
        result = down(self, gradient)
        collected.append(inner(gradient, self.rows).diagonal(dim1=1, dim2=2).numpy())
        return result

    with pytest.MonkeyPatch.context() as patch, sa.eager():
        patch.setattr(forgetting.Border, "down", watched)
        lazily(GPT, width, "cross-entropy:3", samples)
    network = Explicit(GPT, width, DEPTH, samples, 9)
    tokens = network.tokens()
    f = network.outputs(tokens[-1], 3)
    (-torch.log_softmax(f, -1)[:, range(4), torch.arange(4) % 3].mean(-1)).sum().backward()
    real = [(x * x.grad).sum(-1).detach().numpy() for x in tokens[:0:-1]]
    return min(
        stats.ks_2samp(a[:, token], b[:, token]).pvalue
        for a, b in zip(collected, real, strict=True)
        for token in range(4)
    ) * 12  # fmt: skip


def test_inner_products_of_tokens_and_gradients():
    """Norms hardly see a wrong span in the transfer between layers; these do."""
    assert cosines(24, 1500) > 1e-3


def test_a_wrong_transfer_is_rejected(monkeypatch):
    """The part of a gradient outside the span of the tokens is lost."""
    down = forgetting._down

    def wrong(part, gradient, name):
        gradient = gradient.clone()
        gradient[..., part.units.shape[1] :] = 0.0
        return down(part, gradient, name)

    monkeypatch.setattr(forgetting, "_down", wrong)
    assert cosines(24, 1500) < 1e-6


def test_a_zero_direction_that_counts_as_part_of_the_span_is_rejected(monkeypatch):
    """Two equal tokens: their difference has no direction, and a gradient there is lost."""
    border = forgetting._border

    def wrong(*arguments):
        part, values = border(*arguments)
        part.there = torch.ones_like(part.there)
        return part, values

    monkeypatch.setattr(forgetting, "_border", wrong)
    ours = by_name(lazily(GPT, 10, "cross-entropy:3", 3000))
    p, _ = p_values(ours, explicitly(GPT, 10, "cross-entropy:3", 3000))
    assert p < 1e-6


@pytest.mark.quick
def test_chunks_do_not_change_the_result():
    whole = lazily(GPT, 24, "cross-entropy:3", 5)
    parts = lazily(GPT, 24, "cross-entropy:3", 5, chunk=2)
    np.testing.assert_allclose(whole.gradient_norm, parts.gradient_norm, rtol=1e-9)
    np.testing.assert_allclose(whole.loss, parts.loss, rtol=1e-9)


def test_a_gradient_below_tokens_whose_entries_were_drawn(monkeypatch):
    """<X_1, G_1> is the same above and below the border to a layer that acts on entries."""
    back, differences = deep.PassedLayer.back, []

    def watched(layer, above, count):
        down, expected = layer.border.down, inner(layer.border.rows, above)

        def compared(gradient):
            below = down(gradient)
            differences.append(float((inner(layer._after, below) - expected).abs().max()))
            return below

        layer.border.down = compared
        return back(layer, above, count)

    monkeypatch.setattr(deep.PassedLayer, "back", watched)
    pattern = sa.Pattern([sa.ShapedAttention(0.5), Entries()])
    sa.gradient_norms(pattern, TWO_EQUAL, width=24, depth=2, samples=50, loss="quadratic")
    assert len(differences) == 2
    assert max(differences) < 1e-12


def test_names_of_matrices():
    """In the order of the parameters; empty if the branch gives none."""
    attention = sa.ShapedAttention(0.5, heads=2, key_size=4, output_projection=True)
    both = sa.Parallel([sa.ShapedMLP(0.3, hidden=8)] * 2)
    data = sa.gradient_norms(
        [sa.Normalised(attention), both, Entries()], TWO_EQUAL, width=16, depth=2, samples=1,
        of=["weights", "input"],
    )  # fmt: skip
    named = dict(zip(data.parameter.values.tolist(), data.matrix.values.tolist(), strict=True))
    assert [named[f"1.0.{k}"] for k in (0, 4, 5, 6)] == [
        "queries, head 0", "keys, head 1", "values, head 1", "output",
    ]  # fmt: skip
    assert [named[x] for x in ("0.1.0", "0.1.3", "1.2.0", "input")] == [
        "0.hidden", "1.output", "", "",
    ]  # fmt: skip


BLOCK, MODEL = sa.ShapedAttention(0.5), sa.model_from_config("gpt2")

test_bad_input = refused(
    ((BLOCK, {"loss": "cross-entropy:1"}), "loss must be 'readout', 'quadratic', 'cross-entropy:K"),
    ((BLOCK, {"loss": lambda f: 1.0}), r"loss must be a tensor \(2,\) computed in torch"),
    ((BLOCK, {"memory": 1000}), "fewer tokens, layers or hidden units need less"),
    ((MODEL, {}), "must be a block .*; got a Model"),
    by=lambda x: sa.gradient_norms(x[0], TWO_EQUAL, width=10, depth=1, samples=2, **x[1]),
)


def test_a_loss_that_is_not_finite_is_an_error():
    with pytest.raises(FloatingPointError, match="loss is not finite"):
        sa.gradient_norms(
            BLOCK, np.eye(2), loss=lambda f: (-f.abs().sum(1)).log(), width=16, depth=1, samples=3
        )
