"""The coordinate check: exponents of muP and of the standard parametrisation, sizes by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats

import shaped_attention as sa
from shaped_attention.commands.main import main
from shaped_attention.models.coordinates_text import coordinates_text, faults

LLAMA = {
    "model_type": "llama", "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 8,
    "num_key_value_heads": 4, "intermediate_size": 256, "vocab_size": 50,
    "max_position_embeddings": 64, "tie_word_embeddings": False, "initializer_range": 0.1,
}  # fmt: skip
WIDTHS = (128, 256, 512, 1024)
WITHOUT_EMBEDDINGS = sa.SGD({"model.layers.*": 1e-4, "lm_head.*": 1e-4})
THEORY = {
    "muP, SGD": ("mup", sa.SGD(0.1), (0.0, 0.0, 0.0, 0.0)),
    "muP, Muon": ("mup", sa.Muon(0.02), (0.0, 0.0, 0.0, 0.0)),
    "muP, AdamW": ("mup", sa.AdamW(0.003), (0.0, 0.0, 0.0, 0.0)),
    "standard, SGD": ("standard", WITHOUT_EMBEDDINGS, (None, 0.5, 0.5, 1.0)),
    "standard, Muon": ("standard", sa.Muon(0.001, rest=sa.SGD(0.0)), (None, 0.0, 0.0, 0.5)),
}
"""Exponents of changes, by quantity. In the standard parametrisation the head has entries of size
n^-1/2, and so has the gradient g of the tokens. A step of SGD adds g (x . x') to a product of a
hidden matrix, n^-1/2 n; it adds (x . x') to logits, n. A step of Muon adds a vector with entries of
size 1 along the direction of g, whose logits are those of the head's own direction, n^1/2. What the
embeddings add by SGD falls like n^-1/2, and still shows at small widths, so that they are fixed."""


def check(config, tokens=8, **arguments):
    return sa.coordinate_check(config, tokens, **({"progress": False} | arguments))


def outside(result, exponents, step):
    """Numbers of intervals without the exponent of theory, and the largest distance to it."""
    fit = result.sel(measure="change", step=step)
    places = [k for k, x in enumerate(exponents) if x is not None]
    slope, low, high = (fit[x].to_numpy()[places] for x in ("exponent", "low", "high"))
    known = np.array([exponents[k] for k in places])
    return int(((known < low) | (known > high)).sum()), np.abs(slope - known).max()


def agrees(result, exponents):
    """Whether at most 2 of up to 8 intervals of 95 % fail (p = 0.006), and none by 0.1."""
    found = [outside(result, exponents, step) for step in (1, int(result.step[-1]))]
    return sum(count for count, _ in found) <= 2 and max(size for _, size in found) < 0.1


@pytest.mark.parametrize("case", THEORY)
def test_exponents_of_theory(case):
    """Those of another case are rejected."""
    init, rule, exponents = THEORY[case]
    result = check(LLAMA, widths=WIDTHS, init=init, optimizer=rule, steps=2)
    assert agrees(result, exponents)
    for other in {x for _, _, x in THEORY.values()} - {exponents}:
        assert not agrees(
            result, [None if x is None else y for x, y in zip(exponents, other, strict=True)]
        )
    start = result.sel(measure="size", step=0, quantity="logits")
    assert start.low < (-0.5 if init == "mup" else 0.0) < start.high
    assert bool(faults(result)) == (init == "standard")


def test_forgotten_rates_are_found():
    """With one rate the embeddings of muP learn like 1 / n: their gradients have entries 1 / n."""
    result = check(LLAMA, widths=WIDTHS, init="mup", rates="one", optimizer=sa.SGD(0.1), steps=1)
    assert faults(result) == ["the change of embeddings vanishes like n^-1.0"]
    assert "Wrong: the change of embeddings vanishes like n^-1.0." in coordinates_text(result)


def test_laws_are_those_of_training_runs():
    """At half the width with half the heads and hidden units; with all hidden units it differs."""
    rule, targets = sa.SGD(0.1), [1, 2, 18]
    result = check(
        LLAMA, 3, widths=(64, 96, 128), optimizer=rule, samples=200, steps=1, targets=targets
    )
    half = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}

    def lowest(hidden):
        run = sa.simulate_training(
            sa.model_from_config(LLAMA | half | {"intermediate_size": hidden}), 3, targets,
            samples=400, steps=1, seed=1, optimizer=rule, progress=False,
        )  # fmt: skip
        ours, theirs = result.sel(width=64, step=1), run.sel(step=1)
        moved = ours["change"].sel(quantity="residual stream")
        pairs = (moved, theirs["activation_change"][-1]), (ours["loss"], theirs["loss"])
        return 2 * min(stats.ks_2samp(*pair).pvalue for pair in pairs)

    assert result.attrs["rates"] == "one"
    assert lowest(128) > 1e-2
    assert lowest(256) < 1e-6


@pytest.mark.parametrize(
    ("config", "rule", "rates"),
    [
        (LLAMA, sa.SGD(0.5), {"*": 1.0, "model.layers.*.weight": 0.5}),
        (LLAMA, sa.AdamW(0.5),
         {"*": 0.5, "model.layers.*.weight": 0.25, "model.layers.*.input_layernorm.weight": 0.5,
          "model.layers.*.post_attention_layernorm.weight": 0.5}),
    ],
)  # fmt: skip
def test_rates_by_group(config, rule, rates):
    """Table 8 of Tensor Programs V, from base widths 64; hidden matrices of Muon keep theirs."""
    found = sa.with_mup_rates(rule, sa.model_from_config(config), base=64)
    assert found.lr == rates
    assert type(found) is type(rule)


def test_rates_of_what_muon_leaves():
    found = sa.with_mup_rates(sa.Muon(0.5, rest=sa.SGD(0.1)), sa.model_from_config(LLAMA), base=64)
    assert found == sa.Muon(0.5, rest=sa.SGD({"*": 0.2}))


def invoke(folder, *words):
    (folder / "llama.json").write_text(json.dumps(LLAMA))
    few = ("--samples", "2", "--steps", "1", "--tokens", "3")
    return CliRunner().invoke(main, ["coordinates", str(folder / "llama.json"), *words, *few])


def test_the_command(tmp_path):
    words = ("--widths", "64,128,256", "--init", "mup", "--optimizer", "muon")
    text = invoke(tmp_path, *words, "--figure", str(tmp_path / "a.png"))
    assert text.exit_code == 0, text.output
    assert "size at step 0 64 128 256 n^" in " ".join(text.output.split())
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    data = json.loads(invoke(tmp_path, *words, "--json").stdout)
    assert data["width"] == [64, 128, 256]
    for row in data["rows"]:
        assert row["low"] < row["exponent"] < row["high"]
        assert len(row["root_mean_square"]) == 3
    assert data["verdict"].startswith(("Right", "Wrong", "Unclear"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "exactly one of the two"),
        (("--widths", "64,128,256", "--lr", "1e308"), "smaller learning rate"),
    ],
)
def test_refusals(tmp_path, words, message):
    result = invoke(tmp_path, *words)
    assert result.exit_code in (1, 2)
    assert message in " ".join(result.stderr.split())
