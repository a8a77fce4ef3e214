"""Factorisations and products of one large matrix, on contiguous rows and one thread.

The routines are those of SciPy's BLAS and LAPACK, called by address: no copies are made and the
interpreter lock is released, so that samples run on threads. Arrays are in C order. A library that
expects Fortran order sees their transposes, hence "upper" for matrices that are lower triangular
here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.linalg.cython_blas
import scipy.linalg.cython_lapack  # noqa: F401 (the routines' addresses)
from numba.extending import get_cython_function_address
from numpy.typing import NDArray

from shaped_attention.numerics.jit import kernel

Array = NDArray[np.float64]

PIVOT_EPSILONS = 64.0
"""A pivot below this many rounding units of its row counts as zero, in every executor."""
PIVOT = PIVOT_EPSILONS * float(np.finfo(np.float64).eps)

_PANEL = 32
"""Columns of a panel of the QR factorisation (16, 32 and 64 were measured)."""

_SUSPICIOUS = 8.0
"""The exact rule decides pivots below this multiple of (level times number of rows)."""


def _routine(module: str, name: str) -> Callable[..., None]:
    address = get_cython_function_address(f"scipy.linalg.{module}", name)
    return ctypes.CFUNCTYPE(None)(address)


_TRMM = _routine("cython_blas", "dtrmm")
_SYRK = _routine("cython_blas", "dsyrk")
_GEQRT = _routine("cython_lapack", "dgeqrt")
_POTRF = _routine("cython_lapack", "dpotrf")


# Arguments are passed by reference. The routines only read these, so equal ones are shared.


@lru_cache(maxsize=4096)
def _integer(number: int) -> Any:
    return ctypes.byref(ctypes.c_int(number))


def _data(array: Array) -> ctypes.c_void_p:
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)


_ONE = ctypes.byref(ctypes.c_double(1.0))
_LEFT, _RIGHT, _UPPER, _PLAIN, _TRANSPOSED = map(ctypes.c_char_p, (b"L", b"R", b"U", b"N", b"T"))


def multiply_triangular(lower: Array, b: Array, *, left: bool, transposed: bool) -> None:
    """Overwrite B by L B or B L, or by L^T B or B L^T, for lower triangular L."""
    rows, columns = b.shape
    _TRMM(
        _RIGHT if left else _LEFT, _UPPER, _TRANSPOSED if transposed else _PLAIN, _PLAIN,
        _integer(columns), _integer(rows), _ONE, _data(lower), _integer(len(lower)), _data(b),
        _integer(columns),
    )  # fmt: skip


def add_cogram(h: Array, total: Array) -> None:
    """Add H^T H to the lower triangle of `total`."""
    rows, columns = h.shape
    _SYRK(
        _UPPER, _PLAIN, _integer(columns), _integer(rows), _ONE, _data(h), _integer(columns),
        _ONE, _data(total), _integer(columns),
    )  # fmt: skip


def gram_schmidt(rest: Array, out: Array, level: float = PIVOT) -> None:
    """Write the lower triangular L with L L^T = A A^T by Gram-Schmidt, and overwrite A = `rest`.

    A column is zero if the part of its row that is orthogonal to the rows before is at most `level`
    times as long as the row.
    """
    out.fill(0.0)
    original = np.linalg.norm(rest, axis=1)
    update = np.empty_like(rest)
    for j, unit in enumerate(rest):
        length = float(np.linalg.norm(unit))
        if length - level * original[j] <= 0.0:
            continue
        unit /= length
        below = rest[j + 1 :]
        np.matmul(below, unit, out=out[j + 1 :, j])
        out[j, j] = length
        np.multiply(out[j + 1 :, j, None], unit, out=update[j + 1 :])
        below -= update[j + 1 :]


@kernel
def _lower_part(a, signs, out):  # type: ignore[no-untyped-def]
    """Write the lower triangle of A, with its columns multiplied by signs."""
    for i in range(out.shape[0]):
        for j in range(i + 1):
            out[i, j] = signs[j] * a[i, j]
        for j in range(i + 1, out.shape[0]):
            out[i, j] = 0.0


def _sound(lower: Array, lengths: Array, power: int) -> bool:
    """Return whether every pivot is well above the level below which it counts as zero."""
    level = _SUSPICIOUS * len(lower) * PIVOT
    return bool((np.diagonal(lower) ** power > level * lengths).all())


def lower_factor(root: Array, out: Array) -> None:
    """Write the lower triangular L with L L^T = A A^T, diagonal >= 0.

    It comes from the QR factorisation of A^T, or from `gram_schmidt` if a pivot is near
    rounding level.
    """
    rows, columns = root.shape
    work = root.copy()
    if columns < rows:
        gram_schmidt(work, out)
        return
    panel = min(_PANEL, rows, columns)
    reflectors, scratch = np.empty((rows, panel)), np.empty(rows * panel)
    info = ctypes.c_int(0)
    _GEQRT(
        _integer(columns), _integer(rows), _integer(panel), _data(work), _integer(columns),
        _data(reflectors), _integer(panel), _data(scratch), ctypes.byref(info),
    )  # fmt: skip
    signs = np.where(np.diagonal(work) < 0.0, -1.0, 1.0)
    _lower_part(work, signs, out)
    if not _sound(out, np.sqrt(np.einsum("ij,ij->i", root, root)), 1):
        gram_schmidt(root.copy(), out)


def cholesky(gram: Array, out: Array) -> None:
    """Write the lower triangular L with L L^T = V, by `semidefinite_cholesky` if needed."""
    rows = len(gram)
    _lower_part(gram, np.ones(rows), out)
    info = ctypes.c_int(0)
    _POTRF(_UPPER, _integer(rows), _data(out), _integer(rows), ctypes.byref(info))
    if info.value != 0 or not _sound(out, np.diagonal(gram), 2):
        semidefinite_cholesky(gram, out)


def semidefinite_cholesky(gram: Array, out: Array) -> None:
    """Write the factor of a matrix that may be singular: a pivot at rounding level gives zeros."""
    out.fill(0.0)
    for j in range(len(gram)):
        column = gram[j:, j] - out[j:, :j] @ out[j, :j]
        if column[0] - PIVOT * gram[j, j] > 0.0 or not np.isfinite(column[0]):
            out[j:, j] = column / np.sqrt(column[0])
