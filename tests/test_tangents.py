"""Tangent rules of the primitives, against forward-mode differentiation by torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from shaped_attention.numerics import primitives as pr
from shaped_attention.numerics.dual import Dual
from shaped_attention.numerics.operations.entrywise import sign

CAUSAL = np.tril(np.ones((3, 3), dtype=bool))
EXACT: dict[str, float] = {"rtol": 1e-10, "atol": 1e-10}


def normals(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


SQUARE, WIDE, COLUMN, ROW, ENTRY = (3, 3), (3, 4), (3, 1), (1, 4), (1, 1)
PLAIN = normals(2, *WIDE, seed=5)
TURNS = np.random.default_rng(0).normal(size=(WIDE[0], 2))
PAIRS = [(WIDE, WIDE), (WIDE, COLUMN), (COLUMN, WIDE), (ROW, WIDE), (WIDE, ENTRY), (ENTRY, ROW)]

UNARY: dict[str, tuple[Callable[[Any], Any], tuple[int, int]]] = {
    "transpose": (lambda x: x.mT, WIDE),
    "negative": (lambda x: -x, WIDE),
    "number": (lambda x: 2.0 - (1.0 + 3.0 * x - 0.5) / 7.0, WIDE),
    "sign": (lambda x: x * sign(x), WIDE),
    "reciprocal": (lambda x: 2.0 / (3.0 + x * x).mT, WIDE),
    "over": (lambda x: x / (3.0 + x * x), WIDE),
    "tensor": (lambda x: PLAIN - (PLAIN * x + PLAIN) / PLAIN, COLUMN),
    "tensor over": (lambda x: PLAIN / (3.0 + x * x), COLUMN),
    "products": (lambda x: (PLAIN.mT @ x) @ (x.mT @ PLAIN), WIDE),
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
    "concatenate": (lambda x: pr.concatenate([PLAIN, x, x * x]), WIDE),
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
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda x, y: x + y,
    "difference": lambda x, y: x - y,
    "product": lambda x, y: x * y,
    "quotient": lambda x, y: x / (2.0 + y * y),
}


def compare(function: Callable[..., Any], values: list[Tensor], directions: list[Any]) -> None:
    """Compare value and tangents of a function of duals with torch.func.jvp, each direction alone.

    A direction is a list of derivatives, one for each argument, None for 0.
    """
    duals = [Dual(x, tuple(d[k] for d in directions)) for k, x in enumerate(values)]
    result = function(*duals)
    for k, direction in enumerate(directions):
        zeros = zip(values, direction, strict=True)
        along = tuple(torch.zeros_like(x) if d is None else d for x, d in zeros)
        value, expected = torch.func.jvp(function, tuple(values), along)
        torch.testing.assert_close(result.value, value, rtol=1e-14, atol=1e-14)
        found = result.tangents[k]
        if found is None:
            assert all(d is None for d in direction)
            continue
        assert found.shape == expected.shape == result.shape
        torch.testing.assert_close(found, expected, **EXACT)
    assert any(d is not None and bool(d.abs().max() > 1e-3) for d in result.tangents)


@pytest.mark.parametrize("name", UNARY)
def test_primitives(name: str) -> None:
    """Two directions and a zero one, which costs nothing."""
    function, shape = UNARY[name]
    x = normals(2, *shape)
    compare(function, [x], [[normals(2, *shape, seed=1)], [None], [normals(2, *shape, seed=2)]])


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_arithmetic(name: str, first: tuple[int, int], second: tuple[int, int]) -> None:
    """Rows, columns and single entries are repeated, in tangents too; either side may be fixed."""
    x, y = normals(2, *first), normals(2, *second, seed=1)
    d, e = normals(2, *first, seed=2), normals(2, *second, seed=3)
    compare(BINARY[name], [x, y], [[d, e], [d, None], [None, e]])
    compare(lambda x: BINARY[name](x, y), [x], [[d]])
    compare(lambda y: BINARY[name](x, y), [y], [[e]])


def test_products_of_matrices() -> None:
    x, y = normals(2, *WIDE), normals(2, 4, 3, seed=1)
    d, e = normals(2, *WIDE, seed=2), normals(2, 4, 3, seed=3)
    compare(lambda x, y: x @ y, [x, y], [[d, e], [d, None], [None, e]])


def test_rows_and_entries_of_zeros() -> None:
    """A row of zeros keeps tangent 0; at 0 the slope of `leaky` is the mean of both."""
    x, d = normals(1, *WIDE), normals(1, *WIDE, seed=1)
    x[:, 1] = 0.0
    unit = pr.unit_rows(Dual(x, (d,))).tangents[0]
    kernel = pr.arc_cosine_kernel(Dual(x, (d,)) @ Dual(x, (d,)).mT).tangents[0]
    assert (unit[:, 1] == 0.0).all()
    assert (kernel[:, 1] == 0.0).all()
    rest = [0, 2]
    compare(pr.unit_rows, [x[:, rest]], [[d[:, rest]]])
    others = Dual(x[:, rest], (d[:, rest],))
    expected = pr.arc_cosine_kernel(others @ others.mT).tangents[0]
    torch.testing.assert_close(kernel[:, rest][:, :, rest], expected, **EXACT)
    slopes = pr.leaky(Dual(x, (torch.ones_like(x),)), 1.5, 0.5).tangents[0]
    assert (slopes == 1.0 + 0.5 * x.sign()).all()


def test_what_has_no_tangents() -> None:
    """A Gram matrix does not determine a root's tangents; a fixed one needs none."""
    v = normals(2, 3, 5)
    v = v @ v.mT
    fixed = pr.cholesky(Dual(v, (None, None)))
    assert (fixed.value == pr.cholesky(v)).all()
    assert fixed.tangents == (None, None)
    with pytest.raises(
        ValueError, match=r"^cholesky has no rule for a Gram matrix with tangents, .*joint Gram"
    ):
        pr.cholesky(Dual(v, (None, v)))
    for function in (pr.lower, pr.compress):
        with pytest.raises(ValueError, match=r"^factors are not unique"):
            function(Dual(v, (None,)))
    with pytest.raises(
        ValueError, match=r"^matrices with 1 and with 2 tangents cannot be combined"
    ):
        Dual(v, (v,)) + Dual(v, (v, v))
    with pytest.raises(ValueError, match=r"^tangents contains a matrix of shape \(2, 3, 1\); the"):
        Dual(v, (v[..., :1],))
