"""Symbols of the parameters, the same in all modules."""

from __future__ import annotations

from sympy import Symbol

GAMMA = Symbol("gamma", positive=True)
"""The weight of a branch; the skip connection has the weight lambda, lambda^2 = 1 - gamma^2."""

TAU = Symbol("tau_0", positive=True)
"""The temperature tau_0 in tau = tau_0 sqrt(n n_k)."""
