"""Activations of hidden layers: functions of single entries, their derivatives and moments.

A function is written in the primitives of `shaped_attention.numerics.primitives`. Torch evaluates
it, also for its derivatives and for Gaussian means, and the compiled executors run its trace.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from shaped_attention.checks import did_you_mean
from shaped_attention.lazy_torch import Tensor, torch
from shaped_attention.numerics.graph import Graph
from shaped_attention.numerics.primitives import M, leaky, normal_cdf, sigmoid, softplus, tanh
from shaped_attention.numerics.scalars import Depths, Scalar, value
from shaped_attention.numerics.traced_numbers import check_activation

Activation = Callable[[Any], Any]

_SPACING, _LARGEST = 2.0**-8, 10.0
"""Nodes of Gaussian means: the trapezoidal rule converges exponentially for analytic functions."""

_STEPS = (0.1, 0.02, 0.004)
_ORDER = 6
_AGREEMENT = 1e-3
"""Relative deviation of one-sided differences beyond which a function is not smooth."""


def _gelu(x: M) -> M:
    return x * normal_cdf(x)


def _gelu_tanh(x: M) -> M:
    return 0.5 * (x * (tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * (x * x * x))) + 1.0))


def _silu(x: M) -> M:
    return x * sigmoid(x)


def _relu(x: M) -> M:
    return leaky(x, 1.0, 0.0)


NAMED: dict[str, Activation] = {
    "plain_relu": _relu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
    "tanh": tanh,
    "softplus": softplus,
}
"""Activations by name; the shaped ReLU, whose slopes are parameters, is part of its block."""

SHAPED_RELU = "relu"


def activation_named(name: str) -> Activation:
    """Return an activation by its name or as "module:function".

    Raises
    ------
    ValueError
        If the name is unknown, or the function does not act entry by entry in primitives.
    """
    if isinstance(name, str) and name in NAMED:
        return NAMED[name]
    if not isinstance(name, str) or ":" not in name:
        choices = did_you_mean(name, [SHAPED_RELU, *NAMED, "module:function"])
        raise ValueError(f"activation={name!r}: {choices}")
    return _imported(name)


@lru_cache(maxsize=256)
def _imported(name: str) -> Activation:
    """Return a function "module:function" after a trial trace."""
    module, _, attribute = name.partition(":")
    try:
        function: Activation = getattr(importlib.import_module(module), attribute)
        graph = Graph()
        entry = graph.node("input", (), (1, 1))
        check_activation(graph, [entry.node], function(entry).value().node)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ValueError(
            f"activation={name!r}: a function of a matrix, written in the primitives of "
            f"shaped_attention.numerics.primitives, is needed ({error})"
        ) from None
    return function


def shaped(function: Activation, x: M, s: Any) -> M:
    """Return s (phi(x / s) - phi(0)), entry by entry."""
    at_zero = derivatives(function, 0.0)[0]
    inner = function(x / s)
    return s * (inner if at_zero == 0.0 else inner - at_zero)


def shaped_gate(function: Activation, z: M, s: Any, bias: float) -> M:
    """Return phi(bias + z / s) / phi(bias), entry by entry."""
    inner = z / s
    moved = function(inner if bias == 0.0 else inner + bias)
    return moved / derivatives(function, bias)[0]


def mean_square(function: Callable[[Tensor, Any], Tensor], s: Any) -> Any:
    """Return E f(g, s)^2 for a standard normal g; s is a number, a `Scalar` or a tensor."""
    if isinstance(s, Scalar):

        def at_depths(depths: Depths) -> Any:
            numbers = np.asarray(value(s, depths), dtype=np.float64)
            different, place = np.unique(numbers, return_inverse=True)
            found = np.array([mean_square(function, float(number)) for number in different])
            return found[place].reshape(numbers.shape)

        return Scalar(at_depths)
    x = torch.from_numpy(np.arange(-_LARGEST, _LARGEST + _SPACING / 2.0, _SPACING)[None])
    weights = torch.exp(-0.5 * x * x) * (_SPACING / math.sqrt(2.0 * math.pi))
    if isinstance(s, Tensor):
        mean = (weights.to(s.device) * function(x.to(s.device), s.double()) ** 2).sum()
        return mean.to(s.dtype)
    return float((weights * function(x, s) ** 2).sum())


@lru_cache(maxsize=256)
def derivatives(function: Activation, at: float) -> tuple[float, float, float, float]:
    """Return phi, phi', phi'' and phi''' at a point, by automatic differentiation."""
    with torch.inference_mode(False), torch.enable_grad():
        x = torch.tensor([[at]], dtype=torch.float64, requires_grad=True)
        y, found = function(x), []
        for _ in range(4):
            found.append(float(y.detach()))
            if y.requires_grad:
                (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            else:
                y = torch.zeros_like(x)
    return found[0], found[1], found[2], found[3]


@lru_cache(maxsize=256)
def is_smooth(function: Activation, at: float) -> bool:
    """Return whether one-sided differences on both sides agree with the derivatives."""
    expected = derivatives(function, at)
    return all(
        any(_agrees(function, at, side * step, expected) for step in _STEPS) for side in (1.0, -1.0)
    )


def _agrees(function: Activation, at: float, step: float, expected: tuple[float, ...]) -> bool:
    nodes = np.arange(_ORDER + 1.0)
    with torch.no_grad():
        values = function(torch.from_numpy(at + step * nodes)[None])[0].numpy()
    taylor = np.linalg.solve(np.vander(nodes, increasing=True), values)
    size = max(map(abs, expected))
    return all(
        abs(math.factorial(k) * taylor[k] / step**k - expected[k]) <= _AGREEMENT * size
        for k in (1, 2, 3)
    )


def check_shape(block: Any) -> None:
    """Raise ValueError unless the fields of a `ShapedMLP` apply to its activation."""
    shaped_relu = block.activation == SHAPED_RELU
    if not isinstance(block.gated, bool):
        raise ValueError(f"gated={block.gated!r}: True or False is needed")
    if block.hidden is not None and block.hidden_ratio != 1.0:
        raise ValueError(
            f"hidden={block.hidden!r}, hidden_ratio={block.hidden_ratio!r}: one of the two is "
            "needed"
        )
    if shaped_relu and block.gated:
        raise ValueError("gated=True: an activation other than 'relu' is needed, e.g. 'plain_relu'")
    if shaped_relu and block.scale is not None:
        raise ValueError(
            f"scale={block.scale!r}: activation='relu' has c_plus and c_minus; None is needed"
        )
    for name in () if shaped_relu else ("c_plus", "c_minus"):
        given, default = getattr(block, name), getattr(type(block), name)
        if given != default:
            raise ValueError(
                f"{name}={given!r}: only activation='relu' has slopes; {default!r}, the default, "
                f"is needed for {block.activation!r}"
            )
    if block.input_scale != 1.0 and (shaped_relu or block.scale is not None):
        raise ValueError(
            f"input_scale={block.input_scale!r}: 1.0 is needed for a shaped activation"
        )
    if block.gate_bias != 0.0 and not (block.gated and block.scale is not None):
        raise ValueError(
            f"gate_bias={block.gate_bias!r}: 0.0 is needed without gated=True and a scale"
        )
    if not shaped_relu:
        _check_function(block)


def _check_function(block: Any) -> None:
    """Raise ValueError unless the activation exists, and is smooth if it is shaped."""
    name = block.activation
    function = activation_named(name)
    if block.scale is None:
        return
    at = float(block.gate_bias)
    if not is_smooth(function, at):
        raise ValueError(
            f"activation={name!r}: with a scale, a function that is smooth at {at:g} is needed"
        )
    zero, first, *_ = derivatives(function, at)
    if block.gated and zero == 0.0:
        raise ValueError(
            f"gate_bias={block.gate_bias!r}: {name} is 0 there, and a shaped gate is divided by "
            "that value; a number where it is not 0 is needed"
        )
    if not block.gated and first == 0.0:
        raise ValueError(
            f"activation={name!r}: with a scale, a function with phi'(0) != 0 is needed"
        )
