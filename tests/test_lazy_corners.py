"""Lazily revealed weights where something is nearly dependent, broadcast, or used in two places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import shaped_attention as sa
from shaped_attention import lazy
from shaped_attention.lazy import deep
from shaped_attention.numerics.primitives import constant, exp, softmax
from shaped_attention.rows.coordinates import inner

pytestmark = pytest.mark.quick

V0 = sa.equicorrelated(3, 0.2, 1.3)
RUN: dict[str, Any] = {"depth": 2, "progress": False}


@dataclass(frozen=True)
class Linear(sa.Block):
    """A product with a matrix, of tokens or of their positive parts."""

    gamma: float = 0.7
    positive: bool = False

    def branch(self, p: Any, tokens: Any, project: Any) -> Any:
        n = tokens.shape[-1]
        return project(torch.relu(tokens) if self.positive else tokens, n) / n**0.5


@dataclass(frozen=True)
class ProjectedWeights(sa.Block):
    """Attention weights that a matrix takes to the width."""

    gamma: float = 0.7
    limit = "none"

    def branch(self, p: Any, tokens: Any, project: Any) -> Any:
        n = tokens.shape[-1]
        return project(softmax(tokens @ tokens.mT / n, np.ones((3, 3), dtype=bool)), n)


def products(x: Any, y: Any) -> Tensor:
    return inner(x, y).diagonal(dim1=1, dim2=2).sum(1)


@pytest.mark.portability
@pytest.mark.parametrize("n", [8, 1000])
@pytest.mark.parametrize("distance", [1e-2, 1e-4, 1e-6, 1e-9])
def test_rows_that_nearly_depend_on_others(n: int, distance: float) -> None:
    """A difference quotient: the third row is the difference of the others, but for rounding."""
    space = lazy.Space(n, samples=500)
    other = space.beside(n)
    w = lazy.Matrix(space, other, std=n**-0.5)
    z, x, t = (space.normal(3) for _ in range(3))
    _ = (z + x + t) @ w
    rows = torch.cat([x, x + distance * t, t], dim=1)
    first, again = rows @ w, rows @ w
    error = (again - first).squares() / first.squares()
    assert float(error.max()) < 1e-16
    g = other.normal(3)
    torch.testing.assert_close(inner(rows @ w, g), inner(rows, g @ w.T), rtol=0.0, atol=1e-9 * n)


def test_gradients_through_a_projection_of_plain_numbers() -> None:
    space, layers = lazy.Space(1000, samples=2, seed=3), lazy.Layers(ProjectedWeights(), depth=2)
    x, t, c = (space.normal(3) for _ in range(3))
    h = 1e-4
    quotient = (layers(x + h * t) - layers(x - h * t)) * (0.5 / h)
    _, pull = lazy.vjp(layers, x)
    expected = products(quotient, c)
    torch.testing.assert_close(products(t, pull(c)), expected, rtol=1e-5, atol=1e-5)
    norms = [
        sa.gradient_norms(ProjectedWeights(), V0, width=8, samples=samples, of="input", **RUN)
        for samples in (3, 200)
    ]
    few, many = (data.gradient_norm.values for data in norms)
    np.testing.assert_allclose(few, many[:, :3], rtol=1e-9)
    exponents = sa.lyapunov(ProjectedWeights(), V0, width=8, samples=50, **RUN).exponent
    assert float(exponents.std()) > 0.01


def test_a_gradient_below_tokens_whose_entries_were_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """<X_1, G_1> is the same above and below the border to a layer that acts on entries."""
    back, differences = deep.PassedLayer.back, []

    def watched(layer: Any, above: Any, count: int) -> Any:
        down, expected = layer.border.down, inner(layer.border.rows, above)

        def compared(gradient: Any) -> Any:
            below = down(gradient)
            differences.append(float((inner(layer._after, below) - expected).abs().max()))
            return below

        layer.border.down = compared
        return back(layer, above, count)

    monkeypatch.setattr(deep.PassedLayer, "back", watched)
    pattern = sa.Pattern([Linear(), Linear(positive=True)])
    sa.gradient_norms(pattern, V0, width=24, samples=50, loss="quadratic", **RUN)
    assert len(differences) == 2
    assert max(differences) < 1e-12


def test_no_limit_of_the_kernel_for_other_skip_weights() -> None:
    run: dict[str, Any] = {"width": 50, "depth": 1, "samples": 2, "progress": False}
    for skip, known in ((None, True), (1.0, False), (0.5, False)):
        named = {} if skip is None else {"skip": skip}
        data = sa.neural_tangent_kernel(sa.ShapedAttention(0.5, **named), V0, **run)
        assert ("infinite_width_kernel" in data) == known


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_norm_of_an_update_leaves_out_weight_decay(momentum: float) -> None:
    """Without momentum it is lr |g|; with it, the first is, and later ones are not |B| with W."""
    data = sa.simulate_training(
        sa.ShapedAttention(0.5), V0, [0, 1, 0], width=32, depth=1, samples=2, steps=3,
        optimizer=sa.SGD(0.5, momentum, weight_decay=0.2), progress=False,
    )  # fmt: skip
    ratio = (data.update_norm / data.gradient_norm).values
    np.testing.assert_allclose(ratio[0], 0.5, rtol=1e-12)
    assert (np.abs(ratio[1:] - 0.5) < 1e-12).all() == (momentum == 0.0)


def test_a_gain_acts_on_entries() -> None:
    space = lazy.Space(6, samples=2)
    x = space.normal(3).requires_grad_()
    gain = torch.arange(1.0, 7.0, dtype=torch.float64).requires_grad_()
    with lazy.Tape() as tape:
        loss = (x * gain + gain).squares().sum((1, 2))
    tape.backward(loss)
    entries = x.entries().detach().requires_grad_()
    other = gain.detach().clone().requires_grad_()
    (entries * other + other).square().sum().backward()
    torch.testing.assert_close(tape.gradient(x).entries(), entries.grad)
    torch.testing.assert_close(gain.grad, other.grad)


def test_gradients_of_plain_operands_with_names() -> None:
    """torch passes the weights of layer_norm by keyword."""
    x = lazy.Space(8, samples=2).normal(3)
    gain, bias = (torch.ones(8, dtype=torch.float64).requires_grad_() for _ in range(2))
    with lazy.Tape() as tape:
        loss = torch.nn.functional.layer_norm(x, (8,), gain, bias).squares().sum((1, 2))
    tape.backward(loss)
    torch.testing.assert_close(bias.grad.sum(), torch.tensor(96.0, dtype=torch.float64))
    assert float(gain.grad.abs().min()) > 0.0


def test_derivatives_leave_gradients_of_matrices_alone() -> None:
    space = lazy.Space(100, samples=2)
    w, x = lazy.Matrix(space, space, std=0.1), space.normal(2)
    with lazy.Tape() as tape:
        loss = (x @ w).squares().sum((1, 2))
    tape.backward(loss)
    norm = w.gradient_norm()
    layers = lazy.Layers(sa.ShapedAttention(0.5))
    for _ in range(2):
        y, pull = lazy.vjp(lambda z: layers(z @ w), x)
        pull(y)
        assert all(p.gradient() is None for p in layers.parameters.values())
    torch.testing.assert_close(w.gradient_norm(), norm)
    with lazy.Tape(), pytest.raises(ValueError, match="vjp cannot be called inside a Tape, which"):
        lazy.vjp(lambda z: z @ w, x)


def test_two_tapes_have_gradients_of_their_own() -> None:
    x = lazy.Space(100, samples=2).normal(2).requires_grad_()
    with lazy.Tape() as first:
        a = x.squares().sum((1, 2))
    with lazy.Tape() as second:
        b = x.norm().sum((1, 2))
    second.backward(a + b)
    first.backward(a)
    torch.testing.assert_close(first.gradient(x).coordinates, 2.0 * x.coordinates)


@dataclass(frozen=True)
class Constants(sa.Block):
    """Products with constants, which know the rows by any argument, and a sum from 0."""

    gamma: float = 0.7
    limit = "none"

    def branch(self, p: Any, tokens: Any, project: Any) -> Any:
        x = project(tokens, tokens.shape[-1]) / tokens.shape[-1] ** 0.5
        moved = constant(np.eye(3)[[2, 0, 1]], like=tokens) @ x
        return moved + constant(np.full((3, 1), 0.3), tokens) * x + sum([x, x])


def test_constants_of_a_branch() -> None:
    few, many = (
        sa.gradient_norms(Constants(), V0, width=8, samples=samples, **RUN).gradient_norm.values
        for samples in (3, 100)
    )
    np.testing.assert_allclose(few, many[:, :3], rtol=1e-9)
    assert np.isfinite(sa.lyapunov(Constants(), V0, width=8, samples=3, **RUN).exponent).all()


@dataclass(frozen=True)
class Overflowing(sa.Block):
    """The derivative of 1 / (1 + exp(-x)) for very small x: infinity times 0."""

    gamma: float = 0.7
    limit = "none"

    def branch(self, p: Any, tokens: Any, project: Any) -> Any:
        z = project(tokens, 6) / tokens.shape[-1] ** 0.5
        return project(1.0 / (1.0 + exp(-z)), tokens.shape[-1])


def test_gradients_that_are_not_finite_are_an_error() -> None:
    with pytest.raises(FloatingPointError, match=r"gradient of 0\.0\.0 is not finite in some"):
        sa.gradient_norms(Overflowing(), 1e7 * V0, width=8, samples=50, **RUN)


def test_names_of_matrices() -> None:
    """In the order of the parameters; empty if the branch gives none, or needs more than shapes."""
    attention = sa.ShapedAttention(0.5, heads=2, key_size=4, output_projection=True)
    both = sa.Parallel([sa.ShapedMLP(0.3, hidden=8)] * 2)
    layer = [sa.Normalised(attention), both, Linear()]
    data = sa.gradient_norms(layer, V0, width=16, samples=1, of=["weights", "input"], **RUN)
    named = dict(zip(data.parameter.values.tolist(), data.matrix.values.tolist(), strict=True))
    assert [named[f"1.0.{k}"] for k in (0, 4, 5, 6)] == [
        "queries, head 0", "keys, head 1", "values, head 1", "output",
    ]  # fmt: skip
    assert [named[x] for x in ("0.1.0", "0.1.3", "1.2.0", "input")] == [
        "0.hidden", "1.output", "", "",
    ]  # fmt: skip
    assert data.gradient_norm.sel(parameter=data.matrix == "output").shape == (2, 1)


def test_functions_that_compare_or_sort() -> None:
    x = lazy.Space(8).normal(3)
    for function in (lambda: torch.gt(x, 0.0), lambda: torch.sort(x, -1)):
        with pytest.raises(ValueError, match="must return numbers; one that compares or sorts"):
            function()


def test_sizes_that_differ() -> None:
    space = lazy.Space(10)
    x = space.normal(2)
    samples = torch.ones(5, 2, 1, dtype=torch.float64)
    for combined in (lambda: x * samples, lambda: x + samples, lambda: samples.mT @ x):
        with pytest.raises(ValueError, match=r"first dimension .* the number of samples, 1; got"):
            combined()
    with pytest.raises(ValueError, match=r"side by side must be equally many; got \[1, 2\]"):
        torch.cat([space.normal(1), x], dim=-1)
    with pytest.raises(ValueError, match="width must be a multiple of heads=3; got 10"):
        lazy.Layers(sa.ShapedAttention(0.5, heads=3, output_projection=True))(x)


@pytest.mark.parametrize(
    "rule",
    [
        sa.Muon(0.1, rest=sa.SGD({"readuot": 0.5})),
        sa.Muon({"*": 0.1, "readout": 0.5}, rest=sa.SGD(0.5)),
    ],
)
def test_a_rate_is_for_a_parameter_of_its_rule(rule: sa.Muon) -> None:
    with pytest.raises(ValueError, match=r"lr has a rate for 'read\w+', but the parameters are"):
        sa.simulate_training(
            sa.ShapedAttention(0.5), V0, [0, 1, 0], width=16, samples=1, optimizer=rule, **RUN
        )
