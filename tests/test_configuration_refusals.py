"""What is refused in a configuration, each in one sentence that names the field or the file."""

from __future__ import annotations

import pytest

import shaped_attention as sa
from shaped_attention.architectures.reading import FAMILIES
from tests.test_configurations import LLAMA, facts, model


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model_type": "lama"},
            r"config has model_type='lama': choose one of .* \(did you mean 'llama'\?\)",
        ),
        ({"model_type": None}, "config has no model_type: choose one of"),
        ({"hidden_size": None}, "config has no field hidden_size; a whole number >= 1 is needed"),
        ({"hidden_size": 64.0}, r"config has hidden_size=64\.0; a whole number >= 1 is needed"),
        (
            {"hidden_size": None, "hiden_size": 64},
            r"config has no field hidden_size; a whole .* is needed \(is it 'hiden_size'\?\)",
        ),
        (
            {"intermediate_size": None, "intermediate_sise": 128},
            r"config has no field intermediate_size; .* is needed \(is it 'intermediate_sise'\?\)",
        ),
        (
            {"num_hidden_layer": 8},
            "config has the field num_hidden_layer=8, which this family's description does "
            "not cover; .*",
        ),
        (
            {"clip_qkv": 8.0, "model_type": "olmo", "rms_norm_eps": None},
            r"config has the field clip_qkv=8\.0, which .*",
        ),
        (
            {"num_key_value_heads": 3},
            "config has num_attention_heads=4, not a multiple of num_key_value_heads=3; a "
            "multiple is needed",
        ),
        (
            {"num_attention_heads": 6},
            "config has hidden_size=64, not a multiple of num_attention_heads=6, and no "
            "head_dim; .* is needed",
        ),
        (
            {"head_dim": 15},
            r"config rotates 15 of 15 columns of a head \(head_dim, "
            r"partial_rotary_factor\); an even number is needed",
        ),
        ({"initializer_range": 0}, "config has initializer_range=0; a positive number is needed"),
        ({"rms_norm_eps": float("inf")}, "config has rms_norm_eps=inf; a number >= 0 is needed"),
        ({"hidden_act": "mish"}, "config has hidden_act='mish', which is not covered; .* is"),
        (
            {"pad_token_id": 64},
            "config has pad_token_id=64; a number from 0 to 63, below vocab_size, is needed",
        ),
        (
            {"num_experts": 8},
            "config has model_type='llama', a mixture of experts, with num_experts=8; .*",
        ),
        ({"is_encoder_decoder": True}, "config has model_type='llama', an encoder-decoder; .*"),
        ({"sliding_window": 8}, "config has the field sliding_window=8, which .*"),
        ({"rope_theta": -1.0}, r"config has rope_theta=-1\.0; a positive number is needed"),
        (
            {"rope_theta": 2.0, "rope_parameters": {"rope_theta": 3.0}},
            r"config has rope_theta=2\.0 and rope_parameters with rope_theta=3\.0; one of "
            r"the two is needed",
        ),
        (
            {"rope_scaling": {"type": "su", "factor": 4.0}},
            "config has rope_scaling of the type 'su', which is not covered; 'default', "
            "'linear', 'llama3', 'yarn', 'longrope', 'dynamic' are",
        ),
        (
            {
                "max_position_embeddings": 16,
                "rope_scaling": {"type": "yarn", "factor": 4.0, "truncate": 1},
            },
            "config has truncate=1; true or false is needed",
        ),
        (
            {
                "original_max_position_embeddings": 8,
                "rope_scaling": {
                    "type": "yarn",
                    "factor": 4.0,
                    "original_max_position_embeddings": 16,
                },
            },
            "config has original_max_position_embeddings=8 and rope_scaling with "
            "original_max_position_embeddings=16; one of the two is needed",
        ),
        (
            {
                "model_type": "olmo3",
                "pad_token_id": 0,
                "max_position_embeddings": 16,
                "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "truncate": False},
            },
            "config has rope_scaling with truncate=False for a type of layers, where the library "
            "takes it for true; true is needed",
        ),
        (
            {"rope_scaling": {"type": "linear"}},
            "config has rope_scaling of the type 'linear' without factor; a number is needed",
        ),
        (
            {"rope_scaling": {"type": "linear", "factor": -4.0}},
            r"config has factor=-4\.0; a positive number is needed",
        ),
        (
            {"rope_scaling": {"type": "linear", "factor": 4.0, "beta": 2.0}},
            "config has rope_scaling with beta, which rope type 'linear' does not cover",
        ),
        (
            {
                "rope_scaling": {"type": "linear", "factor": 4.0},
                "rope_parameters": {"rope_theta": 3.0},
            },
            "config has both rope_parameters and rope_scaling; one is needed",
        ),
        (
            {"rope_scaling": 4.0},
            r"config has rope_scaling=4\.0; an object with parameters is needed",
        ),
        (
            {"partial_rotary_factor": 0.5},
            r"config has partial_rotary_factor=0\.5; 1, for whole heads, is needed",
        ),
        (
            {"model_type": "phi3", "pad_token_id": 0, "rope_scaling": {"type": "longrope"}},
            "config has rope_scaling of the type 'longrope' without short_factor; a list is needed",
        ),
        (
            {
                "model_type": "phi3",
                "pad_token_id": 0,
                "rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [2.0]},
            },
            r"config has short_factor with 1 numbers; a list of \d+ numbers is needed",
        ),
        (
            {"model_type": "phi3", "pad_token_id": 0, "partial_rotary_factor": 1.5},
            r"config has partial_rotary_factor=1\.5; at most 1 is needed",
        ),
        ({"model_type": "phi3"}, "config has pad_token_id=32000; .*"),
        (
            {"model_type": "gemma2", "layer_types": ["full_attention"]},
            "config has 1 layer_types for 4 layers; one for each, or layer_types=None for the "
            "family's own, is needed",
        ),
        (
            {"model_type": "gemma2", "layer_types": ["full_attention", "linear_attention"] * 2},
            "config has a layer of the type 'linear_attention', which is not covered; .*",
        ),
        (
            {"model_type": "gemma2", "sliding_window": None},
            "config has no field sliding_window; a whole number >= 1 is needed",
        ),
        (
            {"model_type": "gemma2", "use_bidirectional_attention": True},
            "config has the field use_bidirectional_attention=True, which .*",
        ),
        (
            {"model_type": "gemma", "num_key_value_heads": 4, "hidden_activation": "relu"},
            "config has hidden_activation='relu', which is not covered; 'gelu_pytorch_tanh' is",
        ),
        (
            {"model_type": "gemma3_text", "attn_logit_softcapping": 50.0},
            r"config has the field attn_logit_softcapping=50\.0, which .*",
        ),
        (
            {"model_type": "gemma3_text", "rope_parameters": {"rope_theta": 1e4}},
            "config has rope_parameters without layer types; .* are needed",
        ),
        (
            {"model_type": "qwen2", "layer_types": ["sliding_attention"] * 4},
            "config has layer_types with 'sliding_attention', but "
            "use_sliding_window=False; true is needed",
        ),
        (
            {"model_type": "qwen2", "use_sliding_window": 1},
            "config has use_sliding_window=1; true or false is needed",
        ),
        (
            {"model_type": "smollm3", "pad_token_id": 0, "no_rope_layers": [1]},
            "config has 1 no_rope_layers for 4 layers; one for each is needed",
        ),
        (
            {"model_type": "exaone4", "sliding_window_pattern": "LLLG"},
            "config has sliding_window_pattern='LLLG'; a whole number >= 1 is needed",
        ),
        (
            {"model_type": "granite", "residual_multiplier": 0.0},
            r"config has residual_multiplier=0\.0; a positive number is needed",
        ),
    ],
)
def test_what_is_refused(changes, message):
    """Each in one sentence that names the field."""
    with pytest.raises(ValueError, match=f"^{message}$"):
        model(**changes)


def test_families_are_listed_in_alphabetical_order():
    with pytest.raises(ValueError, match=r"^config has model_type='none': choose one of ") as info:
        model(model_type="none")
    listed = str(info.value).split("one of ")[1].split(", ")
    assert listed == sorted(FAMILIES)


GPT2 = {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 16} | {
    "vocab_size": 64
}


def test_two_names_of_one_size_agree():
    """A GPT-2 with n_layer=2 and num_hidden_layers=3 is refused, not read as one of the two."""
    message = "^config has n_layer=2 and num_hidden_layers=3; one value is needed$"
    with pytest.raises(ValueError, match=message):
        sa.model_from_config(GPT2 | {"num_hidden_layers": 3})
    assert sa.model_from_config(GPT2 | {"num_hidden_layers": 2}).depth == 2


def test_a_change_by_another_name_of_the_size_is_a_change():
    """The library's classes accept both names, so that several models share one change."""
    changed = sa.model_from_config(GPT2, num_hidden_layers=3, hidden_size=64)
    assert (changed.depth, changed.width) == (3, 64)
    assert changed.config["n_layer"] == 3
    assert "num_hidden_layers" not in changed.config
    assert model(n_layer=7).depth == 7
    with pytest.raises(ValueError, match="n_layer=5 and num_hidden_layers=3; one value is needed"):
        sa.model_from_config(GPT2, num_hidden_layers=3, n_layer=5)


BERT = LLAMA | {"model_type": "bert", "max_position_embeddings": 16, "rms_norm_eps": None}
BERT.pop("num_key_value_heads")


@pytest.mark.parametrize("config", [LLAMA, GPT2, BERT | {"is_decoder": True}])
def test_decoders_without_causal_mask_are_refused(config):
    """The library gives decoders with is_causal=False a mask through which all tokens are seen."""
    message = "^config has is_causal=False, which is not covered; True is$"
    with pytest.raises(ValueError, match=message):
        sa.model_from_config(config, is_causal=False)
    known = sa.model_from_config(config, is_causal=True)
    assert facts(known) == facts(sa.model_from_config(config))


def test_encoders_have_no_causal_mask():
    assert facts(sa.model_from_config(BERT, is_causal=False)) == facts(sa.model_from_config(BERT))


@pytest.mark.parametrize("value", [3, 0, False, ""])
def test_changes_of_unknown_fields_are_refused(value):
    """A misspelt field that is switched off is refused as well, with the nearest name."""
    message = (
        f"^config has the field num_hiden_layers={value!r}, which this family's description does "
        r"not cover; a configuration without it is needed \(did you mean 'num_hidden_layers'\?\)$"
    )
    with pytest.raises(ValueError, match=message):
        model(num_hiden_layers=value)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("hidden_act", "activation_function"),
        ("intermediate_size", "n_inner"),
        ("rms_norm_eps", "layer_norm_epsilon"),
    ],
)
def test_names_of_other_families_are_matched_by_meaning(name, other):
    """By spelling, hidden_act would be taken for hidden_size."""
    with pytest.raises(ValueError, match=rf"\(did you mean '{other}'\?\)$"):
        sa.model_from_config(GPT2, **{name: "relu"})
    assert other not in GPT2


@pytest.mark.parametrize("value", [False, 0, "", []])
def test_unknown_fields_that_are_off_are_listed(value):
    """They are in the configuration itself; nothing is left out in silence."""
    known = sa.model_from_config(LLAMA | {"use_something_new": value})
    assert f"use_something_new={value!r}" in known.unused
    assert f"use_something_new={value!r}" in sa.describe(known).splitlines()[-1]
    with pytest.raises(ValueError, match="use_something_new=3"):
        sa.model_from_config(LLAMA | {"use_something_new": 3})


def test_weights_out_of_range_are_named():
    """A standard deviation that the chain does not take is named as the weights' own."""
    message = (
        r"^config has weights of standard deviation 1000 and width 64, so that hidden units have "
        r"inputs of standard deviation 8000; a number from 1e-06 to 100 is needed$"
    )
    with pytest.raises(ValueError, match=message):
        model(initializer_range=1e3)
