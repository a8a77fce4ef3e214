"""Gradients of lazily revealed networks: those of torch on the same matrices, revealed whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import shaped_attention as sa
from shaped_attention import lazy
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.lazy.weights import Weights
from shaped_attention.rows.coordinates import inner
from shaped_attention.rows.rows import Rows
from shaped_attention.rows.sources import Source
from shaped_attention.rows.spaces import Frame
from tests.explicit_networks import projection
from tests.refusals import refused

pytestmark = pytest.mark.quick

PLAIN: dict[str, Any] = {"centring": False, "identity": False, "scaled_temperature": False}
TOKENS = torch.tensor(np.random.default_rng(0).standard_normal((4, 8)))
TOKENS[1] = TOKENS[0]
BLOCKS: dict[str, Any] = {
    "attention": sa.ShapedAttention(0.5, tau0=0.3),
    "biases": sa.ShapedAttention(0.5, query_bias=0.5, key_bias=0.3, **PLAIN),
    "shared keys, rope": sa.ShapedAttention(
        0.5, heads=4, kv_heads=2, head_size=4, rope=10.0, mask="causal", output_projection=True,
        **PLAIN,
    ),
    "qk-norm": sa.ShapedAttention(
        0.5, heads=2, head_size=4, qk_norm=True, output_projection=True, **PLAIN
    ),
    "qk-norm over all, rope": sa.ShapedAttention(
        0.5, heads=2, head_size=4, qk_norm="all", rope=10.0, output_projection=True,
        softcap=2.0, position_bias="alibi", **PLAIN
    ),
    "relu": sa.ShapedMLP(0.5),
    "gated": sa.ShapedMLP(0.5, activation="silu", gated=True, hidden=6),
    "rms": sa.Normalised(sa.ShapedMLP(0.5, activation="gelu", hidden=10)),
    "layer after": sa.Normalised(sa.ShapedAttention(0.5), place="after", norm="layer", eps=1e-5),
    "sandwich": sa.Normalised(
        sa.ShapedAttention(0.5, output_projection=True), place="sandwich", norm="layer", eps=1e-2
    ),
    "parallel": sa.Parallel(sa.ShapedAttention(0.4), sa.ShapedMLP(0.5)),
}  # fmt: skip


def eye(space: Any) -> Rows:
    """The frame of a space, which becomes complete: all rows of the identity."""
    for part in space:
        if part.size < part.n:
            part.grow(part.n - part.size)
    whole = torch.eye(space.n, dtype=torch.float64).expand(2, -1, -1)
    return Rows(space, torch.split(whole, [part.n for part in space], dim=-1))


def lazy_and_dense(block: Any) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Gradients by the tape, and by torch with the same matrices."""
    source = Source(2, 7)
    x = Rows(Frame(8, source, explicit=True), (TOKENS.expand(2, -1, -1),)).requires_grad_()
    weights, p = Weights(source), at_depth(block, 0.0)
    with lazy.Tape() as tape:
        y = block.forward(p, x, weights.block("0.0"))
        loss = (y.squares() ** 2).sum((1, 2))
    tape.backward(loss)
    ours = {key: w.gradient() for key, w in weights.items() if w.gradient() is not None}
    whole = {}
    for key, w in weights.items():
        a, b = w.matrix._spaces
        eye(b)
        columns = w.of(eye(a) @ w.matrix).coordinates
        whole[key] = columns.clone().requires_grad_()
    tokens = TOKENS.expand(2, -1, -1).clone().requires_grad_()
    after = block.forward(p, tokens, projection(lambda key, *_: whole[key], "0.0"))
    assert torch.allclose(after, y.entries(), atol=1e-10)
    (after.pow(2).sum(-1, keepdim=True) ** 2).sum().backward()
    dense = {key: f.left.coordinates.mT @ f.right.coordinates for key, f in ours.items()}
    dense["tokens"] = tape.gradient(x).entries()
    return dense, {key: w.grad for key, w in whole.items()} | {"tokens": tokens.grad}


@pytest.mark.parametrize("name", BLOCKS)
def test_gradients_are_those_of_torch(name: str) -> None:
    """Gradients of every weight and of the tokens; two tokens are equal."""
    ours, theirs = lazy_and_dense(BLOCKS[name])
    assert set(ours) == set(theirs)
    scale = max(float(x.abs().max()) for x in theirs.values())
    for key, gradient in theirs.items():
        assert float((ours[key] - gradient).abs().max()) <= 1e-10 * scale, key


def test_a_missing_rule_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the gradient of plain matrices, such as scores, is dropped."""
    monkeypatch.setattr("shaped_attention.rows.rows.give", lambda plain, gradient: None)
    ours, theirs = lazy_and_dense(BLOCKS["attention"])
    assert float((ours["tokens"] - theirs["tokens"]).abs().max()) > 1e-3


def test_rules_against_difference_quotients() -> None:
    """Sums, differences, broadcast rows, row scales, means, powers and quotients of entries."""
    space = lazy.Space(5, 1, explicit=True)
    start = torch.tensor(np.random.default_rng(1).standard_normal((1, 3, 5)))

    def value(x: Any) -> Any:
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
    for i, j in np.ndindex(3, 5):
        up, down = start.clone(), start.clone()
        up[0, i, j] += 1e-6
        down[0, i, j] -= 1e-6
        quotient[0, i, j] = (value(space.rows(up)) - value(space.rows(down))) / 2e-6
    assert torch.allclose(gradient, quotient, rtol=1e-6, atol=1e-6 * float(quotient.abs().max()))


FORMS: dict[str, Any] = {
    "matmul": (lambda x, y: torch.matmul(x, y.mT), lambda x, y: x @ y.mT),
    "keywords": (lambda x, y: torch.add(input=x, other=y, alpha=2.0), lambda x, y: x + 2.0 * y),
    "below": (lambda x, y: torch.cat([x, y], 1), lambda x, y: torch.cat([x, y], 1)),
    "list": (lambda x, y: x[:, [2, 0]], lambda x, y: x[:, [2, 0]]),
    "array": (lambda x, y: np.eye(3)[:2] @ x, lambda x, y: x[:, :2]),
}


@pytest.mark.parametrize("name", FORMS)
def test_functions_of_torch_are_operators_of_rows(name: str) -> None:
    """Values and gradients, with a frame that stays as small as it is."""
    ours, theirs = FORMS[name]
    space = lazy.Space(10**9, samples=2)
    x, y = (space.normal(3).requires_grad_() for _ in range(2))
    dense = [space.padded(z.coordinates).clone().requires_grad_() for z in (x, y)]
    with lazy.Tape() as tape:
        result = ours(x, y)
        loss = (result if isinstance(result, Tensor) else result.squares()).sum((1, 2))
    tape.backward(loss)
    expected = theirs(*dense)
    assert torch.allclose(result if isinstance(result, Tensor) else result.coordinates, expected)
    assert space.size == 6
    (expected if name == "matmul" else expected**2).sum().backward()
    for z, leaf in zip((x, y), dense, strict=True):
        gradient = tape.gradient(z)
        if leaf.grad is not None:
            assert torch.allclose(gradient.coordinates, leaf.grad)
        else:
            assert gradient is None


def test_tensors_get_their_gradient_too() -> None:
    """As the matrix of a product, and as a gain and a bias of entries."""
    x = lazy.Space(4, samples=2, explicit=True).normal(3)
    generator = torch.Generator().manual_seed(0)
    leaves = [
        torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()
        for shape in ((4, 5), (4,), (4,))
    ]

    def value(x: Any) -> Any:
        matrix, gain, bias = leaves
        return torch.tanh((x * gain + bias) @ matrix)

    with lazy.Tape() as tape:
        loss = value(x).squares().sum((1, 2))
    tape.backward(loss)
    expected = torch.autograd.grad(value(x.entries()).square().sum(), leaves)
    for leaf, gradient in zip(leaves, expected, strict=True):
        torch.testing.assert_close(leaf.grad, gradient)


def test_transposed_jacobians_in_a_wide_space() -> None:
    """<J^T g, t> by a difference quotient, in a space that only some rows span."""
    attention = sa.ShapedAttention(0.5, heads=2, head_size=8, output_projection=True)
    both = [sa.Normalised(attention, norm="layer"), sa.ShapedMLP(0.5, activation="gelu", hidden=16)]
    space, layers = lazy.Space(10**6, samples=3, seed=2), lazy.Layers(both, depth=2)
    x, t, g = (space.normal(3) for _ in range(3))
    _, pull = lazy.vjp(layers, x)
    step, scale = 1e-4, space.n**0.5
    quotient = (layers(x + step * t) - layers(x - step * t)) * (0.5 / step)

    def dots(x: Any, y: Any) -> Tensor:
        products: Tensor = inner(x, y).diagonal(dim1=1, dim2=2).sum(-1) / scale
        return products

    torch.testing.assert_close(dots(pull(g), t), dots(g, quotient), rtol=1e-5, atol=1e-5)
    # A second time from the same record.
    torch.testing.assert_close(dots(pull(g), t), dots(pull(g), t), rtol=1e-9, atol=1e-9)
    assert space.size < 400


def test_a_tape_goes_back_once_unless_it_is_kept() -> None:
    x = lazy.Space(5, samples=3).normal(2).requires_grad_()
    with lazy.Tape() as tape:
        loss = x.squares().sum((1, 2))
    with pytest.raises(ValueError, match=r"loss must be a tensor \(3,\) computed in torch"):
        tape.backward(loss.mean())
    for keep in (True, False):
        tape.backward(loss, keep=keep)
        assert torch.allclose(tape.gradient(x).coordinates, 2.0 * x.coordinates)
    with pytest.raises(ValueError, match="only once on a tape"):
        tape.backward(loss)
    with lazy.Tape() as other:
        x.squares()
    with pytest.raises(ValueError, match="loss depends on nothing that the tape recorded"):
        other.backward(loss)


SPACE = lazy.Space(8, samples=2)
X, W = SPACE.normal(3), lazy.Matrix(SPACE, SPACE)
HUGE = lazy.Space(10**9, samples=4).normal(2)


test_what_rows_cannot_do_is_said_in_a_sentence = refused(
    (lambda: torch.stack([X, X]), r"torch.cat\(\[x, y\], dim=1\) puts them below"),
    (lambda: X @ X, r"x @ W, x @ W.T\), by the transpose of rows"),
    (lambda: X[0], r"rows are selected by x\[:, 1:3\]"),
    (lambda: torch.gt(X, 0.0), "must return numbers; one that compares or sorts"),
    (lambda: torch.relu(HUGE), r"makes all 1000000000 columns explicit"),
    (lambda: X + SPACE.beside(8).normal(3), "rows of different spaces, with 8 and 8 columns"),
    (lambda: X + torch.ones(1, 1, 8), "only rows, or one number per row, can be added"),
    (lambda: lazy.Matrix(SPACE, HUGE.space), "the same number of samples, seed, dtype and device"),
    (lambda: lazy.vjp("x", X), "function must be a function of rows; got 'x'"),  # type: ignore[arg-type]
)
