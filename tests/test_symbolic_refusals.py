"""Recursions without a limit, and what the engine refuses."""

from __future__ import annotations

from typing import Any

import pytest
from sympy import Matrix, Rational, Symbol, expand

import symbolic as sy
from symbolic.activations import SmoothMLP
from symbolic.algebra import Algebra
from symbolic.names import GAMMA
from tests.refusals import refused
from tests.test_symbolic_limit import LinearAttention


class Careless(sy.Block):
    """Mistakes that are likely in a first block."""

    def __init__(self, mistake: str) -> None:
        self.mistake = mistake

    def recursion(self, algebra: Algebra, order: int = 1) -> Any:
        series = sy.skip_only(algebra, algebra[1], order)
        mistakes = {
            "field": lambda: algebra.field(LinearAttention.scores),
            "factor": lambda: series * GAMMA,
            "matrix": lambda: sy.Recursion(series, algebra.v),
            "sum": lambda: series + 1,  # type: ignore[operator]
        }
        return mistakes[self.mistake]()


class ShortSeries(LinearAttention):
    """A block that forgets the order it is asked for."""

    def recursion(self, algebra: Algebra, order: int = 1) -> sy.Recursion:
        return super().recursion(algebra, 1)


class RandomSkip(LinearAttention):
    """Two heads and a skip that depends on their scores: not covered."""

    def recursion(self, algebra: Algebra, order: int = 1) -> sy.Recursion:
        whole = super().recursion(algebra, order)
        return sy.Recursion(whole.branch, whole.skip, heads=2)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (sy.ShapedAttention(identity=False), r"order n\^0: entry \(0, 0\) is -V\[0,0\]\*gamma"),
        (sy.ShapedAttention(centring=False), r"mean of V' - V has a term of order n\^0"),
        (sy.ShapedAttention(temperature_power=0), r"Y / tau = G / tau_0 are of order n\^0"),
        (sy.ShapedAttention(temperature_power="1/4"), r"a term of order n\^\(-1/2\)"),
        (sy.ShapedMLP(normalised=False), r"a term of order n\^\(-1/2\)"),
        (LinearAttention(identity=False), r"order n\^0"),
        (LinearAttention(unit_skip=True), r"order n\^0: entry \(0, 0\) is V\[0,0\]\*gamma\*\*2"),
    ],
)
def test_a_recursion_without_a_limit(block: sy.Block, message: str) -> None:
    with pytest.raises(sy.NoLimitError, match=message):
        sy.derive(block, 2)


def test_no_correction_between_the_orders() -> None:
    """tau = tau_0 sqrt(n_k) n^(2/3): the next order of the mean is n^(-4/3), not n^-2."""
    block = sy.ShapedAttention(temperature_power="2/3")
    with pytest.raises(sy.NoLimitError, match="no correction of order 1/n"):
        sy.drift_correction(block, 2)


def test_noise_that_is_too_large() -> None:
    """A mean of order 1/n but a covariance of order n^(-1/2): no limit either."""

    class Noisy(LinearAttention):
        def recursion(self, algebra: Algebra, order: int = 1) -> sy.Recursion:
            noise = algebra.field(self.scores)
            noise = noise + noise.transpose()
            gain = algebra[GAMMA] ** 2
            branch = sy.Series({0: algebra.v, Rational(1, 4): noise}, order) * gain
            return sy.Recursion(sy.skip_only(algebra, 1 - gain, order), branch)

    with pytest.raises(sy.NoLimitError, match=r"covariance of V' has a term of order n\^\(-1/2\)"):
        sy.derive(Noisy(), 2)


def test_the_normalisation_is_not_needed_when_the_slopes_cancel() -> None:
    """c_+ = -c_-: the mean of order 1/sqrt n of the unnormalised MLP is gamma^2 (c_+ + c_-) V."""
    block = sy.ShapedMLP(c_plus=1, c_minus=-1, normalised=False)
    v = sy.derive(block, 2).algebra.v_expressions
    assert expand(sy.derive(block, 2).drift[0, 0] - GAMMA**2 * v[0, 0]) == 0


test_arguments = refused(
    (lambda: sy.derive(sy.ShapedAttention(), 0), "tokens must be an integer >= 1; got 0"),
    (lambda: sy.derive([], 2), r"layer must be a symbolic block or a sequence.*; got \[\]"),
    (
        lambda: sy.derive(sy.ShapedAttention(), 2, at=Matrix([[1, 2], [3, 1]])),
        "at must be a symmetric 2 x 2 matrix of rational numbers; got",
    ),
    (lambda: sy.prove(sy.ShapedAttention(), 6), "tokens must be at most .*; got 6"),
    (lambda: sy.drift_correction([sy.ShapedMLP()], 2), "block must be one symbolic block"),  # type: ignore[arg-type]
)

test_blocks = refused(
    (lambda: sy.ShapedAttention(heads=0), "heads must be an integer >= 1; got 0"),
    (
        lambda: sy.ShapedAttention(gamma=0.5),
        "gamma must be a symbol or an exact rational.*; got 0.5",
    ),
    (
        lambda: sy.ShapedAttention(gamma=2),
        r"gamma must be a symbol or a rational number in \[0, 1\]; got 2",
    ),
    (
        lambda: sy.ShapedAttention(tau0=0),
        "tau0 must be a symbol or an exact rational number > 0.*; got 0",
    ),
    (
        lambda: sy.derive(sy.ShapedAttention(mask="upper"), 2),
        "mask must be None, 'causal' or.*; got 'upper'",
    ),
    (
        lambda: sy.ShapedAttention(centre=[[1, 0], [Rational(1, 3), Rational(1, 3)]]),
        "sum to 1; row 1 of 2 entries sums to 2/3",
    ),
    (
        lambda: sy.ShapedAttention(mask="causal", centre=[[1, 0], [0, 1]]),
        "mask must be None with a centre",
    ),
    (
        lambda: sy.derive(sy.ShapedAttention(centre=[[1, 0], [0, 1]]), 3),
        r"centre must have shape \(3, 3\); got \(2, 2\)",
    ),
    (
        lambda: sy.drift_correction(sy.ShapedMLP(), 2),
        "the MLP is expanded to order 1/n only; got order=2",
    ),
    (
        lambda: sy.drift_correction(SmoothMLP(), 1),
        "the MLP is expanded to order 1/n only; got order=2",
    ),
)

test_recursions_with_a_mistake = refused(
    (lambda: sy.derive(Careless("field"), 2), "field 'G' is unknown; .* in its `fields`"),
    (lambda: sy.derive(Careless("factor"), 2), r"algebra\[...\] makes one"),
    (lambda: sy.derive(Careless("matrix"), 2), "branch must be a Series, .* it is a DomainMatrix"),
    (lambda: sy.derive(Careless("sum"), 2), "cannot be added to a series"),
    (lambda: sy.drift_correction(ShortSeries(), 2), "its skip is cut after the power 1"),
    (lambda: sy.derive(RandomSkip(), 2), "heads=2: the skip depends on a field"),
    (lambda: sy.Series({-1: Algebra(1).v}, 1), "power must be a power >= 0 of 1/n; got -1"),
    (lambda: Algebra(1)[Symbol("x")], "x is not a polynomial in the generators"),
)
