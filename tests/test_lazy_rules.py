"""Reverse mode on rows, against torch on the same matrices, which are then revealed whole."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention import lazy
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.lazy import tape as tapes
from shaped_attention.lazy.networks import Weights
from shaped_attention.lazy.rows import Rows
from shaped_attention.lazy.sources import Source
from shaped_attention.lazy.spaces import Frame
from tests.explicit_networks import projection

PLAIN = {"centring": False, "identity": False, "scaled_temperature": False}
TOKENS = torch.tensor(np.random.default_rng(0).standard_normal((4, 8)))
TOKENS[1] = TOKENS[0]
BLOCKS = {
    "attention": sa.ShapedAttention(0.5, tau0=0.3),
    "heads": sa.ShapedAttention(0.5, tau0=0.3, heads=2, mask="causal", output_projection=True),
    "biases": sa.ShapedAttention(0.5, query_bias=0.5, key_bias=0.3, **PLAIN),
    "shared keys, rope": sa.ShapedAttention(
        0.5, heads=4, kv_heads=2, head_size=4, rope=10.0, output_projection=True, **PLAIN
    ),
    "qk-norm": sa.ShapedAttention(
        0.5, heads=2, head_size=4, qk_norm=True, output_projection=True, **PLAIN
    ),
    "qk-norm over all, rope": sa.ShapedAttention(
        0.5, heads=2, head_size=4, qk_norm="all", rope=10.0, output_projection=True,
        softcap=2.0, position_bias="alibi", **PLAIN
    ),
    "relu": sa.ShapedMLP(0.5),
    "gelu": sa.ShapedMLP(0.5, activation="gelu", hidden=10),
    "shaped tanh": sa.ShapedMLP(0.5, activation="tanh", scale=1.0),
    "gated": sa.ShapedMLP(0.5, activation="silu", gated=True, hidden=6),
    "rms": sa.Normalised(sa.ShapedMLP(0.5, activation="gelu", hidden=6)),
    "layer after": sa.Normalised(sa.ShapedAttention(0.5), place="after", norm="layer", eps=1e-5),
    "sandwich": sa.Normalised(
        sa.ShapedAttention(0.5, output_projection=True), place="sandwich", norm="layer", eps=1e-2
    ),
    "parallel": sa.Parallel(sa.ShapedAttention(0.4), sa.ShapedMLP(0.5)),
}  # fmt: skip


def eye(space):
    """The frame of a space, which becomes complete: all rows of the identity."""
    for part in space:
        if part.size < part.n:
            part.grow(part.n - part.size)
    whole = torch.eye(space.n, dtype=torch.float64).expand(2, -1, -1)
    return Rows(space, torch.split(whole, [part.n for part in space], dim=-1))


def lazy_and_dense(block, quantity=lambda y: (y.squares() ** 2).sum((1, 2)), name="0.0"):
    """Gradients by the tape, and by torch with the same matrices."""
    source = Source(2, 7)
    space = Frame(8, source, explicit=True)
    x = Rows(space, (TOKENS.expand(2, -1, -1),)).requires_grad_()
    weights = Weights(source)
    p = at_depth(block, 0.0)
    with lazy.Tape() as tape:
        y = block.forward(p, x, weights.block(name))
        loss = quantity(y)
    tape.backward(loss)
    ours = {key: w.gradient() for key, w in weights.items() if w.gradient() is not None}
    whole = {}
    for key, w in weights.items():
        a, b = w._spaces
        eye(b)
        columns = (eye(a) @ w).coordinates
        whole[key] = columns.clone().requires_grad_()
    tokens = TOKENS.expand(2, -1, -1).clone().requires_grad_()
    after = block.forward(p, tokens, projection(lambda key, *_: whole[key], name))
    assert torch.allclose(after, y.entries(), atol=1e-10)
    (after.pow(2).sum(-1, keepdim=True) ** 2).sum().backward()
    dense = {key: f.left.coordinates.mT @ f.right.coordinates for key, f in ours.items()}
    dense["tokens"] = tape.gradient(x).entries()
    return dense, {key: w.grad for key, w in whole.items()} | {"tokens": tokens.grad}


@pytest.mark.quick
@pytest.mark.parametrize("name", BLOCKS)
def test_gradients_are_those_of_torch(name):
    """Of every weight and of the tokens, two of which are equal."""
    ours, theirs = lazy_and_dense(BLOCKS[name])
    assert set(ours) == set(theirs)
    for key, gradient in theirs.items():
        scale = max(float(x.abs().max()) for x in theirs.values())
        assert float((ours[key] - gradient).abs().max()) <= 1e-10 * scale, key


def test_a_missing_rule_is_noticed(monkeypatch):
    """The control: the gradient of plain matrices, such as scores, is dropped."""
    monkeypatch.setattr("shaped_attention.lazy.rows.give", lambda plain, gradient: None)
    ours, theirs = lazy_and_dense(BLOCKS["attention"])
    assert float((ours["tokens"] - theirs["tokens"]).abs().max()) > 1e-3


@pytest.mark.quick
def test_rules_against_difference_quotients():
    """Sums, differences, broadcast rows, row scales, means, powers and quotients of entries."""
    space = lazy.Space(5, 1, explicit=True)
    start = torch.tensor(np.random.default_rng(1).standard_normal((1, 3, 5)))

    def value(x):
        row = torch.full((1, 1, 3), 0.5, dtype=torch.float64) @ x
        s = x.squares()
        y = 2.0 * x - row / 3.0 + (-x) * s - (x - x.mean()) * 0.1 + 0.5 + x * s.mean(1, True)
        z = 1.0 / (x * x + 2.0) + torch.tanh(y) ** 2 + y / (x**2 + 1.0)
        w = torch.cat([z, y], dim=-1)
        m = torch.softmax(x @ y.mT, -1) @ z
        return (w.squares() + m.squares() + (m @ x.mT).sum(-1, True) + m.entries()[..., :1]).sum()

    x = space.rows(start).requires_grad_()
    with lazy.Tape() as tape:
        loss = value(x)
    tape.backward(loss)
    gradient = tape.gradient(x).entries()
    quotient = torch.zeros_like(start)
    for i in range(3):
        for j in range(5):
            up, down = start.clone(), start.clone()
            up[0, i, j] += 1e-6
            down[0, i, j] -= 1e-6
            quotient[0, i, j] = (value(space.rows(up)) - value(space.rows(down))) / 2e-6
    assert torch.allclose(gradient, quotient, rtol=1e-6, atol=1e-6 * float(quotient.abs().max()))


@pytest.mark.quick
def test_nothing_is_noted_without_a_tape():
    space = lazy.Space(5)
    x = space.normal(2)
    assert not (x @ x.mT).requires_grad
    assert tapes.recording() is None
    with lazy.Tape() as tape:
        assert not (x @ x.mT).requires_grad  # nothing asks for a gradient
    tape.backward(torch.zeros(1))
    assert tape.gradient(x) is None


def test_reductions_are_refused():
    x = lazy.Space(8, samples=2).normal(3)
    with pytest.raises(ValueError, match=r"must return rows .* got shape \(2, 3\)"):
        torch.sum(x, -1)


def test_entries_of_a_space_beyond_memory_are_refused():
    x = lazy.Space(10**9, samples=4).normal(2)
    with pytest.raises(ValueError, match=r"makes all 1000000000 columns explicit"):
        torch.relu(x)
