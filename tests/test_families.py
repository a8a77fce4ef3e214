"""Families of configurations: what they read, and what is refused by name."""

from __future__ import annotations

import numpy as np
import pytest

import shaped_attention as sa
from shaped_attention.architectures.embedded import mean_covariance
from shaped_attention.architectures.reading import FAMILIES
from shaped_attention.blocks.parallel import Parallel

SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64,
         "intermediate_size": 160}  # fmt: skip

REFUSED = [
    ({"model_type": "t5", "is_encoder_decoder": True}, "'t5', an encoder-decoder"),
    ({"model_type": "mt5", "d_model": 64}, "'mt5', an encoder-decoder"),
    ({"model_type": "bart", "d_model": 64}, "'bart', an encoder-decoder"),
    ({"model_type": "mixtral", "num_local_experts": 8}, "mixture of experts, with num_local_exp"),
    ({"model_type": "qwen2_moe"}, "'qwen2_moe', a mixture of experts; dense"),
    ({"model_type": "dbrx", "ffn_config": {"moe_num_experts": 16}}, "'dbrx', a mixture of experts"),
    ({"model_type": "gpt_neoxx"}, r"model_type='gpt_neoxx': one of .*did you mean 'gpt_neox'"),
    ({}, "no model_type: one of"),
    ({"model_type": "bert", "position_embedding_type": "relative_key"},
     "position_embedding_type='relative_key', which is not covered; 'absolute' is"),
    ({"model_type": "bert", "pad_token_id": 64}, "pad_token_id=64; a number from 0 to 63"),
    ({"model_type": "roberta", "pad_token_id": None, "max_position_embeddings": 9},
     "pad_token_id=None; roberta needs"),
    ({"model_type": "phi", "qk_layernorm": True}, "qk_layernorm=True, which is not covered"),
    ({"model_type": "stablelm", "qk_layernorm": True}, "qk_layernorm=True, which is not covered"),
    ({"model_type": "cohere", "use_qk_norm": True}, "use_qk_norm=True, which is not covered"),
    ({"model_type": "opt", "word_embed_proj_dim": 32},
     "word_embed_proj_dim=32, which is not covered; 64 is"),
    ({"model_type": "bloom", "apply_residual_connection_post_layernorm": True},
     "apply_residual_connection_post_layernorm=True, which is not covered"),
    ({"model_type": "falcon", "new_decoder_architecture": True, "parallel_attn": False},
     "parallel_attn=False, which models cannot have"),
    ({"model_type": "gptj", "rotary_dim": 32}, "rotary_dim=32; an even number up to 16"),
    ({"model_type": "gptj"}, "no field rotary_dim"),
    ({"model_type": "gpt_neox", "hidden_size": 66}, "width of 66 and 4 heads; a multiple"),
    ({"model_type": "bloom", "n_layer": 3}, "num_hidden_layers=2 and n_layer=3; one value"),
    ({"model_type": "gpt_neox", "hidden_act": "quick_gelu"}, "hidden_act='quick_gelu', which"),
    ({"model_type": "gpt_neox", "rotary_pcd": 0.5}, "the field rotary_pcd=0.5, which"),
    ({"model_type": "cohere2", "layer_types": ["full_attention"] * 3}, "3 layer_types for 2"),
    ({"model_type": "cohere2", "layer_types": 7}, "layer_types=7; a list is needed"),
    ({"model_type": "smollm3", "no_rope_layers": 7, "pad_token_id": 0},
     "no_rope_layers=7; a list is needed"),
    ({"model_type": ["llama"]}, "model_type=.'llama'.: one of"),
    ({"model_type": "llama", "hidden_act": ["silu"]}, "hidden_act=.'silu'., which is not covered"),
    ({"model_type": "llama", "pruned_heads": {"0": [1]}}, "the field pruned_heads="),
    *(
        ({"model_type": family, "partial_rotary_factor": 0.5}, "0.5; 1, for whole heads, is")
        for family in ("cohere", "cohere2", "starcoder2", "modernbert")
    ),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "message"), REFUSED)
def test_what_is_not_covered_is_refused_by_name(fields, message):
    with pytest.raises(ValueError, match=message):
        sa.model_from_config(SMALL | fields)


NAMES_OF_OLD = {
    "rotary_pct": ({"model_type": "gpt_neox", "rotary_pct": 0.5, "rotary_emb_base": 500},
                   {"rope_parameters": {"rope_type": "default", "rope_theta": 500,
                                        "partial_rotary_factor": 0.5}}),
    "global_rope_theta": (
        {"model_type": "modernbert", "global_rope_theta": 5000.0, "local_rope_theta": 100.0,
         "global_attn_every_n_layers": 2},
        {"rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 5000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}},
         "layer_types": ["full_attention", "sliding_attention"]},
    ),
    "sliding_window_pattern": (
        {"model_type": "cohere2", "sliding_window_pattern": 2},
        {"layer_types": ["sliding_attention", "full_attention"]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES_OF_OLD)
def test_old_and_new_names_of_fields_give_one_model(name):
    """They differ from the model with the default values of these fields."""
    old, new = NAMES_OF_OLD[name]
    family = {"model_type": old["model_type"]}
    found = sa.model_from_config(SMALL | old).layers()
    assert found == sa.model_from_config(SMALL | family | new).layers()
    assert found != sa.model_from_config(SMALL | family).layers()


def test_bloom_has_names_of_its_own():
    old = {"model_type": "bloom", "vocab_size": 64, "n_embed": 64, "n_head": 4, "n_layer": 2}
    new = {"model_type": "bloom", "vocab_size": 64, "hidden_size": 64, "num_attention_heads": 4}
    assert sa.model_from_config(old) == sa.model_from_config(new, num_hidden_layers=2)


@pytest.mark.parametrize(
    "fields",
    [
        {"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 3, "vocab_size": 64,
         "n_positions": 8},
        {"model_type": "bloom", "n_embed": 64, "n_head": 4, "n_layer": 3, "vocab_size": 64},
        SMALL | {"model_type": "gpt_neox"},
    ],
)  # fmt: skip
def test_a_changed_field_has_the_name_that_the_configuration_gives_it(fields):
    """A GPT-2 with n_layer=3 would otherwise ignore num_hidden_layers=5."""
    for name in ("num_hidden_layers", "n_layer"):
        assert sa.model_from_config(fields, **{name: 5}).depth == 5
    with pytest.raises(ValueError, match=r"n_layer=6.*(one value|without it) is needed"):
        sa.model_from_config(fields, num_hidden_layers=5, n_layer=6)


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
    assert "truncated normal, from -2 to 2 standard deviations" in model.approximations[0]
    with pytest.raises(ValueError, match="accept_approximation=False"):
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


@pytest.mark.parametrize(("family", "own"), [("bert", 2.0), ("roberta", 1.0)])
def test_padding_tokens_keep_what_they_share(family, own):
    """In units of the variance: the row of the type, and that of the position except in RoBERTa."""
    fields = {"model_type": family, "pad_token_id": 3, "max_position_embeddings": 9}
    model = sa.model_from_config(SMALL | fields)
    expected = [[own, 1.0, 1.0], [1.0, 3.0, 1.0], [1.0, 1.0, own]]
    found = mean_covariance(model.embedding, np.array([3, 5, 3])) / 0.02**2
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert model.embedding.positions == (9 if family == "bert" else 5)
