"""Initial data from files: token arrays, covariances, and the shipped examples.

A file is data and never code: nothing is unpickled. A defective file raises a `ValueError` of one
sentence that names the file, what was found and what is allowed.
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
from shaped_attention.io.storage import reason

_EXAMPLE = "moby_dick_tokens.npz"
_REAL_KINDS = "iuf"


@with_types
def read_tokens(path: str | os.PathLike[str]) -> Float64[np.ndarray, "m n0"]:
    """Read a token array: one row per token, one column per feature.

    Parameters
    ----------
    path
        A ``.npy`` file.

    Returns
    -------
    ndarray (m, n0)
        The numbers as float64, m >= 1 and n0 >= 1.

    Raises
    ------
    FileNotFoundError
        There is no file at `path`.
    ValueError
        `path` is a directory, may not be read, has another extension or is damaged; the array is
        empty or not two-dimensional; or an entry is not a finite real number.
    """
    return read_array(path)


@with_types
def read_covariance(path: str | os.PathLike[str]) -> Float64[np.ndarray, "m m"]:
    """Read a square matrix of finite real numbers, intended as a token covariance V.

    Symmetry and positive semidefiniteness are checked where the matrix is used.

    Parameters
    ----------
    path
        A ``.npy`` file.

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
    matrix = read_array(path)
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
    stored = resources.files("shaped_attention").joinpath("data", _EXAMPLE).read_bytes()
    with np.load(io.BytesIO(stored), allow_pickle=False) as arrays:
        return arrays["tokens"].tolist(), arrays["embeddings"].astype(np.float64)


def read_array(path: str | os.PathLike[str]) -> NDArray[np.float64]:
    """Read a non-empty matrix of finite real numbers, as float64."""
    file = Path(path)
    try:
        if not file.exists():
            raise FileNotFoundError(f"{file}: there is no such file")
        if not file.is_file():
            kind = "a directory" if file.is_dir() else "not a regular file"
            raise ValueError(f"{file} must be a .npy file; it is {kind}")
        if file.suffix.lower() != ".npy":
            extension = f"the extension {file.suffix}" if file.suffix else "no extension"
            raise ValueError(f"{file} must be a .npy file; it has {extension}")
        return _checked(_stored(file), str(file))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(f"{file} cannot be read ({reason(error)})") from error


def _stored(file: Path) -> NDArray[Any]:
    """Return the array of a file as it is stored."""
    with file.open("rb") as stream:
        try:
            return np.lib.format.read_array(stream, allow_pickle=False)
        except OSError:
            raise
        except Exception as error:  # whatever NumPy raises for a damaged file
            raise ValueError(
                f"{file}: this cannot be read as a .npy file; it must be complete and hold plain "
                "numbers, since Python objects are never unpickled"
            ) from error


def _checked(array: NDArray[Any], name: str) -> NDArray[np.float64]:
    if array.dtype.kind not in _REAL_KINDS:
        kind = "complex" if array.dtype.kind == "c" else f"of the non-numeric type {array.dtype}"
        raise ValueError(f"{name} must hold real numbers; its entries are {kind}")
    if array.ndim != 2:
        raise ValueError(f"{name} must hold a two-dimensional array; its shape is {array.shape}")
    if array.size == 0:
        raise ValueError(
            f"{name} must hold at least one row and one column; the shape of the array is "
            f"{array.shape}"
        )
    # An extended-precision number may exceed float64; the test for infinity below reports it.
    with np.errstate(over="ignore"):
        numbers = np.array(array, dtype=np.float64, order="C")
    finite = np.isfinite(numbers)
    if not finite.all():
        place = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise ValueError(
            f"{name} must hold finite numbers; {np.count_nonzero(~finite)} of {numbers.size} "
            f"entries are not, the first being {numbers[place]} at {list(place)}"
        )
    return numbers
