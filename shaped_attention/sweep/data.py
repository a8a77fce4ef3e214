"""What is kept of each sample, as compressed bytes, and the row of a unit with its digest."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shaped_attention.numerics.seeds import canonical
from shaped_attention.sweep.specification import MOST_CELLS, Sweep, Unit

DIMENSIONS = {
    "values": ("fraction", "observable"),
    "stopping_time": (),
    "V": ("fraction", "row", "col"),
}
"""Dimensions of what is kept of a sample."""


class Drawn(NamedTuple):
    """What a unit gives: compressed records, seconds, the code of its process; or an error."""

    data: bytes
    seconds: float
    code: dict[str, str]
    error: str = ""


def record_of(sweep: Sweep) -> np.dtype[np.void]:
    """Return the type of a record, which has what is kept of a sample."""
    sizes = {"fraction": len(sweep.fractions), "observable": len(sweep.observables)}
    sizes |= {"row": sweep.tokens, "col": sweep.tokens}
    return np.dtype(
        [
            (name, "<f8", tuple(sizes[dimension] for dimension in dimensions))
            for name, dimensions in DIMENSIONS.items()
            if name != "V" or sweep.keep == "V"
        ]
    )


def encode(records: NDArray[np.void]) -> bytes:
    """Return the records of a unit as compressed bytes."""
    return zlib.compress(records.tobytes(), 1)


def decode(record: np.dtype[np.void], samples: int, data: bytes) -> NDArray[np.void] | None:
    """Return the records of a unit, None if the data do not have this size.

    No more is decompressed than it has.
    """
    size, stream = record.itemsize * samples, zlib.decompressobj()
    try:
        raw = stream.decompress(data, size + 1)
    except (zlib.error, TypeError):
        return None
    return np.frombuffer(raw, record) if len(raw) == size and stream.eof else None


def digest_of(*fields: Any) -> bytes:
    """Return the BLAKE2 digest of the fields of a row."""
    parts = []
    for field in fields:
        data = field if isinstance(field, bytes) else f"{type(field).__name__} {field!r}".encode()
        parts += [len(data).to_bytes(8, "little"), data]
    return blake2b(b"".join(parts), digest_size=16).digest()


def key_of(unit: Unit) -> tuple[str, str, int, int]:
    """Return what the row of a unit begins with; more values on an axis do not change it."""
    return unit.sampler, ",".join(map(str, unit.cell)), unit.block, unit.samples


def seal_of(sweep: Sweep) -> Callable[[tuple[int, ...]], bytes]:
    """Return what binds the rows of a cell to it: a digest of all that its samples depend on.

    More samples, and more values at the ends of axes, do not change it.
    """
    whole = canonical(sweep.model_dump(exclude={"axes", "samples", "seconds"}))
    return lru_cache(MOST_CELLS)(lambda cell: digest_of(whole, canonical(sweep.point(cell))))


def sealed(seal: bytes, unit: Unit, seconds: float, code: int, data: bytes) -> tuple[Any, ...]:
    """Return the row of a unit, with its digest."""
    row = (*key_of(unit), seconds, code, data)
    return (*row, digest_of(seal, *row))


def intact(seal: bytes, row: tuple[Any, ...]) -> bool:
    """Return whether the row of a unit has its digest."""
    return bool(row[-1] == digest_of(seal, *row[:-1]))
