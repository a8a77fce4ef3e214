"""The blocks with real weights are the formulas of the paper, written out token by token."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from shaped_attention import ShapedAttention, ShapedMLP
from shaped_attention.blocks.parameters import at_depth

TOKENS, WIDTH = 3, 12
MASK = np.array([[True, False, True], [True, True, False], [False, False, True]])
GAMMA, TAU = 0.6, 0.3


class Weights:
    """Gaussian matrices, one for each product with tokens, kept in their order."""

    def __init__(self):
        self.generator, self.kept = np.random.default_rng(3), []

    def __call__(self, x, columns, name=None, head=0):
        self.kept.append(self.generator.standard_normal((x.shape[-1], columns)))
        return x @ torch.from_numpy(self.kept[-1])


def some_tokens():
    return np.random.default_rng(4).standard_normal((TOKENS, WIDTH))


def written_out(x, weights, heads=1, mask=None, projection=False, keys=None, biases=(0.0, 0.0)):
    """lambda x + gamma A x W_V / sqrt n with tau = tau_0 sqrt(n n_k), row by row."""
    keys, weights = keys or WIDTH // heads, iter(weights)
    branch = []
    for _ in range(heads):
        sides = []
        for variance in biases:
            side = x @ next(weights) / math.sqrt(WIDTH)
            sides.append(side + math.sqrt(variance) * next(weights) if variance else side)
        values = x @ next(weights) / math.sqrt(WIDTH)
        rows = []
        for a in range(TOKENS):
            seen = [b for b in range(TOKENS) if mask is None or mask[a, b]]
            scores = [sides[0][a] @ sides[1][b] / (TAU * math.sqrt(WIDTH * keys)) for b in seen]
            total = sum(math.exp(score) for score in scores)
            row = values[a].copy()
            for b, score in zip(seen, scores, strict=True):
                row += (math.exp(score) / total - 1.0 / len(seen)) * values[b]
            rows.append(row)
        branch.append(np.array(rows))
    joined = np.concatenate(branch, axis=1)
    joined = joined @ next(weights) / math.sqrt(WIDTH) if projection else joined
    return math.sqrt(1.0 - GAMMA**2) * x + GAMMA * joined


@pytest.mark.parametrize(
    ("block", "formula"),
    [
        ({}, {}),
        ({"key_size": 2}, {"keys": 2}),
        ({"mask": "causal"}, {"mask": np.tri(TOKENS, dtype=bool)}),
        ({"mask": MASK}, {"mask": MASK}),
        ({"heads": 3}, {"heads": 3}),
        ({"heads": 2, "output_projection": True}, {"heads": 2, "projection": True}),
        ({"query_bias": 0.5, "key_bias": 2.0}, {"biases": (0.5, 2.0)}),
    ],
)
def test_attention(block, formula):
    """To 1e-13; one column of keys more or less is further away than 1e-3."""
    x, weights = some_tokens(), Weights()
    attention = ShapedAttention(GAMMA, TAU, **block)
    found = attention.forward(at_depth(attention, 0.0), torch.from_numpy(x), weights).numpy()
    np.testing.assert_allclose(found, written_out(x, weights.kept, **formula), atol=1e-13)
    keys = block.get("key_size", WIDTH // block.get("heads", 1))
    for other in (keys - 1, keys + 1):
        wrong = written_out(x, weights.kept, **formula | {"keys": other})
        assert np.abs(found - wrong).max() > 1e-3


def test_mlp():
    """lambda x + gamma sqrt(c / n) s(x W_pre / sqrt n) W_post with 1 / c = (s_+^2 + s_-^2) / 2."""
    x, weights = some_tokens(), Weights()
    block = ShapedMLP(GAMMA, 0.5, -2.0)
    found = block.forward(at_depth(block, 0.0), torch.from_numpy(x), weights).numpy()
    plus, minus = 1.0 + 0.5 / math.sqrt(WIDTH), 1.0 - 2.0 / math.sqrt(WIDTH)
    before, after = weights.kept
    inner = x @ before / math.sqrt(WIDTH)
    hidden = np.where(inner > 0.0, plus * inner, minus * inner)
    scale = math.sqrt(2.0 / (plus**2 + minus**2) / WIDTH)
    known = math.sqrt(1.0 - GAMMA**2) * x + GAMMA * scale * hidden @ after
    np.testing.assert_allclose(found, known, atol=1e-13)
    linear = math.sqrt(1.0 - GAMMA**2) * x + GAMMA * inner @ after / math.sqrt(WIDTH)
    assert np.abs(found - linear).max() > 1e-1
