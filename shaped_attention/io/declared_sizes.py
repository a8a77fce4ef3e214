"""Sizes that files declare, read from their headers before any memory is allocated.

A header of a few bytes can declare more than a machine has, and compressed zeros can be a thousand
times smaller than what they become.
"""

from __future__ import annotations

import zipfile
from typing import IO

import numpy as np

MAX_BYTES = 2**33
"""Default for the bytes that a file may declare: 8 GiB."""


def check_declared(place: str, declared: int, max_bytes: int) -> None:
    """Raise ValueError if a file declares more than `max_bytes` bytes."""
    if declared > max_bytes:
        raise ValueError(
            f"{place} must declare at most max_bytes={max_bytes} bytes; it declares {declared}"
        )


Header = tuple[tuple[int, ...], np.dtype[np.generic]]
"""Shape and type of an array."""


def npy_header(stream: IO[bytes]) -> Header:
    """Return shape and type of the array in a ``.npy`` stream, at whose beginning it is left."""
    major, _ = np.lib.format.read_magic(stream)
    read = (
        np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = read(stream)
    stream.seek(0)
    return shape, dtype


def npz_headers(
    archive: zipfile.ZipFile,
) -> dict[str, Header]:
    """Return shape and type of the arrays in a ``.npz`` archive, by name."""
    headers = {}
    for member in archive.namelist():
        with archive.open(member) as stream:
            headers[member.removesuffix(".npy")] = npy_header(stream)
    return headers
