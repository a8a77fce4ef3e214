"""Each operation of descriptions has all of its faces, and they agree: one row each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from shaped_attention.numerics import primitives as pr
from shaped_attention.numerics.graph import Graph
from shaped_attention.numerics.operations.entrywise import sign
from shaped_attention.numerics.operations.orthonormal import orthonormal
from shaped_attention.numerics.operations.registry import OPERATIONS
from shaped_attention.numerics.program import Program, assemble
from tests.emitted import run_alone, run_program
from tests.test_forward import by_graph

Array = NDArray[np.float64]
PATHS = 64
Row = tuple[Callable[[Any], Any], tuple[int, int]]


def normals(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


SQUARE, WIDE = (3, 3), (3, 4)
CAUSAL = np.tril(np.ones((3, 3), dtype=bool))
TURNS = np.random.default_rng(0).normal(size=(WIDE[0], 2))

UNARY: dict[str, tuple[Callable[[Any], Any], tuple[int, int]]] = {
    "transpose": (lambda x: x.mT, WIDE),
    "negative": (lambda x: -x, WIDE),
    "number": (lambda x: 2.0 - (1.0 + 3.0 * x - 0.5) / 7.0, WIDE),
    "sign": (lambda x: x * sign(x), WIDE),
    "reciprocal": (lambda x: 2.0 / (3.0 + x * x).mT, WIDE),
    "over": (lambda x: x / (3.0 + x * x), WIDE),
    "columns": (lambda x: pr.columns(x, 1, 3), WIDE),
    "rotate": (lambda x: pr.rotate(x, TURNS), WIDE),
    "diagonal": (pr.diagonal, SQUARE),
    "row sums": (pr.row_sums, WIDE),
    "column sums": (pr.column_sums, WIDE),
    "row squares": (pr.row_squares, WIDE),
    "unit rows": (pr.unit_rows, WIDE),
    "softmax": (lambda x: pr.softmax(x, np.ones((3, 3), dtype=bool)), SQUARE),
    "causal softmax": (lambda x: pr.softmax(x, CAUSAL), SQUARE),
    "symmetric noise": (lambda x: pr.symmetric_noise(x, 3), (1, 6)),
    "constant": (lambda x: pr.constant(np.eye(3), like=x) @ x, WIDE),
    "sqrt": (lambda x: pr.sqrt(1.0 + x * x), WIDE),
    "exp": (pr.exp, WIDE),
    "tanh": (pr.tanh, WIDE),
    "normal cdf": (pr.normal_cdf, WIDE),
    "sigmoid": (pr.sigmoid, WIDE),
    "softplus": (pr.softplus, WIDE),
    "leaky": (lambda x: pr.leaky(x, 1.3, -0.2), WIDE),
    "arc-cosine kernel": (lambda x: pr.arc_cosine_kernel(x @ x.mT), (3, 5)),
    "arc-cosine kernel of equal tokens": (
        lambda x: pr.arc_cosine_kernel(pr.concatenate([x, x]).mT @ pr.concatenate([x, x])),
        (5, 2),
    ),
}


def directions_of(x: Any, known: int = 0) -> Any:
    """Return [L, E, d], which only gradients use; the first axes may be known."""
    x = pr.concatenate([1e-14 * pr.columns(x, 0, known), pr.columns(x, known, x.shape[-1])])
    lengths = pr.sqrt(pr.row_squares(x))
    axes = pr.constant(np.eye(known, x.shape[-1]), like=x)
    return orthonormal(x, lengths, axes if known else None)


ROWS: dict[str, Row] = {
    **UNARY,
    "product": (lambda x: x @ pr.constant(np.tri(4), like=x), WIDE),
    "product with a transpose": (lambda x: pr.columns(x, 0, 3) @ pr.columns(x, 1, 4).mT, WIDE),
    "products with two constants": (
        lambda x: (
            (x @ pr.constant(np.tri(4), like=x))
            * (x @ pr.constant(np.tri(4) @ np.diag([1.0, 2.0, 3.0, 4.0]), like=x))
        ),
        (9, 4),
    ),
    "product of a transpose": (lambda x: pr.columns(x, 0, 3).mT @ x, WIDE),
    "grams": (lambda x: x @ x.mT + pr.columns(x, 0, 3).mT @ pr.columns(x, 0, 3), WIDE),
    "scaled sum": (lambda x: 2.0 * x - 0.5 * pr.tanh(x), WIDE),
    "an odd number of entries": (lambda x: 2.0 * x - 0.5 * pr.tanh(x), (3, 5)),
    "parts": (lambda x: pr.concatenate([3.0 * x, x, x * x]), WIDE),
    "turned row": (lambda x: x.mT * pr.column_sums(x.mT), (1, 4)),
    "lower": (lambda x: pr.lower(x) @ pr.lower(2.0 * x), (3, 5)),
    "cholesky": (lambda x: pr.cholesky(x @ x.mT), (3, 5)),
    "orthonormal": (lambda x: directions_of(x), (3, 5)),
    "orthonormal, known directions": (lambda x: directions_of(x, 2), (2, 5)),
    "orthonormal, dependent rows": (lambda x: directions_of(x @ (x.mT @ x)), (4, 2)),
}
"""A function of a matrix for each operation, and the shape of the matrix."""

RANDOM = {"normal", "wishart", "activated_gram"}
"""Random numbers: `test_numbers`, `test_compiled` and `test_paths` compare them."""


def traced(name: str) -> Program:
    function, shape = ROWS[name]
    graph = Graph()
    entry = graph.node("input", (), shape)
    return assemble(graph, [entry], [function(entry).value()])


def in_code(program: Program, x: Array) -> Array:
    """Run a program with one result as emitted code."""
    return run_program(program, x)[0]


@pytest.mark.quick
@pytest.mark.portability
@pytest.mark.parametrize("name", ROWS)
def test_executors_agree(name: str) -> None:
    """Torch, emitted code and library routines."""
    function, shape = ROWS[name]
    x, program = normals(PATHS, *shape), traced(name)
    expected, entries = function(x).numpy(), x.numpy()
    for result in (in_code(program, entries), *run_alone(program, entries)):
        np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.quick
@pytest.mark.parametrize("name", ROWS)
def test_operations_of_a_constant(name: str) -> None:
    function, shape = ROWS[name]
    x, graph = normals(1, *shape), Graph()
    entry = graph.node("input", (), (1, 1))
    value = function(graph.constant(x[0].numpy())).value()
    program = assemble(graph, [entry], [value])
    (values,) = run_alone(program, np.zeros((3, 1, 1)))
    expected = np.broadcast_to(function(x), (3, *value.shape))
    np.testing.assert_allclose(values, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("function", "power", "scale"),
    [(pr.arc_cosine_kernel, 1, 1e-250), (pr.unit_rows, 0, 1e-120)],
)
def test_small_matrices(function: Any, power: int, scale: float) -> None:
    """The kernel of covariances, and unit rows, with their tangents."""
    v = normals(PATHS, 3, 5)
    v, d = v @ v.mT, normals(PATHS, 3, 3)
    d = d + d.mT
    graph = Graph()
    x = graph.node("input", (), (3, 3))
    program = assemble(graph, [x], [function(x).value()])
    small = in_code(program, scale * v.numpy()) / scale**power
    np.testing.assert_allclose(small, function(v).numpy(), rtol=1e-12)
    (_, expected), (_, moved) = (
        by_graph(function, s * v.numpy(), s * d.numpy()) for s in (1, scale)
    )
    np.testing.assert_allclose(moved / scale**power, expected, rtol=1e-6)


@pytest.mark.quick
def test_what_is_not_a_number_is_no_correlation() -> None:
    graph = Graph()
    x = graph.node("input", (), (2, 2))
    program = assemble(graph, [x], [pr.arc_cosine_kernel(x).value()])
    v = np.tile([[1.0, np.nan], [np.nan, 1.0]], (PATHS, 1, 1))
    for result in (in_code(program, v), *run_alone(program, v)):
        assert np.isnan(result[:, 0, 1]).all()


@pytest.mark.quick
def test_shapes_that_do_not_fit() -> None:
    """A program would read beyond the matrices."""
    x = Graph().node("input", (), (3, 5))
    for function, message in (
        (lambda: pr.rotate(x, np.ones((1, 4))), r"turns must be of shape \(3, 2 J\) with 2 J <= 5"),
        (lambda: pr.symmetric_noise(x, 3), r"numbers must be of shape \(1, 6\); got \(3, 5\)"),
        (lambda: pr.arc_cosine_kernel(x), "matrix must be square"),
    ):
        with pytest.raises(ValueError, match=message):
            function()
    with pytest.raises(TypeError, match=r"must be integers >= 1; got 0\.5; primitives.sqrt is"):
        _ = x**0.5
    for compared in (lambda: x == 0.0, lambda: bool(x)):
        with pytest.raises(TypeError, match="never on entries of a matrix"):
            compared()


def test_every_operation_has_a_row() -> None:
    kinds = {node.kind for name in ROWS for node in traced(name).nodes}
    assert kinds - {"input", "constant"} == OPERATIONS.keys() - RANDOM
