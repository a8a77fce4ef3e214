"""The formats of files with arrays: ``.npy``, ``.npz``, ``.csv`` and ``.pt``.

A file is data and never code: nothing is unpickled. The arguments of a reader are a stream, the
name of the file for messages, the name of the array or None, the allowed numbers of dimensions of
an array without a name, and the most bytes that the array may have. A reader returns the array as
stored, and its name for messages. It allocates nothing before it has checked the size that the file
declares: a header of a few bytes can declare more than a machine has, and compressed zeros can be a
thousand times smaller than what they become.
"""

from __future__ import annotations

import csv
import io
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.libraries import Tensor, torch

MAX_BYTES = 2**33
"""Default for the bytes that a file may declare: 8 GiB."""


def check_declared(place: str, declared: int, max_bytes: int) -> None:
    """Raise ValueError if a file declares more than `max_bytes` bytes."""
    if declared > max_bytes:
        raise ValueError(
            f"{place} must declare at most max_bytes={max_bytes} bytes; it declares {declared}"
        )


def _npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
    """Return shape and type of the array in a ``.npy`` stream, at whose beginning it is left."""
    major, _ = np.lib.format.read_magic(stream)
    read = (
        np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = read(stream)
    stream.seek(0)
    return shape, dtype


SHAPES = {(2,): "two-dimensional", (3, 4): "three- or four-dimensional"}
"""Numbers of dimensions that are read, in words."""

_KEYS_SHOWN = 12
_NUMBER_KINDS = "iufc"


def _read_npy(
    stream: IO[bytes], name: str, key: str | None, _dimensions: tuple[int, ...], max_bytes: int
) -> tuple[NDArray[Any], str]:
    _refuse_key(name, key, "a .npy file holds one array without a name")
    with _reading(name, ".npy"):
        shape, dtype = _npy_header(stream)
    check_declared(name, math.prod(shape) * dtype.itemsize, max_bytes)
    with _reading(name, ".npy"):
        return np.lib.format.read_array(stream, allow_pickle=False), name


def _read_npz(
    stream: IO[bytes], name: str, key: str | None, dimensions: tuple[int, ...], max_bytes: int
) -> tuple[NDArray[Any], str]:
    with _reading(name, ".npz"), zipfile.ZipFile(stream) as archive:
        headers = {}
        for member in archive.namelist():
            with archive.open(member) as entry:
                headers[member.removesuffix(".npy")] = _npy_header(entry)
    fitting = [
        label
        for label, (shape, dtype) in headers.items()
        if len(shape) in dimensions and dtype.kind in _NUMBER_KINDS
    ]
    labels = list(headers)
    choice, label = _choice(labels, fitting, labels, name, key, SHAPES[dimensions])
    shape, dtype = headers[choice]
    check_declared(label, math.prod(shape) * dtype.itemsize, max_bytes)
    stream.seek(0)
    with _reading(name, ".npz"), np.load(stream, allow_pickle=False) as arrays:
        return arrays[choice], label


@contextmanager
def _reading(name: str, extension: str) -> Iterator[None]:
    """Report what a library raises for a damaged file; errors of the system pass."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise ValueError(
            f"{name}: this cannot be read as a {extension} file; it must be complete and hold "
            "plain numbers, since Python objects are never unpickled"
        ) from error


def _read_pt(
    stream: IO[bytes], name: str, key: str | None, dimensions: tuple[int, ...], max_bytes: int
) -> tuple[NDArray[Any], str]:
    declared = 0
    with _reading(name, ".pt"):
        if zipfile.is_zipfile(stream):
            with zipfile.ZipFile(stream) as archive:
                declared = sum(member.file_size for member in archive.infolist())
    check_declared(name, declared, max_bytes)
    stream.seek(0)
    with _reading(name, ".pt"):
        loaded = torch.load(stream, map_location="cpu", weights_only=True)
    if isinstance(loaded, Tensor):
        _refuse_key(name, key, "this file holds one tensor without a name")
        return _array_of(loaded, name, max_bytes), name
    if not isinstance(loaded, Mapping):
        raise ValueError(
            f"{name} must hold a tensor or a dictionary of tensors; it holds an object of type "
            f"{type(loaded).__name__}"
        )
    tensors = {str(label): value for label, value in loaded.items() if isinstance(value, Tensor)}
    fitting = [
        label
        for label, tensor in tensors.items()
        if tensor.ndim in dimensions and tensor.dtype != torch.bool
    ]
    labels = [str(label) for label in loaded]
    choice, label = _choice(list(tensors), fitting, labels, name, key, SHAPES[dimensions])
    return _array_of(tensors[choice], label, max_bytes), label


def _read_csv(
    stream: IO[bytes], name: str, key: str | None, _dimensions: tuple[int, ...], max_bytes: int
) -> tuple[NDArray[Any], str]:
    _refuse_key(name, key, "a .csv file holds one array without a name")
    # A number and its comma take two bytes of text at least, and eight in memory.
    check_declared(name, stream.seek(0, io.SEEK_END), 2 * max_bytes // 8)
    stream.seek(0)
    rows: list[list[float]] = []
    header_width: int | None = None
    # Closing the text layer closes the stream, which its owner may do a second time.
    with io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
        lines = csv.reader(text)
        try:
            for fields in lines:
                # Commas alone are a row with missing entries: an error below, not a blank line.
                if len(fields) < 2 and not "".join(fields).strip():
                    continue
                numbers = [_number(field) for field in fields]
                first = not rows and header_width is None
                if first and any(field.strip() for field in fields) and set(numbers) == {None}:
                    header_width = len(fields)
                    continue
                width = len(rows[0]) if rows else header_width or len(fields)
                if len(fields) != width:
                    raise ValueError(
                        f"{name}: line {lines.line_num} has {len(fields)} fields, but the lines "
                        f"before it have {width}, and all must have the same number"
                    )
                row = [number for number in numbers if number is not None]
                if len(row) < len(fields):
                    place = numbers.index(None)
                    raise ValueError(
                        f"{name}: line {lines.line_num}, field {place + 1} is "
                        f"{_shortened(fields[place])}, but every field must be a real number, with "
                        "commas between fields"
                    )
                rows.append(row)
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{name}: this is not UTF-8 text, which a .csv file must be"
            ) from error
        except csv.Error as error:
            raise ValueError(
                f"{name}: line {lines.line_num} is not comma-separated text ({error}), which a "
                ".csv file must be"
            ) from error
    if not rows:
        content = "no lines" if header_width is None else "only a header line without numbers"
        raise ValueError(f"{name} must hold at least one row of numbers; it has {content}")
    return np.array(rows), name


Reader = Callable[[IO[bytes], str, str | None, tuple[int, ...], int], tuple[NDArray[Any], str]]
READERS: dict[str, Reader] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".csv": _read_csv,
    ".pt": _read_pt,
}


def _choice(
    arrays: list[str], fitting: list[str], labels: list[str], name: str, key: str | None, shape: str
) -> tuple[str, str]:
    """Return which array is meant, `key` or the only one that could be, and words for it.

    `labels` are all names in the file, `arrays` those of readable arrays, and `fitting` those of
    numeric arrays of the required `shape`, such as "two-dimensional".
    """
    if key is not None:
        if key not in arrays:
            thing = "no array" if key in labels else "nothing"
            raise ValueError(f"{name}: {thing} has the key {key!r}; {_listing(labels)}")
        return key, f"{name} (key {key!r})"
    # A lone array is meant whatever its shape: then its defect is reported, not its absence.
    candidates = arrays if len(labels) == 1 else fitting
    if not candidates:
        raise ValueError(
            f"{name} must hold a {shape} numeric array; it has none, and {_listing(labels)}"
        )
    if len(candidates) > 1:
        raise ValueError(
            f"{name}: {len(candidates)} arrays in this file are {shape} and numeric, so key= must "
            f"name one; {_listing(labels)}"
        )
    return candidates[0], f"{name} (key {candidates[0]!r})"


def _array_of(tensor: Tensor, name: str, max_bytes: int) -> NDArray[Any]:
    # A tensor may be a view that repeats few numbers.
    check_declared(name, 8 * tensor.numel(), max_bytes)
    # NumPy lacks torch's short floating types, which float64 contains exactly.
    widened = tensor.detach().double() if tensor.is_floating_point() else tensor.detach()
    try:
        return widened.resolve_conj().numpy()
    except (TypeError, RuntimeError) as error:
        raise ValueError(
            f"{name} must hold a dense tensor of ordinary numbers; it holds a "
            f"{str(tensor.layout).removeprefix('torch.')} {tensor.dtype} tensor"
        ) from error


def _number(field: str) -> float | None:
    try:
        # Python reads 1_000 as a number; no other program writes that.
        return None if "_" in field else float(field)
    except ValueError:
        return None


def _refuse_key(name: str, key: str | None, reason: str) -> None:
    if key is not None:
        raise ValueError(f"{name}: key={key!r} was given, but {reason}, so key must be None")


def _listing(names: list[str]) -> str:
    if not names:
        return "the file holds no arrays"
    more = f" and {len(names) - _KEYS_SHOWN} more" if len(names) > _KEYS_SHOWN else ""
    return f"the keys are {', '.join(map(repr, names[:_KEYS_SHOWN]))}{more}"


def _shortened(field: str) -> str:
    text = field.strip()
    return repr(text if len(text) <= 40 else text[:37] + "...") if text else "empty"
