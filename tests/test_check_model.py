"""One module against its configuration: planted errors are named, and correct models pass."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
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
from tests.example_modules import DEPTH, PARAMS, GPTConfig, Llama, NanoGPT

transformers = pytest.importorskip("transformers")

IDS = [5, 9, 5, 17, 23, 9, 31, 40]
LLAMA = {
    "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 160,
    "num_key_value_heads": 2, "vocab_size": 300, "tie_word_embeddings": True,
}  # fmt: skip
PHI3 = LLAMA | {"pad_token_id": 0, "tie_word_embeddings": False}
MITCHELL = "olmo-mitchell"


def library(family: str, seed: int = 0, **fields: Any) -> Any:
    """A model that the library makes."""
    config = transformers.AutoConfig.for_model(family, **{**LLAMA, **fields})
    kind = transformers.AutoModelForCausalLM
    if family in ("bert", "roberta", "modernbert"):
        kind = transformers.AutoModelForMaskedLM
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return kind.from_config(config, attn_implementation="eager")


def cut_normal(weight: Any, std: float, at: float = 3.0) -> None:
    nn.init.trunc_normal_(weight, std=std, a=-at * std, b=at * std)


def mitchell(seed: int = 0) -> Any:
    """A Llama with the truncated initialisation of OLMo."""
    model = library("llama", seed, tie_word_embeddings=False)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for name, weight in model.named_parameters():
            if weight.ndim == 2:
                last = name.split(".")[-2] in ("o_proj", "down_proj")
                fan = 2 * weight.shape[1] * (int(name.split(".")[2]) + 1) if last else 64
                cut_normal(weight, fan**-0.5)
    return model


def nano(seed: int = 0, **options: Any) -> NanoGPT:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return NanoGPT(GPTConfig(), **options)


def meta(seed: int = 0) -> Llama:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Llama()


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


def norms(model: Any) -> None:
    for layer in model.model.layers:
        layer.self_attn.q_norm = nn.RMSNorm(16)


def empty(model: Any) -> None:
    for weight in model.layers["1"].parameters():
        weight.data.zero_()


def garbage(model: Any) -> None:
    for weight in model.layers["1"].parameters():
        weight.data.fill_(1e30)
        weight.data.flatten()[3] = float("nan")


def swapped(model: Any) -> None:
    for layer in model.model.layers:
        layer.mlp.up_proj.weight.data /= 4.0
        layer.mlp.down_proj.weight.data *= 4.0


def seeds(model: Any) -> None:
    a, b = (model.model.layers[k].self_attn.q_proj.weight for k in (0, 2))
    b.data.copy_(a.data)


GPT2 = "transformer.h.*."
LAYERS = "model.layers.*."
PLANTED: dict[str, tuple[Any, tuple[Any, ...], Any, list[str], str]] = {
    # Name: model, arguments, error, where it is, what is said.
    "scale of the residual": (
        lambda: nano(scaled=False), (), None,
        [f"{GPT2}attn.c_proj.weight and {GPT2}mlp.c_proj.weight"],
        r"std 0\.02, recipe says 0\.0082: 2\.4\d times too large",
    ),
    "twice in a layer": (
        nano, (), each("h.1.mlp.c_proj.weight", lambda w: w.div_(6**0.5)),
        ["transformer.h.1.mlp.c_proj.weight"], r"2\.[45]\d? times too small",
    ),
    "w3 too": (
        meta, (PARAMS, DEPTH), w3_too, ["layers.*.feed_forward.w3.weight"],
        r"times too small, as \(layer \+ 1\)\^-0\.(49|5|51) \(the MLP's branch\)",
    ),
    "cut at 2": (
        mitchell, (None, MITCHELL),
        each("q_proj.weight", lambda w: nn.init.trunc_normal_(w, std=w.shape[1] ** -0.5)),
        [f"{LAYERS}self_attn.q_proj.weight"], "law normal, recipe says normal, cut at 3 std",
    ),
    "cut at 2 standard deviations": (
        lambda: library("llama"), (), each("q_proj.weight", lambda w: cut_normal(w, 0.02, 2.0)),
        [f"{LAYERS}self_attn.q_proj.weight"],
        r"std 0\.018, recipe says 0\.02.*law normal, cut at 2 std, recipe says normal",
    ),
    "embedding": (
        lambda: library("llama"), (), each("embed_tokens.weight", nn.init.normal_),
        ["model.embed_tokens.weight"], r"std 1, recipe says 0\.02: (50|49\.\d|50\.\d) times",
    ),
    "not tied": (nano, (), untied, ["lm_head.weight"], "a separate copy of the embedding"),
    "fan of a fused matrix": (
        lambda: library("phi3", **PHI3), (), each("qkv_proj.weight", lambda w: w.mul_(0.5**0.5)),
        [f"{LAYERS}self_attn.qkv_proj.weight"],
        r"1\.4\d? times too small \(keys, queries, attention's branch\)",
    ),
    "a part of a fused matrix": (
        lambda: library("phi3", **PHI3), (), each("qkv_proj.weight", lambda w: w[64:96].mul_(1.5)),
        [f"{LAYERS}self_attn.qkv_proj.weight[k]"], r"1\.(5|49|51) times too large \(keys\)",
    ),
    "PyTorch's default": (
        nano, (), default, ["transformer.h.1.mlp.c_fc.*"],
        r"PyTorch's default of Linear\), recipe says normal",
    ),
    "QK norm": (
        lambda: library("llama"), (), norms, [f"{LAYERS}self_attn.q_norm.weight"],
        "no such parameter",
    ),
    "to_empty, zeros": (meta, (PARAMS, DEPTH), empty, ["layers.1.*"], "all entries are 0"),
    "to_empty, garbage": (meta, (PARAMS, DEPTH), garbage, ["layers.1.*"], "not finite"),
    "mean": (
        lambda: library("llama"), (), each("up_proj.weight", lambda w: w.add_(0.002)),
        [f"{LAYERS}mlp.up_proj.weight"], r"mean (0\.1|0\.09\d*|0\.10\d) standard dev",
    ),
    "equal seeds": (
        lambda: library("llama"), (), seeds, ["model.layers.0.self_attn.q_proj.weight"],
        "the random numbers are those of model.layers.2.self_attn.q_proj.weight",
    ),
    "gain": (
        lambda: library("llama"), (), each("layers.2.input_layernorm.weight", torch.Tensor.zero_),
        ["model.layers.2.input_layernorm.weight"], "all entries are 0; recipe says all are 1",
    ),
    "wrong way round": (
        lambda: library("llama"), (), swapped,
        [f"{LAYERS}mlp.up_proj.weight", f"{LAYERS}mlp.down_proj.weight"], "times too",
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
    import re

    assert re.search(said, found.suspects[0].what), found.suspects[0].what
