"""`check_block` passes right blocks and names what is wrong with others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention.blocks.parameters import bounded
from shaped_attention.statistics.block_checks.report import BlockReport, judged, untested
from tests.custom_blocks import (
    Doubled,
    Hotter,
    LinearAttention,
    LinearAttentionLimit,
    SigmoidAttention,
    Unchecked,
)
from tests.example_biased import BiasedAttention
from tests.example_gelu import GeluMLP
from tests.example_linear import Linear, LinearLimit

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
    assert len(tested) >= 5


def test_the_summary_counts_the_checks_that_ran():
    table = (judged("a", True, ""), judged("b", False, ""), untested("c", "no limit"))
    assert str(BlockReport(table)).endswith("\n1 of 2 checks failed, 1 not tested")
    assert str(BlockReport(table[:2])).endswith("\n1 of 2 checks failed")


class TwiceTheDrift(LinearAttentionLimit):
    def factor_drift(self, p, factor):
        return 2.0 * super().factor_drift(p, factor) + 0.1 * factor


class MoreNoise(LinearLimit):
    def linear_rate(self, p):
        return 2.0 * p.gamma**2


class NoSpeed(LinearAttentionLimit):
    def speed(self, p, factor):
        return None


class SlowSpeed(LinearAttentionLimit):
    def speed(self, p, factor):
        return 0.01 * super().speed(p, factor)


class WrongMoments(LinearAttentionLimit):
    def noise_drift(self, p, factor):
        return 0.5 * super().noise_drift(p, factor)

    def noise_along(self, p, factor, direction):
        return 2.0 * super().noise_along(p, factor, direction)


def limited(base, wrong):
    """The class of a block with this limit."""
    return dataclass(frozen=True)(type(wrong.__name__, (base,), {"limit": wrong()}))


@dataclass(frozen=True)
class WrongRoot(Linear):
    limit = LinearLimit()

    def root(self, p, factor, numbers, width):
        return 1.1 * factor


@dataclass(frozen=True)
class FromSelf(Linear):
    limit = LinearLimit()
    strength: float = bounded(0.0, 2.0, default=1.0)

    def branch(self, p, tokens, project):
        return self.strength * super().branch(p, tokens, project)

    def root(self, p, factor, numbers, width):
        return self.strength * factor


@dataclass(frozen=True)
class Centred(Linear):
    """Subtracts the means of the tokens, and does not say so."""

    limit = LinearLimit()

    def branch(self, p, tokens, project):
        return super().branch(p, tokens - tokens.mean(-1, keepdim=True), project)

    def root(self, p, factor, numbers, width):
        return factor


@dataclass(frozen=True)
class Torch(Linear):
    limit = LinearLimit()

    def root(self, p, factor, numbers, width):
        return torch.abs(factor)


@dataclass(frozen=True)
class Mixed(Linear):
    """Divides by the number of samples."""

    limit = LinearLimit()

    def branch(self, p, tokens, project):
        return super().branch(p, tokens, project) * (1.0 + 1e-5 * (tokens.shape[0] - 1))


WRONG = {
    "mixed": (Mixed(0.5), {"single samples"}),
    "temperature": (Hotter(0.35), {"overridden methods and limit"}),
    "mix": (Doubled(0.35), {"overridden methods and limit"}),
    "ranges": (Unchecked(0.5), {"ranges of parameters"}),
    "drift": (limited(LinearAttention, TwiceTheDrift)(0.6, 0.5), {"drift from one wide layer"}),
    "rate": (limited(Linear, MoreNoise)(0.5), {"diffusion from one wide layer"}),
    "no speed": (limited(LinearAttention, NoSpeed)(0.6), {"superlinear terms against speed"}),
    "slow": (limited(LinearAttention, SlowSpeed)(0.6), {"superlinear terms against speed"}),
    "moments": (limited(LinearAttention, WrongMoments)(0.6), {"noise_drift", "noise_along"}),
    "root": (
        WrongRoot(0.5),
        {"branch against chain", "drift from one wide layer", "diffusion from one wide layer"},
    ),
    "derivative": (FromSelf(0.5), {"derivatives of the chain"}),
    "means": (Centred(0.5), {"means of the tokens"}),
    "tracing": (Torch(0.5), {"tracing of the chain", "branch against chain"}),
}


BY_SAMPLES = ("drift", "rate", "root", "means")
"""What is wrong with these is seen in moments or laws: of twice the drift, the error is 11 standard
errors with 500 samples. With 100, the others are seen just as well."""


@pytest.mark.parametrize("name", WRONG)
def test_wrong_blocks_fail_where_they_are_wrong(name):
    block, expected = WRONG[name]
    report = sa.check_block(block, V0, samples=500 if name in BY_SAMPLES else 100)
    assert not report.ok
    assert expected <= failed(report), str(report)
    allowed = {
        "tracing": {"drift from one wide layer and diffusion from one wide layer",
                    "derivatives of the chain"},
        "mixed": {"drift from one wide layer"},
    }  # fmt: skip
    assert failed(report) <= expected | allowed.get(name, set()), str(report)


def test_custom_blocks_of_the_documentation_pass():
    assert sa.check_block(GeluMLP(0.5), V0, samples=100).table
    bias = BiasedAttention(0.5, 1.0, [[0.0, -1.0], [0.5, 0.0]])
    assert failed(sa.check_block(bias, V0, samples=100)) <= {"ranges of parameters"}


def test_what_cannot_be_checked_is_refused():
    with pytest.raises(ValueError, match=r"^block must be a block; got"):
        sa.check_block([sa.ShapedMLP(0.5)], V0)
    with pytest.raises(ValueError, match=r"^v0 must be positive semidefinite"):
        sa.check_block(sa.ShapedMLP(0.5), np.diag([1.0, -1.0]))
    with pytest.raises(ValueError, match=r"^samples must be an integer >= 100; got 10"):
        sa.check_block(sa.ShapedMLP(0.5), V0, samples=10)
