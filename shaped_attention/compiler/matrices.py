"""Matrices in emitted code: where their entries are, products in blocks, loops over entries.

A product keeps a block of up to 4 x 4 sums in registers while the inner index runs. Each sum runs
in the order of its index, so the rounding of an entry does not depend on its block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.text import Int, Real, hexadecimal


@dataclass(frozen=True)
class View:
    """A matrix in memory: entry (i, j) is in row `offset` + i `down` + j `along` of `base`.

    Of a matrix whose entries are single doubles, the same for all lanes, `shared` is true. Those of
    a constant are in `data`.
    """

    base: str
    offset: Int
    down: int
    along: int = 1
    shared: bool = False
    data: NDArray[np.float64] | None = field(default=None, compare=False)

    @classmethod
    def of(cls, data: NDArray[np.float64]) -> View:
        """Return a constant matrix."""
        return cls("", 0, data.shape[1], shared=True, data=data)

    @property
    def mT(self) -> View:
        """The transpose."""
        return replace(self, down=self.along, along=self.down)

    def row(self, e: Emitter, i: Int, j: Int) -> Int:
        """Return the row of an entry."""
        if isinstance(i, int) and isinstance(j, int) and isinstance(self.offset, int):
            return self.offset + i * self.down + j * self.along
        return e.add(self.offset, e.add(e.mul(i, self.down), e.mul(j, self.along)))

    def load(self, e: Emitter, i: Int, j: Int) -> Real:
        """Emit an entry; numbers that are known are folded."""
        row, base = self.row(e, i, j), self.base
        if not self.shared:
            return e.load_row(base, row)
        if self.data is not None:
            known = 0 if self._uniform else row
            if isinstance(known, int):
                return float(self.data.flat[known])
            base = e.constant("double", [hexadecimal(x) for x in self.data.flat])
        return e.number(base, row)

    def store(self, e: Emitter, x: Real, i: Int, j: Int) -> None:
        """Emit writing an entry."""
        e.store_row(x, self.base, self.row(e, i, j))

    def stretched(self, shape: tuple[int, int]) -> View:
        """Return a row, a column or a single entry of that shape as a matrix of any size."""
        return replace(
            self, down=self.down if shape[0] > 1 else 0, along=self.along if shape[1] > 1 else 0
        )

    def columns(self, first: int) -> View:
        """Return the columns from one on."""
        return replace(self, offset=_plus(self.offset, first * self.along))

    def rows(self, first: int) -> View:
        """Return the rows from one on."""
        return replace(self, offset=_plus(self.offset, first * self.down))

    def reshaped(self, shape: tuple[int, int]) -> View:
        """Return the entries of a contiguous matrix in the same order."""
        return replace(self, down=shape[1])

    def diagonal(self) -> View:
        """Return the diagonal as a column."""
        return replace(self, down=self.down + self.along, along=0)

    def contiguous(self, columns: int) -> bool:
        """Return whether entries follow each other row by row, or are all the same."""
        return self._uniform or (self.along == 1 and self.down == columns)

    @property
    def _uniform(self) -> bool:
        return self.data is not None and bool((self.data == self.data.flat[0]).all())


def _plus(offset: Int, more: int) -> Int:
    assert isinstance(offset, int)
    return offset + more


@dataclass(frozen=True)
class Zeros:
    """Where a product has zeros that it skips.

    `lower` is that the entries of A beyond k = i are zero, `upper` those before; and of B, in k and
    j, those before k = j (`b_lower`) and beyond (`b_upper`).
    """

    lower: bool = False
    upper: bool = False
    b_lower: bool = False
    b_upper: bool = False


NONE = Zeros()


def dots(
    e: Emitter,
    a: View,
    b: View,
    place: tuple[Int, Int],
    size: tuple[int, int],
    inner: tuple[Int, Int],
    start: Sequence[Real] | None = None,
    minus: bool = False,
    may_be_empty: bool = False,
) -> list[Real]:
    """Emit a block of sums over k of A_ik B_kj, row by row, in registers.

    With `minus` the products are taken off the start.
    """
    (i, j), (high, wide) = place, size

    def add(k: Int, sums: Sequence[Real]) -> list[Real]:
        new = list(sums)
        left = [a.load(e, e.add(i, x), k) for x in range(high)]
        if minus:
            left = [e.neg(x) for x in left]
        for y in range(wide):
            right = b.load(e, k, e.add(j, y))
            for x in range(high):
                new[x * wide + y] = e.fma(left[x], right, new[x * wide + y])
        return new

    sums = [0.0] * (high * wide) if start is None else start
    return e.loop(*inner, 1, add, sums, may_be_empty)


def multiply(
    e: Emitter,
    out: View,
    a: View,
    b: View,
    shape: tuple[int, int, int],
    zeros: Zeros = NONE,
    *,
    half: bool = False,
    adding: bool = False,
) -> None:
    """Emit the product of A (rows, inner) and B (inner, columns).

    With `half` the product is symmetric, and one half is computed; with `adding` it is added to
    what is there.
    """
    rows, inner, columns = shape

    def block(i: Int, j: Int, high: int, wide: int) -> None:
        first: Int = 0
        end: Int = inner
        if zeros.upper:
            first = e.most(first, i)
        if zeros.b_lower:
            first = e.most(first, j)
        if zeros.lower:
            end = e.least(end, e.add(i, high))
        if zeros.b_upper:
            end = e.least(end, e.add(j, wide))
        empty = (zeros.upper or zeros.b_lower) and (zeros.lower or zeros.b_upper)
        places = [(e.add(i, x), e.add(j, y)) for x in range(high) for y in range(wide)]
        start = [out.load(e, *p) for p in places] if adding else None
        sums = dots(e, a, b, (i, j), (high, wide), (first, end), start, may_be_empty=empty)
        for p, x in zip(places, sums, strict=True):
            out.store(e, x, *p)
            if half:
                out.store(e, x, p[1], p[0])

    def row(i: Int, high: int) -> None:
        if not half:
            e.pieces(columns, e.wide, lambda j, wide: block(i, j, high, wide))
        elif not e.rolled:
            assert isinstance(i, int)
            for x in range(i, i + high):
                for j in range(x + 1):
                    block(x, j, 1, 1)
        else:
            e.loop(0, e.add(i, high), high, lambda j, _: block(i, j, high, high))

    e.pieces(rows, e.high, row)


def entries(
    e: Emitter,
    shape: tuple[int, int],
    body: Callable[[Int, Int], None],
    contiguous: bool = False,
) -> None:
    """Emit `body(i, j)` for all entries; contiguous matrices are one row."""
    rows, columns = (1, shape[0] * shape[1]) if contiguous and e.rolled else shape
    together = next(k for k in (8, 4, 2, 1) if columns % k == 0)

    def row(i: Int, _: object) -> None:
        def some(j: Int, _: object) -> None:
            for k in range(together):
                body(i, e.add(j, k))

        e.loop(0, columns, together, some)

    e.loop(0, rows, 1, row)


def copy(e: Emitter, out: View, a: View, shape: tuple[int, int]) -> None:
    """Emit a copy."""
    flat = a.contiguous(shape[1]) and out.contiguous(shape[1])
    entries(e, shape, lambda i, j: out.store(e, a.load(e, i, j), i, j), flat)


def write(
    e: Emitter,
    out: View,
    a: View,
    shape: tuple[int, int],
    change: Callable[[Real], Real] = lambda x: x,
) -> None:
    """Emit a copy, with a change, to memory that others read."""

    def put(i: Int, j: Int) -> None:
        e.write_row(change(a.load(e, i, j)), out.base, out.row(e, i, j))

    entries(e, shape, put)


def sums(
    e: Emitter, a: View, rows: int, columns: int, squared: bool, put: Callable[[Real, Int], None]
) -> None:
    """Emit the sum of each row, or of its squares, and hand it to `put(sum, i)`."""

    def row(i: Int, high: int) -> None:
        def add(j: Int, totals: Sequence[Real]) -> list[Real]:
            values = [a.load(e, e.add(i, x), j) for x in range(high)]
            if squared:
                return [e.fma(x, x, total) for x, total in zip(values, totals, strict=True)]
            return [e.fadd(x, total) for x, total in zip(values, totals, strict=True)]

        for x, total in enumerate(e.loop(0, columns, 1, add, [0.0] * high)):
            put(total, e.add(i, x))

    e.pieces(rows, 4, row)
