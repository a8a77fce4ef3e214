"""The parts of an Euler step of the limit that are common to all blocks, on tiles."""

from __future__ import annotations

import math

import numpy as np

from shaped_attention.kernels.jit import LANES, kernel
from shaped_attention.kernels.lanes import multiply, stop_outside
from shaped_attention.kernels.threefry import fill_normals

LARGEST_FACTOR = 1e75
"""Sum of absolute entries up to which |F F^T|^2 cannot overflow."""


@kernel
def fill_increments(out, count, scale, key, first, step):  # type: ignore[no-untyped-def]
    """Write `count` Brownian increments of variance scale^2 into out (tiles, count + 1, LANES)."""
    for t in range(out.shape[0]):
        fill_normals(out[t], count, scale, key, first + t * LANES, step, 0, 0)


@kernel
def linear_noise(F, increments, multiplier, drift, rate, step):  # type: ignore[no-untyped-def]
    """Set `multiplier` to sqrt(k) / 2 dZ_1 and add its correction -h k (m + 1) / 8 F to `drift`.

    dZ_1 is symmetric: its lower triangle, row by row, is read from the first rows of `increments`,
    and the diagonal is multiplied by sqrt 2.
    """
    tiles, m = F.shape[0], F.shape[1]
    scale = 0.5 * math.sqrt(rate)
    correction = step * rate * (m + 1) / 8.0
    for t in range(tiles):
        row = 0
        for i in range(m):
            for j in range(i + 1):
                weight = scale * math.sqrt(2.0) if i == j else scale
                for p in range(LANES):
                    multiplier[t, i, j, p] = weight * increments[t, row, p]
                    multiplier[t, j, i, p] = weight * increments[t, row, p]
                row += 1
        for i in range(m):
            for j in range(m):
                for p in range(LANES):
                    drift[t, i, j, p] -= correction * F[t, i, j, p]


@kernel
def multiply_factors(F, multiplier, out):  # type: ignore[no-untyped-def]
    """out = F M on every tile."""
    for t in range(F.shape[0]):
        multiply(F[t], multiplier[t], F.shape[1], out[t], 0, False, False)


@kernel
def freeze_stopped(F, drift, noise, stopped_at, radius, time):  # type: ignore[no-untyped-def]
    """Record the paths that are outside the radius at this time; stopped ones move no more.

    A path whose next value would overflow stops where it is.
    """
    tiles, m = F.shape[0], F.shape[1]
    alive = np.empty((tiles, LANES))
    size = np.empty(LANES)
    for t in range(tiles):
        for p in range(LANES):
            alive[t, p] = 1.0 if stopped_at[t, p] == np.inf else 0.0
    stop_outside(F, alive, stopped_at, radius, time)
    for t in range(tiles):
        size[:] = 0.0
        for i in range(m):
            for j in range(m):
                for p in range(LANES):
                    size[p] += abs(F[t, i, j, p] + drift[t, i, j, p] + noise[t, i, j, p])
        moving = 0
        for p in range(LANES):
            if not size[p] < LARGEST_FACTOR and alive[t, p] > 0.5:
                alive[t, p] = 0.0
                stopped_at[t, p] = time
            moving += 1 if alive[t, p] > 0.5 else 0
        if moving < LANES:
            for i in range(m):
                for j in range(m):
                    for p in range(LANES):
                        drift[t, i, j, p] = drift[t, i, j, p] if alive[t, p] > 0.5 else 0.0
                        noise[t, i, j, p] = noise[t, i, j, p] if alive[t, p] > 0.5 else 0.0
