"""Bits of runs of many tokens do not depend on the threads of the libraries."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits
from torch.utils._python_dispatch import TorchDispatchMode

import shaped_attention as sa
from shaped_attention.sphere import SphereAttention, sphere_flow, uniform_start
from tests.laws import threads

LAYER = sa.ShapedAttention(0.5, 2.0)

RUNS = {
    "chain": lambda v0, m: sa.simulate_chain(
        LAYER, v0, width=2 * m, depth=2, samples=2, progress=False
    ),
    "sde": lambda v0, m: sa.integrate_sde(
        LAYER, v0, horizon=0.02, step=0.01, samples=2, progress=False
    ),
    "network": lambda v0, m: sa.simulate_network(
        LAYER, v0, width=m, depth=2, samples=2, progress=False
    ),
}


@pytest.mark.portability
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("tokens", [96, 101])
def test_one_and_two_threads_give_the_same_bits(run, tokens):
    """A factor of V_0 by two threads would differ in the last bits, as the control shows."""
    rng = np.random.default_rng(tokens)
    x = rng.normal(size=(tokens, 3 * tokens))
    v0 = x @ x.T / (3 * tokens)
    found = []
    for count in (1, 2):
        with threads(count), threadpool_limits(count):
            found.append(RUNS[run](v0, tokens)["V"].values)
    assert np.array_equal(*found)
    assert np.isfinite(found[0]).all()


SMALL = {"samples": 2, "progress": False}
PRODUCTS = {
    "training": lambda: sa.simulate_training(
        LAYER, np.eye(3), [0, 1, 0], width=8, depth=2, steps=2, **SMALL
    ),
    "gradients": lambda: sa.gradient_norms(LAYER, np.eye(3), width=8, depth=2, **SMALL),
    "tangent kernel": lambda: sa.neural_tangent_kernel(LAYER, np.eye(3), width=8, depth=2, **SMALL),
    "lyapunov": lambda: sa.lyapunov(LAYER, np.eye(3), width=8, depth=2, **SMALL),
    "flow": lambda: sphere_flow(
        SphereAttention(beta=1.0), uniform_start(3, 3, samples=2), times=[0.5]
    ),
}


class Threads(TorchDispatchMode):
    """The numbers of threads with which torch multiplies matrices."""

    def __init__(self, fail):
        super().__init__()
        self.seen, self.fail = set(), fail

    def __torch_dispatch__(self, function, types, args=(), named=None):
        if "mm" in str(function) and args[-1].device.type == "cpu":
            self.seen.add(torch.get_num_threads())
            if self.fail:
                raise ZeroDivisionError
        return function(*args, **(named or {}))


@pytest.mark.parametrize("fail", [False, True])
@pytest.mark.parametrize("name", PRODUCTS)
def test_small_products_have_one_thread_and_the_setting_returns(name, fail):
    with threads(3):
        with Threads(fail) as watched, pytest.raises(ZeroDivisionError) if fail else nullcontext():
            PRODUCTS[name]()
        assert watched.seen == {1}
        assert torch.get_num_threads() == 3
