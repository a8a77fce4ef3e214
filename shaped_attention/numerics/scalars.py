"""Numbers known only when a program runs: the parameters of a layer and formulas in them.

A description (`shaped_attention.blocks.base`) receives its parameters as arguments. In torch they
are numbers or tensors with a gradient. While a description is traced they are `Scalar`, formulas
that are evaluated once for all layers: one program then serves a layer whose parameters change with
depth.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from shaped_attention.libraries import Tensor, torch

_ARITHMETIC = (np.add, np.subtract, np.multiply, np.divide, np.power)

Depths: TypeAlias = NDArray[np.float64]
"""Relative depths l / L of the layers of a run, at which scalars are evaluated."""


class Scalar(NDArrayOperatorsMixin):
    """A formula in the parameters of a layer; arithmetic on it gives further formulas.

    Parameters
    ----------
    evaluate
        Function from relative depths to the values there.
    name
        Name of the formula: those with equal names have equal values. None for a name of its own.
    """

    __slots__ = ("evaluate", "name")

    def __init__(self, evaluate: Callable[[Depths], Any], name: Hashable = None) -> None:
        self.evaluate = evaluate
        # The object itself cannot be a name, since formulas are not compared.
        self.name = id(self) if name is None else name

    def __array_ufunc__(self, function: Any, method: str, *numbers: Any, **named: Any) -> Any:
        """Return the formula that an operator of the mixin asks for; `out` is that of ``+=``."""
        if function not in _ARITHMETIC or method != "__call__":
            return NotImplemented
        return _combined(function, *numbers)

    def __neg__(self) -> Scalar:
        return self * -1.0

    def __float__(self) -> float:
        raise TypeError(
            "a parameter is a formula while a description is traced; exp, sqrt, tanh and others of "
            "shaped_attention.numerics.primitives accept it, those of math and NumPy do not"
        )

    def __bool__(self) -> bool:
        raise TypeError(
            "a description may branch on sizes and on the fields of its block, never on a "
            "parameter: its value changes from layer to layer"
        )

    def _compared(self, other: object) -> bool:
        return bool(self)

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _compared
    __hash__ = object.__hash__


Number: TypeAlias = float | int | Scalar
AnyNumber: TypeAlias = float | int | Scalar | Tensor


def _combined(function: Callable[[Any, Any], Any], a: Number, b: Number) -> Scalar:
    """Return a formula; anything but a number, such as a traced matrix, has its own operation."""
    if not all(isinstance(x, Real | Scalar) for x in (a, b)):
        return NotImplemented
    name = (function, name_of(a), name_of(b))
    return Scalar(lambda depths: function(value(a, depths), value(b, depths)), name)


def name_of(number: Any) -> Hashable:
    """Return what distinguishes a number or a formula from others; 0.0 is not -0.0."""
    return number.name if isinstance(number, Scalar) else repr(float(number))


def value(number: Any, depths: Depths) -> Any:
    """Evaluate a number or a `Scalar`."""
    return number.evaluate(depths) if isinstance(number, Scalar) else number


def apply(function: Callable[[Any], Any], number: Number) -> Scalar:
    """Apply a NumPy function to a scalar."""
    return Scalar(lambda depths: function(value(number, depths)), (function, name_of(number)))


def product(a: Number, b: Number) -> Number:
    """Multiply two numbers; 1.0 times a `Scalar` is the `Scalar` itself."""
    if is_one(a):
        return b
    return a if is_one(b) else a * b


def is_one(number: Number) -> bool:
    """Return whether a number is known to be 1 before the program runs."""
    return isinstance(number, float | int) and number == 1.0


def mean_decay(rate: AnyNumber, step: AnyNumber) -> Any:
    """Return ``(1 - exp(-rate step)) / rate``, the integrated decay, which is `step` at rate 0."""
    if isinstance(rate, Scalar) or isinstance(step, Scalar):
        return _combined(_mean_decay, rate, step)  # type: ignore[arg-type]
    if isinstance(rate, Tensor) or isinstance(step, Tensor):
        # expm1(x) / x has no derivative rule at 0; near it three terms are exact to rounding.
        x = torch.as_tensor(rate * step)
        small = x.abs() < 1e-5
        safe = torch.where(small, 1.0, x)
        return step * torch.where(small, 1.0 - x / 2.0 + x * x / 6.0, -(-safe).expm1() / safe)
    return float(_mean_decay(np.asarray(rate), np.asarray(step)))


def _mean_decay(rate: NDArray[np.float64], step: NDArray[np.float64]) -> Any:
    x = rate * step
    safe = np.where(np.abs(x) < 1e-300, 1.0, x)
    return step * np.where(np.abs(x) < 1e-300, 1.0, -np.expm1(-safe) / safe)
