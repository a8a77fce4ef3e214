"""Source of the kernel that runs the programs of a layer on a device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from shaped_attention.numerics.lapack import PIVOT_EPSILONS
from shaped_attention.numerics.operations import registry as at
from shaped_attention.numerics.operations.hidden import HIDDEN_COLUMNS
from shaped_attention.numerics.operations.registry import OPERATIONS, code_of
from shaped_attention.numerics.program import Program
from shaped_attention.numerics.tile_interpreter import Packed
from shaped_attention.numerics.tiles import LARGEST_FACTOR, MODERATE_FACTOR

FIELDS = (
    "OP", "FLAG", "OUT", "OUT_COLUMNS", "A", "B", "ROWS", "COLUMNS", "A_ROWS", "A_COLUMNS",
    "B_ROWS", "B_COLUMNS", "A_LOWER", "B_LOWER", "SCALAR", "SCALAR_2", "KEY", "SLOT", "COUNT",
    "COPIES", "WORK", "START", "FIRST", "LAST",
)  # fmt: skip
"""Names of the fields of an instruction, in their order in `operations.registry`."""

MOST_IN_REGISTERS = 256
"""Rows of a buffer up to which a path has one thread, which keeps it in registers."""

_RENAMED = {"sqrt": "sqrt_of", "exp": "exp_of", "tanh": "tanh_of"}
"""Operations whose name is that of a function of C."""


OPERATIONS_SOURCE = Path(__file__).with_name("operations.cuh")
"""File of the operations."""

SHARED_BYTES = 96 * 1024
"""Shared memory of a block that every device since 2017 has."""

_WARPS = 4
"""Warps of a block whose paths have a warp each, if their buffers fit into shared memory."""


def threads_of(packed: Packed) -> int:
    """Return the number of threads of a path."""
    return 1 if packed.rows < MOST_IN_REGISTERS else 32


def warps_of(packed: Packed, precision: str) -> int:
    """Return how many warps with a path each share memory; 0 if not even one has room."""
    return min(_WARPS, SHARED_BYTES // (np.dtype(precision).itemsize * (packed.rows + 1)))


def kernel_source(
    programs: Sequence[Program], packed: Packed, adds: bool, precision: str, clock: bool
) -> str:
    """Return the source of the kernel `advance` for the programs of a pattern or of the clock.

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
    folder = Path(__file__).parent
    limits = np.finfo(precision)
    # The fourth root of the largest number keeps V and products of two of its entries finite.
    largest = min(LARGEST_FACTOR, float(limits.max) ** 0.25)
    constants = {
        "THREADS": threads_of(packed),
        "SHARED": int(warps_of(packed, precision) > 0),
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
    lines = [f"typedef {'double' if precision == 'float64' else 'float'} real;"]
    lines += [f"#define {name} {value}" for name, value in constants.items()]
    lines += ["#define CLOCK"] if clock else []
    lines += _choices("PART", [int(part[0]) for part in packed.parts])
    lines += _choices("COLUMNS_OF", [int(part[1]) for part in packed.parts])
    return "\n".join(
        [
            *lines,
            OPERATIONS_SOURCE.read_text(),
            "template <int K> struct Step;",
            *(line for k in range(len(programs)) for line in _step(packed, k)),
            (folder / "paths.cuh").read_text(),
            (folder / ("clock.cuh" if clock else "steps.cuh")).read_text(),
            (folder / "kernels.cuh").read_text(),
        ]
    )


def numbers_source(precision: str) -> str:
    """Return the source of the kernel `fill_normals`, which writes numbers of a precision."""
    lines = [f"typedef {'double' if precision == 'float64' else 'float'} real;"]
    lines += ["#define THREADS 1", "#define HIDDEN_COLUMNS 1", "#define PIVOT 0"]
    numbers = Path(__file__).with_name("numbers.cuh")
    return "\n".join([*lines, OPERATIONS_SOURCE.read_text(), numbers.read_text()])


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
