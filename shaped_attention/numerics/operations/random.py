"""Normals, and roots of Wishart matrices."""

from __future__ import annotations

from shaped_attention.numerics.graph import Node
from shaped_attention.numerics.jit import LANES, compiled_once, kernel
from shaped_attention.numerics.operations.registry import operation
from shaped_attention.numerics.operations.stacks import Array, Place, Step
from shaped_attention.numerics.threefry import fill_beside, fill_chi, fill_normals, fill_weights


@kernel
def fill_bartlett(buf, out, rows, dof, work, key, paths, slot):  # type: ignore[no-untyped-def]
    """Write Bartlett's lower triangular factor of a Wishart_rows(dof, I) matrix at row `out`.

    The diagonal has chi variables with dof, dof - 1, ... degrees of freedom (slot + 1), and below
    it are normals (slot), row by row (Bartlett 1933; Muirhead, *Aspects of Multivariate
    Statistical Theory*, thm 3.2.14). It requires dof >= rows + 2 and scratch for the normals, one
    extra row, and the chi variables.
    """
    below = rows * (rows - 1) // 2
    fill_normals(buf[work : work + below + 1], below, 1.0, key, paths, slot, compiled_once(0))
    chi = work + below + 1
    fill_chi(buf[chi : chi + rows], dof, key, paths, slot + 1)
    row = work
    for i in range(rows):
        for p in range(LANES):
            buf[out + i * rows + i, p] = buf[chi + i, p]
        for j in range(i):
            for p in range(LANES):
                buf[out + i * rows + j, p] = buf[row, p]
            row += 1
        for j in range(i + 1, rows):
            for p in range(LANES):
                buf[out + i * rows + j, p] = 0.0


def _bartlett_scratch(node: Node) -> int:
    rows = node.shape[0]
    return rows * (rows - 1) // 2 + 1 + rows + 1 if node.lower else 0


def draw(step: Step, place: Place, out: Array) -> None:
    """Write the numbers of a normal node (samples, count)."""
    fill_weights(out, step.key, place.paths, step.node.integers[0], 0)
    (scale,) = step.numbers(place)
    if scale != 1.0:
        out *= scale


def _normal_stacks(step: Step, place: Place, out: Array) -> None:
    flat = out.reshape(len(out), -1)
    if place.normals is None:
        draw(step, place, flat)
    else:
        flat[:] = place.normals[:, step.start : step.start + flat.shape[1]]


def _wishart_stacks(step: Step, place: Place, out: Array) -> None:
    slot, dof = step.node.integers
    if step.node.lower:
        fill_beside(out, dof, step.key, place.paths, (slot, slot, slot + 1))
    else:
        fill_weights(out.reshape(len(out), -1), step.key, place.paths, slot, 0)


operation("normal", tile=None, blas=_normal_stacks, growth=0.0)
operation("wishart", tile=None, blas=_wishart_stacks, growth=0.0, scratch=_bartlett_scratch)
