"""Families of configurations: the values of missing fields, and what is special in some."""

from __future__ import annotations

import numpy as np
import pytest

import shaped_attention as sa
from shaped_attention.architectures.families import FAMILIES
from shaped_attention.architectures.tokens import mean_covariance
from shaped_attention.blocks.parallel import Parallel
from tests.test_configuration_refusals import SMALL


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_missing_field_has_the_value_of_the_class_of_the_library(family):
    """The configuration has the sizes alone, without the fields that have defaults."""
    kind = pytest.importorskip("transformers").CONFIG_MAPPING[family]
    sizes = SMALL | {"num_key_value_heads": 4, "pad_token_id": 3, "rotary_dim": 8, "ffn_dim": 160,
                     "max_position_embeddings": 9}  # fmt: skip
    fields = {name: value for name, value in sizes.items() if hasattr(kind(), name)}
    found = sa.model_from_config(fields | {"model_type": family})
    assert found == sa.model_from_config(kind(**fields))


def test_heads_of_cohere2_have_the_size_that_is_given():
    fields = SMALL | {"model_type": "cohere2", "head_dim": 8}
    ((both,), *_) = sa.model_from_config(fields).layers()
    assert both.inner.blocks[0].head_size == 8


def test_a_truncated_initialisation_is_flagged():
    """Effective standard deviation 0.8796 sigma at a cutoff of 2."""
    fields = SMALL | {"model_type": "modernbert", "initializer_cutoff_factor": 2.0}
    model = sa.model_from_config(fields)
    assert model.embedding.std == pytest.approx(0.02 * 0.8796, rel=1e-4)
    assert "truncated at 2 standard deviations" in model.approximations[0]
    with pytest.raises(ValueError, match="accept_approximation=True"):
        sa.simulate_model(model, 4, samples=1)


def test_parallel_branches_may_have_weights_above_one():
    """Weights of std 0.15 give gamma > 1, without a skip connection inside."""
    model = sa.model_from_config(SMALL | {"model_type": "gpt_neox", "initializer_range": 0.3})
    ((outer,), _) = model.layers()
    assert isinstance(outer.inner, Parallel)
    assert outer.inner.skip == 1.0
    assert max(block.gamma for block in outer.inner.blocks) > 1.0
    with pytest.raises(ValueError, match="only Parallel may have a skip weight"):
        Parallel(sa.ShapedAttention(0.5, skip=0.5), sa.ShapedMLP(0.5))


@pytest.mark.parametrize(("family", "variance"), [("bert", 2.0), ("roberta", 1.0)])
def test_padding_tokens_keep_what_they_share(family, variance):
    """In units of the variance: the row of the type, and that of the position except in RoBERTa."""
    fields = {"model_type": family, "pad_token_id": 3, "max_position_embeddings": 9}
    model = sa.model_from_config(SMALL | fields)
    expected = [[variance, 1.0, 1.0], [1.0, 3.0, 1.0], [1.0, 1.0, variance]]
    found = mean_covariance(model.embedding, np.array([3, 5, 3])) / 0.02**2
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert model.embedding.positions == (9 if family == "bert" else 5)


def test_branches_in_parallel_are_arguments_or_a_list():
    blocks = [sa.ShapedAttention(0.5), sa.ShapedMLP(0.4)]
    as_arguments = sa.Parallel(*blocks)
    for same in (sa.Parallel(blocks), sa.Parallel(tuple(blocks)), sa.Parallel(blocks=blocks)):
        assert same == as_arguments
