"""Training steps of models from configurations, against the same models of `transformers`."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention.lazy import named_model, parameters
from shaped_attention.lazy.entrywise import of_entries
from shaped_attention.lazy.matrices import Matrix
from shaped_attention.lazy.optimizers import rate_of
from shaped_attention.lazy.weights import Weights
from tests.explicit_networks import norms
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
    "gpt2 with AdamW": (GPT2, sa.AdamW(0.06, (0.9, 0.95), weight_decay=4.0)),
    "llama with Lion": (LLAMA, sa.Lion(0.02, weight_decay=0.5)),
    "llama with Muon and AdamW": (
        LLAMA,
        sa.Muon(0.05, momentum=0.8, rest=sa.AdamW(0.05, weight_decay={"lm_head*": 1.0})),
    ),
}


def models(config, samples, with_gains=False):
    """A model that the library makes, and the parameters (samples, ...) of many."""
    kind = "GPT2" if config["model_type"] == "gpt2" else "Llama"
    dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0} if kind == "GPT2" else {}
    fields = {name: value for name, value in config.items() if name != "model_type"}
    made = getattr(transformers, f"{kind}Config")(**fields, **dropout)
    made._attn_implementation = "eager"
    create = getattr(transformers, "GPT2LMHeadModel" if kind == "GPT2" else "LlamaForCausalLM")
    every = []
    with torch.random.fork_rng():
        for seed in range(samples):
            torch.manual_seed(seed)
            model = create(made).double().eval()
            every.append({name: p.detach() for name, p in model.named_parameters()})
    gains = [x for x in every[0] if x.endswith("weight") and ("ln_" in x or "norm" in x)]
    gains = [] if with_gains else gains
    return model, {x: torch.stack([p[x] for p in every]) for x in every[0] if x not in gains}


@functools.cache
def really(name, samples=200):
    """Rows of named values by step, of models of the library."""
    config, rule = CASES[name]
    model, weights = models(config, samples, of_entries(rule))
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
        updates = update(weights, gradients, buffers, rule)
        if updates and getattr(rule, "weight_decay", 0.0) == 0.0:
            row |= {f"update {name}": norm for name, norm in norms(updates).items()}
    return rows


def update(weights, gradients, buffers, rule):
    """Take a step in place, by the formulas of torch's SGD and of Muon."""
    shape = {name: (-1,) + (1,) * (w.dim() - 1) for name, w in weights.items()}
    if isinstance(rule, sa.SGD) and rule.clip:
        total = sum(g.flatten(1).norm(dim=1) ** 2 for g in gradients.values()).sqrt()
        shrink = (rule.clip / (total + 1e-6)).clamp(max=1.0)
        gradients = {name: shrink.reshape(shape[name]) * g for name, g in gradients.items()}
    updates = {}
    for name, w in weights.items():
        g = gradients[name]
        hidden = name.endswith("weight") and (".attn." in name or "mlp." in name or "self_" in name)
        each = rule.rest if isinstance(rule, sa.Muon) and not hidden else rule
        if isinstance(each, sa.AdamW | sa.Lion):
            if name not in buffers:
                decay = rate_of(each.weight_decay, name)
                settings = {"lr": each.lr, "betas": each.betas, "weight_decay": decay}
                kind = Lion
                if isinstance(each, sa.AdamW):
                    kind = torch.optim.AdamW
                    settings |= {"eps": each.eps, "foreach": False}
                buffers[name] = kind([w], **settings)
            w.grad = g
            buffers[name].step()
            continue
        if isinstance(rule, sa.Muon) and hidden:
            buffers[name] = rule.momentum * buffers.get(name, 0.0) + g
            seen = g + rule.momentum * buffers[name] if rule.nesterov else buffers[name]
            w *= 1.0 - rule.lr * rule.weight_decay
            parts = 3 if "c_attn" in name and rule.split else 1
            updates[name] = rule.lr * torch.cat([sign(x) for x in seen.chunk(parts, -1)], -1)
            w -= updates[name]
            continue
        sgd = rule if isinstance(rule, sa.SGD) else rule.rest or sa.SGD(rule.lr)
        rates = sgd.lr if isinstance(sgd.lr, dict) else {"*": sgd.lr}
        direction = g + sgd.weight_decay * w
        buffers[name] = sgd.momentum * buffers.get(name, 0.0) + direction
        updates[name] = rates.get(name, rates["*"]) * buffers[name]
        w -= updates[name]
    return updates


class Lion(torch.optim.Optimizer):
    """Lion as its authors write it."""

    def __init__(self, parameters, lr, betas, weight_decay):
        super().__init__(parameters, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                a, b = group["betas"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * torch.sign(a * m + (1 - a) * p.grad))
                m.mul_(b).add_((1 - b) * p.grad)


def sign(x):
    """U V^T times sqrt(max(1, rows / columns)), of matrices as they are stored.

    The library rounds norms, angles and softmax to float32, so that equal tokens differ by 1e-8;
    what is left out is far above that and far below the smallest singular values, 1e-4.
    """
    u, values, vh = torch.linalg.svd(x, full_matrices=False)
    there = (values > 3e-6 * values[:, :1]).to(x.dtype)
    return max(1.0, x.shape[1] / x.shape[2]) ** 0.5 * (u * there[:, None]) @ vh


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


def one_by_one(monkeypatch):
    """Queries, keys and values orthogonalised one by one, though the library stores one matrix."""
    sections = parameters.Parameter.sections
    monkeypatch.setattr(
        parameters.Parameter, "sections", lambda self, term, split: sections(self, term, True)
    )


def as_outputs_by_inputs(monkeypatch):
    """The factor of Muon for matrices that are stored as (outputs, inputs)."""
    stored = named_model.stored

    def wrong(*place):
        return [replace(group, by_inputs=False) for group in stored(*place)]

    monkeypatch.setattr(named_model, "stored", wrong)


def untied(monkeypatch):
    """Logits by a matrix of their own."""
    monkeypatch.setattr(
        Weights, "looked_up", lambda self, x, name: x @ self._single[name].__dict__.setdefault(
            "twin", Matrix(x.space, self._single[name]._spaces[0], 0.3)
        )
    )  # fmt: skip


def without_bias_correction(monkeypatch):
    """Adam's averages as they are."""

    def constants(self, steps):
        a, b = self.betas
        return [a, b, *([(1.0 - a) / (1.0 - b) ** 0.5, self.eps / (1.0 - b) ** 0.5] * steps)]

    monkeypatch.setattr(sa.AdamW, "constants", constants)


def without_decay_at_start(monkeypatch):
    """Weight decay of the updates alone."""
    change = parameters.Parameter.set
    monkeypatch.setattr(
        parameters.Parameter, "set", lambda self, kept, update: change(self, 1.0, update)
    )


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (without_bias_correction, "gpt2 with AdamW"),
        (without_decay_at_start, "gpt2 with AdamW"),
        (without_divisor, "gpt2"),
        (untied, "gpt2 with Muon"),
        (one_by_one, "gpt2 with Muon"),
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


@pytest.mark.quick
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layer": GPT2 | {"model_type": "gpt_neo"}}, "config.model_type must be"),
        ({"width": 32}, "width must be None or 24, the width of gpt2; got 32"),
        ({"classes": 4}, "classes must be None or 16, the size of the vocabulary"),
        ({"targets": [1, 2, 3, 16]}, r"targets must be classes 0, \.\.\., 15"),
        ({"targets": [0.5, 1.0, 0.0, 2.0]}, "targets must be integers"),
        ({"tokens": np.eye(4)}, "tokens must be"),
        ({"tokens": [1, 2, 3, 16]}, r"tokens must be ids in \[0, 15\]"),
        ({"layer": LLAMA | {"pad_token_id": 3}}, "other than that of padding"),
    ],
)
def test_refusals_by_name(arguments, message):
    named = {"layer": GPT2, "tokens": IDS, "targets": TARGETS, "samples": 1} | arguments
    with pytest.raises(ValueError, match=message):
        sa.simulate_training(**named)
