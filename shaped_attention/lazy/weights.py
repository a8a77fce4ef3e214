"""The parameters of a network on rows, made when they are first used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from shaped_attention.checks import check_count, check_new_name
from shaped_attention.lazy.matrices import Matrix
from shaped_attention.lazy.parameters import Parameter
from shaped_attention.lazy.side_by_side import Gain, SideBySide, ZeroMatrix
from shaped_attention.lazy.space import new_rows
from shaped_attention.rows.joining import apart
from shaped_attention.rows.rows import Rows
from shaped_attention.rows.sources import Source
from shaped_attention.rows.spaces import AnySpace, Frame, Open
from shaped_attention.rows.values import Plain, differentiable


@dataclass(frozen=True)
class Stored:
    """How a library stores matrices of a block that take the same rows.

    A block asks for products with matrices of N(0, 1) entries, and multiplies its branch by what
    makes up for that. With a matrix W of standard deviation s, `std`, and a bias b of the library
    it is given (x W + b / c) / s, where the block, but not the library, has divided x by c, the
    `divisor`. `members` are the numbers of the products of the block's branch that each parameter
    holds, by its name; if these are several matrices, `sections` are the products of each. `biases`
    are the names of biases, by that of the parameter to whose product they are added; `norm_gain`
    and `norm_bias` are those of the norm in front of the matrices. They may be stored as (inputs,
    outputs), `by_inputs`.
    """

    members: dict[str, list[int]]
    std: float = 1.0
    sections: dict[str, list[list[int]]] = field(default_factory=dict)
    biases: dict[str, str] = field(default_factory=dict)
    divisor: float = 1.0
    norm_bias: str = ""
    norm_gain: str = ""
    by_inputs: bool = False

    @property
    def products(self) -> list[int]:
        """All products, in the order of the branch."""
        return sorted(number for members in self.members.values() for number in members)


class Weights(dict[str, Parameter]):
    """The parameters of a network by name, made with their `matrices` at their first use."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.source = source
        self.matrices: list[Matrix] = []
        self._single: dict[str, Matrix] = {}
        self._places: dict[str, tuple[SideBySide, int]] = {}

    def product(
        self, x: Rows, b: AnySpace, name: str, std: float = 1.0, hidden: bool = True
    ) -> Rows:
        """Return the product with a matrix of this name, of N(0, std^2) entries."""
        if name not in self:
            matrix = Matrix(x.space, b, std, name)
            self._keep(matrix, [Parameter(matrix, name, hidden=hidden)])
        return x @ self._single[name]

    def looked_up(self, x: Rows, name: str) -> Rows:
        """Return the product with the transpose of a matrix."""
        return x @ self._single[name].T

    def bias(self, space: AnySpace, name: str) -> Rows:
        """Return a row that starts at 0."""
        return self.product_with_zero(ones(self.source), space, name)

    def gain(self, space: AnySpace, name: str) -> Rows:
        """Return a row that starts at (1, ..., 1)."""
        return self.product_with_zero(ones(self.source), space, name, Gain)

    def after_norm(self, x: Rows, gain: str, bias: str, prefix: str = "") -> Rows:
        """Return normalised rows with gain and bias of these names; "" for none.

        Gains act on entries, and are parameters only if all spaces are explicit.
        """
        tokens: Any = x
        if gain and self.source.explicit:
            tokens = self.gain(tokens.space, prefix + gain) * tokens
        if bias:
            tokens = tokens + self.bias(tokens.space, prefix + bias)
        rows: Rows = tokens
        return rows

    def product_with_zero(
        self, x: Rows, space: AnySpace, name: str, kind: type[ZeroMatrix] = ZeroMatrix
    ) -> Rows:
        """Return the product with a matrix of this name that starts at 0, or as the kind says."""
        if name not in self:
            matrix = kind(x.space, space, name=name)
            self._keep(matrix, [Parameter(matrix, name, hidden=False)])
        return x @ self._single[name]

    def _keep(self, matrix: Matrix, parameters: list[Parameter]) -> None:
        """Add a matrix with the parameters that it holds."""
        matrix.parameters = parameters
        self.matrices.append(matrix)
        for parameter in parameters:
            self[parameter.name], self._single[parameter.name] = parameter, matrix

    def block(
        self, name: str, stored: Sequence[Stored] = (), prefix: str = ""
    ) -> Callable[[Any, int], Any]:
        """Return ``project(x, columns)`` for a block, which uses its matrices in their order.

        Those that take the same rows are parts of one matrix. Without a word on how they are
        stored, each is a parameter, "name.0", "name.1", ...; names of those begin with `prefix`.
        """
        numbers, taken = count(), set[tuple[str, int]]()
        groups = {number: group for group in stored for number in group.products}
        seen: dict[str, Rows] = {}
        products: dict[int, tuple[Rows, list[Rows]]] = {}

        def project(x: Any, columns: int, kind: str | None = None, head: int = 0) -> Any:
            check_count("columns", columns)
            check_new_name(taken, kind, head)
            number = next(numbers)
            own, group = f"{name}.{number}", groups.get(number)
            if isinstance(x, Plain):
                # A bias is the product of the number 1 with a matrix of one row.
                size, constant = x.shape[-1], not differentiable(x)
                entries = x if constant else self.source.constant(np.eye(size))
                rows = new_rows(Frame(size, self.source, explicit=True), entries)
                result = self.product(rows, Open(columns, self.source), own, hidden=size > 1)
                return result if constant else x @ result
            if group is not None and (group.norm_bias or group.norm_gain):
                key = group.norm_gain + group.norm_bias
                if key not in seen:
                    seen[key] = self.after_norm(x, group.norm_gain, group.norm_bias, prefix)
                x = seen[key]
            if own not in self._places:
                result = self._first_product(x, columns, own, group, prefix)
            else:
                matrix, place = self._places[own]
                if products.get(id(matrix), (None,))[0] is not x:
                    products[id(matrix)] = x, apart(matrix.product(x))
                result = products[id(matrix)][1][place]
            return result if group is None or group.std == 1.0 else result / group.std

        return project

    def _first_product(
        self, x: Rows, columns: int, name: str, group: Stored | None, prefix: str
    ) -> Rows:
        """Return the product with a new matrix, stored with those that take the same rows."""
        matrix = next(
            (w for w, _ in self._places.values() if w.rows is x and w.stored is group), None
        )
        if matrix is None:
            std = 1.0 if group is None else group.std
            matrix = SideBySide(x, columns, std, f"{name}, together")
            matrix.stored = group
            self._keep(matrix, [])
            if group is not None:
                self._keep_stored(group, matrix, prefix)
        else:
            matrix.append(columns)
        place = len(matrix.outputs.parts) - 1
        self._places[name] = matrix, place
        if group is None:
            self[name] = Parameter(matrix, name, [place])
            matrix.parameters.append(self[name])
        return matrix.first_product(name)

    def _keep_stored(self, group: Stored, matrix: SideBySide, prefix: str) -> None:
        """Add the parameters of a library that a matrix holds."""
        place = {number: index for index, number in enumerate(group.products)}
        for name, numbers in group.members.items():
            sections = [[place[k] for k in part] for part in group.sections.get(name, ())]
            held = [place[k] for k in numbers]
            whole = f"{prefix}{name}"
            self[whole] = Parameter(matrix, whole, held, True, group.by_inputs, sections)
            matrix.parameters.append(self[whole])
        if group.biases:
            one = ones(self.source, 1.0 / group.divisor)
            bias = ZeroMatrix(one.space, matrix.outputs, name=f"{matrix.name}, bias")
            held_by = {f"{prefix}{group.biases[x]}": self[f"{prefix}{x}"].members
                       for x in group.members if x in group.biases}  # fmt: skip
            self._keep(bias, [Parameter(bias, name, held, False) for name, held in held_by.items()])
            matrix.bias = bias, one


def ones(source: Source, value: float = 1.0) -> Rows:
    """Return the row (value) of a space of dimension 1."""
    return new_rows(Frame(1, source, explicit=True), source.constant([[value]]))
