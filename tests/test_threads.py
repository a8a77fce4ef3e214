"""Bits do not depend on threads, of the libraries or of the caller; a child of a fork runs too."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from typing import Any

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


V0 = sa.equicorrelated(3, 0.2)
BOTH = [sa.ShapedAttention(0.5, 0.7), sa.ShapedMLP(0.4)]
CALLED: dict[str, Any] = {
    "chain": partial(sa.simulate_chain, BOTH, V0, width=40, depth=3, samples=9),
    "float32": partial(sa.simulate_chain, BOTH, V0, width=40, depth=3, samples=9, dtype="float32"),
    "sde": partial(sa.integrate_sde, BOTH, V0, horizon=0.1, step=0.05, samples=9),
    "network": partial(sa.simulate_network, BOTH, V0, width=16, depth=3, samples=9),
    "large": partial(
        sa.simulate_chain, BOTH, sa.equicorrelated(97, 0.2), width=200, depth=1, samples=2
    ),
}


def test_threads_of_the_caller_change_nothing() -> None:
    """They compile at once, and share what is compiled."""
    expected = {name: run(progress=False).V.values for name, run in CALLED.items()}
    fresh = sa.ShapedAttention(0.123, 0.7)
    with ThreadPoolExecutor(8) as pool:
        futures = {
            (name, k): pool.submit(run, progress=False)
            for name, run in CALLED.items() for k in range(2)
        }  # fmt: skip
        same = [
            pool.submit(sa.simulate_chain, fresh, V0, width=40, depth=3, samples=9, progress=False)
            for _ in range(4)
        ]
        for (name, _), future in futures.items():
            np.testing.assert_array_equal(future.result().V.values, expected[name])
        for other in same:
            np.testing.assert_array_equal(other.result().V, same[0].result().V)


FORKED = """
import os, sys
import shaped_attention as sa
run = {"width": 16, "depth": 2, "samples": 4, "progress": False}
v0 = sa.equicorrelated(3, 0.2)
layer = sa.ShapedAttention(0.5, 0.7)
def all_of_it():
    sa.simulate_chain(layer, v0, **run)
    sa.simulate_network(layer, v0, **run)
    sa.gradient_norms(layer, v0, **run)
all_of_it()
child = os.fork()
if child == 0:
    all_of_it()
    sa.simulate_chain(sa.ShapedMLP(0.3), v0, **run)
    os._exit(7)
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_process_runs_what_its_parent_ran() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED], timeout=300, check=False, capture_output=True, text=True
    )
    assert done.returncode == 7, done.stderr
