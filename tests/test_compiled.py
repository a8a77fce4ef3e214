"""The compiled faces of the blocks give the paths of the readable torch faces, to rounding."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch

from shaped_attention import (
    Schedule,
    ShapedAttention,
    ShapedMLP,
    equicorrelated,
    integrate_sde,
    simulate_chain,
)
from shaped_attention.numerics import primitives
from shaped_attention.numerics.covariance import factor
from shaped_attention.numerics.graph import Graph
from shaped_attention.numerics.primitives import cholesky, leaky
from shaped_attention.numerics.primitives import lower as lower_of
from shaped_attention.numerics.program import assemble
from shaped_attention.samplers.specification import Specification
from tests.emitted import run_program

MASK = np.array([[True, False, True], [True, True, False], [False, False, True]])
LAYERS = {
    "attention": ShapedAttention(0.5, 0.7),
    "mlp": ShapedMLP(0.5, 0.3, -1.0),
    "both": [ShapedAttention(0.35), ShapedMLP(0.35)],
    "linear mlp": ShapedMLP(0.5, 0.4, 0.4),
    "few keys": ShapedAttention(0.5, 0.7, key_size=2),
    "projection": ShapedAttention(0.5, 0.7, output_projection=True),
    "causal": ShapedAttention(0.5, 0.7, mask="causal"),
    "key bias": ShapedAttention(0.5, 0.7, key_bias=0.5),
    "mask": [ShapedAttention(0.5, 0.7, mask=MASK), ShapedMLP(0.4)],
}
EQUAL = np.array([[1.3, 1.3, 0.4], [1.3, 1.3, 0.4], [0.4, 0.4, 1.0]])
SINGULAR = {
    "two equal tokens": EQUAL,
    "two equal tokens, the last": EQUAL[np.ix_([2, 1, 0], [2, 1, 0])],
    "all tokens equal": np.ones((3, 3)),
    "rank 1": np.outer([1.0, -0.5, 2.0], [1.0, -0.5, 2.0]),
    "rank 2": np.array([[1.0, 0.3, 0.4], [0.3, 1.0, -1.7], [0.4, -1.7, 3.8]]),
    "a token that is zero": np.diag([1.0, 0.0, 2.0]),
    "only zero tokens": np.zeros((3, 3)),
    "tiny next to large": np.diag([1.0, 1e-18, 1e6]),
}
fixed_steps = partial(integrate_sde, method="direct")
"""Where paths grow fast, those of the clock agree less closely (`tests/test_clock.py`)."""

ONE_TOKEN = {"one token": np.array([[1.3]]), "one token that is zero": np.zeros((1, 1))}


@pytest.fixture
def without_kernels(monkeypatch):
    """Run a function once as it is and once with compiled kernels forbidden."""

    def both(run):
        compiled = run()
        with monkeypatch.context() as patch:
            patch.setattr(Specification, "compiled_device", property(lambda self: False))
            return compiled, run()

    return both


@pytest.mark.portability
@pytest.mark.parametrize("width", [3, 4, 5, 40])
@pytest.mark.parametrize("name", LAYERS)
def test_chain(name, width, without_kernels):
    v0 = equicorrelated(3, 0.2, 1.3)
    fast, slow = without_kernels(
        lambda: simulate_chain(LAYERS[name], v0, width=width, depth=6, samples=50, seed=2)
    )
    scale = np.abs(slow.V.values).max()
    np.testing.assert_allclose(fast.V.values, slow.V.values, atol=1e-8 * scale)
    if width == 40:
        np.testing.assert_allclose(fast.V.values, slow.V.values, atol=1e-12 * scale)


def test_chain_with_more_hidden_units_than_are_drawn_at_once(without_kernels):
    """150 units in groups of 64: those of one group are not those of the next."""
    fast, slow = without_kernels(
        lambda: simulate_chain(
            ShapedMLP(0.7, 0.3, -6.0),
            equicorrelated(3, 0.2),
            width=150,
            depth=3,
            samples=20,
            seed=2,
        )
    )
    np.testing.assert_allclose(fast.V.values, slow.V.values, atol=1e-12)


@pytest.mark.portability
@pytest.mark.filterwarnings("ignore:method=.*reached the radius with a fixed step")
@pytest.mark.parametrize("tokens", [1, 2, 5])
@pytest.mark.parametrize("name", [name for name in LAYERS if name not in ("mask", "causal")])
def test_sde(name, tokens, without_kernels):
    v0 = equicorrelated(tokens, 0.2, 1.3)
    fast, slow = without_kernels(
        lambda: fixed_steps(LAYERS[name], v0, horizon=0.5, step=0.05, samples=50, seed=2)
    )
    scale = np.abs(slow.V.values).max()
    np.testing.assert_allclose(fast.V.values, slow.V.values, atol=1e-12 * scale)
    np.testing.assert_array_equal(fast.stopping_time, slow.stopping_time)


def test_a_schedule_in_both_executors(without_kernels):
    """Each step has the parameters of its own depth, also the second of a compiled call."""
    layer, v0 = ShapedAttention(Schedule([(0, 0.2), (1, 0.8)]), 0.7), equicorrelated(3, 0.2, 1.3)
    for run in (
        lambda: simulate_chain(layer, v0, width=40, depth=6, samples=50, seed=2),
        lambda: fixed_steps(layer, v0, horizon=0.6, step=0.1, samples=50, seed=2),
    ):
        fast, slow = without_kernels(run)
        scale = np.abs(slow.V.values).max()
        np.testing.assert_allclose(fast.V.values, slow.V.values, atol=1e-12 * scale)


@pytest.mark.parametrize("sampler", ["chain", "sde"])
def test_stopping(sampler, without_kernels):
    layer, v0 = ShapedAttention(0.6, 0.5), equicorrelated(4, 0.2, 2.0)
    runs = {
        "chain": lambda: simulate_chain(
            layer, v0, width=50, depth=50, samples=200, seed=2, radius=20.0
        ),
        "sde": lambda: fixed_steps(
            layer, v0, horizon=1.0, step=0.02, samples=200, seed=2, radius=20.0
        ),
    }
    expected = {
        "chain": nullcontext(),
        "sde": pytest.warns(UserWarning, match="reached the radius with a fixed step"),
    }
    with expected[sampler]:
        fast, slow = without_kernels(runs[sampler])
    assert 0.05 < np.isfinite(slow.stopping_time).mean() < 0.95
    np.testing.assert_array_equal(fast.stopping_time, slow.stopping_time)
    np.testing.assert_allclose(fast.V.values, slow.V.values, rtol=1e-8, atol=1e-10)


def chain(layer, v0):
    return simulate_chain(layer, v0, width=40, depth=20, samples=50, seed=2)


def limit(layer, v0):
    return fixed_steps(layer, v0, horizon=0.5, step=0.025, samples=50, seed=2)


@pytest.mark.filterwarnings("ignore:method=.*reached the radius with a fixed step")
@pytest.mark.parametrize("sampler", [chain, limit])
@pytest.mark.parametrize("start", [*SINGULAR, *ONE_TOKEN])
@pytest.mark.parametrize("name", ["attention", "mlp", "both", "projection", "mask"])
def test_singular_starts(name, start, sampler, without_kernels):
    """A row without a direction of its own has a zero column in both executors.

    At V = 10^4 paths of the limit explode within a step, which makes more of rounding.
    """
    v0 = np.minimum((SINGULAR | ONE_TOKEN)[start], 1e2 if sampler is limit else np.inf)
    if name == "mask" and len(v0) == 1:
        return
    assert_same_paths(*without_kernels(lambda: sampler(LAYERS[name], v0)))


def assert_same_paths(fast, slow):
    """To 1e-9 of the largest covariance of the two tokens, in every entry."""
    v, w = fast.V.values, slow.V.values
    size = np.sqrt(np.diagonal(w, axis1=-2, axis2=-1)).max(axis=1, keepdims=True)
    scale = size[..., :, None] * size[..., None, :]
    assert (np.abs(v - w) <= 1e-9 * scale).all()


@pytest.mark.portability
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("width", [8, 3000, None])
@pytest.mark.parametrize("name", ["both", "projection"])
def test_equal_tokens_stay_equal(name, width, compiled, monkeypatch):
    """In the chain, and in the limit by the clock."""
    if not compiled:
        monkeypatch.setattr(Specification, "compiled_device", property(lambda self: False))
    if width is None:
        run = integrate_sde(LAYERS[name], EQUAL, horizon=1.0, step=0.02, samples=50, seed=2)
    else:
        run = simulate_chain(LAYERS[name], EQUAL, width=width, depth=20, samples=50, seed=2)
    assert_first_two_equal(run.V.values[-1], 1e-12)


@pytest.mark.parametrize("name", ["attention", "mlp", "both"])
def test_equal_tokens_stay_equal_in_single_precision(name):
    run = simulate_chain(
        LAYERS[name], EQUAL, width=200, depth=20, samples=50, seed=2, dtype="float32"
    )
    assert_first_two_equal(run.V.values[-1], 1e-5)


def assert_first_two_equal(v, tolerance):
    """Correlation 1 and the same variance, relative to the variance."""
    gaps = np.abs(v[:, 0] - v[:, 1]).max(-1)
    assert (gaps <= tolerance * np.diagonal(v, axis1=-2, axis2=-1).max(-1)).all()
    assert (1.0 - v[:, 0, 1] / np.sqrt(v[:, 0, 0] * v[:, 1, 1]) <= tolerance).all()


ROOTS = np.eye(5, 7) + 0.2 * np.random.default_rng(0).normal(size=(64, 5, 7))
"""Well conditioned: the rounding errors of a pivot of V grow with the condition number."""


def emitted(kind, matrices):
    """Apply an operation to matrices, in emitted code."""
    graph = Graph()
    x = graph.node("input", (), matrices.shape[1:])
    program = assemble(graph, [x], [getattr(primitives, kind)(x)])
    return run_program(program, matrices)[0]


def lower_factors(root):
    """A lower factor of 64 roots by each executor."""
    ours = emitted("lower", root)
    return ours, lower_of(torch.from_numpy(root)).numpy()


def choleskys(v):
    """Cholesky factors of 64 matrices by each executor."""
    ours = emitted("cholesky", v)
    return ours, cholesky(torch.from_numpy(v)).numpy()


@pytest.mark.portability
@pytest.mark.parametrize("columns", [2, 5, 7])
def test_rows_without_a_direction_of_their_own_have_a_zero_column(columns):
    """In every factorisation: rows 2 and 3 depend on rows 0 and 1, row 4 only with two columns."""
    root = ROOTS[..., :columns].copy()
    root[:, 2] = root[:, 0]
    root[:, 3] = root[:, 0] - 2.0 * root[:, 1]
    v = root @ root.swapaxes(1, 2)
    starts = np.stack([factor(one) for one in v])
    for lower in (*lower_factors(root), *choleskys(v), starts):
        zero = [2, 3, 4] if columns == 2 else [2, 3]
        assert (lower[:, :, zero] == 0.0).all()
        np.testing.assert_allclose(lower @ lower.swapaxes(1, 2), v, atol=1e-12)
        np.testing.assert_allclose(lower, starts, atol=1e-9)
        np.testing.assert_allclose(lower[:, 2], lower[:, 0], atol=1e-13)


@pytest.mark.parametrize(("relative", "kept"), [(100.0, True), (30.0, False)])
def test_the_level_of_a_pivot(relative, kept):
    """64 eps: a part of its own of 100 eps of a row is kept, of 30 eps is not; of any size."""
    eps = np.finfo(np.float64).eps
    root = np.zeros((64, 2, 3))
    root[:, 0, 0], root[:, 1, 0] = 1e-3, 1e5
    root[:, 1, 1] = relative * eps * 1e5
    for lower in lower_factors(root):
        assert ((lower[:, 1, 1] > 0.0) == kept).all()
    v = np.tile(np.eye(2), (64, 1, 1))
    v[:, 1, 0] = v[:, 0, 1] = np.sqrt(1.0 - relative * eps)
    for lower in choleskys(v):
        assert ((lower[:, 1, 1] > 0.0) == kept).all()


def test_what_is_not_finite_is_never_a_zero_pivot():
    for bad in (np.nan, np.inf):
        root = ROOTS.copy()
        root[:, 1, 1] = bad
        v = np.tile(np.eye(5), (64, 1, 1))
        v[:, 1, 1] = bad
        for lower in (*lower_factors(root), *choleskys(v)):
            assert not np.isfinite(lower[:, 1]).all(-1).any()


def test_starts_keep_tokens_of_any_size():
    """A small variance is no rounding error of a large one."""
    v = np.diag([1.0, 1e-18, 1e6])
    v[0, 1] = v[1, 0] = 0.5e-9
    lower = factor(v)
    np.testing.assert_allclose(lower @ lower.T, v, rtol=1e-14)


@dataclass(frozen=True)
class Folded(ShapedMLP):
    """A subclass with a different activation."""

    def activated(self, p, x, width):
        return leaky(x, 1.0 + 0.5 / width**0.5, 1.0 - 1.5 / width**0.5)


@dataclass(frozen=True)
class Uniform(ShapedAttention):
    """A subclass whose attention ignores the scores."""

    def mix(self, logits):
        return super().mix(0.0 * logits)


def chain_and_sde(layer):
    v0 = equicorrelated(3, 0.2, 1.3)
    yield simulate_chain(layer, v0, width=40, depth=3, samples=5, seed=2).V.values[-1]
    yield fixed_steps(layer, v0, horizon=0.3, step=0.1, samples=5, seed=2).V.values[-1]


@pytest.mark.parametrize(
    ("child", "parent"), [(Folded(0.5), ShapedMLP(0.5)), (Uniform(0.5), ShapedAttention(0.5))]
)
def test_what_a_subclass_overrides_changes_both_executors_alike(child, parent, without_kernels):
    fast, slow = without_kernels(lambda: list(chain_and_sde(child)))
    for ours, readable, others in zip(fast, slow, chain_and_sde(parent), strict=True):
        np.testing.assert_allclose(ours, readable, atol=1e-13)
        assert np.abs(ours - others).max() > 1e-3
