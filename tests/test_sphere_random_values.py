"""Value matrices of mean 0 on the sphere: drift, bracket, their SDE, networks, and two tokens."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import binomtest, ks_2samp
from torch.nn.functional import pad

from shaped_attention.sphere import (
    SphereAttention,
    equiangular_start,
    given_start,
    noisy_chain,
    sphere_network,
    uniform_start,
)
from shaped_attention.sphere.random_values import noise_bracket, noise_drift
from shaped_attention.sphere.theory import two_tokens

START = np.array([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [-0.3, 0.4, math.sqrt(0.75)]])
GRAM = torch.from_numpy(START @ START.T)
PAIRS = np.triu_indices(3, 1)
WEIGHTS = torch.tensor([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4], [0.0, 0.9, 0.1]], dtype=torch.float64)
MIXED = WEIGHTS @ GRAM @ WEIGHTS.T


def cosine(gram):
    """The cosine of the first two tokens."""
    return gram[:, 0, 1]


def test_the_bracket_is_the_sum_over_four_pairings():
    """To rounding, from projected tokens; entries of the diagonal do not move."""
    projections = [np.eye(3) - np.outer(x, x) for x in START]
    bracket = noise_bracket(GRAM, MIXED, 7).numpy()
    for i, j, k, l in product(range(3), repeat=4):
        known = sum(
            MIXED[a, c] * (projections[a] @ START[b]) @ (projections[c] @ START[e])
            for a, b in ((i, j), (j, i))
            for c, e in ((k, l), (l, k))
        )
        assert bracket[i, j, k, l] == pytest.approx(float(known) / 7, abs=1e-15)
    assert np.abs(bracket[range(3), range(3)]).max() < 1e-15
    attention = SphereAttention(1.5, repulsion=True)
    weights = attention.weights(GRAM)
    ours = 4.0 * noise_bracket(GRAM, weights @ GRAM @ weights.mT, 7)
    torch.testing.assert_close(attention.gram_bracket(GRAM, 2.0, 7), ours)


@pytest.mark.parametrize("kind", [{}, {"normalised": False}, {"repulsion": True}])
def test_the_drift_is_that_of_the_mean_and_that_of_the_noise(kind):
    """To rounding; each part alone is 0.01 away."""
    attention = SphereAttention(1.5, **kind)
    parts = attention.gram_field(GRAM), attention.gram_field(GRAM, 1.3, 5, centred=True)
    torch.testing.assert_close(sum(parts), attention.gram_field(GRAM, 1.3, 5))
    assert min(part.abs().max() for part in parts) > 0.01
    assert not attention.gram_field(GRAM, centred=True).any()


def scores(dimension, drift, bracket, samples=40_000, step=1e-4):
    """Standard errors between one explicit layer's moments and a drift and a bracket.

    The layer has the weights WEIGHTS. Layers with W and -W are averaged for the drift: terms of
    order sqrt(h) cancel.
    """
    x = np.pad(START, ((0, 0), (0, dimension - 3)))
    noise = np.random.default_rng(5).standard_normal((samples, dimension, dimension))
    moved = math.sqrt(step / dimension) * (WEIGHTS.numpy() @ x @ noise)
    slopes = []
    for y in (x + moved, x - moved):
        y /= np.linalg.norm(y, axis=-1, keepdims=True)
        slopes.append((y @ y.swapaxes(1, 2) - GRAM.numpy())[:, *PAIRS])
    mean = (slopes[0] + slopes[1]) / (2.0 * step)
    square = slopes[0][:, :, None] * slopes[0][:, None] / step
    known = drift.numpy()[PAIRS], bracket.numpy()[*PAIRS][:, *PAIRS]
    return [
        np.abs((sample.mean(0) - value) / sample.std(0) * math.sqrt(samples)).max()
        for sample, value in zip((mean, square), known, strict=True)
    ]


@pytest.mark.parametrize("dimension", [3, 8])
def test_drift_and_bracket_are_those_of_one_explicit_layer(dimension):
    """Within 4.5 standard errors (12 numbers), for weights that no attention has.

    Without the term of the norms, or in dimension d + 1, both are more than 8 away.
    """
    good = [f(GRAM, MIXED, dimension) for f in (noise_drift, noise_bracket)]
    assert max(scores(dimension, *good)) < 4.5
    other = [f(GRAM, MIXED, dimension + 1) for f in (noise_drift, noise_bracket)]
    assert min(scores(dimension, *other)) > 8.0
    squares = MIXED.diagonal()
    norms = 0.5 * (1.0 - 1.0 / dimension) * GRAM * (squares[:, None] + squares)
    assert scores(dimension, good[0] + norms, good[1])[0] > 8.0


def euler(attention, dimension, step, steps, samples, drift=None):
    """The SDE of three cosines by Euler's method, from drift and bracket alone."""
    rng = np.random.default_rng(3)
    gram = GRAM.expand(samples, 3, 3).clone()
    for _ in range(steps):
        pull = (drift or attention.gram_field)(gram, 1.0, dimension, centred=True)
        bracket = attention.gram_bracket(gram, 1.0, dimension).numpy()
        root = np.linalg.cholesky(bracket[:, *PAIRS][:, :, *PAIRS])
        noise = root @ rng.standard_normal((samples, 3, 1)) * math.sqrt(step)
        moved = gram.numpy()[:, *PAIRS] + step * pull.numpy()[:, *PAIRS] + noise[..., 0]
        gram[:, *PAIRS] = torch.from_numpy(moved)
        gram = gram.triu() + gram.triu(1).mT
    return gram.numpy()


def same_law(first, second, level=1e-3):
    """No cosine, mean cosine or log det differs by a KS test at `level`, Bonferroni corrected."""
    columns = [
        [*v[:, *PAIRS].T, v[:, *PAIRS].mean(1), np.linalg.slogdet(v)[1]] for v in (first, second)
    ]
    p = [ks_2samp(a, b).pvalue for a, b in zip(*columns, strict=True)]
    return min(p) > level / len(p)


@pytest.mark.parametrize(("dimension", "samples"), [(16, 1500), (64, 1000), (256, 300)])
def test_the_sde_has_the_law_of_networks_and_of_the_chain(dimension, samples):
    """KS on five observables at time 0.5, networks with step 0.02.

    It rejects d/4 for d (8 for 16), and 0.8 times the drift. At the level 2e-4 a shift of 0.16
    standard deviations (0.19 for 1000 networks, 0.32 for 300) is seen half of the time.
    """
    attention, steps = SphereAttention(1.5), 25
    start = torch.from_numpy(START).expand(samples, -1, -1)
    network = sphere_network(
        attention, pad(start, (0, dimension - 3)), 0.02, steps,
        sigma=1.0, centred=True, seed=1, save_every=steps,
    )["V"].values[-1]  # fmt: skip
    many = torch.from_numpy(START).expand(4000, -1, -1)
    chain = noisy_chain(
        attention, many, dimension, 1.0, 0.02, steps, centred=True, save_every=steps
    )["V"].values[-1]
    sde = euler(attention, dimension, 0.02, steps, 4000)
    assert same_law(sde, network)
    assert same_law(chain, network)
    other = max(dimension // 4, 8)
    assert not same_law(euler(attention, other, 0.02, steps, 4000), network)

    def slower(gram, *noise, **mean):
        return 0.8 * attention.gram_field(gram, *noise, **mean)

    assert not same_law(euler(attention, dimension, 0.02, steps, 4000, slower), network)


@pytest.mark.parametrize(("tokens", "dimension"), [(5, 2), (5, 4), (4, 9), (3, 300)])
@pytest.mark.parametrize("kind", [{}, {"normalised": False}, {"causal": True}])
def test_it_stays_a_correlation_matrix_and_equal_tokens_stay_equal(tokens, dimension, kind):
    """Unit diagonal, no eigenvalue below -1e-13; tokens 0 and 1 equal, in networks also."""
    start = uniform_start(tokens, dimension, 10, seed=1)
    start[:, 1] = start[:, 0]
    attention = SphereAttention(3.0, **kind)
    for step in (0.05, 2.0):
        v = noisy_chain(attention, start, dimension, 1.0, step, 40, centred=True)["V"].values[-1]
        np.testing.assert_allclose(np.diagonal(v, axis1=1, axis2=2), 1.0, atol=1e-14)
        assert np.linalg.eigvalsh(v).min() > -1e-13
        for run in (
            noisy_chain(attention, start, dimension, 1.0, step, 40, centred=True),
            sphere_network(
                attention, pad(start, (0, dimension - start.shape[-1])), step, 10,
                sigma=1.0, centred=True,
            ),
        ):  # fmt: skip
            np.testing.assert_allclose(run["V"][-1, :, 0], run["V"][-1, :, 1], atol=1e-12)


def test_centred_noise_needs_noise_and_a_mask_frees_the_antipode():
    """Antipodal tokens stay so, except under a mask, where the second sees the first."""
    line = given_start([[1.0, 0.0], [-1.0, 0.0]]).expand(50, -1, -1)
    for causal, fixed in ((False, True), (True, False)):
        attention = SphereAttention(1.0, causal=causal)
        v = noisy_chain(attention, line, 5, 1.0, 0.1, 10, centred=True)["V"].values[-1]
        assert np.allclose(v[:, 0, 1], -1.0, atol=1e-12) == fixed
    for call in (
        lambda: noisy_chain(SphereAttention(1.0), line, 5, 0.0, 0.1, 2, centred=True),
        lambda: sphere_network(SphereAttention(1.0), line, 0.1, 2, centred=True),
    ):
        with pytest.raises(ValueError, match=r"^sigma must be positive"):
            call()


CASES = [
    (SphereAttention(1.2), 6, 0.8, True), (SphereAttention(-0.7), 3, 1.5, True),
    (SphereAttention(2.0, normalised=False), 9, 1.0, True),
    (SphereAttention(1.5, repulsion=True), 12, 2.0, False),
    (SphereAttention(1.0, normalised=False, repulsion=True), 5, 3.0, False),
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


@pytest.mark.parametrize("dimension", [3, 4, 8, 64, 1000])
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


@pytest.mark.parametrize(("dimension", "tilt"), [(2, -0.4), (5, 0.0), (30, 0.9)])
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


@pytest.mark.parametrize(("beta", "dimension", "time"), [(2.0, 2, 40.0), (2.0, 8, 80.0)])
def test_tokens_end_at_the_antipode_as_often_as_quadrature_says(beta, dimension, time):
    """Binomial test at 10^-3 of 3000 paths of step 0.1 from orthogonal tokens.

    It rejects the probabilities of beta -+ 0.3 (d = 2: of d = 3); the standard error is below 0.01.
    """
    layers = round(time / 0.1)
    start = equiangular_start(2, 0.0).expand(3000, -1, -1)
    ends = noisy_chain(
        SphereAttention(beta), start, dimension, 1.0, 0.1, layers,
        centred=True, seed=4, save_every=layers, keep=cosine,
    )["kept"].values[-1]  # fmt: skip
    assert (np.abs(ends) < 0.9).mean() < 0.01
    count = int((ends < 0.0).sum())

    def p_value(beta, dimension):
        law = two_tokens(SphereAttention(beta), dimension, 1.0, [0.0], centred=True)
        return binomtest(count, 3000, float(law["antipode"][0])).pvalue

    assert p_value(beta, dimension) > 1e-3
    for wrong in (
        ((beta, 3),) if dimension == 2 else ((beta - 0.3, dimension), (beta + 0.3, dimension))
    ):
        assert p_value(*wrong) < 1e-3


def test_the_error_of_steps_is_of_order_one():
    """P(antipode) of 40,000 paths with steps 0.8 and 0.4: the extrapolated value is the exact one.

    Its standard error is 0.003, those of the two 0.0013. The errors, 0.027 and 0.015 of 0.093, are
    far outside them; extrapolation with order two (a weight of 1/3) leaves 0.011.
    """
    attention, samples = SphereAttention(2.0), 40_000
    start = equiangular_start(2, 0.0).expand(samples, -1, -1)
    known = float(two_tokens(attention, 8, 1.0, [0.0], centred=True)["antipode"][0])

    def share(step, layers):
        data = noisy_chain(
            attention, start, 8, 1.0, step, layers,
            centred=True, seed=layers, save_every=layers, keep=cosine,
        )  # fmt: skip
        return float((data["kept"].values[-1] < 0.0).mean())

    coarse, fine = share(0.8, 100), share(0.4, 200)
    error = (known * (1.0 - known) / samples) ** 0.5
    assert abs(2.0 * fine - coarse - known) < 4.0 * 5.0**0.5 * error
    assert known - fine > 5.0 * error
    assert known - coarse > 10.0 * error
    assert 1.4 < (known - coarse) / (known - fine) < 2.6


GOOD = {"attention": SphereAttention(1.0), "dimension": 3, "sigma": 1.0, "cosine": [0.0]}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("attention", SphereAttention(1.0, causal=True)), ("dimension", 1), ("dimension", 20_000),
        ("sigma", 0.0), ("cosine", [1.0]), ("cosine", []), ("cosine", [0.5, 0.1]),
        ("cosine", [math.nan]),
    ],
)  # fmt: skip
def test_bad_input_is_named(name, value):
    """One sentence that starts with the argument."""
    with pytest.raises(ValueError, match=rf"^{name} must be"):
        two_tokens(**{**GOOD, name: value})
    with pytest.raises(ValueError, match=r"^beta"):
        two_tokens(SphereAttention(301.0), 3, 1.0, [0.0])
    with pytest.raises(ValueError, match=r"^dimension must be smaller"):
        two_tokens(SphereAttention(1.0), 3, 1e-3, [0.0])
    with pytest.raises(ValueError, match=r"^gram"):
        SphereAttention(1.0).gram_bracket(2.0 * GRAM, 1.0, 3)
