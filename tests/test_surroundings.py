"""What a program does around a run: it forks, and has threads of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

import shaped_attention as sa

V0 = sa.equicorrelated(3, 0.2)
LAYER = [sa.ShapedAttention(0.5, 0.7), sa.ShapedMLP(0.4)]
RUNS: dict[str, Any] = {
    "chain": partial(sa.simulate_chain, LAYER, V0, width=40, depth=3, samples=9),
    "float32": partial(sa.simulate_chain, LAYER, V0, width=40, depth=3, samples=9, dtype="float32"),
    "sde": partial(sa.integrate_sde, LAYER, V0, horizon=0.1, step=0.05, samples=9),
    "network": partial(sa.simulate_network, LAYER, V0, width=16, depth=3, samples=9),
    "large": partial(
        sa.simulate_chain, LAYER, sa.equicorrelated(97, 0.2), width=200, depth=1, samples=2
    ),
}


def test_threads_of_the_caller_change_nothing() -> None:
    """They compile at once, and share what is compiled."""
    expected = {name: run(progress=False).V.values for name, run in RUNS.items()}
    fresh = sa.ShapedAttention(0.123, 0.7)
    with ThreadPoolExecutor(8) as pool:
        futures = {
            (name, k): pool.submit(run, progress=False)
            for name, run in RUNS.items() for k in range(2)
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
