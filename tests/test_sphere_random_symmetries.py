"""Random weights on the sphere know neither the axes nor equal tokens from each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import pad

from shaped_attention.sphere import (
    RandomHeads,
    RandomMLP,
    SphereAttention,
    given_start,
    noisy_chain,
    sphere_network,
)
from tests.test_sphere_random_weights import BETA, START, given_product, same_law


def test_equal_tokens_stay_equal_and_antipodes_if_phi_is_odd():
    """Cosines to 1e-12, in networks and in the chain; with ReLU the antipode moves."""
    start = given_start([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]).expand(10, -1, -1)
    attention = SphereAttention(1.0)
    for noise in (RandomMLP("tanh"), RandomMLP("tanh", 3), RandomMLP("plain_relu"), RandomHeads(2)):
        for v in (
            noisy_chain(attention, start, 6, 1.0, 0.2, 5, centred=True, noise=noise)["V"].values,
            sphere_network(
                attention, pad(start, (0, 4)), 0.2, 5, sigma=1.0, centred=True, noise=noise
            )["V"].values,
        ):
            np.testing.assert_allclose(v[-1, :, 0, 1], 1.0, atol=1e-12)
            apart = np.abs(v[-1, :, 0, 2] + 1.0)
            if noise == RandomMLP("plain_relu"):
                assert apart.min() > 1e-3
            elif isinstance(noise, RandomMLP):
                assert apart.max() < 1e-12


@pytest.mark.parametrize("kind", ["value", "heads", "keys", "MLP"])
def test_noise_does_not_know_the_axes(kind):
    """Turned tokens with turned weights have the same Gram matrices; with the same weights not.

    x O enters as (x O) (O^T W) = x W: the root is the same, and so is its product with W up to O.
    """
    rng = np.random.default_rng(5)
    turn = torch.from_numpy(np.linalg.qr(rng.standard_normal((4, 4)))[0])
    x, first, last = torch.from_numpy(START), *torch.from_numpy(rng.standard_normal((2, 6, 4, 4)))
    noise = {
        "value": None, "heads": RandomHeads(3), "keys": RandomHeads(3, 2),
        "MLP": RandomMLP("tanh", 4),
    }[kind]  # fmt: skip
    weights = SphereAttention(BETA).weights

    def gram(x, first, last):
        left = (
            weights(x @ x.mT) @ x if noise is None else noise.root(x, given_product(first), weights)
        )
        if isinstance(noise, RandomMLP):
            blocks = left @ last[0]
        else:
            blocks = sum(part @ w for part, w in zip(left.split(4, -1), last, strict=False))
        moved = x + blocks / 2.0
        return moved @ moved.mT

    # Queries without keys have a matrix between features on both sides.
    turned = turn.mT @ first @ (turn if kind == "heads" else torch.eye(4, dtype=torch.float64))
    end = last @ turn if kind == "MLP" else turn.mT @ last @ turn
    torch.testing.assert_close(
        gram(x @ turn, turned, end), gram(x, first, last), atol=1e-13, rtol=0
    )
    assert (gram(x @ turn, first, last) - gram(x, first, last)).abs().max() > 0.1


@pytest.mark.parametrize("noise", [None, RandomHeads(2, 3), RandomMLP("tanh", 20)])
def test_the_law_of_networks_does_not_know_the_axes(noise):
    """KS of 1500 networks from tokens in two systems of axes, d = 6; half of sigma is rejected."""
    turn = torch.from_numpy(np.linalg.qr(np.random.default_rng(8).standard_normal((6, 6)))[0])
    start = pad(torch.from_numpy(START), (0, 2)).expand(1500, -1, -1)

    def run(start, seed, sigma=1.0):
        return sphere_network(
            SphereAttention(BETA), start, 1.0, 3,
            sigma=sigma, centred=True, noise=noise, seed=seed,
        )["V"].values[-1]  # fmt: skip

    known = run(start, 0)
    assert same_law(run(start @ turn, 1), known)
    assert not same_law(run(start @ turn, 1, sigma=0.5), known)
