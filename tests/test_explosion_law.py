"""`explosion_law`: which layers have an exact law, its numbers, its gradient, and its bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import shaped_attention as sa
from shaped_attention import ShapedAttention, ShapedMLP, equicorrelated, explosion_law
from tests.example_linear import Linear

V2 = equicorrelated(2, 0.2)
TABLE = [
    (0.6, 0.5, 0.1558318981, 0.0307438349, 0.0357069278),
    (0.35, 0.5, 0.3539783978, 0.00338012202, 0.00338153610),
    (0.35, 1.0, 0.1842519609, 2.64735091e-5, 2.65542042e-5),
]


@pytest.mark.parametrize(("gamma", "tau0", "ever", "soon", "level"), TABLE)
def test_numbers_of_two_tokens(gamma, tau0, ever, soon, level):
    """Three probabilities to eight digits, and the first by Student's distribution too."""
    law = explosion_law(ShapedAttention(gamma, tau0), V2)
    assert law.kind == "exact"
    assert law.scalar == "V_11 - 2 V_12 + V_22"
    assert law.probability() == pytest.approx(ever, rel=3e-9)
    assert law.probability(horizon=0.75) == pytest.approx(soon, rel=3e-9)
    assert law.probability(horizon=0.75, level=1000.0) == pytest.approx(level, rel=3e-9)
    c, nu = law.coefficients, 1 / (2 * gamma**2) - 1
    t = math.sqrt(nu * c.delta / (2 * c.k)) * c.u0
    assert law.probability() == pytest.approx(2 * stats.t(nu).cdf(t) - 1, rel=1e-12)


def test_reading_coefficients_of_wrong_exponents_is_rejected():
    """The table has the power to reject a instead of a - 1/2, and k without its factor 2."""
    c = explosion_law(ShapedAttention(0.6, 0.5), V2).coefficients
    ever = TABLE[0][2]
    wrong = [stats.beta(0.5, c.a).cdf(c.share(c.u0)), stats.beta(0.5, c.a - 0.5).cdf(0.7)]
    assert all(abs(p / ever - 1) > 0.05 for p in wrong)
