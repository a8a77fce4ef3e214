"""Derivatives of paths against difference quotients of the samplers, and what is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import shaped_attention as sa

V0 = np.array([[1.0, 0.3, 0.1], [0.3, 0.8, -0.2], [0.1, -0.2, 1.2]])
CHAIN: dict[str, Any] = {"width": 24, "depth": 6, "samples": 64, "seed": 5}
LIMIT: dict[str, Any] = {"horizon": 0.25, "step": 0.05, "samples": 64, "seed": 5}

LAYERS: dict[str, Any] = {
    "heads": lambda gamma, second: sa.ShapedAttention(gamma, second, heads=2),
    "projection": lambda gamma, second: sa.ShapedAttention(
        gamma, second, heads=2, mask="causal", output_projection=True
    ),
    "MLP": lambda gamma, second: sa.ShapedMLP(gamma, c_plus=second),
}
SECOND = {"MLP": ("c_plus", 0.5)}


def _sampled(layer: Any, v0: Any, run: dict[str, Any]) -> np.ndarray:
    fixed_steps = partial(sa.integrate_sde, method="direct")
    sampler = sa.simulate_chain if "width" in run else fixed_steps
    return sampler(layer, v0, **run)["V"][-1].to_numpy()


def _tensor(value: Any) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("run", [CHAIN, LIMIT], ids=["chain", "limit"])
@pytest.mark.parametrize("name", LAYERS)
def test_derivatives_are_difference_quotients(name: str, run: dict[str, Any]) -> None:
    """With the same seed a path is smooth in gamma, the second parameter and V_0.

    Central differences of the compiled samplers, of step 1e-5, are within 1e-6; a derivative of
    another parameter is not.
    """
    second, at = SECOND.get(name, ("tau0", 0.8))
    gamma, other, v0 = _tensor(0.5), _tensor(at), _tensor(V0)
    given = {"gamma": gamma, second: other}
    v = sa.pathwise(LAYERS[name](0.5, at), v0, parameters=given, **run)
    sampled = _sampled(LAYERS[name](0.5, at), V0, run)
    np.testing.assert_allclose(v.detach().numpy(), sampled, rtol=1e-11, atol=1e-12)
    v[:, 0, 1].sum().backward()
    h = 1e-5
    move = np.zeros((3, 3))
    move[0, 2] = move[2, 0] = 0.5

    def value(gamma: float, second: float, v0: np.ndarray) -> float:
        return float(_sampled(LAYERS[name](gamma, second), v0, run)[:, 0, 1].sum())

    expected = [
        value(0.5 + h, at, V0) - value(0.5 - h, at, V0),
        value(0.5, at + h, V0) - value(0.5, at - h, V0),
        value(0.5, at, V0 + h * move) - value(0.5, at, V0 - h * move),
    ]
    assert gamma.grad is not None
    assert other.grad is not None
    assert v0.grad is not None
    found = [float(gamma.grad), float(other.grad), float((v0.grad * torch.tensor(move)).sum())]
    np.testing.assert_allclose(found, np.array(expected) / (2 * h), rtol=1e-6, atol=1e-6)
    assert abs(found[0] - found[1]) > 1e-3


def test_a_value_for_each_layer() -> None:
    """Equal values sum to the derivative in one; a schedule's layers are those of `Schedule`."""
    layer = [sa.ShapedAttention(0.5), sa.ShapedMLP(0.3)]
    gammas, gamma = _tensor([0.5] * 6), _tensor(0.5)
    for given in (gammas, gamma):
        v = sa.pathwise(layer, torch.tensor(V0), parameters=[{"gamma": given}, {}], **CHAIN)
        v.square().sum().backward()
    assert gammas.grad is not None
    assert gamma.grad is not None
    assert float(gammas.grad.abs().min()) > 0.0
    torch.testing.assert_close(gammas.grad.sum(), gamma.grad)
    ramp = sa.Schedule([(0.0, 0.2), (1.0, 0.8)])
    values = torch.tensor([ramp.at(layer / 6) for layer in range(6)], dtype=torch.float64)
    v = sa.pathwise(
        sa.ShapedAttention(0.5), torch.tensor(V0), parameters={"gamma": values}, **CHAIN
    )
    expected = _sampled(sa.ShapedAttention(ramp), V0, CHAIN)
    np.testing.assert_allclose(v.numpy(), expected, rtol=1e-11)


def test_blocks_inside_blocks_and_patterns() -> None:
    attention, mlp = sa.ShapedAttention(0.5), sa.ShapedMLP(0.3)
    layer = sa.Pattern([sa.Parallel(attention, mlp), sa.Normalised(mlp)])
    gamma = _tensor(0.5)
    names = [x for x in sa.Parallel.__dataclass_fields__ if x != "gamma"]
    given = [{names[0]: [{"gamma": gamma}, {}]}, {"inner": {"gamma": gamma * 0.6}}]
    v = sa.pathwise(layer, torch.tensor(V0), parameters=given, **CHAIN)
    np.testing.assert_allclose(v.detach().numpy(), _sampled(layer, V0, CHAIN), rtol=1e-11)
    v.sum().backward()
    assert gamma.grad is not None
    assert abs(float(gamma.grad)) > 0.0


def test_drift_and_diffusion_in_parameters() -> None:
    """At tau_0 = 2 the drift has the factor tau_0^-2, and the diffusion a part with tau_0^-2."""
    tau0 = _tensor(2.0)
    layer = [sa.ShapedAttention(0.5, 2.0), sa.ShapedMLP(0.3)]
    v, given = torch.tensor(V0), [{"tau0": tau0}, {}]
    mlp = sa.drift(layer[1], v)
    drift = sa.drift(layer, v, parameters=given)
    (by_tau,) = torch.autograd.grad(drift.sum(), tau0)
    torch.testing.assert_close(by_tau, -(drift.detach() - mlp).sum())
    h = 1e-5
    (by_tau,) = torch.autograd.grad(sa.diffusion(layer, v, parameters=given).sum(), tau0)
    ends = [sa.diffusion([sa.ShapedAttention(0.5, x), layer[1]], v).sum() for x in (2 - h, 2 + h)]
    torch.testing.assert_close(by_tau, (ends[1] - ends[0]) / (2 * h), rtol=1e-7, atol=0.0)


def test_stopped_paths_stop_their_derivatives() -> None:
    """Central differences over which no path changes the step at which it stops."""
    gamma, h = _tensor(0.9), 1e-7
    run = {**LIMIT, "radius": 2.5}
    layers = [sa.ShapedAttention(x, 0.1) for x in (0.9, 0.9 - h, 0.9 + h)]
    with pytest.warns(UserWarning, match="reached the radius with a fixed step"):
        results = [sa.integrate_sde(layer, V0, method="direct", **run) for layer in layers]
    times = [result["stopping_time"].to_numpy() for result in results]
    assert 0 < int(np.isfinite(times[0]).sum()) < 64
    np.testing.assert_array_equal(times[1], times[0])
    np.testing.assert_array_equal(times[2], times[0])
    layer = sa.ShapedAttention(0.9, 0.1)
    with pytest.warns(UserWarning, match="reached the radius with a fixed step"):
        v = sa.pathwise(layer, torch.tensor(V0), parameters={"gamma": gamma}, **run)
    ends = [result["V"][-1].to_numpy() for result in results]
    np.testing.assert_allclose(v.detach().numpy(), ends[0], rtol=1e-9)
    (by_gamma,) = torch.autograd.grad(v.sum(), gamma)
    np.testing.assert_allclose(float(by_gamma), (ends[2] - ends[1]).sum() / (2 * h), rtol=1e-5)


EYE = torch.eye(2, dtype=torch.float64)
BLOCK = sa.ShapedAttention(0.5)
BAD: dict[str, Any] = {
    r"v0 must be a matrix \(m, m\); got shape \(1, 2, 2\)": lambda: sa.pathwise(
        BLOCK, EYE[None], **{**CHAIN, "samples": 1}
    ),
    "v0 requires gradients, which do not exist": lambda: sa.pathwise(
        BLOCK, torch.ones(2, 2, dtype=torch.float64, requires_grad=True), **CHAIN
    ),
    "parameters has 'heads', which is not a parameter of ShapedAttention": lambda: sa.pathwise(
        BLOCK, EYE, parameters={"heads": torch.tensor(2.0)}, **CHAIN
    ),
    r"gamma must be in \[0, 1\]; got 1.5": lambda: sa.pathwise(
        BLOCK, EYE, parameters={"gamma": torch.tensor(1.5)}, **CHAIN
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_refusals(message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        BAD[message]()
