"""Entrywise functions of rows, evaluated only when their use is known.

If only a projection follows, the Gram matrix of the hidden units is all that matters: it is summed
a few units at a time (`activated_gram`). Otherwise all entries are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shaped_attention.derived.parts import Blocks, Part, Value, ValuePart
from shaped_attention.derived.spaces import DerivationError, unify
from shaped_attention.numerics.primitives import cholesky
from shaped_attention.numerics.scalars import product


class Hidden(Value):
    """A function of single entries of some rows, the bases."""

    def __init__(self, bases: Sequence[Part], function: Callable[..., Any], reveal: Any) -> None:
        super().__init__(list)
        self.bases, self.entrywise, self._reveal = tuple(bases), function, reveal

    def made(self) -> list[Blocks]:
        """Draw all entries of the bases, and apply the function."""
        for base in self.bases:
            base.space.make_explicit()
        return [[self.entrywise(*(base.blocks(self._reveal)[0] for base in self.bases))]]

    def gram_root(self, count: int) -> Any:
        """Return a root of the Gram matrix of `count` rows, if entries are not needed; or None."""
        sources = [base.undrawn for base in self.bases]
        pairs = zip(sources, self.bases, strict=True)
        fresh = all(len(undrawn) == len(base.leaves) for undrawn, base in pairs)
        alike = len({base.signature for base in self.bases}) == 1
        units = self.bases[0].space.size
        if (
            not (self._reveal.shortens and fresh and alike)
            or self.bases[0].space.explicit
            or units < count
        ):
            return None
        left = self.bases[0].left(sources[0])
        first = sources[0][0]
        used = [x for s in sources for x in s]
        if any(x.gone for x in used):
            return None
        for x in used:
            x.gone = True
        gram = first.numbers.activated_gram(
            first.name, left, units, self.entrywise, len(self.bases), first.head
        )
        return cholesky(gram)


def waiting(rows: Any) -> Hidden | None:
    """Return the function of entries that rows are, if they wait."""
    leaf = rows.parts[0].only if len(rows.parts) == 1 else None
    if isinstance(leaf, ValuePart) and isinstance(leaf.value, Hidden) and leaf.value.waits:
        return leaf.value
    return None


def entrywise(function: Callable[..., Any], *operands: Any) -> Any:
    """Apply a function of single entries to rows of the same number of columns."""
    first, inner = operands[0], []
    for x in operands:
        if len(x.parts) != 1:
            raise DerivationError(
                f"functions of entries act on one space; got a direct sum of {len(x.parts)} "
                "spaces: apply the function to each before they are joined"
            )
        unify(x.parts[0].space, first.parts[0].space)
        hidden = waiting(x)
        known = (hidden.entrywise, hidden.bases) if hidden else (lambda v: v, x.parts)
        inner.append((x.coefficient, *known))
    unique = list(dict.fromkeys(base for *_, bases in inner for base in bases))

    def combined(*values: Any) -> Any:
        known = dict(zip(unique, values, strict=True))
        return function(*(product(c, f(*(known[b] for b in bases))) for c, f, bases in inner))

    value = Hidden(unique, combined, first.reveal)
    most = max(operands, key=lambda x: x.count)
    return most.like([Part.of(ValuePart(value, 0), first.parts[0].space)])


def gram_root(rows: Any) -> Any:
    """Return a root of x x^T if x are linear in one function of entries; None otherwise."""
    if len(rows.parts) != 1 or len(rows.parts[0].leaves) != 1:
        return None
    (part,), (leaf,) = rows.parts, rows.parts[0].leaves
    if not (isinstance(leaf, ValuePart) and isinstance(leaf.value, Hidden) and leaf.value.waits):
        return None
    root = leaf.value.gram_root(rows.count)
    return None if root is None else part.evaluate(lambda _: root)
