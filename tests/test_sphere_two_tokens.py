"""Two tokens under random value matrices: which end of their cosine attracts, and how often."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import binomtest

from shaped_attention.sphere import SphereAttention, equiangular_start, noisy_chain
from shaped_attention.sphere.theory import two_tokens
from tests.refusals import refused

CASES = [
    (SphereAttention(-0.7), 3, 1.5, True), (SphereAttention(2.0, normalised=False), 9, 1.0, True),
    (SphereAttention(1.5, repulsion=True), 12, 2.0, False),
]  # fmt: skip


@pytest.mark.parametrize(("attention", "dimension", "sigma", "centred"), CASES)
def test_the_probability_is_harmonic_for_the_gram_matrix(attention, dimension, sigma, centred):
    """b h' + a h''/2 = 0 for P(antipode) h, with b and a of V_12; with 2 b it is not.

    Up to the errors of differences on a grid of 1/2000.
    """
    r = np.linspace(-0.9, 0.9, 3601)
    h = two_tokens(attention, dimension, sigma, r, centred=centred)["antipode"].values
    gram = torch.ones(len(r), 2, 2, dtype=torch.float64)
    gram[:, 0, 1] = gram[:, 1, 0] = torch.from_numpy(r)
    b = attention.gram_field(gram, sigma, dimension, centred)[1:-1, 0, 1].numpy()
    a = attention.gram_bracket(gram, sigma, dimension)[1:-1, 0, 1, 0, 1].numpy()
    width = r[1] - r[0]
    first, second = np.gradient(h, width)[1:-1], np.diff(h, 2) / width**2
    assert (first < 0.0).all()
    scale = np.abs(b * first).max()
    assert np.abs(b * first + 0.5 * a * second).max() < 1e-3 * scale
    assert np.abs(2.0 * b * first + 0.5 * a * second).max() > 0.5 * scale


def test_in_two_dimensions_the_angle_decides():
    """P(antipode) = angle / pi for every beta and both weights, to 1e-10: a martingale."""
    angles = np.linspace(3.0, 0.1, 9)
    for beta, normalised in product((-3.0, 0.0, 1.0, 40.0), (True, False)):
        attention = SphereAttention(beta, normalised=normalised)
        law = two_tokens(attention, 2, 1.0, np.cos(angles), centred=True)
        np.testing.assert_allclose(law["antipode"], angles / math.pi, atol=1e-10)
    other = two_tokens(SphereAttention(1.0), 3, 1.0, np.cos(angles), centred=True)
    assert np.abs(other["antipode"] - angles / math.pi).max() > 0.1


@pytest.mark.parametrize("dimension", [3, 8, 1000])
def test_the_antipode_attracts_above_its_threshold_only(dimension):
    """d - 2 < cosh(2 beta), for SA and USA; the probability of d = 3, beta = 0 is exact, 0."""
    at = 0.5 * math.acosh(dimension - 2)
    for beta, normalised in product((at + 0.01, -at - 0.01), (True, False)):
        attention = SphereAttention(beta, normalised=normalised)
        law = two_tokens(attention, dimension, 1.0, [-0.5, 0.0], centred=True)
        assert law["attracts"].values.tolist() == [True, True]
        assert (law["antipode"] > 0.0).all()
        law = two_tokens(SphereAttention(max(at - 0.01, 0.0)), dimension, 1.0, [-0.5], centred=True)
        assert law["attracts"].values.tolist() == [False, True]
        assert not law["antipode"].any()


@pytest.mark.parametrize(("dimension", "tilt"), [(2, -0.4), (30, 0.9)])
def test_with_repulsion_the_tilted_secant_is_integrated(dimension, tilt):
    """At beta = 0, s' = e^(-c z)/cosh z, c = d - 2 - 2 d / sigma^2: the mass pi / cos(pi c / 2)."""
    sigma = math.sqrt(2.0 * dimension / (dimension - 2 - tilt))
    cosines = [-0.3, 0.0, 0.6]
    law = two_tokens(SphereAttention(0.0, repulsion=True), dimension, sigma, cosines)

    def density(z):
        return math.exp(-tilt * z) / math.cosh(z)

    above = np.array([quad(density, math.atanh(r), 400)[0] for r in cosines])
    known = above * math.cos(0.5 * math.pi * tilt) / math.pi
    np.testing.assert_allclose(law["antipode"], known, rtol=1e-7)


def test_tokens_end_at_the_antipode_as_often_as_quadrature_says():
    """Binomial test at 10^-3 of 3000 paths of step 0.1 from orthogonal tokens, d = 8.

    It rejects the probabilities of beta -+ 0.3; the standard error is below 0.01.
    """
    start = equiangular_start(2, 0.0).expand(3000, -1, -1)
    ends = noisy_chain(
        SphereAttention(2.0), start, 8, 1.0, 0.1, 800,
        centred=True, seed=4, save_every=800, keep=lambda gram: gram[:, 0, 1],
    )["kept"].values[-1]  # fmt: skip
    assert (np.abs(ends) < 0.9).mean() < 0.01
    count = int((ends < 0.0).sum())

    def p_value(beta):
        law = two_tokens(SphereAttention(beta), 8, 1.0, [0.0], centred=True)
        return binomtest(count, 3000, float(law["antipode"][0])).pvalue

    assert p_value(2.0) > 1e-3
    assert max(p_value(1.7), p_value(2.3)) < 1e-3


GOOD = {"attention": SphereAttention(1.0), "dimension": 3, "sigma": 1.0, "cosine": [0.0]}
test_bad_input = refused(
    ({"attention": SphereAttention(1.0, causal=True)}, "attention must be without causal=True"),
    ({"cosine": [0.5, 0.1]}, r"cosine must be a list of increasing numbers in \(-1, 1\)"),
    by=lambda options: two_tokens(**GOOD | options),
)
