"""Token-space attention written out token by token, for the tests."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.integrate import solve_ivp


def matrices(*shape, seed=0):
    draws = np.random.default_rng(seed).standard_normal(shape)
    return torch.from_numpy(draws / math.sqrt(shape[-1]))


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


def direct_tokens(x, moved, time):
    """Tokens on the sphere moved by ``moved(x, t)``, by an independent integrator."""

    def field(t, flat):
        y = flat.reshape(x.shape)
        step = moved(y, t)
        return np.stack([s - (s @ u) * u for s, u in zip(step, y, strict=True)]).ravel()

    return solved(field, x, time)


def solved(field, x, time):
    found = solve_ivp(field, (0.0, time), np.ravel(x), method="DOP853", rtol=1e-9, atol=1e-10)
    return found.y[:, -1].reshape(x.shape)


def heads_of(q, k, v):
    return [tuple(np.asarray(m) for m in head) for head in zip(q, k, v, strict=True)]


def gradient_gap(attention, x):
    """Largest |dE/dt - (1/N) sum_i c_i |dx_i/dt|^2|, with c = 1 for USA and Z_i / N for SA."""
    x = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(attention.energy(x).sum(), x)
    x = x.detach()
    field = attention.field(x)
    along = (slope * field).sum((1, 2))
    scale = torch.ones(x.shape[:2], dtype=x.dtype)
    if attention.normalised:
        scale = torch.exp(attention.beta * attention.scores(x)[:, 0]).mean(-1)
    return float((along - (scale * field.pow(2).sum(-1)).mean(-1)).abs().max())
