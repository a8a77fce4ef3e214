"""Products with transposed Jacobians of rows, against torch.func on the same matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention import lazy
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.rows.rows import Rows
from tests.explicit_networks import projection
from tests.refusals import refused
from tests.test_lazy_rules import BLOCKS, TOKENS, eye

ACROSS = torch.tensor(np.random.default_rng(6).standard_normal((2, 4, 8)))


def dots(x: Rows, y: Rows) -> torch.Tensor:
    """Return the inner products of all rows together."""
    return (x @ y.mT).diagonal(dim1=1, dim2=2).sum(-1)


def lazy_and_dense(block: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return y and J^T g, lazily and by torch with the same matrices."""
    space = lazy.Space(8, samples=2, seed=7, explicit=True)
    x, g = (space.rows(z) for z in (TOKENS.expand(2, -1, -1), ACROSS))
    layers = lazy.Layers(block)

    y, pull = lazy.vjp(layers, x)
    ours = {"y": y, "J^T g": pull(g)}
    whole = {}
    for key, w in layers.parameters.items():
        a, b = w.matrix._spaces
        eye(b)
        whole[key] = w.of(eye(a) @ w.matrix).coordinates
    p = at_depth(block, 0.0)

    def dense(z: torch.Tensor) -> torch.Tensor:
        return block.forward(p, z, projection(lambda key, *_: whole[key], "0.0"))

    start = TOKENS.repeat(2, 1, 1)
    y_dense, pull_dense = torch.func.vjp(dense, start)
    expected = {"y": y_dense, "J^T g": pull_dense(ACROSS)[0]}
    return {k: v.entries() for k, v in ours.items()}, expected


@pytest.mark.parametrize("name", BLOCKS)
def test_products_are_those_of_torch(name: str) -> None:
    ours, theirs = lazy_and_dense(BLOCKS[name])
    assert set(ours) == set(theirs)
    for key, expected in theirs.items():
        scale = float(expected.abs().max())
        assert float((ours[key] - expected).abs().max()) <= 1e-10 * scale, key


@pytest.mark.quick
def test_in_a_wide_space() -> None:
    """<J^T g, t> by a difference quotient, in a space that only some rows span."""
    space = lazy.Space(10**7, samples=3, seed=2)
    block = sa.Normalised(
        sa.ShapedAttention(0.5, heads=2, head_size=8, output_projection=True), norm="layer"
    )
    layers = lazy.Layers([block, sa.ShapedMLP(0.5, activation="gelu", hidden=16)], depth=2)
    x, t, g = (space.normal(3) for _ in range(3))
    _, pull = lazy.vjp(layers, x)
    step, scale = 1e-4, space.n**0.5
    quotient = (layers(x + step * t) - layers(x - step * t)) * (0.5 / step)
    assert torch.allclose(dots(g, quotient) / scale, dots(pull(g), t) / scale, rtol=1e-6)
    # A second time from the same record.
    assert torch.allclose(pull(g) @ t.mT, pull(g) @ t.mT, rtol=1e-9)
    assert space.size < 400


SPACE = lazy.Space(6, samples=2)
X, LONGER = SPACE.normal(3), SPACE.normal(4)


test_what_is_refused = pytest.mark.quick(
    refused(
        (lambda: lazy.vjp("x", X), "function must be a function of rows; got 'x'"),
        (lambda: lazy.vjp(lambda x: x, 1.0), "x must be rows of a lazy.Space; got 1.0"),
        (lambda: lazy.vjp(lambda x: 1.0, X), "a function whose rows depend on x; got 1.0"),
        (lambda: lazy.vjp(lambda x: X, X), "a function whose rows depend on x; got"),
        (lambda: lazy.vjp(lambda x: 2 * x, X)[1](LONGER), r"g must be rows of shape \(2, 3, 6\)"),
        (lambda: lazy.Layers(sa.ShapedAttention(0.5))(np.eye(2)), "x must be rows of a lazy.Space"),
        (lambda: lazy.Layers(sa.ShapedAttention(0.5), depth=0), "depth must be"),
        (lambda: lazy.Layers(sa.ShapedAttention(0.5, heads=2))(X), "rows of different spaces"),
    )
)


def test_rows_of_another_network_are_refused() -> None:
    layers = lazy.Layers(sa.ShapedMLP(0.5))
    layers(lazy.Space(6).normal(2))
    with pytest.raises(ValueError, match="x must be rows of the same network as in the first call"):
        layers(lazy.Space(6).normal(2))
