"""The judged abstracts of arXiv 2601.21942, 2604.01978 and 2604.26898, with negative controls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.polynomial.hermite_e import hermegauss
from sympy import Integer, KroneckerDelta, Rational

from shaped_attention.sphere import SphereAttention
from symbolic.claims import particles, random_layers
from symbolic.claims.ledger import PAPERS, select
from tests.ledger import turned

ENTRIES = {"2601.21942": 9, "2604.01978": 6, "2604.26898": 4}


def test_each_paper_has_its_entries() -> None:
    assert {source: len(select(source)) for source in ENTRIES} == ENTRIES
    assert set(ENTRIES) <= set(PAPERS)


D_ = random_layers.D
WRONG: dict[str, tuple[Any, str, Any]] = {
    "noise-prevents-one-cluster": (
        # A threshold that every d = 8 is above.
        random_layers, "SLOPE", random_layers.SLOPE - D_,
    ),
    "antipodes-of-deterministic-flows": (
        random_layers, "speed", lambda value: value**2 * (1 - random_layers.R**2),
    ),
    "antipodal-formations": (
        # Clusters that count as one token each, whatever their size.
        random_layers, "of_two_clusters",
        lambda _n, _m, right=random_layers.of_two_clusters: right(Integer(1), Integer(1)),
    ),
    "random-values-heads": (
        # One value matrix for all heads.
        random_layers, "HEAD_COVARIANCE",
        KroneckerDelta(random_layers.COLUMN, random_layers.OTHER_COLUMN),
    ),
    "deterministic-or-stochastic": (
        # Variances as of heads that share their values.
        random_layers, "POWERS", (random_layers.POWERS[0], 2 * random_layers.POWERS[0] - 1),
    ),
    "gaussian-drift-vanishes": (
        # x + eta u without the norm.
        random_layers, "normalised_step", lambda: (Integer(0), Integer(0)),
    ),
    "collapse-by-dimension-length-temperature": (
        # Tokens with the scores of one row.
        random_layers, "expected_s",
        lambda right=random_layers.expected_s: (right()[0], right()[0]),
    ),
    "clustering-mitigated": (
        # Scores of the two tokens that are exactly opposite also near the antipode.
        random_layers, "antipode",
        lambda right=random_layers.antipode: right().subs(random_layers.FLAT, 0),
    ),
    "synchronisation-by-noise": (
        random_layers, "KERNEL_SLOPE", Rational(1, 2) * random_layers.KERNEL_SLOPE,
    ),
    "dissipation-of-energy-on-average": (
        random_layers, "at_end", lambda end, right=random_layers.at_end: right(end)[::-1],
    ),
    "coercive-activations": (
        # E phi'^2 without the square.
        random_layers, "slope", lambda f, z, start=None: Integer(1),
    ),
}  # fmt: skip


FURTHER: list[tuple[str, Any, str, Any]] = [
    # Differences s_ii - s_ij, of opposite signs for the two tokens.
    (
        "clustering-mitigated", random_layers, "difference_of_scores",
        lambda token: {token: 1, 1 - token: -1},
    ),
    ("synchronisation-by-noise", random_layers, "ATTRACTION", random_layers.D),
    # No tangent for any power but the first.
    (
        "dissipation-of-energy-on-average", random_layers, "above_the_tangent",
        lambda power: random_layers.R**power - 1 + power**2 * (1 - random_layers.R),
    ),
    # True of the powers 0 and 1 only.
    (
        "dissipation-of-energy-on-average", random_layers, "above_the_tangent",
        lambda power: (
            random_layers.R**power - 1 + power * (1 - random_layers.R) + power * (power - 1)
        ),
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "module", "name", "wrong"), [(key, *wrong) for key, wrong in WRONG.items()] + FURTHER
)
def test_a_wrong_formula_changes_the_verdict(
    key: str, module: Any, name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, wrong)
    assert turned(key)


def test_the_differences_of_scores_by_simulation() -> None:
    """E a_1 a_2 = 2 beta^2 (1 - r) r for a_i = s_i1 - s_i2, with r = 1/2; s_ii - s_ij: minus it."""
    r, heads = 0.5, 40_000
    draws = np.random.default_rng(7)
    x = np.linalg.cholesky(np.array([[1.0, r], [r, 1.0]]))
    q, k = draws.standard_normal((2, heads, 16, 2))
    s = np.einsum("ia,hka,hkb,jb->hij", x, q, k, x) / 4.0
    a = s[:, :, 0] - s[:, :, 1]
    mean, error = np.mean(a[:, 0] * a[:, 1]), np.std(a[:, 0] * a[:, 1]) / np.sqrt(heads)
    claimed = float(random_layers.covariance_of_differences(0, 1).subs(
        {particles.BETA: 1, random_layers.R: r}))  # fmt: skip
    assert abs(mean - claimed) < 4 * error
    assert abs(mean + claimed) > 20 * error


def test_every_judged_entry_has_its_control() -> None:
    of_abstracts = [
        c for source in ENTRIES for c in select(source) if c.expected.name != "NOT_JUDGED"
    ]
    keys = {claim.key for claim in of_abstracts}
    assert keys - set(WRONG) == {f"random-values-{name}" for name in CONTROLLED_ELSEWHERE}
    assert set(WRONG) <= keys


CONTROLLED_ELSEWHERE = ("limit", "two-tokens", "antipode", "angle")
"""In tests/test_symbolic_claims.py."""


@pytest.mark.parametrize(("sizes", "stays"), [((1, 1), True), ((2, 2), True), ((2, 1), False)])
def test_only_equal_clusters_stay_antipodes(sizes: tuple[int, int], stays: bool) -> None:
    """The drift of the package at opposite clusters, to rounding."""
    signs = np.repeat([1.0, -1.0], sizes)
    r, beta, d = np.outer(signs, signs), 0.7, 5
    attention = SphereAttention(beta=beta)
    field = attention.gram_field(torch.tensor(r), sigma=1.0, dimension=d, centred=True).numpy()
    n, m = sizes
    lengths = [(a * np.exp(beta) - b / np.exp(beta)) / (a * np.exp(beta) + b / np.exp(beta))
               for a, b in ((n, m), (m, n))]  # fmt: skip
    expected = (d - 1) / (2 * d) * (lengths[0] - lengths[1]) ** 2
    np.testing.assert_allclose(field[0, -1], expected, atol=1e-14)
    assert (abs(expected) < 1e-14) == stays


def quadrature_exponent(d: int, beta: float, opposite: bool = False) -> float:
    """d times the exponent of u = 1 + r at the antipode from E S by quadrature in two scores."""
    x, w = hermegauss(80)
    w = w / w.sum()
    values = []
    for u in (1e-4, 2e-4):
        r = u - 1
        sigma = beta * np.sqrt(2 * (1 - r))
        a = sigma * x[:, None]
        b = sigma * (r * x[:, None] + np.sqrt(1 - r * r) * x[None, :])
        one, two = np.tanh(a / 2), np.tanh(b / 2)
        weight = w[:, None] * w[None, :]
        own = r + (1 - r) * (1 + np.sum(weight * one**2)) / 2
        other = r + (1 - r) * (1 + np.sum(weight * one * two)) / 2
        if opposite:
            other = r + (1 - r) * (1 - np.sum(weight * one**2)) / 2
        rate = ((d - 2 + r * r) * other - (d - 1) * r * own) / u
        square = 2 * (1 - r * r) * (own - r * other) / u**2
        values.append(rate - square / 2)
    return float(2 * values[0] - values[1])


@pytest.mark.parametrize(("d", "beta"), [(4, 0.5), (4, 1.75), (8, 1.0)])
def test_the_antipode_of_random_heads_by_quadrature(d: int, beta: float) -> None:
    """Negative control: for opposite scores, the mean of the product at r = -1, it is another."""
    expected = float(random_layers.antipode().subs({D_: d, **random_layers.means_at(beta)}))
    np.testing.assert_allclose(quadrature_exponent(d, beta), expected, atol=1e-3)
    assert abs(quadrature_exponent(d, beta, opposite=True) - expected) > 0.1


def test_energy_of_the_exponential_activation_decays_as_bounded() -> None:
    """kappa(r) = exp(s^2 (r - 1)) in d = 8: coercive at s^2 = 1/4, but not at 2."""
    r = np.linspace(-1, 0.999, 2000)
    for slope, holds in ((0.25, True), (2.0, False)):
        kernel = np.exp(slope * (r - 1))
        rate = ((6 + r**2) * kernel - 7 * r) / (8 * (1 - r))
        assert (rate.min() > 0) == holds
        assert rate.min() >= (5 - 7 * slope) / 8
