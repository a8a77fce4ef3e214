"""Ito jets of small matrices: eps^power (M + eps (D + G) + eps^2 E), eps = n^(-1/2).

M, D and E are known matrices, E the mean of the second-order coefficient, and G is noise of mean 0.
Ito's formula gives the jet of a function; noise of order eps^2 does not matter.

    (A B).G = A.M B.G + A.G B.M
    (A B).E = A.M B.E + A.E B.M + A.D B.D + E[A.G B.G]
    f(A).E  = f' o A.E + f'' / 2 o (E[A.G o A.G] + A.D o A.D)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.blocks.limits.algebra import Algebra
from shaped_attention.blocks.limits.covariations import covariation, entrywise_covariation
from shaped_attention.blocks.limits.noise import Noise
from shaped_attention.blocks.limits.numbers import Known, LimitError
from shaped_attention.blocks.limits.series import Series
from shaped_attention.blocks.limits.small import Matrix, Small
from shaped_attention.libraries import Tensor
from shaped_attention.numerics import primitives
from shaped_attention.numerics.graph import Extended
from shaped_attention.numerics.scalars import Scalar

Number = float | int | Known | Series | Scalar


def _sigmoid_slope(x: Any) -> Any:
    s = primitives.sigmoid(x)
    return s * (1.0 - s)


def _gauss(x: Any) -> Any:
    return (2.0 * math.pi) ** -0.5 * primitives.exp(-0.5 * (x * x))


def _tanh_slope(x: Any) -> Any:
    t = primitives.tanh(x)
    return 1.0 - t * t


Function = Callable[[Any], Any]

SMOOTH: dict[str, tuple[Function, Function, Function]] = {
    "exp": (primitives.exp, primitives.exp, primitives.exp),
    "normal_cdf": (primitives.normal_cdf, _gauss, lambda x: (-1.0) * x * _gauss(x)),
    "reciprocal": (lambda x: 1.0 / x, lambda x: -1.0 / (x * x), lambda x: 2.0 / (x * x * x)),
    "sigmoid": (
        primitives.sigmoid, _sigmoid_slope,
        lambda x: _sigmoid_slope(x) * (1.0 - 2.0 * primitives.sigmoid(x)),
    ),
    "softplus": (primitives.softplus, primitives.sigmoid, _sigmoid_slope),
    "sqrt": (
        primitives.sqrt, lambda x: 0.5 / primitives.sqrt(x),
        lambda x: -0.25 / (x * primitives.sqrt(x)),
    ),
    "tanh": (
        primitives.tanh, _tanh_slope, lambda x: -2.0 * (primitives.tanh(x) * _tanh_slope(x))
    ),
}  # fmt: skip
"""Smooth functions of single entries, with two derivatives."""


class Jet(Extended):
    """A jet (see the module); its shape is that of a small matrix."""

    __slots__ = ("D", "E", "G", "M", "algebra", "power", "shape")

    def __init__(
        self, algebra: Algebra, shape: tuple[int, int], M: Matrix = None, D: Matrix = None,
        G: Noise | None = None, E: Matrix = None, power: int = 0,
    ) -> None:  # fmt: skip
        self.algebra, self.shape, self.power = algebra, shape, power
        self.M, self.D, self.G, self.E = M, D, Noise(algebra) if G is None else G, E

    @classmethod
    def of(cls, algebra: Algebra, x: Any) -> Jet:
        """Return a known matrix, or an array of numbers, as a jet."""
        if isinstance(x, Jet):
            return x
        known = x if isinstance(x, Small) else algebra.constant(x)
        rows, columns = np.shape(x) if known is None else known.shape
        return cls(algebra, (rows, columns), known)

    def at(self, power: int) -> Jet:
        """Return the same jet with another power of eps.

        Raises
        ------
        LimitError
            If that would be a negative one.
        """
        a, x = self.algebra, self
        while x.power > power:
            x = Jet(a, x.shape, None, x.M, None, x.D, x.power - 1)
        while x.power < power:
            if x.M is not None:
                raise LimitError("scores or weights grow with the width")
            if x.G:
                raise LimitError(
                    "scores of order one are random in every layer: they are divided by too small "
                    "a power of n"
                )
            if x.D is not None or x.E is not None:
                raise LimitError("a product of small terms is multiplied by a power of n")
            x = Jet(a, x.shape, power=x.power + 1)
        return x

    @property
    def mT(self) -> Jet:
        """The transpose."""
        T, (rows, columns) = self.algebra.transposed, self.shape
        known = (T(self.M), T(self.D), self.G.transposed(), T(self.E))
        return Jet(self.algebra, (columns, rows), *known, self.power)

    def scaled(self, number: Number) -> Jet:
        """Return a multiple."""
        c, a = Series.of(number), self.algebra
        first, second, third = c.c
        return Jet(
            a,
            self.shape,
            a.scaled(first, self.M),
            a.total(a.scaled(first, self.D), a.scaled(second, self.M)),
            self.G.scaled(first),
            a.total(a.scaled(first, self.E), a.scaled(second, self.D), a.scaled(third, self.M)),
            self.power + c.power,
        )

    def _other(self, x: Any) -> Jet | None:
        """Return an operand as a jet; None if its own operators come first."""
        if isinstance(x, Jet):
            return x
        if isinstance(x, Small | Tensor) or not hasattr(x, "run_primitive"):
            return Jet.of(self.algebra, x)
        return None

    def __add__(self, other: Any) -> Jet:
        a = self.algebra
        if isinstance(other, Number):
            other = Jet(a, self.shape, a.ones(*self.shape)).scaled(other)
        y = self._other(other)
        if y is None:
            return NotImplemented
        power = min(self.power, y.power)
        shape = np.broadcast_shapes(self.shape, y.shape)
        u, v = self.at(power).spread(shape), y.at(power).spread(shape)
        return Jet(
            a, u.shape, a.plus(u.M, v.M), a.plus(u.D, v.D), u.G.plus(v.G), a.plus(u.E, v.E), power
        )

    __radd__ = __add__

    def spread(self, shape: tuple[int, ...]) -> Jet:
        """Repeat a column or a row."""
        x = self
        if x.shape[1] < shape[1]:
            x = x @ Jet.of(x.algebra, np.ones((1, shape[1])))
        if x.shape[0] < shape[0]:
            x = Jet.of(x.algebra, np.ones((shape[0], 1))) @ x
        return x

    def __matmul__(self, other: Any) -> Jet:
        a, v = self.algebra, self._other(other)
        if v is None:
            return NotImplemented
        u, mm = self, a.product
        return Jet(
            a,
            (u.shape[0], v.shape[1]),
            mm(u.M, v.M),
            a.plus(mm(u.M, v.D), mm(u.D, v.M)),
            u.G.right(v.M).plus(v.G.left(u.M)),
            a.total(mm(u.M, v.E), mm(u.E, v.M), mm(u.D, v.D), covariation(a, u.G, v.G)),
            u.power + v.power,
        )

    def __rmatmul__(self, other: Any) -> Jet:
        return Jet.of(self.algebra, other) @ self

    def __mul__(self, other: Any) -> Jet:
        if isinstance(other, Number):
            return self.scaled(other)
        a, v = self.algebra, self._other(other)
        if v is None:
            return NotImplemented
        u, had = self, a.times
        if u.shape[1] == 1 < v.shape[1]:
            u, v = v, u
        rows, columns = np.broadcast_shapes(u.shape, v.shape)
        second: Matrix = None
        if u.G and v.G and v.shape == (rows, 1):
            second = covariation(a, v.G.columns_as_diagonals(), u.G)
        elif u.G and v.G:
            second = entrywise_covariation(a, u.G, v.G)
        return Jet(
            a,
            (rows, columns),
            had(u.M, v.M),
            a.plus(had(u.M, v.D), had(u.D, v.M)),
            u.G.times(v.M).plus(v.G.times(u.M)),
            a.total(had(u.M, v.E), had(u.E, v.M), had(u.D, v.D), second),
            u.power + v.power,
        )

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Jet:
        if isinstance(other, Number):
            return self.scaled(Series.of(other) ** -1.0)
        v = self._other(other)
        return NotImplemented if v is None else self * v.reciprocal()

    def __rtruediv__(self, other: Any) -> Jet:
        return self.reciprocal() * other

    def __pow__(self, power: float | int) -> Jet:
        if power == -1.0:
            return self.reciprocal()
        return self.root() if power == 0.5 else super().__pow__(power)

    def reciprocal(self) -> Jet:
        """Return 1 / x, entry by entry."""
        if self.M is None:
            raise LimitError("a number that tends to 0 divides")
        return self._of_leading("reciprocal", -self.power)

    def root(self) -> Jet:
        """Return the square root, entry by entry."""
        if self.M is None or self.power % 2:
            raise LimitError("the root of a number that tends to 0 has no expansion")
        return self._of_leading("sqrt", self.power // 2)

    def _of_leading(self, name: str, power: int) -> Jet:
        """Return eps^power times a function of the entries without their power."""
        inner = Jet(self.algebra, self.shape, self.M, self.D, self.G, self.E)
        result = inner.function(name)
        result.power = power
        return result

    def diagonal(self) -> Jet:
        """Return the diagonal, a column."""
        d, column = self.algebra.diagonal, (self.shape[0], 1)
        known = d(self.M), d(self.D), self.G.diagonal(), d(self.E)
        return Jet(self.algebra, column, *known, self.power)

    def square_of_noise(self) -> Matrix:
        """Return E[G o G] + D o D."""
        a, g = self.algebra, self.G
        if g and self.shape[1] == 1 < self.shape[0]:
            square = covariation(a, g.columns_as_diagonals(), g)
        else:
            square = entrywise_covariation(a, g, g)
        return a.plus(square, a.times(self.D, self.D))

    def function(self, name: str) -> Jet:
        """Return a smooth function of the entries."""
        a, u = self.algebra, self.at(0)
        point = a.zeros(u.shape) if u.M is None else u.M
        values = [a.run((name, k), (point,), d) for k, d in enumerate(SMOOTH[name])]
        f0, f1, f2 = values
        curved = a.scaled(0.5, a.times(f2, u.square_of_noise()))
        return Jet(
            a, u.shape, f0, a.times(f1, u.D), u.G.times(f1), a.plus(a.times(f1, u.E), curved)
        )

    def run_primitive(self, function: Callable[..., Any], args: Any, named: Any) -> Jet:
        """Return a primitive of small matrices."""
        a, name = self.algebra, function.__name__
        if name == "constant":
            return Jet.of(a, np.asarray(args[0]))
        if name == "row_sums":
            return self @ np.ones((self.shape[1], 1))
        if name == "column_sums":
            return Jet.of(a, np.ones((1, self.shape[0]))) @ self
        if name == "diagonal":
            return self.diagonal()
        if name == "softmax":
            return self.softmax(np.asarray(args[1]))
        if name == "sqrt":
            return self.root()
        if name in SMOOTH:
            return self.function(name)
        raise LimitError(f"{name} of scores or of other small matrices has no rule")

    def softmax(self, seen: NDArray[Any]) -> Jet:
        """Return u / rowsum u, u = w o exp(logits - their leading order)."""
        a, u = self.algebra, self.at(0)
        lead = a.zeros(u.shape) if u.M is None else u.M

        name = ("softmax", seen.tobytes())
        w = a.run(name, (lead,), lambda y: primitives.softmax(y, seen))
        small = Jet(a, u.shape, None, u.D, u.G, u.E)
        curved = a.scaled(0.5, small.square_of_noise())
        top = Jet(a, u.shape, w, a.times(w, u.D), u.G.times(w), a.times(w, a.plus(u.E, curved)))
        return top / (top @ np.ones((u.shape[1], 1)))
