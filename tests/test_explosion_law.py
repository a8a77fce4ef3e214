"""`explosion_law`: which layers have an exact law, its numbers, and its bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import shaped_attention as sa
from shaped_attention import ShapedAttention, ShapedMLP, equicorrelated, explosion_law
from tests.example_linear import Linear
from tests.refusals import refused

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
    assert law.scalar == "V[0,0] - 2 V[0,1] + V[1,1]"
    assert law.probability() == pytest.approx(ever, rel=3e-9)
    assert law.probability(horizon=0.75) == pytest.approx(soon, rel=3e-9)
    assert law.probability(horizon=0.75, level=1000.0) == pytest.approx(level, rel=3e-9)
    c, nu = law.coefficients, 1 / (2 * gamma**2) - 1
    t = math.sqrt(nu * c.delta / (2 * c.k)) * c.u0
    assert law.probability() == pytest.approx(2 * stats.t(nu).cdf(t) - 1, rel=1e-12)
    wrong = [stats.t(nu + 1).cdf(t), stats.t(nu).cdf(t * math.sqrt(2))]
    assert all(abs((2 * p - 1) / ever - 1) > 0.01 for p in wrong)


def live(token, tokens, size=1.6):
    v = np.zeros((tokens, tokens))
    v[token, token] = size
    return v


def of_two(gamma, tau0, heads=1):
    return gamma**2 / (16 * tau0**2), gamma**4 / (4 * tau0**2 * heads)


def of_live(gamma, tau0, p, heads=1):
    q = 1 - p
    return gamma**2 * p * q * (p * q + q - p) / tau0**2, 4 * (gamma**2 * p * q / tau0) ** 2 / heads


G, TAU = 0.35, 0.8
K = G**2 * (2 - G**2)
ATTENTION = ShapedAttention(G, TAU)
CASES = {
    "two tokens": (ATTENTION, V2, of_two(G, TAU), K),
    "heads": (ShapedAttention(G, TAU, heads=4), V2, of_two(G, TAU, 4), K),
    "output projection": (
        ShapedAttention(G, TAU, heads=2, output_projection=True), V2, of_two(G, TAU, 2), 2 * G**2,
    ),
    "block of a user": (
        [ATTENTION, Linear(0.5)], V2, of_two(G, TAU), K + 0.5**2 * (2 - 0.5**2),
    ),
    "pattern": (
        sa.Pattern([ATTENTION, Linear(0.5)]), V2,
        tuple(x / 2 for x in of_two(G, TAU)), (K + 0.5**2 * (2 - 0.5**2)) / 2,
    ),
    "groups of three": (
        ATTENTION, V2[np.ix_(*[[0, 1, 1, 0, 1, 0]] * 2)], of_two(G, TAU), K,
    ),
    "one live token": (ATTENTION, live(2, 5), of_live(G, TAU, 1 / 5), K),
    "live, causal": (
        ShapedAttention(G, TAU, mask="causal", heads=2), live(2, 5), of_live(G, TAU, 1 / 3, 2), K,
    ),
    "equal tokens": ([ATTENTION, ShapedMLP(0.4)], np.ones((5, 5)), (0.0, 0.0), K + 2 * 0.4**2),
    "equal, causal": (ShapedAttention(G, 1e-3, mask="causal"), np.ones((7, 7)), (0.0, 0.0), K),
    "no attention": (ShapedMLP(0.4), equicorrelated(3, 0.2), (0.0, 0.0), 2 * 0.4**2),
}  # fmt: skip


@pytest.mark.portability
@pytest.mark.parametrize("name", CASES)
def test_coefficients_have_their_closed_forms(name):
    """alpha, delta and k as read off the block, to 1e-12; a formula of another case differs."""
    layer, v0, (alpha, delta), k = CASES[name]
    law = explosion_law(layer, v0)
    c = law.coefficients
    assert law.kind == "exact"
    assert (c.alpha, c.delta) == pytest.approx((alpha, delta), rel=1e-11, abs=0.0)
    assert c.k == pytest.approx(k, rel=1e-12)
    assert c.mu == 0.0
    assert c.u0 == pytest.approx(1.6 if alpha else v0[0][0], rel=1e-12)
    expected = pytest.approx((alpha, delta), rel=1e-6)
    others = [case[2] for case in CASES.values() if case[2] != expected]
    assert len(others) > 5
    assert not any((c.alpha, c.delta) == pytest.approx(other, rel=1e-6) for other in others)
    if alpha == 0.0:
        assert law.probability() == law.probability(0.5) == 0.0
        assert 0.0 < law.probability(0.5, 1.5 * c.u0) < law.probability(level=1.5 * c.u0) < 1.0


def test_curve_and_quantile():
    """The quantile is the inverse of the curve; at its ends it is 0 or infinite."""
    law = explosion_law(ShapedAttention(0.6, 0.5), V2)
    for level in (None, 20.0):
        times = np.array([[0.2, 0.5], [0.75, 0.0]])
        exact = [[law.probability(x, level) for x in row] for row in times]
        np.testing.assert_array_equal(law.curve(times, level), exact)
        assert law.quantile(exact[0][1], level) == pytest.approx(0.5, rel=1e-9)
    assert law.quantile(0.16) == math.inf
    assert law.quantile(0.0) == law.quantile(0.3, level=1.0) == 0.0
    assert law.probability(0.0) == 0.0
    assert law.probability(0.0, 1.0) == law.probability(level=1.6) == 1.0


CAUSAL = ShapedAttention(0.4, mask="causal")
SCHEDULE = ShapedAttention(sa.Schedule([(0.0, 0.2), (1.0, 0.5)]))


test_refusals_have_reasons = refused(
    ((CAUSAL, V2), r"u = V\[0,0\] - 2 V\[0,1\] \+ V\[1,1\] does not follow an SDE"),
    (([ATTENTION, SCHEDULE], V2), "only for parameters that do not change with depth"),
    ((sa.Normalised(ATTENTION), V2), "correlations, which cannot explode"),
    by=lambda arguments: explosion_law(*arguments),
)

LAW = explosion_law(ATTENTION, V2)
test_arguments_out_of_range = refused(
    (lambda: LAW.probability(-1.0), r"^horizon must be finite and >= 0; got -1.0"),
    (lambda: LAW.quantile(1.5), r"^p must be in \[0, 1\]; got 1.5"),
)
