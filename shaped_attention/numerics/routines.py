"""Routines of BLAS and LAPACK on matrices, by the pointers that SciPy exports.

They release the interpreter lock, and use one half of triangular and symmetric matrices, as the
functions of NumPy do not.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

PIVOT_EPSILONS = 64.0
"""A pivot below this many rounding units of its row counts as zero, in every executor."""
PIVOT = PIVOT_EPSILONS * float(np.finfo(np.float64).eps)

_PANEL = 32
"""Columns of a panel of the QR factorisation (16, 32 and 64 were measured)."""

_SUSPICIOUS = 8.0
"""The exact rule decides pivots below this multiple of (level times number of rows)."""

_LEFT, _RIGHT, _UPPER, _PLAIN, _TRANSPOSED = b"L", b"R", b"U", b"N", b"T"


@cache
def _routine(name: str) -> Callable[..., None]:
    of_blas = name in ("dtrmm", "dsyrk")
    module: Any = import_module(f"scipy.linalg.cython_{'blas' if of_blas else 'lapack'}")
    capsule = module.__pyx_capi__[name]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = (
        ctypes.c_char_p, [ctypes.py_object],
    )  # fmt: skip
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    return ctypes.CFUNCTYPE(None)(address)


def _call(name: str, *arguments: Any) -> None:
    """Call a routine; arguments are passed by reference."""
    given: list[Any] = []
    for x in arguments:
        if isinstance(x, np.ndarray):
            assert x.flags.c_contiguous
            given.append(ctypes.c_void_p(x.ctypes.data))
        elif isinstance(x, bytes):
            given.append(ctypes.c_char_p(x))
        elif isinstance(x, float):
            given.append(ctypes.byref(ctypes.c_double(x)))
        else:
            given.append(ctypes.byref(x if isinstance(x, ctypes.c_int) else ctypes.c_int(x)))
    _routine(name)(*given)


def multiply_triangular(lower: Array, b: Array, *, left: bool, transposed: bool) -> None:
    """Overwrite B by L B or B L, or by L^T B or B L^T, for lower triangular L."""
    rows, columns = b.shape
    _call(
        "dtrmm", _RIGHT if left else _LEFT, _UPPER, _TRANSPOSED if transposed else _PLAIN, _PLAIN,
        columns, rows, 1.0, lower, len(lower), b, columns,
    )  # fmt: skip


def add_cogram(h: Array, total: Array) -> None:
    """Add H^T H to the lower triangle of `total`."""
    rows, columns = h.shape
    _call("dsyrk", _UPPER, _PLAIN, columns, rows, 1.0, h, columns, 1.0, total, columns)


def _sound(lower: Array, lengths: Array, power: int) -> bool:
    """Return whether every pivot is well above the level below which it counts as zero."""
    level = _SUSPICIOUS * len(lower) * PIVOT
    return bool((np.diagonal(lower) ** power > level * lengths).all())


def lower_factor(root: Array, out: Array) -> bool:
    """Write the lower triangular L with L L^T = A A^T, diagonal >= 0, from the QR of A^T.

    It returns False, and `out` is arbitrary, if a pivot is near rounding level.
    """
    rows, columns = root.shape
    if columns < rows:
        return False
    work, panel = root.copy(), min(_PANEL, rows)
    reflectors, scratch = np.empty((rows, panel)), np.empty(rows * panel)
    _call(
        "dgeqrt", columns, rows, panel, work, columns, reflectors, panel, scratch, ctypes.c_int(0)
    )
    square = work[:, :rows]
    np.multiply(np.tril(square), np.where(np.diagonal(square) < 0.0, -1.0, 1.0), out=out)
    return _sound(out, np.sqrt(np.einsum("ij,ij->i", root, root)), 1)


def cholesky(gram: Array, out: Array) -> bool:
    """Write the lower triangular L with L L^T = V; return False if a pivot is near rounding."""
    # Some libraries round as the address of the matrix is; that of a new array is always aligned.
    lower, info = np.tril(gram), ctypes.c_int(0)
    _call("dpotrf", _UPPER, len(gram), lower, len(gram), info)
    out[...] = lower
    return info.value == 0 and _sound(lower, np.diagonal(gram), 2)
