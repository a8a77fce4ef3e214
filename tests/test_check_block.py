"""`check_block` passes right blocks and names what is wrong with others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

import shaped_attention as sa
from figures.blocks.attentions import EIGHT
from shaped_attention.blocks.parameters import bounded
from shaped_attention.numerics.covariance import vech
from shaped_attention.statistics.block_checks import wide_layer as wide
from shaped_attention.statistics.block_checks.report import (
    UNRESOLVED,
    BlockReport,
    Check,
    Trial,
    judged,
    untested,
)
from tests.custom_blocks import LinearAttention, SigmoidAttention
from tests.example_linear import Linear
from tests.own_roots import OwnRoot
from tests.test_derived_limits import Differential

V0 = sa.equicorrelated(2, 0.2)


def failed(report):
    """Names of the checks that failed."""
    return {check.name for check in report.table if check.outcome == "fail"}


RIGHT = {
    "attention": sa.ShapedAttention(0.5),
    "masked heads": sa.ShapedAttention(0.5, heads=2, mask="causal", output_projection=True),
    "MLP": sa.ShapedMLP(0.5),
    "plain": sa.ShapedMLP(0.5, activation="gelu"),
    "normalised": sa.Normalised(sa.ShapedAttention(0.5)),
    "LayerNorm": sa.Normalised(sa.ShapedAttention(0.5), "sandwich", norm="layer"),
    "linear": Linear(0.5),
    "linear attention": LinearAttention(0.6, 0.5),
    "sigmoid attention": SigmoidAttention(0.5, 0.8),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_blocks_pass(name):
    report = sa.check_block(RIGHT[name], V0, samples=200)
    assert report.ok, str(report)
    tested = [check for check in report.table if check.outcome == "pass"]
    skipped = len(report.table) - len(tested)
    total = f"0 of {len(tested)} checks failed"
    assert str(report).endswith(f"\n{total}, {skipped} not tested" if skipped else f"\n{total}")
    assert tested


@pytest.mark.parametrize("gamma", [0.0, 1.0])
@pytest.mark.parametrize("block", [sa.ShapedAttention, sa.ShapedMLP])
def test_blocks_at_an_end_of_their_range_pass(block, gamma):
    """At gamma = 0 nothing moves; at 1 nothing is left of the tokens."""
    report = sa.check_block(block(gamma), V0, samples=200)
    assert report.ok, str(report)


def test_the_summary_counts_the_checks_that_ran():
    table = (judged("a", True, ""), judged("b", False, ""), untested("c", "no limit"))
    assert str(BlockReport(table)).endswith("\n1 of 2 checks failed, 1 not tested")
    assert str(BlockReport(table[:2])).endswith("\n1 of 2 checks failed")
    hidden = BlockReport((*table[::2], Check("d", UNRESOLVED, "")))
    assert str(hidden).endswith("\n0 of 2 checks failed, 1 unresolved, 1 not tested")
    assert not hidden.ok


class Steeper(LinearAttention):
    """With 1.4 times the scores."""

    def attend(self, p, scores, width, values):
        return super().attend(p, 1.4 * scores, width, values)


class Twice(Linear):
    """With two matrices after each other."""

    def branch(self, p, tokens, project):
        n = tokens.shape[-1]
        return project(super().branch(p, tokens, project), n) / n**0.5


def with_limit_of(block, other):
    """The block with the limit of another, which has the same fields."""
    limit = other(*(getattr(block, x) for x in block.__dataclass_fields__)).limit
    kind = type("Wrong", (type(block),), {"limit": limit})
    return dataclass(frozen=True)(kind)(*(getattr(block, x) for x in block.__dataclass_fields__))


@dataclass(frozen=True)
class WrongRoot(OwnRoot, Linear):
    def root(self, p, factor, numbers, width):
        return 1.1 * factor


@dataclass(frozen=True)
class Torch(OwnRoot, Linear):
    def root(self, p, factor, numbers, width):
        return torch.abs(factor)


DRIFT, DIFFUSION = "drift from one wide layer", "diffusion from one wide layer"
WRONG = {
    "drift": (with_limit_of(LinearAttention(0.6, 0.5), Steeper), {DRIFT, DIFFUSION}),
    "rate": (with_limit_of(Linear(0.5), Twice), {DIFFUSION}),
    "root": (WrongRoot(0.5), {"branch against chain", DRIFT, DIFFUSION}),
    "torch": (Torch(0.5), {"branch against chain"}),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_blocks_fail_where_they_are_wrong(name):
    block, expected = WRONG[name]
    report = sa.check_block(block, V0, samples=500)
    assert not report.ok
    assert failed(report) == expected, str(report)


UNEQUAL = np.array([[1.6, 0.3, 0.1], [0.3, 0.7, -0.2], [0.1, -0.2, 1.0]])
"""With equal variances the second Taylor term of softmax vanishes."""


@pytest.fixture(autouse=True)
def no_haste(monkeypatch):
    """The number of samples is given by `samples`, not by the speed of the machine."""
    monkeypatch.setattr(wide, "SECONDS", 1e9)
    monkeypatch.setattr(wide, "_ENOUGH", 0.05)


def wide_checks(block, v, seed=0, samples=100):
    """The checks of drift and diffusion from one wide layer."""
    return list(wide.wide_layer(Trial(block, v, 64, samples, seed)))


def test_a_doubled_second_taylor_term_is_seen():
    """The term is 5 % of the largest drift entry, and more than eight standard errors.

    It is gamma^2 (1 - mu) / (2 tau_0^2 m) V_aa sum_c (C V C)_cc (C V)_cb and its transpose.
    """
    block = Differential(0.6, 0.5)
    m, centre = 3, np.eye(3) - 1 / 3
    along = np.diag(centre @ UNEQUAL @ centre) @ centre @ UNEQUAL
    rate = 0.6**2 * (1.0 - block.mu) / (2.0 * 0.5**2 * m)
    second = rate * np.outer(np.diag(UNEQUAL), along)
    right = vech(sa.drift(block, UNEQUAL))[None]
    wrong = right + vech(second + second.T)[None]
    size = np.full(right.shape, np.abs(right).max())
    layer = wide.WideLayer(Trial(block, UNEQUAL, 64, 100, 0), UNEQUAL)
    values = [x[None] for x in layer.drift(size.max())]
    outcomes = [wide._compared("drift", x, *values, size).outcome for x in (right, wrong)]
    assert outcomes == ["pass", "fail"]


@pytest.mark.parametrize("block", [sa.ShapedAttention(0.5), sa.ShapedMLP(0.5)])
def test_errors_of_15_percent_in_the_drift_are_seen(block):
    """Errors of less than 10 % are seen, so that these are beyond the power that is asked for."""
    theory = vech(sa.drift(block, V0))[None]
    size = np.full(theory.shape, theory.max())
    values = [x[None] for x in wide.WideLayer(Trial(block, V0, 64, 100, 0), V0).drift(size.max())]
    outcomes = [
        wide._compared("drift", factor * theory, *values, size).outcome
        for factor in (0.85, 1.0, 1.15)
    ]
    assert outcomes == ["fail", "pass", "fail"]


def test_errors_of_slopes_are_no_diffusion():
    """Most of a gate's noise is not linear in the numbers drawn, so the fitted slopes are noisy.

    The diffusion agrees within 9 %; squaring the noisy slopes alone would make it 11 % too large.
    """
    block, v = EIGHT["gated"](0.6, 0.7), 1.5 * V0
    found, _, _ = wide.WideLayer(Trial(block, v, 64, 100, 0), v).diffusion()
    np.testing.assert_allclose(np.diag(found), np.diag(sa.diffusion(block, v)), rtol=0.09)


@dataclass(frozen=True)
class Noisy(sa.Block):
    """A small drift and two matrices after each other, without a closed form for the last."""

    gamma: float = bounded(0.0, 1.0)
    tau0: float = bounded(above=0.0, default=1.0)

    def branch(self, p, tokens, project):
        n = tokens.shape[-1]
        values = LinearAttention.branch(LinearAttention(0.5), p, tokens, project)
        return project(values, n) / n**0.5

    def forward(self, p, tokens, project):
        return super().forward(p, tokens, project)


def test_what_noise_hides_is_not_ok():
    drift, diffusion = wide_checks(Noisy(0.5, 4.0), V0, samples=20)
    assert drift.outcome == UNRESOLVED
    assert "not tested: errors below" in drift.detail
    assert diffusion.outcome == "pass"
    assert not BlockReport((drift, diffusion)).ok


def test_sampling_stops_in_time(monkeypatch):
    """Without the end, 100,000 samples would follow."""
    block, calls, averaged = sa.ShapedAttention(0.5), [], wide.WideLayer.averaged

    def counted(layer, *arguments):
        calls.append(arguments)
        return averaged(layer, *arguments)

    monkeypatch.setattr(wide, "SECONDS", 0.0)
    monkeypatch.setattr(wide.WideLayer, "averaged", counted)
    drift, _ = wide_checks(block, V0, samples=100)
    assert len(calls) == 2 * (2 + 1)
    assert drift.outcome == UNRESOLVED, drift


def test_what_cannot_be_checked_is_refused():
    with pytest.raises(ValueError, match=r"^block must be a block; got"):
        sa.check_block([sa.ShapedMLP(0.5)], V0)
    with pytest.raises(ValueError, match=r"^v0 must be positive semidefinite"):
        sa.check_block(sa.ShapedMLP(0.5), np.diag([1.0, -1.0]))
    with pytest.raises(ValueError, match=r"^samples must be an integer >= 100; got 10"):
        sa.check_block(sa.ShapedMLP(0.5), V0, samples=10)
