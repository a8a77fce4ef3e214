"""Random value matrices on the sphere: networks, their chain, the limit h -> 0."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.stats import ks_2samp

from shaped_attention.sphere import (
    SphereAttention,
    equiangular_start,
    given_start,
    noisy_chain,
    sphere_network,
    uniform_start,
)
from tests.sphere_tokens import moved_one_by_one

KINDS = {
    "SA": {},
    "USA": {"normalised": False},
    "repulsion": {"repulsion": True},
    "causal": {"causal": True},
}


def in_space(start, dimension):
    """The same tokens with zeros for the features up to the dimension."""
    return torch.nn.functional.pad(start, (0, dimension - start.shape[-1]))


def written_out(x, attention, step, layers):
    """The layer-normalised network with V = +-I, token by token."""
    eye = np.eye(x.shape[-1])
    heads = [(eye, eye, -eye if attention.repulsion else eye)]
    for _ in range(layers):
        options = attention.normalised, attention.causal
        y = x + step * moved_one_by_one(x, attention.beta, heads, *options)
        x = y / np.linalg.norm(y, axis=1, keepdims=True)
    return x @ x.T


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dimension", [2, 4, 30])
def test_without_noise_both_are_the_deterministic_network(kind, dimension):
    """To 1e-12 after 12 layers; another step is further away than 1e-3."""
    attention = SphereAttention(2.0, **KINDS[kind])
    start = uniform_start(4, dimension, 3, seed=2)
    chain = noisy_chain(attention, start, dimension, 0.0, 0.1, 12)["V"].values
    network = sphere_network(attention, in_space(start, dimension), 0.1, 12, sigma=0.0)["V"].values
    for sample, x in enumerate(start.numpy()):
        known = written_out(x, attention, 0.1, 12)
        np.testing.assert_allclose(chain[-1, sample], known, atol=1e-12, rtol=0)
        np.testing.assert_allclose(network[-1, sample], known, atol=1e-12, rtol=0)
        assert np.abs(written_out(x, attention, 0.12, 12) - known).max() > 1e-3


def same(first, second, level=1e-3):
    """No cosine, log det V or mean cosine differs by a KS test at `level`, Bonferroni corrected."""
    columns = []
    for v in (first["V"].values[-1], second["V"].values[-1]):
        count = v.shape[-1]
        mean = (v.sum((1, 2)) - count) / (count * (count - 1))
        # Of more tokens than dimensions the determinant is rounding: that of two is seen.
        log_det = np.linalg.slogdet(v if count == 3 else v[:, :2, :2])[1]
        columns.append([v[:, 0, 1], v[:, 1, 2], mean, log_det])
    p = [ks_2samp(a, b).pvalue for a, b in zip(*columns, strict=True)]
    return min(p) > level / len(p)


@pytest.mark.parametrize(("dimension", "other"), [(3, 6), (4, 8), (6, 3), (7, 14), (40, 20)])
def test_chain_and_network_have_the_same_law(dimension, other):
    """KS on four observables after 4 layers, 4000 samples; another width and no E are rejected.

    N = 3: d = 3 leaves no room for E, below d = 8 the Gaussian B is made directly (with fewer
    columns than r, as many, or one more), and by Bartlett's factor for d = 40.
    """
    attention = SphereAttention(1.5)
    start = equiangular_start(3, 0.2).expand(4000, -1, -1)
    chain = noisy_chain(attention, start, dimension, 1.0, 0.25, 4)
    network = sphere_network(attention, in_space(start, dimension), 0.25, 4, sigma=1.0)
    assert same(chain, network)
    assert not same(noisy_chain(attention, start, other, 1.0, 0.25, 4), network)
    if dimension > 3:
        # The chain of d = 3 with sqrt(3/d) of the noise: the same H, and no E.
        without = noisy_chain(attention, start, 3, math.sqrt(3.0 / dimension), 0.25, 4)
        assert not same(without, network)


@pytest.mark.parametrize("dimension", [2, 4])
def test_the_law_is_that_of_the_network_for_tokens_in_few_dimensions(dimension):
    """Five tokens of rank 2 in d = 2 or 4; leaving out E (the chain of d = 2) fails in d = 4."""
    attention = SphereAttention(1.5)
    start = given_start([[math.cos(a), math.sin(a)] for a in (0.0, 0.5, 1.4, 2.0, 4.0)])
    start = start.expand(2000, -1, -1)
    chain = noisy_chain(attention, start, dimension, 1.0, 0.25, 3)
    network = sphere_network(attention, in_space(start, dimension), 0.25, 3, sigma=1.0)

    assert same(chain, network)
    assert np.linalg.matrix_rank(chain["V"].values[-1], tol=1e-9).max() <= dimension
    if dimension == 4:
        # With sqrt(2/4) of the noise, d = 2 has the H of d = 4 and no E.
        wrong = noisy_chain(attention, start, 2, math.sqrt(0.5), 0.25, 3)
        assert not same(wrong, network)


@pytest.mark.parametrize("dimension", [2, 5, 8, 9, 400])
def test_it_stays_a_correlation_matrix(dimension):
    """Unit diagonal to 1e-14 and no eigenvalue below -1e-13, also with strong noise."""
    start = uniform_start(8, dimension, 20)
    for sigma, step in ((1.0, 0.05), (5.0, 2.0)):
        v = noisy_chain(SphereAttention(4.0), start, dimension, sigma, step, 40)["V"].values[-1]
        np.testing.assert_allclose(np.diagonal(v, axis1=1, axis2=2), 1.0, atol=1e-14)
        assert np.linalg.eigvalsh(v).min() > -1e-13


def test_the_largest_arguments_do_not_overflow():
    """Weights of exp(600), sigma and step of 1e12."""
    fierce = SphereAttention(600.0, normalised=False)
    for dimension in (2, 4, 50):
        start = uniform_start(3, dimension, 10)
        assert np.isfinite(noisy_chain(fierce, start, dimension, 1e12, 1e12, 3)["V"].values).all()
        full = in_space(start, dimension)
        assert np.isfinite(sphere_network(fierce, full, 1e12, 3, sigma=1e12)["V"].values).all()


def largest_score(attention, dimension, sigma, expected, samples=20000):
    """Largest |mean slope of V in one step - expected| in standard errors, over the pairs.

    A step with W and the same with -W are averaged: terms of order sqrt(h) cancel.
    """
    step = 1e-4
    x = START
    mixed = attention.weights(torch.from_numpy(x @ x.T)).numpy() @ x
    noise = np.random.default_rng(5).standard_normal((samples, dimension, dimension))
    v = 0.0
    for sign in (1.0, -1.0):
        full = np.zeros((3, dimension))
        full[:, :3] = x
        scale = sign * sigma * math.sqrt(step / dimension)
        y = (
            full
            + step * np.pad(mixed, ((0, 0), (0, dimension - 3)))
            + scale * (mixed @ noise[:, :3])
        )
        y = y / np.linalg.norm(y, axis=-1, keepdims=True)
        v = v + 0.5 * (y @ y.swapaxes(1, 2))
    slopes = (v - x @ x.T) / step
    pairs = np.triu_indices(3, 1)
    mean, error = slopes.mean(0)[pairs], slopes.std(0)[pairs] / math.sqrt(samples)
    return np.abs((mean - expected.numpy()[pairs]) / error).max()


START = np.array([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [-0.3, 0.4, math.sqrt(0.75)]])
GRAM = torch.from_numpy(START @ START.T)


@pytest.mark.parametrize("dimension", [3, 6])
def test_the_drift_is_the_mean_of_one_small_step(dimension):
    """Within 4 standard errors (3 pairs); without Ito's terms, or without sigma, above 20."""
    attention = SphereAttention(2.0)
    expected = attention.gram_field(GRAM, 1.0, dimension)
    assert largest_score(attention, dimension, 1.0, expected) < 4.0
    # The limit of large d is what remains without the second derivatives.
    without = attention.gram_field(GRAM, 1.0, 2**50)
    assert largest_score(attention, dimension, 1.0, without) > 20.0
    assert largest_score(attention, dimension, 1.0, attention.gram_field(GRAM)) > 20.0


def test_the_drift_keeps_the_diagonal_and_vanishes_on_a_line():
    """dV_ii = 0 to rounding; in d = 1 the noise does nothing, since cosines are +-1."""
    for kind in KINDS.values():
        attention = SphereAttention(2.0, **kind)
        drift = attention.gram_field(GRAM, 1.5, 3)
        torch.testing.assert_close(drift.diagonal(), torch.zeros(3).double(), atol=1e-14, rtol=0)
        torch.testing.assert_close(drift, drift.mT, atol=1e-14, rtol=0)
        line = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
        still = attention.gram_field(line, 3.0, 1)
        torch.testing.assert_close(still, torch.zeros(2, 2).double(), atol=1e-14, rtol=0)
        assert attention.gram_field(GRAM, 1.5, 5).sub(drift).abs().max() > 1e-2


def test_results_are_kept_observed_and_repeatable():
    """Times, `keep`, the seed, and samples that do not depend on how many there are."""
    attention, start = SphereAttention(1.0), uniform_start(3, 10, 6)
    for run in (
        lambda x, **more: noisy_chain(attention, x, 10, 1.0, 0.1, 7, **more),
        lambda x, **more: sphere_network(attention, in_space(x, 10), 0.1, 7, sigma=1.0, **more),
    ):
        result = run(start, save_every=3)
        np.testing.assert_allclose(result["time"], [0.0, 0.3, 0.6, 0.7])
        np.testing.assert_array_equal(result["layer"], [0, 3, 6, 7])
        observed = run(start, save_every=3, keep=lambda gram: gram[:, 0, 1])["kept"]
        np.testing.assert_array_equal(observed, result["V"][..., 0, 1])
        np.testing.assert_allclose(run(start[:2])["V"][:7:3], result["V"][:3, :2], atol=1e-13)
        assert np.abs(run(start, seed=1)["V"].values[-1] - result["V"].values[-1]).max() > 0.01


GOOD = {"dimension": 5, "sigma": 1.0, "step": 0.1, "layers": 2}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sigma", -1.0), ("sigma", 1e13), ("sigma", True), ("step", 0.0), ("step", 1e13),
        ("layers", 0), ("seed", -1), ("save_every", 0), ("dimension", 2), ("dimension", 0),
        ("start", torch.ones(2, 3, 3)), ("start", None),
    ],
)  # fmt: skip
def test_bad_input_is_named(name, value):
    """One sentence that starts with the argument."""
    arguments = {"start": uniform_start(3, 5, 2), **GOOD, name: value}
    with pytest.raises(ValueError, match=rf"^{name}"):
        noisy_chain(SphereAttention(1.0), **arguments)
    if name not in ("dimension", "start"):
        del arguments["dimension"]
        with pytest.raises(ValueError, match=rf"^{name}"):
            sphere_network(SphereAttention(1.0), **arguments)


def test_in_high_dimension_the_noise_is_its_drift():
    """d = 10^8: to O(h) the chain solves dV/dt = drift, extrapolated to 3e-4; not without sigma.

    The noise that is left is of order sigma / sqrt d = 1e-4.
    """
    attention, dimension, sigma = SphereAttention(2.0), 10**8, 1.2

    def solution(strength):
        def field(_t, flat):
            v = torch.from_numpy(flat.reshape(3, 3))
            v = v.clone().fill_diagonal_(1.0)
            return attention.gram_field(v, strength, dimension).numpy().ravel()

        found = solve_ivp(field, (0.0, 1.0), GRAM.numpy().ravel(), rtol=1e-7, atol=1e-9)
        return found.y[:, -1].reshape(3, 3)

    start = torch.from_numpy(START)[None]
    coarse, fine = (
        noisy_chain(attention, start, dimension, sigma, 1.0 / n, n)["V"].values[-1, 0]
        for n in (60, 120)
    )
    known = solution(sigma)
    assert 1.9 < np.abs(coarse - known).max() / np.abs(fine - known).max() < 2.2
    extrapolated = np.abs(2.0 * fine - coarse - known).max()
    assert extrapolated < 3e-4
    assert np.abs(solution(0.0) - known).max() > 0.1
