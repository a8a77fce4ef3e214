"""A block that raises or overflows during a run leaves no changed settings, threads or files."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention.blocks.limit import Limit
from shaped_attention.rows.step import State
from tests.test_bad_input import LAYER, NAN, SAMPLERS


@dataclass(frozen=True)
class Failing(sa.ShapedAttention):
    """A block that raises in any sampler, or whose numbers overflow."""

    overflow: bool = False

    def _fail(self, value):
        if not self.overflow:
            raise ArithmeticError("broken block")
        return value * NAN

    def forward(self, p, tokens, project):
        return self._fail(super().forward(p, tokens, project))

    def step(self, p, state, numbers, width):
        new = super().step(p, state, numbers, width)
        return State(tuple(self._fail(factor) for factor in new.factors))

    @property
    def limit(self):
        return BrokenLimit(self)


class BrokenLimit(Limit):
    def __init__(self, block):
        self.block = block

    def linear_rate(self, p):
        return p.gamma**2

    def factor_noise(self, p, factor, numbers):
        return self.block._fail(factor)

    def noise_drift(self, p, factor):
        return 0.0 * factor


def global_state():
    return {
        "threads": {thread.ident for thread in threading.enumerate()},
        "torch": (torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled()),
        "numpy": (np.geterr(), np.get_printoptions()),
        "random": (torch.get_rng_state().tolist(), np.random.get_state()[1].tolist()),  # noqa: NPY002
    }


@SAMPLERS
@pytest.mark.parametrize(
    ("overflow", "error", "message"),
    [
        (False, ArithmeticError, "broken block"),
        (True, FloatingPointError, "is not a number on|that are not finite|that is not finite"),
    ],
)
def test_a_sampler_that_fails_leaves_nothing_behind(
    sampler, overflow, error, message, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    usual = sampler(samples=200)
    before = global_state()
    with pytest.raises(error, match=message):
        sampler([*LAYER, Failing(0.5, overflow=overflow)], samples=200)
    with pytest.raises(ValueError, match="samples must be an integer >= 1; got 0"):
        sampler(samples=0)
    assert global_state() == before
    assert list(tmp_path.iterdir()) == []
    assert sampler(samples=200).identical(usual)
