"""Torch, emitted code and library routines agree on operations of descriptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from shaped_attention.numerics import primitives as pr
from shaped_attention.numerics import step
from shaped_attention.numerics.forward import pushed
from shaped_attention.numerics.graph import Graph, Matrix
from shaped_attention.numerics.operations.orthonormal import orthonormal
from shaped_attention.numerics.operations.registry import OPERATIONS
from shaped_attention.numerics.program import Program, assemble
from tests.emitted import run_alone, run_program
from tests.test_reverse import FUNCTIONS

PATHS = 13
SQUARE, WIDE = (3, 3), (3, 4)
CAUSAL = np.tril(np.ones((3, 3), dtype=bool))
TURNS = np.random.default_rng(0).normal(size=(WIDE[0], 2))


def normals(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def directions_of(x: Any, known: int = 0) -> Any:
    """Return [L, E, d], which only gradients use; the first axes may be known."""
    x = pr.concatenate([1e-14 * pr.columns(x, 0, known), pr.columns(x, known, x.shape[-1])])
    lengths = pr.sqrt(pr.row_squares(x))
    axes = pr.constant(np.eye(known, x.shape[-1]), like=x)
    return orthonormal(x, lengths, axes if known else None)


def twice(x: Any) -> Any:
    return pr.concatenate([x, x]).mT @ pr.concatenate([x, x])


ROWS: dict[str, tuple[Callable[[Any], Any], tuple[int, int]]] = {
    **{name: (function, WIDE) for name, function in FUNCTIONS.items()},
    "sqrt": (lambda x: pr.sqrt(1.0 + x * x), WIDE),
    "rotate": (lambda x: pr.rotate(x, TURNS), WIDE),
    "softmax of four": (lambda x: pr.softmax(x, np.ones((4, 4), dtype=bool)), (4, 4)),
    "causal softmax": (lambda x: pr.softmax(2.0 * x, CAUSAL), SQUARE),
    "symmetric noise": (lambda x: pr.symmetric_noise(x, 3), (1, 6)),
    "arc-cosine kernel of equal tokens": (lambda x: pr.arc_cosine_kernel(twice(x)), (5, 2)),
    "products with two constants": (
        lambda x: (
            (x @ pr.constant(np.tri(4), like=x))
            * (x @ pr.constant(np.tri(4) @ np.diag([1.0, 2.0, 3.0, 4.0]), like=x))
        ),
        (9, 4),
    ),
    "an odd number of entries": (lambda x: 2.0 * x - 0.5 * pr.tanh(x), (3, 5)),
    "lower": (lambda x: pr.lower(x) @ pr.lower(2.0 * x), (3, 5)),
    "cholesky": (lambda x: pr.cholesky(x @ x.mT), (3, 5)),
    "orthonormal": (lambda x: directions_of(x), (3, 5)),
    "orthonormal, known directions": (lambda x: directions_of(x, 2), (2, 5)),
    "orthonormal, dependent rows": (lambda x: directions_of(x @ (x.mT @ x)), (4, 2)),
}
"""A function of a matrix for each operation, and the shape of the matrix."""


@pytest.fixture(params=["rolled", "unrolled"])
def way(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "MOST_ROWS", 0 if request.param == "rolled" else 99)


def traced(function: Callable[[Any], Any], shape: tuple[int, int]) -> Program:
    graph = Graph()
    entry = graph.node("input", (), shape)
    return assemble(graph, [entry], [function(entry).value()])


@pytest.mark.quick
@pytest.mark.portability
@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("name", ROWS)
def test_executors_agree(name: str) -> None:
    """Torch, emitted code, library routines; in single precision emitted code, to 1e-4."""
    function, shape = ROWS[name]
    x, program = normals(PATHS, *shape), traced(function, shape)
    expected, entries = function(x).numpy(), x.numpy()
    for result in (run_program(program, entries)[0], run_alone(program, entries)[0]):
        np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-11)
    if "dependent" not in name:
        (single,) = run_program(program, entries, np.float32)
        np.testing.assert_allclose(single, expected, rtol=2e-4, atol=2e-4)


def test_every_operation_has_a_row() -> None:
    kinds = {node.kind for row in ROWS.values() for node in traced(*row).nodes}
    random = {"normal", "wishart", "activated_gram"}  # of `test_numbers` and `test_executors`
    assert kinds - {"input", "constant"} == OPERATIONS.keys() - random


def product_program(shapes: Any, lower: tuple[bool, bool], turned: Any) -> Program:
    """The product of two matrices in a row; a triangular one has the zeros of a constant."""
    graph = Graph()
    x = graph.node("input", (), (1, sum(r * c for r, c in shapes)))
    parts, place = [], 0
    for (rows, wide), low, turn in zip(shapes, lower, turned, strict=True):
        flat = pr.columns(x, place, place + rows * wide)
        part = Matrix(graph, graph.node("reshape", (flat.node,), (rows, wide)).node)
        part = part * graph.constant(np.tri(rows, wide)) if low else part
        parts.append(part.mT if turn else part)
        place += rows * wide
    return assemble(graph, [x], [parts[0] @ parts[1]])


@pytest.mark.portability
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    sizes=st.tuples(*[st.integers(1, 11)] * 3), lower=st.tuples(st.booleans(), st.booleans()),
    turned=st.tuples(st.booleans(), st.booleans()), most=st.sampled_from([0, 99]),
)  # fmt: skip
def test_products(sizes: Any, lower: Any, turned: Any, most: int) -> None:
    """Of every size and triangle: the sum over k in its order, in extended precision."""
    rows, inner, wide = sizes
    shapes = [(inner, rows) if turned[0] else (rows, inner)]
    shapes.append((wide, inner) if turned[1] else (inner, wide))
    a, b = (normals(PATHS, *shape, seed=k).numpy() for k, shape in enumerate(shapes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step, "MOST_ROWS", most)
        program = product_program(shapes, lower, turned)
        both = np.concatenate([x.reshape(PATHS, 1, -1) for x in (a, b)], 2)
        (found,) = run_program(program, both)
    first, second = (
        (np.tril(x) if low else x).swapaxes(1, 2) if turn else (np.tril(x) if low else x)
        for x, low, turn in zip((a, b), lower, turned, strict=True)
    )
    exact = np.einsum("pik,pkj->pij", first.astype(np.longdouble), second).astype(np.float64)
    np.testing.assert_allclose(found, exact, atol=2e-14)


def by_graph(function: Any, x: Any, d: Any) -> tuple[Any, Any]:
    """Return value and derivative of a function of matrices, by a compiled program."""
    graph = Graph()
    rows, count = x.shape[1:]
    both = graph.node("input", (), (rows, 2 * count))
    results = pushed(function, pr.columns(both, 0, count), pr.columns(both, count, 2 * count))
    value, moved = run_program(assemble(graph, [both], list(results)), np.concatenate([x, d], -1))
    return value, moved


@pytest.mark.quick
@pytest.mark.portability
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_in_a_direction_are_those_of_torch(name: str) -> None:
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
    slopes = by_graph(lambda x: pr.leaky(x, 1.5, 0.5), x, np.ones_like(x))[1]
    np.testing.assert_array_equal(slopes, 1.0 + 0.5 * np.sign(x))
    with pytest.raises(ValueError, match="cholesky has no derivative"):
        by_graph(lambda x: pr.cholesky(x @ x.mT), x, d)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("function", "power", "scale"),
    [(pr.arc_cosine_kernel, 1, 1e-250), (pr.unit_rows, 0, 1e-120)],
)
def test_small_matrices(function: Any, power: int, scale: float) -> None:
    """The kernel of covariances, and unit rows, with their tangents."""
    v, d = normals(PATHS, 3, 5), normals(PATHS, 3, 3)
    v, d = v @ v.mT, d + d.mT
    (small,) = run_program(traced(function, SQUARE), scale * v.numpy())
    np.testing.assert_allclose(small / scale**power, function(v).numpy(), rtol=1e-12)
    (_, expected), (_, moved) = (
        by_graph(function, s * v.numpy(), s * d.numpy()) for s in (1, scale)
    )
    np.testing.assert_allclose(moved / scale**power, expected, rtol=1e-6)


ENDS = [-np.inf, -1e300, -745.2, -740.0, -720.0, 0.0, 709.78, 709.79, 720.0, 1e300, np.inf, np.nan]
RANGES = {
    "exp": [(-708.0, 709.78), (-1.0, 1.0)],
    "tanh": [(-0.6, 0.6), (0.0, 1e-9), (-25.0, 25.0)],
    "softplus": [(-1.0, 1.0), (-50.0, 50.0), (-708.0, 708.0)],
}


@pytest.mark.portability
@pytest.mark.parametrize("name", RANGES)
def test_functions_of_entries_are_those_of_torch_to_rounding(name: str) -> None:
    """In the relative sense, where a difference would cancel and at both ends of the doubles.

    Each is within 4 units in the last place of the exact value; the smallest doubles are whole
    multiples of 2^-1074.
    """
    generator = np.random.default_rng(0)
    values = [ENDS, *(generator.uniform(*ends, 40_000) for ends in RANGES[name])]
    x = np.resize(np.concatenate(values), 64 * 2000).reshape(64, 2000, 1)
    function = getattr(pr, name)
    program, expected = traced(function, (2000, 1)), function(torch.from_numpy(x)).numpy()
    for found in (run_program(program, x)[0], run_alone(program, x)[0]):
        np.testing.assert_allclose(found, expected, rtol=8 * 2.0**-52, atol=5e-324)


@pytest.mark.quick
def test_shapes_that_do_not_fit() -> None:
    """A program would read beyond the matrices."""
    x = Graph().node("input", (), (3, 5))
    with pytest.raises(ValueError, match=r"turns must be of shape \(3, 2 J\) with 2 J <= 5"):
        pr.rotate(x, np.ones((1, 4)))
    with pytest.raises(TypeError, match=r"must be integers >= 1; got 0\.5; primitives.sqrt is"):
        _ = x**0.5
    with pytest.raises(TypeError, match="never on entries of a matrix"):
        bool(x)
