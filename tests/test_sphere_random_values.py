"""Random value matrices on the sphere: networks, their chain, and the SDE."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp
from torch.nn.functional import pad

from shaped_attention.sphere import (
    SphereAttention,
    TokenAttention,
    equiangular_start,
    given_start,
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


def test_the_law_is_that_of_the_network_for_tokens_in_few_dimensions():
    """Five tokens of rank 2 in d = 4; without E, as in d = 2 with sqrt(2/4) of the noise, not."""
    start = given_start([[math.cos(a), math.sin(a)] for a in (0.0, 0.5, 1.4, 2.0, 4.0)])
    start = start.expand(2000, -1, -1)
    found, known = chain(start, 4, layers=3), network(start, 4, layers=3)
    assert same_law(found, known)
    assert np.linalg.matrix_rank(found, tol=1e-9).max() <= 4
    assert not same_law(chain(start, 2, math.sqrt(0.5), layers=3), known)


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


@pytest.mark.parametrize("kind", KINDS)
def test_the_drift_is_that_of_the_mean_and_that_of_the_noise(kind):
    """To rounding; each part alone is 0.01 away. It keeps the diagonal, and a line in d = 1."""
    attention = SphereAttention(1.5, **KINDS[kind])
    parts = attention.gram_field(GRAM), attention.gram_field(GRAM, 1.3, 5, centred=True)
    whole, weights = attention.gram_field(GRAM, 1.3, 5), attention.weights(GRAM)
    torch.testing.assert_close(sum(parts), whole)
    noise = 1.69 * noise_drift(GRAM, weights @ GRAM @ weights.mT, 5)
    torch.testing.assert_close(parts[1], noise)
    assert min(part.abs().max() for part in parts) > 0.01
    assert not attention.gram_field(GRAM, centred=True).any()
    torch.testing.assert_close(whole.diagonal(), torch.zeros(3).double(), atol=1e-14, rtol=0)
    sign = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    still = attention.gram_field(sign @ sign.mT, 1.3, 1)
    torch.testing.assert_close(still, torch.zeros(2, 2).double(), atol=1e-14, rtol=0)


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


@pytest.mark.parametrize(("dimension", "samples"), [(16, 1500), (64, 1000)])
def test_the_sde_has_the_law_of_networks_and_of_the_chain(dimension, samples):
    """KS on five observables at time 0.5, networks with step 0.02.

    It rejects d/4 for d (8 for 16), and 0.8 times the drift. At the level 2e-4 a shift of 0.16
    standard deviations (0.19 for 1000 networks) is seen half of the time.
    """
    attention, steps = SphereAttention(1.5), 25
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
    other = max(dimension // 4, 8)
    assert not same_law(euler(attention, other, 0.02, steps, 4000), known)

    def slower(gram, *noise, **mean):
        return 0.8 * attention.gram_field(gram, *noise, **mean)

    assert not same_law(euler(attention, dimension, 0.02, steps, 4000, slower), known)


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


test_bad_layers = refused(
    ({"sigma": -1.0}, "sigma must be finite and >= 0; got -1.0"),
    ({"step": 0.0}, "step must be positive and finite; got 0.0"),
    ({"dimension": 2}, "dimension must be at least 3, the rank of the start; got 2"),
    ({"start": None}, "start must be a tensor"),
    by=lambda options: noisy_chain(
        SphereAttention(1.0),
        **{"start": uniform_start(3, 5), "dimension": 5, "sigma": 1.0, "step": 0.1, "layers": 2}
        | options,
    ),
)


def test_noise_needs_plain_attention():
    with pytest.raises(ValueError, match="sigma must be 0 unless attention is a SphereAttention"):
        sphere_network(TokenAttention(1.0), uniform_start(3, 3), 0.1, 2, sigma=1.0)
