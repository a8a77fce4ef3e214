"""Numbers while a limit is derived: parameters with a test value, and the width as a series.

The width is n = eps^(-2). What a branch computes from it is a `Series` in eps, to second order.
"""

from __future__ import annotations

import math
import operator
import zlib
from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

import numpy as np

from shaped_attention.blocks.parameters import (
    Parameters,
    Schedule,
    blocks_in,
    like,
    ranges_of,
)
from shaped_attention.libraries import Tensor
from shaped_attention.numerics.graph import Operand
from shaped_attention.numerics.scalars import Scalar

_DEPTH = 0.37
"""Relative depth of the test point."""

_NEARBY = 0.07
"""Relative distance of the test value of a parameter from the parameter."""


class LimitError(ValueError):
    """A branch has no limit, or none that can be derived; the message says why."""


class Known(Operand):
    """A parameter or a formula, with its value at the test point.

    Attributes
    ----------
    operand
        What stands for it in the result: a formula, a number or a tensor.
    test
        Its value at the test point, by which decisions are made.
    name
        What distinguishes it from others, whatever their values.
    """

    __slots__ = ("name", "operand", "test")

    def __init__(self, operand: Any, test: float, name: Hashable) -> None:
        self.operand, self.test, self.name = operand, test, name

    def _with(self, other: Any, function: Callable[[Any, Any], Any], swapped: bool = False) -> Any:
        if not isinstance(other, Known | float | int):
            return NotImplemented
        x, y = (other, self) if swapped else (self, other)
        name = function, identity_of(x), identity_of(y)
        value = function(operand_of(x), operand_of(y))
        return Known(value, function(test_value(x), test_value(y)), name)

    def __add__(self, other: Any) -> Any:
        return self._with(other, operator.add)

    def __mul__(self, other: Any) -> Any:
        return self._with(other, operator.mul)

    def __truediv__(self, other: Any) -> Any:
        return self._with(other, operator.truediv)

    def __rtruediv__(self, other: Any) -> Any:
        return self._with(other, operator.truediv, swapped=True)

    def __pow__(self, power: float | int) -> Any:
        return self._with(power, operator.pow)

    __radd__, __rmul__ = __add__, __mul__

    def run_primitive(self, function: Callable[..., Any], args: Any, named: Any) -> Any:
        """Return the value of a function of numbers."""
        name = function.__name__, self.name
        return Known(function(self.operand), float(function(self.test)), name)


Coefficient: TypeAlias = float | int | Known


def test_value(number: Any) -> float:
    """Return a number at the test point."""
    return number.test if isinstance(number, Known) else float(number)


def operand_of(number: Any) -> Any:
    """Return what stands for a number in the result."""
    return number.operand if isinstance(number, Known) else number


def identity_of(number: Any) -> Hashable:
    """Return what distinguishes a number from others."""
    return number.name if isinstance(number, Known) else float(number)


def is_zero(number: Any) -> bool:
    """Return whether a number is known to be 0."""
    return isinstance(number, float | int) and number == 0.0


def times(a: Any, b: Any) -> Any:
    """Return a product; 0 if one of the numbers is known to be."""
    return 0.0 if is_zero(a) or is_zero(b) else a * b


def added(*numbers: Any) -> Any:
    """Return the sum of numbers, without those that are known to be 0."""
    kept = [x for x in numbers if not is_zero(x)]
    return sum(kept[1:], kept[0]) if kept else 0.0


class Series(Operand):
    """eps^power (c_0 + c_1 eps + c_2 eps^2), with c_0 not 0 unless all of it is."""

    __slots__ = ("c", "power")

    def __init__(self, power: int, *c: Coefficient) -> None:
        kept = [*c, 0.0, 0.0, 0.0][:3]
        while is_zero(kept[0]) and not all(map(is_zero, kept)):
            power, kept = power + 1, [*kept[1:], 0.0]
        self.power, self.c = power, tuple(kept)

    @staticmethod
    def of(number: Any) -> Series:
        """Return a number as a series."""
        return number if isinstance(number, Series) else Series(0, number)

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, Series | Known | float | int):
            return NotImplemented
        b = Series.of(other)
        products = [added(*(times(self.c[i], b.c[k - i]) for i in range(k + 1))) for k in range(3)]
        return Series(self.power + b.power, *products)

    def __pow__(self, power: float | int) -> Series:
        moved = self.power * power
        if moved != int(moved):
            raise LimitError(f"n^{-moved / 2:g} is not a power of sqrt n")
        a = self.c
        first, second = times(a[1], 1.0 / a[0]), times(a[2], 1.0 / a[0])
        lead: Any = a[0] ** power
        curved = added(power * second, times(0.5 * power * (power - 1.0), times(first, first)))
        return Series(int(moved), lead, times(lead, power * first), times(lead, curved))

    def __truediv__(self, other: Any) -> Any:
        if not isinstance(other, Series | Known | float | int):
            return NotImplemented
        return self * Series.of(other) ** -1.0

    def __rtruediv__(self, other: Any) -> Any:
        return other * self**-1.0

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, Series | Known | float | int):
            return NotImplemented
        a, b = sorted((self, Series.of(other)), key=lambda x: x.power)
        if all(map(is_zero, a.c)):
            return b
        later = ([0.0] * (b.power - a.power) + list(b.c))[:3]
        return Series(a.power, *(added(x, y) for x, y in zip(a.c, later, strict=True)))

    __radd__, __rmul__ = __add__, __mul__

    def __floordiv__(self, other: Any) -> Any:
        return self / other

    def __mod__(self, other: Any) -> int:
        """Return 0: the width is a multiple of every number of heads."""
        return 0

    def _sign(self, other: Any) -> float:
        """Return the sign of the difference as the width grows; 0 if they are equal."""
        apart = self - other
        return next((math.copysign(1.0, c) for c in map(test_value, apart.c) if c != 0.0), 0.0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Series | Known | float | int) and self._sign(other) == 0.0

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: Any) -> bool:
        return self._sign(other) < 0.0

    def __le__(self, other: Any) -> bool:
        return self._sign(other) <= 0.0

    def __gt__(self, other: Any) -> bool:
        return self._sign(other) > 0.0

    def __ge__(self, other: Any) -> bool:
        return self._sign(other) >= 0.0

    __hash__ = object.__hash__

    def __round__(self, digits: int | None = None) -> Series:
        return self

    def __float__(self) -> float:
        raise LimitError("the width is a symbol: write n**0.5 instead of math.sqrt(n)")

    __index__ = __int__ = __float__

    def run_primitive(self, function: Callable[..., Any], args: Any, named: Any) -> Any:
        """Return a root; other functions of the width have no expansion."""
        if function.__name__ != "sqrt":
            raise LimitError(f"{function.__name__} of the width is not expanded")
        return self**0.5

    @property
    def grows(self) -> bool:
        """Whether this is a multiple of the width to leading order."""
        return self.power == -2


class TestedParameters(Parameters):
    """Parameters of a block as `Known` numbers.

    Test values are near the parameters and within their ranges, and different for different ones,
    so that no formula is mistaken for another. With `exact` they are the parameters themselves.
    """

    __test__ = False  # for pytest

    def __init__(
        self, block: Any, p: Any, exact: bool = False, place: tuple[int, ...] = ()
    ) -> None:
        self._block, self._p, self._exact, self._place = block, p, exact, place

    def __getattr__(self, name: str) -> Any:
        value, field = getattr(self._p, name), getattr(self._block, name)
        if isinstance(value, Known):
            return Known(value, value.test, value.name)
        if isinstance(value, Scalar | Tensor) or isinstance(field, float | Schedule):
            # Numbers too: the noise is then the same, whatever stands for the parameters.
            return Known(value, self._test(name, value), (self._place, name))
        if inner := blocks_in(field):
            values = value if isinstance(field, tuple) else (value,)
            pairs = enumerate(zip(inner, values, strict=True))
            inside = [TestedParameters(x, p, self._exact, (*self._place, i)) for i, (x, p) in pairs]
            return like(field, inside)
        return value

    def _test(self, name: str, value: Any) -> float:
        if isinstance(value, Scalar):
            number = float(np.asarray(value.evaluate(np.array([_DEPTH]))).ravel()[0])
        else:
            number = float(value.detach() if isinstance(value, Tensor) else value)
        if self._exact:
            return number
        place = zlib.crc32(f"{type(self._block).__name__}.{name}".encode()) / 2**32
        away = _NEARBY * (0.5 + place)
        low, high = ranges_of(self._block).get(name, (-math.inf, math.inf))
        for moved in (number * (1.0 - away), number * (1.0 + away), number + away, number - away):
            if low < moved < high and moved != number:
                return moved
        return number
