"""Limits that are derived from the text of a branch.

The oracle is a closed form in sums over indices (`tests.closed_forms`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import shaped_attention as sa
from figures.blocks.attentions import (
    Differential,
    Latent,
    TalkingHeads,
)
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.theory.moments import moments, unit_noise
from tests import closed_forms

ATTENTION = {
    "plain": {},
    "causal": {"mask": "causal"},
    "window": {"mask": "causal:2"},
    "heads": {"heads": 4},
    "output projection": {"heads": 4, "output_projection": True, "mask": "causal"},
    "biases": {"query_bias": 0.5, "key_bias": 0.3},
    "biases, causal": {"query_bias": 0.5, "key_bias": 0.3, "mask": "causal"},
    "shared keys": {"heads": 4, "output_projection": True, "kv_heads": 2},
    "fixed keys": {"key_size": 16},
    "fixed heads": {
        "heads": 2, "head_size": 8, "output_projection": True, "value_ratio": 1.5, "kv_heads": 1,
    },
    "softcap": {"softcap": 3.0},
    "position bias": {"position_bias": "alibi"},
    "qk-norm": {"qk_norm": True},
    "qk-norm with eps": {"qk_norm": sa.QKNorm(eps=0.3)},
    "qk-norm over all": {"heads": 2, "output_projection": True, "qk_norm": "all"},
    "qk-norm over 8": {"key_size": 8, "qk_norm": True},
    "rope": {"key_size": 8, "rope": 100.0, "mask": "causal"},
    "rope, many columns": {"rope": (0.3, 0.8)},
    "rope, half": {"rope": sa.Rope(angles=(0.3, 0.8), share=0.5)},
    "rope, biases": {"key_size": 8, "rope": 100.0, "query_bias": 0.5, "key_bias": 0.3},
    "skip": {"skip": 0.8},
}  # fmt: skip

BLOCKS: dict[str, sa.Block] = {
    **{name: sa.ShapedAttention(0.6, 0.7, **options) for name, options in ATTENTION.items()},
    "relu": sa.ShapedMLP(0.6, 0.4, -1.1),
    "relu, wide": sa.ShapedMLP(0.6, 0.4, -1.1, hidden_ratio=4.0),
    "tanh": sa.ShapedMLP(0.6, activation="tanh", scale=1.5),
    "gelu": sa.ShapedMLP(0.6, activation="gelu", scale=1.5),
    "gated": sa.ShapedMLP(0.6, activation="silu", scale=1.5, gated=True, gate_bias=0.3),
    "parallel": sa.Parallel(sa.ShapedAttention(0.4, 0.7), sa.ShapedMLP(0.5)),
}  # fmt: skip


def random_covariance(tokens: int, generator: np.random.Generator) -> torch.Tensor:
    """Return V (1, m, m)."""
    x = generator.normal(size=(tokens, tokens + 1))
    return torch.tensor(x @ x.T / tokens + 0.1 * np.eye(tokens))[None]


def assert_equal(ours: Any, theirs: Any) -> None:
    """Compare two results; None is 0."""
    if ours is None or theirs is None:
        other = theirs if ours is None else ours
        assert other is None or float(torch.as_tensor(other).abs().max()) < 1e-10
        return
    scale = float(torch.as_tensor(theirs).abs().max())
    torch.testing.assert_close(ours, theirs, rtol=0.0, atol=1e-10 * max(1.0, scale))


def closed_form(block: sa.Block, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return drift and diffusion; the diffusion of parallel branches has a cross term."""
    if isinstance(block, sa.ShapedAttention):
        return closed_forms.attention(block, v)
    if isinstance(block, sa.ShapedMLP):
        return closed_forms.mlp(block, v)
    assert isinstance(block, sa.Parallel)
    parts = [closed_form(x, v) for x in block.blocks]
    cross = 2.0 * math.prod(x.gamma**2 for x in block.blocks)
    diffusion = sum(x for _, x in parts) - cross * closed_forms.linear(v)
    return sum(x for x, _ in parts), diffusion


@pytest.mark.parametrize("tokens", [1, 2, 4])
@pytest.mark.parametrize("name", BLOCKS)
def test_drift_and_diffusion_are_the_closed_forms(name, tokens):
    """To 1e-10, for random covariances; to 1e-4 with the series of the mean cosine at d = 8."""
    block, v = BLOCKS[name], random_covariance(tokens, np.random.default_rng(tokens))
    ours = moments([(block.limit, at_depth(block, 0.0), 1.0)], v, diffusion=True)
    drift, diffusion = closed_form(block, v[0].numpy())
    assert_equal(ours.drift[0], torch.tensor(drift))
    assert_equal(ours.diffusion[0], torch.tensor(diffusion))


NOISY = {
    x: BLOCKS[x] for x in ("plain", "causal", "biases", "rope", "qk-norm over 8", "tanh")
} | {
    "differential": Differential(0.5, 0.7), "talking heads": TalkingHeads(0.5, 0.7),
    "latent": Latent(0.5, 0.7),
}  # fmt: skip


@pytest.mark.parametrize("name", NOISY)
def test_what_the_clock_and_norms_need_is_the_sum_over_increments(name):
    """The rates of the noise, and its second order by differences along each increment."""
    block = NOISY[name]
    limit, p = block.limit, at_depth(block, 0.0)
    generator = np.random.default_rng(3)
    v = random_covariance(3, generator)
    factor = torch.linalg.cholesky(v) + 0.2
    direction = torch.tensor(generator.normal(size=(1, 3, 3)))
    direction = direction + direction.mT
    along, second, rates, eps = 0.0, torch.zeros_like(factor), 0.0, 1e-5
    root = torch.linalg.cholesky(v)
    of_root = unit_noise(limit, p, root)
    for k, noise in enumerate(unit_noise(limit, p, factor) if of_root is not None else ()):
        along = along + 4.0 * (direction @ factor * noise).sum() ** 2
        moved = [unit_noise(limit, p, factor + e * noise)[k] for e in (eps, -eps)]
        second = second + (moved[0] - moved[1]) / (2.0 * eps)
        kick = 2.0 * (of_root[k] * root).sum(-1)
        rates = rates + kick[..., :, None] * kick[..., None, :]
    if block is BLOCKS["tanh"]:
        assert limit.noise_along(p, factor, direction) is None
        return
    assert_equal(limit.noise_along(p, factor, direction).squeeze(), along)
    assert_equal(limit.variance_noise(p, v), rates)
    ours = limit.noise_drift(p, factor)
    if ours is None:
        assert block is BLOCKS["qk-norm over 8"]
    else:
        torch.testing.assert_close(ours, second, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", BLOCKS)
def test_the_rate_of_weights(name):
    """gamma^2 for each product on the path of the tokens."""
    block = BLOCKS[name]
    depth = 1.0 + getattr(block, "output_projection", not isinstance(block, sa.ShapedAttention))
    expected = depth * block.gamma**2 if name != "parallel" else 0.4**2 + 2.0 * 0.5**2
    assert block.limit.weight_rate(at_depth(block, 0.0)) == pytest.approx(expected, rel=1e-12)
