"""Gated MLP blocks: GeGLU, SwiGLU, ReGLU, and gates that tend to 1 with the width."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import shaped_attention as sa
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
    "SwiGLU": (gated("silu"), SharedColumns(0.7, activation="silu", gated=True)),
    "shaped": (SHAPED, gated("silu", scale=4.0, gate_bias=1.0)),
    "shaped GELU": (
        gated("gelu", scale=0.4, gate_bias=0.5, hidden_ratio=2.0),
        sa.ShapedMLP(0.7, activation="gelu", scale=0.4, hidden_ratio=2.0),
    ),
}


@pytest.mark.parametrize(
    ("name", "tokens", "width"),
    [(name, 3, 16) for name in MEMBERS] + [(name, 4, 4) for name in ("SwiGLU", "shaped")],
)
def test_the_chain_has_the_law_of_networks(name: str, tokens: int, width: int) -> None:
    """Wrong twins: without the gate, one weight matrix for gate and value, another gate or size."""
    check_the_chain(*MEMBERS[name], tokens, width)


@pytest.mark.parametrize(
    ("name", "bias"),
    [("silu", 1.0), ("gelu", 0.5), ("softplus", 0.0)],
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
