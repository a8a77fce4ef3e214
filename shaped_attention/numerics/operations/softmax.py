"""Softmax of the rows of a matrix, over some of their entries."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
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
    rows, columns = allowed.shape
    mask, together = View.of(allowed), 4 if columns % 4 == 0 else 1

    def of_allowed(i: Int, j: Int, x: Callable[[], Real], otherwise: float) -> Real:
        seen = mask.load(e, i, j)
        if isinstance(seen, float):
            return x() if seen > 0.0 else otherwise
        return e.select(e.compare("ogt", seen, 0.0), x(), otherwise)

    def row(i: Int, _: object) -> None:
        def logit(j: Int) -> Real:
            return e.fmul(s, a.load(e, i, j))

        def top_of(j: Int, tops: Sequence[Real]) -> list[Real]:
            places = [e.add(j, k) for k in range(together)]
            return [
                e.larger(of_allowed(i, at, partial(logit, at), -math.inf), top)
                for at, top in zip(places, tops, strict=True)
            ]

        def weigh(j: Int, totals: Sequence[Real]) -> list[Real]:
            new = []
            for k, total in enumerate(totals):
                at = e.add(j, k)
                weight = of_allowed(i, at, partial(weight_of, at), 0.0)
                out.store(e, weight, i, at)
                new.append(e.fadd(weight, total))
            return new

        def weight_of(j: Int) -> Real:
            return functions.exp(e, e.fsub(logit(j), top))

        top, *others = e.loop(0, columns, together, top_of, [-math.inf] * together)
        for other in others:
            top = e.larger(other, top)
        total: Real = 0.0
        for part in e.loop(0, columns, together, weigh, [0.0] * together):
            total = e.fadd(part, total)
        inverse = e.fdiv(1.0, total)

        def divide(j: Int, _: object) -> None:
            for at in (e.add(j, k) for k in range(together)):
                out.store(e, e.fmul(out.load(e, i, at), inverse), i, at)

        e.loop(0, columns, together, divide)

    e.loop(0, rows, 1, row)


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
