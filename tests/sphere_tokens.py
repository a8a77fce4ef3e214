"""Token-space attention written out token by token, and exact laws, for the tests."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.integrate import solve_ivp
from scipy.special import hyp0f1

from shaped_attention.sphere import given_start, sphere_flow, uniform_start


def matrices(*shape, seed=0):
    draws = np.random.default_rng(seed).standard_normal(shape)
    return torch.from_numpy(draws / math.sqrt(shape[-1]))


def random_tokens(tokens, dimension, samples=1, seed=0):
    return uniform_start(tokens, dimension, samples, seed, reduced=False)


def poisson_radius(times, start):
    """Radius r of the mean field at beta = 0 from a Poisson kernel of radius `start`.

    r' = r (1 - r^2) / 2, Ott and Antonsen's z' = (z - conj(z) z^2) / 2 without rotation (Chaos 18,
    2008).
    """
    return start / np.sqrt(start**2 + (1.0 - start**2) * np.exp(-np.asarray(times)))


def many_token_cosine(times, start):
    """Common cosine of equiangular tokens under SA for N -> infinity: g' = 2 g (1 - g)."""
    return 1.0 / (1.0 + (1.0 / start - 1.0) * np.exp(-2.0 * np.asarray(times)))


def uniform_energy(beta, dimension):
    """Return the energy of the uniform law on S^{d-1}, the smallest of all laws for beta > 0."""
    # Gamma(b) z^{1 - b} I_{b - 1}(2 z) = 0F1(; b; z^2).
    return hyp0f1(0.5 * dimension, 0.25 * beta * beta) / (2.0 * beta)


def polygon_energy(tokens, beta):
    """Energy of a regular N-gon: the smallest of N tokens in d = 2, for beta > 0.

    Cohn and Kumar, "Universally optimal distribution of points on spheres" (J. Amer. Math. Soc. 20,
    2007).
    """
    cosines = np.cos(2.0 * np.pi * np.arange(tokens) / tokens)
    return float(np.exp(beta * cosines).mean() / (2.0 * beta)) if beta else 0.0


def moved_one_by_one(x, beta, heads, normalised=True, causal=False, mlp=None):
    """The unprojected attention, a sum over heads (Q, K, V), tokens and tokens they see."""
    moved = np.zeros_like(x)
    for i in range(len(x)):
        seen = range(i + 1) if causal else range(len(x))
        for q, k, v in heads:
            weights = np.array([math.exp(beta * ((q @ x[i]) @ (k @ x[j]))) for j in seen])
            weights /= weights.sum() if normalised else len(weights)
            for w, j in zip(weights, seen, strict=True):
                moved[i] += w * (v @ x[j])
        if mlp is not None:
            moved[i] += mlp(x[i])
    return moved


def direct_tokens(x, moved, time, method="DOP853"):
    """Tokens on the sphere moved by ``moved(x, t)``, by an independent integrator."""

    def field(t, flat):
        # Off the sphere repulsion would go on away from it.
        y = flat.reshape(x.shape)
        y = y / np.linalg.norm(y, axis=1, keepdims=True)
        step = moved(y, t)
        return np.stack([s - (s @ u) * u for s, u in zip(step, y, strict=True)]).ravel()

    return solved(field, x, time, method)


def direct_gram(x, attention, time, method="DOP853"):
    """The Gram matrix of tokens under a `SphereAttention`, moved one by one in R^d."""
    options = attention.beta, plain_heads(attention, x.shape[1])
    options += attention.normalised, attention.causal
    end = direct_tokens(x, lambda y, _t: moved_one_by_one(y, *options), time, method)
    return end @ end.T


def plain_heads(attention, dimension):
    """The head of a `SphereAttention`: Q = K = I, and V = I or -I."""
    eye = np.eye(dimension)
    return [(eye, eye, -eye if attention.repulsion else eye)]


def solved(field, x, time, method="DOP853"):
    found = solve_ivp(field, (0.0, time), np.ravel(x), method=method, rtol=1e-9, atol=1e-10)
    return found.y[:, -1].reshape(x.shape)


def heads_of(q, k, v):
    return [tuple(np.asarray(m) for m in head) for head in zip(q, k, v, strict=True)]


def two_bumps(angles):
    """A smooth density on the circle without symmetry."""
    return (1.0 + 0.5 * np.cos(angles) + 0.6 * np.cos(2.0 * angles - 1.0)) / (2.0 * math.pi)


def drawn_angles(averages, tokens, samples, seed=0):
    """Independent angles (samples, N) from averages over cells of [-pi, pi), by quantiles."""
    below = np.concatenate([[0.0], np.cumsum(averages)])
    uniform = np.random.default_rng(seed).random((samples, tokens))
    return np.interp(uniform, below / below[-1], np.linspace(-math.pi, math.pi, len(below)))


def particle_angles(attention, angles, times, tolerance):
    """Angles (time, sample, N) of the flow from angles (samples, N)."""
    start = given_start(np.stack([np.cos(angles), np.sin(angles)], axis=-1))
    flow = sphere_flow(attention, start, times, keep_tokens=True, tolerance=tolerance)
    x, y = np.moveaxis(flow["tokens"].values, -1, 0)
    return np.arctan2(y, x)


def gradient_gap(attention, x):
    """Largest |dE/dt - (1/N) sum_i c_i |dx_i/dt|^2|, with c = Z_i / N for SA, 1 otherwise."""
    x = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(attention.energy(x).sum(), x)
    x = x.detach()
    field = attention.field(x)
    along = (slope * field).sum((1, 2))
    scale = torch.ones(x.shape[:2], dtype=x.dtype)
    if attention.normalised is True:
        scale = torch.exp(attention.beta * attention.scores(x)[:, 0]).mean(-1)
    return float((along - (scale * field.pow(2).sum(-1)).mean(-1)).abs().max())
