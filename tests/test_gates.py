"""Gated MLP blocks: GeGLU, SwiGLU, ReGLU, and gates that tend to 1 with the width."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import shaped_attention as sa
from tests.laws import assert_executors_agree
from tests.test_activations import PHI, V, check_the_chain, kernel


def gated(activation: str, gamma: float = 0.7, **options: Any) -> sa.ShapedMLP:
    return sa.ShapedMLP(gamma, activation=activation, gated=True, **options)


SHAPED = gated("silu", scale=0.5, gate_bias=1.0)
MEMBERS = {
    "GeGLU": (gated("gelu"), sa.ShapedMLP(0.7, activation="gelu")),
    "SwiGLU": (gated("silu"), sa.ShapedMLP(0.7, activation="silu")),
    "shaped": (SHAPED, gated("silu", scale=4.0, gate_bias=1.0)),
    "shaped GELU": (
        gated("gelu", scale=0.4, gate_bias=0.5, hidden_ratio=2.0),
        sa.ShapedMLP(0.7, activation="gelu", scale=0.4, hidden_ratio=2.0),
    ),
}


@pytest.mark.parametrize("name", ["SwiGLU", "shaped"])
def test_the_chain_has_the_law_of_networks(name: str) -> None:
    """Wrong variants: without the gate, and with another gate."""
    check_the_chain(*MEMBERS[name])


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
