"""Random value matrices on the sphere: networks, their chain, and the SDE."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp
from torch.nn.functional import pad

from shaped_attention.sphere import (
    SphereAttention,
    equiangular_start,
    noisy_chain,
    sphere_network,
    uniform_start,
)
from shaped_attention.sphere.random_values import noise_bracket, noise_drift
from tests.refusals import refused
from tests.sphere_tokens import moved_one_by_one, plain_heads

KINDS = {
    "SA": {},
    "USA": {"normalised": False},
    "repulsion": {"repulsion": True},
    "causal": {"causal": True},
}
START = np.array([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [-0.3, 0.4, math.sqrt(0.75)]])
GRAM = torch.from_numpy(START @ START.T)
PAIRS = np.triu_indices(3, 1)
WEIGHTS = torch.tensor([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4], [0.0, 0.9, 0.1]], dtype=torch.float64)
MIXED = WEIGHTS @ GRAM @ WEIGHTS.T


def in_space(start, dimension):
    """The same tokens with zeros for the features up to the dimension."""
    return pad(start, (0, dimension - start.shape[-1]))


def written_out(x, attention, step, layers):
    """The layer-normalised network with V = +-I, token by token."""
    heads = plain_heads(attention, x.shape[-1])
    for _ in range(layers):
        options = attention.normalised, attention.causal
        y = x + step * moved_one_by_one(x, attention.beta, heads, *options)
        x = y / np.linalg.norm(y, axis=1, keepdims=True)
    return x @ x.T


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dimension", [2, 30])
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


def same_law(first, second, level=1e-3):
    """No cosine, mean cosine or log det differs by a KS test at `level`, Bonferroni corrected."""
    columns = []
    for v in (first, second):
        # Of more tokens than dimensions the determinant is rounding: that of two is seen.
        log_det = np.linalg.slogdet(v if v.shape[-1] == 3 else v[:, :2, :2])[1]
        columns.append([*v[:, *PAIRS].T, v.mean((1, 2)), log_det])
    p = [ks_2samp(a, b).pvalue for a, b in zip(*columns, strict=True)]
    return min(p) > level / len(p)


def chain(start, dimension, sigma=1.0, layers=4, **options):
    """Gram matrices at the end of the chain with steps of 1/4."""
    attention = SphereAttention(1.5)
    return noisy_chain(attention, start, dimension, sigma, 0.25, layers, **options)["V"].values[-1]


def network(start, dimension, layers=4):
    """The same of networks."""
    wide = in_space(start, dimension)
    return sphere_network(SphereAttention(1.5), wide, 0.25, layers, sigma=1.0)["V"].values[-1]


@pytest.mark.parametrize(("dimension", "other"), [(3, 6), (4, 8), (40, 20)])
def test_chain_and_network_have_the_same_law(dimension, other):
    """KS on five observables after 4 layers, 4000 samples; another width and no E are rejected.

    N = 3: d = 3 leaves no room for E, for d = 4 the Gaussian B is made directly, and by Bartlett's
    factor for d = 40.
    """
    start = equiangular_start(3, 0.2).expand(4000, -1, -1)
    known = network(start, dimension)
    assert same_law(chain(start, dimension), known)
    assert not same_law(chain(start, other), known)
    if dimension > 3:
        # The chain of d = 3 with sqrt(3/d) of the noise: the same H, and no E.
        assert not same_law(chain(start, 3, math.sqrt(3.0 / dimension)), known)


@pytest.mark.parametrize(("tokens", "dimension"), [(5, 2), (8, 9), (3, 300)])
@pytest.mark.parametrize("centred", [False, True])
def test_it_stays_a_correlation_matrix_and_equal_tokens_stay_equal(tokens, dimension, centred):
    """Unit diagonal, no eigenvalue below -1e-13, with strong noise too; in networks also."""
    start = uniform_start(tokens, dimension, 10, seed=1)
    start[:, 1] = start[:, 0]
    attention = SphereAttention(3.0)
    for sigma, step in ((1.0, 0.05), (5.0, 2.0)):
        for run in (
            noisy_chain(attention, start, dimension, sigma, step, 40, centred=centred),
            sphere_network(
                attention, in_space(start, dimension), step, 10, sigma=sigma, centred=centred
            ),
        ):
            v = run["V"].values[-1]
            np.testing.assert_allclose(np.diagonal(v, axis1=1, axis2=2), 1.0, atol=1e-14)
            assert np.linalg.eigvalsh(v).min() > -1e-13
            np.testing.assert_allclose(v[:, 0], v[:, 1], atol=1e-12)


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


def test_the_sde_has_the_law_of_networks_and_of_the_chain():
    """KS on five observables at time 0.5, d = 16, networks with step 0.02.

    It rejects d = 8, and 0.8 times the drift. At the level 2e-4 a shift of 0.16 standard deviations
    is seen half of the time.
    """
    attention, steps, dimension, samples = SphereAttention(1.5), 25, 16, 1500
    start = torch.from_numpy(START).expand(samples, -1, -1)
    known = sphere_network(
        attention, in_space(start, dimension), 0.02, steps,
        sigma=1.0, centred=True, seed=1, save_every=steps,
    )["V"].values[-1]  # fmt: skip
    many = torch.from_numpy(START).expand(4000, -1, -1)
    found = noisy_chain(
        attention, many, dimension, 1.0, 0.02, steps, centred=True, save_every=steps
    )["V"].values[-1]
    sde = euler(attention, dimension, 0.02, steps, 4000)
    assert same_law(sde, known)
    assert same_law(found, known)
    assert not same_law(euler(attention, 8, 0.02, steps, 4000), known)

    def slower(gram, *noise, **mean):
        return 0.8 * attention.gram_field(gram, *noise, **mean)

    assert not same_law(euler(attention, dimension, 0.02, steps, 4000, slower), known)


test_bad_layers = refused(
    ({"sigma": -1.0}, "sigma must be finite and >= 0; got -1.0"),
    ({"step": 0.0}, "step must be positive and finite; got 0.0"),
    ({"dimension": 2}, "dimension must be at least 3, the rank of the start; got 2"),
    ({"sigma": 0.0, "centred": True}, "sigma must be positive"),
    by=lambda options: noisy_chain(
        SphereAttention(1.0),
        **{"start": uniform_start(3, 5), "dimension": 5, "sigma": 1.0, "step": 0.1, "layers": 2}
        | options,
    ),
)
