"""Eight attentions whose SDE is derived from their branch: closed forms, explosions.

With scores S, E[S_ab S_cd] = Q_ac K_bd / tau0^2, a branch (I + A) X W_V / sqrt n has A = A_1 + A_2
of degrees 1 and 2 in S, and V the drift gamma^2 (E[A_1 V A_1^T] + E A_2 V + V E A_2^T).
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import special

import shaped_attention as sa
from figures.blocks.attentions import EIGHT, Differential, Linear, Sigmoid
from shaped_attention.theory.moments import linear_diffusion

GAMMA, TAU0 = 0.6, 0.7
MU, SCALE = 0.6, 0.5
BEFORE, AFTER = np.array([[1.0, 0.5], [-0.3, 0.8]]), np.array([[1.0, 0.3], [0.3, 1.0]])
ATTENTION = GAMMA**2 * (2.0 - GAMMA**2)


def first_of(v, query, key, centre):
    """E[A_1 V A_1^T] and the noise of A_1 V, for A_1 = S `centre`."""
    mean = query * np.trace(centre @ key @ centre @ v) / TAU0**2
    noise = np.einsum("ac,bd->abcd", query, v @ centre @ key @ centre @ v) / TAU0**2
    return mean, noise


def softmax_of(v, query, key):
    """The same for A_1 = S (I - 1 1^T / m) / m, and E A_2 V + V E A_2^T."""
    m = len(v)
    centre = np.eye(m) - 1.0 / m
    apart = np.diag(centre @ key @ centre)
    second = np.outer(np.diag(query), apart - apart.mean()) / (2.0 * m * TAU0**2)
    return *first_of(v, query, key, centre / m), second @ v + v @ second.T


def formula(name, v):
    """Rate k, drift without gamma^2, noise of A_1 V, by hand."""
    m, d = len(v), np.diag(v)
    rho = v / np.sqrt(np.outer(d, d))
    first, noise, second = softmax_of(v, v, v)
    if name == "differential":
        both = 1.0 + MU**2  # of two independent scores
        return ATTENTION, both * first + (1.0 - MU) * second, both * noise
    if name == "sigmoid":
        slope, bend = m / (m + 1) ** 2, m * (m - 1) / (m + 1) ** 3
        first, noise = first_of(v, v, v, slope * np.eye(m))
        second = bend / (2.0 * TAU0**2) * np.outer(d, d)
        return ATTENTION, first + second @ v + v @ second, noise
    if name == "talking heads":
        mixed = AFTER @ BEFORE
        of_second = (AFTER @ (BEFORE**2).sum(1)).mean()
        drift = (mixed**2).sum(1).mean() * first + of_second * second
        return 2.0 * GAMMA**2, drift, (mixed.mean(0) ** 2).sum() * noise
    if name == "latent":
        # The Gram matrix of n / 2 columns of a latent has twice the noise of that of n.
        return ATTENTION + 2.0 * GAMMA**4, first + second, noise
    if name == "QK-norm":
        first, noise, second = softmax_of(v, rho, rho)
        return ATTENTION, first + second, noise
    if name == "gated":
        return 2.0 * GAMMA**2, first + second + v * v / (4.0 * SCALE**2), noise
    scores = v if name == "linear" else rho
    return ATTENTION, *first_of(v, scores, scores, np.eye(m) / m)


def moments(name, v):
    """Drift and diffusion, of the entries on and below the diagonal."""
    k, drift, noise = formula(name, v)
    noise = noise + noise.transpose(1, 0, 2, 3)
    noise = noise + noise.transpose(0, 1, 3, 2)
    diffusion = k * linear_diffusion(torch.tensor(v)).numpy() + GAMMA**4 * noise
    i, j = np.tril_indices(len(v))
    return GAMMA**2 * drift, diffusion[i, j][:, i, j]


@pytest.mark.parametrize("tokens", [1, 2, 4])
@pytest.mark.parametrize("name", EIGHT)
def test_drift_and_diffusion_are_the_formulas_by_hand(name, tokens):
    """To 1e-10 of the largest entry (or 0.1); for two tokens or more all others are 1 % off."""
    x = np.random.default_rng(tokens).normal(size=(tokens, tokens + 1))
    v = x @ x.T / tokens + 0.1 * np.eye(tokens)
    block = EIGHT[name](GAMMA, TAU0)
    found = sa.drift(block, v), sa.diffusion(block, v)

    def off(other):
        pairs = zip(found, moments(other, v), strict=True)
        return max(np.abs(x - y).max() / max(np.abs(x).max(), 0.1) for x, y in pairs)

    assert off(name) < 1e-10
    if tokens > 1:
        assert all(off(other) > 1e-2 for other in EIGHT if other != name)


def beta_law(alpha, delta, k, u0):
    """P(explosion) of du = alpha u^3 dt + sqrt(2 k u^2 + delta u^4) dB; 0 if 2 alpha <= delta."""
    z = delta * u0**2 / (2.0 * k + delta * u0**2)
    return special.betainc(0.5, alpha / delta - 0.5, z) if 2.0 * alpha > delta else 0.0


@pytest.mark.parametrize("gamma", [0.4, 0.6, 0.8])
def test_explosions_have_their_law_by_hand(gamma):
    """Linear and sigmoid attention of one token, differential of two; none if gamma^2 >= 1 / 2.

    A sigmoid of one token has the slope 1 / 4, so that it is linear attention at 4 tau0.
    """
    k, u0 = gamma**2 * (2.0 - gamma**2), 1.3
    linear = (gamma / TAU0) ** 2, (2.0 * gamma**2 / TAU0) ** 2
    both = 1.0 + MU**2
    two = both * gamma**2 / (16.0 * TAU0**2), both * gamma**4 / (4.0 * TAU0**2)
    cases = {
        (Linear, 1): linear,
        (Sigmoid, 1): tuple(x / 16.0 for x in linear),
        (Differential, 2): two,
    }
    found = {}
    for (kind, tokens), (alpha, delta) in cases.items():
        law = sa.explosion_law(kind(gamma, TAU0), u0 / tokens * np.eye(tokens))
        c = law.coefficients
        assert (c.alpha, c.delta, c.k, c.mu) == pytest.approx((alpha, delta, k, 0.0), abs=1e-10)
        found[kind] = law.probability()
        assert found[kind] == pytest.approx(beta_law(alpha, delta, k, u0), rel=1e-9)
    assert (found[Linear] > 1.1 * found[Sigmoid]) == (gamma**2 < 0.5)
