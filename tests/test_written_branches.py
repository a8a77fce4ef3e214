"""Limits of branches written for the test: exact values, or the reason why there is none."""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass

import numpy as np
import pytest
import torch

import shaped_attention as sa
from figures.blocks.attentions import (
    Differential,
    Sigmoid,
    centred,
    scores,
)
from shaped_attention.blocks.activations import of_entries
from shaped_attention.numerics.primitives import (
    by_mean_square,
    column_sums,
    columns,
    concatenate,
    constant,
    exp,
    leaky,
    rotate,
    row_squares,
    sigmoid,
    sqrt,
    tanh,
)
from tests import new_attentions as new
from tests.test_derived_limits import random_covariance


def branch_of(function):
    """Return a block of which the function is the branch."""

    @dataclass(frozen=True)
    class Given(sa.Block):
        gamma: float = 0.6
        tau0: float = 0.7

        def branch(self, p, tokens, project):
            return function(p, tokens, project)

    return Given()


def attend(p, t, project, *, identity=True, centre=True, power=1.0):
    """Return attention without one of its modifications."""
    m, n = t.shape[-2:]
    queries, keys = project(t, n) / n**0.5, project(t, n) / n**0.5
    weights = centred(queries @ keys.mT / (p.tau0 * n**0.5 * n ** (power / 2.0)))
    values = project(t, n) / n**0.5
    mixed = (weights if centre else weights + 1.0 / m) @ values
    return values + mixed if identity else mixed


def with_unit_keys(p, t, project, size=2, again=False):
    """Return attention with queries and keys of unit length, or in addition without a norm."""
    n = t.shape[-1]
    queries, keys = project(t, size) / n**0.5, project(t, size) / n**0.5
    long = queries @ keys.mT if again else 0.0
    if size == 2:
        queries, keys = (x / sqrt(row_squares(x) / size) for x in (queries, keys))
    else:
        queries, keys = by_mean_square(queries, 0.0), by_mean_square(keys, 0.0)
    values = project(t, n) / n**0.5
    weights = centred((queries @ keys.mT + long) / (p.tau0 * (size * n) ** 0.5))
    return values + weights @ values


def less_means(x):
    """Return rows less their means."""
    return x - x.mean(-1, keepdim=True)


def without_means(p, t, project):
    """Return linear values of tokens less their means."""
    n = t.shape[-1]
    return project(t - t.mean(-1, keepdim=True), n) / n**0.5


def after_layer_norm(p, t, project):
    """Return the branch of `UnitRows` after LayerNorm in place of RMSNorm."""
    n = t.shape[-1]
    apart = t - t.mean(-1, keepdim=True)
    unit = apart / sqrt(row_squares(apart) / n)
    values = project(unit, n) / n**0.5
    weights = centred(scores(p, unit, project, n), np.tri(t.shape[-2], dtype=bool))
    return (values + weights @ values) * sqrt(row_squares(t) / n)


def test_products_of_rows_with_themselves():
    """Isserlis: E x_a^3 x_b = 3 V_aa V_ab, E x_a^2 x_b^2 = V_aa V_bb + 2 V_ab^2."""
    v = sa.equicorrelated(2, 0.3)
    cube = branch_of(hidden(lambda x, n: x + 0.3 * (x * x * x) / n))
    np.testing.assert_allclose(sa.drift(cube, v), 0.36 * 2.0 * 0.3 * 3.0 * v, atol=1e-12)
    square = branch_of(hidden(lambda x, n: x + 0.3 * (x * x) / n**0.5))
    gram = 1.0 + 2.0 * v * v
    np.testing.assert_allclose(sa.drift(square, v), 0.36 * 0.09 * gram, atol=1e-12)


def test_noise_of_lengths_is_symmetric():
    """Cov of gamma^2 (s_aa + s_bb) V_ab / tau_0, Cov(s_aa, s_bb) = 2 V_ab^2, exactly."""
    v, (i, j) = random_covariance(3, np.random.default_rng(2))[0].numpy(), np.tril_indices(3)
    pairs = [(a, b) for a in range(3) for b in range(a + 1)]
    both = np.array([np.eye(3)[a] + np.eye(3)[b] for a, b in pairs])
    expected = both @ (2.0 * v * v) @ both.T * np.outer(v[i, j], v[i, j]) * (0.6**2 / 0.7) ** 2
    found = sa.diffusion(new.Lengths(0.6, 0.7), v) - sa.diffusion(new.Lengths(0.6, 1e6), v)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_scores_of_the_values_they_act_on():
    """b = v M, M = 1 + u^T u / (n tau_0): the drift is gamma^2 V (tr M M^T - n), in the mean."""
    v = random_covariance(3, np.random.default_rng(3))[0].numpy()
    size = 2.0 * np.trace(v) / 0.7 + np.trace(v @ v) / 0.7**2
    found = sa.drift(new.ScoredValues(0.6, 0.7), v)
    np.testing.assert_allclose(found, 0.36 * size * v, rtol=1e-12)


def test_one_token_loses_its_means_once():
    """V' = -gamma^2 V for values less their means, also after attention, for one token and two."""

    def branch(p, t, project):
        n = t.shape[-1]
        x = t - t.mean(-1, keepdim=True)
        values = project(x, n) / n**0.5
        return values + centred(scores(p, t, project, n)) @ values

    assert sa.drift(branch_of(branch), np.array([[1.5]]))[0, 0] == pytest.approx(
        -0.36 * 1.5, rel=1e-12
    )


def test_functions_of_entries_at_large_variances():
    """h + (e^(h/2) + e^(-h/2)) / sqrt n: 4 e^((V_aa + V_bb) / 8) cosh(V_ab / 4), to 1e-9."""
    block = branch_of(hidden(lambda x, n: x + (exp(0.5 * x) + exp(-0.5 * x)) / n**0.5))
    with_sum = branch_of(
        hidden(lambda x, n: x + of_entries(lambda y: exp(0.5 * y) + exp(-0.5 * y), x) / n**0.5)
    )
    assert isinstance(block.limit, str)  # two functions
    for scale in (1.0, 16.0):
        v = scale * np.array([[1.3, 0.4], [0.4, 0.9]])
        sums = np.add.outer(np.diag(v), np.diag(v))
        expected = 0.36 * 4.0 * np.exp(sums / 8.0) * np.cosh(v / 4.0)
        np.testing.assert_allclose(sa.drift(with_sum, v), expected, rtol=1e-9)


def test_two_blocks_of_one_kind_are_told_apart():
    """With parameters near 0, in either order."""
    pair = [Differential(0.3, 0.7, mu) for mu in (0.02, 0.18)]
    v = sa.equicorrelated(3, 0.2)
    ours = [sa.diffusion(sa.Parallel(*x), v) for x in (pair, pair[::-1])]
    np.testing.assert_allclose(*ours, rtol=1e-12)


def test_positions_may_start_anywhere():
    """Rotations depend on differences of positions only."""

    def rotated(first):
        def branch(p, t, project):
            m, n = t.shape[-2:]
            turns = (np.arange(m) + first)[:, None] * np.array([0.9, 0.3])
            table = np.concatenate([np.cos(turns), np.sin(turns)], 1)
            q, k = (rotate(project(t, 4) / n**0.5, table) for _ in range(2))
            values = project(t, n) / n**0.5
            return values + centred(q @ k.mT / (p.tau0 * (4 * n) ** 0.5)) @ values

        return branch_of(branch)

    v = sa.equicorrelated(3, 0.2)
    np.testing.assert_allclose(sa.drift(rotated(5), v), sa.drift(rotated(0), v), atol=1e-12)


def test_rows_less_their_means():
    """V decays with gamma^2, as in networks within 4 standard errors; LayerNorm is RMSNorm."""
    v, block = sa.equicorrelated(3, 0.3), branch_of(without_means)
    np.testing.assert_allclose(sa.drift(block, v), -0.36 * v, atol=1e-14)
    ours, rms = branch_of(after_layer_norm), new.UnitRows(0.6, 0.7)
    for of in (sa.drift, sa.diffusion):
        np.testing.assert_allclose(of(ours, v), of(rms, v), atol=1e-13)
    network = sa.simulate_network(block, v, width=64, depth=64, samples=2000, seed=1)
    last = network.V.values[-1][:, 0, 0]
    error = last.std() / 2000**0.5
    assert abs(last.mean() - np.exp(-0.36)) < 4.0 * error
    assert abs(last.mean() - 1.0) > 8.0 * error


def sandwiched(p, t, project):
    """Return A B A v with a matrix B between the same scores."""
    m, n = t.shape[-2:]
    weights = centred(scores(p, t, project, n), np.tri(m, dtype=bool))
    between = constant(np.random.default_rng(0).normal(size=(m, m)), like=t)
    values = project(t, n) / n**0.5
    return values + weights @ (between @ (weights @ values))


def with_sums_as_values(p, t, project):
    """Return attention whose values are the sums of its queries and keys."""
    n = t.shape[-1]
    queries, keys = project(t, n) / n**0.5, project(t, n) / n**0.5
    values = (queries + keys) / 2.0**0.5
    return values + centred(queries @ keys.mT / (p.tau0 * n)) @ values


def turned_twice(p, t, project):
    """Return attention whose keys are scored after two different rotations."""
    n, m = t.shape[-1], t.shape[-2]
    queries, keys = project(t, 8) / n**0.5, project(t, 8) / n**0.5
    total = 0.0
    for angle in (0.3, 0.7):
        turns = np.outer(np.arange(m), np.full(4, angle))
        table = np.concatenate([np.cos(turns), np.sin(turns)], axis=1)
        total = total + rotate(queries, table) @ rotate(keys, table).mT
    values = project(t, n) / n**0.5
    return values + centred(total / (p.tau0 * (8 * n) ** 0.5)) @ values


def after_product(p, t, project):
    """Return attention whose weights are sqrt n times a product of two matrices of scores."""
    n = t.shape[-1]
    one, two = scores(p, t, project, n), scores(p, t, project, n)
    values = project(t, n) / n**0.5
    return values + n**0.5 * (one * two) @ values


def gated_by_size(p, t, project):
    """Return two values with weights that depend on V."""
    n = t.shape[-1]
    size = sigmoid(column_sums(row_squares(t) / n))
    one, two = project(t, n) / n**0.5, project(t, n) / n**0.5
    each = constant(np.ones((t.shape[-2], 1)), like=t)
    return one * (each @ size) + two * (each @ sqrt(1.0 - size * size))


def hidden(function):
    """Return a network with hidden units."""

    def branch(p, t, project):
        n = t.shape[-1]
        return project(function(project(t, n) / n**0.5, n), n) / n**0.5

    return branch


REFUSED = {
    "order 1, not 1/n": lambda p, t, pr: attend(p, t, pr, identity=False),
    "not a multiple of the tokens": lambda p, t, pr: attend(p, t, pr, centre=False),
    "too small a power of n": lambda p, t, pr: attend(p, t, pr, power=0.0),
    "over a fixed number of columns": with_unit_keys,
    "a matrix between them": sandwiched,
    "groups with different covariances": lambda p, t, pr: torch.cat(
        [w**0.5 * pr(t, t.shape[-1] // 2) / t.shape[-1] ** 0.5 for w in (1.9, 0.1)], dim=-1
    ),
    "single entries of tokens": lambda p, t, pr: (
        pr(t, t.shape[-1]) / t.shape[-1] ** 0.5 + tanh(t) / t.shape[-1]
    ),
    "a number is added": hidden(lambda x, n: x + 1.0),
    "noise of the lengths of projections": with_sums_as_values,
    "order 1 / sqrt n": hidden(lambda x, n: x + tanh(x) / n**0.5),
    "nonlinear at infinite width|not a multiple": hidden(lambda x, n: tanh(x)),
    "slopes of a ReLU": hidden(lambda x, n: leaky(x, 1.0, 0.0)),
    "math.sqrt": lambda p, t, pr: pr(t, t.shape[-1]) / math.sqrt(t.shape[-1]),
    "a gate must tend": lambda p, t, pr: pr(t, t.shape[-1]) * pr(t, t.shape[-1]) / t.shape[-1],
    "by order 1": lambda p, t, pr: t * 0.5,
    "sort of rows": lambda p, t, pr: torch.sort(pr(t, t.shape[-1]))[0],
    "means of rows follow from V only": lambda p, t, pr: (
        pr(t, t.shape[-1]) / t.shape[-1] ** 0.5 - 0.5 * t.mean(-1, keepdim=True)
    ),
    "tokens are added without their means": lambda p, t, pr: t - t.mean(-1, keepdim=True),
    "functions of the entries of the same rows": hidden(
        lambda x, n: x + (x * tanh(x) + tanh(x) * tanh(x) * 0.5 + tanh(x)) / n**0.5
    ),
    "means of hidden units": hidden(lambda x, n: less_means(x + tanh(x) * tanh(x) / n**0.5)),
    "product of small terms": lambda p, t, pr: after_product(p, t, pr),
    "has no formula": lambda p, t, pr: gated_by_size(p, t, pr),
    "must be smooth there": hidden(
        lambda x, n: x + of_entries(lambda y: leaky(y, 1.0, -1.0), x / n**0.5)
    ),
    "as many columns as the tokens": lambda p, t, pr: pr(t, t.shape[-1] // 2) / t.shape[-1] ** 0.5,
    "joined twice": lambda p, t, pr: columns(concatenate([t, t]), t.shape[-1], 2 * t.shape[-1]),
    "two different rotations": turned_twice,
    "with and without a norm": lambda p, t, pr: with_unit_keys(p, t, pr, size=8, again=True),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_has_no_limit_says_why(reason):
    """The reason ends the sentence of `check_limit`."""
    block = branch_of(REFUSED[reason])
    assert isinstance(block.limit, str)
    with pytest.raises(ValueError, match=reason):
        sa.drift(block, sa.equicorrelated(3, 0.2))


def test_what_is_known_for_given_tokens_only_is_said_then():
    """A block for three tokens, whose bias is too large by a factor sqrt n."""

    def branch(p, t, project):
        n = t.shape[-1]
        values = project(t, n) / n**0.5
        bias = constant(np.arange(9.0).reshape(3, 3), like=t) / n**0.5
        return values + bias @ values

    words = r"layer contains .*Given.*, which has no limit for 3 tokens: .* order 1 / sqrt n"
    with pytest.raises(ValueError, match=words):
        sa.drift(branch_of(branch), sa.equicorrelated(3, 0.2))


def test_a_derived_limit_is_not_stored():
    """A block that was asked for its limit is pickled as its fields."""
    block = Sigmoid(0.5, 0.7)
    before = pickle.dumps(block)
    assert not isinstance(block.limit, str)
    assert pickle.dumps(block) == before
    assert block == Sigmoid(0.5, 0.7)


# One layer with real numbers
