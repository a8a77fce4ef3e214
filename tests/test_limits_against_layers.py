"""Limits of blocks, also of random ones, against one layer with real numbers."""

from __future__ import annotations

import numpy as np
import pytest

import shaped_attention as sa
from tests import new_attentions as new
from tests.laws import assert_executors_agree
from tests.one_layer import V0, compare
from tests.random_limits import RandomLimit

BIAS = 0.7 * np.random.default_rng(8).normal(size=(3, 3))
ATTENTION = {
    "biases": {"query_bias": 0.8, "key_bias": 0.6},
    "biases of heads": {
        "heads": 2, "position_bias": [BIAS, -2.0 * BIAS], "output_projection": True
    },
    "rope, half, QK-norm": {
        "key_size": 8, "rope": sa.Rope(2.0, 0.5), "qk_norm": True, "mask": "causal"
    },
}  # fmt: skip
BLOCKS: dict[str, sa.Block] = {
    **{name: sa.ShapedAttention(0.7, 0.5, **options) for name, options in ATTENTION.items()},
    "relu": sa.ShapedMLP(0.7, 0.5, -2.0),
    "unit rows": new.UnitRows(0.7, 0.5),
    "twice": new.Twice(0.7, 0.4),
    "nested": new.Nested(0.7, 0.4),
    "odd": new.Odd(0.7),
}
QUICK = ("biases", "biases of heads", "rope, half, QK-norm", "relu", "twice", "odd")


@pytest.mark.parametrize("name", QUICK)
def test_limits_of_blocks_against_one_layer(name):
    """4,000 samples; parameters that are wrong by 25 % are noticed."""
    compare([BLOCKS[name]], 4000, len(BLOCKS), 0.25, 1.0)


@pytest.mark.validation
@pytest.mark.parametrize("name", BLOCKS)
def test_limits_of_all_blocks_against_one_layer(name):
    """100,000 samples; parameters that are wrong by 5 % are noticed."""
    compare([BLOCKS[name]], 100_000, len(BLOCKS), 0.05, 1.0)


def random_blocks(seeds):
    """Return the blocks that have a limit, at least a third; others say why they have none."""
    blocks = [RandomLimit.of(seed) for seed in seeds]
    for block in blocks:
        assert not isinstance(block.limit, str) or "Error:" not in block.limit, block
    found = [block for block in blocks if not isinstance(block.limit, str)]
    assert 3 * len(found) > len(blocks)
    return found


def test_limits_of_random_branches():
    """3,000 samples; parameters that are wrong by 25 % are noticed in four of five."""
    compare(random_blocks(range(20)), 3000, 20, 0.25, 0.8)


@pytest.mark.validation
@pytest.mark.parametrize("first", range(0, 300, 30))
def test_limits_of_many_random_branches(first):
    """6,000 samples; parameters that are wrong by 20 % are noticed in four of five."""
    compare(random_blocks(range(first, first + 30)), 6000, 300, 0.2, 0.8)


def test_executors_of_random_limits_agree(monkeypatch):
    """Compiled code, library routines and torch."""
    run = {"horizon": 0.2, "step": 0.05, "samples": 10, "method": "direct", "progress": False}
    for block in random_blocks(range(20)):
        assert_executors_agree(
            lambda block=block: sa.integrate_sde(block, V0.numpy(), **run).V.values, monkeypatch
        )
