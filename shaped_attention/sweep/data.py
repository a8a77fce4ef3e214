"""The arrays of a unit as compressed bytes, and the digest of a row."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.numerics.seeds import canonical
from shaped_attention.sweep.specification import MOST_CELLS, Sweep, Unit

Arrays = dict[str, NDArray[np.float64]]

DIMENSIONS = {
    "values": ("fraction", "sample", "observable"),
    "stopping_time": ("sample",),
    "V": ("fraction", "sample", "row", "col"),
}
"""Dimensions of the arrays of a unit, in the order of their bytes."""


def shapes(sweep: Sweep, samples: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays of a unit with this number of samples, by name."""
    sizes = {"fraction": len(sweep.fractions), "sample": samples, "row": sweep.tokens}
    sizes |= {"observable": len(sweep.observables), "col": sweep.tokens}
    kept = [name for name in DIMENSIONS if name != "V" or sweep.keep == "V"]
    return {name: tuple(sizes[dimension] for dimension in DIMENSIONS[name]) for name in kept}


def encode(arrays: Arrays) -> bytes:
    """Return compressed arrays, in the order of `DIMENSIONS`."""
    parts = [np.ascontiguousarray(arrays[x], "<f8").tobytes() for x in DIMENSIONS if x in arrays]
    return zlib.compress(b"".join(parts), 1)


def decode(sizes: dict[str, tuple[int, ...]], data: bytes) -> Arrays | None:
    """Return the arrays of a unit, None if the data are not of these shapes.

    No more is decompressed than they have.
    """
    counts = {name: prod(shape) for name, shape in sizes.items()}
    expected, stream = 8 * sum(counts.values()), zlib.decompressobj()
    try:
        raw = stream.decompress(data, expected + 1)
    except (zlib.error, TypeError):
        return None
    if len(raw) != expected or not stream.eof:
        return None
    arrays, at = Arrays(), 0
    for name, shape in sizes.items():
        arrays[name] = np.frombuffer(raw, "<f8", counts[name], at).reshape(shape)
        at += 8 * counts[name]
    return arrays


def digest_of(*fields: Any) -> bytes:
    """Return the BLAKE2 digest of the fields of a row."""
    parts = []
    for field in fields:
        data = field if isinstance(field, bytes) else f"{type(field).__name__} {field!r}".encode()
        parts += [len(data).to_bytes(8, "little"), data]
    return blake2b(b"".join(parts), digest_size=16).digest()


def seal_of(sweep: Sweep) -> Callable[[tuple[int, ...]], bytes]:
    """Return what binds the rows of a cell to it: a digest of all that its samples depend on.

    More samples, and more values at the ends of axes, do not change it.
    """
    whole = canonical(sweep.model_dump(exclude={"axes", "samples", "seconds"}))
    return lru_cache(MOST_CELLS)(lambda cell: digest_of(whole, canonical(sweep.point(cell))))


def sealed(seal: bytes, unit: Unit, seconds: float, code: int, data: bytes) -> tuple[Any, ...]:
    """Return the row of a unit, with its digest."""
    row = (unit.sampler, cell_text(unit.cell), unit.block, unit.samples, seconds, code, data)
    return (*row, digest_of(seal, *row))


def intact(seal: bytes, row: tuple[Any, ...]) -> bool:
    """Return whether the row of a unit has its digest."""
    return bool(row[-1] == digest_of(seal, *row[:-1]))


def cell_text(index: tuple[int, ...]) -> str:
    """Return the indices of a cell as rows have them; more values on an axis do not change them."""
    return ",".join(map(str, index))
