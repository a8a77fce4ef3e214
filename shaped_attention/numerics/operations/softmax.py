"""Softmax of the rows of a matrix, over some of their entries; entropies of the rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.compiler import functions
from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.matrices import Constant
from shaped_attention.compiler.text import Int, Real
from shaped_attention.libraries import Tensor, torch
from shaped_attention.numerics.dual import Dual
from shaped_attention.numerics.graph import Matrix
from shaped_attention.numerics.jit import kernel
from shaped_attention.numerics.operations.registry import Here, M, operation, primitive, tensor
from shaped_attention.numerics.operations.stacks import Array, Place, Step, is_large
from shaped_attention.numerics.operations.sums import row_sums
from shaped_attention.numerics.vectormath import exp, log, prefer_wide_vectors


def _traced(logits: Matrix, seen: NDArray[np.bool_]) -> Matrix:
    flat = logits.plain()
    allowed = flat.graph.constant(np.asarray(seen, dtype=np.float64))
    return flat.graph.node("softmax", (flat.node, allowed.node), flat.shape, (flat.coefficient,))


def _with_tangents(logits: Dual, seen: NDArray[np.bool_]) -> Dual:
    p = softmax(logits.value, seen)
    return logits.through(p, lambda d: p * (d - row_sums(p * d)))


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


@primitive(trace=_traced, tangent=_with_tangents, check=_check)
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
    mask = None if bounds is not None else Constant(allowed)
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


@kernel
def _small(logits, seen, scale, out):  # type: ignore[no-untyped-def]
    """Apply softmax to the rows of scale X, for X (samples, m, m), where `seen` is positive."""
    prefer_wide_vectors()
    samples, rows, columns = logits.shape
    for s in range(samples):
        for i in range(rows):
            x, z, allowed = logits[s, i], out[s, i], seen[i]
            top = -np.inf
            for j in range(columns):
                value = scale * x[j] if allowed[j] > 0.0 else -np.inf
                top = max(top, value)
            for j in range(columns):
                weight = exp(scale * x[j] - top)
                z[j] = weight if allowed[j] > 0.0 else 0.0
            total = 0.0
            for j in range(columns):
                total += z[j]
            total = 1.0 / total
            for j in range(columns):
                z[j] *= total


def _stacks(step: Step, place: Place, out: Array, logits: Array, seen: Array) -> None:
    (scale,) = step.numbers(place)
    if not is_large(out.shape[-2]):
        _small(logits, seen[0], scale, out)
        return
    np.multiply(logits, scale, out=out)
    if not seen.all():
        np.copyto(out, -np.inf, where=seen == 0.0)
    out -= out.max(axis=-1, keepdims=True)
    np.exp(out, out=out)
    out *= 1.0 / out.sum(axis=-1, keepdims=True)


@kernel
def entropies(weights, out):  # type: ignore[no-untyped-def]
    """Write the entropy -sum p log p of each row of probabilities (rows, columns)."""
    prefer_wide_vectors()
    terms = np.empty(weights.shape[1])
    for i in range(weights.shape[0]):
        row = weights[i]
        for j in range(terms.size):
            p = row[j]
            # The logarithm of a smaller double is not defined, and p log p is at rounding level.
            terms[j] = p * log(p if p > 1e-300 else 1.0)
        total = 0.0
        for j in range(terms.size):
            total -= terms[j]
        out[i] = total


operation("softmax", emit=_emit, blas=_stacks, growth=0.0)
