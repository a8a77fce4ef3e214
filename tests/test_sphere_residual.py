"""Residual networks against the flow maps that they discretise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from shaped_attention.sphere import TokenAttention, residual_flow, sphere_network
from shaped_attention.sphere.residual import DEPTHS
from tests.sphere_tokens import matrices, random_tokens

OUTER, INNER, BIAS = (
    m.numpy() for m in (matrices(3, 5), matrices(5, 3, seed=1), matrices(5, seed=2))
)
START = np.random.default_rng(3).standard_normal((40, 3))


def turning(matrix, speed=3.0):
    return lambda t: math.cos(speed * t) * matrix


def test_linear_networks_are_powers_and_their_flow_map_an_exponential():
    """(1 + c T / L)^L x and e^{cT} x to rounding; L times the error tends to c^2 T^2 e^{cT} / 2."""
    start = np.array([[1.0], [-0.5], [2.0]])
    data = residual_flow(
        [[0.7]], [[2.0]], [0.0], start, [10, 1000], horizon=0.5, activation="identity"
    )
    for k, depth in enumerate((10, 1000)):
        known = (1.0 + 0.7 / depth) ** depth * start
        np.testing.assert_allclose(data["network"][k], known, rtol=1e-12)
    np.testing.assert_allclose(data["flow_map"], math.exp(0.7) * start, rtol=1e-10)
    leading = 0.5 * 0.7**2 * math.exp(0.7) * np.abs(start).mean()
    scaled = data["error"].values * (10, 1000)
    assert scaled[1] == pytest.approx(leading, rel=1e-3)
    assert abs(scaled[0] / leading - 1.0) > 0.02


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("constant", [True, False])
def test_errors_fall_as_one_over_the_depth(activation, constant):
    """Weights that are constant or turn: rate 1 within two standard errors, below 0.05.

    Doubling the last depth halves the error, to 3 percent.
    """
    weights = [m if constant else turning(m) for m in (OUTER, INNER, BIAS)]
    data = residual_flow(*weights, START, activation=activation, horizon=2.0)
    rate, bar = float(data["rate"]), float(data["rate_error"])
    assert bar < 0.1
    assert abs(rate - 1.0) < 2.0 * bar
    error = data["error"].values
    assert error[-2] / error[-1] == pytest.approx(2.0, rel=0.03)


def test_layers_with_independent_weights_do_not_converge_like_that():
    """Rate 1/2 to 0.3: weights that are constant in 128 pieces of the time; each layer sees one.

    The standard error is about 0.09, from that of the norm of 30 normal entries.
    """
    depths, pieces = [2, 4, 8, 16], 128
    draws = np.random.default_rng(0).standard_normal((pieces, 30))
    data = residual_flow(
        np.eye(30), np.zeros((30, 30)), lambda t: draws[min(int(t * pieces), pieces - 1)],
        np.zeros((2, 30)), depths, activation="identity",
    )  # fmt: skip
    rate = -np.polyfit(np.log(depths), np.log(data["error"]), 1)[0]
    assert rate == pytest.approx(0.5, abs=0.3)
    np.testing.assert_allclose(data["flow_map"][0], draws.mean(0), atol=1e-8)


def test_the_network_is_the_loop_written_out():
    """With weights at the beginning of each layer, to rounding; those at its middle are further."""
    depth, horizon = 7, 1.5
    functions = [turning(m) for m in (OUTER, INNER, BIAS)]

    def loop(shift):
        x = START
        for k in range(depth):
            w, a, b = (function((k + shift) * horizon / depth) for function in functions)
            x = np.stack([y + horizon / depth * w @ np.tanh(a @ y + b) for y in x])
        return x

    outputs = residual_flow(*functions, START, [depth, 8], horizon=horizon)["network"].values[0]
    np.testing.assert_allclose(outputs, loop(0.0), atol=1e-14)
    assert np.abs(outputs - loop(0.5)).max() > 1e-2


def test_it_is_the_network_of_tokens_without_attention():
    """Gram matrices of ReLU networks by `sphere_network`, to 1e-13; a step less is further."""
    x = random_tokens(4, 3, 1)
    inner, outer, bias = (torch.from_numpy(m) for m in (INNER, OUTER, BIAS))
    nothing = torch.zeros(3, 3, dtype=torch.float64)
    attention = TokenAttention(1.0, value=nothing, mlp=(inner, outer, bias))
    gram = sphere_network(attention, x, 0.1, 10, normalise=None)["V"].values[:, 0]
    outputs = residual_flow(OUTER, INNER, BIAS, x[0], [10, 11], activation="relu")
    last = outputs["network"].values[0]
    np.testing.assert_allclose(last @ last.T, gram[-1], atol=1e-13)
    assert np.abs(last @ last.T - gram[-2]).max() > 1e-2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"start": START[:1]}, r"start must be finite inputs .samples, d., at least two; got"),
        ({"start": START[:, :2]}, r"bias must be of shapes \(2, h\), \(h, 2\) and \(h,\); got"),
        ({"bias": lambda t: OUTER}, r"bias must be of shapes \(3, h\)"),
        ({"inner": "a"}, "inner must be an array of numbers"),
        ({"depths": [8]}, r"depths must be at least two increasing numbers; got \[8\]"),
        ({"depths": [8, 4]}, "depths must be at least two increasing numbers"),
        ({"depths": [0, 4]}, "depths must be an integer"),
        ({"horizon": 0.0}, r"horizon must be positive.*; got 0\.0"),
        ({"activation": "gelu"}, "activation must be one of tanh, relu, identity; got 'gelu'"),
    ],
)
def test_bad_input(arguments, message):
    call = {"outer": OUTER, "inner": INNER, "bias": BIAS, "start": START} | arguments
    with pytest.raises(ValueError, match=message):
        residual_flow(**call)


def test_overflow_is_reported():
    with pytest.raises(FloatingPointError, match="the outputs overflow"):
        residual_flow(
            [[1.0]], [[800.0]], [0.0], [[1.0], [2.0]], DEPTHS, activation="identity"
        )  # fmt: skip
