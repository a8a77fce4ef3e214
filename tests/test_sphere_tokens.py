"""Token-space self-attention: general matrices, heads, time, MLP."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from shaped_attention.sphere import (
    TokenAttention,
    sphere_flow,
)
from tests.refusals import refused
from tests.sphere_tokens import (
    direct_tokens,
    gradient_gap,
    heads_of,
    matrices,
    moved_one_by_one,
    random_tokens,
)


@pytest.mark.parametrize(("normalised", "causal"), [(True, True), (False, False)])
def test_heads_and_mlp_are_those_written_out_token_by_token(normalised, causal):
    """To 1e-6, with fewer rows than d and as many, shared matrices and some for each sample.

    K transposed, one head less, no MLP, and the other sample's matrices are further than 1e-3.
    """
    x = random_tokens(4, 3, 2)
    inner, outer, bias = matrices(6, 3, seed=7), matrices(3, 6, seed=8), matrices(6, seed=9)
    i, o, b = (m.numpy() for m in (inner, outer, bias))

    def mlp(y):
        return o @ np.maximum(i @ y + b, 0.0)

    def perceptron(y):
        return torch.relu(y @ inner.mT + bias) @ outer.mT

    def end(q, k, v, sample, added=mlp):
        heads = heads_of(q, k, v)
        return direct_tokens(
            x[sample].numpy(),
            lambda y, _t: moved_one_by_one(y, 1.5, heads, normalised, causal, added),
            0.4,
        )

    for shape in ((2, 2, 3), (2, 3, 3), (2, 2, 3, 3)):
        q, k = matrices(*shape, seed=1), matrices(*shape, seed=2)
        v = matrices(*shape[:-2], 3, 3, seed=3)
        attention = TokenAttention(1.5, q, k, v, normalised, causal, perceptron)
        flow = sphere_flow(attention, x, [0.2, 0.4], tolerance=1e-7, keep_tokens=True)
        for sample in (0, 1):
            own = [m[sample] if m.ndim == 4 else m for m in (q, k, v)]
            known = end(*own, sample)
            np.testing.assert_allclose(flow["tokens"][-1, sample], known, atol=1e-6)
            np.testing.assert_allclose(flow["V"][-1, sample], known @ known.T, atol=1e-6)
    wrong = [
        end(own[0], own[1].mT, own[2], 1),
        end(*(m[:1] for m in own), 1),
        end(*own, 1, None),
        end(q[0], k[0], v[0], 1),
    ]
    assert min(np.abs(known - other).max() for other in wrong) > 1e-3


def test_matrices_may_depend_on_time():
    """Every sample at its own time, to 1e-6; the matrices of time 0 are further than 1e-2."""
    x = random_tokens(4, 3, 3, seed=2)
    q, k, v = (matrices(2, 3, 3, seed=s) for s in (1, 2, 3))
    # Another step size in each sample: the second has its tokens close together.
    x[1, 1:] = x[1, :1] + 0.1 * x[1, 1:]
    x = x / x.norm(dim=-1, keepdim=True)

    def turning(matrix):
        return lambda t: torch.cos(3.0 * t)[:, None, None, None] * matrix

    def moved(y, t):
        return moved_one_by_one(y, 3.0, heads_of(q * math.cos(3.0 * t), k, v * math.cos(3.0 * t)))

    attention = TokenAttention(3.0, turning(q), k, turning(v))
    found = sphere_flow(attention, x, [1.0], tolerance=1e-7, keep_tokens=True, chunk=2)["tokens"][
        -1
    ]
    for sample in range(3):
        known = direct_tokens(x[sample].numpy(), moved, 1.0)
        np.testing.assert_allclose(found[sample], known, atol=1e-6)
    still = sphere_flow(TokenAttention(3.0, q, k, v), x, [1.0], keep_tokens=True)["tokens"][-1]
    assert np.abs(still - found).max() > 1e-2


@pytest.mark.parametrize("normalised", [True, False])
def test_it_is_a_gradient_flow_for_symmetric_forms_only(normalised):
    """dE/dt = (1/N) sum |dx_i/dt|^2 to 1e-13 for V = Q^T K symmetric, for USA also with heads.

    V = Q^T K alone is not enough, nor is a symmetric Q^T K with another V: gaps above 1e-2.
    """
    x = random_tokens(8, 10, 20, seed=3)

    def ginibre(seed):
        return matrices(20, 1, 10, 10, seed=seed)

    w = (ginibre(1) + ginibre(1).mT) / math.sqrt(2.0)
    other = (ginibre(2) + ginibre(2).mT) / math.sqrt(2.0)
    q, k = ginibre(3), ginibre(4)
    attentions = {
        "symmetric": TokenAttention(2.0, None, w, w, normalised),
        "general": TokenAttention(2.0, q, k, q.mT @ k, normalised),
        "another value": TokenAttention(2.0, None, w, other @ other, normalised),
    }
    assert gradient_gap(attentions["symmetric"], x) < 1e-13
    assert gradient_gap(attentions["general"], x) > 1e-2
    assert gradient_gap(attentions["another value"], x) > 1e-2
    if not normalised:
        w = matrices(3, 10, 10, seed=4)
        w = w + w.mT
        assert gradient_gap(TokenAttention(1.0, None, w, w, False), x) < 1e-13
        assert gradient_gap(TokenAttention(1.0, None, w, w[:1], False), x) > 1e-2


START = random_tokens(3, 2, 2)
ONES = torch.ones(1, 2)


def check(*query_and_key, **value):
    TokenAttention(1.0, *query_and_key, **value).check_start(START)


test_bad_input = refused(
    (lambda: TokenAttention(1.0, torch.ones(2)), r"query must be a tensor of shape \(k, d\)"),
    (lambda: check(value=ONES), "value must be a matrix with as many rows as columns; got 1"),
    (lambda: check(ONES, torch.eye(2)), "query must be a matrix with as many rows as key"),
    (lambda: check(torch.eye(3)), "query must have shape .*reduced=False"),
    (lambda: check(value=lambda t: torch.ones(3, 1, 2, 2)), r"\(1 or 2, H, k, 2\)"),
)
