"""Source of the kernel that runs the programs of a layer on a device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from shaped_attention.numerics.lapack import PIVOT_EPSILONS
from shaped_attention.numerics.operations import registry as at
from shaped_attention.numerics.operations.hidden import HIDDEN_COLUMNS
from shaped_attention.numerics.operations.registry import OPERATIONS, code_of
from shaped_attention.numerics.program import Program
from shaped_attention.numerics.tile_interpreter import Packed
from shaped_attention.numerics.tiles import LARGEST_FACTOR, MODERATE_FACTOR

FIELDS = [name for name, place in vars(at).items() if type(place) is int and name != "SIZE"]
"""Names of the fields of an instruction, in their order in `operations.registry`."""

MOST_IN_REGISTERS = 256
"""Rows of a buffer up to which a path has one thread, which keeps it in registers."""

_RENAMED = {"sqrt": "sqrt_of", "exp": "exp_of", "tanh": "tanh_of"}
"""Operations whose name is that of a function of C."""

_FOLDER = Path(__file__).parent

_MOST_SHARED = 96 * 1024
"""Shared memory of a block, at most, so that large devices run two blocks at a time."""

_WARPS = 4
"""Warps of a block whose paths have a warp each, if their buffers fit into shared memory."""


def threads_of(packed: Packed) -> int:
    """Return the number of threads of a path."""
    return 1 if packed.rows < MOST_IN_REGISTERS else 32


def bytes_of_path(packed: Packed, precision: str) -> int:
    """Return the bytes of the buffer of a path."""
    return np.dtype(precision).itemsize * (packed.rows + 1)


def warps_of(packed: Packed, precision: str, shared: int) -> int:
    """Return how many warps with a path each share memory; 0 if not even one has room.

    `shared` are the bytes that a block may have on the device.
    """
    return min(_WARPS, min(shared, _MOST_SHARED) // bytes_of_path(packed, precision))


def kernel_source(
    programs: Sequence[Program], packed: Packed, adds: bool, precision: str, clock: bool
) -> str:
    """Return the source of the kernel `advance` for the programs of a pattern or of the clock.

    For a device, SHARED comes before it (``kernels.cuh``).

    Parameters
    ----------
    programs, packed
        The programs, and the same as arrays.
    adds
        Whether a step adds its outputs to the state (the limit), or they are the new state.
    precision
        'float64' or 'float32'.
    clock
        Whether the programs are the speed, a step and the variance rate of the clock.
    """
    limits = np.finfo(precision)
    # The fourth root of the largest number keeps V and products of two of its entries finite.
    largest = min(LARGEST_FACTOR, float(limits.max) ** 0.25)
    constants = {
        "THREADS": threads_of(packed),
        "PIVOT": repr(PIVOT_EPSILONS * float(limits.eps)),
        "HIDDEN_COLUMNS": HIDDEN_COLUMNS,
        "BUFFER_ROWS": packed.rows + 1,
        "PROGRAMS": len(programs),
        "SIZE": sum(int(columns * rows) for _, columns, rows in packed.parts)
        if clock or adds
        else sum(r * c for _, (r, c) in programs[0].inputs),
        "TOKENS": int(packed.parts[0, 2]),
        "GROUPS": len(packed.parts),
        "ADDS": int(adds),
        "LARGEST": repr(largest),
        "MODERATE": repr(min(MODERATE_FACTOR, largest**0.5)),
    }
    lines = _beginning(precision, constants)
    lines += ["#define CLOCK"] if clock else []
    lines += _choices("PART", [int(part[0]) for part in packed.parts])
    lines += _choices("COLUMNS_OF", [int(part[1]) for part in packed.parts])
    return "\n".join(
        [
            *lines,
            (_FOLDER / "operations.cuh").read_text(),
            "template <int K> struct Step;",
            *(line for k in range(len(programs)) for line in _step(packed, k)),
            (_FOLDER / "paths.cuh").read_text(),
            (_FOLDER / ("clock.cuh" if clock else "steps.cuh")).read_text(),
            (_FOLDER / "kernels.cuh").read_text(),
        ]
    )


@lru_cache
def numbers_source(precision: str, kernel: str | None = None) -> str:
    """Return the source of a kernel that draws: by default `fill_normals`, which writes numbers."""
    lines = _beginning(precision, {"THREADS": 1, "HIDDEN_COLUMNS": 1, "PIVOT": 0})
    kernel = kernel or (_FOLDER / "numbers.cuh").read_text()
    return "\n".join([*lines, (_FOLDER / "operations.cuh").read_text(), kernel])


def _beginning(precision: str, constants: Mapping[str, object]) -> list[str]:
    """Return the lines before ``operations.cuh``."""
    real = "double" if precision == "float64" else "float"
    return [f"typedef {real} real;", *(f"#define {name} {constants[name]}" for name in constants)]


def _choices(name: str, values: Sequence[int]) -> list[str]:
    """Return a macro that gives the value of an index."""
    text = str(values[-1])
    for k, value in reversed(list(enumerate(values[:-1]))):
        text = f"((g) == {k} ? {value} : {text})"
    return [f"#define {name}(g) {text}"]


def _step(packed: Packed, k: int) -> Iterator[str]:
    """Yield the lines of program number k."""
    start, stop, first, last = (int(x) for x in packed.ranges[k])
    used = [(int(row), int(size)) for row, size in packed.outputs[k] if size]
    for number in range(start, stop):
        fields = ", ".join(
            f"{name} = {value}" for name, value in zip(FIELDS, packed.code[number], strict=True)
        )
        yield f"struct I{number} {{ enum {{ {fields} }}; }};"
    yield f"template <> struct Step<{k}> {{"
    yield f"  enum {{ DRIFT = {used[0][0]}, NOISE = {used[-1][0]} }};"
    yield "  MEMBER void fill(const Path& x) {"
    rows, values = packed.constant_rows[first:last], packed.constants[first:last]
    for row, value in zip(rows.tolist(), values.tolist(), strict=True):
        yield f"    if (x.lane == {row} % THREADS) x.b[{row}] = real({value!r});"
    yield "    together();"
    yield "  }"
    yield "  MEMBER void run(const Path& x) {"
    yield from _instructions(packed, start, stop)
    yield "  }"
    yield "  MEMBER void replace(const Path& x) {"
    target = 0
    for row, size in used:
        yield f"    EACH(i, {size}) x.b[{target} + i] = x.b[{row} + i];"
        target += size
    yield "  }"
    yield "};"


def _instructions(packed: Packed, start: int, stop: int) -> Iterator[str]:
    kinds = list(OPERATIONS)
    number = start
    while number < stop:
        line = packed.code[number]
        if line[at.OP] != code_of("activated_gram"):
            kind = kinds[line[at.OP]]
            yield f"    {_RENAMED.get(kind, kind)}<I{number}>(x);"
            number += 1
            continue
        yield f"    hidden_start<I{number}>(x);"
        yield f"    ROLLED for (int u = 0; u < I{number}::COUNT; u += HIDDEN_COLUMNS) {{"
        yield f"      hidden_draw<I{number}>(x, u);"
        yield from _instructions(packed, int(line[at.FIRST]), int(line[at.LAST]))
        yield f"      hidden_add<I{number}>(x, u);"
        yield "    }"
        number = int(line[at.LAST])
