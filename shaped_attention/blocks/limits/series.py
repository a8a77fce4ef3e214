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
from numpy.typing import NDArray

from shaped_attention.blocks.parameters import (
    Parameters,
    Schedule,
    blocks_in,
    like,
    ranges_of,
    value_at,
)
from shaped_attention.numerics.graph import Operand
from shaped_attention.numerics.primitives import constant

_DEPTH = 0.37
"""Relative depth of the test point."""

_NEARBY = 0.07
"""Relative distance of the test value of a parameter from the parameter."""


class LimitError(ValueError):
    """A branch has no limit, or none that can be derived; the message says why."""


class Point:
    """Parameters, and F or V, at which what was derived is evaluated.

    They are tensors, matrices and scalars of a graph, jets, or text.
    """

    def __init__(self, p: Any, factor: Any, v: Any = None, direction: Any = None) -> None:
        self.p, self.factor, self.v, self.direction = p, factor, v, direction
        self._values: dict[Any, Any] = {}

    def value(self, key: Any, make: Callable[[Point], Any]) -> Any:
        """Return what belongs to a key, made once."""
        if key not in self._values:
            self._values[key] = make(self)
        return self._values[key]

    def constant(self, entries: NDArray[np.float64]) -> Any:
        """Return a constant matrix."""
        like = self.v if self.factor is None else self.factor
        key = entries.shape, entries.tobytes()
        return self.value(key, lambda _: constant(entries, like=like))


class Known(Operand):
    """A parameter or a formula, with its value at the test point.

    Attributes
    ----------
    test
        Its value at the test point, by which decisions are made.
    name
        What distinguishes it from others, whatever their values.
    """

    __slots__ = ("_make", "name", "test")

    def __init__(self, make: Callable[[Point], Any], test: float, name: Hashable) -> None:
        self._make, self.test, self.name = make, test, name

    def at(self, point: Point) -> Any:
        """Return its value for other parameters: a formula, a number or a tensor."""
        return point.value(self, self._make)

    def _with(self, other: Any, function: Callable[[Any, Any], Any], swapped: bool = False) -> Any:
        if not isinstance(other, Known | float | int):
            return NotImplemented
        x, y = (other, self) if swapped else (self, other)
        name = function, identity_of(x), identity_of(y)

        def make(point: Point) -> Any:
            return function(number_at(x, point), number_at(y, point))

        return Known(make, function(test_value(x), test_value(y)), name)

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
        return Known(lambda point: function(self.at(point)), float(function(self.test)), name)


Coefficient: TypeAlias = float | int | Known


def test_value(number: Any) -> float:
    """Return a number at the test point."""
    return number.test if isinstance(number, Known) else float(number)


def number_at(number: Any, point: Point) -> Any:
    """Return a number for other parameters."""
    return number.at(point) if isinstance(number, Known) else number


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
    `reach` finds the parameters of the block among those of the one that it is inside of.
    """

    __test__ = False  # for pytest

    def __init__(
        self, block: Any, exact: bool = False, reach: Callable[[Any], Any] = lambda p: p,
        place: tuple[Any, ...] = (),
    ) -> None:  # fmt: skip
        self._block, self._exact, self._reach, self._place = block, exact, reach, place

    def __getattr__(self, name: str) -> Any:
        field, place = getattr(self._block, name), (*self._place, name)
        if isinstance(field, float | Schedule) or name in ranges_of(self._block):
            test = self._test(name, float(value_at(field, _DEPTH)))
            return Known(lambda point: getattr(self._reach(point.p), name), test, place)
        if not (inner := blocks_in(field)):
            return field

        def inside(index: int) -> Callable[[Any], Any]:
            def reach(p: Any) -> Any:
                found = getattr(self._reach(p), name)
                return found[index] if isinstance(field, tuple) else found

            return reach

        return like(
            field,
            [TestedParameters(x, self._exact, inside(i), (*place, i)) for i, x in enumerate(inner)],
        )

    def _test(self, name: str, number: float) -> float:
        if name == "gamma" and getattr(self._block, "skip", None) is not None:
            number = number / (1.0 + number**2) ** 0.5  # a norm sees to it
        if self._exact:
            return number
        place = zlib.crc32(f"{type(self._block).__name__}.{name}".encode()) / 2**32
        away = _NEARBY * (0.5 + place)
        low, high = ranges_of(self._block).get(name, (-math.inf, math.inf))
        for moved in (number * (1.0 - away), number * (1.0 + away), number + away, number - away):
            if low < moved < high and moved != number:
                return moved
        return number
