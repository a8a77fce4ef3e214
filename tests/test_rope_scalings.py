"""YaRN, LongRoPE and dynamic RoPE: angles and factors are those of the library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention.blocks.rotations import turned
from shaped_attention.libraries import Tensor
from tests.reality import SMALL, small
from tests.test_configurations import attention

transformers = pytest.importorskip("transformers")

SIZES = SMALL | {"max_position_embeddings": 4096}

_YARN = {
    "rope_type": "yarn", "rope_theta": 100.0, "factor": 64.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
_SHORT, _LONG = [1.0, 1.5, 2.0, 3.0], [2.0, 8.0, 20.0, 50.0]
_LONGROPE = {
    "rope_type": "longrope", "rope_theta": 100.0, "short_factor": _SHORT, "long_factor": _LONG,
    "partial_rotary_factor": 0.5,
}  # fmt: skip

SCALINGS: dict[str, tuple[str, dict[str, Any]]] = {
    # Family, and the fields that are changed.
    "linear": (
        "llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": 4.0}}
    ),
    "llama3": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 128,
            }
        },
    ),
    "yarn": ("llama", {"rope_parameters": _YARN}),
    "yarn, no whole numbers": ("llama", {"rope_parameters": {**_YARN, "truncate": False}}),
    "yarn, mscale": (
        "llama", {"rope_parameters": {**_YARN, "mscale": 1.0, "mscale_all_dim": 0.4}}
    ),
    "longrope": (
        "phi3", {"rope_parameters": _LONGROPE, "original_max_position_embeddings": 16}
    ),
    "longrope, factor": (
        "llama",
        {
            "rope_parameters": {
                **_LONGROPE, "factor": 4.0, "original_max_position_embeddings": 16,
                "short_factor": _SHORT * 2, "long_factor": _LONG * 2, "partial_rotary_factor": 1.0,
            }
        },
    ),
    "dynamic": (
        "llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 4.0}}
    ),
}  # fmt: skip


def config_of(family: str, std: float = 0.02, **fields: Any) -> Any:
    return small(family, std, **SIZES | fields)


@pytest.mark.parametrize("name", SCALINGS)
def test_angles_and_factors_are_those_of_the_library(name):
    """To single precision, for few and for many tokens.

    The library rounds the weights of YaRN, numbers up to 1 that multiply the plain angles. All
    scalings but the dynamic one, for few tokens, change angles; YaRN and LongRoPE have a factor.
    """
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    family, fields = SCALINGS[name]
    config = config_of(family, **fields)
    block = attention(sa.model_from_config(config))
    initial = ROPE_INIT_FUNCTIONS[config.rope_parameters["rope_type"]]
    for tokens in (8, 16, 17, 4096):
        angles, factor = initial(config, "cpu", seq_len=tokens)
        plain = sa.Rope.angles_of(100.0, 2 * len(angles))
        error = np.abs(block.rope.pairs(16, tokens) - angles.double().numpy())
        assert (error <= 2e-7 * plain + 1e-6 * angles.numpy()).all()
        assert block.rope.attention_factor == pytest.approx(factor, rel=1e-12)
    assert (block.rope.attention_factor == 1.0) == (name in ("dynamic", "linear", "llama3"))
    assert np.allclose(block.rope.pairs(16), plain) == (name == "dynamic")


def test_the_factor_multiplies_the_rotated_columns_alone():
    rows = torch.arange(30.0, dtype=torch.float64).reshape(3, 10) + 1.0
    angles = np.array([1.0, 0.3])
    plain, scaled = turned(rows, angles), turned(rows, angles, 1.5)
    assert isinstance(plain, Tensor)
    torch.testing.assert_close(scaled[:, :4], 1.5 * plain[:, :4])
    torch.testing.assert_close(scaled[:, 4:], rows[:, 4:], rtol=0.0, atol=0.0)


def test_the_number_of_tokens_decides_on_the_angles():
    """Up to 16 tokens the short list; beyond, the long one, and for dynamic RoPE an error."""
    config = config_of("phi3", **SCALINGS["longrope"][1])
    block = attention(sa.model_from_config(config))
    plain = sa.Rope.angles_of(100.0, 8)
    np.testing.assert_allclose(block.rope.pairs(16, 16), plain / _SHORT)
    np.testing.assert_allclose(block.rope.pairs(16, 17), plain / _LONG)
    known = sa.model_from_config(
        config_of("llama", **SCALINGS["dynamic"][1]), max_position_embeddings=6
    )
    assert sa.simulate_model(known, 6, samples=2, progress=False).sizes["row"] == 6
    with pytest.raises(
        ValueError, match="at least 7, the number of tokens, unless long_angles is given; got 6"
    ):
        sa.simulate_model(known, 7, samples=2, progress=False)
