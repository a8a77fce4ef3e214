"""Large matrices by library routines: the paths of the torch executor, with the same numbers."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from shaped_attention import (
    Normalised,
    Pattern,
    Schedule,
    ShapedAttention,
    ShapedMLP,
    equicorrelated,
    integrate_sde,
    simulate_chain,
)
from shaped_attention.numerics import plan
from shaped_attention.numerics.operations import hidden
from shaped_attention.samplers.specification import Specification
from shaped_attention.samplers.steppers import blas
from shaped_attention.samplers.steppers.blas import BlasStepper
from tests.laws import threads

LAYERS = {
    "attention": ShapedAttention(0.5, 0.7),
    "causal": ShapedAttention(0.5, 0.7, mask="causal"),
    "few keys": ShapedAttention(0.5, 0.7, key_size=7),
    "heads": ShapedAttention(0.5, 0.7, heads=2),
    "projection": ShapedAttention(0.5, 0.7, heads=2, output_projection=True),
    "biases": ShapedAttention(0.5, 0.7, query_bias=0.5, key_bias=0.3),
    "mlp": ShapedMLP(0.5, 0.3, -1.0),
    "both": [ShapedAttention(0.35), ShapedMLP(Schedule([(0.0, 0.2), (1.0, 0.5)]))],
    "pattern": Pattern([ShapedAttention(0.35), ShapedMLP(0.35)]),
}
CHAINS = LAYERS | {
    "before": Normalised(ShapedAttention(0.5, 0.7), place="before"),
    "after": Normalised(ShapedAttention(0.5, 0.7, heads=2), place="after"),
    "sandwich": Normalised(ShapedAttention(0.5, 0.7, heads=2), "sandwich", eps=0.1, gain=1.2),
    "layer norm": [
        Normalised(ShapedAttention(0.5, 0.7, heads=2), norm="layer"),
        ShapedMLP(0.5),
        Normalised(ShapedAttention(0.5, 0.7), "sandwich", "layer"),
    ],
    "baseline": ShapedAttention(0.5, 0.7, identity=False, centring=False),
}


def low_rank(tokens, rank):
    root = np.random.default_rng(0).normal(size=(tokens, rank))
    return root @ root.T / rank


def repeated(tokens):
    """Every token is there twice."""
    v, index = equicorrelated(tokens, 0.2), np.arange(tokens) // 2
    return v[np.ix_(index, index)]


def zero_token(tokens):
    scale = np.arange(tokens) != 3
    return equicorrelated(tokens, 0.2) * scale * scale[:, None]


STARTS = {
    "repeated tokens": repeated(40),
    "rank 1": low_rank(40, 1),
    "rank 8": low_rank(40, 8),
    "a zero token": zero_token(40),
    "only zero tokens": np.zeros((40, 40)),
}


@pytest.fixture(autouse=True)
def large_from_40_tokens(monkeypatch):
    """Let library routines take 40 tokens, whatever is fastest on one machine."""
    for module in (blas, plan, hidden):
        monkeypatch.setattr(module, "FEWEST_LARGE_TOKENS", 40)


@pytest.fixture
def executors(monkeypatch):
    """Run a function on library routines and once more in torch."""

    def both(run):
        steps = []
        moved = BlasStepper.moved

        def counted(self, *arguments):
            steps.append(arguments[-1])
            return moved(self, *arguments)

        with monkeypatch.context() as patch:
            patch.setattr(BlasStepper, "moved", counted)
            compiled = run()
        assert steps
        with monkeypatch.context() as patch:
            patch.setattr(Specification, "compiled_device", property(lambda self: False))
            return compiled, run()

    return both


def assert_same_paths(fast, slow, tolerance=1e-12):
    v, w = fast.V.values, slow.V.values
    assert np.isfinite(w).all()
    np.testing.assert_allclose(v, w, rtol=0.0, atol=tolerance * np.abs(w).max())
    np.testing.assert_array_equal(fast.stopping_time, slow.stopping_time)


@pytest.mark.parametrize(("tokens", "width"), [(40, 80), (64, 256)])
@pytest.mark.parametrize("name", CHAINS)
def test_chain(name, tokens, width, executors):
    v0 = equicorrelated(tokens, 0.2, 1.3)
    assert_same_paths(
        *executors(
            lambda: simulate_chain(CHAINS[name], v0, width=width, depth=2, samples=1, seed=2)
        )
    )


@pytest.mark.parametrize(
    ("name", "tokens"), [*((name, 40) for name in LAYERS), ("attention", 64), ("causal", 64)]
)
def test_sde(name, tokens, executors):
    v0 = equicorrelated(tokens, 0.2, 1.3)

    def run(method="direct"):
        return integrate_sde(
            LAYERS[name], v0, horizon=0.1, step=0.05, samples=2, seed=2, method=method
        )

    fast, slow = executors(run)
    assert_same_paths(fast, slow)
    np.testing.assert_array_equal(run("torchsde").V, fast.V)


# From rank 1 these make Gram matrices with pivots just above the level, whose roots carry the
# root of their rounding error: all executors agree to 1e-5 there.
DELICATE = {("both", "rank 1"): 1e-4, ("causal", "rank 1"): 1e-4}


def chain(layer, v0):
    return simulate_chain(layer, v0, width=80, depth=2, samples=2, seed=2)


def limit(layer, v0):
    return integrate_sde(layer, v0, horizon=0.1, step=0.05, samples=2, seed=2, method="direct")


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(
    ("sampler", "name"),
    [*((chain, name) for name in ("heads", "both")),
     *((limit, name) for name in ("causal", "both"))],
)  # fmt: skip
def test_singular_starts(name, start, sampler, executors):
    run = executors(lambda: sampler(LAYERS[name], STARTS[start]))
    assert_same_paths(*run, tolerance=DELICATE.get((name, start), 1e-11))


@pytest.mark.portability
@pytest.mark.parametrize("name", ["both", "projection"])
def test_repeated_tokens_stay_equal(name):
    run = simulate_chain(LAYERS[name], STARTS["repeated tokens"], width=80, depth=10, samples=2)
    v = run.V.values[-1]
    assert np.abs(v[:, ::2] - v[:, 1::2]).max() <= 1e-12 * np.abs(v).max()


@pytest.mark.parametrize("width", [8, 40])
@pytest.mark.parametrize("name", ["attention", "projection"])
def test_more_tokens_than_columns(name, width, executors):
    run = {"width": width, "depth": 2, "samples": 2, "seed": 2}
    both = executors(lambda: simulate_chain(LAYERS[name], low_rank(40, 8), **run))
    assert_same_paths(*both, tolerance=1e-11)


def test_more_hidden_units_than_are_drawn_at_once(executors):
    """600 units in groups of 256: those of one group are not those of the next."""
    run = {"width": 600, "depth": 1, "samples": 1, "seed": 2}
    v0 = equicorrelated(40, 0.2)
    assert_same_paths(*executors(lambda: simulate_chain(ShapedMLP(0.7, 0.3, -6.0), v0, **run)))


def test_stopping(executors):
    layer, v0 = ShapedAttention(0.5, 0.8), equicorrelated(40, 0.2, 2.0)

    def sde():
        with pytest.warns(UserWarning, match="reached the radius with a fixed step"):
            return integrate_sde(
                layer, v0, horizon=0.1, step=0.01, samples=12, seed=2, radius=26.0, method="direct"
            )

    runs = [
        executors(
            lambda: simulate_chain(layer, v0, width=80, depth=8, samples=12, seed=2, radius=26.0)
        ),
        executors(sde),
    ]
    for fast, slow in runs:
        assert 0.05 < np.isfinite(slow.stopping_time).mean() < 0.95
        assert_same_paths(fast, slow)


@pytest.mark.portability
def test_the_same_bits_for_all_chunks_and_threads():
    v0 = equicorrelated(80, 0.2)
    singular = repeated(80)
    for run in (
        partial(simulate_chain, LAYERS["both"], v0, width=160, depth=2),
        partial(simulate_chain, LAYERS["heads"], singular, width=160, depth=2),
        partial(integrate_sde, LAYERS["causal"], v0, horizon=0.1, step=0.05),
        partial(integrate_sde, LAYERS["causal"], v0, horizon=0.1, step=0.05, method="torchsde"),
        partial(integrate_sde, LAYERS["both"], singular, horizon=0.1, step=0.05, method="direct"),
    ):
        with threads(1):
            alone = run(samples=5, chunk=1).V
        for number, chunk in ((1, 5), (2, 1), (2, 2), (3, None)):
            with threads(number):
                np.testing.assert_array_equal(run(samples=5, chunk=chunk).V, alone)
