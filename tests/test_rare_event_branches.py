"""Paths that branch off others: their random numbers, and which of them move."""

from __future__ import annotations

import numpy as np
import pytest

import shaped_attention as sa
from shaped_attention.samplers.loop import starting_paths
from shaped_attention.samplers.paths import Paths
from tests.test_rare_events import CHAIN, DEPTH, PAIR, PAIR_V0, grid


def tilted(spec, stepper, count, starts, first):
    """Return V at the end of paths with the numbers first, ... that begin at given steps.

    Each begins with the factor that the sampler's path of its number has there.
    """
    paths = starting_paths(spec, stepper, 0, count)
    factors = np.array(paths.factors())
    for _ in range(DEPTH):
        late = paths.taken[:count] == starts
        factors[late] = paths.factors()[late]
        paths.step()
    branches = Paths(stepper, first, factors, grid=starts)
    while len(branches.step()):
        pass
    return branches.covariances()


@pytest.mark.parametrize("eager", [False, True])
def test_a_path_that_begins_late_has_the_increments_of_its_number_from_there(eager):
    """With its own number it is the sampler's path, bit for bit; with another number it is not."""
    count = 70
    starts = np.random.default_rng(0).integers(0, DEPTH, count)
    with sa.eager() if eager else np.errstate():
        v = sa.simulate_chain(PAIR, PAIR_V0, **CHAIN, samples=count, seed=5)["V"].to_numpy()[-1]
    assert np.array_equal(tilted(*grid(eager), count, starts, 0), v)
    moved = tilted(*grid(eager), count, starts, count)
    assert (moved != v).any(axis=(1, 2)).all()


def test_paths_that_wait_or_have_ended_do_not_move():
    """Only those that `step` reports move, and each of their steps is counted."""
    starts = np.array([3, 0, 3, 7])
    spec, stepper = grid()
    paths = Paths(stepper, 0, starting_paths(spec, stepper, 0, 4).factors(), grid=starts)
    before = paths.covariances().copy()
    assert paths.step().tolist() == [1]
    moved = (paths.covariances() != before).any(axis=(1, 2))
    assert moved.tolist() == [False, True, False, False]
    paths.end(np.array([1]))
    assert paths.step().tolist() == [0, 2]
    assert paths.taken[:4].tolist() == [4, 1, 4, 7]
