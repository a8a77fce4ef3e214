"""Summaries of a model's samples by layer, and their verdicts in words."""

from __future__ import annotations

import re

import numpy as np
import pytest
import xarray as xr

import shaped_attention as sa
from shaped_attention.architectures.layer_summary import LAYER_NUMBERS, model_summary
from shaped_attention.architectures.verdict import verdict
from tests.refusals import refused

GPT2 = {
    "model_type": "gpt2", "n_embd": 64, "n_layer": 12, "n_head": 4, "vocab_size": 500,
    "n_positions": 100,
}  # fmt: skip
MISTRAL = {
    "model_type": "mistral", "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 90, "sliding_window": 3,
    "initializer_range": 0.3,
}  # fmt: skip


def simulated(config, tokens=16, **options):
    return sa.simulate_model(config, tokens, samples=8, seed=1, progress=False, **options)


def test_a_summary_is_that_of_the_definitions():
    """Cosines, rank, size and entropy of a window of 3 from V, by loops over pairs and tokens."""
    result = simulated(MISTRAL, 6)
    summary = model_summary(result)
    for k, v in enumerate(result["V"].values):
        cosines, ranks, sizes = [], [], []
        for one in v:
            scale = np.sqrt(np.diag(one))
            pairs = [one[a, b] / (scale[a] * scale[b]) for a in range(6) for b in range(a)]
            cosines.append(np.mean(pairs))
            shares = np.linalg.eigvalsh(one) / np.trace(one)
            ranks.append(np.exp(-sum(x * np.log(x) for x in shares)))
            sizes.append(np.mean(np.diag(one)) ** 0.5)
        for name, values in (("cosine", cosines), ("effective_rank", ranks), ("size", sizes)):
            expected = np.quantile(values, [0.05, 0.5, 0.95])
            np.testing.assert_allclose(summary[name].values[k], expected, rtol=1e-9, atol=1e-12)
    entropy = result["attention_entropy"].values[2]
    # Token 0 sees itself alone; 1 sees two tokens, the others three.
    shares = [entropy[:, :, a] / np.log(min(a + 1, 3)) for a in range(1, 6)]
    expected = np.quantile(np.mean(shares, axis=(0, 1)), [0.05, 0.5, 0.95])
    np.testing.assert_allclose(summary["entropy"].values[3], expected, rtol=1e-12)
    assert np.isnan(summary["entropy"].values[0]).all()
    assert summary["entropy"].max() <= 1.0


def test_numbers_that_are_reduced_while_the_model_runs_are_the_same():
    """Bit for bit, and no V is stored."""
    reduced = simulated(GPT2, keep=LAYER_NUMBERS)
    assert "V" not in reduced
    assert (
        model_summary(reduced).drop_attrs().identical(model_summary(simulated(GPT2)).drop_attrs())
    )


test_errors_name_the_call_that_made_a_result = refused(
    (
        lambda: verdict(simulated(GPT2)),
        "^summary must be a Dataset from model_summary; got a result of simulate_model; call "
        "model_summary on it$",
    ),
    (
        lambda: model_summary(simulated(GPT2, keep="observables")),
        r"^result lacks V; simulate with keep='V' or keep='sh",
    ),
)


def summary(rank=None, cosine=None, size=None, entropy=None, spread=0.0):
    """A summary with these medians, constant by default, and a band of this size around them."""
    layers = len(rank or cosine or size or (0.0, *(entropy or (0.0,))))
    variables = {
        "effective_rank": rank or (60.0,) * layers,
        "cosine": cosine or (0.0,) * layers,
        "size": size or (1.0,) * layers,
    }
    if entropy is not None:
        variables["entropy"] = (np.nan, *entropy)
    band = spread * np.array([-1.0, 0.0, 1.0])
    return xr.Dataset(
        {n: (("position", "level"), np.array(x)[:, None] + band) for n, x in variables.items()},
        coords={"position": range(layers), "level": ["5 %", "median", "95 %"]},
        attrs={"tokens": 64},
    )


FALLS = "the effective rank falls from "
SENTENCES = [
    ({"rank": (60.0, 40.0, 29.0, 10.0)},
     f"Rank is lost: {FALLS}60 of 64 to 10, and is below half of its start from layer 2 on."),
    ({"rank": (60.0, 31.0, 20.0, 32.0)},
     "Rank does not collapse: the effective rank is 60 of 64 at the start, 20 at its lowest and 32 "
     "at the end."),
    ({"size": (0.1, 3.0)},
     "Tokens grow by a factor of 30 (root mean square 0.1 to 3): the first layer contributes 99.9 "
     "% of the squared norm at its output, the last 99.9 %."),
    ({"entropy": (0.9, 0.2, 0.3)},
     "Entropy of attention collapses to 20 % of the largest possible (layer 2)."),
]  # fmt: skip


@pytest.mark.parametrize(("medians", "sentence"), SENTENCES)
def test_sentences_of_the_verdict(medians, sentence):
    assert sentence in verdict(summary(**medians))


def test_models_that_collapse_and_models_that_do_not():
    """A softmax without skip connection, GPT-2 at std 0.02, and at std 0.6, 8 samples each.

    With averages of all tokens in every layer the rank tends to 1; in the residual models the
    median rank stays above 4 of 16.
    """
    alone = sa.ShapedAttention(
        1.0, skip=0.0, identity=False, centring=False, scaled_temperature=False,
        output_projection=True,
    )  # fmt: skip
    collapsing = sa.Model("softmax alone", 64, 10, alone, sa.Embedding(100, 1.0))
    text = verdict(model_summary(simulated(collapsing)))
    found = re.search(r"is below 2 from layer (\d+) on", text)
    assert "Rank collapses" in text
    assert found
    assert 1 <= int(found[1]) <= 3
    assert re.search(r"Mean cosines rise from 0\.0\d to (1\.00|0\.9\d)", text)
    small = verdict(model_summary(simulated(GPT2)))
    assert "Rank does not collapse" in small
    assert "Attention is nearly uniform" in small
    assert "Norms stay of the same order" in small
    large = verdict(model_summary(simulated(GPT2 | {"initializer_range": 0.6})))
    assert "Rank is lost" in large
    assert "Entropy of attention collapses already in the first layer" in large
    assert "Tokens grow by a factor of" in large
