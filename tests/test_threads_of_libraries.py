"""Bits of runs of many tokens do not depend on the threads of the libraries."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

import shaped_attention as sa
from shaped_attention.numerics.threads import one_thread

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


def with_threads(threads, call):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with threadpool_limits(threads):
            return call()
    finally:
        torch.set_num_threads(before)


@pytest.mark.portability
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("tokens", [96, 101])
def test_one_and_two_threads_give_the_same_bits(run, tokens):
    """A factor of V_0 by two threads would differ in the last bits, as the control shows."""
    rng = np.random.default_rng(tokens)
    x = rng.normal(size=(tokens, 3 * tokens))
    v0 = x @ x.T / (3 * tokens)
    one, two = (with_threads(threads, lambda: RUNS[run](v0, tokens)) for threads in (1, 2))
    assert np.array_equal(one["V"].values, two["V"].values)
    assert np.isfinite(one["V"].values).all()


def test_the_restriction_ends_with_the_last_worker():
    """One that began first ends first; afterwards the libraries have the threads of before."""
    first, second, both = threading.Event(), threading.Event(), threading.Event()

    def threads():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    def begin():
        with one_thread():
            first.set()
            second.wait(10)

    def end():
        first.wait(10)
        with one_thread():
            second.set()
            both.wait(10)

    with threadpool_limits(2):
        before = threads()
        workers = [threading.Thread(target=work, daemon=True) for work in (begin, end)]
        for worker in workers:
            worker.start()
        workers[0].join()
        assert set(threads()) == {1}
        both.set()
        workers[1].join()
        assert threads() == before
    assert max(before) > 1


def test_rerun_gives_the_same_bits_with_other_threads():
    x = np.random.default_rng(1).normal(size=(100, 300))
    v0 = x @ x.T / 300
    result = with_threads(1, lambda: RUNS["chain"](v0, 100))
    assert with_threads(2, lambda: sa.rerun(result)).identical(result)
