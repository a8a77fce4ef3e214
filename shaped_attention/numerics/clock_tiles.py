"""Paths of the limit on tiles, each with its own time and its own length of the next step.

Which paths share a tile changes: after a few steps those that still have to move are gathered
again, so the few paths near an explosion, which take many steps, do not hold up the others.
"""

from __future__ import annotations

import math

import numpy as np

from shaped_attention.numerics.jit import LANES, borrowed, compiled_once, kernel, tile_buffer
from shaped_attention.numerics.operations.sums import squares
from shaped_attention.numerics.threefry import counter
from shaped_attention.numerics.tile_interpreter import fill_constants, run
from shaped_attention.numerics.tiles import stop_outside, stop_overflowing


@kernel
def advance_clock(  # type: ignore[no-untyped-def]
    program, state, left, grid, taken, alive, stopped_at, largest, samples, radius, dt, shift, near,
    end, slots, stored, burst, budget,
):  # fmt: skip
    """Move all paths to the grid point `end`, and return whether some have not arrived.

    Parameters
    ----------
    program
        A `Packed` of three programs: the speed, a step, and the variance rate of log |V|.
    state
        Factors (count, m m), changed in place, as are the next six.
    left, grid, taken
        Time left to the next grid point, number of the last one, steps taken (count,).
    alive, stopped_at, largest
        1.0 where a path moves, stopping times (NaN for a step that is not a number), and the
        largest speed before a step (count,).
    samples
        Numbers of the paths (count,).
    radius, dt, shift, near
        Stopping radius, distance of grid points, the barrier's shift in standard deviations of a
        step, and the traces, in units of the radius, above which it is computed.
    slots, stored
        Where the state at a grid point is copied (grid points,), -1 for nowhere; and the copies
        (slots, count, m m).
    burst, budget
        Steps after which paths are gathered again, and steps of a tile after which to return.
    """
    count, size = state.shape
    code, ranges, table, keys, constant_rows, constants, outputs, parts, work, _ = program
    code, table, keys = borrowed(code), borrowed(table), borrowed(keys)
    memory = tile_buffer(work + 3)
    buf = borrowed(memory)
    paths = np.empty(LANES, np.uint64)
    radii, times = np.empty(LANES), np.empty(LANES)
    length, pieces = np.empty(LANES), np.empty(LANES)
    moving, stops = np.empty(LANES), np.empty(LANES)
    active = np.empty(count, np.int64)
    scheduled = table.shape[0] > 1
    length_row = size
    spent = 0
    while True:
        target = end
        if scheduled:
            # The parameters of a tile are those of one grid point.
            for i in range(count):
                if alive[i] > 0.5 and grid[i] < end:
                    target = min(target, grid[i] + 1)
        found = 0
        for i in range(count):
            if alive[i] > 0.5 and grid[i] < target:
                active[found] = i
                found += 1
        if found == 0 or spent >= budget:
            memory[0, 0] = 0.0  # still alive
            return found > 0
        numbers = table[target - 1 if scheduled else 0]
        for start in range(0, found, LANES):
            here = min(LANES, found - start)
            for p in range(LANES):
                i = active[start + min(p, here - 1)]
                moving[p] = 1.0 if p < here else 0.0
                stops[p] = np.inf
                for j in range(size):
                    buf[j, p] = state[i, j]
            for _ in range(burst):
                fill_constants(constant_rows, constants, ranges[0, 2], ranges[0, 3], buf)
                run(code, ranges[0, 0], ranges[0, 1], numbers, keys, buf, paths, buf, False)
                speed = outputs[0, 0, 0]
                for p in range(LANES):
                    i = active[start + min(p, here - 1)]
                    if moving[p] > 0.5:
                        largest[i] = max(largest[i], buf[speed, p])
                    pieces[p] = max(np.floor(left[i] * (1.0 + buf[speed, p]) / dt + 0.5), 1.0)
                    length[p] = left[i] / pieces[p]
                    _, paths[p] = counter(0, 0, samples[i], taken[i])
                    times[p] = grid[i] * dt + (dt - left[i])
                    buf[length_row, p] = length[p] if moving[p] > 0.5 else 0.0
                fill_constants(constant_rows, constants, ranges[1, 2], ranges[1, 3], buf)
                run(code, ranges[1, 0], ranges[1, 1], numbers, keys, buf, paths, buf, False)
                out = outputs[1, 0, 0]
                for p in range(LANES):
                    buf[work, p] = 0.0
                for j in range(size):
                    for p in range(LANES):
                        buf[work, p] += abs(buf[out + j, p])
                stop_overflowing(buf, size, work, moving, stops, times)
                for j in range(size):
                    for p in range(LANES):
                        buf[j, p] = buf[out + j, p] if moving[p] > 0.5 else buf[j, p]
                for p in range(LANES):
                    if moving[p] < 0.5:
                        continue
                    i = active[start + p]
                    taken[i] += 1
                    if pieces[p] == 1.0:
                        grid[i] += 1
                        left[i] = dt
                        times[p] = grid[i] * dt
                    else:
                        left[i] -= length[p]
                        times[p] += length[p]
                squares(buf, work, compiled_once(0), compiled_once(1), size)
                close = False
                for p in range(here):
                    close = close or (moving[p] > 0.5 and buf[work, p] >= near * radius)
                if close:
                    fill_constants(constant_rows, constants, ranges[2, 2], ranges[2, 3], buf)
                    run(code, ranges[2, 0], ranges[2, 1], numbers, keys, buf, paths, buf, False)
                    spread = outputs[2, 0, 0]
                    for p in range(LANES):
                        deviation = math.sqrt(buf[spread, p] * length[p])
                        lowered = radius * math.exp(-shift * deviation)
                        # A path must not depend on those that share its tile.
                        radii[p] = lowered if buf[work, p] >= near * radius else radius
                    stop_outside(buf, parts, work, moving, stops, radii, times)
                waiting = 0
                for p in range(here):
                    i = active[start + p]
                    if pieces[p] == 1.0 and moving[p] > 0.5 and slots[grid[i]] >= 0:
                        for j in range(size):
                            stored[slots[grid[i]], i, j] = buf[j, p]
                    if moving[p] > 0.5 and grid[i] >= target:
                        moving[p] = 0.0
                    waiting += 1 if moving[p] > 0.5 else 0
                spent += 1
                if waiting == 0:
                    break
            for p in range(here):
                i = active[start + p]
                for j in range(size):
                    state[i, j] = buf[j, p]
                if stops[p] != np.inf:
                    alive[i] = 0.0
                    stopped_at[i] = stops[p]
