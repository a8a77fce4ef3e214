"""Compiled code and library routines give the paths of torch, for layers made at random."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import shaped_attention as sa
from shaped_attention.numerics.threads import Team
from shaped_attention.samplers.paths import Paths
from shaped_attention.samplers.specification import specify
from shaped_attention.samplers.steppers import blas
from shaped_attention.samplers.steppers.blas import BlasStepper

MASK = np.array([[True, False, True], [True, True, False], [False, False, True]])
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
ramp = sa.Schedule([(0.0, 0.2), (1.0, 0.7)])
ATTENTIONS: list[sa.Block] = [
    sa.ShapedAttention(0.5, 0.7), sa.ShapedAttention(ramp, 0.7, key_size=2),
    sa.ShapedAttention(0.5, 0.7, heads=2), sa.ShapedAttention(0.5, 0.7, output_projection=True),
    sa.ShapedAttention(0.5, 0.7, key_bias=0.5), sa.ShapedAttention(0.5, 0.7, query_bias=0.4),
]  # fmt: skip
MLPS: list[sa.Block] = [
    sa.ShapedMLP(0.4, 0.3, -1.0),
    sa.ShapedMLP(ramp),
    sa.ShapedMLP(0.5, 0.4, 0.4),
]
CHAINS: list[sa.Block] = [
    *ATTENTIONS, *MLPS,
    sa.ShapedMLP(0.5, activation="gelu", hidden_ratio=2.5, skip=1.0),
    sa.ShapedMLP(0.5, activation="silu", gated=True, hidden=33, skip=1.0),
    sa.ShapedMLP(0.5, activation="softplus", scale=1.0),
    sa.ShapedMLP(0.5, activation="tanh", scale=1.0, gated=True, gate_bias=0.3),
    sa.ShapedMLP(0.7, sa.Schedule([(0.0, -6.0), (1.0, 6.0)]), -1.0),
    sa.ShapedAttention(0.5, 0.7, heads=4, key_size=8, rope=1e4, kv_heads=2, output_projection=True),
    sa.ShapedAttention(0.5, 0.7, heads=4, key_size=8, qk_norm="head"),
    sa.ShapedAttention(0.5, 0.7, softcap=3.0, mask="causal"),
    sa.ShapedAttention(0.5, 0.7, identity=False, centring=False),
    sa.Parallel([sa.ShapedAttention(0.5, 0.7), sa.ShapedMLP(0.4)]),
    sa.Normalised(sa.ShapedAttention(0.5, 0.7, heads=2), place="after"),
    sa.Normalised(sa.ShapedMLP(0.5), "sandwich", eps=0.1, gain=1.2),
    sa.Normalised(sa.ShapedAttention(0.5, 0.7), norm="layer"),
]  # fmt: skip


def layers(blocks: list[sa.Block]) -> st.SearchStrategy[Any]:
    some = st.lists(st.sampled_from(blocks), min_size=1, max_size=3)
    pattern = st.tuples(*[st.sampled_from(blocks)] * 2).map(lambda x: sa.Pattern(list(x)))
    return st.one_of(some, pattern)


def starts(m: int) -> st.SearchStrategy[NDArray[np.float64]]:
    """Regular, of low rank, with equal tokens and with zeros."""
    regular = sa.equicorrelated(m, 0.2, 1.3) if m > 1 else np.full((1, 1), 1.3)
    root = np.random.default_rng(m).normal(size=(m, max(1, m // 2)))
    halves = np.kron(sa.equicorrelated(-(-m // 2), 0.2), np.ones((2, 2)))[:m, :m]
    zero = regular * np.outer(np.arange(m) != 1, np.arange(m) != 1)
    return st.sampled_from([regular, regular, root @ root.T, halves, zero])


STARTS = st.integers(1, 7).flatmap(starts)


def assert_same_paths(fast: xr.Dataset, slow: xr.Dataset, error: float = 1e-9) -> None:
    """To 1e-9 of the largest covariance of the two tokens, in every entry."""
    v, w = fast.V.values, slow.V.values
    size = np.sqrt(np.diagonal(w, axis1=-2, axis2=-1)).max(axis=1, keepdims=True)
    scale = size[..., :, None] * size[..., None, :]
    assert np.isfinite(w).all()
    assert (np.abs(v - w) <= error * scale).all()
    np.testing.assert_allclose(fast.stopping_time, slow.stopping_time, rtol=1e-9)


def assert_executors_agree(call: Any, error: float = 1e-9) -> xr.Dataset:
    with sa.eager():
        expected = call()
    with pytest.MonkeyPatch.context() as patch:
        for fewest in (blas.FEWEST_LARGE_TOKENS, 1):
            patch.setattr(blas, "FEWEST_LARGE_TOKENS", fewest)
            assert_same_paths(call(), expected, error)
    return expected


@pytest.mark.portability
@settings(max_examples=40, deadline=None, derandomize=True)
@given(layer=layers(CHAINS), v0=STARTS, width=st.sampled_from([8, 40, 300]))
def test_chains(layer: Any, v0: Any, width: int) -> None:
    """Schedules, patterns, groups, norms and hidden units, stopped or not."""
    run = {"width": width, "depth": 5, "samples": 11, "seed": 2, "progress": False}
    run["radius"] = 3.0 * max(1.0, float(np.linalg.norm(v0)))
    assert_executors_agree(lambda: sa.simulate_chain(layer, v0, **run))


@pytest.mark.portability
@pytest.mark.filterwarnings("ignore:method=.*reached the radius with a fixed step")
@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    layer=layers([*ATTENTIONS[:2], *ATTENTIONS[3:], *MLPS]), v0=STARTS,
    method=st.sampled_from(["direct", "torchsde", "clock"]),
)  # fmt: skip
def test_limits(layer: Any, v0: Any, method: str) -> None:
    run = {"horizon": 0.3, "step": 0.05, "samples": 11, "seed": 2, "progress": False}
    run["radius"] = 5.0 * max(1.0, float(np.linalg.norm(v0)))
    assert_executors_agree(lambda: sa.integrate_sde(layer, v0, method=method, **run))


@pytest.mark.portability
def test_paths_are_seen_to_differ() -> None:
    """The control: by a millionth of gamma. Some of these paths stop."""
    run = {"width": 50, "depth": 50, "samples": 64, "seed": 2, "radius": 20.0}
    v0 = sa.equicorrelated(4, 0.2, 2.0)
    one = assert_executors_agree(lambda: sa.simulate_chain(sa.ShapedAttention(0.6), v0, **run))
    assert 0.05 < np.isfinite(one.stopping_time).mean() < 0.95
    with pytest.raises(AssertionError):
        assert_same_paths(sa.simulate_chain(sa.ShapedAttention(0.6 + 1e-6), v0, **run), one)


@pytest.mark.parametrize("name", SINGULAR)
def test_singular_starts(name: str) -> None:
    """A row that depends on earlier rows has a zero column in every executor."""
    layer, run = [ATTENTIONS[0], MLPS[0]], {"samples": 20, "seed": 2}
    v0 = SINGULAR[name]
    assert_executors_agree(lambda: sa.simulate_chain(layer, v0, width=40, depth=20, **run))
    masked = sa.ShapedAttention(0.5, 0.7, mask=MASK)
    assert_executors_agree(lambda: sa.simulate_chain(masked, v0, width=40, depth=20, **run))


def test_many_hidden_units() -> None:
    """5,000 of them in parts of whole blocks, the last of which is not full; odd numbers too."""
    layer, run = sa.ShapedMLP(0.7, 0.3, -6.0), {"depth": 1, "samples": 2, "seed": 3}
    for tokens, width in ((3, 150), (16, 5000)):
        v0 = sa.equicorrelated(tokens, 0.2)
        assert_executors_agree(
            lambda v0=v0, width=width: sa.simulate_chain(layer, v0, width=width, **run), 1e-12
        )


@pytest.mark.portability
@pytest.mark.parametrize("tokens", [5, 97])
def test_a_team_does_not_change_a_sample(tokens: int) -> None:
    attention = sa.ShapedAttention(0.5, 0.7, heads=4, key_size=8, rope=1e4, output_projection=True)
    mlp = sa.ShapedMLP(0.5, activation="silu", gated=True, hidden=20_000, skip=1.0)
    spec = specify(
        [attention, mlp], sa.equicorrelated(tokens, 0.2), width=128, steps=1, samples=2, seed=3
    )
    stepper = BlasStepper(spec)
    paths, (plan,) = Paths(stepper, 5, 2), stepper.plans
    (alone,), (shared,) = (plan.run(paths.state[0], 5, 0, team=Team(k)) for k in (1, 3))
    np.testing.assert_array_equal(alone, shared)
