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

from shaped_attention.checks import argument_error, check_choice, names_code
from shaped_attention.libraries import Tensor, torch
from shaped_attention.numerics.graph import Graph
from shaped_attention.numerics.named_numbers import check_activation
from shaped_attention.numerics.primitives import M, leaky, normal_cdf, sigmoid, softplus, tanh
from shaped_attention.numerics.scalars import Depths, Scalar, value

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
    if not names_code(name):
        check_choice("activation", name, [SHAPED_RELU, *NAMED, "module:function"])
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
            f"activation must be a function of a matrix written in the primitives of "
            f"shaped_attention.numerics.primitives; got {name!r} ({error})"
        ) from None
    return function


def of_entries(function: Activation, x: M) -> M:
    """Apply a function entry by entry; undrawn rows take it as a whole (`map_entries`)."""
    known = getattr(x, "map_entries", None)
    found: M = function(x) if known is None else known(function)
    return found


def shaped(function: Activation, x: M, s: Any) -> M:
    """Return s (phi(x / s) - phi(0)), entry by entry."""
    at_zero = derivatives(function, 0.0)[0]
    inner = of_entries(function, x / s)
    return s * (inner if at_zero == 0.0 else inner - at_zero)


def shaped_gate(function: Activation, z: M, s: Any, bias: float) -> M:
    """Return phi(bias + z / s) / phi(bias), entry by entry."""
    inner = z / s
    moved = of_entries(function, inner if bias == 0.0 else inner + bias)
    return moved / derivatives(function, bias)[0]


def mean_square(function: Callable[[Tensor, Any], Tensor], s: Any) -> Any:
    """Return E f(g, s)^2 for a standard normal g; s is a number, a `Scalar` or a tensor.

    If s grows with the width while a limit is derived, the mean is a series too.
    """
    if hasattr(s, "grows"):
        from shaped_attention.blocks.limits.hidden import mean_square as expanded

        return expanded(function, s)
    if isinstance(s, Scalar):

        def at_depths(depths: Depths) -> Any:
            numbers = np.asarray(value(s, depths), dtype=np.float64)
            different, place = np.unique(numbers, return_inverse=True)
            means = np.array([mean_square(function, float(number)) for number in different])
            return means[place].reshape(numbers.shape)

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
        y, values = function(x), []
        for _ in range(4):
            values.append(float(y.detach()))
            if y.requires_grad:
                (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            else:
                y = torch.zeros_like(x)
    return values[0], values[1], values[2], values[3]


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
    shaped_relu, scale = block.activation == SHAPED_RELU, block.scale
    slopes = [(x, getattr(block, x) == getattr(type(block), x)) for x in ("c_plus", "c_minus")]
    _check(
        block,
        ("gated", isinstance(block.gated, bool), "True or False"),
        ("hidden_ratio", block.hidden is None or block.hidden_ratio == 1.0, "1 if hidden is given"),
        ("gated", not (shaped_relu and block.gated), "False for 'relu' (only 'plain_relu' can be)"),
        ("scale", not shaped_relu or scale is None, "None for 'relu' (it has c_plus and c_minus)"),
        *((x, shaped_relu or same, "the default unless activation='relu'") for x, same in slopes),
        (
            "input_scale",
            block.input_scale == 1.0 or not (shaped_relu or scale is not None),
            "1 for a shaped activation",
        ),
        (
            "gate_bias",
            block.gate_bias == 0.0 or (block.gated and scale is not None),
            "0 unless gated=True and a scale is given",
        ),
    )
    if shaped_relu:
        return
    function, at = activation_named(block.activation), float(block.gate_bias)
    if scale is not None:
        smooth = f"a function that is smooth at {at:g}, if a scale is given"
        _check(block, ("activation", is_smooth(function, at), smooth))
        zero, first, *_ = derivatives(function, at)
        divided = (
            f"a number at which {block.activation} is not 0, since a shaped gate is divided by its "
            "value there"
        )
        _check(
            block,
            ("gate_bias", not block.gated or zero != 0.0, divided),
            (
                "activation",
                block.gated or first != 0.0,
                "one with phi'(0) != 0 if scale is given",
            ),
        )


def _check(block: Any, *rules: tuple[str, bool, str]) -> None:
    """Raise ValueError for the first field that does not meet its requirement."""
    for name, met, requirement in rules:
        if not met:
            raise argument_error(name, requirement, getattr(block, name))
