"""One module against its configuration: planted errors are named, and correct models pass."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import nn

import shaped_attention as sa
from shaped_attention.audit.effects import outlying
from shaped_attention.audit.entry_laws import EntryLaw, measured
from shaped_attention.audit.parameters import Section
from shaped_attention.audit.report import ModelCheck
from shaped_attention.audit.rule import suspects_of
from shaped_attention.commands.main import main
from shaped_attention.statistics.ranks import ranks
from tests import reality
from tests.example_modules import DEPTH, PARAMS, build, llama, unscaled
from tests.refusals import refused
from tests.test_step_zero import ENCODERS, config_of

transformers = pytest.importorskip("transformers")

IDS = [5, 9, 5, 17, 23, 9, 31, 40]
LLAMA = {
    "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 160,
    "num_key_value_heads": 2, "vocab_size": 300, "tie_word_embeddings": True,
}  # fmt: skip
PHI3 = LLAMA | {"pad_token_id": 0, "tie_word_embeddings": False}


def library(family: str, seed: int = 0, **fields: Any) -> Any:
    """A model that the library makes."""
    return made(transformers.AutoConfig.for_model(family, **{**LLAMA, **fields}), seed)


def check(module: Any, *arguments: Any, **options: Any) -> ModelCheck:
    return sa.check_model(module, IDS, *arguments, **options)


Change = Callable[[Any], None]


def each(end: str, change: Callable[[torch.Tensor], object]) -> Change:
    """Change all parameters whose names end so."""

    def changed(model: Any) -> None:
        found = [x for name, x in model.named_parameters() if name.endswith(end)]
        assert found
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(1)
            for weight in found:
                change(weight)

    return changed


def w3_too(model: Any) -> None:
    for k, layer in model.layers.items():
        layer.feed_forward.w3.weight.data /= math.sqrt(2 * (int(k) + 1))


def untied(model: Any) -> None:
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())


def default(model: Any) -> None:
    with torch.random.fork_rng():
        model.transformer.h[1].mlp.c_fc.reset_parameters()


def garbage(model: Any) -> None:
    for weight in model.layers["1"].parameters():
        weight.data.fill_(1e30)
        weight.data.flatten()[3] = float("nan")


def seeds(model: Any) -> None:
    a, b = (model.model.layers[k].self_attn.q_proj.weight for k in (0, 2))
    b.data.copy_(a.data)


GPT2 = "transformer.h.*."
LAYERS = "model.layers.*."
PLANTED: dict[str, tuple[Any, tuple[Any, ...], Any, list[str], str]] = {
    # Name: model, arguments, error, where it is, what is said.
    "scale of the residual": (
        unscaled, (), None,
        [f"{GPT2}attn.c_proj.weight and {GPT2}mlp.c_proj.weight"],
        r"std 0\.02, recipe says 0\.0082: 2\.4\d times too large",
    ),
    "w3 too": (
        llama, (PARAMS, DEPTH), w3_too, ["layers.*.feed_forward.w3.weight"],
        r"times too small, as \(layer \+ 1\)\^-0\.(49|5|51) \(the MLP's branch\)",
    ),
    "not tied": (
        build, (), untied, ["lm_head.weight"],
        "a separate copy; by the configuration it is the embedding",
    ),
    "a part of a fused matrix": (
        lambda: library("phi3", **PHI3), (), each("qkv_proj.weight", lambda w: w[64:96].mul_(1.5)),
        [f"{LAYERS}self_attn.qkv_proj.weight[k]"], r"1\.(5|49|51) times too large \(keys\)",
    ),
    "PyTorch's default": (
        build, (), default, ["transformer.h.1.mlp.c_fc.*"],
        r"PyTorch's default of Linear\), recipe says normal",
    ),
    "to_empty, garbage": (llama, (PARAMS, DEPTH), garbage, ["layers.1.*"], "not finite"),
    "equal seeds": (
        lambda: library("llama"), (), seeds, ["model.layers.0.self_attn.q_proj.weight"],
        "the random numbers are those of model.layers.2.self_attn.q_proj.weight",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_error_is_named_and_nothing_else(name: str) -> None:
    make, arguments, change, where, said = PLANTED[name]
    model = make()
    if change:
        change(model)
    found = check(model, *arguments)
    assert [x.where for x in found.suspects] == where, str(found)
    assert not found.ok
    assert re.search(said, found.suspects[0].what), found.suspects[0].what


def test_names_of_other_code() -> None:
    """Containers with other names, by a map with or without ".weight"; without one, a message."""
    own = {"transformer.wte": "emb", "transformer.wpe": "pos", "transformer.h": "layers",
           "transformer.ln_f": "end", "lm_head": "head"}  # fmt: skip
    module = build()
    parts = module.transformer
    module.emb, module.pos, module.layers, module.end = parts.wte, parts.wpe, parts.h, parts.ln_f
    module.head = module.lm_head

    def forward(ids: torch.Tensor) -> torch.Tensor:
        x = module.emb(ids) + module.pos(torch.arange(ids.shape[1]))
        for layer in module.layers:
            x = layer(x)
        return torch.Tensor(module.head(module.end(x)))

    del module.transformer, module.lm_head
    module.forward = forward
    back = {new: known for known, new in own.items()}
    stems = {re.sub(r"\.\d+\.", ".*.", x).rpartition(".")[0] for x, _ in module.named_parameters()}
    heads = {stem: stem.partition(".")[0] for stem in stems}
    names = {f"{x}.weight": x.replace(head, back[head], 1) for x, head in heads.items()}
    assert check(module, names=names).ok
    with pytest.raises(ValueError, match="no parameter of the module has a known name"):
        check(module)


def test_a_module_that_computes_something_else_is_suspect() -> None:
    """Parameters as they should be; the MLP without its norm."""
    model = build()
    for block in model.transformer.h:
        block.ln_2 = nn.Identity()
    found = check(model)
    assert [x.kind for x in found.suspects] == ["computation"], str(found)
    assert "transformer.h.0.mlp.c_fc.weight is" in found.suspects[0].what


def test_another_number_of_layers_is_one_suspect() -> None:
    found = check(build(), replace(build().config, n_layer=4))
    said = "the module has 3 layers; the configuration says 4"
    assert [x.what for x in found.suspects if "layers" in x.what] == [said]
    assert not any("no such parameter" in x.what for x in found.suspects)
    assert not found.effects


FAMILIES = ("llama", "gpt2", "bert", "olmo2", "gemma2")


def made(config: Any, seed: int) -> Any:
    kind = transformers.AutoModelForCausalLM
    if config.model_type in ENCODERS:
        kind = transformers.AutoModelForMaskedLM
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return kind.from_config(config, attn_implementation="eager")


def flagged(models: int, first: int = 0) -> list[str]:
    """Reports on correct models of five families that are not."""
    reports = [
        check(made(config_of(family, 0.02), seed))
        for family in FAMILIES for seed in range(first, first + models)
    ]  # fmt: skip
    return [str(x) for x in reports if not x.ok]


def test_correct_models_pass() -> None:
    assert flagged(2) == []
    assert check(made(reality.config_of("modernbert", 0.02), 1)).ok
    assert check(build()).ok
    assert check(llama(), PARAMS, DEPTH).ok


@pytest.mark.validation
def test_300_correct_models_pass() -> None:
    """At level 0.001 more than 2 are flagged with probability 0.004 at most."""
    assert len(flagged(60, 100)) <= 2


def sections_of(count: int, cut: float, rng: np.random.Generator, size: int = 40) -> list[Section]:
    """Matrices of one role with their law."""
    law, rows = EntryLaw(0.02, cut), []
    for layer in range(count):
        x = rng.standard_normal(3 * size**2)
        x = x[np.abs(x) < cut][: size**2] * 0.02 / math.sqrt(law._inside[0])
        entries = measured(torch.tensor(x), 256)
        rows.append(Section(f"h.{layer}.w", f"h.*.w{cut}", "u", layer, law, entries, 0.0, size))
    return rows


@pytest.mark.parametrize("cut", [math.inf, 2.0])
def test_the_level_of_the_rule_for_parameters(cut: float) -> None:
    """At level 0.2, of which the test of shapes uses less; a scale of 1.03 is seen."""
    rng, wrong, seen = np.random.default_rng(3), 0, 0
    for _ in range(150):
        rows = sections_of(8, cut, rng)
        wrong += bool(suspects_of(rows, 0.2))
        seen += bool(suspects_of([x._replace(law=EntryLaw(0.02 / 1.03, cut)) for x in rows], 0.2))
    assert 4 <= wrong <= 40
    assert seen >= 140


def test_the_level_for_effects() -> None:
    """Gaussian numbers, and numbers with exponential tails, of which a tenth depend on others."""
    rng = np.random.default_rng(5)
    mixed = rng.standard_normal((40, 40)) / 6.0 + np.eye(40)
    for draws in (rng.standard_normal, lambda size: rng.exponential(size=size)):
        p = []
        for _ in range(2000):
            x = draws((33, 40)) @ mixed
            p.append(outlying(x[0], x[1:], np.full(40, 1e-6)).min())
        low = np.array(p)
        assert 0.02 < (low < 0.05).mean() < 0.09
        assert (low < 1e-4).mean() < 5e-3


def test_ranks_are_uniform_and_their_p_values_exact() -> None:
    rng = np.random.default_rng(1)
    rank, p = ranks(rng.standard_normal(5000), rng.standard_normal((19, 5000)))
    counts = np.bincount((rank * 20).astype(int), minlength=20)
    assert 180 < counts.min() <= counts.max() < 320
    assert abs((p <= 0.1).mean() - 0.1) < 0.02
    assert ranks(np.zeros(1), np.ones((9, 1)))[0] == 0.05
    assert ranks(np.ones(1), np.ones((9, 1)))[1] == 1.0


def test_one_model_is_a_rank_within_the_law() -> None:
    """By `compare`: a real model in its law, and in that of a larger standard deviation."""
    real = sa.record_covariances(library("llama"), IDS)
    options: dict[str, Any] = {"samples": 199, "seed": 1, "progress": False}
    law, other = (
        sa.simulate_model(library("llama", initializer_range=std).config, IDS, **options)
        for std in (0.02, 0.04)
    )
    table = sa.compare(law, real, observables=["log trace V", "effective rank"])
    assert not table.resolved.any()
    assert sa.format_comparison(table).startswith("One draw among 199 samples of the law")
    wrong = sa.compare(other, real, observables=["log trace V", "effective rank"])
    assert wrong.resolved.sel(observable="log trace V")
    assert wrong.p_value.min() == 0.01
    with pytest.raises(ValueError, match="first must have at least 8 samples; got 1"):
        sa.compare(real, law)


def test_the_module_and_the_random_state_stay_as_they_are() -> None:
    model = build()
    model.train()
    before, state = {k: x.clone() for k, x in model.state_dict().items()}, torch.get_rng_state()
    check(model)
    assert all(x.training for x in model.modules())
    assert all(torch.equal(x, before[k]) for k, x in model.state_dict().items())
    assert all(x.grad is None for x in model.parameters())
    assert torch.equal(state, torch.get_rng_state())


def headless(model: Any) -> Any:
    model.lm_head = nn.Identity()
    return model


test_what_is_refused = refused(
    (lambda x: x.to("meta"), "parameter transformer.wte.weight must have entries"),
    (lambda x: nn.Identity(), "config must be given"),
    (headless, "must return logits"),
    (lambda x: None, "module must be a torch.nn.Module"),
    by=lambda change: check(change(build())),
)


def test_the_command(tmp_path: Path) -> None:
    """Exit status 0 or 1; with a configuration, ids and a map."""
    run, module = CliRunner().invoke, "tests.example_modules:"
    good = run(main, ["check", f"{module}build", "--ids", "5,9,5,17"])
    assert good.exit_code == 0, good.output
    assert "as its configuration says (46 parameters" in good.output
    bad = run(main, ["check", f"{module}unscaled", "--json"])
    assert bad.exit_code == 1, bad.output
    data = json.loads(bad.stdout)
    assert (data["ok"], len(data["suspects"]), len(data["parameters"])) == (False, 1, 46)
    file = tmp_path / "params.json"
    file.write_text(json.dumps(PARAMS))
    other = run(main, ["check", f"{module}llama", "--config", str(file), "--init", DEPTH])
    assert other.exit_code == 0, other.output
