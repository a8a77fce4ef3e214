"""What is kept of each sample, as compressed bytes, and the digests of rows."""

from __future__ import annotations

import zlib
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shaped_attention.sweep.specification import Sweep

DIMENSIONS = {
    "values": ("fraction", "observable"),
    "stopping_time": (),
    "V": ("fraction", "row", "col"),
}
"""Dimensions of what is kept of a sample."""


class Drawn(NamedTuple):
    """What a unit gives: compressed records and seconds, or an error."""

    data: bytes
    seconds: float
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
