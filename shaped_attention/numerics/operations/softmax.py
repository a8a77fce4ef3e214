"""Softmax of the rows of a matrix, over some of their entries; entropies of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.libraries import Tensor, torch
from shaped_attention.numerics.dual import Dual
from shaped_attention.numerics.graph import Matrix
from shaped_attention.numerics.jit import LANES, kernel
from shaped_attention.numerics.operations import registry as at
from shaped_attention.numerics.operations.registry import M, operation, primitive, tensor
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


@kernel
def _tile(line, numbers, buf):  # type: ignore[no-untyped-def]
    """Apply softmax to the rows of s A where B is positive; 0 elsewhere.

    B is a constant, so lane 0 represents all.
    """
    out, a, seen, columns = line[at.OUT], line[at.A], line[at.B], line[at.COLUMNS]
    top, total, s = line[at.WORK], line[at.WORK] + 1, numbers[line[at.SCALAR]]
    for i in range(line[at.ROWS]):
        for p in range(LANES):
            buf[top, p] = -np.inf
            buf[total, p] = 0.0
        for j in range(columns):
            if buf[seen + i * columns + j, 0] > 0.0:
                for p in range(LANES):
                    buf[top, p] = max(buf[top, p], s * buf[a + i * columns + j, p])
        for j in range(columns):
            y = out + i * columns + j
            if buf[seen + i * columns + j, 0] > 0.0:
                for p in range(LANES):
                    weight = exp(s * buf[a + i * columns + j, p] - buf[top, p])
                    buf[y, p] = weight
                    buf[total, p] += weight
        for p in range(LANES):
            buf[total, p] = 1.0 / buf[total, p]
        for j in range(columns):
            y = out + i * columns + j
            if buf[seen + i * columns + j, 0] > 0.0:
                for p in range(LANES):
                    buf[y, p] *= buf[total, p]
            else:
                for p in range(LANES):
                    buf[y, p] = 0.0


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


operation("softmax", tile=_tile, blas=_stacks, growth=0.0, scratch=lambda node: 2)
