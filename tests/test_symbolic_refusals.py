"""Recursions without a limit, and what the engine refuses."""

from __future__ import annotations

import pytest
from sympy import Matrix, Rational, Symbol, expand

import symbolic as sy
from symbolic.algebra import Algebra
from symbolic.names import GAMMA
from tests.refusals import refused
from tests.test_symbolic_limit import LinearAttention


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
    (
        lambda: sy.derive(sy.ShapedAttention(), 2, at=Matrix([[1, 2], [3, 1]])),
        "at must be a symmetric 2 x 2 matrix of rational numbers; got",
    ),
    (lambda: sy.ShapedAttention(gamma=0.5), "gamma must be a symbol or an exact rational.*; got"),
    (
        lambda: sy.derive(sy.ShapedAttention(mask="upper"), 2),
        "mask must be None, 'causal' or.*; got 'upper'",
    ),
    (
        lambda: sy.drift_correction(sy.ShapedMLP(), 2),
        "the MLP is expanded to order 1/n only; got order=2",
    ),
    (
        lambda: sy.drift_correction(sy.ShapedAttention(temperature_power="2/3"), 2),
        "no correction of order 1/n",
    ),
    (lambda: Algebra(1)[Symbol("x")], "x is not a polynomial in the generators"),
)
