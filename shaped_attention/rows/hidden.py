"""Hidden units: functions of single entries. A projection needs only their Gram matrix.

The Gram matrix of hidden units s(h_i), with independent h_i ~ N(0, F F^T), is summed a few units at
a time (`Numbers.activated_gram`). Any other use draws all entries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shaped_attention.numerics.primitives import cholesky, concatenate
from shaped_attention.numerics.scalars import product
from shaped_attention.rows.undrawn import Linear
from shaped_attention.rows.values import Plain


def is_mixed(rows: Linear | Hidden) -> bool:
    """Return whether a function of entries cannot wait: of several spaces, or of mixed rows."""
    return len(rows.terms) > 1 if isinstance(rows, Linear) else rows.mixing is not None


class Hidden:
    """``weight`` times a plain matrix times a function of single entries of some bases.

    The bases are rows that nothing has looked at; their weights are part of the function.
    """

    def __init__(
        self, bases: Sequence[Linear], function: Callable[..., Any], mixing: Plain | None = None,
        weight: Any = 1.0,
    ) -> None:  # fmt: skip
        self.bases, self.function = tuple(bases), function
        self.mixing, self.weight = mixing, weight

    @classmethod
    def of(cls, rows: Linear | Hidden) -> Hidden:
        """Return rows that nothing has looked at as a function of themselves."""
        if isinstance(rows, Hidden):
            return rows
        return cls([rows], lambda x: x, None, rows.weight)

    @classmethod
    def combined(cls, function: Callable[..., Any], operands: Sequence[Linear | Hidden]) -> Hidden:
        """Return a function of the entries of several rows, none of which is mixed."""
        inner = [cls.of(x) for x in operands]
        unique = list({id(base.terms): base for x in inner for base in x.bases}.values())

        def whole(*values: Any) -> Any:
            known = {id(base.terms): v for base, v in zip(unique, values, strict=True)}
            of_each = (x.function(*(known[id(base.terms)] for base in x.bases)) for x in inner)
            weights = (x.weight for x in inner)
            return function(*(product(w, v) for w, v in zip(weights, of_each, strict=True)))

        return cls(unique, whole)

    def scaled(self, number: Any) -> Hidden:
        """Return a multiple."""
        return Hidden(self.bases, self.function, self.mixing, product(self.weight, number))

    def mixed(self, matrix: Plain) -> Hidden:
        """Return the rows mixed by a plain matrix."""
        mixing = matrix if self.mixing is None else matrix @ self.mixing
        return Hidden(self.bases, self.function, mixing, self.weight)

    def drawn(self) -> Plain:
        """Return the entries: all those of the bases are drawn."""
        value = self.function(*(Linear(x.terms, x.spaces).coordinates()[0] for x in self.bases))
        mixed: Any = value if self.mixing is None else self.mixing @ value
        result: Plain = product(self.weight, mixed)  # type: ignore[assignment]
        return result

    def gram_root(self, units: int) -> Plain | None:
        """Return a root of the Gram matrix, up to the weight; None if the entries must be drawn."""
        lefts = [[left for left, _ in base.terms[0]] for base in self.bases]
        used = [u for base in self.bases for _, u in base.terms[0]]
        alike = all(
            len(x) == len(lefts[0]) and all(a is b for a, b in zip(x, lefts[0], strict=True))
            for x in lefts
        )
        rows = lefts[0][0].shape[-2]
        if not alike or len(set(used)) < len(used) or any(u.begun or u.gone for u in used):
            return None
        if units < rows or any(x.shape[-2] != rows for x in lefts[0]):
            return None
        for u in used:
            u.gone = True
        left = concatenate(lefts[0])
        draws = used[0].stream.draws()
        root = cholesky(draws.activated_gram(left, units, self.function, len(self.bases)))
        return root if self.mixing is None else self.mixing @ root
