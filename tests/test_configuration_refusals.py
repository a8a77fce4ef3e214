"""What is refused in a configuration, each in one sentence that names the field or the file."""

from __future__ import annotations

from typing import Any

import pytest

import shaped_attention as sa
from shaped_attention.architectures.coverage import POINTER, READ
from tests.test_configurations import LLAMA, facts, model

SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64,
         "intermediate_size": 160}  # fmt: skip
YARN = {"type": "yarn", "factor": 4.0}
LINEAR = {"type": "linear", "factor": 4.0}
ORIGINAL = "original_max_position_embeddings"
NOT_COVERED = "which the description of this family does not cover"
WHOLE = "config.partial_rotary_factor must be 1, so that whole heads are rotated; got 0.5"

CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"model_type": "lama"}, "config.model_type must be one of .*; got 'lama' .*'llama'"),
    ({"hidden_size": None, "hiden_size": 64},
     r"config has no field hidden_size, .* \(did you mean 'hiden_size'\?\)"),
    ({"num_hidden_layer": 8}, f"config has num_hidden_layer=8, {NOT_COVERED} .*"),
    ({"num_key_value_heads": 3}, "config.num_attention_heads must be a multiple of 3, .*; got 4"),
    ({"num_attention_heads": 6},
     "config.num_attention_heads must be a divisor of hidden_size=64 unless head_dim is given; "
     "got 6"),
    ({"rms_norm_eps": float("inf")}, "config.rms_norm_eps must be finite and >= 0; got inf"),
    ({"hidden_act": "mish"}, r"config.hidden_act must be 'gelu' or .* \(other .*; got 'mish'"),
    ({"num_experts": 8}, "config has .*'llama', a mixture of experts with num_experts=8; .*"),
    ({"is_encoder_decoder": True}, "config has model_type='llama', an encoder-decoder; .*"),
    ({"rope_scaling": {"type": "su", "factor": 4.0}},
     r"config.rope_scaling.rope_type must be one of 'default', 'linear', 'llama3', 'yarn', "
     r"'longrope', 'dynamic' \(others are not covered\); got 'su'"),
    ({"model_type": "olmo3", "pad_token_id": 0, "max_position_embeddings": 16,
      "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "truncate": False}},
     "config.rope_scaling.truncate must be true in parameters for a type of layer, .*; got False"),
    ({"rope_scaling": {"type": "linear"}},
     "config.rope_scaling.factor must be a number for the rope type 'linear'; got None"),
    ({"rope_scaling": LINEAR | {"beta": 2.0}},
     "config.rope_scaling has beta, which rope type 'linear' does not cover"),
    ({"partial_rotary_factor": 0.5}, WHOLE),
    ({"model_type": "gemma2", "layer_types": ["full_attention"]},
     r"config.layer_types must be a list of 4 entries, one for each layer, or None for the "
     r"default; got \['full_attention'\]"),
    ({"model_type": "gemma2", "layer_types": ["full_attention", "linear_attention"] * 2},
     "config.layer_types must be a list with entries .* or .*; got 'linear_attention'"),
    ({"model_type": "gemma3_text", "attn_logit_softcapping": 50.0},
     "config has attn_logit_softcapping=50.0, .*"),
    ({"model_type": "gemma3_text", "rope_parameters": {"rope_theta": 1e4}},
     "config.rope_parameters must be an object with the parameters of .*; got .*"),
    ({"model_type": "qwen2", "layer_types": ["sliding_attention"] * 4},
     "config.use_sliding_window must be true for layers of type 'sliding_attention'; got False"),
    ({"model_type": "granite", "residual_multiplier": 0.0},
     "config.residual_multiplier must be positive and finite; got 0.0"),
    # A standard deviation that the chain does not accept is that of the weights.
    ({"initializer_range": 1e3},
     r"config.initializer_range must be such that .* \[1e-06, 100\] at width 64; got 8000.0"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), CHANGES)
def test_what_is_refused(changes, message):
    """In a Llama with changed fields."""
    with pytest.raises(ValueError, match=f"^{message}"):
        model(**changes)


FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"model_type": "t5", "is_encoder_decoder": True}, "'t5', an encoder-decoder"),
    ({"model_type": "mixtral", "num_local_experts": 8}, "mixture of experts with num_local_exp"),
    ({"model_type": "qwen2_moe"}, "'qwen2_moe', a mixture of experts; only single stacks"),
    ({"model_type": "dbrx", "ffn_config": {"moe_num_experts": 16}}, "'dbrx', a mixture of experts"),
    ({"model_type": "bert", "position_embedding_type": "relative_key"},
     r"position_embedding_type must be 'absolute' \(other values are not covered\)"),
    ({"model_type": "roberta", "pad_token_id": None, "max_position_embeddings": 9},
     "pad_token_id must be an integer for this family; got None"),
    ({"model_type": "phi", "qk_layernorm": True}, "qk_layernorm must be False"),
    ({"model_type": "bloom", "n_layer": 3}, "n_layer must be equal to num_hidden_layers=2; got 3"),
    ({"model_type": "falcon", "new_decoder_architecture": True, "parallel_attn": False},
     "parallel_attn must be true if new_decoder_architecture is; got False"),
    ({"model_type": "gptj", "rotary_dim": 32}, "rotary_dim must be even and at most 16, .*got 32"),
    ({"model_type": "gpt_neox", "rotary_pcd": 0.5}, "config has rotary_pcd=0.5, which"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "message"), FIELDS)
def test_what_is_not_covered_is_refused_by_name(fields, message):
    """In configurations of other families."""
    with pytest.raises(ValueError, match=message):
        sa.model_from_config(SMALL | fields)


def test_families_are_listed_in_alphabetical_order():
    with pytest.raises(ValueError, match="must be one of ") as info:
        model(model_type="none")
    listed = str(info.value).split("one of ")[1].removesuffix(f"; got 'none'{POINTER}").split(", ")
    assert listed == sorted(READ)


GPT2 = {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 16} | {
    "vocab_size": 64
}


def test_a_change_by_another_name_of_the_size_is_a_change():
    """The library's classes accept both names, so that several models share one change."""
    for config in (GPT2, SMALL | {"model_type": "gpt_neox"}):
        for name in ("num_hidden_layers", "n_layer"):
            assert sa.model_from_config(config, **{name: 5}).depth == 5
        with pytest.raises(ValueError, match="n_layer must be equal to num_hidden_layers=3; got 6"):
            sa.model_from_config(config, num_hidden_layers=3, n_layer=6)
    changed = sa.model_from_config(GPT2, num_hidden_layers=3, hidden_size=64)
    assert (changed.depth, changed.width, changed.config["n_layer"]) == (3, 64, 3)
    assert "num_hidden_layers" not in changed.config
    assert sa.model_from_config(GPT2 | {"num_hidden_layers": 2}).depth == 2
    with pytest.raises(ValueError, match="n_layer must be equal to num_hidden_layers=3; got 2"):
        sa.model_from_config(GPT2 | {"num_hidden_layers": 3})
    bloom = {"model_type": "bloom", "vocab_size": 64, "n_embed": 64, "n_head": 4, "n_layer": 2}
    assert sa.model_from_config(bloom) == sa.model_from_config(
        {"model_type": "bloom", "vocab_size": 64, "hidden_size": 64, "num_attention_heads": 4},
        num_hidden_layers=2,
    )


BERT = LLAMA | {"model_type": "bert", "max_position_embeddings": 16, "rms_norm_eps": None}
BERT.pop("num_key_value_heads")


@pytest.mark.parametrize("config", [LLAMA, GPT2, BERT | {"is_decoder": True}])
def test_decoders_without_causal_mask_are_refused(config):
    """The library gives decoders with is_causal=False a mask through which all tokens are seen."""
    message = (
        rf"^config.is_causal must be True \(other values are not covered\); got False{POINTER}$"
    )
    with pytest.raises(ValueError, match=message):
        sa.model_from_config(config, is_causal=False)
    known = sa.model_from_config(config, is_causal=True)
    assert facts(known) == facts(sa.model_from_config(config))


@pytest.mark.parametrize("value", [3, False])
def test_changes_of_unknown_fields_are_refused(value):
    """A misspelt field that is switched off is refused as well, with the nearest name."""
    guess = r"\(did you mean 'num_hidden_layers'\?\)"
    with pytest.raises(ValueError, match=f"num_hiden_layers={value!r}, {NOT_COVERED} {guess}$"):
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


@pytest.mark.parametrize("value", [False, []])
def test_unknown_fields_that_are_off_are_listed(value):
    """They are in the configuration itself; nothing is left out in silence."""
    known = sa.model_from_config(LLAMA | {"use_something_new": value})
    assert f"use_something_new={value!r}" in known.unused
    assert f"use_something_new={value!r}" in sa.describe(known).splitlines()[-1]
    with pytest.raises(ValueError, match="use_something_new=3"):
        sa.model_from_config(LLAMA | {"use_something_new": 3})
