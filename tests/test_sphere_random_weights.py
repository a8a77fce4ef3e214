"""Noise of heads with random queries and keys, and of MLPs with random weights, on the sphere."""

from __future__ import annotations

import math
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp
from torch.nn.functional import pad

from shaped_attention.blocks.activations import activation_named
from shaped_attention.numerics.draws import Draws, stream_key
from shaped_attention.sphere import (
    RandomHeads,
    RandomMLP,
    SphereAttention,
    noisy_chain,
    sphere_network,
    uniform_start,
)
from shaped_attention.sphere.random_weights import _MOST_HEADS, noise_bracket, noise_drift
from shaped_attention.sphere.theory import two_tokens

START = np.array(
    [
        [1.0, 0.0, 0.0, 0.0],
        [0.6, 0.8, 0.0, 0.0],
        [-0.3, 0.4, math.sqrt(0.75), 0.0],
        [0, 0.6, 0, 0.8],
    ]
)
GRAM = torch.from_numpy(START @ START.T)
PAIRS = np.triu_indices(4, 1)
BETA = 1.5
KINK = "tests.activation_functions:kink"


def phi(name, x):
    """An activation of numpy's numbers."""
    return activation_named(name)(torch.from_numpy(x)).numpy()


def softmax(scores):
    weights = np.exp(scores)
    return weights / weights.sum(-1, keepdims=True)


def hidden(noise, x, rng, beta=BETA):
    """Outputs of the random weights before the last matrix, for tokens (samples, N, d)."""
    size = len(x), x.shape[-1]
    if isinstance(noise, RandomMLP):
        u = x @ rng.standard_normal((*size, noise.width))
        return phi(noise.activation, u) / math.sqrt(noise.width)
    parts = []
    for _ in range(noise.heads):
        if noise.key_width is None:
            scores = x @ rng.standard_normal((*size, size[1])) @ x.swapaxes(1, 2)
        else:
            q, k = (x @ rng.standard_normal((*size, noise.key_width)) for _ in range(2))
            scores = q @ k.swapaxes(1, 2) / math.sqrt(noise.key_width)
        parts.append(softmax(beta * scores) @ x)
    return np.concatenate(parts, -1) / math.sqrt(noise.heads)


def written_out(noise, dimension, step, layers, samples, seed, centred=True):
    """Gram matrices of networks with all of their matrices."""
    rng = np.random.default_rng(seed)
    x = np.tile(np.pad(START, ((0, 0), (0, dimension - 4))), (samples, 1, 1))
    for _ in range(layers):
        z = hidden(noise, x, rng)
        moved = math.sqrt(step / dimension) * (
            z @ rng.standard_normal((samples, z.shape[-1], dimension))
        )
        if not centred:
            moved += step * softmax(BETA * (x @ x.swapaxes(1, 2))) @ x
        x = x + moved
        x /= np.linalg.norm(x, axis=-1, keepdims=True)
    return x @ x.swapaxes(1, 2)


def same_law(first, second, level=1e-3):
    """No cosine, mean cosine or log det differs by a KS test at `level`, Bonferroni corrected."""
    columns = [
        [*v[:, *PAIRS].T, v[:, *PAIRS].mean(1), np.linalg.slogdet(v)[1]] for v in (first, second)
    ]
    p = [ks_2samp(a, b).pvalue for a, b in zip(*columns, strict=True)]
    return min(p) > level / len(p)


NOISES = {
    "heads": RandomHeads(3, key_width=2), "one head": RandomHeads(),
    "ReLU": RandomMLP("plain_relu", 5), "tanh": RandomMLP("tanh", 80),
}  # fmt: skip


@pytest.mark.parametrize("dimension", [16, 64])
@pytest.mark.parametrize("kind", NOISES)
def test_networks_and_the_chain_have_the_law_of_written_out_networks(kind, dimension):
    """KS on eight observables of four tokens after four layers of step 1, 1500 samples.

    Half of beta and heads that are averaged, or another activation, are rejected. At the level
    1.2e-4 a shift of 0.14 standard deviations is seen half of the time.
    """
    noise, step = NOISES[kind], 1.0
    start = torch.from_numpy(START).expand(1500, -1, -1)
    known = written_out(noise, dimension, step, 4, 1500, seed=7)

    def chain(noise, beta=BETA, sigma=1.0):
        run = noisy_chain(
            SphereAttention(beta), start, dimension, sigma, step, 4, centred=True, noise=noise
        )
        return run["V"].values[-1]

    network = sphere_network(
        SphereAttention(BETA), pad(start, (0, dimension - 4)), step, 4,
        sigma=1.0, centred=True, noise=noise, seed=1,
    )["V"].values[-1]  # fmt: skip
    assert same_law(network, known)
    assert same_law(chain(noise), known)
    if isinstance(noise, RandomHeads):
        assert not same_law(chain(noise, beta=0.5 * BETA), known)
        if noise.heads > 1:
            assert not same_law(chain(noise, sigma=noise.heads**-0.5), known)
    else:
        assert not same_law(chain(RandomMLP("silu", noise.width)), known)


def test_the_drift_of_attention_stays():
    """KS as above, with ReLU's noise and Q = K = V = I, against a chain without that drift."""
    start, noise = torch.from_numpy(START).expand(1500, -1, -1), RandomMLP("plain_relu", 5)
    known = written_out(noise, 16, 0.25, 4, 1500, seed=7, centred=False)
    for centred in (False, True):
        run = noisy_chain(
            SphereAttention(BETA), start, 16, 1.0, 0.25, 4, centred=centred, noise=noise
        )
        assert same_law(run["V"].values[-1], known) != centred


@pytest.mark.parametrize("name", ["plain_relu", "tanh", "gelu"])
def test_infinitely_many_hidden_units_are_the_limit_of_many(name):
    """KS as above, networks of infinite width against chains of width 2000, and of width 5."""
    start = torch.from_numpy(START).expand(1500, -1, -1)
    network = sphere_network(
        SphereAttention(BETA), pad(start, (0, 12)), 1.0, 4,
        sigma=1.0, centred=True, noise=RandomMLP(name), seed=1,
    )["V"].values[-1]  # fmt: skip
    for width, same in ((None, True), (2000, True), (5, False)):
        run = noisy_chain(
            SphereAttention(BETA), start, 16, 1.0, 1.0, 4,
            centred=True, noise=RandomMLP(name, width),
        )  # fmt: skip
        assert same_law(run["V"].values[-1], network) == same


def given_product(matrices):
    """A product with matrices (samples, r, columns) in turn."""
    left = list(matrices)
    return lambda x, columns: x @ left.pop(0)[..., : x.shape[-1], :columns]


@pytest.mark.parametrize("width", [None, 2])
def test_the_root_of_heads_is_that_of_their_mean(width):
    """L L^T = (1/H) sum_h w_h R w_h^T from the matrices, to rounding; at beta = 0 the mean of R."""
    matrices = torch.from_numpy(np.random.default_rng(0).standard_normal((6, 4, 4)))
    x, total = torch.from_numpy(START), np.zeros((4, 4))
    heads, first = RandomHeads(3, width), iter(matrices.numpy())
    for _ in range(3):
        if width is None:
            scores = START @ next(first) @ START.T
        else:
            q, k = (START @ next(first)[:, :width] for _ in range(2))
            scores = q @ k.T / math.sqrt(width)
        w = softmax(BETA * scores)
        total += w @ START @ START.T @ w.T / 3
    root = heads.root(x, given_product(matrices), SphereAttention(BETA).weights)
    np.testing.assert_allclose(root @ root.mT, total, atol=1e-14)
    flat = heads.root(x, given_product(matrices), SphereAttention(0.0).weights)
    np.testing.assert_allclose(flat @ flat.mT, np.full((4, 4), GRAM.mean()), atol=1e-14)
    assert np.abs(total - GRAM.mean().numpy()).max() > 0.1


@pytest.mark.parametrize("width", [1, 2, 30])
def test_scores_have_the_standard_deviation_one(width):
    """E s_ij s_kl = R_ik R_jl within 5 standard errors of 40,000 scores, for every key width.

    Without the division by sqrt k they would be k times as large.
    """
    rng = np.random.default_rng(1)
    x, caught = torch.from_numpy(START).expand(40_000, -1, -1), []

    def weights(scores):
        caught.append(scores.numpy())
        return scores

    def product(x, columns):
        return x @ torch.from_numpy(rng.standard_normal((len(x), x.shape[-1], columns)))

    RandomHeads(1, width).root(x, product, weights)
    products = caught[0][:, :, :, None, None] * caught[0][:, None, None, :, :]
    known = np.einsum("ik,jl->ijkl", GRAM, GRAM)
    error = products.std(0) / 200.0
    assert (np.abs(products.mean(0) - known) < 5.0 * error).all()
    assert (np.abs(products.mean(0) - 2.0 * known) > 5.0 * error).any()


def mean_square(noise, samples=20_000):
    """The mean of S from START, of networks with all of their matrices."""
    x = np.tile(START, (samples, 1, 1))
    z = hidden(noise, x, np.random.default_rng(3))
    return torch.from_numpy((z @ z.swapaxes(1, 2)).mean(0))


def one_step(noise, samples=40_000, step=0.01):
    """Change of the cosines (samples, 3) in one step of the chain."""
    start = torch.from_numpy(START).expand(samples, -1, -1)
    run = noisy_chain(SphereAttention(BETA), start, 16, 1.0, step, 1, centred=True, noise=noise)
    return (run["V"].values[-1] - GRAM.numpy())[:, *PAIRS]


def scores(moved, drift, bracket, step=0.01):
    """Standard errors between the moments of such changes, and a drift and a bracket."""
    known = drift.numpy()[PAIRS], bracket.numpy()[*PAIRS][:, *PAIRS]
    values = moved / step, moved[:, :, None] * moved[:, None] / step
    return [
        np.abs((sample.mean(0) - value) / sample.std(0) * math.sqrt(len(moved))).max()
        for sample, value in zip(values, known, strict=True)
    ]


@pytest.mark.parametrize("kind", [*NOISES, "infinite ReLU", "infinite tanh"])
def test_a_small_step_has_the_drift_and_bracket_of_the_mean_of_s(kind):
    """Within 4.5 standard errors (27 numbers); neither heads nor hidden width matter.

    The mean of S is kappa for MLPs; for heads it is that of written-out weights. Weights of
    Q = K = I, or tanh for ReLU and ReLU for tanh, are more than 5 away in both.
    """
    name = {"ReLU": "plain_relu", "tanh": "tanh"}.get(kind.removeprefix("infinite "))
    noise = NOISES[kind] if kind in NOISES else RandomMLP(name)
    attention = SphereAttention(BETA)
    if name is None:
        s = mean_square(noise)
        good = noise_drift(GRAM, s, 16), noise_bracket(GRAM, s, 16)
        other = attention.gram_field(GRAM, 1.0, 16, True), attention.gram_bracket(GRAM, 1.0, 16)
    else:
        wrong = RandomMLP("plain_relu" if name == "tanh" else "tanh")
        good, other = (
            (
                attention.gram_field(GRAM, 1.0, 16, True, which),
                attention.gram_bracket(GRAM, 1.0, 16, which),
            )
            for which in (noise, wrong)
        )
    moved = one_step(noise)
    assert max(scores(moved, *good)) < 4.5
    assert min(scores(moved, *other)) > 5.0


def test_samples_do_not_depend_on_how_many_there_are():
    """Of any chunk; wide layers make chunks smaller."""
    for noise in (RandomHeads(2, 300), RandomMLP("plain_relu", 5000), RandomMLP("tanh")):
        for count in (3, 40):
            start = uniform_start(3, 10, count, reduced=False)
            runs = (
                noisy_chain(SphereAttention(1.0), start, 10, 1.0, 0.5, 3, noise=noise),
                sphere_network(SphereAttention(1.0), start, 0.5, 3, sigma=1.0, noise=noise),
            )
            if count == 3:
                few = [run["V"].values for run in runs]
        for v, run in zip(few, runs, strict=True):
            np.testing.assert_allclose(v, run["V"].values[:, :3], atol=1e-12)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("heads", lambda: RandomHeads(0)), ("heads", lambda: RandomHeads(32_767)),
        ("noise", lambda: SphereAttention(1.0).gram_field(GRAM, 1.0, 4, noise="tanh")),
        ("noise", lambda: SphereAttention(1.0).gram_bracket(GRAM, 1.0, 4, "tanh")),
        ("centred", lambda: SphereAttention(1.0).gram_field(GRAM, 1.0, 4, "yes")),
        ("key_width", lambda: RandomHeads(1, 0)),
        ("width", lambda: RandomMLP("tanh", 0)), ("width", lambda: RandomMLP("tanh", 2.5)),
        ("activation", lambda: RandomMLP("relu")), ("activation", lambda: RandomMLP("tan")),
        ("activation", lambda: RandomMLP(KINK)),
        ("activation", lambda: RandomMLP(KINK, 3).kernel(GRAM)),
        ("noise", lambda: SphereAttention(1.0).gram_field(GRAM, 1.0, 4, noise=RandomHeads())),
        ("noise", lambda: SphereAttention(1.0).gram_bracket(GRAM, 1.0, 4, RandomHeads())),
        ("noise", lambda: two_tokens(SphereAttention(1.0), 4, 1.0, [0.0], noise=RandomHeads())),
        (
            "sigma",
            lambda: sphere_network(
                SphereAttention(1.0), torch.from_numpy(START)[None], 0.1, 2, noise=RandomHeads()
            ),
        ),
    ],
)  # fmt: skip
def test_bad_input_is_named(name, make):
    """One sentence that starts with the argument; a rough activation of finite width runs."""
    with pytest.raises((ValueError, TypeError), match=rf"^{name} must be|two_tokens.*{name}"):
        make()
    start = torch.from_numpy(START)[None]
    run = noisy_chain(SphereAttention(1.0), start, 4, 1.0, 0.1, 2, noise=RandomMLP(KINK, 3))
    assert np.isfinite(run["V"]).all()


def test_chunks_hold_the_outputs_of_all_heads():
    """H r columns of a token, or those of the queries; what is multiplied has no more entries."""
    x, largest = uniform_start(3, 10, 2, reduced=False), []

    def product(x, columns):
        largest.append(max(x.shape[-1], columns))
        return x @ x.new_zeros(x.shape[-1], columns)

    for heads in (RandomHeads(5), RandomHeads(5, 2), RandomHeads(2, 300)):
        root = heads.root(x, product, SphereAttention(1.0).weights)
        assert heads.columns(10) == max(*largest, root.shape[-1])
        largest.clear()
    assert RandomMLP("tanh", 7).columns(10) == 7


def test_the_most_heads_leave_random_numbers_for_the_chain():
    """Two slots a head, then a Gaussian and a Wishart matrix of the chain; not one head more."""
    RandomHeads(_MOST_HEADS)
    for heads, enough in ((_MOST_HEADS, True), (_MOST_HEADS + 1, False)):
        draws = Draws(stream_key(0, "sphere"), torch.arange(1), 0)
        draws._next = 2 * heads
        with nullcontext() if enough else pytest.raises(RuntimeError, match="in slot 65536"):
            draws.normal(2, 2)
            draws.wishart_factor(2, 8)


def test_weights_of_unbounded_scores_that_overflow_are_an_error():
    """USA with random heads: beta = 600 times a normal score."""
    start = uniform_start(3, 4, 4, reduced=False)
    with pytest.raises(FloatingPointError, match="not finite"):
        sphere_network(
            SphereAttention(600.0, False), start, 0.1, 5, sigma=1.0, noise=RandomHeads(4)
        )
