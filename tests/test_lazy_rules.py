"""Reverse mode on rows, against torch on the same matrices, which are then revealed whole."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention import lazy
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.lazy.weights import Weights
from shaped_attention.rows import tape as tapes
from shaped_attention.rows.rows import Rows
from shaped_attention.rows.sources import Source
from shaped_attention.rows.spaces import Frame
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
        a, b = w.matrix._spaces
        eye(b)
        columns = w.of(eye(a) @ w.matrix).coordinates
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
    monkeypatch.setattr("shaped_attention.rows.rows.give", lambda plain, gradient: None)
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
def test_a_plain_matrix_may_enter_the_loss_and_multiply_rows():
    start = torch.tensor(np.random.default_rng(1).standard_normal((1, 3, 5)))

    def value(x):
        a = torch.softmax(x @ x.mT, -1)
        y = a @ x
        return (a**2).sum() + ((y @ x.mT) ** 3).sum()

    x = lazy.Space(5, 1, explicit=True).rows(start).requires_grad_()
    with lazy.Tape() as tape:
        loss = value(x)
    tape.backward(loss)
    dense = start.clone().requires_grad_()
    value(dense).backward()
    assert torch.allclose(tape.gradient(x).entries(), dense.grad, rtol=1e-10)


@pytest.mark.quick
def test_nothing_is_noted_without_a_tape():
    space = lazy.Space(5)
    x = space.normal(2)
    assert not (x @ x.mT).requires_grad
    assert tapes.recording() is None
    with lazy.Tape() as tape:
        assert not (x @ x.mT).requires_grad  # nothing asks for a gradient
        y = x @ x.mT
    with pytest.raises(ValueError, match="loss depends on nothing that the tape recorded"):
        tape.backward(y.sum((1, 2)))
    assert tape.gradient(x) is None


@pytest.mark.quick
def test_a_tape_goes_back_once_and_for_its_own_loss():
    x = lazy.Space(5).normal(2).requires_grad_()
    with lazy.Tape() as tape:
        loss = x.squares().sum((1, 2))
    with lazy.Tape() as other:
        x.squares()
    with pytest.raises(ValueError, match="loss depends on nothing that the tape recorded"):
        other.backward(loss)
    with lazy.Tape() as tape:
        loss = x.squares().sum((1, 2))
    with pytest.raises(ValueError, match=r"loss must be a tensor \(1,\) computed .* Rows"):
        tape.backward(x)
    for _ in range(2):
        tape.backward(loss, keep=True)
        assert torch.allclose(tape.gradient(x).coordinates, 2.0 * x.coordinates)
    tape.backward(loss)
    with pytest.raises(ValueError, match="only once on a tape"):
        tape.backward(loss)


FORMS = {
    "matmul": (lambda x, y: torch.matmul(x, y.mT), lambda x, y: x @ y.mT),
    "keywords": (lambda x, y: torch.add(input=x, other=y, alpha=2.0), lambda x, y: x + 2.0 * y),
    "sub": (lambda x, y: torch.sub(x, y), lambda x, y: x - y),
    "mul": (lambda x, y: torch.mul(2.0, other=x), lambda x, y: 2.0 * x),
    "div": (lambda x, y: torch.div(x, 4.0), lambda x, y: x / 4.0),
    "neg": (lambda x, y: torch.neg(x), lambda x, y: -x),
    "below": (lambda x, y: torch.cat([x, y], 1), lambda x, y: torch.cat([x, y], 1)),
    "slice": (lambda x, y: x[:, 1:], lambda x, y: x[:, 1:]),
    "list": (lambda x, y: x[:, [2, 0]], lambda x, y: x[:, [2, 0]]),
    "array": (lambda x, y: np.eye(3)[:2] @ x, lambda x, y: x[:, :2]),
}


@pytest.mark.quick
@pytest.mark.parametrize("name", FORMS)
def test_functions_of_torch_are_operators_of_rows(name):
    """Values and gradients, with a frame that stays as small as it is."""
    ours, theirs = FORMS[name]
    space = lazy.Space(10**9, samples=2)
    x, y = (space.normal(3).requires_grad_() for _ in range(2))
    dense = [space.padded(z.coordinates).clone().requires_grad_() for z in (x, y)]
    with lazy.Tape() as tape:
        result = ours(x, y)
        loss = (result if isinstance(result, torch.Tensor) else result.squares()).sum((1, 2))
    tape.backward(loss)
    expected = theirs(*dense)
    value = result if isinstance(result, torch.Tensor) else result.coordinates
    assert torch.allclose(value, expected)
    assert space.size == 6
    assert not space.explicit
    (expected if name == "matmul" else expected**2).sum().backward()
    for z, leaf in zip((x, y), dense, strict=True):
        gradient = tape.gradient(z)
        if leaf.grad is not None:
            assert torch.allclose(gradient.coordinates, leaf.grad)
        else:
            assert gradient is None


@pytest.mark.quick
def test_a_tensor_beside_rows_gets_its_gradient():
    """As the matrix of a product, and as a parameter of an activation."""
    x = lazy.Space(4, samples=2, explicit=True).normal(3)
    matrix = torch.randn(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    matrix.requires_grad_()
    with lazy.Tape() as tape:
        loss = torch.tanh(x @ matrix).squares().sum((1, 2))
    tape.backward(loss)
    ours, matrix.grad = matrix.grad, None
    torch.tanh(x.entries() @ matrix).square().sum().backward()
    assert torch.allclose(ours, matrix.grad)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, w: torch.stack([x, x]), r"torch.cat\(\[x, y\], dim=1\) puts them below"),
        (lambda x, w: torch.cat([x, x]), "below each other, dim=1; got dim=0"),
        (
            lambda x, w: torch.cat([x, torch.ones(9)], 1),
            "joined with rows only; got tensor",
        ),
        (lambda x, w: x @ x, r"x @ W, x @ W.T\), by the transpose of rows"),
        (lambda x, w: w @ x, "a Matrix W multiplies them as x @ W"),
        (lambda x, w: torch.matmul(w, x), "a Matrix W multiplies them as x @ W"),
        (
            lambda x, w: torch.ones(2, 8) @ x,
            r"mixes 3 rows must have 3 columns; got",
        ),
        (lambda x, w: x[0], r"rows are selected by x\[:, 1:3\]"),
        (lambda x, w: x.squares() @ w, "matmul needs rows: a Matrix multiplies rows only, x @ W;"),
        (lambda x, w: torch.cat([w, w]), "cat needs rows: a Matrix multiplies rows only"),
        (lambda x, w: torch.linalg.multi_dot([x, x]), "does not take rows in this form"),
        (lambda x, w: x.space.normal(0), "rows must be an integer >= 1; got 0"),
        (lambda x, w: x.space.rows(torch.zeros(0, 2)), r"coordinates must be \(r, c\) or"),
    ],
)
def test_what_rows_cannot_do_is_said_in_a_sentence(call, message):
    space = lazy.Space(8, samples=2)
    with pytest.raises(ValueError, match=message):
        call(space.normal(3), lazy.Matrix(space, space))


def test_a_loss_has_a_number_for_each_sample():
    """A mean over samples would divide their gradients by their number."""
    space = lazy.Space(8, samples=3)
    w = lazy.Matrix(space, space)
    with lazy.Tape() as tape:
        loss = (space.normal(2) @ w).squares().sum((1, 2))
    for wrong in (loss.mean(), loss[:2], loss[:, None]):
        with pytest.raises(ValueError, match=r"loss must be a tensor \(3,\) computed in torch"):
            tape.backward(wrong)
    tape.backward(loss)
    assert (w.gradient_norm() > 0.0).all()


def test_methods_of_tensors_are_named():
    x = lazy.Space(8, samples=2).normal(3)
    with pytest.raises(AttributeError, match=r"rows have no sum, .* x.entries\(\).sum"):
        x.sum()
    with pytest.raises(
        AttributeError,
        match=r"draws them all; for a function of single entries call torch.relu\(x\)$",
    ):
        x.relu()
    with pytest.raises(AttributeError, match="no attribute 'summe'"):
        x.summe()


def test_reductions_are_refused():
    x = lazy.Space(8, samples=2).normal(3)
    with pytest.raises(ValueError, match=r"must return rows .* got shape \(2, 3\)"):
        torch.sum(x, -1)


def test_entries_of_a_space_beyond_memory_are_refused():
    x = lazy.Space(10**9, samples=4).normal(2)
    with pytest.raises(ValueError, match=r"makes all 1000000000 columns explicit"):
        torch.relu(x)
