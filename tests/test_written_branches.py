"""Limits of branches written for the test: exact values, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

import shaped_attention as sa
from figures.blocks.attentions import centred, scores
from shaped_attention.blocks.activations import of_entries
from shaped_attention.numerics.primitives import (
    by_mean_square,
    constant,
    exp,
    leaky,
    row_squares,
    sqrt,
    tanh,
)
from tests import new_attentions as new
from tests.test_derived_limits import random_covariance


def branch_of(function):
    """Return a block of which the function is the branch."""

    @dataclass(frozen=True)
    class Given(sa.Block):
        gamma: float = 0.6
        tau0: float = 0.7

        def branch(self, p, tokens, project):
            return function(p, tokens, project)

    return Given()


def made(project, x, *columns):
    """Return new rows of entries of order 1."""
    return project(x, *(columns or x.shape[-1:])) / x.shape[-1] ** 0.5


def hidden(function):
    """Return a network with hidden units."""
    return lambda p, t, pr: made(pr, function(made(pr, t), t.shape[-1]))


def attention(weights):
    """Return values plus a function of tokens and products on the values."""

    def branch(p, t, pr):
        values = made(pr, t)
        return values + weights(p, t, pr) @ values

    return branch


def logits(p, t, pr, size=None, prepared=lambda x: x):
    """Return scores of order 1 / sqrt n of queries and keys."""
    q, k = (prepared(made(pr, t, size or t.shape[-1])) for _ in range(2))
    return q @ k.mT / (p.tau0 * (q.shape[-1] * t.shape[-1]) ** 0.5)


def less_means(x):
    """Return rows less their means."""
    return x - x.mean(-1, keepdim=True)


def test_products_of_rows_with_themselves():
    """Isserlis: E x_a^3 x_b = 3 V_aa V_ab, E x_a^2 x_b^2 = V_aa V_bb + 2 V_ab^2."""
    v = sa.equicorrelated(2, 0.3)
    cube = branch_of(hidden(lambda x, n: x + 0.3 * (x * x * x) / n))
    np.testing.assert_allclose(sa.drift(cube, v), 0.36 * 2.0 * 0.3 * 3.0 * v, atol=1e-12)
    square = branch_of(hidden(lambda x, n: x + 0.3 * (x * x) / n**0.5))
    gram = 1.0 + 2.0 * v * v
    np.testing.assert_allclose(sa.drift(square, v), 0.36 * 0.09 * gram, atol=1e-12)


def test_noise_of_lengths_is_symmetric():
    """Cov of gamma^2 (s_aa + s_bb) V_ab / tau_0, Cov(s_aa, s_bb) = 2 V_ab^2, exactly."""
    v, (i, j) = random_covariance(3, np.random.default_rng(2))[0].numpy(), np.tril_indices(3)
    pairs = [(a, b) for a in range(3) for b in range(a + 1)]
    both = np.array([np.eye(3)[a] + np.eye(3)[b] for a, b in pairs])
    expected = both @ (2.0 * v * v) @ both.T * np.outer(v[i, j], v[i, j]) * (0.6**2 / 0.7) ** 2
    found = sa.diffusion(new.Lengths(0.6, 0.7), v) - sa.diffusion(new.Lengths(0.6, 1e6), v)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_scores_of_the_values_they_act_on():
    """b = v M, M = 1 + u^T u / (n tau_0): the drift is gamma^2 V (tr M M^T - n), in the mean."""
    v = random_covariance(3, np.random.default_rng(3))[0].numpy()
    size = 2.0 * np.trace(v) / 0.7 + np.trace(v @ v) / 0.7**2
    found = sa.drift(new.ScoredValues(0.6, 0.7), v)
    np.testing.assert_allclose(found, 0.36 * size * v, rtol=1e-12)


def test_functions_of_entries_at_large_variances():
    """h + (e^(h/2) + e^(-h/2)) / sqrt n: 4 e^((V_aa + V_bb) / 8) cosh(V_ab / 4), to 1e-9."""

    def bent(x, n):
        return x + of_entries(lambda y: exp(0.5 * y) + exp(-0.5 * y), x) / n**0.5

    for scale in (1.0, 16.0):
        v = scale * np.array([[1.3, 0.4], [0.4, 0.9]])
        sums = np.add.outer(np.diag(v), np.diag(v))
        expected = 0.36 * 4.0 * np.exp(sums / 8.0) * np.cosh(v / 4.0)
        np.testing.assert_allclose(sa.drift(branch_of(hidden(bent)), v), expected, rtol=1e-9)


def without_means(p, t, project):
    """Return linear values of tokens less their means."""
    return made(project, less_means(t))


def after_layer_norm(p, t, project):
    """Return the branch of `UnitRows` after LayerNorm in place of RMSNorm."""
    n = t.shape[-1]
    unit = less_means(t) / sqrt(row_squares(less_means(t)) / n)
    values = made(project, unit)
    weights = centred(scores(p, unit, project, n), np.tri(t.shape[-2], dtype=bool))
    return (values + weights @ values) * sqrt(row_squares(t) / n)


def test_rows_less_their_means():
    """V decays with gamma^2; LayerNorm is RMSNorm."""
    v, block = sa.equicorrelated(3, 0.3), branch_of(without_means)
    np.testing.assert_allclose(sa.drift(block, v), -0.36 * v, atol=1e-14)
    one = branch_of(lambda p, t, pr: attention(lambda p, t, pr: centred(logits(p, t, pr)))(
        p, less_means(t), pr
    ))  # fmt: skip
    assert sa.drift(one, np.array([[1.5]]))[0, 0] == pytest.approx(-0.36 * 1.5, rel=1e-12)
    ours, rms = branch_of(after_layer_norm), new.UnitRows(0.6, 0.7)
    for of in (sa.drift, sa.diffusion):
        np.testing.assert_allclose(of(ours, v), of(rms, v), atol=1e-13)


def sandwiched(p, t, pr):
    """Return A B A with a matrix B between the same weights."""
    m = t.shape[-2]
    weights = centred(logits(p, t, pr), np.tri(m, dtype=bool))
    return weights @ constant(np.random.default_rng(0).normal(size=(m, m)), like=t) @ weights


def with_and_without_a_norm(p, t, pr):
    """Return scores of the same queries and keys with a norm and without."""
    q, k = (made(pr, t, 8) for _ in range(2))
    both = q @ k.mT + by_mean_square(q, 0.0) @ by_mean_square(k, 0.0).mT
    return centred(both / (p.tau0 * (8 * t.shape[-1]) ** 0.5))


REFUSED = {
    "order 1, not 1/n": lambda p, t, pr: 0.5 * t,
    "not a multiple of the tokens": attention(lambda p, t, pr: centred(logits(p, t, pr)) + 0.3),
    "too small a power of n": attention(
        lambda p, t, pr: centred(t.shape[-1] ** 0.5 * logits(p, t, pr))
    ),
    "over a fixed number of columns": attention(
        lambda p, t, pr: centred(logits(p, t, pr, 2, lambda x: x / sqrt(row_squares(x))))
    ),
    "with and without a norm": attention(with_and_without_a_norm),
    "a matrix between them": attention(sandwiched),
    "groups with different covariances": lambda p, t, pr: torch.cat(
        [w**0.5 * made(pr, t, t.shape[-1] // 2) for w in (1.9, 0.1)], dim=-1
    ),
    "single entries of tokens": lambda p, t, pr: made(pr, t) + tanh(t) / t.shape[-1],
    "order 1 / sqrt n": hidden(lambda x, n: x + tanh(x) / n**0.5),
    "must be smooth there": hidden(
        lambda x, n: x + of_entries(lambda y: leaky(y, 1.0, -1.0), x / n**0.5)
    ),
    "a gate must tend": lambda p, t, pr: pr(t, t.shape[-1]) * made(pr, t) / t.shape[-1] ** 0.5,
    "means of rows follow from V only": lambda p, t, pr: (
        made(pr, t) - 0.5 * t.mean(-1, keepdim=True)
    ),
    "sort of rows": lambda p, t, pr: torch.sort(pr(t, t.shape[-1]))[0],
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_has_no_limit_says_why(reason):
    """The reason ends the sentence of `check_limit`."""
    with pytest.raises(ValueError, match=f"which has no limit.*{reason}"):
        sa.drift(branch_of(REFUSED[reason]), sa.equicorrelated(3, 0.2))
