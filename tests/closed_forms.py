"""Drift and diffusion of V in closed form, summed over indices: oracles of derived limits.

With E[S_ab S_cd] = U_ac K_bd r((a - b) - (c - d)) the scores S have softmax weights

    A_1 = w o (S - mu) / tau_0,    A_2 = w o ((S - mu)^2 - mean (S - mu)^2) / (2 tau_0^2),

mu_a = sum_e w_ae S_ae, and V the drift gamma^2 (E[A_1 V A_1^T] + E A_2 V + V E A_2^T).
"""

from __future__ import annotations

import math

import numpy as np
from scipy import integrate

import shaped_attention as sa
from shaped_attention.blocks.activations import derivatives
from shaped_attention.blocks.positions import centre


def attention(block: sa.ShapedAttention, v):
    """Return drift (m, m) and diffusion (m, m, m, m)."""
    m, gamma, heads = len(v), block.gamma, block.heads
    w = np.asarray(centre(block.mask, block.bias(), m))
    moments = _scores(block, v) / block.tau0**2
    # The linear map from S to w o (S - mu), row by row.
    centred = np.einsum("ab,be->abe", w, np.eye(m)) - np.einsum("ab,ae->abe", w, w)
    first = np.einsum("abe,cdf,aecf->abcd", centred, centred, moments)
    apart = np.eye(m)[None] - w[:, None, :]
    squares = np.einsum("abe,abf,aeaf->ab", apart, apart, moments)
    second = 0.5 * w * (squares - (w * squares).sum(1, keepdims=True))
    drift = np.einsum("abcd,bd->ac", first, v) + second @ v + v @ second.T
    moved = np.einsum("abcd,be,df->aecf", first, v, v)
    both = moved + moved.swapaxes(0, 1)
    noise = gamma**4 / heads * (both + both.swapaxes(2, 3))
    rate = gamma**2 * (2.0 - gamma**2)
    if block.output_projection:
        share = block.heads_per_key / (block.value_ratio or 1.0)
        rate = 2.0 * gamma**2 + (share - 1.0) * gamma**4
    return gamma**2 * drift, noise + rate * linear(v)


def _scores(block: sa.ShapedAttention, v):
    """Return E[S_ab S_cd]."""
    m, rope, norm = len(v), block.rope, block.qk_norm
    query, key = v + block.query_bias, v + block.key_bias
    if norm is not None:
        query, key = (_correlations(x, norm.eps) for x in (query, key))
    if norm is not None and block.fixed_keys is not None:
        query, key = (mean_cosine(x, block.fixed_keys) for x in (query, key))
    if rope is None:
        kernel = np.ones((m,) * 4)
    else:
        angles = rope.turning
        if isinstance(angles, float):
            angles = rope.pairs(block.fixed_keys)
        a = np.arange(m)
        apart = np.subtract.outer(np.subtract.outer(a, a), np.subtract.outer(a, a))
        turns = np.cos(np.multiply.outer(np.asarray(angles), apart)).mean(0)
        kernel = rope.share * turns + 1.0 - rope.share
    return np.einsum("ac,bd,abcd->abcd", query, key, kernel)


def _correlations(v, eps: float):
    lengths = np.sqrt(np.diag(v) + eps)
    return v / np.outer(lengths, lengths)


def mean_cosine(rho, size: int):
    """Return the mean cosine of two rows of Gaussian columns, by an integral over a chi-square.

    Given the first row the second has the part rho along it, and size - 1 other columns.
    """

    def of(x: float) -> float:
        if abs(x) > 1.0 - 1e-12:
            return math.copysign(1.0, x)
        # E of z / |z| for z = (x r + s g, s h): r chi(size), h of size - 1 columns.
        s = math.sqrt(1.0 - x * x)
        half = size / 2.0
        constant = math.exp(
            2.0 * math.lgamma(half + 0.5) - math.lgamma(half) - math.lgamma(half + 1.0)
        )
        beta = math.gamma(half + 1.0) / (math.gamma(0.5) * math.gamma(half + 0.5))
        # Euler's integral of 2F1(1/2, 1/2; size/2 + 1; x^2), with t = sin^2 u.
        value, _ = integrate.quad(
            lambda u: 2.0 * math.cos(u) ** size / math.sqrt(1.0 - (x * math.sin(u)) ** 2),
            0.0, math.pi / 2.0, epsabs=1e-14, epsrel=1e-13,
        )  # fmt: skip
        return x * constant * beta * value if s else x

    return np.vectorize(of)(rho)


def mlp(block: sa.ShapedMLP, v):
    """Return drift and diffusion; with relu of Li, Nica and Roy (arXiv 2206.02768)."""
    gamma, variances = block.gamma, np.diag(v)
    outer = np.outer(variances, variances)
    sums = np.add.outer(variances, variances)
    if block.activation == "relu":
        sizes = np.sqrt(outer)
        rho = np.clip(v / sizes, -1.0, 1.0)
        nu = np.sqrt(1.0 - rho**2) - rho * np.arccos(rho)
        drift = (block.c_plus - block.c_minus) ** 2 / (2.0 * math.pi) * nu * sizes
    elif block.gated:
        value, first, second, _ = derivatives(block.phi, block.gate_bias)
        drift = v * ((first / value) ** 2 * (v - 1.0) + 0.5 * second / value * (sums - 2.0))
        drift = drift / block.scale**2
    else:
        _, first, second, third = derivatives(block.phi, 0.0)
        drift = (second / first) ** 2 / 4.0 * (outer + 2.0 * v * v - 3.0 * v)
        drift = (drift + 0.5 * third / first * v * (sums - 2.0)) / block.scale**2
    rate = 2.0 * gamma**2 + gamma**4 * (1.0 / block.hidden_ratio - 1.0)
    return gamma**2 * drift, rate * linear(v)


def linear(v):
    """Return V_ac V_bd + V_ad V_bc, the diffusion of a linear network of unit rate."""
    return np.einsum("ac,bd->abcd", v, v) + np.einsum("ad,bc->abcd", v, v)
