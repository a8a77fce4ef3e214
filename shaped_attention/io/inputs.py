"""Initial data from files: token arrays, covariances, and the shipped examples.

`file_formats` reads the four formats. A defective file raises a `ValueError` of one sentence that
names the file, what was found and what is allowed.
"""

from __future__ import annotations

import io
import os
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from shaped_attention.checks import with_types
from shaped_attention.io.file_formats import MAX_BYTES, READERS, SHAPES
from shaped_attention.io.storage import reason

_EXAMPLE = "moby_dick_tokens.npz"
_REAL_KINDS = "iuf"


@with_types
def read_tokens(
    path: str | os.PathLike[str], key: str | None = None, *, max_bytes: int = MAX_BYTES
) -> Float64[np.ndarray, "m n0"]:
    """Read a token array: one row per token, one column per feature.

    Parameters
    ----------
    path
        A ``.npy``, ``.npz``, ``.csv`` or ``.pt`` file. A ``.csv`` file holds comma-separated
        numbers; its first line is a header if none of its fields is a number, so a header of
        bare numbers would be read as a token. A ``.pt`` file holds a tensor, or a
        dictionary with tensors, and is loaded with ``weights_only=True``.
    key
        Name of the array in a ``.npz`` file or of the tensor in a ``.pt`` dictionary. It may be
        omitted if the file holds a single array, or a single two-dimensional numeric array.
    max_bytes
        Largest number of bytes that the array may have, checked before it is read.

    Returns
    -------
    ndarray (m, n0)
        The numbers as float64, m >= 1 and n0 >= 1.

    Raises
    ------
    FileNotFoundError
        There is no file at `path`.
    ValueError
        `path` is a directory, may not be read, has another extension or is damaged; `key` is
        missing, unknown or given for a file without names; the array is empty, not
        two-dimensional, ragged or larger than `max_bytes`; or an entry is not a finite real number.
    """
    return read_array(path, key, max_bytes=max_bytes)


@with_types
def read_covariance(
    path: str | os.PathLike[str], key: str | None = None, *, max_bytes: int = MAX_BYTES
) -> Float64[np.ndarray, "m m"]:
    """Read a square matrix of finite real numbers, intended as a token covariance V.

    Symmetry and positive semidefiniteness are checked where the matrix is used.

    Parameters
    ----------
    path, key, max_bytes
        As for `read_tokens`.

    Returns
    -------
    ndarray (m, m)
        The numbers as float64, m >= 1.

    Raises
    ------
    FileNotFoundError
        There is no file at `path`.
    ValueError
        As for `read_tokens`, and if the matrix is not square.
    """
    matrix = read_array(path, key, max_bytes=max_bytes)
    rows, columns = matrix.shape
    if rows != columns:
        raise ValueError(f"{path} must hold a square matrix; got {rows} rows and {columns} columns")
    return matrix


def example_tokens() -> tuple[list[str], Float64[np.ndarray, "8 384"]]:
    """Return eight tokens of the first sentences of Moby-Dick, and their trained embeddings.

    Returns
    -------
    tokens : list of 8 str
        The word pieces ``call me is ##hma ##el . some years``.
    embeddings : ndarray (8, 384)
        Their rows in the word embedding table of all-MiniLM-L6-v2: float32 numbers, as float64.
        ``shaped_attention/data/README.md`` gives the origin and the licence.
    """
    return read_example(_EXAMPLE, "embeddings")


def read_example(filename: str, key: str) -> tuple[list[str], NDArray[np.float64]]:
    """Return the words `tokens` and the array `key` of a shipped file, the numbers as float64."""
    stored = resources.files("shaped_attention").joinpath("data", filename).read_bytes()
    with np.load(io.BytesIO(stored), allow_pickle=False) as arrays:
        return arrays["tokens"].tolist(), arrays[key].astype(np.float64)


@with_types
def read_array(
    path: str | os.PathLike[str],
    key: str | None = None,
    dimensions: tuple[int, ...] = (2,),
    max_bytes: int = MAX_BYTES,
) -> NDArray[np.float64]:
    """Read a non-empty array of finite real numbers with 2, or 3 or 4, dimensions, as float64.

    Arguments and errors are those of `read_tokens`; more than 2 dimensions do not fit into a
    ``.csv`` file.
    """
    file = Path(path)
    readers = {
        suffix: read for suffix, read in READERS.items() if dimensions == (2,) or suffix != ".csv"
    }
    *others, last = readers
    formats = f"{', '.join(others)} or {last}"
    try:
        if not file.exists():
            raise FileNotFoundError(f"{file}: there is no such file")
        if not file.is_file():
            kind = "a directory" if file.is_dir() else "not a regular file"
            raise ValueError(f"{file} must be a {formats} file; it is {kind}")
        reader = readers.get(file.suffix.lower())
        if reader is None:
            extension = f"the extension {file.suffix}" if file.suffix else "no extension"
            raise ValueError(f"{file} must be a {formats} file; it has {extension}")
        with file.open("rb") as stream:
            array, name = reader(stream, str(file), key, dimensions, max_bytes)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(f"{file} cannot be read ({reason(error)})") from error
    return _checked(array, name, dimensions)


def _checked(array: NDArray[Any], name: str, dimensions: tuple[int, ...]) -> NDArray[np.float64]:
    if array.dtype.kind not in _REAL_KINDS:
        kind = "complex" if array.dtype.kind == "c" else f"of the non-numeric type {array.dtype}"
        raise ValueError(f"{name} must hold real numbers; its entries are {kind}")
    if array.ndim not in dimensions:
        raise ValueError(
            f"{name} must hold a {SHAPES[dimensions]} array; its shape is {array.shape}"
        )
    if array.size == 0:
        layer = "layer, one " if array.ndim > 2 else ""
        raise ValueError(
            f"{name} must hold at least one {layer}row and one column; the shape of the array is "
            f"{array.shape}"
        )
    # An extended-precision number may exceed float64; the test for infinity below reports it.
    with np.errstate(over="ignore"):
        numbers = np.array(array, dtype=np.float64, order="C")
    finite = np.isfinite(numbers)
    if not finite.all():
        first = tuple(np.argwhere(~finite)[0])
        layer = f"layer {first[0] + 1}, " if array.ndim > 2 else ""
        layer += f"sample {first[1] + 1}, " if array.ndim == 4 else ""
        raise ValueError(
            f"{name} must hold finite numbers; {np.count_nonzero(~finite)} of {numbers.size} "
            f"entries are not, the first being {numbers[first]} in {layer}row {first[-2] + 1}, "
            f"column {first[-1] + 1}"
        )
    return numbers
