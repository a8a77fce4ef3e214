"""Random numbers written into arrays: functions of integers, by emitted code.

A counter-based generator maps (key, counter) to 128 random bits with no state in between
(Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011). The key
comes from the seed and the stream's name; the counter identifies the number:

======================  ======================================================
first counter word      slot (24 bits), then pair index (40 bits)
second counter word     sample (32 bits), then step (32 bits)
======================  ======================================================

so the numbers of a path do not depend on the other paths, their order or the device. One pair of
words gives two normals by the Box-Muller formula. The torch twin, which runs on any device, is
`shaped_attention.numerics.draws`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.random import (
    SLOT_SHIFT,
    chi_function,
    keys,
    normal_pair,
    threefry,
)
from shaped_attention.compiler.text import Int, Real

Array = NDArray[np.float64]
Words = NDArray[np.uint64]

_TOGETHER = 4
"""Vectors of pairs that are made at once: each is a long chain, and processors run several."""


def path_words(samples: Any, step: Any) -> Words:
    """Return the second counter words of samples (count,) at a step, or each at its own step."""
    numbers = np.atleast_1d(np.asarray(samples, dtype=np.uint64))
    return (numbers << np.uint64(32)) | np.asarray(step, dtype=np.uint64)


def fill_normals(out: Array, key: Words, paths: Words, slot: int, pair: int = 0) -> None:
    """Write normals into `out` (samples, count), row s for the path with counter word paths[s].

    Element 2 k + i is the i-th normal of the pair of index `pair` + k, of its slot.
    """
    samples, count = out.shape
    assert out.flags.c_contiguous
    if count:
        _code()[0](
            out.ctypes.data, int(key[0]), int(key[1]), paths.ctypes.data,
            (slot << SLOT_SHIFT) + pair, samples, count,
        )  # fmt: skip


def fill_chi(out: Array, dof: int, key: Words, paths: Words, slot: int) -> None:
    """Write chi variables with dof - j >= 2 degrees of freedom into column j of `out`.

    The rejection method of Marsaglia and Tsang (ACM TOMS 26, 2000) is exact; every attempt has its
    own counter.
    """
    samples, count = out.shape
    _code()[1](
        out.ctypes.data, int(key[0]), int(key[1]), paths.ctypes.data, slot << SLOT_SHIFT, samples,
        count, float(dof),
    )  # fmt: skip


def fill_wishart(out: Array, dof: int, key: Words, paths: Words, slots: tuple[int, int]) -> None:
    """Write Bartlett's factors for `dof` degrees of freedom into `out` (samples, m, m).

    What is below the diagonal has the first slot, and the diagonal the second.
    """
    samples, m, _ = out.shape
    below, diagonal = np.empty((samples, m * (m - 1) // 2)), np.empty((samples, m))
    fill_normals(below, key, paths, slots[0])
    fill_chi(diagonal, dof, key, paths, slots[1])
    out.fill(0.0)
    flat = out.reshape(samples, m * m)
    flat[:, :: m + 1] = diagonal
    flat[:, _below(m)] = below


@cache
def _below(m: int) -> NDArray[np.int64]:
    """Return the places of the entries below the diagonal, row by row."""
    rows, columns = np.tril_indices(m, -1)
    return rows * m + columns


@cache
def _code() -> tuple[Callable[..., None], Callable[..., None]]:
    e = Emitter()
    parameters = [("ptr", "out"), ("i64", "k0"), ("i64", "k1"), ("ptr", "paths"), ("i64", "c0")]
    parameters += [("i64", "samples"), ("i64", "count")]
    e.function(parameters, lambda: _normals(e), name="normals")
    with e.typed(lanes=1):
        e.function([*parameters, ("double", "dof")], lambda: _chi(e), name="chi")
    code = e.compiled()
    types = [ctypes.c_void_p, *[ctypes.c_uint64] * 2, ctypes.c_void_p, *[ctypes.c_int64] * 3]
    return code.function("normals", *types), code.function("chi", *types, ctypes.c_double)


def _normals(e: Emitter) -> None:
    """Emit the normals of all samples, with a pair in each lane."""
    key, kind, lanes = keys(e), e.of("i64"), e.lanes

    def halves(a: Real, b: Real) -> list[str]:
        """Return the numbers a_0, b_0, a_1, b_1, ... as two vectors."""
        found = []
        for first in (0, lanes // 2):
            order = ", ".join(
                f"i32 {first + k}, i32 {lanes + first + k}" for k in range(lanes // 2)
            )
            found.append(
                e.new(f"shufflevector {e.vector} {a}, {e.vector} {b}, <{lanes} x i32> <{order}>")
            )
        return found

    def sample(s: Int, _: object) -> None:
        path = e.splat(e.new(f"load i64, ptr {e.at('%paths', s, 'i64')}, align 8"), "i64")
        row = e.at("%out", e.mul(s, "%count"), "double")

        def vectors(pair: Int, together: int) -> list[list[str]]:
            words = []
            for v in range(together):
                start = e.splat(str(e.add(e.add("%c0", pair), v * lanes)), "i64")
                c0 = e.new(f"add {kind} {start}, {e.lane_numbers()}")
                words.append(threefry(e, key, c0, path))
            return [halves(*normal_pair(e, *pair)) for pair in words]

        def write(pair: Int, together: int) -> None:
            for v, both in enumerate(vectors(pair, together)):
                for h, x in enumerate(both):
                    place = e.add(e.mul(pair, 2), (2 * v + h) * lanes)
                    e.store_as("double", x, e.at(row, place, "double"))

        whole = e.new("lshr i64 %count, 1")
        size = _TOGETHER * lanes
        most = e.new(f"and i64 {whole}, {-size}")
        e.loop(0, most, size, lambda k, _: write(k, _TOGETHER), may_be_empty=True)
        main = e.new(f"and i64 {whole}, {-lanes}")
        e.loop(most, main, lanes, lambda k, _: write(k, 1), may_be_empty=True)
        done = e.mul(main, 2)
        with e.when(e.new(f"icmp ult i64 {done}, %count")):
            ((low, high),) = vectors(main, 1)
            for h, x in enumerate((low, high)):
                for p in range(lanes):
                    place = e.add(done, h * lanes + p)
                    with e.when(e.new(f"icmp ult i64 {place}, %count")):
                        one = e.new(f"extractelement {e.vector} {x}, i64 {p}")
                        to = e.at(row, place, "double")
                        e.put(f"store double {one}, ptr {to}, align 8")

    e.loop(0, "%samples", 1, sample)


def _chi(e: Emitter) -> None:
    """Emit the chi variables of one sample after the other."""
    chi = chi_function(e)

    def sample(s: Int, _: object) -> None:
        e.call(
            chi, ("ptr", e.at("%out", e.mul(s, "%count"), "double")), ("i64", "%count"),
            ("double", "%dof"), ("i64", "%k0"), ("i64", "%k1"),
            ("ptr", e.at("%paths", s, "i64")), ("i64", "%c0"),
        )  # fmt: skip

    e.loop(0, "%samples", 1, sample)
