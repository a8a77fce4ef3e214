"""Programs on tiles of paths, compiled once for all blocks.

`advance` takes all tiles of a chunk through a range of steps in one call, without the interpreter
lock. A step is data, which `tile_interpreter` runs.
"""

from __future__ import annotations

import math

import numpy as np

from shaped_attention.numerics.jit import LANES, borrowed, compiled_once, kernel, tile_buffer
from shaped_attention.numerics.operations.sums import squares
from shaped_attention.numerics.threefry import count_paths
from shaped_attention.numerics.tile_interpreter import fill_constants, run

LARGEST_FACTOR = 1e75
"""Sum of absolute entries up to which |F F^T|^2 cannot overflow."""

MODERATE_FACTOR = 1e30
"""Sum of absolute entries up to which a step that is not a number is an error of the block."""

REPLACE, ADD, REPORT = range(3)
"""Outputs of a step: the new state, drift and noise to add, or drift and noise to report."""


@kernel
def stop_outside(buf, parts, work, alive, stopped_at, radius, time):  # type: ignore[no-untyped-def]
    """Stop the moving lanes with |V| >= radius (Frobenius norm), V = mean of F_g F_g^T.

    `radius` and `time` are (LANES,). Since |V| <= tr V, the norm itself is computed only where the
    trace reaches the radius.
    """
    trace, entry, total = work, work + 1, work + 2
    weight, tokens = 1.0 / parts.shape[0], parts[0, 2]
    for p in range(LANES):
        buf[trace, p] = 0.0
    for g in range(parts.shape[0]):
        squares(buf, entry, parts[g, 0], compiled_once(1), tokens * parts[g, 1])
        for p in range(LANES):
            buf[trace, p] += buf[entry, p]
    near = 0
    for p in range(LANES):
        near += 1 if weight * buf[trace, p] >= radius[p] else 0
    if near == 0:
        return
    for p in range(LANES):
        buf[total, p] = 0.0
    for i in range(tokens):
        for j in range(i + 1):
            for p in range(LANES):
                buf[entry, p] = 0.0
            for g in range(parts.shape[0]):
                columns = parts[g, 1]
                x, y = parts[g, 0] + i * columns, parts[g, 0] + j * columns
                for k in range(columns):
                    for p in range(LANES):
                        buf[entry, p] += buf[x + k, p] * buf[y + k, p]
            times = 1.0 if i == j else 2.0
            for p in range(LANES):
                buf[total, p] += times * buf[entry, p] * buf[entry, p]
    for p in range(LANES):
        if alive[p] > 0.5 and weight * math.sqrt(buf[total, p]) >= radius[p]:
            alive[p] = 0.0
            stopped_at[p] = time[p]


@kernel
def stop_overflowing(buf, size, sums, alive, stopped_at, time):  # type: ignore[no-untyped-def]
    """Stop, before the step, the moving lanes whose next factor would overflow.

    Row `sums` has the sums of the absolute entries of the next factors. The stopping time is that
    of `time` (LANES,), or NaN for a step that is not a number, from a factor far from an overflow.
    """
    for p in range(LANES):
        if alive[p] > 0.5 and not buf[sums, p] < LARGEST_FACTOR:
            total = 0.0
            for i in range(size):
                total += abs(buf[i, p])
            broken = np.isnan(buf[sums, p]) and total < MODERATE_FACTOR
            alive[p] = 0.0
            stopped_at[p] = np.nan if broken else time[p]


@kernel
def _report(buf, start, size, alive, out):  # type: ignore[no-untyped-def]
    """Copy rows to `out` (size, LANES), with zeros for the lanes that have stopped."""
    for i in range(size):
        for p in range(LANES):
            out[i, p] = buf[start + i, p] if alive[p] > 0.5 else 0.0


@kernel
def advance(  # type: ignore[no-untyped-def]
    program, state, alive, stopped_at, radius, dt, first, begin, end, mode, given, reported
):
    """Take the paths of all tiles through the steps begin, ..., end - 1.

    Parameters
    ----------
    program
        A `Packed`; step l runs its program l modulo their number.
    state
        States (tiles, size, LANES), changed in place.
    alive, stopped_at
        1.0 where a path moves, and stopping times (tiles, LANES).
    radius, dt, first
        Stopping radius, length of a step, and number of the first path.
    mode
        REPLACE, ADD or REPORT. The last copies drift and noise of one step, which are zero for
        stopped paths, to `reported` (2, tiles, size, LANES), and takes its normals from `given`
        (tiles, count, LANES).
    """
    tiles, size = state.shape[0], state.shape[1]
    # Once: in the loops each use of a field would count references.
    code, ranges, table, keys, constant_rows, constants, outputs, parts, work, _ = program
    code, ranges, table, keys = borrowed(code), borrowed(ranges), borrowed(table), borrowed(keys)
    state, alive, stopped_at = borrowed(state), borrowed(alive), borrowed(stopped_at)
    given, reported = borrowed(given), borrowed(reported)
    outputs, parts = borrowed(outputs), borrowed(parts)
    memory = tile_buffer(work + 3)
    buf = borrowed(memory)
    paths = np.empty(LANES, np.uint64)
    radii, times = np.full(LANES, radius), np.empty(LANES)
    programs = ranges.shape[0]
    for tile in range(tiles):
        if not alive[tile].any() and mode != REPORT:
            continue
        for i in range(size):
            for p in range(LANES):
                buf[i, p] = state[tile, i, p]
        for step in range(begin, end):
            which = step % programs
            if programs > 1 or step == begin:
                fill_constants(constant_rows, constants, ranges[which, 2], ranges[which, 3], buf)
            times[:] = step * dt
            if mode == REPORT:
                stop_outside(buf, parts, work, alive[tile], stopped_at[tile], radii, times)
            numbers = table[step if table.shape[0] > 1 else 0]
            count_paths(paths, first + tile * LANES, step)
            run(
                code, ranges[which, 0], ranges[which, 1], numbers, keys, buf, paths,
                given[tile], mode == REPORT,
            )  # fmt: skip
            drift, noise = outputs[which, 0, 0], outputs[which, outputs.shape[1] - 1, 0]
            if mode != REPLACE:
                for p in range(LANES):
                    buf[work, p] = 0.0
                for i in range(size):
                    for p in range(LANES):
                        buf[work, p] += abs(buf[i, p] + buf[drift + i, p] + buf[noise + i, p])
                stop_overflowing(buf, size, work, alive[tile], stopped_at[tile], times)
            if mode == REPORT:
                _report(buf, drift, size, alive[tile], reported[0, tile])
                _report(buf, noise, size, alive[tile], reported[1, tile])
                continue
            if not alive[tile].any():
                break
            target = 0
            if mode == ADD:
                for i in range(size):
                    for p in range(LANES):
                        new = (buf[i, p] + buf[drift + i, p]) + buf[noise + i, p]
                        buf[i, p] = new if alive[tile, p] > 0.5 else buf[i, p]
            else:
                for k in range(outputs.shape[1]):
                    row, count = outputs[which, k, 0], outputs[which, k, 1]
                    for i in range(count):
                        for p in range(LANES):
                            moving = alive[tile, p] > 0.5
                            old = buf[target + i, p]
                            buf[target + i, p] = buf[row + i, p] if moving else old
                    target += count
            times[:] = (step + 1) * dt
            stop_outside(buf, parts, work, alive[tile], stopped_at[tile], radii, times)
        for i in range(size):
            for p in range(LANES):
                state[tile, i, p] = buf[i, p]
    memory[0, 0] = 0.0  # still alive


@kernel
def apply(program, which, states, first, step, results):  # type: ignore[no-untyped-def]
    """Write the outputs of one of the programs of a `Packed` in a step, for all tiles.

    `states` (tiles, size, LANES) has the entries of its inputs, one after the other, and `results`
    (tiles, size, LANES) those of its outputs; `first` is the number of the first path.
    """
    tiles, size = states.shape[0], states.shape[1]
    code, ranges, table, keys, constant_rows, constants, outputs, _, work, _ = program
    code, ranges, table, keys = borrowed(code), borrowed(ranges), borrowed(table), borrowed(keys)
    states, results, outputs = borrowed(states), borrowed(results), borrowed(outputs)
    memory = tile_buffer(work + 3)
    buf = borrowed(memory)
    paths = np.empty(LANES, np.uint64)
    nothing = np.empty((1, LANES))
    numbers = table[step if table.shape[0] > 1 else 0]
    fill_constants(constant_rows, constants, ranges[which, 2], ranges[which, 3], buf)
    for tile in range(tiles):
        for i in range(size):
            for p in range(LANES):
                buf[i, p] = states[tile, i, p]
        count_paths(paths, first + tile * LANES, step)
        run(code, ranges[which, 0], ranges[which, 1], numbers, keys, buf, paths, nothing, size < 0)
        place = 0
        for k in range(outputs.shape[1]):
            row, count = outputs[which, k, 0], outputs[which, k, 1]
            for i in range(count):
                for p in range(LANES):
                    results[tile, place + i, p] = buf[row + i, p]
            place += count
    memory[0, 0] = 0.0  # still alive
