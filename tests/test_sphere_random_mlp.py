"""MLPs with random weights on the sphere: kernels of activations, and what two tokens do."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import binomtest, ks_1samp

from shaped_attention.sphere import RandomMLP, SphereAttention, equiangular_start, noisy_chain
from shaped_attention.sphere.theory import two_tokens
from tests.test_sphere_random_weights import phi

LINEAR = "tests.activation_functions:linear"
BUMP = "tests.activation_functions:bump"
SMOOTH = ["gelu", "gelu_tanh", "silu", "tanh", "softplus", LINEAR, BUMP]


def plane_mean(name, r):
    """E phi(u) phi(v) of normals with the correlation r, by the trapezoidal rule in the plane."""
    x = np.arange(-9.0, 9.001, 0.05)
    mass = np.exp(-0.5 * x * x) * 0.05 / math.sqrt(2.0 * math.pi)
    v = r * x[:, None] + math.sqrt(1.0 - r * r) * x
    return float(mass @ (phi(name, x[None])[0][:, None] * phi(name, v)) @ mass)


@pytest.mark.parametrize("name", SMOOTH)
def test_kernels_are_integrals_in_the_plane(name):
    """To 1e-11, and odd functions as such; of the identity it is R itself."""
    r = np.array([-1.0, -0.7, 0.0, 0.3, 0.9, 1.0])
    kernel = RandomMLP(name).kernel(torch.from_numpy(r)).numpy()
    known = [plane_mean(name, c) for c in r]
    np.testing.assert_allclose(kernel, known, rtol=1e-11, atol=1e-13)
    assert RandomMLP(name).odd == (name in ("tanh", LINEAR))
    if name == LINEAR:
        np.testing.assert_allclose(kernel, r, atol=1e-14)


def test_the_kernel_of_relu_is_an_integral_over_angles():
    """E phi(u) phi(v) = (1/pi) int relu(cos t) relu(cos(t - angle)) dt, as E rho^2 = 2."""
    angles = np.array([0.0, 0.4, 1.5, 2.8, math.pi])
    gram = torch.eye(2).double().expand(5, 2, 2).clone()
    gram[:, 0, 1] = gram[:, 1, 0] = torch.from_numpy(np.cos(angles))
    kernel = RandomMLP("plain_relu", 3).kernel(gram).numpy()
    for angle, kappa in zip(angles, kernel, strict=True):

        def half(t, angle=angle):
            return max(math.cos(t), 0.0) * max(math.cos(t - angle), 0.0) / math.pi

        known = quad(half, angle - 0.5 * math.pi, 0.5 * math.pi)[0]
        assert kappa[0, 1] == pytest.approx(known, abs=1e-12)
        assert kappa[0, 0] == pytest.approx(0.5, abs=1e-15)


def slopes_of(name):
    """E phi^2 and E phi'^2 by quadrature, with differences for the derivative."""

    def mean(f):
        return quad(lambda u: f(u) ** 2 * math.exp(-0.5 * u * u), -9.0, 9.0, points=[0.0])[0]

    def value(u):
        return float(phi(name, np.array([[u]]))[0, 0])

    scale = math.sqrt(2.0 * math.pi)
    return mean(value) / scale, mean(lambda u: (value(u + 1e-5) - value(u - 1e-5)) / 2e-5) / scale


@pytest.mark.parametrize(("name", "last"), [("tanh", 14), ("gelu", 30), ("plain_relu", None)])
def test_equal_tokens_attract_up_to_a_dimension(name, last):
    """(d - 1) E phi^2 > (d - 3) E phi'^2; the antipode attracts with it if phi is odd, or never."""
    square, slope = slopes_of(name)
    for dimension in (2, 3, *((last, last + 1) if last else (1000,))):
        law = two_tokens(
            SphereAttention(1.0), dimension, 1.0, [-0.2, 0.0], centred=True, noise=RandomMLP(name)
        )
        attracts = (dimension - 1) * square > (dimension - 3) * slope
        assert attracts == (last is None or dimension <= last)
        assert law["attracts"].values.tolist() == [attracts and name == "tanh", attracts]
        assert (law["antipode"].values > 0.5).any() == (attracts and name == "tanh")
        if name == "tanh" and attracts:
            assert float(law["antipode"][1]) == pytest.approx(0.5, abs=1e-12)


def test_attention_makes_equal_tokens_attract_under_weak_noise_only():
    """Iff (d - 2) (K - A) - A - K < 2 d / sigma^2 for SA, within 1 % of that sigma."""
    square, slope = slopes_of("tanh")
    border = math.sqrt(128.0 / (62.0 * (slope - square) - square - slope))
    for factor in (0.99, 1.01):
        law = two_tokens(SphereAttention(1.0), 64, factor * border, [0.0], noise=RandomMLP("tanh"))
        assert bool(law["attracts"][1]) == (factor < 1.0)


def ends(dimension, cosine, time, samples):
    """The cosine of two tokens under tanh's noise, in steps of 0.5."""
    layers = round(2 * time)
    start = equiangular_start(2, cosine).expand(samples, -1, -1)
    run = noisy_chain(
        SphereAttention(0.0), start, dimension, 1.0, 0.5, layers, centred=True, seed=4,
        noise=RandomMLP("tanh"), save_every=layers, keep=lambda gram: gram[:, 0, 1],
    )  # fmt: skip
    return run["kept"].values[-1]


def test_in_high_dimension_the_cosine_has_the_law_of_the_speed_density():
    """KS at 10^-3 of 1500 paths, d = 64, under tanh; d = 40 and GELU are rejected."""
    r = np.linspace(-0.99999, 0.99999, 4001)
    cosines = ends(64, 0.0, 300.0, 1500)
    for name, dimension, right in (("tanh", 64, True), ("tanh", 40, False), ("gelu", 64, False)):
        law = two_tokens(
            SphereAttention(0.0), dimension, 1.0, r, centred=True, noise=RandomMLP(name)
        )
        density = law["speed_density"].values
        mass = np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(r))
        p = ks_1samp(cosines, lambda x, m=mass: np.interp(x, r[1:], m / m[-1])).pvalue
        assert (p > 1e-3) == right


def test_in_low_dimension_tokens_end_at_the_antipode_as_often_as_quadrature_says():
    """Binomial test at 10^-3 of 3000 paths, d = 6, from the cosine 1/2 under tanh.

    It rejects those of a linear MLP, angle / pi = 1/3 for every d, and of d = 12.
    """
    cosines = ends(6, 0.5, 400.0, 3000)
    assert (np.abs(cosines) < 0.9).mean() < 0.01
    count = int((cosines < 0.0).sum())
    for name, dimension, right in (("tanh", 6, True), (LINEAR, 6, False), ("tanh", 12, False)):
        law = two_tokens(
            SphereAttention(0.0), dimension, 1.0, [0.5], centred=True, noise=RandomMLP(name)
        )
        probability = float(law["antipode"][0])
        assert (binomtest(count, 3000, probability).pvalue > 1e-3) == right
        if name == LINEAR:
            assert probability == pytest.approx(1.0 / 3.0, abs=1e-10)
