"""Activations of hidden layers: functions of single entries, their derivatives and moments.

A function is written in the primitives of `shaped_attention.numerics.primitives`. Torch evaluates
it, also for its derivatives and for Gaussian means, and the compiled executors run its trace.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator
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

_NEAR, _JUMP = 1e-5, 1e-3
"""Distance, and the relative change of derivatives over it at which a function is not smooth."""


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
    """Return whether the derivatives are nearly the same on both sides."""
    expected = np.array(derivatives(function, at))
    return all(
        np.abs(derivatives(function, at + step) - expected).max() <= _JUMP * np.abs(expected).max()
        for step in (-_NEAR, _NEAR)
    )


def check_shape(block: Any) -> None:
    """Raise ValueError unless the fields of a `ShapedMLP` apply to its activation."""
    for name, met, requirement in _rules(block):
        if not met:
            raise argument_error(name, requirement, getattr(block, name))


def _rules(block: Any) -> Iterator[tuple[str, bool, str]]:
    """Yield fields, whether they meet their requirement, and the requirement."""
    relu, scaled = block.activation == SHAPED_RELU, block.scale is not None
    yield "gated", isinstance(block.gated, bool), "True or False"
    one = block.hidden is None or block.hidden_ratio == 1.0
    yield "hidden_ratio", one, "1 if hidden is given"
    yield "gated", not (relu and block.gated), "False for 'relu' (only 'plain_relu' can be)"
    yield "scale", not (relu and scaled), "None for 'relu' (it has c_plus and c_minus)"
    for name in ("c_plus", "c_minus"):
        same = getattr(block, name) == getattr(type(block), name)
        yield name, relu or same, "the default unless activation='relu'"
    plain = block.input_scale == 1.0 or not (relu or scaled)
    yield "input_scale", plain, "1 for a shaped activation"
    used = block.gate_bias == 0.0 or (block.gated and scaled)
    yield "gate_bias", used, "0 unless gated=True and a scale is given"
    if relu:
        return
    function, at = activation_named(block.activation), float(block.gate_bias)
    if not scaled:
        return
    smooth = is_smooth(function, at)
    yield "activation", smooth, f"a function that is smooth at {at:g}, if a scale is given"
    zero, first, *_ = derivatives(function, at)
    divided = (
        f"a number at which {block.activation} is not 0, since a shaped gate is divided by its "
        "value there"
    )
    yield "gate_bias", not block.gated or zero != 0.0, divided
    yield "activation", block.gated or first != 0.0, "one with phi'(0) != 0 if scale is given"
