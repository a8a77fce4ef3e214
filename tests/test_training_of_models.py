"""Training steps of models from configurations, against the same models of `transformers`."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention.lazy import named_model
from tests.explicit_networks import matrix_sign, norms, take_step
from tests.refusals import refused
from tests.test_simulate_training import p_values, values_of

transformers = pytest.importorskip("transformers")

IDS, TARGETS, STEPS = [3, 3, 7, 1], [5, 7, 2, 3], 3
GPT2 = {
    "model_type": "gpt2", "vocab_size": 16, "n_embd": 24, "n_layer": 2, "n_head": 2,
    "n_positions": 8, "initializer_range": 0.3, "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
LLAMA = {
    "model_type": "llama", "vocab_size": 16, "hidden_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 30,
    "initializer_range": 0.2, "attention_bias": True, "mlp_bias": True,
    "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
CASES = {
    "gpt2": (GPT2, sa.SGD(0.3, momentum=0.9, weight_decay=0.01, clip=2.0)),
    "llama": (LLAMA, sa.SGD({"*": 0.5, "lm_head.weight": 0.1})),
    "gpt2 with Muon": (GPT2, sa.Muon(0.05, momentum=0.8, rest=sa.SGD(0.2))),
    "gpt2 with Muon, split": (GPT2, sa.Muon(0.05, momentum=0.8, rest=sa.SGD(0.2), split=True)),
    "tied llama with Muon": (
        LLAMA | {"tie_word_embeddings": True},
        sa.Muon(0.05, momentum=0.8, nesterov=False, weight_decay=0.5),
    ),
}


def library_model(config, seed):
    """A model that the library makes, without dropout."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
        made = transformers.AutoConfig.for_model(**config, **dropout)
        model = transformers.AutoModelForCausalLM.from_config(made, attn_implementation="eager")
        return model.double().eval()


def models(config, samples):
    """A model that the library makes, and the parameters (samples, ...) of many."""
    every = []
    for seed in range(samples):
        model = library_model(config, seed)
        every.append({name: p.detach() for name, p in model.named_parameters()})
    gains = [x for x in every[0] if x.endswith("weight") and ("ln_" in x or "norm" in x)]
    return model, {x: torch.stack([p[x] for p in every]) for x in every[0] if x not in gains}


@functools.cache
def really(name, samples=200):
    """Rows of named values by step, of models of the library."""
    config, rule = CASES[name]
    model, weights = models(config, samples)
    gains = {name: p.detach() for name, p in model.named_parameters() if name not in weights}

    def loss_of(parameters):
        run = (torch.tensor([IDS]),)
        logits = torch.func.functional_call(model, gains | parameters, run).logits[0]
        return torch.nn.functional.cross_entropy(logits, torch.tensor(TARGETS))

    of_all = torch.func.vmap(torch.func.grad_and_value(loss_of))
    buffers: dict[str, torch.Tensor] = {}
    rows = []
    for _ in range(STEPS + 1):
        gradients, loss = of_all(weights)
        row = {"loss": loss.numpy()}
        row |= {f"gradient {name}": norm for name, norm in norms(gradients).items()}
        rows.append(row)
        sign = signs(getattr(rule, "split", False))
        updates = take_step(weights, gradients, buffers, rule, is_hidden, sign)
        if rule.weight_decay == 0.0:
            row |= {f"update {name}": norm for name, norm in norms(updates).items()}
    return rows


def is_hidden(name):
    return name.endswith("weight") and any(x in name for x in (".attn.", "mlp.", "self_"))


def signs(split):
    """Of matrices as they are stored, one by one or three side by side, with Muon's factor.

    The library rounds norms, angles and softmax to float32, so that equal tokens differ by 1e-8;
    what is left out is far above that and far below the smallest singular values, 1e-4.
    """

    def sign(name, x):
        parts = x.chunk(3 if split and "c_attn" in name else 1, -1)
        factors = [max(1.0, x.shape[1] / x.shape[2]) ** 0.5 for x in parts]
        return torch.cat(
            [f * matrix_sign(x, 3e-6) for f, x in zip(factors, parts, strict=True)], -1
        )

    return sign


def lazily(name, samples=200):
    config, rule = CASES[name]
    return sa.simulate_training(
        config, IDS, TARGETS, samples=samples, steps=STEPS, optimizer=rule, seed=5
    )


def smallest(run, rows):
    """The smallest p-value times their number; 0 where a value is constant and another.

    Norms of signs are roots of ranks times a factor, the same in all samples.
    """
    for step, row in enumerate(rows):
        for name, real in row.items():
            constant = np.ptp(real) < 1e-6 * real.max()
            if constant and not np.allclose(values_of(run, name, step), real[0], 1e-6, 1e-9):
                return 0.0
    p = p_values(run, rows)
    assert len(p) > 60
    return min(p.values())


@pytest.mark.parametrize("name", CASES)
def test_laws_are_those_of_the_library(name):
    """Loss, gradient and update of every parameter, before each of three steps."""
    run, rows = lazily(name), really(name)
    assert set(run.parameter.values) == {
        key.removeprefix("gradient ") for key in rows[0] if key.startswith("gradient")
    }
    assert smallest(run, rows) > 1e-3


def without_divisor(monkeypatch):
    """Biases of the last matrices as if the block had not divided their inputs."""
    stored = named_model.stored

    def wrong(*place):
        return [replace(group, divisor=1.0) for group in stored(*place)]

    monkeypatch.setattr(named_model, "stored", wrong)


def as_outputs_by_inputs(monkeypatch):
    """The factor of Muon for matrices that are stored as (outputs, inputs)."""
    stored = named_model.stored

    def wrong(*place):
        return [replace(group, by_inputs=False) for group in stored(*place)]

    monkeypatch.setattr(named_model, "stored", wrong)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (without_divisor, "gpt2"),
        (as_outputs_by_inputs, "gpt2 with Muon"),
    ],
)
def test_wrong_models_are_rejected(monkeypatch, wrong, name):
    wrong(monkeypatch)
    assert smallest(lazily(name, samples=120), really(name)) < 1e-6


@pytest.mark.quick
def test_a_model_of_real_size():
    """Steps of a GPT-2 of 12 heads, whose frames grow by m a branch and pass, and its record."""
    fields = {"n_embd": 768, "n_head": 12, "vocab_size": 500, "initializer_range": 0.02}
    run = sa.simulate_training(
        GPT2 | fields, 3, [5, 7, 2], samples=1, steps=1, optimizer=sa.SGD(0.1)
    )
    # Three tokens; the bias of LayerNorm or ones; two branches a layer and pass; the logits.
    assert run.directions.values[0] <= 3 + 1 + 2 * 2 * (2 * 3 + 1) + 7
    assert run.loss[1, 0] < run.loss[0, 0]
    np.testing.assert_array_equal(sa.rerun(run).loss, run.loss)


test_refusals_by_name = pytest.mark.quick(
    refused(
        ({"width": 32}, "width must be None or 24, the width of gpt2; got 32"),
        ({"classes": 4}, "classes must be None or 16, the size of the vocabulary"),
        ({"targets": [0.5, 1.0, 0.0, 2.0]}, "targets must be integers"),
        ({"layer": LLAMA | {"pad_token_id": 3}}, "other than that of padding"),
        by=lambda arguments: sa.simulate_training(
            **{"layer": GPT2, "tokens": IDS, "targets": TARGETS, "samples": 1} | arguments
        ),
    )
)
