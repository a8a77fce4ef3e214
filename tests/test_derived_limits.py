"""Limits that are derived from the text of a branch.

Three oracles: the closed forms of attention and MLPs, one layer with real numbers at two widths,
and, for what has no limit, the reason.
"""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

import shaped_attention as sa
from figures.blocks.attentions import (
    Cosine,
    Differential,
    Gated,
    Latent,
    Linear,
    QKNorm,
    Sigmoid,
    TalkingHeads,
    centred,
    scores,
)
from shaped_attention.blocks.activations import of_entries
from shaped_attention.blocks.limit import unit_increments
from shaped_attention.blocks.parameters import at_depth
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
from shaped_attention.theory.moments import moments
from tests import closed_forms
from tests import new_attentions as new

ATTENTION = {
    "plain": {},
    "causal": {"mask": "causal"},
    "window": {"mask": "causal:2"},
    "heads": {"heads": 4},
    "output projection": {"heads": 4, "output_projection": True, "mask": "causal"},
    "biases": {"query_bias": 0.5, "key_bias": 0.3},
    "biases, causal": {"query_bias": 0.5, "key_bias": 0.3, "mask": "causal"},
    "shared keys": {"heads": 4, "output_projection": True, "kv_heads": 2},
    "fixed keys": {"key_size": 16},
    "fixed heads": {
        "heads": 2, "head_size": 8, "output_projection": True, "value_ratio": 1.5, "kv_heads": 1,
    },
    "softcap": {"softcap": 3.0},
    "position bias": {"position_bias": "alibi"},
    "qk-norm": {"qk_norm": True},
    "qk-norm with eps": {"qk_norm": True, "qk_norm_eps": 0.3},
    "qk-norm over all": {"heads": 2, "output_projection": True, "qk_norm": "all"},
    "qk-norm over 8": {"key_size": 8, "qk_norm": True},
    "rope": {"key_size": 8, "rope": 100.0, "mask": "causal"},
    "rope, many columns": {"rope": (0.3, 0.8)},
    "rope, half": {"rope": (0.3, 0.8), "rope_share": 0.5},
    "rope, biases": {"key_size": 8, "rope": 100.0, "query_bias": 0.5, "key_bias": 0.3},
    "skip": {"skip": 0.8},
}  # fmt: skip

BLOCKS: dict[str, sa.Block] = {
    **{name: sa.ShapedAttention(0.6, 0.7, **options) for name, options in ATTENTION.items()},
    "relu": sa.ShapedMLP(0.6, 0.4, -1.1),
    "relu, wide": sa.ShapedMLP(0.6, 0.4, -1.1, hidden_ratio=4.0),
    "tanh": sa.ShapedMLP(0.6, activation="tanh", scale=1.5),
    "gelu": sa.ShapedMLP(0.6, activation="gelu", scale=1.5),
    "gated": sa.ShapedMLP(0.6, activation="silu", scale=1.5, gated=True, gate_bias=0.3),
    "parallel": sa.Parallel(sa.ShapedAttention(0.4, 0.7), sa.ShapedMLP(0.5)),
}  # fmt: skip


def random_covariance(tokens: int, generator: np.random.Generator) -> torch.Tensor:
    """Return V (1, m, m)."""
    x = generator.normal(size=(tokens, tokens + 1))
    return torch.tensor(x @ x.T / tokens + 0.1 * np.eye(tokens))[None]


def assert_equal(ours: Any, theirs: Any) -> None:
    """Compare two results; None is 0."""
    if ours is None or theirs is None:
        other = theirs if ours is None else ours
        assert other is None or float(torch.as_tensor(other).abs().max()) < 1e-10
        return
    scale = float(torch.as_tensor(theirs).abs().max())
    torch.testing.assert_close(ours, theirs, rtol=0.0, atol=1e-10 * max(1.0, scale))


def closed_form(block: sa.Block, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return drift and diffusion; the diffusion of parallel branches has a cross term."""
    if isinstance(block, sa.ShapedAttention):
        return closed_forms.attention(block, v)
    if isinstance(block, sa.ShapedMLP):
        return closed_forms.mlp(block, v)
    assert isinstance(block, sa.Parallel)
    parts = [closed_form(x, v) for x in block.blocks]
    cross = 2.0 * math.prod(x.gamma**2 for x in block.blocks)
    diffusion = sum(x for _, x in parts) - cross * closed_forms.linear(v)
    return sum(x for x, _ in parts), diffusion


@pytest.mark.parametrize("tokens", [1, 2, 4])
@pytest.mark.parametrize("name", BLOCKS)
def test_drift_and_diffusion_are_the_closed_forms(name, tokens):
    """To 1e-10, for random covariances; to 1e-4 with the series of the mean cosine at d = 8."""
    block, v = BLOCKS[name], random_covariance(tokens, np.random.default_rng(tokens))
    ours = moments([(block.limit, at_depth(block, 0.0), 1.0)], v, diffusion=True)
    drift, diffusion = closed_form(block, v[0].numpy())
    assert_equal(ours.drift[0], torch.tensor(drift))
    assert_equal(ours.diffusion[0], torch.tensor(diffusion))


NOISY = {
    x: BLOCKS[x] for x in ("plain", "causal", "biases", "rope", "qk-norm over 8", "tanh")
} | {
    "differential": Differential(0.5, 0.7), "talking heads": TalkingHeads(0.5, 0.7),
    "latent": Latent(0.5, 0.7),
}  # fmt: skip


@pytest.mark.parametrize("name", NOISY)
def test_what_the_clock_and_norms_need_is_the_sum_over_increments(name):
    """The rates of the noise, and its second order by differences along each increment."""
    block = NOISY[name]
    limit, p = block.limit, at_depth(block, 0.0)
    generator = np.random.default_rng(3)
    v = random_covariance(3, generator)
    factor = torch.linalg.cholesky(v) + 0.2
    direction = torch.tensor(generator.normal(size=(1, 3, 3)))
    direction = direction + direction.mT
    along, second, rates, eps = 0.0, torch.zeros_like(factor), 0.0, 1e-5
    root = torch.linalg.cholesky(v)
    for unit in unit_increments(limit, p, factor) or ():
        noise = limit.factor_noise(p, factor, unit)
        along = along + 4.0 * (direction @ factor * noise).sum() ** 2
        moved = [limit.factor_noise(p, factor + e * noise, unit) for e in (eps, -eps)]
        second = second + (moved[0] - moved[1]) / (2.0 * eps)
        kick = 2.0 * (limit.factor_noise(p, root, unit) * root).sum(-1)
        rates = rates + kick[..., :, None] * kick[..., None, :]
    if block is BLOCKS["tanh"]:
        assert limit.noise_along(p, factor, direction) is None
        return
    assert_equal(limit.noise_along(p, factor, direction).squeeze(), along)
    assert_equal(limit.variance_noise(p, v), rates)
    ours = limit.noise_drift(p, factor)
    if ours is None:
        assert block is BLOCKS["qk-norm over 8"]
    else:
        torch.testing.assert_close(ours, second, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", BLOCKS)
def test_the_rate_of_weights(name):
    """gamma^2 for each product on the path of the tokens."""
    block = BLOCKS[name]
    depth = 1.0 + getattr(block, "output_projection", not isinstance(block, sa.ShapedAttention))
    expected = depth * block.gamma**2 if name != "parallel" else 0.4**2 + 2.0 * 0.5**2
    assert block.limit.weight_rate(at_depth(block, 0.0)) == pytest.approx(expected, rel=1e-12)


INSIDE = {
    "differential": Differential(0.6, 0.5),
    "equal parameters": Differential(0.5, 0.5, 0.5),
    "talking heads": TalkingHeads(0.6, 0.5),
    "odd": new.Odd(0.5),
    "schedule": Sigmoid(sa.Schedule([(0.0, 0.3), (1.0, 0.6)]), 0.5),
    "normalised": sa.Normalised(Differential(0.6, 0.5)),
    "sandwich": sa.Normalised(Differential(0.6, 0.5), "sandwich"),
    "parallel": sa.Parallel(Sigmoid(0.4, 0.7), sa.ShapedMLP(0.5)),
}


@pytest.mark.parametrize("method", ["direct", "clock"])
@pytest.mark.parametrize("name", INSIDE)
def test_compiled_paths_are_those_of_torch(name, method):
    """The same noise whether parameters are numbers or formulas: to 1e-10."""
    block = INSIDE[name]
    if method == "clock" and isinstance(block, sa.Normalised):
        pytest.skip("correlations cannot explode")
    v0 = sa.equicorrelated(3, 0.2)
    call = {"horizon": 0.2, "step": 0.05, "samples": 16, "method": method, "progress": False}
    compiled = sa.integrate_sde(block, v0, **call).V.values
    with sa.eager():
        eager = sa.integrate_sde(block, v0, **call).V.values
    np.testing.assert_allclose(compiled, eager, rtol=1e-10, atol=1e-10)


def test_derivatives_of_paths_are_those_of_differences():
    """Of each parameter of a block with a derived limit."""
    block, v0 = Differential(0.6, 0.5), torch.tensor(sa.equicorrelated(3, 0.2))

    def last(values: dict[str, torch.Tensor]) -> torch.Tensor:
        call = {"horizon": 0.2, "step": 0.05, "samples": 4}
        return sa.pathwise(block, v0, parameters=values, **call).square().sum()

    for name in ("gamma", "tau0", "mu"):
        x = torch.tensor(getattr(block, name), dtype=torch.float64, requires_grad=True)
        last({name: x}).backward()
        up, down = (last({name: x.detach() + e}) for e in (1e-5, -1e-5))
        assert float(x.grad) == pytest.approx(float((up - down) / 2e-5), rel=1e-6)


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


class Drawn:
    """project(x, columns): exact in law given x, from a root of x x^T; keys may change sign."""

    def __init__(self, generator: Any, batch: int, sign: float, drawn: list[Any]) -> None:
        self.generator, self.batch, self.sign = generator, batch, sign
        self.drawn, self.calls = drawn, 0

    def __call__(self, x: Any, columns: int, name: str | None = None, head: int = 0) -> Any:
        """Return the product."""
        if self.calls == len(self.drawn):
            size = (self.batch, x.shape[-2], columns)
            self.drawn.append(torch.randn(size, generator=self.generator, dtype=torch.float64))
        normal = self.drawn[self.calls]
        self.calls += 1
        return (self.sign if name == "keys" else 1.0) * (torch.linalg.cholesky(x @ x.mT) @ normal)


FAR = 1e13
"""A temperature at which there are no scores."""

TOKENS = 3


def without_scores(block: Any) -> Any:
    """Return the block whose moments are known: the linear one."""
    return replace(block, **({"tau0": FAR} if hasattr(block, "tau0") else {"a": 0.0}))


def layer_moments(block: Any, v0: Any, width: int, samples: int, seed: int, batch: int = 20_000):
    """Return n E[V' - V''] and its error, and n Cov(V' - V'') likewise; V'' has no scores.

    Averaging over the signs of the keys removes the noise of order sqrt n from the drift. The noise
    of the scores is not correlated with that of V''.
    """
    generator = torch.Generator().manual_seed(seed)
    root = torch.linalg.cholesky(torch.tensor(v0))
    tokens = torch.zeros(1, TOKENS, width, dtype=torch.float64)
    tokens[0, :, :TOKENS] = root * width**0.5
    tokens = tokens.expand(batch, TOKENS, width)
    linear, i, j = without_scores(block), *np.tril_indices(TOKENS)
    skip = math.sqrt(1.0 - block.gamma**2)
    drifts, kicks = [], []
    for _ in range(samples // batch):
        drawn: list[Any] = []
        values = []
        for sign in (1.0, -1.0):
            both = []
            for kind in (block, linear):
                branch = kind.branch(
                    at_depth(kind, 0.0), tokens, Drawn(generator, batch, sign, drawn)
                )
                new_tokens = skip * tokens + kind.gamma * branch
                both.append((new_tokens @ new_tokens.mT / width)[:, i, j])
            values.append(both[0] - both[1])
            if sign > 0.0:
                kicks.append(values[0] * width**0.5)
        drifts.append(width * sum(values) / 2.0)
    drift, kick = torch.cat(drifts), torch.cat(kicks)
    kick = kick - kick.mean(0)
    noise = kick[:, :, None] * kick[:, None, :]
    count = len(drift)
    return [(x.mean(0).numpy(), (x.std(0) / count**0.5).numpy()) for x in (drift, noise)]


def scores_against_layers(block: Any, wrong: Any, samples: int) -> tuple[Any, Any]:
    """Return the largest |z| of drift and noise of the limit, and of that of a wrong block."""
    generator = np.random.default_rng(5)
    x = generator.normal(size=(TOKENS, 5))
    v0 = x @ x.T / 5.0 + 0.2 * np.eye(TOKENS)
    i, j = np.tril_indices(TOKENS)
    one, two = (layer_moments(block, v0, n, samples, n) for n in (64, 128))

    def expected(kind: Any) -> list[Any]:
        linear = without_scores(kind)
        return [
            (sa.drift(kind, v0) - sa.drift(linear, v0))[i, j],
            sa.diffusion(kind, v0) - sa.diffusion(linear, v0),
        ]

    scores = []
    for right in (expected(block), expected(wrong)):
        z = []
        for value, (a, sa_), (b, sb) in zip(right, one, two, strict=True):
            # Without the term of order 1/n.
            mean, error = 2.0 * b - a, np.sqrt(4.0 * sb**2 + sa_**2)
            if not value.any():
                # Without scores there is no noise; what is left is of order 1 / n^2.
                assert np.abs(mean).max() < 0.02
                continue
            # Under a causal mask the first token sees itself alone.
            free, apart = error > 1e-9, np.abs(value - mean)
            assert apart[~free].max(initial=0.0) < 1e-6
            z.append(float((apart[free] / error[free]).max()))
        scores.append(z)
    return scores[0], scores[1]


BIAS = 0.7 * np.random.default_rng(8).normal(size=(3, 3))
TWO_BIASES = sa.ShapedAttention(
    0.7, 0.4, heads=2, position_bias=[BIAS, -2.0 * BIAS], output_projection=True
)
STRETCHED = sa.ShapedAttention(
    0.7, 0.8, key_size=4, rope=sa.Rope(angles=[0.7, 0.2], attention_factor=1.3)
)
NEW = {
    "sigmoid": (Sigmoid(0.7, 0.3), {"tau0": 0.315}),
    "differential": (Differential(0.7, 0.4), {"mu": 0.5}),
    "talking heads": (TalkingHeads(0.7, 0.5), {"before": ((1.0, 0.5), (0.3, 0.8))}),
    "unit rows": (new.UnitRows(0.7, 0.5), {"tau0": 0.525}),
    "latent": (Latent(0.7, 0.4), {"tau0": 0.42}),
    "QK-norm": (QKNorm(0.7, 0.3), {"tau0": 0.315}),
    "gated": (Gated(0.7, 0.4), {"tau0": 0.42}),
    "linear": (Linear(0.7, 0.4), {"tau0": 0.42}),
    "cosine": (Cosine(0.7, 0.2), {"tau0": 0.21}),
    "shared keys": (new.SharedKeys(0.7, 0.4), {"tau0": 0.42}),
    "twice": (new.Twice(0.7, 0.4), {"tau0": 0.42}),
    "nested": (new.Nested(0.7, 0.4), {"tau0": 0.42}),
    "biases of heads": (TWO_BIASES, {"tau0": 0.42}),
    "rope with a factor": (STRETCHED, {"tau0": 0.84}),
    "even": (new.Even(0.7), {"a": 1.575}),
    "odd": (new.Odd(0.7), {"a": 1.575}),
}
"""Blocks, and a parameter that is wrong by about 5 %."""


def compare_with_layers(name: str, samples: int, least: float) -> None:
    """Fail if the limit is off by 4.5 standard errors, or the wrong one by less than `least`."""
    block, change = NEW[name]
    right, wrong = scores_against_layers(block, replace(block, **change), samples)
    assert max(right) < 4.5, right
    assert max(wrong) > least, wrong


@pytest.mark.parametrize("name", ["twice", "biases of heads", "odd"])
def test_new_blocks_against_one_layer(name):
    """40,000 samples at widths 64 and 128; a parameter off by 5 % (a sign) is 4.5 errors off."""
    compare_with_layers(name, 40_000, 4.5)


@pytest.mark.validation
@pytest.mark.parametrize("name", NEW)
def test_all_new_blocks_against_one_layer(name):
    """160,000 samples at widths 64 and 128."""
    compare_with_layers(name, 160_000, 4.0)
