"""The width as a series: n = eps^(-2), and what a branch computes from it to second order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from shaped_attention.blocks.limits.numbers import (
    Coefficient,
    Known,
    LimitError,
    added,
    is_zero,
    test_value,
    times,
)
from shaped_attention.numerics.graph import Operand


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
