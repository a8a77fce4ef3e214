"""Branches made at random: chains and gradients have the laws of networks with real weights.

An engine that takes any text as a description can be wrong where nobody looks. Of each kind of
test a planted error, another weight of the branch, must be noticed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import shaped_attention as sa
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.lazy import deep_runs
from tests.laws import final, ks_p_values
from tests.random_branches import WIDTH, RandomBranch, random_branches

V0 = np.array([[1.0, 0.3, -0.2], [0.3, 1.4, 0.1], [-0.2, 0.1, 0.8]])
SIZE: dict[str, Any] = {"width": WIDTH, "depth": 2, "progress": False}
PROGRAMS = 30
PATHS = 12_000  # more than 10,000, for which the exact distribution takes a second
LEVEL = 1e-3 / PROGRAMS


def runs(call: Callable[[], object], reason: str) -> bool:
    """Return whether a call succeeds; it may be refused for a reason only."""
    try:
        call()
    except ValueError as error:
        if reason not in str(error):
            raise
        return False
    return True


def has_chain(block: RandomBranch) -> bool:
    """Whether the chain is derived; otherwise the reason is a sentence."""
    return runs(lambda: sa.simulate_chain(block, V0, samples=1, **SIZE), "cannot be derived")


def smallest(values: dict[str, float]) -> float:
    """Return the smallest p-value, corrected for the number of tests."""
    return min(values.values(), default=1.0) * max(1, len(values))


def test_chains_have_the_laws_of_networks() -> None:
    """KS of every observable, 4,000 networks against 12,000 paths; torch has the same paths."""
    unnoticed = 0
    for block in random_branches(PROGRAMS, has_chain):
        network = sa.simulate_network(block, V0, samples=4000, seed=1, **SIZE)
        chain = sa.simulate_chain(block, V0, samples=PATHS, seed=2, **SIZE)
        if not np.allclose(np.ptp(final(network), 0), 0.0, atol=1e-9):  # not a branch that is 0
            assert smallest(ks_p_values(network, chain)) > LEVEL, block
        with sa.eager():
            by_torch = sa.simulate_chain(block, V0, samples=40, seed=2, **SIZE).V.values
        np.testing.assert_allclose(chain.V.values[:, :40], by_torch, rtol=0, atol=1e-9)
        wrong = sa.simulate_chain(
            RandomBranch(block.seed, block.centred, 0.9), V0, samples=PATHS, seed=2, **SIZE
        )
        unnoticed += smallest(ks_p_values(network, wrong)) > LEVEL
    assert unnoticed <= PROGRAMS / 10


def explicit(block: RandomBranch, samples: int, seed: int) -> dict[str, np.ndarray]:
    """Return loss and norms of gradients of networks with real weights, by torch's autograd."""
    random = np.random.default_rng(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.tensor(random.standard_normal((samples, *shape)))

    q, r = torch.linalg.qr(normal(WIDTH, len(V0)))
    frame = (q * torch.sign(torch.diagonal(r, dim1=1, dim2=2))[:, None, :]).mT
    tokens = [(WIDTH**0.5 * torch.linalg.cholesky(torch.tensor(V0)) @ frame).requires_grad_()]
    weights: dict[str, torch.Tensor] = {}
    for layer in range(SIZE["depth"]):

        def project(x: torch.Tensor, columns: int, layer: int = layer) -> torch.Tensor:
            name = f"{layer}.0.{sum(key.startswith(f'{layer}.') for key in weights)}"
            weights[name] = normal(x.shape[-1], columns).requires_grad_()
            return x @ weights[name]

        tokens.append(block.forward(at_depth(block, 0.0), tokens[-1], project))
        tokens[-1].retain_grad()
    f = tokens[-1] @ normal(WIDTH, 1) / WIDTH**0.5
    loss = 0.5 * (f * f).sum((1, 2))
    loss.sum().backward()
    named = {f"tokens.{k}": x for k, x in enumerate(tokens)} | weights
    norms = {
        name: torch.zeros(samples) if x.grad is None else x.grad.flatten(1).norm(dim=1)
        for name, x in named.items()
    }
    return {name: x.detach().numpy() for name, x in (norms | {"loss": loss}).items()}


def gradients(block: RandomBranch, samples: int) -> dict[str, np.ndarray]:
    """Return the same by lazily revealed weights."""
    data = sa.gradient_norms(
        block, V0, samples=samples, seed=5, loss="quadratic", of=["weights", "tokens"], **SIZE
    )
    norms = {
        str(name): data.gradient_norm.sel(parameter=name).values for name in data.parameter.values
    }
    return norms | {"loss": data.loss.values}


def has_gradients(block: RandomBranch) -> bool:
    """Whether lazily revealed weights can run the branch; otherwise the reason is a sentence."""
    return runs(lambda: gradients(block, 1), "entries")


def test_gradients_have_the_laws_of_networks(caplog: pytest.LogCaptureFixture) -> None:
    """KS, 1,500 samples against 1,500; recorded programs give the numbers of torch."""
    caplog.set_level(logging.INFO, deep_runs.__name__)
    unnoticed = 0
    for block in random_branches(PROGRAMS, has_gradients):
        caplog.clear()
        ours, networks = gradients(block, 1500), explicit(block, 1500, block.seed)
        if not caplog.messages:
            with sa.eager():
                by_torch = gradients(block, 40)
            for name, norm in by_torch.items():
                largest = max(np.abs(x[:40]).max() for x in ours.values())
                np.testing.assert_allclose(ours[name][:40], norm, rtol=0, atol=1e-7 * largest)

        def p_values(theirs: dict[str, np.ndarray], ours: Any = ours) -> dict[str, float]:
            return {
                name: float(stats.ks_2samp(x, ours[name]).pvalue) for name, x in theirs.items()
                if not np.allclose(x, ours[name], rtol=1e-9)
            }  # fmt: skip

        assert smallest(p_values(networks)) > LEVEL, block
        wrong = RandomBranch(block.seed, block.centred, 0.9)
        unnoticed += smallest(p_values(explicit(wrong, 1500, block.seed))) > LEVEL
    assert unnoticed <= PROGRAMS / 5
