"""Models in words."""

from __future__ import annotations

import pytest

import shaped_attention as sa
from tests.test_models import GPT2, LLAMA


def test_description_names_every_part():
    text = sa.describe(GPT2)
    for part in (
        "gpt2, 3 layers of width 32",
        "100 tokens, standard deviation 0.1, 64 learned positions (0.1)",
        "layers 1-3:",
        "4 heads of size 8",
        "causal",
        "MLP: 128 hidden units, gelu_tanh",
        "final norm: LayerNorm (eps 1e-05)",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("config", "changes", "part"),
    [
        (LLAMA, {"rope_theta": 1e4, "head_dim": 64,
                 "rope_scaling": {"type": "linear", "factor": 8.0}},
         "RoPE on 64 of 64 columns of a head, wavelengths 50.3 to 377000 tokens"),
        ("pythia-6.9b", {}, "RoPE on 32 of 128 columns of a head, wavelengths 6.28 to 35300 tok"),
        ("qwen3-8b", {"rms_norm_eps": 1e-5},
         "QK-norm over a head (eps 6.1e-06 for queries and keys of mean square 1)"),
        ("gemma-3-12b", {"num_hidden_layers": 20}, "\nlayers 1-5, 7-11, 13-17, 19-20:\n"),
        ("bert-large", {"model_type": "roberta"},
         "511 learned positions (0.02), a row common to all tokens (0.02), then LayerNorm (eps "
         "1e-12), zero for id 0 (padding), whose position is zero too\n"),
    ],
)  # fmt: skip
def test_positions_padding_and_norms_of_queries_are_described(config, changes, part):
    """Wavelengths 2 pi base^(2 j / d), 8 times as long with a factor of 8; an eps of std^2 n."""
    assert part in sa.describe(sa.model_from_config(config, **changes))
