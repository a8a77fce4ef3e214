"""Layers and a sweep that the tests of sweeps share."""

from __future__ import annotations

import shaped_attention as sa
from shaped_attention.sweep import Sweep

FIXED = {"tokens": 2, "width": 20, "depth": 10, "step": 0.05}


def small(**changes):
    """Chain and SDE at two strengths: three units of 8, 8 and 4 samples of each."""
    own = {"fixed": FIXED, "axes": {"gamma": [0.3, 0.5]}, "samples": 20, "block": 8}
    return Sweep(**(own | changes))


def scores(strength, bias=0.0):
    """Attention by parameters of its own."""
    return sa.ShapedAttention(strength, query_bias=bias, key_bias=bias)


def ignoring(strength, ignored):
    """A layer that does not depend on one of its parameters."""
    return sa.ShapedAttention(strength)


def short(h):
    """A layer by a parameter whose name begins that of another entry."""
    return sa.ShapedAttention(h)


def no_limit(strength):
    """A block without an SDE."""
    return sa.ShapedAttention(strength, centring=False)


def clashing(block):
    """Attention by a parameter that has the name of a dimension of the store."""
    return sa.ShapedAttention(block)


def no_layer():
    """Something else than blocks."""
    return 3


class Clock:
    """Clock that advances by a second per reading, in place of the module `time`."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        self.now += 1.0
        return self.now

    perf_counter = monotonic


SIZE = {"samples": 300, "block": 128, "fractions": (0.5, 1.0), "fixed": FIXED | {"radius": 1.6}}
"""Size of the sweeps that keep the same samples in three ways."""
