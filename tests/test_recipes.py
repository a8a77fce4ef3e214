"""Initialisations by recipe: numbers by hand, what went wrong in public code, models of torch."""

from __future__ import annotations

from dataclasses import astuple, replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

import shaped_attention as sa
from tests.refusals import refused

IDS = [5, 9, 5, 17, 23, 9, 31, 40]
LLAMA = {
    "model_type": "llama", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24, "vocab_size": 50,
    "max_position_embeddings": 64, "tie_word_embeddings": False,
}  # fmt: skip
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
    found = [*astuple(model.stds[-1]), model.embedding.std, model.head_std]
    np.testing.assert_allclose(found, WORKED_OUT[init], rtol=1e-4)
    assert model.logit_multiplier == (0.25 if init.startswith("mup") else 1.0)
    assert bool(model.approximations) == (init in ("olmo-mitchell", "torchtitan"))


def test_recipes_of_gpt2_and_the_library():
    """The residual projections of the library are scaled by the depth, but were not until 5.0."""
    for init, factor, position in (
        (None, 24**-0.5, 0.02), ("library-5.0", 1.0, 0.02), ("gpt2", 24**-0.5, 0.01),
    ):  # fmt: skip
        model = made(init, "gpt2")
        (layer,) = model.stds
        np.testing.assert_allclose([layer.output, layer.down], 0.02 * factor)
        assert (layer.values, model.embedding.position_std) == (0.02, position)


def test_logits_of_mup_are_multiplied():
    ours = run(made("mup:base=4"), targets="next")
    plain = run(replace(made("mup:base=4"), logit_multiplier=1.0), targets="next")
    np.testing.assert_allclose(ours.logit_std, 0.25 * plain.logit_std)


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


test_bad_input = refused(
    ((LLAMA, "gpt3"), r"init must be 'library', .*torchtitan.* got 'gpt3'"),
    ((LLAMA, "c_proj=1"), "'c_proj', which is no matrix .* self_attn.q_proj, .*, lm_head"),
    ((LLAMA, "q_proj=width"), r"a formula in L, n, std, fan_in, l, sqrt.*\(width is unknown\)"),
    by=lambda x: made(x[1], x[0]),
)
