"""Products with a matrix whose entries are functions of products of low rank, in one pass.

Entry (i, j) of U is f(G_1, ..., G_s) with G_t = X_t[:, i] . D_t[:, j], for a function f that is the
same for all entries: the update of an optimiser that acts on entries, after s steps. The matrix is
never stored. Columns are lanes; for a few rows i the entries are computed in registers, written to
a tile, and multiplied by the rows of the left factor.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from torch import Tensor

from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.text import Int, Real
from shaped_attention.numerics.threads import Team, thread_count

_TILE, _VECTORS = 32, 2
"""Rows of a tile, and vectors of columns that are computed together."""
_REAL = {torch.float64: "double", torch.float32: "float"}
_BLOCK, _FEWEST = 2**20, 2**14
"""Entries that torch computes at once, and below which compiling a loop does not pay."""


class Function(Protocol):
    """What makes the entries of U from those of G_1, ..., G_s.

    Functions of one `kind` differ by their constants alone.
    """

    @property
    def kind(self) -> Hashable:
        """What the code depends on."""

    def constants(self, steps: int) -> list[float]:
        """Return the numbers that the function uses after some steps."""

    def last(self, e: Any, gradients: Sequence[Any], numbers: Sequence[Any]) -> tuple[Any, Any]:
        """Return the entry of U, and the part of it that the last step added.

        The words of `e` are those of `Emitter`.
        """


_TORCH = SimpleNamespace(
    fma=lambda a, b, c: a * b + c, fmul=operator.mul, fadd=operator.add, fdiv=operator.truediv,
    sqrt=torch.sqrt, sign=torch.sign,
)  # fmt: skip
"""The words of `Emitter` that functions use, on tensors."""


def product(
    x: Tensor, lefts: Sequence[Tensor], rights: Sequence[Tensor], function: Function
) -> Tensor:
    """Return x U (B, r, p), for x (B, r, n), X_t (B, k_t, n) and D_t (B, k_t, p)."""
    return _computed(x, lefts, rights, function)


def last_norm(lefts: Sequence[Tensor], rights: Sequence[Tensor], function: Function) -> Tensor:
    """Return the Frobenius norm (B,) of the part of U that the last step added."""
    return _computed(None, lefts, rights, function).sum((1, 2)).sqrt()


def _computed(
    x: Tensor | None, lefts: Sequence[Tensor], rights: Sequence[Tensor], function: Function
) -> Tensor:
    """Return x U; without x the sums over rows (B, 1, p) of the squares of the last part."""
    rows, columns = lefts[0].shape[-1], rights[0].shape[-1]
    if lefts[0].device.type != "cpu" or rows * columns < _FEWEST:
        return _by_torch(x, lefts, rights, function)
    ranks = tuple(d.shape[1] for d in rights)
    count = 0 if x is None else x.shape[1]
    code, width = _code(_REAL[lefts[0].dtype], ranks, count, function)
    blocks = -(-columns // width)
    d = torch.nn.functional.pad(torch.cat(list(rights), 1), (0, blocks * width - columns))
    # Block by block, since strides of a power of 2 would share a place in the cache.
    d = d.unflatten(-1, (blocks, width)).transpose(1, 2).contiguous()
    left = torch.cat(list(lefts), 1).mT.contiguous()
    given = left if x is None else x.mT.contiguous()
    out = d.new_zeros(len(d), blocks, max(1, count), width)
    numbers = torch.tensor(function.constants(len(ranks)), dtype=torch.float64)
    threads = thread_count("cpu")
    pieces = min(blocks, -(-threads // len(d))) if threads > 1 else 1
    edges = [k * blocks // pieces for k in range(pieces + 1)]
    calls = [
        partial(
            code, given[b].data_ptr(), left[b].data_ptr(), d[b].data_ptr(), out[b].data_ptr(),
            numbers.data_ptr(), rows, edges[k], edges[k + 1],
        )
        for b in range(len(d)) for k in range(pieces)
    ]  # fmt: skip
    team = Team(min(threads, len(calls)))
    for start in range(0, len(calls), team.threads):
        team.together(calls[start : start + team.threads])
    return out.transpose(1, 2).flatten(2)[..., :columns]


_codes: dict[Hashable, tuple[Callable[..., None], int]] = {}


def _code(
    real: str, ranks: tuple[int, ...], count: int, function: Function
) -> tuple[Callable[..., None], int]:
    """Return the code of a product, and the columns of a block."""
    key = real, ranks, count, function.kind
    if key not in _codes:
        text = Emitter(real)
        body = partial(_body, text, ranks, count, function)
        name = text.function(_PARAMETERS, body, name="product")
        code = text.compiled().function(name, *[ctypes.c_void_p] * 5, *[ctypes.c_int64] * 3)
        _codes[key] = code, text.lanes * _VECTORS
    return _codes[key]


_PARAMETERS = [
    *((("ptr", name)) for name in ("x", "left", "right", "out", "numbers")),
    *(("i64", name) for name in ("rows", "first", "end")),
]


def _body(e: Emitter, ranks: Sequence[int], count: int, function: Function) -> None:
    """Emit the product with `count` rows for the blocks of columns from the first to the end."""
    total, steps = sum(ranks), len(ranks)
    tile = e.new(f"alloca [{_TILE * _VECTORS} x {e.vector}], align 64")
    numbers = [e.number("%numbers", k) for k in range(len(function.constants(steps)))]

    def scalar(base: str, index: Int) -> str:
        address = e.at(base, index, e.real)
        return e.splat(e.new(f"load {e.real}, ptr {address}, align {e.bits // 8}"))

    def entries(i: Int, block: Int) -> list[tuple[Real, Real]]:
        """Emit U and its last part in row i, for each vector of columns."""
        gradients: list[list[Real]] = [[] for _ in range(_VECTORS)]
        place = 0
        for rank in ranks:
            sums: list[Real] = [0.0] * _VECTORS
            for k in range(place, place + rank):
                left = scalar("%left", e.add(e.mul(i, total), k))
                row = e.mul(e.add(e.mul(block, total), k), _VECTORS)
                for v in range(_VECTORS):
                    sums[v] = e.fma(left, e.load_row("%right", e.add(row, v)), sums[v])
            place += rank
            for v in range(_VECTORS):
                gradients[v].append(sums[v])
        return [function.last(e, g, numbers) for g in gradients]

    def squares(block: Int) -> None:
        def more(i: Int, sums: Sequence[Real]) -> list[Real]:
            parts = [last for _, last in entries(i, block)]
            return [e.fma(x, x, total) for x, total in zip(parts, sums, strict=True)]

        for v, total in enumerate(e.loop(0, "%rows", 1, more, [0.0] * _VECTORS)):
            e.write_row(total, "%out", e.add(e.mul(block, _VECTORS), v))

    def columns(block: Int, _: object) -> None:
        if not count:
            squares(block)
            return

        def rows(start: Int, _: object) -> None:
            end = e.least(e.add(start, _TILE), "%rows")

            def fill(i: Int, _: object) -> None:
                at = e.mul(e.new(f"sub i64 {i}, {start}"), _VECTORS)
                for v, (u, _last) in enumerate(entries(i, block)):
                    e.write_row(u, tile, e.add(at, v))

            e.loop(start, end, 1, fill)
            for first in range(0, count, 4):
                multiply(range(first, min(first + 4, count)), start, end)

        def multiply(some: Sequence[int], start: Int, end: Int) -> None:
            here = [e.mul(e.add(e.mul(block, count), r), _VECTORS) for r in some]
            places = [e.add(row, v) for row in here for v in range(_VECTORS)]

            def more(i: Int, sums: Sequence[Real]) -> list[Real]:
                at = e.mul(e.new(f"sub i64 {i}, {start}"), _VECTORS)
                u = [e.load_row(tile, e.add(at, v)) for v in range(_VECTORS)]
                left = [scalar("%x", e.add(e.mul(i, count), r)) for r in some]
                pairs = [(a, b) for a in left for b in u]
                return [e.fma(a, b, x) for (a, b), x in zip(pairs, sums, strict=True)]

            sums = e.loop(start, end, 1, more, [e.load_row("%out", p) for p in places])
            for x, p in zip(sums, places, strict=True):
                e.write_row(x, "%out", p)

        e.loop(0, "%rows", _TILE, rows)

    e.loop("%first", "%end", 1, columns)


def _by_torch(
    x: Tensor | None, lefts: Sequence[Tensor], rights: Sequence[Tensor], function: Function
) -> Tensor:
    """Return what `_computed` returns, some columns at a time."""
    numbers = function.constants(len(lefts))
    rows, columns = lefts[0].shape[-1], rights[0].shape[-1]
    size = max(1, _BLOCK // (len(lefts[0]) * rows))
    parts = []
    for j in range(0, columns, size):
        gradients = [a.mT @ b[..., j : j + size] for a, b in zip(lefts, rights, strict=True)]
        whole, last = function.last(_TORCH, gradients, numbers)
        parts.append((last**2).sum(1, keepdim=True) if x is None else x @ whole)
    return torch.cat(parts, -1)
