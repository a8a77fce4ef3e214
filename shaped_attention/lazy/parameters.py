"""The parameters of a network, as optimisers see them: matrices, or some columns of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from shaped_attention.lazy.low_rank import Coefficient, Factors
from shaped_attention.rows.joining import members
from shaped_attention.rows.rows import Rows
from shaped_attention.rows.spaces import Sum
from shaped_attention.rows.values import Plain

if TYPE_CHECKING:
    from shaped_attention.lazy.matrices import Matrix


class Update(Protocol):
    """What training has added to a matrix: U."""

    def product(self, x: Rows, side: int) -> list[Plain]:
        """Return the parts of x U from the side 0, or of x U^T from the side 1."""


class Parameter:
    """A matrix of a network, or some of the columns of one that holds several side by side.

    Its value is ``kept W_0 + U`` with the update U. `members` are the numbers of the parts of the
    matrix's outputs; None for all columns. Muon acts on it if it is `hidden`, a matrix between
    hidden features. A library may store it as (inputs, outputs), `by_inputs`, or several matrices
    as this one, whose parts are `sections`.
    """

    def __init__(
        self,
        matrix: Matrix,
        name: str,
        members: list[int] | None = None,
        hidden: bool = True,
        by_inputs: bool = False,
        sections: Sequence[list[int]] = (),
    ) -> None:
        self.matrix, self.name, self.members = matrix, name, members
        self.hidden, self.by_inputs, self._sections = hidden, by_inputs, sections
        self.kept: Coefficient = 1.0
        self.update: Update | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns, in W of x W."""
        return self.matrix.shape[0], self._columns(self.members)

    def _columns(self, members: list[int] | None) -> int:
        outputs = self.matrix.outputs
        if members is None:
            return outputs.n
        assert isinstance(outputs, Sum)
        return sum(outputs.parts[i].n for i in members)

    def positions(self, members: list[int] | None = None) -> list[int]:
        """Return the places of its columns in the coordinates of the matrix's outputs."""
        outputs, chosen = self.matrix.outputs, self.members if members is None else members
        if chosen is None:
            return list(range(len(tuple(outputs))))
        assert isinstance(outputs, Sum)
        return outputs.places(chosen)

    def gradient(self) -> Factors | None:
        """Return the gradient of the loss of the last tape; None if it did not meet the matrix."""
        whole = self.matrix.gradient()
        if whole is None or self.members is None:
            return whole
        return Factors(whole.left, self.of(whole.right))

    def of(self, g: Rows) -> Rows:
        """Return its columns of rows of the matrix's outputs."""
        return g if self.members is None else members(g, self.members)

    def sections(self, term: Factors, split: bool) -> list[tuple[Factors, tuple[int, int]]]:
        """Return a term with the shape of its matrix; or what is in each section, 0 elsewhere."""
        if not split or not self._sections:
            return [(term, self.shape)]
        result = []
        for section in self._sections:
            places = self.positions(section)
            parts = [
                part if place in places else torch.zeros_like(part)
                for place, part in zip(self.positions(), term.right.parts, strict=True)
            ]
            right = Rows(term.right.space, tuple(parts))
            result.append((Factors(term.left, right), (self.shape[0], self._columns(section))))
        return result

    def set(self, kept: Coefficient, update: Update | None) -> None:
        """Take the parameter to ``kept W_0 + U``."""
        self.kept, self.update = kept, update

    def with_update(self, parts: Sequence[Tensor], x: Rows, side: int) -> list[Tensor]:
        """Add the product of x with the update to the parts of a product."""
        parts = list(parts)
        if self.update is None:
            return parts
        added = self.update.product(self.of(x) if side else x, side)
        if side == 1:
            return [part + more for part, more in zip(parts, added, strict=True)]
        for place, more in zip(self.positions(), added, strict=True):
            parts[place] = parts[place] + more
        return parts


def scaled(parts: Sequence[Tensor], parameters: Sequence[Parameter]) -> list[Tensor]:
    """Multiply the columns of each parameter by the factor of its Gaussian matrix."""
    parts = list(parts)
    for parameter in parameters:
        if isinstance(parameter.kept, float) and parameter.kept == 1.0:
            continue
        for place in parameter.positions():
            parts[place] = parameter.kept * parts[place]
    return parts
