"""Families with RMSNorm: models made by `from_config` have the law of `simulate_model`.

Every layer's log diagonals, cosines and attention entropies are compared by Kolmogorov-Smirnov
tests, with a Bonferroni correction for their number (about 60). With 500 models against 2,000
samples one test at this level sees a shift by 0.2 standard deviations half of the time. Each family
has a wrong twin, which is rejected at the same sizes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention.architectures import families
from tests import test_reality_layer_norm
from tests.reality import check_law, models_from_config, small

transformers = pytest.importorskip("transformers")

_LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
}  # fmt: skip
_GEMMA = {"head_dim": 32, "sliding_window": 3, "query_pre_attn_scalar": 4}
_ALTERNATING = ["sliding_attention", "full_attention"] * 2
_BASES = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10.0},
}
_PARTIAL = {"rope_type": "default", "rope_theta": 10.0, "partial_rotary_factor": 0.5}
_WHOLE = {**_PARTIAL, "partial_rotary_factor": 1.0}

FAMILIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # Fields of the small configuration, and those that are changed in the wrong twin.
    "llama": ({"rope_parameters": _LLAMA3}, {"model_type": "granite"}),
    "mistral": ({"sliding_window": 3}, {"sliding_window": None}),
    "ministral": (
        {"sliding_window": 3, "layer_types": _ALTERNATING, "head_dim": 16},
        {"layer_types": ["sliding_attention"] * 4},
    ),
    "qwen2": (
        {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 2},
        {"layer_types": None, "max_window_layers": 4},
    ),
    "qwen3": ({"head_dim": 32}, {"model_type": "qwen2"}),
    "smollm3": (
        {"rope_parameters": _WHOLE, "no_rope_layers": [0] * 4},
        {"no_rope_layers": [1] * 4},
    ),
    "granite": (
        {
            "embedding_multiplier": 12.0, "attention_multiplier": 0.5,
            "residual_multiplier": 0.22, "logits_scaling": 8.0,
        },
        {"residual_multiplier": 1.0},
    ),
    "phi3": ({"rope_parameters": _PARTIAL, "sliding_window": 6}, {"sliding_window": None}),
    "olmo": ({}, {"model_type": "olmo2"}),
    "olmo2": ({}, {"model_type": "llama"}),
    "olmo3": ({"sliding_window": 3}, {"layer_types": ["full_attention"] * 4}),
    "gemma": ({"head_dim": 32}, {"model_type": "llama"}),
    "gemma2": ({**_GEMMA, "attn_logit_softcapping": 0.5}, {"attn_logit_softcapping": None}),
    "vaultgemma": ({**_GEMMA, "attn_logit_softcapping": 0.5}, {"model_type": "gemma2"}),
    "gemma3_text": (
        {**_GEMMA, "layer_types": _ALTERNATING, "rope_parameters": _BASES},
        # Without QK-norm.
        {"model_type": "gemma2", "attn_logit_softcapping": None, "_sliding_window_pattern": None},
    ),
    "glm": ({"head_dim": 32, "rope_parameters": _PARTIAL}, {"model_type": "glm4"}),
    "glm4": ({"head_dim": 32, "rope_parameters": _PARTIAL}, {"model_type": "glm"}),
    "exaone4": (
        {"sliding_window": 3},
        {"sliding_window": None, "layer_types": ["full_attention"] * 4},
    ),
    "seed_oss": ({"head_dim": 32}, {"model_type": "qwen3"}),
    "helium": ({"head_dim": 16}, {"model_type": "granite"}),
}  # fmt: skip


def config_of(family: str, std: float, **fields: Any) -> Any:
    return small(family, std, **FAMILIES[family][0] | fields)


def embedding_of(config: Any) -> Any:
    """Return the embedding of a model that the library makes."""
    with torch.random.fork_rng():
        return transformers.AutoModel.from_config(config).get_input_embeddings()


def check(family: str, std: float, *, twin: bool) -> None:
    """Compare models with their law and, where the logits are not small, with a wrong one."""
    config = config_of(family, std)
    wrong = sa.model_from_config({**config.to_dict(), **FAMILIES[family][1]})
    check_law(config, *[wrong] * twin)


def test_every_family_is_compared():
    with_layer_norm = {family for family, _, _ in test_reality_layer_norm.FAMILIES.values()}
    assert FAMILIES.keys() | with_layer_norm == families.FAMILIES.keys()


@pytest.mark.parametrize("std", [pytest.param(0.02, marks=pytest.mark.validation), 0.15])
def test_models_of_llama_have_its_law(std):
    """Library routines, as models of real size run, follow the same paths (`test_model_speed`).

    The logits of the twin are not divided by sqrt(d_h). At the default 0.02, where they are small,
    `test_language_models` compares a model of the library with its law.
    """
    check("llama", std, twin=std > 0.1)


@pytest.mark.validation
@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - {"llama"}))
def test_models_have_the_law_of_their_configuration(family):
    """The quick test has no windows, QK-norm, softcap, multipliers or norms of the branch."""
    check(family, 0.15, twin=True)


@pytest.mark.validation
def test_a_bidirectional_gemma():
    """Windows of half the size on each side, as in EmbeddingGemma; the twin is causal."""
    config = config_of("gemma3_text", 0.15, use_bidirectional_attention=True, sliding_window=4)
    check_law(config, sa.model_from_config(config, use_bidirectional_attention=False))


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_padding_rows_are_zero(family):
    """The rows of zeros of the library's embedding are those of the model, and no others."""
    for pad in (3, -1, None):
        config = config_of(family, 0.02)
        config.pad_token_id = pad
        table = embedding_of(config).weight
        zero = (table == 0.0).all(dim=1).nonzero().flatten().tolist()
        assert list(sa.model_from_config(config).embedding.zero_ids) == zero


def test_the_eps_behind_a_branch():
    """One layer of one token: the branch has mean square q / (q + eps), q that of the branch.

    With weights of 0.02 and eps = 10^-4 it is 0.003. The means of 200 models and 800 samples are
    within 5 standard errors, about 0.0004; if eps is not divided by gamma^2 the law has 1.8.
    """
    config = config_of("olmo2", 0.02)
    config.num_hidden_layers, config.rms_norm_eps = 1, 1e-4
    models = models_from_config(config, 200, seed=1, ids=(5,))
    samples = sa.simulate_model(
        sa.model_from_config(config), [5], samples=800, seed=1, progress=False
    )
    means, errors = [], []
    for result in (models, samples):
        v = result["V"].to_numpy()[..., 0, 0]
        added = v[1] - v[0]
        means.append(added.mean())
        errors.append(added.std() / len(added) ** 0.5)
    assert abs(means[0] - means[1]) < 5.0 * np.hypot(*errors)


def test_the_scale_of_gemma_is_the_librarys():
    """sqrt n in single precision, in the precision of the weights."""
    config = config_of("gemma", 0.02)
    scale = float(embedding_of(config).embed_scale)
    embedding = sa.model_from_config(config).embedding
    assert embedding.scale == pytest.approx(scale, rel=1e-7)
    assert replace(embedding, scale=1.0).variance == pytest.approx(0.02**2)
