"""Training of models from configurations, against torch's of the library's, with equal weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention.lazy import training, training_run
from shaped_attention.lazy.entrywise import Decayed
from shaped_attention.lazy.matrices import Matrix
from shaped_attention.lazy.side_by_side import SideBySide
from shaped_attention.numerics import entrywise_product
from shaped_attention.rows.coordinates import cut
from shaped_attention.rows.rows import Rows
from tests.explicit_networks import matrix_sign, take_step
from tests.refusals import refused

transformers = pytest.importorskip("transformers")

IDS, TARGETS = [3, 3, 7, 1], [5, 7, 2, 3]
STEPS, SAMPLES = 4, 2
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
RULES = {
    "sgd": sa.SGD(0.3, momentum=0.9, weight_decay=0.01, clip=2.0),
    "muon": sa.Muon(0.05, momentum=0.8, rest=sa.SGD(0.2)),
    "muon, split": sa.Muon(0.05, momentum=0.8, nesterov=False, weight_decay=0.5, split=True),
    "adamw": sa.AdamW(0.02, (0.9, 0.95), weight_decay=2.0),
    "lion": sa.Lion(0.01, weight_decay=0.5),
    "clipped": sa.AdamW(0.1, (0.9, 0.99), eps=3e-3, weight_decay=0.5, clip=0.3),
}


def library_model(config, seed):
    """A model that the library makes, without dropout."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
        made = transformers.AutoConfig.for_model(**config, **dropout)
        model = transformers.AutoModelForCausalLM.from_config(made, attn_implementation="eager")
        return model.double().eval()


def revealed(monkeypatch):
    """Let explicit matrices answer all questions; return what gives them."""
    made: dict[tuple[int, int], torch.Tensor] = {}

    def of_part(matrix, number, columns):
        if (id(matrix), number) not in made:
            source = matrix._spaces[0].source
            generator = torch.Generator().manual_seed(len(made))
            size = source.samples, matrix.shape[0], columns
            drawn = torch.randn(size, generator=generator, dtype=source.dtype)
            made[id(matrix), number] = matrix.std * drawn
        return made[id(matrix), number]

    def whole(matrix):
        parts = matrix.outputs.parts if isinstance(matrix, SideBySide) else (matrix.outputs,)
        return torch.cat([of_part(matrix, k, part.n) for k, part in enumerate(parts)], -1)

    def images(self, units, there, target, stream):
        parts = self.outputs.parts if isinstance(self, SideBySide) else ()
        number = next((k for k, part in enumerate(parts) if part is target), None)
        if number is not None:
            w = of_part(self, number, target.n)
        else:
            w = whole(self) if there is self._revealed[1] else whole(self).mT
        return Rows(target, cut(units.coordinates @ w, target))

    monkeypatch.setattr(Matrix, "_images", images)
    monkeypatch.setattr(training_run, "of_entries", lambda rule: True)
    return whole


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


def filled(model, network, whole, sample):
    """Give the library's model the explicit matrices of a sample."""
    state = model.state_dict()
    for name, parameter in network.weights.items():
        matrix = parameter.matrix
        if "bias" in name or "norm" in name or "ln_" in name:
            continue
        w = whole(matrix)[sample]
        if parameter.members is not None:
            parts = matrix.outputs.parts
            starts = np.cumsum([0, *(part.n for part in parts)])
            sections = parameter._sections or [parameter.members]
            w = torch.cat([w[:, starts[k] : starts[k + 1]] for some in sections for k in some], 1)
        lookup = "embed" in name or "wte" in name or "wpe" in name
        place = state[name][sorted(set(IDS))] if len(w) < len(state[name]) and lookup else None
        if place is not None and "wpe" not in name:
            state[name][sorted(set(IDS))] = w
        elif lookup:
            state[name][: len(w)] = w
        else:
            state[name].copy_(w if parameter.by_inputs else w.mT)
    model.load_state_dict(state)


def is_hidden(name):
    return name.endswith("weight") and any(x in name for x in (".attn.", "mlp.", "self_"))


def signs(split, level):
    """Of matrices as they are stored, one by one or three side by side, with Muon's factor.

    Singular values below a level of the largest are rounding.
    """

    def sign(name, x):
        parts = x.chunk(3 if split and "c_attn" in name else 1, -1)
        factors = [max(1.0, x.shape[1] / x.shape[2]) ** 0.5 for x in parts]
        return torch.cat(
            [f * matrix_sign(x, level) for f, x in zip(factors, parts, strict=True)], -1
        )

    return sign


def stepper(rule, model, trained):
    """What takes a step of a rule with the gradients of the library's model."""
    if isinstance(rule, sa.SGD | sa.Muon):
        buffers: dict[str, torch.Tensor] = {}
        # The library rounds norms and angles of Llama to float32: equal tokens differ by 1e-8.
        level = 3e-6 if model.config.model_type == "llama" else 1e-12
        sign = signs(getattr(rule, "split", False), level)

        def step():
            with torch.no_grad():
                weights = {name: trained[name].data[None] for name in trained}
                gradients = {name: trained[name].grad[None] for name in trained}
                take_step(weights, gradients, buffers, rule, is_hidden, sign)

        return step
    if isinstance(rule, sa.Lion):
        optimizer = Lion(model.parameters(), rule.lr, rule.betas, rule.weight_decay)
    else:
        optimizer = torch.optim.AdamW(
            model.parameters(), rule.lr, rule.betas, rule.eps, rule.weight_decay, foreach=False
        )

    def clipped_step():
        if rule.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), rule.clip)
        optimizer.step()

    return clipped_step


def differences(monkeypatch, config, rule, torchs=None):
    """Largest relative difference of losses and of norms of gradients from torch's."""
    whole, networks, kind = revealed(monkeypatch), [], training.LibraryModel
    monkeypatch.setattr(
        training, "LibraryModel", lambda *place: networks.append(kind(*place)) or networks[-1]
    )
    run = sa.simulate_training(
        config, IDS, TARGETS, samples=SAMPLES, steps=STEPS, optimizer=rule, seed=1
    )
    found = []
    for sample in range(SAMPLES):
        model = library_model(config, 0)
        filled(model, networks[-1], whole, sample)
        named = dict(model.named_parameters())
        trained = {name: named[name] for name in run.parameter.values}
        assert all("norm" in name or "ln_" in name for name in named.keys() - trained.keys())
        step_of_rule = stepper(torchs or rule, model, trained)
        for step in range(STEPS + 1):
            model.zero_grad()
            logits = model(torch.tensor([IDS])).logits[0]
            loss = torch.nn.functional.cross_entropy(logits, torch.tensor(TARGETS))
            loss.backward()
            here = run.isel(step=step, sample=sample)
            norms = np.array([weight.grad.norm().item() for weight in trained.values()])
            # Biases of keys have no gradient.
            far = np.abs(here.gradient_norm.values - norms) / np.maximum(norms, 1e-3)
            found += [abs(float(here.loss) / loss.item() - 1.0), far.max()]
            step_of_rule()
    return max(found)


@pytest.mark.quick
@pytest.mark.parametrize(("config", "level"), [(GPT2, 1e-8), (LLAMA, 1e-5)], ids=["gpt2", "llama"])
@pytest.mark.parametrize("name", RULES)
def test_explicit_weights_that_answer_give_the_training_of_torch(monkeypatch, config, level, name):
    """The library rounds norms and angles of Llama to float32."""
    assert differences(monkeypatch, config, RULES[name]) < level


@pytest.mark.parametrize(
    "changes", [{"betas": (0.899, 0.95)}, {"eps": 1e-4}, {"weight_decay": 2.01}],
)  # fmt: skip
def test_other_settings_differ(monkeypatch, changes):
    rule = replace(RULES["adamw"], **changes)
    assert differences(monkeypatch, GPT2, rule, RULES["adamw"]) > 1e-4


@pytest.mark.parametrize("rule", [sa.AdamW(0.1, (0.9, 0.95)), sa.Lion(0.1, weight_decay=0.1)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_compiled_products_are_those_of_torch(rule, dtype):
    """Widths that are no multiples of a vector or a tile, and ranks that differ by step."""
    generator = torch.Generator().manual_seed(0)

    def normal(*size):
        return torch.randn(2, *size, generator=generator, dtype=dtype)

    function, (n, p) = Decayed(rule, 0.1, 0.99), (197, 133)
    lefts, rights = ([normal(2 + t, size) for t in range(3)] for size in (n, p))
    level = 32 * torch.finfo(dtype).eps
    for x in (normal(1, n), normal(7, n), None):
        there = entrywise_product._by_torch(x, lefts, rights, function)
        here = entrywise_product._computed(x, lefts, rights, function)
        assert (here - there).abs().max() < level * there.abs().max()


@pytest.mark.quick
def test_chunks_and_threads_do_not_change_bits():
    rule = sa.Muon(0.02, rest=sa.AdamW(0.01))
    wide = GPT2 | {"n_embd": 96, "vocab_size": 200}
    named = {"samples": 3, "steps": 2, "optimizer": rule, "seed": 2}
    whole = sa.simulate_training(wide, IDS, TARGETS, **named)
    parts = sa.simulate_training(wide, IDS, TARGETS, chunk=1, **named)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        threads = sa.simulate_training(wide, IDS, TARGETS, **named)
    finally:
        torch.set_num_threads(before)
    for other in (parts, threads, sa.rerun(whole)):
        np.testing.assert_array_equal(other.loss, whole.loss)
        np.testing.assert_array_equal(other.gradient_norm, whole.gradient_norm)


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
        ({"targets": [0.5, 1.0, 0.0, 2.0]}, "targets must be integers"),
        by=lambda arguments: sa.simulate_training(
            **{"layer": GPT2, "tokens": IDS, "targets": TARGETS, "samples": 1} | arguments
        ),
    )
)
