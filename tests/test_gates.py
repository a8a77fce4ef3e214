"""Gated MLP blocks: GeGLU, SwiGLU, ReGLU, and gates that tend to 1 with the width."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray
from scipy import special

import shaped_attention as sa
from shaped_attention.blocks.coupling import RecordedNumbers
from shaped_attention.blocks.mlp import HiddenCoupling
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.numerics.graph import Graph
from shaped_attention.numerics.named_numbers import Keys, TorchNumbers
from shaped_attention.numerics.primitives import Numbers
from shaped_attention.numerics.traced_numbers import TracedNumbers
from shaped_attention.samplers.steppers import choice
from tests.laws import same_law

Array = NDArray[np.float64]
V = np.array([[1.7, 0.6, -0.4], [0.6, 0.8, 0.2], [-0.4, 0.2, 1.1]])


def gated(activation: str, gamma: float = 0.7, **options: Any) -> sa.ShapedMLP:
    return sa.ShapedMLP(gamma, activation=activation, gated=True, **options)


class SharedColumns(sa.ShapedMLP):
    """A gate that sees the same columns as what it gates: one weight matrix instead of two."""

    def root(self, p: Any, factor: Any, numbers: Any, width: int) -> Any:
        shared = _Shared()
        shared.numbers = numbers
        return super().root(p, factor, shared, width)


class _Shared(Numbers):
    numbers: Numbers

    def activated_gram(
        self, name: str, factor: Any, count: int, activation: Any, copies: int = 1
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


@pytest.mark.parametrize(("tokens", "width"), [(3, 16), (4, 4)])
@pytest.mark.parametrize("name", MEMBERS)
def test_the_chain_has_the_law_of_networks(name: str, tokens: int, width: int) -> None:
    """KS on every observable at level 10^-3 (Bonferroni), 3,000 networks of 8 layers.

    At n = 16 the same test rejects the wrong twin: without the gate, with one weight matrix for
    gate and value, another gate, or another number of hidden units.
    """
    right, wrong = MEMBERS[name]
    run: dict[str, Any] = {"width": width, "depth": 8, "progress": False}
    v0 = sa.equicorrelated(tokens, 0.2, 1.5)
    network = sa.simulate_network(right, v0, samples=3000, seed=1, **run)
    assert same_law(network, sa.simulate_chain(right, v0, samples=30_000, seed=2, **run))
    if width == 16:
        assert not same_law(network, sa.simulate_chain(wrong, v0, samples=30_000, seed=2, **run))


@pytest.mark.parametrize(
    ("name", "bias"),
    [("silu", 1.0), ("silu", -0.7), ("gelu", 0.5), ("tanh", 0.8), ("softplus", 0.0)],
)
def test_the_drift_is_the_limit_of_the_exact_kernel(name: str, bias: float) -> None:
    """n (E V' - V) approaches the drift like 1/n, by a factor of 100 from n = 10^4 to 10^6.

    The kernel is c V_ab E[phi_a phi_b], by Gauss-Hermite quadrature with 40^2 nodes. The drift with
    another bias is further away by 10^3 times the last error.
    """
    phi = {
        "gelu": lambda x: x * special.ndtr(x),
        "silu": lambda x: x * special.expit(x),
        "tanh": np.tanh,
        "softplus": lambda x: np.logaddexp(0.0, x),
    }[name]
    gamma, a = 0.6, 0.7
    block = gated(name, gamma, scale=a, gate_bias=bias)
    drift = sa.drift(block, V)
    x, weights = hermegauss(40)
    weights = weights / weights.sum()
    errors = []
    for width in (10**4, 10**6):
        s = a * math.sqrt(width)
        kernel = np.empty_like(V)
        for i in range(3):
            for j in range(3):
                rho = V[i, j] / math.sqrt(V[i, i] * V[j, j])
                first = math.sqrt(V[i, i]) * x[:, None] + 0.0 * x
                second = math.sqrt(V[j, j]) * (
                    rho * x[:, None] + math.sqrt(max(0.0, 1.0 - rho**2)) * x
                )
                pair = phi(bias + first / s) * phi(bias + second / s)
                kernel[i, j] = V[i, j] * (weights @ pair @ weights)
        kernel /= weights @ phi(bias + x / s) ** 2
        moved = width * gamma**2 * (kernel - V)
        errors.append(np.abs(moved - drift).max())
    size = np.abs(drift).max()
    assert 50.0 < errors[0] / errors[1] < 200.0
    assert errors[1] < 1e-4 * size
    wrong = sa.drift(gated(name, gamma, scale=a, gate_bias=bias + 0.3), V)
    assert np.abs(moved - wrong).max() > 0.05 * size


def test_the_chain_of_a_shaped_gate_approaches_its_sde() -> None:
    """KS at n = 256, t = 1/4, 4,000 chains; the SDE without the drift is rejected."""
    block = gated("silu", 0.8, scale=0.6, gate_bias=1.0)
    v0 = sa.equicorrelated(2, 0.2, 0.7)
    chain = sa.simulate_chain(block, v0, width=256, depth=64, samples=4000, seed=1, progress=False)
    run: dict[str, Any] = {"horizon": 0.25, "step": 1 / 256, "samples": 20_000, "progress": False}
    assert same_law(chain, sa.integrate_sde(block, v0, seed=2, **run))
    assert not same_law(chain, sa.integrate_sde(sa.ShapedMLP(0.8, 0.0, 0.0), v0, seed=2, **run))


@pytest.mark.parametrize("large", [2, 96], ids=["library", "tiles"])
@pytest.mark.parametrize("width", [2, 21])
@pytest.mark.parametrize("name", MEMBERS)
def test_all_executors_agree(
    name: str, width: int, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths of the chain are those of torch to rounding, also with fewer columns than tokens."""
    monkeypatch.setattr(choice, "FEWEST_LARGE_TOKENS", large)

    v0 = V if width > 2 else V[:, :2] @ V[:2]

    def paths() -> Array:
        run = sa.simulate_chain(
            MEMBERS[name][0], v0, width=width, depth=3, samples=70, seed=3, progress=False
        )
        return run["V"].to_numpy()

    ours = paths()
    with sa.eager():
        np.testing.assert_allclose(ours, paths(), rtol=1e-9, atol=1e-11)


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
        TracedNumbers(graph, ()).activated_gram("h", factor, 8, lambda z, u: u * u, copies=2)


@pytest.mark.parametrize(("ratio", "gates"), [(0.5, False), (2.0, False), (1.0, True), (0.5, True)])
def test_what_couples_chain_and_limit_is_a_brownian_motion(ratio: float, gates: bool) -> None:
    """M / (gamma^2 sqrt(n / d)) has variance 1 off the diagonal and 2 on it, over 20,000 layers.

    Within 5 standard errors; without sqrt(n / d) it does not. With gates it is made from u, which
    the branch contains to leading order: it does not depend on the gate's columns.
    """
    options = {"scale": 2.0, "gate_bias": 1.0} if gates else {"scale": 2.0}
    block = sa.ShapedMLP(0.7, activation="silu", gated=gates, hidden_ratio=ratio, **options)
    samples = 20_000
    numbers = RecordedNumbers(Keys(1, "chain"), torch.arange(samples), 0, (0,))
    start = torch.linalg.cholesky(torch.tensor(V[:2, :2])).expand(samples, -1, -1)
    p = at_depth(block, 0.0)
    block.root(p, start, numbers, 24)
    noise = block.coupling.common(p, numbers.handed, 24) / block.gamma**2
    square = (noise**2).mean(0) * ratio / (1.0 + torch.eye(2))
    band = 5.0 * math.sqrt(2.0 / samples)
    assert ((square - 1.0).abs() < band).all()
    if ratio != 1.0:
        assert ((square / ratio - 1.0).abs() > band).all()


class QuietCoupling(HiddenCoupling):
    """Without the factor sqrt(n / d)."""

    def common(self, p: Any, handed: Any, width: int) -> torch.Tensor:
        return math.sqrt(self.hidden_ratio) * super().common(p, handed, width)


@dataclass(frozen=True)
class WrongCoupling(sa.ShapedMLP):
    """An MLP with that coupling."""

    @property
    def coupling(self) -> HiddenCoupling:
        return QuietCoupling(self.hidden_ratio, self.gated)


@pytest.mark.parametrize(
    ("gates", "ratio"),
    [({}, 0.5), ({"gated": True, "gate_bias": 1.0}, 0.25)],
    ids=["half", "gated"],
)
def test_coupled_pairs_approach_each_other(gates: dict[str, Any], ratio: float) -> None:
    """The strong error falls by more than 1.5 from n = 32 to 128 (rate 1/2: 2), a wrong one less.

    By 2 standard errors on either side, in 4096 pairs.
    """

    def fall(kind: type[sa.ShapedMLP]) -> tuple[float, float]:
        block = kind(0.7, activation="silu", scale=2.0, hidden_ratio=ratio, **gates)
        v0 = sa.equicorrelated(2, 0.2)
        data = sa.convergence(block, v0, (32, 128), horizon=0.25, samples=4096, radius=3.0)
        errors, standard = data["strong"].to_numpy(), data["strong_error"].to_numpy()
        found = errors[0] / errors[1]
        return found, 2.0 * found * np.hypot(*(standard / errors))

    found, error = fall(sa.ShapedMLP)
    assert found - error > 1.5
    wrong, error = fall(WrongCoupling)
    assert wrong + error < 1.5


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


def test_too_few_hidden_units_are_not_coupled() -> None:
    """Their number is the reason, not the width."""
    found = sa.explain(sa.ShapedMLP(0.4, hidden_ratio=0.25), tokens=4, width=16).layer.coupling
    assert "it has 4 hidden units, fewer than 10" in found
