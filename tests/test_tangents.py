"""Tangent rules of the primitives, against forward-mode differentiation by torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

import shaped_attention as sa
from shaped_attention.blocks.parameters import at_depth, traced
from shaped_attention.derived.state import State
from shaped_attention.numerics import primitives as pr
from shaped_attention.numerics.dual import Dual
from shaped_attention.numerics.graph import Graph
from shaped_attention.numerics.named_numbers import Keys, TorchNumbers, TracedNumbers
from shaped_attention.numerics.operations.entrywise import sign
from shaped_attention.numerics.operations.factorisations import split, stacked
from shaped_attention.numerics.plan import Plan
from shaped_attention.numerics.primitives import by_length
from shaped_attention.numerics.program import assemble
from tests import hand_written
from tests.hand_written import residual_step

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


def test_the_gram_matrix_of_activated_columns_has_no_rule() -> None:
    factor = Dual(normals(2, *SQUARE), (None,))
    torch_numbers = TorchNumbers(Keys(0, "chain"), torch.arange(2), 0)
    for numbers in (torch_numbers, TracedNumbers(Graph())):
        with pytest.raises(ValueError, match=r"^the Gram matrix of hidden units does not"):
            numbers.activated_gram("hidden", factor, 5, pr.tanh)


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


def joint_gram(parts: list[Tensor]) -> Tensor:
    z = torch.cat(parts, dim=-2)
    return z @ z.mT


def test_compressing_keeps_the_joint_gram() -> None:
    """Value and tangents together; what the derivative of the factor alone does is another law."""
    wide = Dual(normals(2, 3, 12), (normals(2, 3, 12, seed=1), None, normals(2, 3, 12, seed=2)))
    before = joint_gram([wide.value, wide.tangents[0], wide.tangents[2]])
    for small in (pr.compress(wide), pr.lower(wide)):
        assert small.shape == (2, 3, 9)
        assert small.tangents[1] is None
        after = joint_gram([small.value, small.tangents[0], small.tangents[2]])
        torch.testing.assert_close(after, before, **EXACT)
        assert (torch.triu(small.value, 1) == 0.0).all()
    few = Dual(normals(2, 3, 6), (normals(2, 3, 6, seed=1),))
    assert pr.compress(few) is few
    value, tangent = (torch.tensor([[x]], dtype=torch.float64) for x in ([1.0, 0.0], [0.0, 1.0]))
    small = pr.lower(Dual(value, (tangent,)))
    unit = torch.eye(2, dtype=torch.float64)
    torch.testing.assert_close(joint_gram([small.value[0], small.tangents[0][0]]), unit)
    factor, derivative = torch.func.jvp(pr.lower, (value,), (tangent,))
    wrong = joint_gram([factor[0], derivative[0]])
    torch.testing.assert_close(wrong, torch.diag(torch.tensor([1.0, 0.0], dtype=torch.float64)))


@pytest.mark.parametrize("width", [6, 16])
def test_a_gaussian_step(width: int) -> None:
    """The step of value and tangents is that of their stack, with the same numbers."""
    f, r = ([normals(SAMPLES, 3, 6, seed=seed + k) for k in range(2)] for seed in (0, 2))
    duals = Dual(f[0], (f[1],)), Dual(r[0], (r[1],))
    found, expected = (
        residual_step(State((factor,)), root, 0.8, 0.6, width, numbers_of()).factors[0]
        for factor, root in (duals, (stacked(f), stacked(r)))
    )
    after = joint_gram([found.value, found.tangents[0]])
    torch.testing.assert_close(after, expected @ expected.mT, **EXACT)


def test_stacks_are_split_again() -> None:
    parts = [normals(2, *WIDE, seed=k) for k in range(3)]
    for found, part in zip(split(stacked(parts), 3), parts, strict=True):
        assert (found == part).all()


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
    with pytest.raises(
        ValueError, match=r"^matrices with 1 and with 2 tangents cannot be combined"
    ):
        Dual(v, (v,)) + Dual(v, (v, v))
    with pytest.raises(ValueError, match=r"^tangents contains a matrix of shape \(2, 3, 1\); the"):
        Dual(v, (v[..., :1],))


ATTENTION = {
    "plain": sa.ShapedAttention(0.5, 0.7),
    "causal heads": sa.ShapedAttention(0.5, 0.7, heads=2, mask="causal"),
    "projection": sa.ShapedAttention(0.5, 0.7, heads=2, output_projection=True),
    "biases": sa.ShapedAttention(0.5, 0.7, query_bias=0.5, key_bias=0.3),
    "unit rows": sa.Normalised(sa.ShapedAttention(0.5, 0.7), place="before"),
}
WIDTH, SAMPLES, STEP = 16, 2, 3


def keys() -> Keys:
    return Keys(7, "chain")


def numbers_of() -> TorchNumbers:
    return TorchNumbers(keys(), torch.arange(SAMPLES), STEP)


def root_of(block: Any, factor: Any) -> list[Any]:
    """Return the roots of a block, by torch and with the same numbers at every call."""
    root = block.root(at_depth(block, 0.0), factor, numbers_of(), WIDTH)
    return root if isinstance(root, list) else [root]


def written_root_of(block: Any, factor: Any) -> list[Any]:
    """Return the roots that are written by hand, of which forward mode knows the derivatives."""
    inner, p = block, at_depth(block, 0.0)
    if isinstance(block, sa.Normalised):
        inner, p, factor = block.inner, p.inner, by_length(factor, 0.0)
    root = hand_written.root_of(inner, p, factor, numbers_of(), WIDTH)
    return root if isinstance(root, list) else [root]


def dual_factor(columns: int = 3) -> Dual:
    f = [normals(SAMPLES, 3, columns, seed=k) for k in range(3)]
    return Dual(f[0], (f[1], f[2]))


@pytest.mark.parametrize("columns", [2, 3])
@pytest.mark.parametrize("name", ATTENTION)
def test_the_root_of_attention(name: str, columns: int) -> None:
    """The description as it is, with heads, masks, W_O and biases, against forward mode."""
    block, factor = ATTENTION[name], dual_factor(columns)
    roots = root_of(block, factor)
    for k, direction in enumerate(factor.tangents):
        with forward_ad.dual_level():
            moving = written_root_of(block, forward_ad.make_dual(factor.value, direction))
            expected = [forward_ad.unpack_dual(x) for x in moving]
        for root, (value, tangent) in zip(roots, expected, strict=True):
            found = joint_gram([root.value, root.tangents[k]])
            torch.testing.assert_close(found, joint_gram([value, tangent]), **EXACT)
            assert float(tangent.abs().max()) > 0.1


@pytest.mark.parametrize("name", ATTENTION)
def test_the_root_of_attention_traced(name: str) -> None:
    """Run the same description, with its tangents, as a program on library routines."""
    block, factor = ATTENTION[name], dual_factor()
    graph = Graph()
    inputs = [graph.node("input", (), (3, 3)) for _ in range(3)]
    root = block.root(
        traced(block), Dual(inputs[0], tuple(inputs[1:])), TracedNumbers(graph), WIDTH
    )
    roots = root if isinstance(root, list) else [root]
    outputs = [matrix.value() for dual in roots for matrix in (dual.value, *dual.tangents)]
    plan = Plan.of(assemble(graph, inputs, outputs), keys().key, np.arange(STEP + 1) / (STEP + 1))
    expected = [x for dual in root_of(block, factor) for x in (dual.value, *dual.tangents)]
    inputs_of_samples = [x.numpy() for x in (factor.value, *factor.tangents)]
    results = plan.run(inputs_of_samples, np.arange(SAMPLES), STEP)
    for x, y in zip(results, expected, strict=True):
        np.testing.assert_allclose(x, y.numpy(), rtol=1e-11, atol=1e-11)
