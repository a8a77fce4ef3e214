"""Matrices that take the same rows, such as those of queries, keys and values.

They are side by side in one matrix [W_1, ..., W_k] from the space of the rows to the sum of their
own spaces: the directions of the rows are split off once, and on the way back the gradient
g_1 W_1^T + ... + g_k W_k^T of r rows adds r directions to the space of the rows, not k r.

What a projection is used for decides what its space is (`spaces.Open`), so that the first products
are drawn one by one, each when it is looked at; after them the matrix is known on all directions of
the rows, and is one like all others.
"""

from __future__ import annotations

from shaped_attention.lazy.matrices import Matrix, Revealed
from shaped_attention.rows.coordinates import Parts, cut
from shaped_attention.rows.directions import spanning
from shaped_attention.rows.rows import Rows
from shaped_attention.rows.spaces import Open, Sum, settled
from shaped_attention.rows.tape import add_gradient, drawn_later, recording
from shaped_attention.rows.values import Plain


class ZeroMatrix(Matrix):
    """A matrix that starts at 0, as biases do."""

    start = 0.0

    def _gaussian(self, x: Rows, side: int) -> Plain:
        size = sum(part.size for part in settled(self._spaces[1 - side]))
        return x.space.source.filled(x.shape[1], size, self.start)


class Gain(ZeroMatrix):
    """A row of ones, which is multiplied by the number 1."""

    start = 1.0


class SideBySide(Matrix):
    """Matrices [W_1, ..., W_k] of independent N(0, std^2) entries that take the rows x.

    `columns` are those of W_1. `rows` are x during the first products, and None after them.
    `stored` is how a library stores them: those that it keeps apart are apart. A
    `bias` consists of a matrix that starts at 0, and the row that it takes: their product is added
    to x W.
    """

    def __init__(self, x: Rows, columns: int, std: float, name: str) -> None:
        self._sum = Sum([Open(columns, x.space.source)])
        super().__init__(x.space, self._sum, std, name)
        self.parameters = []
        self.rows: Rows | None = x
        self.stored: object = None
        self.bias: tuple[ZeroMatrix, Rows] | None = None
        self._split: tuple[Rows, Plain] | None = None
        self._products: list[Rows] = []
        self._images_of: dict[int, Rows] = {}
        self._gradients: dict[int, Rows] = {}

    @property
    def outputs(self) -> Sum:
        """The sum of the spaces of x W_1, ..., x W_k."""
        return self._sum

    def append(self, columns: int) -> None:
        """Add a matrix, during the first products."""
        self._sum.append(Open(columns, self._sum.source))

    def first_product(self, name: str) -> Rows:
        """Return x W_k for the last matrix, whose random numbers have this name."""
        x, number, tape = self.rows, len(self._products), recording()
        assert x is not None
        space, stream = self._sum.parts[-1], x.space.source.stream(name)

        def rule(g: Rows) -> None:
            self._gradients[number] = g

        def make() -> Parts:
            if self._split is None:
                root, basis = spanning(x.coordinates)
                self._split = Rows(x.space, cut(basis, x.space)), root
                if tape is not None:
                    tape.note(None, lambda _: self._back(x))
            units, lower = self._split
            images = self._images(units, Revealed(), space, stream)
            self._images_of[number] = images
            return cut(lower @ images.coordinates, space)

        result = drawn_later(Rows, space, x.shape[1], make, rule, tape is not None)
        self._products.append(result)
        return result

    def product(self, x: Rows) -> Rows:
        """Return [x W_1, ..., x W_k], with the bias, after the first products."""
        self._complete()
        result: Rows = x @ self
        if self.bias is not None:
            matrix, one = self.bias
            result = result + one @ matrix
        return result

    def known_rows(self) -> list[Rows]:
        """Return the directions along which it is known, and their images."""
        return [*super().known_rows(), *self._images_of.values()]

    def _complete(self) -> None:
        """End the first products: from now on it is one matrix."""
        if self.rows is None:
            return
        for x in self._products:
            _ = x.parts
        assert self._split is not None
        parts = tuple(part for k in sorted(self._images_of) for part in self._images_of[k].parts)
        self._revealed[0].append(self._split[0], Rows(self._sum, parts))
        self.rows, self._split = None, None
        self._products.clear()
        self._images_of.clear()

    def _back(self, x: Rows) -> None:
        """Take the gradients of the first products back to the rows, all together."""
        self._complete()
        parts: list[Plain] = []
        for number, space in enumerate(self._sum.parts):
            gradient = self._gradients.pop(number, None)
            if gradient is None:
                parts += [part.source.filled(x.shape[1], part.size, 0.0) for part in space]
            else:
                parts += gradient.parts
        g = Rows(self._sum, tuple(parts))
        self.add_gradient(x, g)
        if self.bias is not None:
            matrix, one = self.bias
            matrix.add_gradient(one, g.summed(1))
        if x.needs_gradient:
            add_gradient(x, self.product_on(1, g))
