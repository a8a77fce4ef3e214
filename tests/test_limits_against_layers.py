"""Limits of new blocks against one layer with real numbers; a parameter off by 5 % is noticed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import shaped_attention as sa
from figures.blocks.attentions import (
    Cosine,
    Differential,
    Gated,
    Latent,
    Linear,
    QKNorm,
    Sigmoid,
    TalkingHeads,
)
from tests import new_attentions as new
from tests.one_layer import scores_against_layers

BIAS = 0.7 * np.random.default_rng(8).normal(size=(3, 3))
TWO_BIASES = sa.ShapedAttention(
    0.7, 0.4, heads=2, position_bias=[BIAS, -2.0 * BIAS], output_projection=True
)
STRETCHED = sa.ShapedAttention(
    0.7, 0.8, key_size=4, rope=sa.Rope(angles=[0.7, 0.2], attention_factor=1.3)
)
NEW = {
    "sigmoid": (Sigmoid(0.7, 0.3), {"tau0": 0.315}),
    "differential": (Differential(0.7, 0.4), {"mu": 0.5}),
    "talking heads": (TalkingHeads(0.7, 0.5), {"before": ((1.0, 0.5), (0.3, 0.8))}),
    "unit rows": (new.UnitRows(0.7, 0.5), {"tau0": 0.525}),
    "latent": (Latent(0.7, 0.4), {"tau0": 0.42}),
    "QK-norm": (QKNorm(0.7, 0.3), {"tau0": 0.315}),
    "gated": (Gated(0.7, 0.4), {"tau0": 0.42}),
    "linear": (Linear(0.7, 0.4), {"tau0": 0.42}),
    "cosine": (Cosine(0.7, 0.2), {"tau0": 0.21}),
    "shared keys": (new.SharedKeys(0.7, 0.4), {"tau0": 0.42}),
    "twice": (new.Twice(0.7, 0.4), {"tau0": 0.42}),
    "nested": (new.Nested(0.7, 0.4), {"tau0": 0.42}),
    "biases of heads": (TWO_BIASES, {"tau0": 0.42}),
    "rope with a factor": (STRETCHED, {"tau0": 0.84}),
    "even": (new.Even(0.7), {"a": 1.575}),
    "odd": (new.Odd(0.7), {"a": 1.575}),
}
"""Blocks, and a parameter that is wrong by about 5 %."""


def compare_with_layers(name: str, samples: int, least: float) -> None:
    """Fail if the limit is off by 4.5 standard errors, or the wrong one by less than `least`."""
    block, change = NEW[name]
    right, wrong = scores_against_layers(block, replace(block, **change), samples)
    assert max(right) < 4.5, right
    assert max(wrong) > least, wrong


@pytest.mark.parametrize("name", ["twice", "biases of heads", "odd"])
def test_new_blocks_against_one_layer(name):
    """40,000 samples at widths 64 and 128; a parameter off by 5 % (a sign) is 4.5 errors off."""
    compare_with_layers(name, 40_000, 4.5)


@pytest.mark.validation
@pytest.mark.parametrize("name", NEW)
def test_all_new_blocks_against_one_layer(name):
    """160,000 samples at widths 64 and 128."""
    compare_with_layers(name, 160_000, 4.0)
