"""Gated MLP blocks: GeGLU, SwiGLU, ReGLU, and gates that tend to 1 with the width."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention.numerics.graph import Graph
from shaped_attention.numerics.named_numbers import Keys, TorchNumbers, TracedNumbers
from shaped_attention.numerics.primitives import Numbers
from tests.laws import assert_executors_agree
from tests.test_activations import PHI, V, check_the_chain, kernel


def gated(activation: str, gamma: float = 0.7, **options: Any) -> sa.ShapedMLP:
    return sa.ShapedMLP(gamma, activation=activation, gated=True, **options)


class SharedColumns(sa.ShapedMLP):
    """A gate that sees the same columns as what it gates: one weight matrix instead of two."""

    def step(self, p: Any, state: Any, numbers: Any, width: int) -> Any:
        shared = _Shared()
        shared.numbers = numbers
        return super().step(p, state, shared, width)


class _Shared(Numbers):
    numbers: Numbers

    def normal(self, *arguments: Any) -> Any:
        return self.numbers.normal(*arguments)

    def wishart(self, *arguments: Any) -> Any:
        return self.numbers.wishart(*arguments)

    def activated_gram(
        self, name: str, factor: Any, count: int, activation: Any, copies: int = 1, head: int = 0
    ) -> Any:
        return self.numbers.activated_gram(name, factor, count, lambda h: activation(h, h))


SHAPED = gated("silu", scale=0.5, gate_bias=1.0)
MEMBERS = {
    "GeGLU": (gated("gelu"), sa.ShapedMLP(0.7, activation="gelu")),
    "GeGLU by tanh": (gated("gelu_tanh"), gated("silu", input_scale=0.1)),
    "SwiGLU": (gated("silu"), SharedColumns(0.7, activation="silu", gated=True)),
    "ReGLU": (gated("plain_relu"), gated("gelu")),
    "wide SwiGLU": (gated("silu", hidden=43, input_scale=2.0), gated("silu", input_scale=2.0)),
    "two units": (gated("silu", hidden=2), gated("silu")),
    "pre-norm": (
        sa.Normalised(gated("silu", skip=1.0, hidden_ratio=2.0)),
        sa.Normalised(gated("silu", skip=1.0, hidden_ratio=1.0)),
    ),
    "shaped": (SHAPED, gated("silu", scale=4.0, gate_bias=1.0)),
    "shaped GELU": (
        gated("gelu", scale=0.4, gate_bias=0.5, hidden_ratio=2.0),
        sa.ShapedMLP(0.7, activation="gelu", scale=0.4, hidden_ratio=2.0),
    ),
}


@pytest.mark.parametrize(
    ("name", "tokens", "width"),
    [(name, 3, 16) for name in MEMBERS]
    + [(name, 4, 4) for name in ("SwiGLU", "two units", "pre-norm", "shaped")],
)
def test_the_chain_has_the_law_of_networks(name: str, tokens: int, width: int) -> None:
    """Wrong twins: without the gate, one weight matrix for gate and value, another gate or size."""
    check_the_chain(*MEMBERS[name], tokens, width)


@pytest.mark.parametrize(
    ("name", "bias"),
    [("silu", 1.0), ("silu", -0.7), ("gelu", 0.5), ("tanh", 0.8), ("softplus", 0.0)],
)
def test_the_drift_is_the_limit_of_the_exact_kernel(name: str, bias: float) -> None:
    """n (E V' - V) approaches the drift like 1/n, by a factor of 100 from n = 10^4 to 10^6.

    The kernel is c V_ab E[phi_a phi_b], by Gauss-Hermite quadrature. The drift with another bias is
    further away by 10^3 times the last error.
    """
    phi, gamma, a = PHI[name], 0.6, 0.7
    drift = sa.drift(gated(name, gamma, scale=a, gate_bias=bias), V)
    errors = []
    for width in (10**4, 10**6):
        s = a * math.sqrt(width)
        gates = kernel(lambda x, s=s: phi(bias + x / s), V)
        moved = width * gamma**2 * V * (gates - 1.0)
        errors.append(np.abs(moved - drift).max())
    size = np.abs(drift).max()
    assert 50.0 < errors[0] / errors[1] < 200.0
    assert errors[1] < 1e-4 * size
    wrong = sa.drift(gated(name, gamma, scale=a, gate_bias=bias + 0.3), V)
    assert np.abs(moved - wrong).max() > 0.05 * size


@pytest.mark.parametrize("width", [2, 21])
@pytest.mark.parametrize("name", MEMBERS)
def test_all_executors_agree(name: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths of the chain are those of torch to rounding, also with fewer columns than tokens."""
    v0 = V if width > 2 else V[:, :2] @ V[:2]
    run: dict[str, Any] = {"width": width, "depth": 3, "samples": 70, "seed": 3, "progress": False}
    layer = MEMBERS[name][0]
    assert_executors_agree(
        lambda: sa.simulate_chain(layer, v0, **run)["V"].to_numpy(), monkeypatch, 1e-9
    )


def test_both_columns_of_a_gate_are_independent_normals() -> None:
    """The sum of u z over 20,000 columns vanishes within 5 standard errors; of u u it does not."""
    numbers = TorchNumbers(Keys(1, "chain"), torch.arange(50), 0)
    eye = torch.eye(2, dtype=torch.float64).expand(50, 2, 2)
    gram = numbers.activated_gram("hidden", eye, 400, lambda z, u: z * u, copies=2)
    mean = gram.mean(0) / 400.0
    assert float((mean - torch.eye(2)).abs().max()) < 5.0 * math.sqrt(8.0 / 20_000)
    same = numbers.activated_gram("others", eye, 400, lambda z: z * z)
    assert float((same.mean(0) / 400.0 - 3.0 * torch.eye(2)).diagonal().abs().max()) < 0.5


def test_a_function_that_ignores_its_gate_is_refused() -> None:
    """While it is traced: the places of its arguments would be wrong."""
    graph = Graph()
    factor = graph.node("input", (), (2, 2))
    with pytest.raises(ValueError, match="an activation does not depend on its argument"):
        TracedNumbers(graph).activated_gram("h", factor, 8, lambda z, u: u * u, copies=2)


def test_gated_networks_can_be_trained() -> None:
    """A module has the weights of gate and value, and its branch is that of the block."""
    block = gated("silu", scale=1.0, gate_bias=1.0, hidden_ratio=0.5)
    model = sa.ShapedTransformer(block, width=8, depth=1)
    names = {name: tuple(weight.shape) for name, weight in model.blocks[0].named_parameters()}
    assert names == {"pre": (8, 4), "gate": (8, 4), "post": (4, 8), "gamma": ()}
    tokens = torch.ones(3, 8)
    module: Any = model.blocks[0]
    z, u = (tokens @ w / 8**0.5 for w in (module.gate, module.pre))
    silu = torch.nn.functional.silu
    hidden = silu(1.0 + z / 8**0.5) / silu(torch.tensor(1.0)) * u
    branch = (1.0 / block.mean_square(8) / 4.0) ** 0.5 * (hidden @ module.post)
    expected = (1.0 - 0.7**2) ** 0.5 * tokens + 0.7 * branch
    torch.testing.assert_close(model(tokens), expected)
