"""Summaries of a model's samples by layer, and their verdicts in words."""

from __future__ import annotations

import re

import numpy as np
import pytest
import xarray as xr

import shaped_attention as sa
from shaped_attention.architectures.layer_summary import LAYER_NUMBERS, model_summary, tokens_seen
from shaped_attention.architectures.verdict import compared, shown_layers, summary_table, verdict
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


def test_a_saved_result_has_the_same_summary(tmp_path):
    result = simulated(MISTRAL, 6)
    loaded = sa.load(sa.save(result, tmp_path / "result.nc"))
    assert model_summary(loaded).drop_attrs().identical(model_summary(result).drop_attrs())


def test_masks_inside_norms_and_parallel_branches_are_found():
    """Causal, a window, and all tokens; the widest of two branches counts."""

    def attention(mask):
        return sa.ShapedAttention(0.5, mask=mask, output_projection=True)

    parallel = sa.Parallel([attention("causal:2"), attention("causal"), sa.ShapedMLP(0.5)])
    layers = sa.Pattern([
        [sa.Normalised(attention("causal:2"))], [parallel], [attention(None), sa.ShapedMLP(0.5)],
    ])  # fmt: skip
    model = sa.Model("own", 16, 4, layers, sa.Embedding(9, 1.0))
    seen = tokens_seen(model, 4).tolist()
    assert seen == [[1, 2, 2, 2], [1, 2, 3, 4], [4, 4, 4, 4], [1, 2, 2, 2]]


test_what_is_no_result_of_a_model_is_refused = refused(
    (sa.equicorrelated, "^result must be a Dataset; got the function"),
    (
        xr.Dataset({"x": 1.0}),
        "^result must be a Dataset from simulate_model, with positions; got a Dataset",
    ),
    by=model_summary,
)

test_errors_name_the_call_that_made_a_result = refused(
    (
        lambda: verdict(simulated(GPT2)),
        "^summary must be a Dataset from model_summary; got a result of simulate_model; call "
        "model_summary on it$",
    ),
    (
        lambda: model_summary(
            sa.simulate_chain(sa.ShapedMLP(0.3), [[1.0]], width=8, depth=1, samples=2)
        ),
        r"with positions; got a result of simulate_chain$",
    ),
    (
        lambda: model_summary(simulated(GPT2, keep="observables")),
        r"^result lacks V; simulate with keep='V' or keep='sh",
    ),
    (lambda: compared({"A": summary()}), r"^summaries must be of two models; got \['A'\]"),
    (lambda: shown_layers(10, 0), r"^every must be an integer >= 1; got 0"),
    (
        lambda: simulated(GPT2, keep=f"{__name__}:wrong"),
        r"must return shape \(8, 2\), the numbers a, b for each sample, .* shape \(8, 1\)",
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
BELOW = "The effective rank is below 2 already at the embedding: it is "
SENTENCES = [
    ({"rank": (63.0, 1.9, 2.1, 1.5)},
     f"Rank collapses: {FALLS}63 of 64 to 1.5, and is below 2 from layer 3 on."),
    ({"rank": (63.0, 1.9, 1.8, 1.5)},
     f"Rank collapses: {FALLS}63 of 64 to 1.5, and is below 2 from layer 1 on."),
    ({"rank": (2.4, 2.1, 1.8, 1.4)},
     f"Rank collapses: {FALLS}2.4 of 64 to 1.4, and is below 2 from layer 2 on."),
    ({"rank": (60.0, 40.0, 29.0, 10.0)},
     f"Rank is lost: {FALLS}60 of 64 to 10, and is below half of its start from layer 2 on."),
    ({"rank": (1.99, 1.5, 1.2, 1.02)},
     f"Rank is lost: {FALLS}1.99 of 64 to 1.02, where 1 is the lowest."),
    ({"rank": (60.0, 31.0, 20.0, 32.0)},
     "Rank does not collapse: the effective rank is 60 of 64 at the start, 20 at its lowest and 32 "
     "at the end."),
    ({"rank": (2.1, 2.1, 2.0, 1.9)},
     "Rank does not collapse: the effective rank is 2.1 of 64 at the start, 1.9 at its lowest and "
     "1.9 at the end."),
    ({"rank": (1.99, 1.5, 1.6, 1.6)},
     f"{BELOW}1.99 of 64 there, 1.5 at its lowest and 1.6 at the end."),
    ({"rank": (1.0, 1.0, 1.0, 1.0)}, f"{BELOW}1 of 64 there, 1 at its lowest and 1 at the end."),
    ({"rank": (1.5, 1.9, 2.4, 3.0)},
     f"{BELOW}1.5 of 64 there, 1.5 at its lowest and 3 at the end."),
    ({"cosine": (-0.001, 0.93)}, "Mean cosines rise from 0.00 to 0.93."),
    ({"cosine": (0.5, 0.1)}, "Mean cosines fall from 0.50 to 0.10."),
    ({"cosine": (1.0, 0.999)}, "Mean cosines are 1.00 throughout."),
    ({"cosine": (0.0, 0.09)}, "Mean cosines are 0.00 to 0.09 throughout."),
    ({"size": (0.85, 1234.0)},
     "Tokens grow by a factor of 1500 (root mean square 0.85 to 1200): "),
    ({"size": (0.02, 17.0)},
     "the first layer contributes more than 99.9 % of the squared norm at its output, the last "
     "more than 99.9 %."),
    ({"size": (0.1, 3.0)},
     "Tokens grow by a factor of 30 (root mean square 0.1 to 3): the first layer contributes 99.9 "
     "% of the squared norm at its output, the last 99.9 %."),
    ({"size": (1.0, 2.0, 2.5, 3.0)},
     "Tokens grow by a factor of 3 (root mean square 1 to 3): the first layer contributes 75 % of "
     "the squared norm at its output, the last 30.6 %."),
    ({"size": (1.0, 0.25)}, "Tokens shrink by a factor of 4 (root mean square 1 to 0.25)."),
    ({"size": (1.0, 1.9)}, "Norms stay of the same order (root mean square 1 to 1.9)."),
    ({"entropy": (0.995,)},
     "Attention is nearly uniform: its entropy is at least 99 % of the largest possible in every "
     "layer."),
    ({"entropy": (0.9, 0.2, 0.3)},
     "Entropy of attention collapses to 20 % of the largest possible (layer 2)."),
    ({"entropy": (0.396, 0.39, 0.41)},
     "Entropy of attention collapses already in the first layer: it is 39 to 41 % of the largest "
     "possible."),
    ({"entropy": (0.95, 0.6, 0.8)}, "Entropy of attention is 60 to 95 % of the largest possible."),
]  # fmt: skip


@pytest.mark.parametrize(("medians", "sentence"), SENTENCES)
def test_sentences_of_the_verdict(medians, sentence):
    assert sentence in verdict(summary(**medians))


def test_two_tokens_have_no_rank_above_two():
    """Their effective rank is below 2 by definition, which is no collapse."""
    text = verdict(summary(rank=(1.99, 1.9)).assign_attrs(tokens=2))
    assert text.startswith("Rank does not collapse: the effective rank is 1.99 of 2 at the start")


def test_a_verdict_has_one_sentence_for_each_number():
    text = verdict(summary(entropy=(0.9,)))
    assert [word in text for word in ("Rank", "cosines", "Norms", "Entropy")] == [True] * 4
    assert "ntropy" not in verdict(summary())
    alone = summary().assign_attrs(tokens=1)
    assert verdict(alone) == "Norms stay of the same order (root mean square 1 to 1)."


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


def test_two_models_are_compared():
    """Bands that overlap, and bands that do not."""
    first = summary(rank=(60.0, 10.0), size=(1.0, 4.0), spread=0.03)
    second = summary(rank=(60.0, 50.0), cosine=(0.0, 0.04), spread=0.03)
    assert compared({"A": first, "B": second}) == (
        "The effective rank after the last layer is higher in B, 50, than in A, 10 (5-95 % bands "
        "do not overlap). The mean cosine after the last layer is 0.04 in B and 0.00 in A, not "
        "clearly different (5-95 % bands overlap). The root mean square changes by a factor of 4 "
        "in A and 1 in B."
    )


def test_layers_of_a_table():
    assert shown_layers(20) == list(range(21))
    long = shown_layers(80)
    assert (len(long), long[0], long[-1]) == (16, 0, 80)
    assert max(np.diff(long)) - min(np.diff(long)) <= 1
    assert shown_layers(10, 4) == [0, 4, 8, 10]


def test_a_table_has_medians_and_quantiles():
    known = summary(rank=(60.0, 10.0), entropy=(0.5,), spread=0.01)
    table = summary_table(known).splitlines()
    assert table[0].split("  ")[0] == "layer"
    assert "entropy, % of largest" in table[0]
    assert table[1].endswith("-")
    assert "10.0 [10.0, 10.0]" in table[2]
    assert "50.0 [49.0, 51.0]" in table[2]
    assert len({line.index("[") for line in table[1:]}) == 1
    assert verdict(known, table=True, every=1) == "\n".join([*table, "", verdict(known)])


class Wrong:
    """Two names for one number."""

    names = ("a", "b")

    def __call__(self, v):
        return v[:, 0, :1]


wrong = Wrong()


def test_numbers_of_layers_have_names():
    assert list(simulated(GPT2, keep=LAYER_NUMBERS)["observable"].values) == [
        "cosine", "effective_rank", "size",
    ]  # fmt: skip
