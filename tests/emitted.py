"""Programs, and functions of single entries, on arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.llvm import Target
from shaped_attention.numerics.graph import Graph
from shaped_attention.numerics.mover import Mover
from shaped_attention.numerics.plan import Plan
from shaped_attention.numerics.program import Program, assemble

Array = NDArray[Any]

AVX2 = Target("haswell", "+avx2,+fma,+bmi,+bmi2,+lzcnt,+popcnt,+f16c,+movbe,+sse2")
SSE2 = Target("x86-64", "+sse2")


def run_program(
    program: Program,
    x: Array,
    dtype: Any = np.float64,
    first: int = 0,
    step: int = 0,
    **named: Any,
) -> list[Array]:
    """Return the results of a program of one input, all (paths, rows, columns)."""
    key = named.pop("key", lambda _: np.arange(2, dtype=np.uint64))
    mover = Mover([program], key, np.zeros(1), dtype, **named)
    count = -(-len(x) // mover.lanes) * mover.lanes
    flat = x.reshape(len(x), -1)[np.minimum(np.arange(count), len(x) - 1)].astype(dtype)
    states = np.ascontiguousarray(flat.reshape(-1, mover.lanes, flat.shape[1]).swapaxes(1, 2))
    shapes = program.result_shapes
    out = np.empty((len(states), sum(r * c for r, c in shapes), mover.lanes), dtype)
    mover.apply(0, states, first, step, out)
    whole = out.swapaxes(1, 2).reshape(count, -1)[: len(x)]
    ends = np.cumsum([r * c for r, c in shapes])[:-1]
    parts = np.split(whole, ends, axis=1)
    return [part.reshape(len(x), *shape) for part, shape in zip(parts, shapes, strict=True)]


def run_alone(program: Program, *inputs: Array) -> list[Array]:
    """Return the same by library routines, for each path alone; any number of inputs."""
    plan = Plan(program, lambda _: np.arange(2, dtype=np.uint64), np.zeros(1))
    with np.errstate(all="ignore"):
        results = [plan.run(given, k, 0) for k, given in enumerate(zip(*inputs, strict=True))]
    return [np.stack(result) for result in zip(*results, strict=True)]


def random_numbers(
    kind: str, shape: tuple[int, int], integers: tuple[int, ...], paths: int, key: Array,
    dtype: Any = np.float64, **named: Any,
) -> Array:  # fmt: skip
    """Return random numbers (paths, rows, columns) of a kind of node."""
    graph = Graph()
    x = graph.node("input", (), (1, 1))
    lower = kind == "wishart" and shape[0] == shape[1]
    slot, *dof = integers
    scalars = (1.0,) if kind == "normal" else tuple(map(float, dof))
    numbers = graph.node(kind, (), shape, scalars, (slot,), lower=lower, address="numbers")
    program = assemble(graph, [x], [numbers])
    zeros = np.zeros((paths, 1, 1))
    return run_program(program, zeros, dtype, key=lambda _: key, **named)[0]


def on_entries(
    function: Callable[[Emitter, Any], Any], x: Array, target: Target | None = None
) -> Array:
    """Return an emitted function of every entry of a float64 or float32 array."""
    e = Emitter("double" if x.dtype == np.float64 else "float", target=target)
    rows = -(-x.size // e.lanes)
    padded = np.ones(rows * e.lanes, x.dtype)
    padded[: x.size] = x
    out = np.empty_like(padded)

    def body() -> None:
        e.loop(0, rows, 1, lambda i, _: e.write_row(function(e, e.load_row("%x", i)), "%out", i))

    e.function([("ptr", "x"), ("ptr", "out")], body, name="run")
    run = e.compiled().function("run", ctypes.c_void_p, ctypes.c_void_p)
    run(padded.ctypes.data, out.ctypes.data)
    return out[: x.size]
