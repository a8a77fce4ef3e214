"""Random numbers as a function of integers: Threefry-2x64 with 20 rounds, and normals from it.

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

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.numerics.jit import kernel, scalar
from shaped_attention.numerics.vectormath import (
    bits_to_float,
    log,
    prefer_wide_vectors,
    sincos_turns,
)

PARITY = np.uint64(0x1BD11BDAA9FC1A22)
ROTATIONS = ((16, 42, 12, 31), (16, 32, 24, 21))
"""Rotations of the rounds in alternating groups of four; the compiled `threefry` unrolls them."""
_ONE = np.uint64(0x3FF0000000000000)
_U64 = np.uint64

Array = NDArray[Any]


@scalar
def _mix4(x0, x1, r0, r1, r2, r3):  # type: ignore[no-untyped-def]
    """Apply four add-rotate-xor rounds."""
    x0 += x1
    x1 = ((x1 << r0) | (x1 >> (_U64(64) - r0))) ^ x0
    x0 += x1
    x1 = ((x1 << r1) | (x1 >> (_U64(64) - r1))) ^ x0
    x0 += x1
    x1 = ((x1 << r2) | (x1 >> (_U64(64) - r2))) ^ x0
    x0 += x1
    x1 = ((x1 << r3) | (x1 >> (_U64(64) - r3))) ^ x0
    return x0, x1


@scalar
def threefry(k0, k1, c0, c1):  # type: ignore[no-untyped-def]
    """Return the two output words of Threefry-2x64-20 for key (k0, k1) and counter (c0, c1)."""
    k2 = k0 ^ k1 ^ PARITY
    x0, x1 = _mix4(c0 + k0, c1 + k1, _U64(16), _U64(42), _U64(12), _U64(31))
    x0, x1 = _mix4(x0 + k1, x1 + k2 + _U64(1), _U64(16), _U64(32), _U64(24), _U64(21))
    x0, x1 = _mix4(x0 + k2, x1 + k0 + _U64(2), _U64(16), _U64(42), _U64(12), _U64(31))
    x0, x1 = _mix4(x0 + k0, x1 + k1 + _U64(3), _U64(16), _U64(32), _U64(24), _U64(21))
    x0, x1 = _mix4(x0 + k1, x1 + k2 + _U64(4), _U64(16), _U64(42), _U64(12), _U64(31))
    return x0 + k2, x1 + k0 + _U64(5)


@scalar
def uniform(word):  # type: ignore[no-untyped-def]
    """Return a number in (0, 1] from the upper 52 bits of a word."""
    return 2.0 - bits_to_float((word >> _U64(12)) | _ONE)


@scalar
def normal_pair(x0, x1):  # type: ignore[no-untyped-def]
    """Return two independent standard normals from two words."""
    radius = math.sqrt(-2.0 * log(uniform(x0)))
    sine, cosine = sincos_turns(1.0 - uniform(x1))
    return radius * cosine, radius * sine


@scalar
def counter(slot, pair, sample, step):  # type: ignore[no-untyped-def]
    """Return the two counter words."""
    return (_U64(slot) << _U64(40)) | _U64(pair), (_U64(sample) << _U64(32)) | _U64(step)


def path_words(samples: Any, step: Any) -> NDArray[np.uint64]:
    """Return the second counter words of samples (count,) at a step, or each at its own step."""
    numbers = np.atleast_1d(np.asarray(samples, dtype=np.uint64))
    return (numbers << _U64(32)) | np.asarray(step, dtype=np.uint64)


@kernel
def fill_weights(out, key, paths, slot, pair):  # type: ignore[no-untyped-def]
    """Write normals into `out` (samples, count), row s for the path with counter word paths[s].

    Element 2k + i is the i-th normal of the pair of index `pair` + k, of its slot.
    """
    prefer_wide_vectors()
    k0, k1 = key[0], key[1]
    samples, count = out.shape
    for s in range(samples):
        row = out[s]
        c1 = paths[s]
        for k in range(count // 2):
            c0, _ = counter(slot, pair + k, 0, 0)
            x0, x1 = threefry(k0, k1, c0, c1)
            row[2 * k], row[2 * k + 1] = normal_pair(x0, x1)
        if count % 2 == 1:
            c0, _ = counter(slot, pair + count // 2, 0, 0)
            x0, x1 = threefry(k0, k1, c0, c1)
            row[count - 1], _ = normal_pair(x0, x1)


ATTEMPT_SHIFT = 20
"""Bits of the pair index that count variables in `fill_chi`; the bits above count attempts."""


@scalar
def _chi_proposal(normal, dof):  # type: ignore[no-untyped-def]
    """Return the Marsaglia-Tsang proposal (cube, d) for a gamma variable of shape dof / 2 >= 1."""
    d = 0.5 * dof - 1.0 / 3.0
    root = 1.0 + normal / (3.0 * math.sqrt(d))
    return root * root * root, d


@scalar
def _chi_accepts(normal, word, cube, d):  # type: ignore[no-untyped-def]
    """Return whether the proposal is accepted: log u < x^2/2 + d (1 - v + log v), v > 0."""
    positive = cube > 0.0
    safe = cube if positive else 1.0
    return positive and log(uniform(word)) < 0.5 * normal * normal + d * (1.0 - safe + log(safe))


@kernel
def _chi_again(dof, j, k0, k1, path, slot):  # type: ignore[no-untyped-def]
    """Return the first accepted proposal after the zeroth, for one path."""
    attempt = 1
    while True:
        pair = (attempt << ATTEMPT_SHIFT) + 2 * (j // 2)
        c0, _ = counter(slot, pair, 0, 0)
        x0, x1 = threefry(k0, k1, c0, path)
        a, b = normal_pair(x0, x1)
        c0, _ = counter(slot, pair + 1, 0, 0)
        w0, w1 = threefry(k0, k1, c0, path)
        normal, word = (a, w0) if j % 2 == 0 else (b, w1)
        cube, d = _chi_proposal(normal, dof)
        if _chi_accepts(normal, word, cube, d):
            return math.sqrt(2.0 * d * cube)
        attempt += 1


@kernel
def fill_chi(out, dof, key, paths, slot):  # type: ignore[no-untyped-def]
    """Write chi variables with dof - j >= 2 degrees of freedom into row j of `out` (J, ...).

    The first entries of a row belong to `paths`.

    The rejection method of Marsaglia and Tsang (ACM TOMS 26, 2000) is exact; every attempt has its
    own counter. Two rows share a pair of normals and a pair of uniforms.
    """
    prefer_wide_vectors()
    k0, k1 = key[0], key[1]
    rows, lanes = out.shape[0], paths.shape[0]
    for j in range(0, rows, 2):
        two = j + 1 < rows
        ca, _ = counter(slot, j, 0, 0)
        cb, _ = counter(slot, j + 1, 0, 0)
        rejected = 0
        for p in range(lanes):
            x0, x1 = threefry(k0, k1, ca, paths[p])
            w0, w1 = threefry(k0, k1, cb, paths[p])
            a, b = normal_pair(x0, x1)
            # The second of an odd number is not used; its degrees only have to be enough.
            cube_a, d_a = _chi_proposal(a, dof - j)
            cube_b, d_b = _chi_proposal(b, dof - j - 1)
            good_a = _chi_accepts(a, w0, cube_a, d_a)
            good_b = _chi_accepts(b, w1, cube_b, d_b)
            out[j, p] = math.sqrt(2.0 * d_a * cube_a) if good_a else -1.0
            if two:
                out[j + 1, p] = math.sqrt(2.0 * d_b * cube_b) if good_b else -1.0
            rejected += 0 if good_a and good_b else 1
        if rejected > 0:
            for i in range(j, min(j + 2, rows)):
                for p in range(lanes):
                    if out[i, p] < 0.0:
                        out[i, p] = _chi_again(dof - i, i, k0, k1, paths[p], slot)


@kernel
def fill_beside(out, dof, key, paths, slots):  # type: ignore[no-untyped-def]
    """Write [G, B] into `out` (samples, m, c + m): normals, and Bartlett's factor for `dof`.

    G, what is below the diagonal of B, and its diagonal have a slot each.
    """
    samples, m, columns = out.shape
    known = columns - m
    diagonal = np.empty((m, samples))
    fill_chi(diagonal, dof, key, paths, slots[2])
    normals, below = np.empty((1, m * known)), np.empty((1, m * (m - 1) // 2))
    for s in range(samples):
        fill_weights(normals, key, paths[s : s + 1], slots[0], 0)
        fill_weights(below, key, paths[s : s + 1], slots[1], 0)
        for i in range(m):
            for c in range(known):
                out[s, i, c] = normals[0, i * known + c]
            for j in range(m):
                out[s, i, known + j] = below[0, i * (i - 1) // 2 + j] if j < i else 0.0
            out[s, i, known + i] = diagonal[i, s]
