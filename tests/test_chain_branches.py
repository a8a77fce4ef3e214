"""Branches of many kinds: their chains have the law of networks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention.blocks.rotations import turned
from shaped_attention.numerics.primitives import (
    by_mean_square,
    constant,
    lower,
    row_sums,
    sigmoid,
    softmax,
    tanh,
    unit_rows,
)
from tests.laws import same_law

V0 = sa.equicorrelated(3, 0.2, 1.3)
WIDTH = 8


def everywhere(logits: Any) -> Any:
    return softmax(logits, np.ones(logits.shape[-2:], dtype=bool))


def latent_mean(tokens: Any, project: Any, n: int) -> Any:
    """LayerNorm between two matrices."""
    c = project(tokens, 5) / n**0.5
    return project(by_mean_square(c - c.mean(-1, keepdim=True), 1e-3), n) / 5**0.5


def kernel_attention(tokens: Any, project: Any, n: int) -> Any:
    """Linear attention with a feature map, whose entries are all needed."""
    q, k = (1.0 + tanh(project(tokens, 6) / n**0.5) for _ in range(2))
    return (q @ k.mT / 6.0) @ (project(tokens, n) / n**0.5)


def different_gates(tokens: Any, project: Any, n: int) -> Any:
    """A gate and a value that see different rows, so that no common Gram matrix exists."""
    z = project(tokens, 12) / n**0.5
    u = project(unit_rows(tokens) * n**0.5, 12) / n**0.5
    return project(sigmoid(z) * u, n) / 12**0.5


def summed_projections(tokens: Any, project: Any, n: int) -> Any:
    """Two products added before a third: one matrix below the other."""
    a, b = (project(x, 6) / n**0.5 for x in (tokens, by_mean_square(tokens, 0.0)))
    both = torch.add(a, b)
    return project(both, n) / 6**0.5


def turned_queries(tokens: Any, project: Any, n: int) -> Any:
    """Rotations of rows with a factor, and a projection that rows divide entry by entry."""
    angles = np.array([1.0, 0.3])
    q, k = (turned(2.0 * project(tokens, 4) / n**0.5, angles, 1.0) for _ in range(2))
    values = project(tokens, 5) / n**0.5
    return everywhere(q @ k.mT) @ (project(values / (1.0 + values * values), n) / 5**0.5)


def tokens_as_keys(tokens: Any, project: Any, n: int) -> Any:
    """Scores of a projection with the tokens themselves, and the tokens as values."""
    scores = (project(tokens, n) / n**0.5) @ tokens.mT / n
    return everywhere(scores) @ tokens + project(tokens, n) / n**0.5


def centred_units(tokens: Any, project: Any, n: int) -> Any:
    """Means of hidden units, and of a projection, both in other units than entries of order 1."""
    h = n**0.5 * tanh(project(tokens, 12) / n**0.5)
    z = project(tokens, 5)
    both = project(h - h.mean(-1, keepdim=True), n) / 12**0.5
    # A plain matrix on the left, as torch sees it.
    apart = -z.mean(-1, keepdim=True) + z
    return (both + project(apart, n) / 5**0.5) / n**0.5


def one_gate_for_all(tokens: Any, project: Any, n: int) -> Any:
    """A gate with a single row, which acts on the units of all tokens."""
    gate = tanh(project(first_of(tokens), 9) / n**0.5)
    return project(gate * (project(tokens, 9) / n**0.5), n) / 3.0


def first_of(tokens: Any) -> Any:
    """Return the first token."""
    return constant(np.eye(1, tokens.shape[-2]), like=tokens) @ tokens


def tokens_before(tokens: Any, project: Any, n: int) -> Any:
    """Each token sees the one before, and the first the last; one row is selected by a slice."""
    x = project(tokens, n) / n**0.5
    return x + 0.5 * x[:, [-1, 0, 1]] + 0.3 * (project(tokens, n) / n**0.5)[:, 1:2]


def units_of_two_heads(tokens: Any, project: Any, n: int) -> Any:
    """Equal names in two heads, whose outputs are added to the number 0."""
    heads = [project(tanh(project(tokens, 12, "in", h) / n**0.5), n, "out", h) for h in range(2)]
    return np.float64(0.4) * sum(heads) / 2.0


def triangular_units(tokens: Any, project: Any, n: int) -> Any:
    """A function of all entries of units, which returns as many rows of other columns."""
    return project(lower(tanh(project(tokens, 10))), n) / n


BRANCHES = (
    latent_mean, kernel_attention, different_gates, summed_projections, turned_queries,
    centred_units, tokens_as_keys, one_gate_for_all, tokens_before, units_of_two_heads,
    triangular_units,
)  # fmt: skip


@dataclass(frozen=True)
class Custom(sa.Block):
    """A block with one of the branches, times `scale`."""

    number: int
    gamma: float = 0.7
    scale: float = 1.0
    limit = "not needed"

    def branch(self, p: Any, tokens: Any, project: Any) -> Any:
        function: Callable[..., Any] = BRANCHES[self.number]
        return p.scale * function(tokens, project, tokens.shape[-1])


@dataclass(frozen=True)
class Replaced(Custom):
    """The branch replaces the tokens, without a skip connection."""

    def forward(self, p: Any, tokens: Any, project: Any) -> Any:
        return self.branch(p, tokens, project)


BLOCKS = {function.__name__: Custom(k) for k, function in enumerate(BRANCHES)}
BLOCKS["replaced"] = Replaced(BRANCHES.index(tokens_before))


@pytest.mark.quick
@pytest.mark.parametrize("name", BLOCKS)
def test_the_derived_chain_has_the_law_of_networks(name: str) -> None:
    """KS of every observable after two layers, 4000 samples; 1.3 times the branch is rejected."""
    block, size = BLOCKS[name], {"width": WIDTH, "depth": 2, "progress": False}
    network = sa.simulate_network(block, V0, samples=4000, seed=1, **size)
    assert same_law(network, sa.simulate_chain(block, V0, samples=20_000, seed=2, **size))
    wrong = replace(block, scale=1.3)
    assert not same_law(network, sa.simulate_chain(wrong, V0, samples=20_000, seed=2, **size))


@dataclass(frozen=True)
class CentredMeans(sa.Block):
    """A branch times the means of centred rows, which are 0."""

    gamma: float = 0.6
    factor: float = 1.0
    limit = "not needed"

    def branch(self, p: Any, tokens: Any, project: Any) -> Any:
        n = tokens.shape[-1]
        units = n**0.5 * tanh(project(tokens, 12) / n**0.5)
        parts = torch.cat([project(tokens, 12), project(tokens, 3)], dim=-1)
        mixed = torch.cat([tanh(project(tokens, 4) / n**0.5), project(tokens, 5) / n**0.5], dim=-1)
        rows = (project(tokens, 5) / n**0.5, project(tokens, 5), units, parts, mixed)
        means = [(x - self.factor * x.mean(-1, keepdim=True)).mean(-1, keepdim=True) for x in rows]
        sums = [row_sums(x) - x.shape[-1] * x.mean(-1, keepdim=True) for x in rows]
        return sum([*means, *sums[1:]], sums[0]) * (project(tokens, n) / n**0.5)


def test_centred_rows_have_no_mean() -> None:
    """Exactly: V' = lambda^2 V; not if half of the means is left."""
    run = {"width": WIDTH, "depth": 1, "samples": 3, "progress": False}
    expected = np.broadcast_to(0.64 * V0, (3, 3, 3))
    np.testing.assert_allclose(sa.simulate_chain(CentredMeans(), V0, **run).V[-1], expected)
    wrong = sa.simulate_chain(CentredMeans(factor=0.5), V0, **run).V[-1]
    assert np.abs(wrong - expected).max() > 0.01
