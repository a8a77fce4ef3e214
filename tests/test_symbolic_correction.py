"""The 1/n correction of the attention drift: the closed form at m = 2, and real weights."""

from __future__ import annotations

import numpy as np
import pytest
from sympy import Matrix, Symbol

import symbolic as sy

V = np.array([[1.2, -0.3], [-0.3, 0.9]])
GAMMA, TAU = 0.8, 0.9


def test_the_closed_form_at_two_tokens() -> None:
    """b_1,ab = -(1 + 2/n_k) gamma^2 / (64 tau_0^4) V_ab (V_aa + V_bb) D^3."""
    correction = sy.drift_correction(sy.ShapedAttention(key_size="n_k"), 2)
    v = correction.algebra.v_expressions
    gamma, tau, keys = (Symbol(name, positive=True) for name in ("gamma", "tau_0", "n_k"))
    spread = v[0, 0] - 2 * v[0, 1] + v[1, 1]
    expected = Matrix(
        2,
        2,
        lambda a, b: (
            -(1 + 2 / keys) * gamma**2 / (64 * tau**4) * v[a, b] * (v[a, a] + v[b, b]) * spread**3
        ),
    )
    assert (correction.drift - expected).expand() == Matrix.zeros(2, 2)


def estimated_correction(
    v: np.ndarray, width: int, key_size: int, samples: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error of n (n E[V' - V] - b) over layers with matrices W_Q and W_K.

    Tokens sqrt(n) (F, 0), F F^T = V, see the first m rows of the matrices only; the others are not
    drawn. The mean over W_V is exact, V' -> lambda^2 V + gamma^2 A V A^T. Two devices lower the
    noise and leave the mean: each W_Q is used with both signs, which cancels the odd terms; and
    what the Taylor polynomial of A of degree two gives at order 1/n, whose mean is b / n exactly,
    is subtracted draw by draw (a control variate).
    """
    generator = np.random.default_rng(seed)
    m = len(v)
    factor = np.linalg.cholesky(v)
    draws = []
    for _ in range(samples // 2000):
        query, key = factor @ generator.standard_normal((2, 2000, m, key_size))
        scores = query @ key.swapaxes(1, 2) / (TAU * np.sqrt(width * key_size))
        centred = scores - scores.mean(-1, keepdims=True)
        first = centred / m
        second = (centred**2 - (centred**2).mean(-1, keepdims=True)) / (2 * m)
        moved = second @ v
        increment = -v - first @ v @ first.swapaxes(1, 2) - moved - moved.swapaxes(1, 2)
        for sign in (1, -1):
            weights = np.exp(sign * scores)
            attention = np.eye(m) + weights / weights.sum(-1, keepdims=True) - 1 / m
            increment = increment + attention @ v @ attention.swapaxes(1, 2) / 2
        draws.append(GAMMA**2 * width**2 * increment)
    values = np.concatenate(draws)
    return values.mean(0), values.std(0) / np.sqrt(len(values))


@pytest.mark.parametrize("tokens", [2, 3])
def test_against_layers_with_weights(tokens: int) -> None:
    """n_k = 4: b_1 from layers of widths 200 and 400, extrapolated; within 4 standard errors.

    The extrapolation 2 c(400) - c(200) removes the next order; the one after it is below the
    noise. Power: b_1 without its part in 1 / n_k, or 1.25 times as large, is more than 6 standard
    errors off. Three tokens, unlike two, see the terms with A_2, A_3 and A_4.
    """
    keys = 4
    v = V if tokens == 2 else np.array([[1.1, -0.2, 0.3], [-0.2, 0.9, 0.1], [0.3, 0.1, 1.3]])
    wide, wide_error = estimated_correction(v, 400, keys, samples=600_000, seed=3)
    narrow, narrow_error = estimated_correction(v, 200, keys, samples=600_000, seed=4)
    estimate = 2 * wide - narrow
    error = np.sqrt(4 * wide_error**2 + narrow_error**2)
    values = {"gamma": GAMMA, "tau_0": TAU}
    block = sy.ShapedAttention(key_size=keys)
    finite = sy.drift_correction(block, tokens).to_numpy(**values)(v)
    infinite = sy.drift_correction(sy.ShapedAttention(), tokens).to_numpy(**values)(v)

    def distance(prediction: np.ndarray) -> float:
        return float(np.abs((estimate - prediction) / error).max())

    assert distance(finite) < 4, (estimate, finite, error)
    assert distance(infinite) > 6, distance(infinite)
    assert distance(1.25 * finite) > 6, distance(1.25 * finite)


def test_the_first_token_under_a_mask_has_no_correction() -> None:
    """It attends to itself alone."""
    correction = sy.drift_correction(sy.ShapedAttention(mask="causal"), 3).drift
    assert correction[0, 0] == 0
    assert correction[1, 1] != 0
    assert correction == correction.T
