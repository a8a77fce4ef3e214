"""Triangular factors of singular matrices: one rule for what counts as zero, in every executor."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from shaped_attention.numerics import primitives
from shaped_attention.numerics.covariance import factor
from shaped_attention.numerics.graph import Graph
from shaped_attention.numerics.program import assemble
from tests.emitted import Array, run_alone, run_program

ROOTS = np.eye(5, 7) + 0.2 * np.random.default_rng(0).normal(size=(64, 5, 7))
"""Well conditioned: the rounding errors of a pivot of V grow with the condition number."""


def factors(kind: str, matrices: Array) -> list[Array]:
    """Apply an operation to 64 matrices in emitted code, by library routines, and in torch."""
    graph = Graph()
    x = graph.node("input", (), matrices.shape[1:])
    function = getattr(primitives, kind)
    program = assemble(graph, [x], [function(x)])
    in_torch = function(torch.from_numpy(matrices)).numpy()
    return [run_program(program, matrices)[0], run_alone(program, matrices)[0], in_torch]


@pytest.mark.portability
@pytest.mark.parametrize("columns", [2, 5, 7])
def test_rows_without_a_direction_of_their_own_have_a_zero_column(columns: int) -> None:
    """Rows 2 and 3 depend on rows 0 and 1, row 4 only with two columns."""
    root = ROOTS[..., :columns].copy()
    root[:, 2] = root[:, 0]
    root[:, 3] = root[:, 0] - 2.0 * root[:, 1]
    v = root @ root.swapaxes(1, 2)
    starts = np.stack([factor(one) for one in v])
    for lower in (*factors("lower", root), *factors("cholesky", v), starts):
        zero = [2, 3, 4] if columns == 2 else [2, 3]
        assert (lower[:, :, zero] == 0.0).all()
        np.testing.assert_allclose(lower @ lower.swapaxes(1, 2), v, atol=1e-12)
        np.testing.assert_allclose(lower, starts, atol=1e-9)
        np.testing.assert_allclose(lower[:, 2], lower[:, 0], atol=1e-13)


@pytest.mark.parametrize(("relative", "kept"), [(100.0, True), (30.0, False)])
def test_the_level_of_a_pivot(relative: float, kept: bool) -> None:
    """A new component of 100 eps of a row is kept and one of 30 eps is not, at any scale."""
    eps = np.finfo(np.float64).eps
    root = np.zeros((64, 2, 3))
    root[:, 0, 0], root[:, 1, 0] = 1e-3, 1e5
    root[:, 1, 1] = relative * eps * 1e5
    v = np.tile(np.eye(2), (64, 1, 1))
    v[:, 1, 0] = v[:, 0, 1] = np.sqrt(1.0 - relative * eps)
    for lower in (*factors("lower", root), *factors("cholesky", v)):
        assert ((lower[:, 1, 1] > 0.0) == kept).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_never_a_zero_pivot(bad: float) -> None:
    root, v = ROOTS.copy(), np.tile(np.eye(5), (64, 1, 1))
    root[:, 1, 1] = v[:, 1, 1] = bad
    for lower in (*factors("lower", root), *factors("cholesky", v)):
        assert not np.isfinite(lower[:, 1]).all(-1).any()


def test_starts_keep_tokens_of_any_size() -> None:
    """A small variance is no rounding error of a large one."""
    v = np.diag([1.0, 1e-18, 1e6])
    v[0, 1] = v[1, 0] = 0.5e-9
    lower = factor(v)
    np.testing.assert_allclose(lower @ lower.T, v, rtol=1e-14)
