"""Softmax of the rows of a matrix, over some of their entries."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.compiler import functions
from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.matrices import View
from shaped_attention.compiler.text import Int, Real
from shaped_attention.libraries import Tensor, torch
from shaped_attention.numerics.graph import Matrix, Node
from shaped_attention.numerics.operations.registry import (
    Alone,
    Call,
    Here,
    M,
    operation,
    primitive,
    tensor,
)

Array = NDArray[np.float64]


def _traced(logits: Matrix, seen: NDArray[np.bool_]) -> Matrix:
    flat = logits.plain()
    allowed = flat.graph.constant(np.asarray(seen, dtype=np.float64))
    return flat.graph.node("softmax", (flat.node, allowed.node), flat.shape, (flat.coefficient,))


def _check(logits: Any, seen: Any) -> None:
    allowed = seen if isinstance(seen, Tensor) else np.asarray(seen)
    shape, expected = tuple(allowed.shape), tuple(logits.shape)[-2:]
    if shape != expected or str(allowed.dtype).rpartition(".")[2] != "bool":
        raise ValueError(
            f"seen must be a boolean array of the shape {expected} of the logits; got "
            f"{allowed.dtype} of shape {shape}"
        )
    if isinstance(allowed, np.ndarray) and not allowed.any(-1).all():
        row = int(np.argmin(allowed.any(-1)))
        raise ValueError(f"seen must allow at least one entry of each row; row {row} has none")


@primitive(trace=_traced, check=_check)
def softmax(logits: M, seen: NDArray[np.bool_]) -> M:
    """Apply softmax to each row, over the entries that `seen` (m, m) allows; 0 elsewhere."""
    rows: Any = logits
    allowed = torch.as_tensor(seen, device=rows.device)
    return tensor(torch.softmax(rows.masked_fill(~allowed, -torch.inf), dim=-1))


def _emit(e: Emitter, here: Here) -> None:
    """Emit softmax of the rows of s A over the entries that B allows; 0 elsewhere."""
    (a, _), out, (s,) = here.inputs, here.out, here.scalars
    allowed = here.node.inputs[1].data
    assert allowed is not None
    seen = allowed > 0.0
    columns, bounds = seen.shape[1], _bounds(seen)
    mask = None if bounds is not None else View.of(allowed)
    together = 4 if seen.all() and columns % 4 == 0 else 1

    def row(i: Int, _: object) -> None:
        first, end = (0, columns) if bounds is None else bounds(e, i)

        def logit(j: Int) -> Real:
            x = e.fmul(s, a.load(e, i, j))
            here = 1.0 if mask is None else mask.load(e, i, j)
            if isinstance(here, float):
                return x if here > 0.0 else -math.inf
            return e.select(e.compare("ogt", here, 0.0), x, -math.inf)

        def top_of(j: Int, tops: Sequence[Real]) -> list[Real]:
            return [e.larger(logit(e.add(j, k)), top) for k, top in enumerate(tops)]

        def weigh(j: Int, totals: Sequence[Real]) -> list[Real]:
            new = []
            for k, total in enumerate(totals):
                x = logit(e.add(j, k))
                weight = functions.exp(e, e.fsub(x, top)) if x != -math.inf else 0.0
                if mask is not None and isinstance(x, str):
                    weight = e.select(e.compare("ogt", x, -math.inf), weight, 0.0)
                out.store(e, weight, i, e.add(j, k))
                new.append(e.fadd(weight, total))
            return new

        tops = e.loop(first, end, together, top_of, [-math.inf] * together)
        top = tops[0]
        for other in tops[1:]:
            top = e.larger(other, top)
        total: Real = 0.0
        for part in e.loop(first, end, together, weigh, [0.0] * together):
            total = e.fadd(part, total)
        inverse = e.fdiv(1.0, total)

        def divide(j: Int, _: object) -> None:
            for k in range(together):
                there = e.add(j, k)
                out.store(e, e.fmul(out.load(e, i, there), inverse), i, there)

        e.loop(first, end, together, divide)
        for begin, stop in ((0, first), (end, columns)):
            e.loop(begin, stop, 1, lambda j, _: out.store(e, 0.0, i, j), may_be_empty=True)

    e.loop(0, seen.shape[0], 1, row)


def _bounds(seen: NDArray[np.bool_]) -> Callable[[Emitter, Int], tuple[Int, Int]] | None:
    """Return the emission of the first and last entry that a row sees; None if there are gaps."""
    rows, columns = seen.shape
    first, end = seen.argmax(axis=1), columns - seen[:, ::-1].argmax(axis=1)
    if not np.array_equal(seen.sum(axis=1), end - first):
        return None
    if (first == 0).all() and (end == columns).all():
        return lambda e, i: (0, columns)
    if (first == 0).all() and np.array_equal(end, np.arange(1, rows + 1)):
        return lambda e, i: (0, e.add(i, 1))

    def look_up(e: Emitter, i: Int) -> tuple[Int, Int]:
        if isinstance(i, int):
            return int(first[i]), int(end[i])
        tables = (e.constant("i64", [str(x) for x in table.tolist()]) for table in (first, end))
        begin, stop = (e.new(f"load i64, ptr {e.at(table, i, 'i64')}, align 8") for table in tables)
        return begin, stop

    return look_up


_FEWEST_COLUMNS = 32
"""Least columns at which passes of NumPy are faster than emitted code for one path."""


def _by_numpy(node: Node) -> Alone | None:
    allowed = node.inputs[1].data
    assert allowed is not None
    hidden = allowed == 0.0
    some = bool(hidden.any())

    def run(call: Call, out: Array, logits: Array, seen: Array) -> None:
        np.multiply(logits, call.scalars[0], out=out)
        if some:
            np.copyto(out, -np.inf, where=hidden)
        out -= out.max(axis=-1, keepdims=True)
        np.exp(out, out=out)
        out *= 1.0 / out.sum(axis=-1, keepdims=True)

    return run if node.shape[1] >= _FEWEST_COLUMNS else None


operation("softmax", emit=_emit, routine=_by_numpy, growth=0.0)
