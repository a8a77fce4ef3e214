"""What is refused in a configuration, each in one sentence that names the field or the file."""

from __future__ import annotations

from typing import Any

import pytest

import shaped_attention as sa
from tests.test_configurations import LLAMA, model

SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64,
         "intermediate_size": 160}  # fmt: skip
LINEAR = {"type": "linear", "factor": 4.0}
NOT_COVERED = "which the description of this family does not cover"

CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"model_type": "lama"}, "config.model_type must be one of .*; got 'lama' .*'llama'"),
    ({"num_hidden_layer": 8}, f"config has num_hidden_layer=8, {NOT_COVERED} .*"),
    ({"rms_norm_eps": float("inf")}, "config.rms_norm_eps must be finite and >= 0; got inf"),
    ({"hidden_act": "mish"}, r"config.hidden_act must be 'gelu' or .* \(other .*; got 'mish'"),
    ({"num_experts": 8}, "config has .*'llama', a mixture of experts with num_experts=8; .*"),
    ({"is_causal": False}, "config.is_causal must be True .*; got False"),
    ({"rope_scaling": {"type": "su", "factor": 4.0}},
     r"config.rope_scaling.rope_type must be one of 'default', 'linear', 'llama3', 'yarn', "
     r"'longrope', 'dynamic' \(others are not covered\); got 'su'"),
    ({"rope_scaling": LINEAR | {"beta": 2.0}},
     "config.rope_scaling has beta, which rope type 'linear' does not cover"),
    ({"model_type": "gemma2", "layer_types": ["full_attention", "linear_attention"] * 2},
     "config.layer_types must be a list with entries .* or .*; got 'linear_attention'"),
    ({"model_type": "qwen2", "layer_types": ["sliding_attention"] * 4},
     "config.use_sliding_window must be true for layers of type 'sliding_attention'; got False"),
    # A standard deviation that the chain does not accept is that of the weights.
    ({"initializer_range": 1e3},
     r"config.initializer_range must be such that .* \[1e-06, 100\] at width 64; got 8000.0"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), CHANGES)
def test_what_is_refused(changes, message):
    """In a Llama with changed fields."""
    with pytest.raises(ValueError, match=f"^{message}"):
        model(**changes)


GPT2 = {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 16} | {
    "vocab_size": 64
}


def test_a_change_by_another_name_of_the_size_is_a_change():
    """The library's classes accept both names, so that several models share one change."""
    for name in ("num_hidden_layers", "n_layer"):
        assert sa.model_from_config(GPT2, **{name: 5}).depth == 5
    with pytest.raises(ValueError, match="n_layer must be equal to num_hidden_layers=3; got 6"):
        sa.model_from_config(GPT2, num_hidden_layers=3, n_layer=6)


def test_unknown_fields_that_are_off_are_listed():
    """They are in the configuration itself; nothing is left out in silence."""
    known = sa.model_from_config(LLAMA | {"use_something_new": False})
    assert "use_something_new=False" in known.unused
    assert "use_something_new=False" in sa.describe(known).splitlines()[-1]
    with pytest.raises(ValueError, match="use_something_new=3"):
        sa.model_from_config(LLAMA | {"use_something_new": 3})
