"""The blocks with real weights are the formulas of the paper, written out token by token."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from shaped_attention import ShapedAttention, ShapedMLP
from shaped_attention.blocks.parameters import at_depth
from tests.test_attention_variants import MEMBERS

WIDTH, GAMMA = 12, 0.6
MASK = np.eye(4, k=1, dtype=bool) | np.eye(4, dtype=bool)
PLAIN = {
    "plain": {},
    "key size": {"key_size": 2},
    "causal": {"mask": "causal"},
    "mask": {"mask": MASK},
    "heads": {"heads": 4},
    "projection": {"heads": 2, "output_projection": True},
    "biases": {"query_bias": 0.5, "key_bias": 2.0},
}
BLOCKS = MEMBERS | {
    name: (ShapedAttention(GAMMA, 0.3, **options), {"tau0": 0.4}) for name, options in PLAIN.items()
}
"""Blocks, and what their wrong twin changes."""


class Weights:
    """Gaussian matrices, one for each product with tokens, kept in their order."""

    def __init__(self):
        self.generator, self.kept = np.random.default_rng(3), []

    def __call__(self, x, columns, name=None, head=0):
        self.kept.append(self.generator.standard_normal((x.shape[-1], columns)))
        return x @ torch.from_numpy(self.kept[-1])


def rotated(x, block, size):
    """Multiply each pair of columns by a factor and e^(i a theta), as complex numbers."""
    turning = round(block.rope.share * size)
    longest = block.rope.original_max_position_embeddings or len(x)
    angles = block.rope.turning if len(x) <= longest else block.rope.long_angles
    if isinstance(angles, float):
        angles = [angles ** (-2.0 * j / turning) for j in range(turning // 2)]
    angles = np.repeat(angles, turning // 2 // len(angles))
    z = x[:, : turning // 2] + 1j * x[:, turning // 2 : turning]
    z = block.rope.attention_factor * z * np.exp(1j * np.outer(np.arange(len(x)), angles))
    return np.concatenate([z.real, z.imag, x[:, turning:]], axis=1)


def written_out(block, x, weights):
    """lambda x + gamma [A_h x W_V] W_O, entry by entry, from the definition of each variant."""
    (m, n), heads = x.shape, block.heads
    size = block.head_size or n // heads
    keys = block.key_size or size
    share = heads // (block.kv_heads or heads)
    weights = iter(weights)
    sides, values = ([], []), []
    for h in range(heads):
        for side, variance in zip(sides, (block.query_bias, block.key_bias), strict=True):
            if side is sides[1] and h % share:
                continue
            rows = x @ next(weights) / math.sqrt(n)
            side.append(rows + math.sqrt(variance) * next(weights) if variance else rows)
        if h % share == 0:
            values.append(x @ next(weights) / math.sqrt(n))
    for side in sides:
        squares = [(rows**2).mean(1, keepdims=True) for rows in side]
        if block.qk_norm and block.qk_norm.over == "all":
            squares = [np.mean(squares, axis=0)] * len(side)
        for h, rows in enumerate(side):
            if block.qk_norm:
                side[h] = rows / np.sqrt(squares[h] + block.qk_norm.eps)
            if block.rope is not None:
                side[h] = rotated(side[h], block, size)
    scale = block.tau0 * math.sqrt((n if block.scaled_temperature else 1) * keys)
    mask = np.ones((m, m), dtype=bool)
    if block.mask is not None:
        mask = np.tri(m, dtype=bool) if block.mask == "causal" else np.array(block.mask)
    branch = []
    for h in range(heads):
        logits = sides[0][h] @ sides[1][h // share].T / scale
        if block.softcap:
            logits = block.softcap * np.tanh(logits / block.softcap)
        bias = np.zeros((m, m)) if block.position_bias is None else np.array(block.position_bias)
        bias = bias[h] if bias.ndim == 3 else bias
        seen, w = np.exp(logits + bias) * mask, np.exp(bias) * mask
        matrix = seen / seen.sum(1, keepdims=True)
        matrix = matrix - w / w.sum(1, keepdims=True) if block.centring else matrix
        branch.append((matrix + np.eye(m) if block.identity else matrix) @ values[h // share])
    mixed = np.concatenate(branch, axis=1)
    if block.output_projection:
        mixed = mixed @ next(weights) / math.sqrt(heads * size)
    return math.sqrt(1.0 - block.gamma**2) * x + block.gamma * mixed


@pytest.mark.parametrize("name", BLOCKS)
def test_attention(name):
    """To 1e-13; the wrong twin is further away than 1e-3."""
    (block, change), weights = BLOCKS[name], Weights()
    x = np.random.default_rng(4).standard_normal((4, 12 if "size" in name else 16))
    found = block.forward(at_depth(block, 0.0), torch.from_numpy(x), weights).numpy()
    np.testing.assert_allclose(found, written_out(block, x, weights.kept), atol=1e-13)
    if name not in ("groups", "one group", "head size", "rope, biases"):
        wrong = written_out(replace(block, **change), x, weights.kept)
        assert np.abs(found - wrong).max() > 1e-3


def test_mlp():
    """lambda x + gamma sqrt(c / n) s(x W_pre / sqrt n) W_post with 1 / c = (s_+^2 + s_-^2) / 2."""
    x, weights = np.random.default_rng(4).standard_normal((3, WIDTH)), Weights()
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
