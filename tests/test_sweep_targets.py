"""When a cell of a sweep has enough samples: targets, in rounds, and their intervals."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shaped_attention.sweep import (
    Target,
)
from shaped_attention.sweep.work_order import Schedule, half_width
from tests.sweep_examples import small


def fed(means, order=None, seed=0, half=0.25, samples=64):
    """Run a Schedule on made-up moments of N(mean, 1), blocks of 4, in some order; it, and x.

    They are those of the last of two times; at the first all numbers are 0, and known exactly.
    """
    sweep = small(
        fractions=(0.5, 1.0),
        axes={"gamma": list(np.linspace(0.1, 0.3, len(means)))}, samplers=("sde",), block=4,
        samples=samples, target=Target("rho[0,1]", half, first=2), names=("rho[0,1]",),
    )  # fmt: skip
    x = np.random.default_rng(seed).standard_normal((len(means), samples)) + np.c_[means]

    def moments(unit):
        own = x[unit.cell, 4 * unit.block : 4 * unit.block + 4]
        last = [[own.sum(), ((own - own.mean()) ** 2).sum()], [0.0, 0.0]]
        return np.array([np.zeros((2, 2)), last])

    schedule, waiting, given = Schedule(sweep, {}, moments), [], []
    while waiting := waiting + list(schedule.next_units()):
        given.append(waiting.pop(0 if order is None else order.integers(len(waiting))))
        schedule.finish(given[-1])
    assert schedule.left == schedule.seconds_left() == 0
    assert schedule.total == len(given) == len(set(given))
    return schedule, x, [sum(unit.cell == c for unit in given) for c in range(len(means))]


def interval(x, count):
    return half_width(count, x[:count].mean(), x[:count].var(ddof=1), 0.95, False)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.1, 1.0), st.integers(8, 130))
def test_a_target_is_reached_in_rounds_whatever_the_order(seed, half, samples):
    """2, 4, 8, ... blocks until the half width is small enough, and no earlier than that."""
    schedule, x, blocks = fed([0.0, 1.0, -2.0], None, seed, half, samples)
    shuffled = fed([0.0, 1.0, -2.0], np.random.default_rng(seed + 1), seed, half, samples)
    assert (shuffled[0].reasons, shuffled[2]) == (schedule.reasons, blocks)
    most = -(-samples // 4)
    for cell, count in enumerate(blocks):
        reached = interval(x[cell], min(4 * count, samples)) <= half
        assert schedule.reasons[(cell, 0)] == ("target" if reached else "samples")
        assert reached or count == most
        looks = [n for n in (2, 4, 8, 16, 32) if n < count]
        assert count in (2, 4, 8, 16, 32, most)
        assert all(interval(x[cell], 4 * n) > half for n in looks)


def test_intervals_of_a_target_cover_the_mean():
    """In 200 seeds at a level of 0.95 - 4 se at least; half as wide ones do not."""
    near = []
    for seed in range(200):
        _, x, (count,) = fed([0.3], None, seed, 0.2, 512)
        half = interval(x[0], 4 * count)
        near.append(abs(x[0, : 4 * count].mean() - 0.3) / half)
    least = 0.95 - 4 * np.sqrt(0.95 * 0.05 / 200)
    assert np.mean(np.array(near) <= 1.0) >= least
    assert np.mean(np.array(near) <= 0.5) < least
