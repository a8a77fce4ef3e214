"""Formulas of the ledger against numbers: quadrature, simulation, and the package."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.polynomial import hermite_e
from scipy import integrate
from sympy import Poly, Rational, Symbol, cancel, exp, expand, lambdify, sympify

from shaped_attention.sphere import SphereAttention
from symbolic.claims import clustering, random_layers
from symbolic.claims.particles import BETA, COSINE

# Tokens on the sphere.


def test_the_curvature_of_a_pair_is_that_of_two_points_on_the_circle() -> None:
    """On the circle <a, y> + <x, b> = (t - s) sin, <a, b> = s t cos for speeds s and t."""
    c, s = clustering.C, Symbol("sine")
    first, second = Rational(2), Rational(-3)
    values = {"s": (first - second) * s, "ab": first * second * c, "aa": first**2, "bb": second**2}
    pair = clustering.curvature_of_a_pair().subs(
        {Symbol(name, real=True): value for name, value in values.items()}
    )
    angular = (first - second) ** 2 * exp(BETA * c) * (BETA * s**2 - c)
    assert expand(pair - angular) == 0


def test_no_two_tokens_approach_faster_than_the_slope_of_the_field() -> None:
    """Any tokens: the angle of two has a' >= -a under SA. USA at beta = 3 breaks this bound."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(200, 6, 3))
    x[100:] = x[100:, :1] + 0.1 * x[100:]  # half of the starts are near one place
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    cosine = np.clip(x @ x.mT, -1, 1)
    first, second = np.triu_indices(6, 1)
    angle = np.arccos(cosine)[:, first, second]
    rates = []
    for unnormalised in (False, True):
        weights = np.exp(3 * cosine)
        weights /= 6 if unnormalised else weights.sum(axis=-1, keepdims=True)
        m = weights @ cosine
        own = np.diagonal(m, axis1=1, axis2=2)
        change = m + m.mT - (own[:, :, None] + own[:, None, :]) * cosine
        rates.append(-change[:, first, second] / np.sin(angle) / angle)
    assert rates[0].min() >= -1 - 1e-9
    assert rates[1].min() < -10
    assert rates[1].min() >= -np.exp(3)
    assert all(cancel(a - b) == 0 for a, b in map(clustering.excess_of_the_slope, (0, 1)))


@pytest.mark.parametrize("rho", [0.0, 0.4])
def test_long_contexts_have_these_cosines(rho: float) -> None:
    """Softmax of N = 10^12 tokens, each power of N written out, to 0.02 away from the threshold.

    At rho = 0.4 it is gamma = 5/3, at rho = 0 gamma = 1/2; the cosine of orthogonal tokens has
    its value there exactly, and the threshold 1 of their weights is another.
    """
    count, critical = 1e12, 1.0 / (1.0 - rho) if rho else 0.5

    def cosine(gamma: float) -> float:
        own = count ** (gamma * (1.0 - rho))
        p, q = own / (own + count - 1.0), 1.0 / (own + count - 1.0)
        rest = 2.0 * p * q + (count - 2.0) * q * q
        size = p * p + (count - 1.0) * q * q
        mean = rho * (p + (count - 1.0) * q) ** 2
        return (mean + (1.0 - rho) * rest) / (mean + (1.0 - rho) * size)

    at_threshold = 4.0 * rho / (1.0 + 3.0 * rho) if rho else 0.5
    assert math.isclose(cosine(0.8 * critical), 1.0, abs_tol=0.02)
    assert math.isclose(cosine(critical), at_threshold, abs_tol=0.02)
    assert math.isclose(cosine(1.4 * critical), rho, abs_tol=0.02)
    if rho:
        derived = random_layers.value(random_layers.output_cosine(), 1).subs(COSINE, Rational(2, 5))
        assert math.isclose(at_threshold, float(derived))


# Random values and heads.


def test_the_differences_of_scores_by_simulation() -> None:
    """E a_1 a_2 = 2 beta^2 (1 - r) r for a_i = s_i1 - s_i2, with r = 1/2; s_ii - s_ij: minus it."""
    r, heads = 0.5, 40_000
    draws = np.random.default_rng(7)
    x = np.linalg.cholesky(np.array([[1.0, r], [r, 1.0]]))
    q, k = draws.standard_normal((2, heads, 16, 2))
    s = np.einsum("ia,hka,hkb,jb->hij", x, q, k, x) / 4.0
    a = s[:, :, 0] - s[:, :, 1]
    mean, error = np.mean(a[:, 0] * a[:, 1]), np.std(a[:, 0] * a[:, 1]) / np.sqrt(heads)
    derived = random_layers.covariance_of_differences(0, 1).subs({BETA: 1, random_layers.R: r})
    assert abs(mean - float(derived)) < 4 * error
    assert abs(mean + float(derived)) > 20 * error


@pytest.mark.parametrize(("sizes", "stays"), [((1, 1), True), ((2, 2), True), ((2, 1), False)])
def test_only_equal_clusters_stay_antipodes(sizes: tuple[int, int], stays: bool) -> None:
    """The drift of the package at opposite clusters, to rounding."""
    signs = np.repeat([1.0, -1.0], sizes)
    r, beta, d = np.outer(signs, signs), 0.7, 5
    attention = SphereAttention(beta=beta)
    field = attention.gram_field(torch.tensor(r), sigma=1.0, dimension=d, centred=True).numpy()
    shares = [
        a * np.exp(beta) / (a * np.exp(beta) + b / np.exp(beta)) for a, b in (sizes, sizes[::-1])
    ]
    expected = 2 * (d - 1) / d * (shares[0] - shares[1]) ** 2
    np.testing.assert_allclose(field[0, -1], expected, atol=1e-14)
    assert (abs(expected) < 1e-14) == stays


def quadrature_exponent(d: int, beta: float, opposite: bool = False) -> float:
    """d times the exponent of u = 1 + r at the antipode from E S by quadrature in two scores."""
    x, w = hermite_e.hermegauss(80)
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
    values = {random_layers.D: d, **random_layers.means_at(beta)}
    expected = float(random_layers.antipode().subs(values))
    np.testing.assert_allclose(quadrature_exponent(d, beta), expected, atol=1e-3)
    assert abs(quadrature_exponent(d, beta, opposite=True) - expected) > 0.1


# Random MLPs.


def test_energy_of_the_exponential_activation_decays_as_bounded() -> None:
    """kappa(r) = exp(s^2 (r - 1)) in d = 8: coercive at s^2 = 1/4, but not at 2."""
    r = np.linspace(-1, 0.999, 2000)
    for slope, holds in ((0.25, True), (2.0, False)):
        kernel = np.exp(slope * (r - 1))
        rate = ((6 + r**2) * kernel - 7 * r) / (8 * (1 - r))
        assert (rate.min() > 0) == holds
        assert rate.min() >= (5 - 7 * slope) / 8


def test_the_polynomials_of_the_kernel_are_hermite_s() -> None:
    """numpy's He_1 to He_9 follow from He_0 = 1."""
    u, polynomial = Symbol("u"), sympify(1)
    for order in range(10):
        known = hermite_e.herme2poly([0.0] * order + [1.0])
        assert Poly(polynomial, u).all_coeffs()[::-1] == [round(c) for c in known]
        polynomial = random_layers.next_hermite(polynomial, u)


def test_the_kernel_of_sin_is_that_of_normals() -> None:
    """kappa(r) = sinh(r) / e by quadrature in the plane, and g at r = 1 from its two values."""
    x = np.arange(-9.0, 9.001, 0.05)
    mass = np.exp(-0.5 * x * x) * 0.05 / math.sqrt(2.0 * math.pi)
    for r in (-1.0, 0.3, 1.0):
        v = r * x[:, None] + math.sqrt(1.0 - r * r) * x
        mean = mass @ (np.sin(x)[:, None] * np.sin(v)) @ mass
        assert mean == pytest.approx(math.sinh(r) / math.e, abs=1e-13)
    names = (random_layers.D, random_layers.R, random_layers.A, random_layers.B)
    g = lambdify(names, random_layers.MLP_SLOPE)
    end = lambdify((*names[::2], random_layers.K), random_layers._at_one(random_layers.MLP_SLOPE))
    near, value, slope = 1.0 - 1e-5, math.sinh(1.0) / math.e, math.cosh(1.0) / math.e
    for dimension in (9, 10):
        known = end(dimension, value, slope)
        assert (known > 0.0) == (dimension == 9)
        assert g(dimension, near, value, math.sinh(near) / math.e) == pytest.approx(known, abs=1e-3)


# Explosion.


@pytest.mark.parametrize("y", [0.3, 1.0, 4.0])
def test_the_mean_of_the_logarithm_by_quadrature_of_the_resolvent(y: float) -> None:
    """At a = 1/2: E log sinh y_tau, tau of rate 2 k, from the resolvent density, to 1e-8.

    y is in its natural scale with generator k sinh^2 y d^2/dy^2; the increasing solution of
    L f = 2 k f is y coth y - 1, the decreasing one coth y, their Wronskian is 1. The law that
    ignores the entrance from infinity is off by y coth y - 1, at least 0.029.
    """

    def up(x: float) -> float:
        return x / np.tanh(x) - 1

    def weight(x: float) -> float:
        return 2 * np.log(np.sinh(x)) / np.sinh(x) ** 2

    lower = integrate.quad(lambda x: up(x) * weight(x), 0, y, epsabs=1e-11)[0]
    upper = integrate.quad(lambda x: weight(x) / np.tanh(x), y, 40, epsabs=1e-11)[0]
    mean = lower / np.tanh(y) + upper * up(y)
    naive = np.log(np.sinh(y)) - 0.5
    assert mean == pytest.approx(naive - up(y), abs=1e-8)
    assert naive - mean > 0.029
