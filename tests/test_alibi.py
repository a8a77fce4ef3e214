"""ALiBi by name: for any number of tokens the bias that models compute."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention import ShapedAttention
from shaped_attention.blocks.positions import alibi_slopes, bias_array, centre, head_bias

MIXED = {"output_projection": True, "mask": "causal"}


def named(name: str, heads: int, tokens: int) -> np.ndarray:
    return np.array([bias_array(head_bias(name, heads, h), tokens) for h in range(heads)])


@pytest.mark.parametrize(("name", "scale"), [("alibi", 1.0), ("alibi:0.25", 0.25)])
def test_a_named_bias_gives_the_paths_of_the_array(name, scale):
    """To the last bit, also at two numbers of tokens with one block; other slopes do not."""
    block = ShapedAttention(0.6, 0.5, heads=4, position_bias=name, **MIXED)
    slopes = [scale * slope for slope in alibi_slopes(4)]
    for tokens in (3, 5):
        v0 = sa.equicorrelated(tokens, 0.4)
        settings = {"width": 16, "depth": 3, "samples": 5, "seed": 1}
        found = sa.simulate_chain(block, v0, **settings).V
        bias = sa.alibi(tokens, slopes)
        same = ShapedAttention(0.6, 0.5, heads=4, position_bias=bias, **MIXED)
        np.testing.assert_array_equal(found, sa.simulate_chain(same, v0, **settings).V)
        other = ShapedAttention(0.6, 0.5, heads=4, position_bias=2.0 * bias, **MIXED)
        assert not np.array_equal(found, sa.simulate_chain(other, v0, **settings).V)


@pytest.mark.parametrize("heads", [1, 6, 16])
def test_slopes_are_those_of_bloom(heads):
    """The weights w of each head, to single precision; rounded slopes are further away."""
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    tokens = 40
    built = build_alibi_tensor(torch.ones(1, tokens), heads, torch.float64)
    for head in range(heads):
        logits = np.broadcast_to(built[head].numpy(), (tokens, tokens)).tolist()
        expected = centre("causal", tuple(map(tuple, logits)), tokens)
        found = centre("causal", head_bias("alibi", heads, head), tokens)
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("heads", [6, 16])
def test_rounding_is_that_of_falcon(heads):
    """Positions are rounded beyond 256 tokens; without this rounding, biases would differ by 1."""
    from transformers.models.falcon.modeling_falcon import build_alibi_tensor

    tokens = 600
    built = build_alibi_tensor(torch.ones(1, tokens, dtype=torch.long), heads, torch.float64)
    places = built[:, 0].numpy()
    expected = -np.abs(places[:, :, None] - places[:, None, :])
    np.testing.assert_array_equal(named("alibi:bfloat16", heads, tokens), expected)
    assert np.abs(named("alibi", heads, tokens) - expected).max() > 0.5
