"""Factorisations and products of one large matrix, on contiguous rows and one thread.

The routines are those of SciPy's BLAS and LAPACK, called by address: no copies are made and the
interpreter lock is released, so that samples run on threads. Arrays are in C order. A library that
expects Fortran order sees their transposes, hence "upper" for matrices that are lower triangular
here.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.linalg.cython_blas
import scipy.linalg.cython_lapack  # noqa: F401 (the routines' addresses)
from numba.extending import get_cython_function_address
from numpy.typing import NDArray

from shaped_attention.numerics.jit import kernel
from shaped_attention.numerics.vector_products import inner_products

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


@kernel
def gram_schmidt(a, level, out):  # type: ignore[no-untyped-def]
    """Write the lower triangular L with L L^T = A A^T by Gram-Schmidt, and overwrite A.

    A (samples, m, c) and L (samples, m, m) are contiguous. A column is zero if the part of its row
    that is orthogonal to the rows before is at most `level` times as long as the row.
    """
    samples, rows, columns = a.shape
    flat, result = a.reshape(-1), out.reshape(-1)
    squares = np.empty(rows)
    for s in range(samples):
        start, first = s * rows * columns, s * rows * rows
        for i in range(rows):
            x = start + i * columns
            inner_products(squares, flat, flat, i, 1, x, columns, x, columns, 1, columns, 1)
        original = squares.copy()
        for j in range(rows):
            unit = a[s, j]
            x = start + j * columns
            inner_products(squares, flat, flat, j, 1, x, columns, x, columns, 1, columns, 1)
            # Tested as a difference, so that a non-finite pivot does not count as zero.
            zero = squares[j] - level * level * original[j] <= 0.0
            length = 0.0 if zero else math.sqrt(squares[j])
            factor = 0.0 if zero else 1.0 / length
            out[s, :j, j] = 0.0
            out[s, j, j] = length
            for c in range(columns):
                unit[c] *= factor
            inner_products(
                result, flat, flat, first + (j + 1) * rows + j, rows, x + columns, columns,
                x, columns, rows - j - 1, columns, 1,
            )  # fmt: skip
            for i in range(j + 1, rows):
                rest, part = a[s, i], out[s, i, j]
                for c in range(columns):
                    rest[c] -= part * unit[c]


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
        gram_schmidt(work[None], PIVOT, out[None])
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
        gram_schmidt(root.copy()[None], PIVOT, out[None])


def cholesky(gram: Array, out: Array) -> None:
    """Write the lower triangular L with L L^T = V, by `semidefinite_cholesky` if needed."""
    rows = len(gram)
    # Some libraries round as the address of the matrix is; that of a new array is always aligned.
    lower = np.empty((rows, rows))
    _lower_part(gram, np.ones(rows), lower)
    info = ctypes.c_int(0)
    _POTRF(_UPPER, _integer(rows), _data(lower), _integer(rows), ctypes.byref(info))
    if info.value == 0 and _sound(lower, np.diagonal(gram), 2):
        out[...] = lower
    else:
        semidefinite_cholesky(gram[None], out[None])


@kernel
def semidefinite_cholesky(gram, out):  # type: ignore[no-untyped-def]
    """Write factors L (samples, m, m) of V (samples, m, m), which may be singular.

    Both are contiguous. A pivot at rounding level has a column of zeros.
    """
    samples, rows, _ = out.shape
    flat, sums = out.reshape(-1), np.empty(rows)
    for s in range(samples):
        v = gram[s]
        for j in range(rows):
            x = (s * rows + j) * rows
            inner_products(sums, flat, flat, j, 1, x, rows, x, rows, rows - j, j, 1)
            pivot = v[j, j] - sums[j]
            # Tested as a difference, so that a non-finite pivot does not count as zero.
            zero = pivot - PIVOT * v[j, j] <= 0.0
            root = 1.0 if zero else math.sqrt(pivot)
            out[s, :j, j] = 0.0
            for i in range(j, rows):
                out[s, i, j] = 0.0 if zero else (v[i, j] - sums[i]) / root
