"""Families of configurations: their law is that of models of the library, and so are defaults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention.architectures.families import FAMILIES as COVERED
from shaped_attention.architectures.model import attention_of
from shaped_attention.architectures.tokens import mean_covariance
from shaped_attention.blocks.positions import allowed
from tests.reality import FAMILIES, IDS, check_law, config_of, models_from_config
from tests.test_configuration_refusals import SMALL

transformers = pytest.importorskip("transformers")

QUICK = ("gpt2", "llama")
NAMES = [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.validation) for name in FAMILIES
]


@pytest.mark.parametrize("name", NAMES)
def test_models_of_the_library_have_the_law_of_their_configuration(name):
    """At std 0.15, where logits have size 1.

    Wrong twins, with a branch, norm, window, bias or row of zeros that is not the model's, are
    rejected. The implementation "eager" of Falcon adds its bias twice.
    """
    config, twin = config_of(name, 0.15), FAMILIES[name][2]
    if callable(twin):
        wrong = twin(sa.model_from_config(config))
    else:
        wrong = sa.model_from_config({**config.to_dict(), **twin})
    check_law(config, wrong, implementation="sdpa" if name == "falcon, alibi" else "eager")


def angles_of_library(config: Any) -> list[list[float]]:
    from transformers import AutoModel

    with torch.random.fork_rng():
        model = AutoModel.from_config(config)
    found = [
        buffer.tolist()
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
        if name.endswith("inv_freq") and "original" not in name
    ]
    # GPT-J has a table of sines instead.
    tables = [x.embed_positions[1] for x in model.modules() if hasattr(x, "embed_positions")]
    return found + [table[: len(table) // 2].asin().tolist() for table in tables[:1]]


@pytest.mark.parametrize("name", ["gpt_neox", "gptj", "cohere2", "modernbert", "gemma3_text"])
def test_rotations_are_those_of_the_library(name):
    """Angles to single precision, and the number of columns that are rotated.

    Eight tokens hardly see which share of a head is rotated, so that the laws do not show it.
    """
    config = config_of(name, 0.02)
    found = set()
    for blocks in sa.model_from_config(config).layers():
        (block,) = attention_of(blocks[0])
        if block.rope is not None:
            found.add(tuple(block.rope.pairs(block.head_size)))
    expected = sorted(angles_of_library(config))
    assert len(found) == len(expected)
    for ours, theirs in zip(sorted(found), expected, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5)


@pytest.mark.parametrize("name", ["starcoder2", "cohere2", "modernbert"])
def test_windows_are_those_of_the_library(name):
    """Where a model of the library has weights, layer by layer; one token more or less differs."""
    config = config_of(name, 0.02)
    with torch.random.fork_rng(), torch.no_grad():
        model = transformers.AutoModel.from_config(config, attn_implementation="eager").eval()
        out = model(torch.tensor([list(IDS)]), output_attentions=True)
    seen = [layer[0, 0] > 0.0 for layer in out.attentions]
    assert any(not (x | x.T).all() for x in seen)
    for blocks, expected in zip(sa.model_from_config(config).layers(), seen, strict=True):
        (block,) = attention_of(blocks[0])
        np.testing.assert_array_equal(allowed(block.mask, len(IDS)), expected.numpy())


@pytest.mark.parametrize("name", ["llama", "bert", "opt", "gemma"])
def test_padding_rows_are_zero(name):
    """The rows of zeros of the library's embedding are those of the model, and no others."""
    for pad in (3, -1, None):
        config = config_of(name, 0.02)
        config.pad_token_id = pad
        with torch.random.fork_rng():
            table = transformers.AutoModel.from_config(config).get_input_embeddings().weight
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


@pytest.mark.parametrize("family", sorted(COVERED))
def test_a_missing_field_has_the_value_of_the_class_of_the_library(family):
    """The configuration has the sizes alone, without the fields that have defaults."""
    kind = transformers.CONFIG_MAPPING[family]
    sizes = SMALL | {"num_key_value_heads": 4, "pad_token_id": 3, "rotary_dim": 8, "ffn_dim": 160,
                     "max_position_embeddings": 9}  # fmt: skip
    fields = {name: value for name, value in sizes.items() if hasattr(kind(), name)}
    found = sa.model_from_config(fields | {"model_type": family})
    assert found == sa.model_from_config(kind(**fields))


def test_a_truncated_initialisation_is_flagged():
    """Effective standard deviation 0.8796 sigma at a cutoff of 2."""
    fields = SMALL | {"model_type": "modernbert", "initializer_cutoff_factor": 2.0}
    model = sa.model_from_config(fields)
    assert model.embedding.std == pytest.approx(0.02 * 0.8796, rel=1e-4)
    assert "truncated at 2 standard deviations" in model.approximations[0]
    with pytest.raises(ValueError, match="accept_approximation=True"):
        sa.simulate_model(model, 4, samples=1)


@pytest.mark.parametrize(("family", "variance"), [("bert", 2.0), ("roberta", 1.0)])
def test_padding_tokens_keep_what_they_share(family, variance):
    """In units of the variance: the row of the type, and that of the position except in RoBERTa."""
    fields = {"model_type": family, "pad_token_id": 3, "max_position_embeddings": 9}
    model = sa.model_from_config(SMALL | fields)
    expected = [[variance, 1.0, 1.0], [1.0, 3.0, 1.0], [1.0, 1.0, variance]]
    found = mean_covariance(model.embedding, np.array([3, 5, 3])) / 0.02**2
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert model.embedding.positions == (9 if family == "bert" else 5)
