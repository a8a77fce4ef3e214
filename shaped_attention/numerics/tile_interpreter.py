"""Programs on tiles: their arrays, and the interpreter that runs a step on one tile.

A tile's buffer has a row for each entry of a matrix and a lane for each path. Every loop over lanes
is a sequence of vector instructions, and sums run in the order of their index, so the rounding of a
path does not depend on its neighbours. A step is data: the compiled code is the same for all
blocks. The functions that it calls are the tile faces of `operations`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shaped_attention.numerics.jit import LANES, borrowed, compiled_once, kernel, scalar
from shaped_attention.numerics.operations import registry as at
from shaped_attention.numerics.operations import simple
from shaped_attention.numerics.operations.hidden import activated_gram
from shaped_attention.numerics.operations.random import fill_bartlett
from shaped_attention.numerics.operations.registry import code_of
from shaped_attention.numerics.operations.stacks import table_of
from shaped_attention.numerics.program import Program
from shaped_attention.numerics.scalars import Depths, Number
from shaped_attention.numerics.threefry import count_paths, fill_normals

Array = NDArray[np.float64]

_NORMAL, _WISHART = code_of("normal"), code_of("wishart")
_ACTIVATED_GRAM = code_of("activated_gram")


class Packed(NamedTuple):
    """Programs of the layers of a pattern as arrays, which compiled code accepts as they are.

    Attributes
    ----------
    code, ranges
        Instructions of all programs, and the first and last instruction and constant of each.
    table
        Scalars (steps, count); a single row serves all steps.
    keys
        Keys of the random numbers.
    constant_rows, constants
        Rows and values of the entries of constants.
    outputs
        Rows of the outputs of a step (program, output, 2): offset and size.
    parts
        Offset, columns and rows of the factors F_g that make V = mean of F_g F_g^T.
    rows, normals
        Rows of the buffer, and normals of a step.
    """

    code: NDArray[np.int64]
    ranges: NDArray[np.int64]
    table: Array
    keys: NDArray[np.uint64]
    constant_rows: NDArray[np.int64]
    constants: Array
    outputs: NDArray[np.int64]
    parts: NDArray[np.int64]
    rows: int
    normals: int

    @classmethod
    def of(
        cls, programs: Sequence[Program], key: Callable[[Any], NDArray[np.uint64]], depths: Depths,
        factors: int,
    ) -> Packed:  # fmt: skip
        """Pack programs, whose first inputs are the factors of V.

        Scalars are evaluated at the relative depths of the steps; `key` gives that of an address.
        """
        addresses: list[Hashable] = []
        codes: list[NDArray[np.int64]] = []
        scalars: list[Number] = []
        ranges, outputs = [], []
        rows: list[int] = []
        values: list[float] = []
        for program in programs:
            start, constant = sum(map(len, codes)), len(rows)
            code = program.code.copy()
            code[:, [at.SCALAR, at.SCALAR_2]] += len(scalars)
            code[:, [at.FIRST, at.LAST]] += start
            code[:, at.KEY] += len(addresses)
            addresses += program.addresses
            for offset, entries in program.constants:
                rows += range(offset, offset + entries.size)
                values += entries.ravel().tolist()
            codes.append(code)
            ranges.append((start, start + len(code), constant, len(rows)))
            scalars += program.scalars or [0.0]
            outputs.append([(offset, r * c) for offset, (r, c) in program.outputs])
        most = max(map(len, outputs))
        keys = [key(address) for address in addresses]
        return cls(
            np.concatenate(codes),
            np.array(ranges, dtype=np.int64),
            table_of(scalars, depths),
            np.stack(keys) if keys else np.zeros((1, 2), dtype=np.uint64),
            np.array(rows, dtype=np.int64),
            np.array(values, dtype=np.float64),
            np.array([x + [(0, 0)] * (most - len(x)) for x in outputs], dtype=np.int64),
            np.array(
                [(start, c, m) for start, (m, c) in programs[0].inputs[:factors]], dtype=np.int64
            ),
            max(program.rows for program in programs),
            max(program.normals for program in programs),
        )


@scalar
def run(code, start, stop, numbers, keys, buf, paths, given, taking):  # type: ignore[no-untyped-def]
    """Run the instructions start, ..., stop - 1 for one tile in one step.

    `paths` (LANES,) are the counter words of its paths (`threefry.count_paths`). With `taking` the
    normals are rows of `given`, otherwise they are drawn.
    """
    k = start
    while k < stop:
        line = code[k]
        op = line[at.OP]
        if op == _NORMAL and taking:
            # Read before the loop: a store into `buf` might change them, for all LLVM knows.
            out, first = line[at.OUT], line[at.START]
            for i in range(line[at.ROWS] * line[at.COLUMNS]):
                for p in range(LANES):
                    buf[out + i, p] = given[first + i, p]
        elif op == _WISHART and line[at.WORK] > 0:
            fill_bartlett(
                buf, line[at.OUT], line[at.ROWS], line[at.COUNT], line[at.WORK],
                keys[line[at.KEY]], paths, line[at.SLOT],
            )  # fmt: skip
        elif op in (_NORMAL, _WISHART):
            out, size = line[at.OUT], line[at.ROWS] * line[at.COLUMNS]
            scale = numbers[line[at.SCALAR]] if op == _NORMAL else 1.0
            fill_normals(
                buf[out : out + size + 1], size, scale, keys[line[at.KEY]], paths, line[at.SLOT],
                compiled_once(0),
            )  # fmt: skip
        elif op == _ACTIVATED_GRAM:
            activated_gram(code, k, numbers, keys[line[at.KEY]], buf, paths)
            k = line[at.LAST] - 1
        else:
            simple(line, numbers, buf)
        k += 1


@scalar
def fill_constants(constant_rows, constants, start, stop, buf):  # type: ignore[no-untyped-def]
    """Write the constants start, ..., stop - 1."""
    for c in range(start, stop):
        for p in range(LANES):
            buf[constant_rows[c], p] = constants[c]


@kernel
def draw(program, first, step, out):  # type: ignore[no-untyped-def]
    """Write the normals of a step of a `Packed` program into `out` (tiles, count + 1, LANES)."""
    code, ranges, keys = borrowed(program.code), borrowed(program.ranges), borrowed(program.keys)
    table, out = borrowed(program.table), borrowed(out)
    numbers = table[step if table.shape[0] > 1 else 0]
    paths = np.empty(LANES, np.uint64)
    for tile in range(out.shape[0]):
        count_paths(paths, first + tile * LANES, step)
        for k in range(ranges[0, 0], ranges[0, 1]):
            line = code[k]
            if line[at.OP] == _NORMAL:
                size, start = line[at.ROWS] * line[at.COLUMNS], line[at.START]
                # An odd number writes one extra row, which the next normals overwrite.
                fill_normals(
                    out[tile, start : start + size + 1], size, numbers[line[at.SCALAR]],
                    keys[line[at.KEY]], paths, line[at.SLOT], compiled_once(0),
                )  # fmt: skip
