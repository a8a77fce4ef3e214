"""Oracles of the drift of values and tangents: closed forms, and two copies of the tokens.

U = Z Z^T / n is the covariance of the rows Z = (X, X._1, ..., X._p) of tokens and tangents.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import shaped_attention as sa
from shaped_attention.blocks.tangents import WithTangents


def joint(tokens, tangents, seed=0):
    rows = np.random.default_rng(seed).normal(size=((1 + tangents) * tokens, 20))
    return rows @ rows.T / 20


def blocks_of(u, tokens):
    size = len(u) // tokens
    return u.reshape(size, tokens, size, tokens).swapaxes(1, 2)


def relu_drift(u, m):
    """Phi - U, with the limits of Phi for equal tokens."""
    parts = blocks_of(u, m)
    v, phi = parts[0, 0], parts.copy()
    for a, b in itertools.permutations(range(m), 2):
        area = np.sqrt(v[a, a] * v[b, b] - v[a, b] ** 2)
        rho = v[a, b] / np.sqrt(v[a, a] * v[b, b])
        angle = np.arcsin(rho)
        phi[0, 0, a, b] = area + v[a, b] * angle
        for k in range(1, len(parts)):
            c = parts[0, k]
            phi[0, k, a, b] = angle * c[a, b] + area * c[b, b] / v[b, b]
            phi[k, 0, a, b] = angle * c[b, a] + area * c[a, a] / v[a, a]
            for l in range(1, len(parts)):
                d = parts[0, l]
                mixed = (c[b, a] - v[a, b] * c[a, a] / v[a, a]) * (
                    d[a, b] - v[a, b] * d[b, b] / v[b, b]
                )
                mixed += c[a, a] * d[b, b] * (1 - rho**2)
                phi[k, l, a, b] = angle * parts[k, l, a, b] + mixed / area
        phi[:, :, a, b] *= 2 / np.pi
    return phi.swapaxes(1, 2).reshape(u.shape) - u


def differences(copies, u, m, h=1e-4):
    """The drift of V, C_l and D_kl from that of X + e X._k and X + f X._l, by differences."""
    size = len(u) // m
    found = np.zeros_like(u)
    for k, l in itertools.product(range(size), repeat=2):
        signs = [(1, -1) if x else (0,) for x in (k, l)]
        total = np.zeros((m, m))
        for e, f in itertools.product(*signs):
            eye = np.eye(m, size * m)
            rows = np.concatenate([
                eye + h * e * np.roll(eye, k * m, 1), eye + h * f * np.roll(eye, l * m, 1)
            ])  # fmt: skip
            total += (e or 1) * (f or 1) * sa.drift(copies, rows @ u @ rows.T)[:m, m:]
        scale = (2 * h) ** ((k > 0) + (l > 0))
        found[k * m : (k + 1) * m, l * m : (l + 1) * m] = total / scale
    return found


def test_the_limit_of_a_relu_is_the_closed_form():
    """Near equal entries the kernel of a ReLU rounds to 1e-9."""
    u = joint(3, 2)
    found = sa.drift(WithTangents(sa.ShapedMLP(0.6, c_plus=1.3, c_minus=0.4), 2), u)
    np.testing.assert_allclose(found, 0.6**2 * 0.9**2 / 4 * relu_drift(u, 3), atol=1e-8)


OPTIONS = {"query_bias": 0.7, "heads": 2, "output_projection": True}
COPIES = np.kron(np.eye(2), np.tril(np.ones((2, 2)))).astype(bool)
SMOOTH = sa.ShapedMLP(0.6, activation="gelu", scale=0.7)
GATED = sa.ShapedMLP(0.6, activation="silu", gated=True, scale=0.9, gate_bias=0.5)


def both(options):
    """Attention of two tokens, and of two copies of them."""
    return tuple(sa.ShapedAttention(0.6, mask=x, **options) for x in ("causal", COPIES))


TWICE = {
    "attention": both({}),
    "gate": (GATED, GATED),
    "biases": both(OPTIONS),
    "parallel": tuple(sa.Parallel(x, SMOOTH) for x in both({})),
}


@pytest.mark.parametrize("name", TWICE)
def test_the_limit_is_the_derivative_between_two_copies(name):
    """By differences of the drift of X + e X._k and X + f X._l, without tangents."""
    block, copies = TWICE[name]
    u = joint(2, 2)
    found = sa.drift(WithTangents(block, 2), u)
    np.testing.assert_allclose(differences(copies, u, 2, h=1e-3), found, atol=1e-5)


def test_diffusion_is_that_of_four_copies():
    """A fourth derivative of the diffusion of four copies, each of which sees itself only."""
    u, h, total = joint(2, 1), 0.01, 0.0
    four = sa.ShapedAttention(0.6, 0.8, mask=np.kron(np.eye(4), np.ones((2, 2))).astype(bool))
    index = {pair: i for i, pair in enumerate((a, b) for a in range(8) for b in range(a + 1))}
    for signs in itertools.product((1, -1), repeat=4):
        rows = np.kron(np.ones((4, 1)), np.eye(2, 4))
        rows += np.kron(np.array(signs)[:, None] * h, np.roll(np.eye(2, 4), 2, axis=1))
        sigma = sa.diffusion(four, rows @ u @ rows.T)
        # Cov[d<x_0 of copy 1, x_1 of copy 0>, the same of copies 3 and 2]
        total += np.prod(signs) * sigma[index[3, 0], index[7, 4]]
    derived = sa.diffusion(WithTangents(sa.ShapedAttention(0.6, 0.8), 1), u)
    pairs = [(a, b) for a in range(4) for b in range(a + 1)]
    entry = derived[pairs.index((3, 2)), pairs.index((3, 2))]
    np.testing.assert_allclose(entry, total / (2 * h) ** 4, rtol=1e-5)
