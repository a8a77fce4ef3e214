"""Models made by the `transformers` library from a configuration, against the law of `Model`.

A test compares some 50 statistics of 500 models with 2000 samples of the law. At level 10^-2, with
Bonferroni's correction, it rejects a shift of one statistic by 0.27 standard deviations in about
half of the cases. Wrong twins are rejected at 10^-4.

ModernBERT has truncated weights, so that its law is not exact: log V_0 has the standard deviation
0.0062 in place of 0.0049 at std 0.02, which this number of models does not show.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from scipy import stats

import shaped_attention as sa
from shaped_attention.blocks.attention import ShapedAttention
from shaped_attention.blocks.base import Pattern
from shaped_attention.blocks.mlp import ShapedMLP
from shaped_attention.blocks.normalised import Normalised
from shaped_attention.blocks.parallel import Parallel
from shaped_attention.numerics.covariance import correlations

IDS = (5, 9, 5, 17, 23, 9, 31, 40)
"""Numbers of tokens, two of which occur twice."""

_TOKENS = (0, 4, 7)
_PAIRS = ((0, 1), (0, 2), (3, 7))


SMALL = {
    "vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": None,
    "eos_token_id": None,
}  # fmt: skip
"""Sizes of a configuration with RMSNorm."""


def small(family: str, std: float = 0.02, **fields: Any) -> Any:
    """Return a small configuration of a family with RMSNorm."""
    from transformers import AutoConfig

    return AutoConfig.for_model(family, **{**SMALL, "initializer_range": std, **fields})


def models_from_config(
    config: Any, models: int, seed: int, ids: Any = IDS, implementation: str = "eager"
) -> xr.Dataset:
    """Return V, V_final and entropies as `simulate_model` does, of models of the library.

    Entropies are those of the implementation "eager"; others do not report attention weights.
    """
    from transformers import AutoModel

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = (
            AutoModel.from_config(config, attn_implementation=implementation).double().eval()
            for _ in range(models)
        )
        return sa.record_covariances(made, list(ids))


def statistics(result: xr.Dataset) -> dict[str, NDArray[np.float64]]:
    """Log diagonals and cosines of every layer, and entropies of its first and last head."""
    values: dict[str, NDArray[np.float64]] = {}
    covariances = [*result["V"].to_numpy(), result["V_final"].to_numpy()]
    for k, v in enumerate(covariances):
        diagonal = np.log(np.maximum(np.diagonal(v, axis1=1, axis2=2), 1e-300))
        values |= {f"log V_{k}[{a}]": diagonal[:, a] for a in _TOKENS}
        rho = correlations(v)
        values |= {f"rho_{k}[{a},{b}]": rho[:, a, b] for a, b in _PAIRS}
    entropy = result["attention_entropy"].to_numpy() if "attention_entropy" in result else ()
    for k, here in enumerate(entropy):
        for head in (0, -1):
            values |= {f"entropy_{k + 1}[{head},{a}]": here[head, :, a] for a in _TOKENS}
    return values


def p_values(first: xr.Dataset, second: xr.Dataset) -> dict[str, float]:
    """Return KS p-values of all statistics.

    What varies by less than 10^-5, such as a diagonal after RMSNorm, is left out: the library
    computes norms in single precision. If the other varies by more than 10^-3, it is another law.
    """
    a, b = statistics(first), statistics(second)
    found = {}
    for name in a:
        spreads = [float(np.ptp(x[name])) for x in (a, b)]
        if min(spreads) > 1e-5:
            found[name] = float(stats.ks_2samp(a[name], b[name]).pvalue)
        elif max(spreads) > 1e-3:
            found[name] = 0.0
    return found


def smallest(first: xr.Dataset, second: xr.Dataset) -> tuple[float, str]:
    """Return the smallest p-value times the number of tests (Bonferroni), and its statistic."""
    p = p_values(first, second)
    name = min(p, key=p.__getitem__)
    return min(1.0, len(p) * p[name]), name


def check_law(config: Any, *wrong: sa.Model, implementation: str = "eager") -> None:
    """Assert that 500 models of a configuration have its law, and not those of wrong twins."""
    models = models_from_config(config, 500, 1, IDS, implementation)
    for known in (sa.model_from_config(config), *wrong):
        law = sa.simulate_model(
            known, IDS, samples=2000, seed=1, progress=False, entropy=implementation == "eager",
            accept_approximation=bool(known.approximations),
        )  # fmt: skip
        p, statistic = smallest(models, law)
        assert (p < 1e-4) if known in wrong else (p > 0.01), f"{known}: p={p:.2g} for {statistic}"


Change = Callable[[Any], Any]


def changed(block: Any, change: Change) -> Any:
    """Return a block after a change of all blocks inside it."""
    block = change(block)
    if isinstance(block, Normalised):
        return replace(block, inner=changed(block.inner, change))
    if isinstance(block, Parallel):
        return Parallel([changed(x, change) for x in block.blocks], skip=block.skip)
    return block


def with_blocks(change: Change) -> Callable[[sa.Model], sa.Model]:
    return lambda model: replace(
        model, layer=Pattern([[changed(x, change) for x in blocks] for blocks in model.layers()])
    )


def without_scale_of_depth(model: sa.Model) -> sa.Model:
    """Return a model whose last weights are not divided by the root of twice the depth."""
    factor = (2.0 * model.depth) ** 0.5
    return with_blocks(
        lambda block: (
            replace(block, gamma=factor * block.gamma)
            if isinstance(block, ShapedAttention | ShapedMLP)
            else block
        )
    )(model)


def with_embedding(**new: Any) -> Callable[[sa.Model], sa.Model]:
    return lambda model: replace(model, embedding=replace(model.embedding, **new))


def one_after_the_other(model: sa.Model) -> sa.Model:
    """Return a model with the parallel branches of a layer in turn."""
    layers = [
        [replace(outer, inner=replace(x, skip=1.0)) for outer in blocks for x in outer.inner.blocks]
        for blocks in model.layers()
    ]
    return replace(model, layer=Pattern(layers))


_PLAIN = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 64}
OLD = {"n_embd": 64, "n_layer": 4, "n_head": 4, "vocab_size": 64, "bos_token_id": 0,
       "eos_token_id": 0}  # fmt: skip
WIDE = _PLAIN | {"intermediate_size": 160, "bos_token_id": 1, "eos_token_id": 2}
_GROUPS = WIDE | {"num_key_value_heads": 2}
_FALCON = _PLAIN | {"ffn_hidden_size": 160, "bos_token_id": 1, "eos_token_id": 2}
_SPECIAL = {"pad_token_id": 63, "cls_token_id": 1, "sep_token_id": 2}
_PAD = IDS[0]  # occurs twice among the tokens of the tests
_LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
}  # fmt: skip
_GEMMA = {"head_dim": 32, "sliding_window": 3, "query_pre_attn_scalar": 4}
_SOFTCAP = SMALL | _GEMMA | {"attn_logit_softcapping": 0.5}
_ALTERNATING = ["sliding_attention", "full_attention"] * 2
_BASES = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10.0},
}
_PARTIAL = {"rope_type": "default", "rope_theta": 10.0, "partial_rotary_factor": 0.5}
_WHOLE = {**_PARTIAL, "partial_rotary_factor": 1.0}

# Name: model_type, fields, and a wrong twin: other fields, or a change of the model.
FAMILIES: dict[str, tuple[str, dict[str, Any], Any]] = {
    "gpt2": ("gpt2", OLD, without_scale_of_depth),
    "gpt_neox": ("gpt_neox", WIDE, one_after_the_other),
    "bert": ("bert", WIDE | {"pad_token_id": _PAD}, with_embedding(zero_ids=())),
    "roberta": ("roberta", WIDE | {"pad_token_id": _PAD}, with_embedding(zero_positions=False)),
    "phi": ("phi", _GROUPS, one_after_the_other),
    "stablelm": ("stablelm", _GROUPS, {"use_parallel_residual": True}),
    "starcoder2": ("starcoder2", _GROUPS | {"sliding_window": 3}, {"sliding_window": None}),
    "gptj": ("gptj", OLD | {"rotary_dim": 8}, one_after_the_other),
    "codegen": ("codegen", OLD | {"rotary_dim": 8}, {"n_inner": 64}),
    "gpt_bigcode": ("gpt_bigcode", OLD, without_scale_of_depth),
    "opt": ("opt", _PLAIN | {"ffn_dim": 160, "pad_token_id": _PAD}, with_embedding(zero_ids=())),
    "opt, post-norm": (
        "opt", _PLAIN | {"ffn_dim": 160, "do_layer_norm_before": False},
        {"do_layer_norm_before": True},
    ),
    "bloom": (
        "bloom", _PLAIN | {"hidden_size": 60, "num_attention_heads": 6}, with_embedding(norm=None)
    ),
    "falcon": ("falcon", _FALCON, one_after_the_other),
    "falcon, new": (
        "falcon", _FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2},
        one_after_the_other,
    ),
    "falcon, alibi": (
        "falcon",
        _FALCON | {"alibi": True, "multi_query": False, "parallel_attn": False,
                   "num_attention_heads": 16},
        {"parallel_attn": True},
    ),
    "cohere": ("cohere", _GROUPS, one_after_the_other),
    "cohere2": ("cohere2", _GROUPS | {"sliding_window": 3}, {"sliding_window": 8}),
    "modernbert": ("modernbert", WIDE | _SPECIAL | {"local_attention": 4}, {"local_attention": 16}),
    "llama": ("llama", SMALL | {"rope_parameters": _LLAMA3}, {"model_type": "granite"}),
    "mistral": ("mistral", SMALL | {"sliding_window": 3}, {"sliding_window": None}),
    "ministral": (
        "ministral", SMALL | {"sliding_window": 3, "layer_types": _ALTERNATING, "head_dim": 16},
        {"layer_types": ["sliding_attention"] * 4},
    ),
    "qwen2": (
        "qwen2", SMALL | {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 2},
        {"layer_types": None, "max_window_layers": 4},
    ),
    "qwen3": ("qwen3", SMALL | {"head_dim": 32}, {"model_type": "qwen2"}),
    "smollm3": (
        "smollm3", SMALL | {"rope_parameters": _WHOLE, "no_rope_layers": [0] * 4},
        {"no_rope_layers": [1] * 4},
    ),
    "granite": (
        "granite", SMALL | {
            "embedding_multiplier": 12.0, "attention_multiplier": 0.5,
            "residual_multiplier": 0.22, "logits_scaling": 8.0,
        },
        {"residual_multiplier": 1.0},
    ),
    "phi3": (
        "phi3", SMALL | {"rope_parameters": _PARTIAL, "sliding_window": 6}, {"sliding_window": None}
    ),
    "olmo": ("olmo", SMALL, {"model_type": "olmo2"}),
    "olmo2": ("olmo2", SMALL, {"model_type": "llama"}),
    "olmo3": ("olmo3", SMALL | {"sliding_window": 3}, {"layer_types": ["full_attention"] * 4}),
    "gemma": ("gemma", SMALL | {"head_dim": 32}, {"model_type": "llama"}),
    "gemma2": ("gemma2", _SOFTCAP, {"attn_logit_softcapping": None}),
    "vaultgemma": ("vaultgemma", _SOFTCAP, {"model_type": "gemma2"}),
    "gemma3_text": (
        "gemma3_text", SMALL | {**_GEMMA, "layer_types": _ALTERNATING, "rope_parameters": _BASES},
        # Without QK-norm.
        {"model_type": "gemma2", "attn_logit_softcapping": None, "_sliding_window_pattern": None},
    ),
    "glm": ("glm", SMALL | {"head_dim": 32, "rope_parameters": _PARTIAL}, {"model_type": "glm4"}),
    "glm4": ("glm4", SMALL | {"head_dim": 32, "rope_parameters": _PARTIAL}, {"model_type": "glm"}),
    "exaone4": (
        "exaone4", SMALL | {"sliding_window": 3},
        {"sliding_window": None, "layer_types": ["full_attention"] * 4},
    ),
    "seed_oss": ("seed_oss", SMALL | {"head_dim": 32}, {"model_type": "qwen3"}),
    "helium": ("helium", SMALL | {"head_dim": 16}, {"model_type": "granite"}),
    "gemma3_text, bidirectional": (
        "gemma3_text", SMALL | _GEMMA | {"use_bidirectional_attention": True, "sliding_window": 4},
        {"use_bidirectional_attention": False},
    ),
}  # fmt: skip


def config_of(name: str, std: float, **changes: Any) -> Any:
    """Return the configuration of a row of the table, with small weights or large ones."""
    from transformers import AutoConfig

    family, values, _ = FAMILIES[name]
    field = "init_std" if family == "opt" else "initializer_range"
    return AutoConfig.for_model(family, **{**values, field: std, **changes})
