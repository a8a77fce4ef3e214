"""Starting data from files: token arrays, covariances, and the example that is shipped.

Four formats are read: ``.npy``, ``.npz``, ``.csv`` and ``.pt``. A file is data and never code:
nothing is unpickled. Each defect of a file is one `ValueError` of one sentence that names the
file, what was found and what is allowed.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from jaxtyping import Float64
from numpy.typing import NDArray

_EXAMPLE = "moby_dick_tokens.npz"
_KEYS_SHOWN = 12
_REAL_KINDS = "iuf"
_NUMBER_KINDS = _REAL_KINDS + "c"


def read_tokens(
    path: str | os.PathLike[str], key: str | None = None
) -> Float64[np.ndarray, "m n0"]:
    """Read a token array: one row per token, one column per feature.

    Parameters
    ----------
    path
        A ``.npy``, ``.npz``, ``.csv`` or ``.pt`` file. A ``.csv`` file holds comma separated
        numbers; its first line is taken for a header if none of its fields is a number, so a
        header of bare numbers would be read as a token. A ``.pt`` file holds a tensor, or a
        dictionary with tensors, and is loaded with ``weights_only=True``.
    key
        Name of the array in a ``.npz`` file or of the tensor in a ``.pt`` dictionary. It may be
        left out if the file holds one array only, or one two-dimensional numeric array only.

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
        two-dimensional or ragged; or an entry is not a finite real number.
    """
    return _read_matrix(path, key)


def read_covariance(
    path: str | os.PathLike[str], key: str | None = None
) -> Float64[np.ndarray, "m m"]:
    """Read a square matrix of finite real numbers, meant as a token covariance V.

    Symmetry and semidefiniteness are properties of covariances, not of files: they are checked
    where the matrix is used.

    Parameters
    ----------
    path, key
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
    matrix = _read_matrix(path, key)
    rows, columns = matrix.shape
    if rows != columns:
        raise ValueError(
            f"{path}: a covariance must be a square matrix, but this one has {rows} rows and "
            f"{columns} columns"
        )
    return matrix


def example_tokens() -> tuple[list[str], Float64[np.ndarray, "8 384"]]:
    """Eight tokens of the first sentences of Moby-Dick and their embeddings by a real model.

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


def _read_matrix(path: str | os.PathLike[str], key: str | None) -> NDArray[np.float64]:
    file = Path(path)
    try:
        if not file.exists():
            raise FileNotFoundError(f"{file}: there is no such file")
        if not file.is_file():
            kind = "a directory" if file.is_dir() else "not a regular file"
            raise ValueError(f"{file}: this is {kind}, but a {_formats()} file is needed")
        reader = _READERS.get(file.suffix.lower())
        if reader is None:
            found = f"the extension is {file.suffix}" if file.suffix else "there is no extension"
            raise ValueError(f"{file}: {found}, but a {_formats()} file is needed")
        with file.open("rb") as stream:
            array, name = reader(stream, str(file), key)
    except PermissionError as error:
        raise ValueError(
            f"{file}: permission to read this file was denied; it must be readable"
        ) from error
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(
            f"{file}: reading failed with the system's error '{error.strerror or error}'; a "
            f"readable {_formats()} file is needed"
        ) from error
    return _checked(array, name)


def _checked(array: NDArray[Any], name: str) -> NDArray[np.float64]:
    if array.dtype.kind not in _REAL_KINDS:
        kind = "complex" if array.dtype.kind == "c" else f"of the non-numeric type {array.dtype}"
        raise ValueError(f"{name}: entries must be real numbers, but they are {kind}")
    if array.ndim != 2:
        raise ValueError(
            f"{name}: the array must be two-dimensional, but it is {array.ndim}-dimensional with "
            f"shape {array.shape}"
        )
    if array.size == 0:
        raise ValueError(
            f"{name}: the array is empty with shape {array.shape}; at least one row and one "
            "column are needed"
        )
    # An extended-precision number may exceed float64; the test for infinity below reports it.
    with np.errstate(over="ignore"):
        numbers = np.array(array, dtype=np.float64, order="C")
    finite = np.isfinite(numbers)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise ValueError(
            f"{name}: entries must be finite, but {np.count_nonzero(~finite)} of {numbers.size} "
            f"are not, the first being {numbers[row, column]} in row {row + 1}, column {column + 1}"
        )
    return numbers


def _read_npy(stream: IO[bytes], name: str, key: str | None) -> tuple[NDArray[Any], str]:
    _refuse_key(name, key, "a .npy file holds one array without a name")
    try:
        return np.lib.format.read_array(stream, allow_pickle=False), name
    except OSError:
        raise
    except Exception as error:
        raise _unreadable(name, ".npy") from error


def _read_npz(stream: IO[bytes], name: str, key: str | None) -> tuple[NDArray[Any], str]:
    arrays: dict[str, NDArray[Any]] = {}
    try:
        archive = np.load(stream, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise TypeError("not an archive")
        labels = archive.files
        for label in labels if key is None else {key}.intersection(labels):
            try:
                member = archive[label]
            except ValueError:
                # An array of Python objects is no reason to refuse the numbers beside it.
                if label == key or len(labels) == 1:
                    raise
            else:
                if isinstance(member, np.ndarray):
                    arrays[label] = member
    except OSError:
        raise
    except Exception as error:
        raise _unreadable(name, ".npz") from error
    matrices = [
        label
        for label, array in arrays.items()
        if array.ndim == 2 and array.dtype.kind in _NUMBER_KINDS
    ]
    choice = _choice(list(arrays), matrices, labels, name, key)
    return arrays[choice], _labelled(name, choice)


def _read_pt(stream: IO[bytes], name: str, key: str | None) -> tuple[NDArray[Any], str]:
    try:
        loaded = torch.load(stream, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:
        raise _unreadable(name, ".pt") from error
    if isinstance(loaded, torch.Tensor):
        _refuse_key(name, key, "this file holds one tensor without a name")
        return _array_of(loaded, name), name
    if not isinstance(loaded, Mapping):
        raise ValueError(
            f"{name}: this file holds an object of type {type(loaded).__name__}, but a tensor or "
            "a dictionary of tensors is needed"
        )
    tensors = {
        str(label): value for label, value in loaded.items() if isinstance(value, torch.Tensor)
    }
    matrices = [
        label
        for label, tensor in tensors.items()
        if tensor.ndim == 2 and tensor.dtype != torch.bool
    ]
    choice = _choice(list(tensors), matrices, [str(label) for label in loaded], name, key)
    return _array_of(tensors[choice], _labelled(name, choice)), _labelled(name, choice)


def _read_csv(stream: IO[bytes], name: str, key: str | None) -> tuple[NDArray[Any], str]:
    _refuse_key(name, key, "a .csv file holds one array without a name")
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
                f"{name}: line {lines.line_num} is not comma separated text ({error}), which a "
                ".csv file must be"
            ) from error
    if not rows:
        found = "no lines" if header_width is None else "only a header line without numbers"
        raise ValueError(f"{name}: this file has {found}, but at least one row is needed")
    return np.array(rows), name


_Reader = Callable[[IO[bytes], str, str | None], tuple[NDArray[Any], str]]
_READERS: dict[str, _Reader] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".csv": _read_csv,
    ".pt": _read_pt,
}


def _choice(
    arrays: list[str], matrices: list[str], labels: list[str], name: str, key: str | None
) -> str:
    """Decide which array is meant: `key`, or the only one that could be.

    `labels` are all names in the file, `arrays` those of arrays that can be read, `matrices`
    those of two-dimensional numeric arrays.
    """
    if key is not None:
        if key not in arrays:
            found = "no array" if key in labels else "nothing"
            raise ValueError(f"{name}: {found} is called key={key!r}; {_listing(labels)}")
        return key
    # A lone array is meant whatever its shape: then its defect is reported, not its absence.
    candidates = arrays if len(labels) == 1 else matrices
    if not candidates:
        raise ValueError(
            f"{name}: no array in this file is two-dimensional and numeric, and one is needed; "
            f"{_listing(labels)}"
        )
    if len(candidates) > 1:
        raise ValueError(
            f"{name}: {len(candidates)} arrays in this file are two-dimensional and numeric, so "
            f"key= must name one; {_listing(labels)}"
        )
    return candidates[0]


def _array_of(tensor: torch.Tensor, name: str) -> NDArray[Any]:
    # NumPy lacks torch's short floating types, which float64 contains exactly.
    widened = tensor.detach().double() if tensor.is_floating_point() else tensor.detach()
    try:
        return widened.resolve_conj().numpy()
    except (TypeError, RuntimeError) as error:
        raise ValueError(
            f"{name}: a {str(tensor.layout).removeprefix('torch.')} {tensor.dtype} tensor was "
            "found, but a dense tensor of ordinary numbers is needed"
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


def _unreadable(name: str, extension: str) -> ValueError:
    return ValueError(
        f"{name}: this cannot be read as a {extension} file; it must be complete and hold plain "
        "numbers, since Python objects are never unpickled"
    )


def _formats() -> str:
    *others, last = _READERS
    return f"{', '.join(others)} or {last}"


def _labelled(name: str, key: str) -> str:
    return f"{name} (key {key!r})"


def _listing(names: list[str]) -> str:
    if not names:
        return "the file holds no arrays"
    more = f" and {len(names) - _KEYS_SHOWN} more" if len(names) > _KEYS_SHOWN else ""
    return f"the keys are {', '.join(map(repr, names[:_KEYS_SHOWN]))}{more}"


def _shortened(field: str) -> str:
    text = field.strip()
    return repr(text if len(text) <= 40 else text[:37] + "...") if text else "empty"
