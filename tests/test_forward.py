"""Derivatives in a direction on a graph: those of torch, operation by operation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from shaped_attention.numerics import primitives as pr
from shaped_attention.numerics.forward import pushed
from shaped_attention.numerics.graph import Graph
from shaped_attention.numerics.program import assemble
from tests.emitted import run_program
from tests.test_reverse import FUNCTIONS


def by_graph(function: Any, x: Any, d: Any) -> tuple[Any, Any]:
    """Return value and derivative of a function of 64 matrices, by a compiled program."""
    graph = Graph()
    rows, count = x.shape[1:]
    both = graph.node("input", (), (rows, 2 * count))
    results = pushed(function, pr.columns(both, 0, count), pr.columns(both, count, 2 * count))
    value, moved = run_program(assemble(graph, [both], list(results)), np.concatenate([x, d], -1))
    return value, moved


@pytest.mark.quick
@pytest.mark.portability
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_those_of_torch(name: str) -> None:
    function, generator = FUNCTIONS[name], np.random.default_rng(0)
    x, d = generator.normal(size=(2, 64, 3, 4))
    expected = torch.func.jvp(function, (torch.from_numpy(x),), (torch.from_numpy(d),))
    assert float(expected[1].abs().max()) > 1e-3
    for found, wanted in zip(by_graph(function, x, d), expected, strict=True):
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-10, atol=1e-10)


def test_rows_and_entries_of_zeros() -> None:
    """A row of zeros does not move; at 0 the slope of `leaky` is the mean of both."""
    x, d = np.random.default_rng(0).normal(size=(2, 64, 3, 4))
    x[:, 1] = 0.0
    assert (by_graph(pr.unit_rows, x, d)[1][:, 1] == 0.0).all()
    kernel = by_graph(lambda x: pr.arc_cosine_kernel(x @ x.mT), x, d)[1]
    assert (kernel[:, 1] == 0.0).all()
    others = by_graph(lambda x: pr.arc_cosine_kernel(x @ x.mT), x[:, [0, 2, 2]], d[:, [0, 2, 2]])[1]
    np.testing.assert_allclose(kernel[:, ::2, ::2], others[:, :2, :2], rtol=1e-10, atol=1e-10)
    slopes = by_graph(lambda x: pr.leaky(x, 1.5, 0.5), x, np.ones_like(x))[1]
    np.testing.assert_array_equal(slopes, 1.0 + 0.5 * np.sign(x))


def test_what_does_not_depend_on_the_argument() -> None:
    graph = Graph()
    x = graph.node("input", (), (3, 4))
    value, moved = pushed(lambda x: graph.constant(np.eye(3)), x, x)
    assert value.shape == moved.shape == (3, 3)
    assert moved.coefficient == 0.0
    with pytest.raises(ValueError, match="cholesky has no derivative"):
        pushed(lambda x: pr.cholesky(x @ x.mT), x, x)
