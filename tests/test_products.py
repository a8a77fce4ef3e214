"""Products of matrices on tiles, in registers: every lane, every size, every triangle."""

from __future__ import annotations

import numpy as np
import pytest

from shaped_attention.numerics.jit import LANES, tile_buffer
from shaped_attention.numerics.operations.products import mirror, multiply

SIZES = [(1, 1, 1), (2, 3, 1), (3, 2, 5), (4, 4, 4), (5, 7, 6), (7, 5, 9), (1, 9, 8), (11, 8, 3)]


def _tile(*matrices: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """A buffer with matrices (rows, columns, LANES) and room in front, and their offsets."""
    room = 400
    flat = [matrix.reshape(-1, LANES) for matrix in matrices]
    offsets = [room + sum(len(x) for x in flat[:k]) for k in range(len(flat))]
    buf = tile_buffer(room + sum(len(x) for x in flat))
    buf[:] = np.nan
    for start, rows in zip(offsets, flat, strict=True):
        buf[start : start + len(rows), :LANES] = rows
    return buf, offsets


def _normals(rows: int, columns: int, number: int = 0) -> np.ndarray:
    return np.random.default_rng([rows, columns, number]).normal(size=(rows, columns, LANES))


def _lower(matrix: np.ndarray) -> np.ndarray:
    return np.tril(np.ones(matrix.shape[:2]))[..., None] * matrix


def _in_order(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The sum over k in its order, in extended precision: at most rounding away from ours."""
    return np.einsum("ikp,kjp->ijp", a.astype(np.longdouble), b).astype(np.float64)


@pytest.mark.portability
@pytest.mark.parametrize("triangles", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(("rows", "inner", "columns"), SIZES)
def test_products(rows: int, inner: int, columns: int, triangles: tuple[bool, bool]) -> None:
    """A B, A B^T and A^T B in all 64 lanes; entries around the output stay."""
    a, b = _normals(rows, inner), _normals(inner, columns, 1)
    a, b = (_lower(x) if low else x for x, low in zip((a, b), triangles, strict=True))
    expected = _in_order(a, b)
    a_lower, b_lower = triangles
    for a_turned in (False, True):
        for b_turned in (False, True):
            stored_a = a.swapaxes(0, 1) if a_turned else a
            stored_b = b.swapaxes(0, 1) if b_turned else b
            buf, (x, y) = _tile(stored_a, stored_b)
            multiply(
                buf, 3, columns + 2, x, *((1, rows) if a_turned else (inner, 1)),
                y, *((inner, 1) if b_turned else (1, columns)), rows, inner, columns,
                False, a_lower, b_lower, False, False, False,
            )  # fmt: skip
            found = buf[3 : 3 + rows * (columns + 2), :LANES].reshape(rows, columns + 2, LANES)
            np.testing.assert_allclose(found[:, :columns], expected, atol=1e-14)
            assert np.isnan(found[:, columns:]).all()
            assert np.isnan(buf[:3]).all()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("rows", "inner", "columns"), SIZES)
def test_transposed_triangles(rows: int, inner: int, columns: int, turned: bool) -> None:
    """A^T B and A B^T of triangles start and stop where their zeros do."""
    sizes = ((inner, rows), (inner, columns)) if turned else ((rows, inner), (columns, inner))
    a, b = _lower(_normals(*sizes[0])), _lower(_normals(*sizes[1], 1))
    buf, (x, y) = _tile(a, b)
    strides = ((1, rows), (1, columns)) if turned else ((inner, 1), (inner, 1))
    flags = (turned, not turned, turned, not turned, False, False)
    multiply(buf, 0, columns, x, *strides[0], y, *strides[1], rows, inner, columns, *flags)
    result = buf[: rows * columns, :LANES].reshape(rows, columns, LANES)
    left, right = (a.swapaxes(0, 1), b) if turned else (a, b.swapaxes(0, 1))
    np.testing.assert_allclose(result, _in_order(left, right), atol=1e-14)


@pytest.mark.portability
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize(("rows", "inner"), [(1, 3), (3, 3), (4, 2), (5, 7), (9, 6)])
def test_gram_matrices(rows: int, inner: int, lower: bool) -> None:
    """A A^T, written or added to what is there, and A^T A; exactly symmetric."""
    a = _lower(_normals(rows, inner)) if lower else _normals(rows, inner)
    expected = _in_order(a, a.swapaxes(0, 1))
    buf, (x,) = _tile(a)
    for times in (1.0, 2.0):
        x_twice, flags = (x, inner, 1, x, inner, 1), (False, lower, False, lower, True, times > 1.0)
        multiply(buf, 0, rows, *x_twice, rows, inner, rows, *flags)
        mirror(buf, 0, rows)
        found = buf[: rows * rows, :LANES].reshape(rows, rows, LANES)
        np.testing.assert_allclose(found, times * expected, atol=1e-13)
        np.testing.assert_array_equal(found, found.swapaxes(0, 1))
    flags = (False, False, False, False, True, False)
    multiply(buf, 0, inner, x, 1, inner, x, 1, inner, inner, rows, inner, *flags)
    mirror(buf, 0, inner)
    found = buf[: inner * inner, :LANES].reshape(inner, inner, LANES)
    np.testing.assert_allclose(found, _in_order(a.swapaxes(0, 1), a), atol=1e-13)


@pytest.mark.portability
def test_the_block_of_an_entry_does_not_change_its_rounding() -> None:
    """The product of eleven rows has the bits of the products of each row alone."""
    a, b = _normals(11, 13), _normals(13, 7)
    buf, (x, y) = _tile(a, b)
    flags = (False,) * 6
    multiply(buf, 0, 7, x, 13, 1, y, 1, 7, 11, 13, 7, *flags)
    whole = buf[:77].copy()
    for i in range(11):
        for j in range(7):
            multiply(buf, 7 * i + j, 7, x + 13 * i, 13, 1, y + j, 1, 7, 1, 13, 1, *flags)
    np.testing.assert_array_equal(buf[:77], whole)
