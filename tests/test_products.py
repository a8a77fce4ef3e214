"""Products of matrices in emitted code: every size, every triangle, rolled and unrolled."""

from __future__ import annotations

import numpy as np
import pytest

from shaped_attention.numerics import step
from shaped_attention.numerics.graph import Graph, Matrix
from shaped_attention.numerics.primitives import columns, concatenate
from shaped_attention.numerics.program import Program, assemble
from tests.emitted import Array, run_program

SIZES = [(1, 1, 1), (2, 3, 1), (3, 2, 5), (4, 4, 4), (5, 7, 6), (7, 5, 9), (1, 9, 8), (11, 8, 3)]
PATHS = 13


@pytest.fixture(autouse=True, params=["rolled", "unrolled"])
def way(request, monkeypatch):
    monkeypatch.setattr(step, "MOST_ROWS", 0 if request.param == "rolled" else 99)


def _normals(rows: int, columns: int, number: int = 0) -> Array:
    return np.random.default_rng([rows, columns, number]).normal(size=(PATHS, rows, columns))


def _in_order(a: Array, b: Array) -> Array:
    """The sum over k in its order, in extended precision: at most rounding away from ours."""
    return np.einsum("pik,pkj->pij", a.astype(np.longdouble), b).astype(np.float64)


def _parts(x: Matrix, *shapes: tuple[int, int]) -> list[Matrix]:
    """Matrices whose entries are those of a row, one after the other."""
    parts, place = [], 0
    for rows, wide in shapes:
        flat = columns(x, place, place + rows * wide)
        parts.append(x.graph.node("reshape", (flat.node,), (rows, wide)))
        place += rows * wide
    return parts


def _program(build, lower: tuple[bool, bool], *shapes: tuple[int, int]) -> Program:
    """The program of `build(a, b)`; a triangular matrix has the zeros of a constant."""
    graph = Graph()
    x = graph.node("input", (), (1, sum(r * c for r, c in shapes)))
    parts = [
        part * graph.constant(np.tri(*part.shape)) if low else part
        for part, low in zip(_parts(x, *shapes), lower, strict=False)
    ]
    for part, low in zip(parts, lower, strict=False):
        assert not low or part.node.lower or part.shape[0] != part.shape[1] or 1 in part.shape
    return assemble(graph, [x], [build(*parts)])


def _run(program: Program, *matrices: Array) -> Array:
    return run_program(program, np.concatenate([x.reshape(PATHS, 1, -1) for x in matrices], 2))[0]


@pytest.mark.portability
@pytest.mark.parametrize("lower", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(("rows", "inner", "wide"), [*SIZES, (5, 5, 5), (9, 9, 9), (6, 6, 3)])
def test_products(rows: int, inner: int, wide: int, lower: tuple[bool, bool]) -> None:
    """A B, A B^T and A^T B; square triangles skip their zeros."""
    a, b = _normals(rows, inner), _normals(inner, wide, 1)
    for a_turned, b_turned in ((False, False), (True, False), (False, True)):
        first = a.swapaxes(1, 2) if a_turned else a
        second = b.swapaxes(1, 2) if b_turned else b

        def build(x: Matrix, y: Matrix, at: bool = a_turned, bt: bool = b_turned) -> Matrix:
            return (x.mT if at else x) @ (y.mT if bt else y)

        program = _program(build, lower, first.shape[1:], second.shape[1:])
        found = _run(program, first, second)
        left, right = (
            np.tril(x) if low else x for x, low in zip((first, second), lower, strict=True)
        )
        left = left.swapaxes(1, 2) if a_turned else left
        right = right.swapaxes(1, 2) if b_turned else right
        np.testing.assert_allclose(found, _in_order(left, right), atol=1e-14)


@pytest.mark.portability
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize(("rows", "inner"), [(1, 3), (3, 3), (4, 2), (5, 7), (9, 6), (9, 9)])
def test_gram_matrices(rows: int, inner: int, lower: bool) -> None:
    """A A^T and A^T A; exactly symmetric."""
    a = _normals(rows, inner)
    x = np.tril(a) if lower else a
    for turned in (False, True):
        program = _program(lambda m, t=turned: m.mT @ m if t else m @ m.mT, (lower,), (rows, inner))
        found = _run(program, a)
        other = x.swapaxes(1, 2)
        expected = _in_order(other, x) if turned else _in_order(x, other)
        np.testing.assert_allclose(found, expected, atol=1e-13)
        np.testing.assert_array_equal(found, found.swapaxes(1, 2))


@pytest.mark.portability
def test_the_block_of_an_entry_does_not_change_its_rounding() -> None:
    """The product of eleven rows has the bits of the products of each row alone."""
    a, b = _normals(11, 13), _normals(13, 7)
    whole = _run(_program(lambda x, y: x @ y, (False,) * 2, (11, 13), (13, 7)), a, b)
    one = _program(lambda x, y: x @ y, (False,) * 2, (1, 13), (13, 1))
    for i in range(11):
        for j in range(7):
            alone = _run(one, a[:, i : i + 1], b[:, :, j : j + 1])
            np.testing.assert_array_equal(alone[:, 0, 0], whole[:, i, j])


@pytest.mark.portability
def test_products_that_are_parts_of_a_matrix() -> None:
    """They are written in their place, whose neighbours stay."""
    a, b = _normals(5, 6), _normals(6, 3, 1)
    program = _program(
        lambda x, y: concatenate([x, x @ y, 2.0 * (x @ y)]), (False,) * 2, (5, 6), (6, 3)
    )
    expected = np.concatenate([a, a @ b, 2.0 * (a @ b)], axis=2)
    np.testing.assert_allclose(_run(program, a, b), expected, atol=1e-13)
