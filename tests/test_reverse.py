"""Gradients on a graph: those of torch's autograd, operation by operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from shaped_attention.numerics import primitives as pr
from shaped_attention.numerics import reverse
from shaped_attention.numerics.graph import Graph
from shaped_attention.numerics.operations.entrywise import sign
from shaped_attention.numerics.operations.registry import OPERATIONS
from shaped_attention.numerics.program import assemble
from tests.emitted import run_program

TURNS = np.concatenate([np.cos(np.arange(3.0))[:, None], np.sin(np.arange(3.0))[:, None]], 1)
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "product": lambda x: x @ x.mT @ pr.columns(x, 0, 2),
    "product with a transpose": lambda x: pr.columns(x, 0, 2) @ pr.columns(x, 1, 3).mT,
    "product of a transpose": lambda x: pr.columns(x, 0, 2).mT @ x,
    "Gram matrices": lambda x: (x @ x.mT) @ x + x @ (x.mT @ x),
    "weights": lambda x: 2.0 * x - 0.5 * (x * x) + 3.0,
    "a column": lambda x: x * pr.row_sums(x) + pr.columns(x, 1, 2),
    "a row": lambda x: (x + pr.column_sums(x)) / (3.0 + pr.column_sums(x * x)),
    "an entry": lambda x: x * pr.column_sums(pr.row_sums(x)),
    "quotients": lambda x: x / (2.0 + x * x) - 1.0 / (2.0 + x * x),
    "parts": lambda x: pr.concatenate([x, 2.0 * pr.columns(x, 1, 3), x * x]),
    "turned row": lambda x: pr.column_sums(x).mT @ pr.row_sums(x).mT,
    "a column as a row": lambda x: pr.row_sums(x).mT + pr.row_sums(x * x).mT,
    "turned and scaled": lambda x: pr.exp(0.3 * x.mT),
    "diagonal": lambda x: pr.diagonal(x @ x.mT) * x,
    "lengths": lambda x: pr.sqrt(pr.row_squares(x)) * pr.unit_rows(x),
    "softmax": lambda x: pr.softmax(1.5 * x, np.tri(3, 4, 1) > 0) * x,
    "rotation": lambda x: pr.rotate(x, TURNS) * x,
    "leaky": lambda x: pr.leaky(x, 1.5, 0.2),
    "signs": lambda x: sign(x) * x,
    "functions": lambda x: pr.exp(x) * pr.tanh(x) + pr.sigmoid(x) * pr.normal_cdf(x),
    "softplus": lambda x: pr.softplus(x) * x,
    "kernel": lambda x: pr.arc_cosine_kernel(x @ x.mT),
    "kernel of equal tokens": lambda x: (
        pr.arc_cosine_kernel(x @ x.mT)
        @ pr.arc_cosine_kernel(pr.concatenate([x, x]) @ pr.concatenate([x, x]).mT)
    ),
}


@pytest.mark.quick
@pytest.mark.portability
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_those_of_torch(name: str) -> None:
    """Of the sum of all entries of f(x) * w with random weights w."""
    function, generator = FUNCTIONS[name], np.random.default_rng(0)
    entries = generator.normal(size=(64, 3, 4))
    x = torch.from_numpy(entries).requires_grad_()
    y = function(x)
    weights = generator.normal(size=y.shape[1:])
    (expected,) = torch.autograd.grad((y * torch.from_numpy(weights)).sum(), x)
    graph = Graph()
    traced = graph.node("input", (), (3, 4))
    value = function(traced)
    found = reverse.gradients([(value, graph.constant(weights))], [traced])
    (result,) = run_program(assemble(graph, [traced], [found[traced.node]]), entries)
    np.testing.assert_allclose(result, expected.numpy(), rtol=1e-11, atol=1e-11)


def test_every_rule_is_tried() -> None:
    graph = Graph()
    for function in FUNCTIONS.values():
        function(graph.node("input", (), (3, 4)))
    assert reverse.RULES.keys() <= {node.kind for node in graph.nodes}


@pytest.mark.quick
def test_matrices_between_end_the_way_back() -> None:
    """The gradient of x + y at y = x^2 is that of its own use."""
    graph = Graph()
    x = graph.node("input", (), (3, 4))
    y = x * x
    one = graph.constant(np.ones((3, 4)))
    found = reverse.gradients([(x + y, one), (2.0 * y.mT, one.mT)], [x, y])
    assert found.keys() == {x.node, y.node}
    entries = np.random.default_rng(0).normal(size=(64, 3, 4))
    program = assemble(graph, [x], [found[x.node], found[y.node]])
    for result, number in zip(run_program(program, entries), (1.0, 3.0), strict=True):
        np.testing.assert_allclose(result, number)


def test_factorisations_have_no_derivative() -> None:
    graph = Graph()
    x = graph.node("input", (), (3, 4))
    with pytest.raises(ValueError, match="lower has no derivative"):
        reverse.gradients([(pr.lower(x), graph.constant(np.eye(3)))], [x])
    assert OPERATIONS.keys() <= reverse.RULES.keys() | reverse.WITHOUT
