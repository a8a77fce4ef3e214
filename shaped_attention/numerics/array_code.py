"""Operations on the matrices of one path, in row-major order, by emitted code.

Where a path is alone, the lanes of a vector have consecutive entries if an operation acts on single
entries. Other operations are emitted with one lane, by the same functions as for vectors of paths.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.matrices import View
from shaped_attention.compiler.text import Int, Real
from shaped_attention.numerics.graph import Node
from shaped_attention.numerics.operations.registry import OPERATIONS, Here, emit_node

Array = NDArray[np.float64]
Run = Callable[..., None]
"""Function (out, scalars, *inputs) of arrays."""


def on_entries(
    entry: Callable[[Emitter, Sequence[Real], Sequence[Real]], Real], count: int, scalars: int
) -> Run:
    """Return code for a function ``entry(e, scalars, values)`` of single entries of arrays."""
    e = Emitter()

    def put(i: Int) -> None:
        given = [e.number("%numbers", k) for k in range(scalars)]
        values = [e.load_as("double", e.at(f"%a{k}", i, "double")) for k in range(count)]
        x = entry(e, given, values)
        e.store_as("double", e.value(x), e.at("%out", i, "double"))

    def body() -> None:
        most = e.new(f"and i64 %size, {-e.lanes}")
        e.loop(0, most, e.lanes, lambda i, _: put(i), may_be_empty=True)
        with e.typed(lanes=1):
            e.loop(most, "%size", 1, lambda i, _: put(i), may_be_empty=True)

    names = ["out", "numbers", *(f"a{k}" for k in range(count))]
    e.function([*(("ptr", x) for x in names), ("i64", "size")], body, name="entries")
    types = [*[ctypes.c_void_p] * len(names), ctypes.c_int64]
    run = e.compiled().function("entries", *types)

    def call(out: Array, numbers: Array, *inputs: Array) -> None:
        run(*(x.ctypes.data for x in (out, numbers, *inputs)), out.size)

    return call


_known: dict[tuple[object, ...], Run] = {}


def alone(node: Node) -> Run:
    """Return code for an operation on one path, which nodes of the same sizes share."""
    inputs = [(x.shape, x.lower, None if x.data is None else x.data.tobytes()) for x in node.inputs]
    key = node.kind, node.shape, node.integers, len(node.scalars), *inputs
    if key not in _known:
        _known[key] = _emitted(node)
    return _known[key]


def _emitted(node: Node) -> Run:
    known = OPERATIONS[node.kind]
    shapes = [x.shape for x in node.inputs]
    if known.entry is not None and all(shape == node.shape for shape in shapes):
        entry = known.entry
        return on_entries(
            lambda e, scalars, values: entry(e, scalars, *values), len(shapes), len(node.scalars)
        )
    e = Emitter(lanes=1)

    def body() -> None:
        scalars = [e.number("%numbers", k) for k in range(len(node.scalars))]
        inputs = [View(f"%a{k}", 0, shape[1]) for k, shape in enumerate(shapes)]
        emit_node(e, Here(node, View("%out", 0, node.shape[1]), inputs, scalars))

    names = ["out", "numbers", "work", *(f"a{k}" for k in range(len(shapes)))]
    e.function([("ptr", x) for x in names], body, name="node")
    run = e.compiled().function("node", *[ctypes.c_void_p] * len(names))
    size = e.most_work

    def call(out: Array, numbers: Array, *inputs: Array) -> None:
        work = np.empty(size)
        run(*(x.ctypes.data for x in (out, numbers, work, *inputs)))

    return call
