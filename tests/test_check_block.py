"""`check_block` passes right blocks and names what is wrong with others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import shaped_attention as sa
from shaped_attention.blocks.parameters import bounded
from shaped_attention.numerics.covariance import vech
from shaped_attention.statistics.block_checks import wide_layer as wide
from shaped_attention.statistics.block_checks.report import (
    UNRESOLVED,
    BlockReport,
    Trial,
)
from tests.custom_blocks import LinearAttention, SigmoidAttention
from tests.example_linear import Linear
from tests.own_roots import OwnRoot

V0 = sa.equicorrelated(2, 0.2)


def failed(report):
    """Names of the checks that failed."""
    return {check.name for check in report.table if check.outcome == "fail"}


RIGHT = {
    "attention": sa.ShapedAttention(0.5),
    "MLP": sa.ShapedMLP(0.5),
    "still": sa.ShapedMLP(0.0),
    "no skip": sa.ShapedAttention(1.0),
    "plain": sa.ShapedMLP(0.5, activation="gelu"),
    "LayerNorm": sa.Normalised(sa.ShapedAttention(0.5), "sandwich", norm="layer"),
    "linear": Linear(0.5),
    "sigmoid attention": SigmoidAttention(0.5, 0.8),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_blocks_pass(name):
    report = sa.check_block(RIGHT[name], V0, samples=200)
    assert report.ok, str(report)
    assert any(check.outcome == "pass" for check in report.table)


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


DRIFT, DIFFUSION = "drift from one wide layer", "diffusion from one wide layer"
WRONG = {
    "drift": (with_limit_of(LinearAttention(0.6, 0.5), Steeper), {DRIFT, DIFFUSION}),
    "rate": (with_limit_of(Linear(0.5), Twice), {DIFFUSION}),
    "root": (WrongRoot(0.5), {"branch against chain", DRIFT, DIFFUSION}),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_blocks_fail_where_they_are_wrong(name):
    block, expected = WRONG[name]
    report = sa.check_block(block, V0, samples=500)
    assert not report.ok
    assert failed(report) == expected, str(report)


@pytest.fixture(autouse=True)
def no_haste(monkeypatch):
    """The number of samples is given by `samples`, not by the speed of the machine."""
    monkeypatch.setattr(wide, "SECONDS", 1e9)
    monkeypatch.setattr(wide, "_ENOUGH", 0.05)


def wide_checks(block, v, seed=0, samples=100):
    """The checks of drift and diffusion from one wide layer."""
    return list(wide.wide_layer(Trial(block, v, 64, samples, seed)))


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


def test_what_cannot_be_checked_is_refused():
    with pytest.raises(ValueError, match=r"^block must be a block; got"):
        sa.check_block([sa.ShapedMLP(0.5)], V0)
