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
def is_broken(buf, size, p, moved):  # type: ignore[no-untyped-def]
    """Return whether a step gives NaN from a factor that is far from an overflow."""
    total = 0.0
    for i in range(size):
        total += abs(buf[i, p])
    return np.isnan(moved) and total < MODERATE_FACTOR


@kernel
def _stop_overflowing(buf, drift, noise, size, work, alive, stopped_at, time):  # type: ignore[no-untyped-def]
    """Stop, before the step, the lanes whose next factor would overflow; return if all move.

    The stopping time is NaN for a step that overflows nowhere and is not a number.
    """
    for p in range(LANES):
        buf[work, p] = 0.0
    for i in range(size):
        for p in range(LANES):
            buf[work, p] += abs(buf[i, p] + buf[drift + i, p] + buf[noise + i, p])
    moving = 0
    for p in range(LANES):
        if alive[p] > 0.5 and not buf[work, p] < LARGEST_FACTOR:
            alive[p] = 0.0
            stopped_at[p] = np.nan if is_broken(buf, size, p, buf[work, p]) else time
        moving += 1 if alive[p] > 0.5 else 0
    return moving == LANES


@kernel
def _report(buf, start, size, alive, all_move, out):  # type: ignore[no-untyped-def]
    """Copy rows to `out` (size, LANES), with zeros for the lanes that have stopped."""
    for i in range(size):
        for p in range(LANES):
            out[i, p] = buf[start + i, p]
    if not all_move:
        for i in range(size):
            for p in range(LANES):
                out[i, p] = out[i, p] if alive[p] > 0.5 else 0.0


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
        living = 0.0
        for p in range(LANES):
            living += alive[tile, p]
        if living == 0.0 and mode != REPORT:
            continue
        for i in range(size):
            for p in range(LANES):
                buf[i, p] = state[tile, i, p]
        filled = False
        for step in range(begin, end):
            which = step % programs
            if programs > 1 or not filled:
                fill_constants(constant_rows, constants, ranges[which, 2], ranges[which, 3], buf)
                filled = True
            if mode == REPORT:
                times[:] = step * dt
                stop_outside(buf, parts, work, alive[tile], stopped_at[tile], radii, times)
            numbers = table[step if table.shape[0] > 1 else 0]
            count_paths(paths, first + tile * LANES, step)
            run(
                code, ranges[which, 0], ranges[which, 1], numbers, keys, buf, paths,
                given[tile], mode == REPORT,
            )  # fmt: skip
            drift, noise = outputs[which, 0, 0], outputs[which, outputs.shape[1] - 1, 0]
            all_move = mode != REPLACE and _stop_overflowing(
                buf, drift, noise, size, work, alive[tile], stopped_at[tile], step * dt
            )
            if mode == REPORT:
                _report(buf, drift, size, alive[tile], all_move, reported[0, tile])
                _report(buf, noise, size, alive[tile], all_move, reported[1, tile])
                continue
            living = 0.0
            for p in range(LANES):
                living += alive[tile, p]
            if living > 0.0:
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
            else:
                break
        for i in range(size):
            for p in range(LANES):
                state[tile, i, p] = buf[i, p]
    memory[0, 0] = 0.0  # still alive


@kernel
def check_outside(program, state, alive, stopped_at, radius, time):  # type: ignore[no-untyped-def]
    """Stop the paths of all tiles that are outside the radius at this time."""
    size = state.shape[1]
    buf = tile_buffer(size + 3)
    radii, times = np.full(LANES, radius), np.full(LANES, time)
    for tile in range(state.shape[0]):
        for i in range(size):
            for p in range(LANES):
                buf[i, p] = state[tile, i, p]
        stop_outside(buf, program.parts, size, alive[tile], stopped_at[tile], radii, times)
