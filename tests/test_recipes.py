"""Initialisations by recipe: numbers by hand, what went wrong in public code, models of torch."""

from __future__ import annotations

import math
from dataclasses import astuple, replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

import shaped_attention as sa

IDS = [5, 9, 5, 17, 23, 9, 31, 40]
LLAMA = {
    "model_type": "llama", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24, "vocab_size": 50,
    "max_position_embeddings": 64, "tie_word_embeddings": False,
}  # fmt: skip
TIED = LLAMA | {"hidden_size": 256, "vocab_size": 2000, "tie_word_embeddings": True}
PHI3 = LLAMA | {"model_type": "phi3", "pad_token_id": 0}
CUT = 0.98658
"""Standard deviation of a standard normal law that is truncated at -3 and 3."""

FORMULAS = "down_proj=1/fan_in, embed_tokens=L/n, self_attn.k_proj=(3-1)**2*std, up_proj=l+.5"
WORKED_OUT = {
    "gpt2": [0.02, 0.02, 0.02, 0.01, 0.02, 0.02, 0.01, 0.02, 0.02],
    "olmo-normal": [0.02] * 9,
    "olmo-mitchell": [CUT / x**0.5 for x in (16, 16, 16, 128, 16, 16, 96, 16, 16)],
    "torchtitan": [0.02, 0.02, 0.02, 0.01, 0.02, 0.01, 0.01, 1.0, CUT / 4],
    "standard:base=4": [0.01] * 7 + [0.02, 0.01],
    "mup:base=4": [0.01] * 7 + [0.02] * 2,
    FORMULAS: [0.02, 0.08, 0.02, 0.02, 0.02, 1.5, 1 / 24, 0.125, 0.02],
}  # fmt: skip
"""Queries, keys, values, output, gate, up and down of the last of 2 layers; embedding, head."""


def made(init, config=LLAMA):
    return sa.model_from_config(config, init=init)


def run(model, tokens=IDS, **options):
    options = {"samples": 40, "accept_approximation": True, "progress": False} | options
    return sa.simulate_model(model, tokens, **options)


@pytest.mark.parametrize("init", WORKED_OUT)
def test_numbers_worked_out_by_hand(init):
    model = made(init)
    found = [*astuple(model.deviations[-1]), model.embedding.std, model.head_std]
    np.testing.assert_allclose(found, WORKED_OUT[init], rtol=1e-4)
    assert model.logit_multiplier == (0.25 if init.startswith("mup") else 1.0)
    assert bool(model.approximations) == (init in ("olmo-mitchell", "torchtitan"))


def test_recipes_of_gpt2_and_the_library():
    """Without 1 / sqrt(24) at c_proj cosines of 0.59 are 0.77, a root mean square .30 is 1.56."""
    own, five, first = (made(x, "gpt2") for x in (None, "library-5.0", "gpt2"))
    for model, std, position in ((own, 24**-0.5, 0.02), (five, 1.0, 0.02), (first, 24**-0.5, 0.01)):
        (layer,) = model.deviations
        np.testing.assert_allclose([layer.output, layer.down], 0.02 * std)
        assert (layer.values, model.embedding.position_std) == (0.02, position)
    assert made("library", "gpt2") == own
    assert made("c_proj=9, c_proj=0.02", "gpt2") == five
    for model, cosine, size in ((own, 0.588, 0.304), (five, 0.771, 1.558)):
        last = sa.model_summary(run(model, 64, samples=8)).isel(position=-1).sel(level="median")
        np.testing.assert_allclose([last["cosine"], last["size"]], [cosine, size], rtol=0.05)


def test_a_tied_embedding_of_deviation_1():
    """The own token's logit is about n = 256 over the root mean square; with n^-1/2, 16."""
    large, result = (
        run(made(x, TIED), targets="next", samples=8) for x in ("torchtitan", "embed_tokens=n**-.5")
    )
    assert large.loss.min() > 25 * math.log(2000) > 10 * result.loss.max()
    np.testing.assert_array_equal(sa.rerun(result).loss, result.loss)


def test_logits_of_mup_are_multiplied():
    ours = run(made("mup:base=4"), targets="next")
    plain = run(replace(made("mup:base=4"), logit_multiplier=1.0), targets="next")
    np.testing.assert_allclose(ours.logit_std, 0.25 * plain.logit_std)


def test_the_bias_of_a_head_is_not_multiplied():
    """As in MuReadout of microsoft/mup: for one token and V equal chances, |p - e| of its target.

    Logits of size 10^-5 are equal chances; the factor would leave 1/4 of the norm.
    """
    gptj = {
        "model_type": "gptj", "n_embd": 16, "n_layer": 1, "n_head": 2, "rotary_dim": 8,
        "vocab_size": 50, "n_positions": 8, "tie_word_embeddings": False,
    }  # fmt: skip
    model = replace(made("mup:base=4", gptj), head_std=1e-5)
    norms = run(model, [3], targets=[7], samples=2).gradient_norm
    bias = norms.sel(parameter="lm_head.bias")
    np.testing.assert_allclose(bias, math.sqrt(0.98**2 + 49 * 0.02**2), rtol=1e-3)


def test_the_scale_on_the_wrong_matrix():
    """With w3 scaled in place of w2 the samples are the same; with both, the branch is smaller."""
    scale = "0.5/sqrt(2*(l+1))"
    places = ("down_proj={}, up_proj=.5", "up_proj={}, down_proj=.5", "up_proj={0}, down_proj={0}")
    w2, w3, both = (run(made(x.format(scale)))["V"].to_numpy() for x in places)
    np.testing.assert_allclose(w2, w3, rtol=1e-9)
    assert np.abs(w2 - both).max() > 0.1 * np.abs(w2).max()


BY_HAND = {
    "q_proj": 0.3, "k_proj": 0.2, "v_proj": 0.25, "o_proj": 0.2, "gate_proj": 0.3, "up_proj": 0.2,
    "down_proj": 0.15, "embed_tokens": 0.7, "lm_head": 0.25,
}  # fmt: skip
FORMULA = {"o_proj": "0.2/(l+1)", "down_proj": "0.3/sqrt(2*L)", "lm_head": "1/sqrt(n)"}


def of_torch(models, halved="o_proj"):
    """Loss and norms of gradients of the library's models; a matrix is halved in the 2nd layer."""
    goal, rows = torch.tensor([*IDS[1:], 3]), []
    with torch.random.fork_rng():
        torch.manual_seed(4)
        for _ in range(models):
            model = LlamaForCausalLM(LlamaConfig(**LLAMA)).double()
            named = {k: x for k, x in model.named_parameters() if "norm" not in k}
            for name, x in named.items():
                half = 0.5 if f"layers.1.self_attn.{halved}" in name else 1.0
                torch.nn.init.normal_(x, 0.0, half * BY_HAND[name.split(".")[-2]])
            loss = cross_entropy(model(torch.tensor([IDS])).logits[0], goal)
            loss.backward()
            rows.append({"loss": loss.item()} | {k: x.grad.norm().item() for k, x in named.items()})
    return {name: [row[name] for row in rows] for name in rows[0]}


def test_gradients_are_those_of_models_initialised_by_hand():
    """KS of the loss and 16 norms, 150 models; with W_V in place of W_O halved these differ."""
    init = ", ".join(f"{name}={std}" for name, std in (BY_HAND | FORMULA).items())
    ours = run(made(init), targets=[*IDS[1:], 3], samples=1000)
    laws = {"loss": ours.loss} | {str(x.parameter.values): x for x in ours.gradient_norm}

    def lowest(theirs):
        assert {*theirs} == {*laws}
        return min(stats.ks_2samp(theirs[x], laws[x].values).pvalue for x in laws) * len(laws)

    assert lowest(of_torch(150)) > 1e-2
    assert lowest(of_torch(150, "v_proj")) < 1e-6


@pytest.mark.parametrize(
    ("config", "init", "message"),
    [
        (LLAMA, "gpt3", r"init must be 'library', .*torchtitan.* got 'gpt3'"),
        (LLAMA, "c_proj=1", "'c_proj', which is no matrix .* self_attn.q_proj, .*, lm_head"),
        (LLAMA, "q_proj=width", r"a formula in L, n, std, fan_in, l, sqrt.*\(width is unknown\)"),
        (LLAMA, "q_proj=open('x')", r"open\('x'\) is unknown"),
        (LLAMA, "embed_tokens=l+1", "l is unknown"),
        (LLAMA, "library-5.0", "is for gpt2"),
        ("gpt2", "torchtitan", "gated MLPs; gpt2 has none"),
        (PHI3, "torchtitan", "parts of mlp.gate_up_proj"),
        (LLAMA | {"model_type": "qwen3"}, "q_proj=1", "not covered with QK-norm"),
    ],
)
def test_bad_input(config, init, message):
    with pytest.raises(ValueError, match=message):
        made(init, config)
