"""Numbers while a limit is derived: polynomials in the parameters, with a value at a test point."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import reduce
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

_SMALLEST, _LARGEST = 0.2, 5.0
"""Test values of parameters other than 0: at extreme ones, terms would look like rounding."""

OUTSIDE = "a parameter is outside its range"

_ROUNDING = 4e-15
"""Relative size of a sum of numbers that is 0."""


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
        given = self.v if self.factor is None else self.factor
        key = entries.shape, entries.tobytes()
        return self.value(key, lambda _: constant(entries, like=given))


@dataclass(frozen=True)
class Atom:
    """A parameter, or a function of a polynomial, with its value at the test point."""

    name: Hashable
    make: Callable[[Point], Any] = field(compare=False, repr=False)
    test: float = field(compare=False, repr=False)
    positive: bool = field(compare=False, repr=False, default=False)
    inside: Known | None = field(compare=False, repr=False, default=None)


Monomial: TypeAlias = tuple[tuple[Atom, float], ...]
"""Atoms with powers, in the order of their names."""


class Known(Operand):
    """A polynomial in the parameters; powers may be negative or broken."""

    __slots__ = ("name", "terms", "test")

    def __init__(self, terms: Mapping[Monomial, float]) -> None:
        # In an order that is the same in every process, since rounding depends on it.
        self.terms = dict(sorted(terms.items(), key=repr))
        self.name = tuple(self.terms.items())
        test = sum(c * _product(x, lambda a: a.test) for x, c in terms.items())
        if isinstance(test, complex) or not math.isfinite(test):
            raise LimitError(OUTSIDE)
        self.test = float(test)

    @classmethod
    def of_atom(cls, atom: Atom, power: float = 1.0) -> Known:
        """Return a power of an atom."""
        return cls({((atom, power),): 1.0})

    def at(self, point: Point) -> Any:
        """Return its value for other parameters: a formula, a number or a tensor."""
        return point.value(self.name, self._value)

    def _value(self, point: Point) -> Any:
        def one(monomial: Monomial, c: float) -> Any:
            if not monomial:
                return c
            product = _product(monomial, lambda a: point.value(a, a.make))
            return product if c == 1.0 else c * product

        parts = [one(*x) for x in self.terms.items()]
        return sum(parts[1:], parts[0])

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, Known | float | int):
            return NotImplemented
        total, sizes = dict(self.terms), {x: abs(c) for x, c in self.terms.items()}
        for x, c in _terms(other).items():
            total[x], sizes[x] = total.get(x, 0.0) + c, sizes.get(x, 0.0) + abs(c)
        return _simplest({x: c for x, c in total.items() if abs(c) > _ROUNDING * sizes[x]})

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, Known | float | int):
            return NotImplemented
        total: Any = 0.0
        for x, c in self.terms.items():
            for y, d in _terms(other).items():
                total = total + _multiplied(x, y, c * d)
        return total

    def __truediv__(self, other: Any) -> Any:
        if not isinstance(other, Known | float | int):
            return NotImplemented
        return self * other**-1.0

    def __rtruediv__(self, other: Any) -> Any:
        return other * self**-1.0

    def __pow__(self, power: float | int) -> Any:
        whole = float(power).is_integer()
        if len(self.terms) == 1:
            ((monomial, c),) = self.terms.items()
            if whole or (c > 0.0 and all(a.positive for a, _ in monomial)):
                raised = tuple((a, k * power) for a, k in monomial)
                return _multiplied(raised, (), float(c**power))
        if whole and power > 0:
            return reduce(lambda x, y: x * y, [self] * int(power))
        atom = Atom(self.name, self.at, self.test, self.test > 0.0, self)
        return Known.of_atom(atom, float(power))

    __radd__, __rmul__ = __add__, __mul__

    def run_primitive(self, function: Callable[..., Any], args: Any, named: Any) -> Any:
        """Return the value of a function of numbers."""
        if function.__name__ == "sqrt":
            return self**0.5
        name = function.__name__, self.name
        test = float(function(self.test))
        return Known.of_atom(Atom(name, lambda point: function(self.at(point)), test))


Coefficient: TypeAlias = float | int | Known


def _terms(number: Any) -> dict[Monomial, float]:
    """Return a number as a polynomial."""
    if isinstance(number, Known):
        return number.terms
    return {(): float(number)} if number else {}


def _simplest(terms: Mapping[Monomial, float]) -> Any:
    if not terms:
        return 0.0
    return terms[()] if list(terms) == [()] else Known(terms)


def _product(monomial: Monomial, value: Callable[[Atom], Any]) -> Any:
    powers = (value(a) if k == 1.0 else value(a) ** k for a, k in monomial)
    return reduce(lambda x, y: x * y, powers) if monomial else 1.0


def _multiplied(x: Monomial, y: Monomial, c: float) -> Any:
    """Return a product; an atom that is a polynomial is one again where its power is whole."""
    powers: dict[Atom, float] = {}
    for atom, power in (*x, *y):
        powers[atom] = powers.get(atom, 0.0) + power
    kept, whole = [], []
    for atom, k in powers.items():
        if atom.inside is not None and k > 0.0 and float(k).is_integer():
            whole.append(atom.inside**k)
        elif k != 0.0:
            kept.append((atom, k))
    return reduce(lambda x, y: x * y, whole, _simplest({tuple(sorted(kept, key=repr)): c}))


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
        of_class = getattr(type(self._block), name, None)
        if isinstance(of_class, float) and name not in vars(self._block):
            return of_class
        if isinstance(field, float | Schedule) or name in ranges_of(self._block):
            test = self._test(name, float(value_at(field, _DEPTH)))
            positive = ranges_of(self._block).get(name, (-1.0, 1.0))[0] >= 0.0 and test > 0.0
            return Known.of_atom(
                Atom(place, lambda point: getattr(self._reach(point.p), name), test, positive)
            )
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
        if number != 0.0:
            number = math.copysign(min(max(abs(number), _SMALLEST), _LARGEST), number)
        words = f"{type(self._block).__name__}.{self._place}.{name}"
        place = zlib.crc32(words.encode()) / 2**32
        away = _NEARBY * (0.5 + place)
        low, high = ranges_of(self._block).get(name, (-math.inf, math.inf))
        for moved in (number * (1.0 - away), number * (1.0 + away), number + away, number - away):
            if low < moved < high and moved != number:
                return moved
        return number
