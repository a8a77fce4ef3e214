"""The score form: identities, best truncations, and the spectrum at initialisation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import kstest

from shaped_attention.torch_models.scores import (
    initial_spectrum,
    leading_directions,
    score_form,
    scores,
    truncation_cost,
)
from tests.refusals import refused

RNG = np.random.default_rng(4)
W_Q, W_K = RNG.normal(size=(2, 6, 3))
B_Q, B_K = RNG.normal(size=(2, 3))
X = RNG.normal(size=(5, 4, 6))
OMEGA = score_form(W_Q, W_K, B_Q, B_K)


def test_the_form_gives_the_scores():
    """Omega against queries times keys; and without a bias, which makes a difference."""
    expected = (X @ W_Q + B_Q) @ (X @ W_K + B_K).swapaxes(1, 2)
    np.testing.assert_allclose(scores(OMEGA, X), expected, atol=1e-12)
    assert not np.allclose(scores(score_form(W_Q, W_K), X), expected)
    assert np.linalg.matrix_rank(OMEGA) == 3


def test_directions_rebuild_the_form():
    terms = leading_directions(OMEGA, 3)
    rebuilt = np.einsum("k,ki,kj->ij", terms["value"], terms["query"], terms["key"])
    np.testing.assert_allclose(rebuilt, OMEGA, atol=1e-12)
    x, y = terms["query"].values[0], terms["key"].values[0]
    assert x @ OMEGA @ y == pytest.approx(np.linalg.norm(OMEGA, 2))


def test_truncation():
    """The whole rank costs nothing, none costs all; the softmax does not see the keys' constant."""
    cost = truncation_cost(OMEGA, X, [0, 1, 2, 3])
    np.testing.assert_allclose(cost["form"][[0, 3]], [1.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(cost["scores"][[0, 3]], [1.0, 0.0], atol=1e-12)
    assert (np.diff(cost["form"]) < 0).all()
    s = np.linalg.svd(OMEGA, compute_uv=False)
    assert float(cost["form"][1]) == pytest.approx(np.linalg.norm(s[1:]) / np.linalg.norm(s))
    # A form that adds a number to each row of scores has no centred scores of its own.
    constant = np.zeros_like(OMEGA)
    constant[:, -1] = RNG.normal(size=7)
    np.testing.assert_allclose(truncation_cost(OMEGA + constant, X, [7])["scores"], 0.0, atol=1e-12)


@pytest.mark.parametrize("ratio", [0.25, 0.5, 1.0])
def test_the_spectrum_has_its_moments(ratio):
    """Mass 1, mean 1, second moment 1 + 2 ratio, by quadrature."""
    for power, moment in ((0, 1.0), (1, 1.0), (2, 1 + 2 * ratio)):
        # x = y^3 takes the singularity x^(-2/3) at ratio 1 away.
        value = quad(
            lambda y, p=power: float(initial_spectrum([y**3], ratio)[0]) * y ** (3 * p) * 3 * y**2,
            1e-6, 2.2, limit=400,
        )[0]  # fmt: skip
        assert value == pytest.approx(moment, abs=2e-3)


def test_the_spectrum_of_random_weights():
    """KS of the eigenvalues of one matrix, d = 600, against the law: below 0.02; ratio 0.6 is not.

    Eigenvalues repel: their empirical distribution is much closer to the law than independent
    samples would be (0.08 at this number).
    """
    d, keys = 600, 300
    query, key = np.random.default_rng(7).normal(size=(2, d, keys))
    values = np.linalg.svd(score_form(query, key)[:-1, :-1], compute_uv=False)[:keys] ** 2 / d**2
    grid = np.linspace(1e-4, 8.0, 20_000)

    def distance(ratio):
        cdf = np.cumsum(initial_spectrum(grid, ratio)) * (grid[1] - grid[0])
        return kstest(values, lambda x: np.interp(x, grid, cdf)).statistic

    assert distance(0.5) < 0.02
    assert distance(0.6) > 0.02


test_bad_arguments = refused(
    (lambda: score_form(W_Q, W_K[:5]), r"query and key must have .*\(6, 3\) and \(5, 3\)"),
    (lambda: score_form(W_Q, W_K, B_Q[:2]), r"query_bias must be of shape \(3,\); got"),
    (lambda: leading_directions(OMEGA, 8), "rank must be at most 7; got 8"),
    (lambda: initial_spectrum([1.0], 1.5), r"ratio must be in \(0, 1\]; got 1.5"),
)
