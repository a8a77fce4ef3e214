"""The limit of the variants of attention: one wide layer, the chain, executors, refusals."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from scipy.special import gammaln, hyp2f1

import shaped_attention as sa
from shaped_attention import ShapedAttention, diffusion, drift, integrate_sde, simulate_chain
from shaped_attention.blocks.limits.cosines import cosine_series
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.numerics.covariance import vech
from shaped_attention.numerics.named_numbers import Keys, TorchNumbers
from shaped_attention.rows.step import root_of_branch
from tests.laws import assert_executors_agree, same_law

V0 = np.array([[1.6, 0.8, 0.2, -0.4], [0.8, 1.2, -0.3, 0.1], [0.2, -0.3, 1.0, 0.5],
               [-0.4, 0.1, 0.5, 1.4]])  # fmt: skip
BIAS = np.array([[0.5, -1.0, 2.0, 0.0], [3.0, 0.0, 1.0, -1.0], [0.0, 2.0, 0.0, 1.0],
                 [1.0, 0.0, -2.0, 0.5]])  # fmt: skip
ANGLES = [1.2, 0.4]


def attention(**options):
    return ShapedAttention(0.8, 0.6, **options)


MEMBERS = {
    "bias": attention(position_bias=BIAS),
    "bias, causal": attention(position_bias=sa.alibi(4, 0.8), mask="causal"),
    "window": attention(mask=sa.sliding_window(4, 2, causal=False)),
    "rope": attention(rope=ANGLES, key_size=8),
    "rope, half": attention(rope=sa.Rope(2.0, 0.5), key_size=8, mask="causal"),
    "rope, biases": attention(rope=ANGLES, key_size=8, query_bias=0.7, key_bias=1.5),
    "everything": attention(
        rope=sa.Rope(angles=ANGLES, share=0.5), key_size=8, position_bias=BIAS, mask="causal",
        heads=2, kv_heads=1, output_projection=True, softcap=1.0, query_bias=0.3,
    ),
    "normalised": attention(qk_norm=True),
    "normalised, few": attention(qk_norm=True, key_size=4),
    "normalised, rope": attention(qk_norm=sa.QKNorm(eps=0.5), rope=ANGLES, mask="causal"),
    "normalised, biases": attention(qk_norm=True, query_bias=0.7, key_bias=1.5),
}  # fmt: skip
WRONG = {
    "bias": {"position_bias": None},
    "bias, causal": {"position_bias": None},
    "window": {"mask": None},
    "rope": {"rope": None},
    "rope, half": {"rope": 2.0},
    "rope, biases": {"key_bias": 0.0},
    "everything": {"rope": None},
    "normalised": {"qk_norm": False},
    "normalised, few": {"key_size": None},
    "normalised, rope": {"rope": None},
    "normalised, biases": {"key_bias": 0.0},
}
"""What the wrong twin of each member leaves out."""


@dataclass
class Mirrored(TorchNumbers):
    """Numbers that are kept, to be given again with queries of the other sign."""

    drawn: dict[tuple[str, int], torch.Tensor] = field(default_factory=dict)
    sign: float = 1.0

    def normal(self, name, rows, columns, head=0):
        if (name, head) not in self.drawn:
            self.drawn[name, head] = super().normal(name, rows, columns, head)
        return (self.sign if name == "queries" else 1.0) * self.drawn[name, head]

    def wishart(self, name, rows, dof, head=0):
        if (name, head) not in self.drawn:
            self.drawn[name, head] = super().wishart(name, rows, dof, head)
        return (self.sign if name.startswith("queries") else 1.0) * self.drawn[name, head]


def first_order(block, width, samples=30_000, chunk=5_000):
    """A F of one head in one layer at this width, for scores of both signs."""
    alone = replace(
        block, output_projection=False, kv_heads=None, head_size=None, heads=1,
        key_size=256 if block.qk_norm and block.key_size is None else block.key_size or 8,
    )  # fmt: skip
    factor = torch.linalg.cholesky(torch.tensor(V0)).expand(chunk, -1, -1)
    p, roots = at_depth(alone, 0.0), ([], [])
    for first in range(0, samples, chunk):
        numbers = Mirrored(Keys(7, "chain"), torch.arange(first, first + chunk), 0)
        for sign, found in zip((1.0, -1.0), roots, strict=True):
            numbers.sign = sign
            numbers._taken.clear()
            found.append(root_of_branch(alone, p, factor, numbers, width)[0].numpy())
    return [np.concatenate(found) for found in roots]


@pytest.mark.parametrize("name", MEMBERS)
def test_drift_and_noise_from_one_wide_layer(name):
    """n gamma^2 E[A V A^T - V] at n = 10^4 is within 2 % of the drift; a wrong one is 4 % off.

    The exact mean over values, and over both signs of the scores; 30,000 scores, 0.7 % error.

    n Cov of gamma^2 (A V + V A^T) is within 5 standard errors of the diffusion; 1.15 times is not.
    This A is the odd part in the scores, so that the linear noise of the values is left out.
    """
    block, width = MEMBERS[name], 10**4
    plus, minus = first_order(block, width)
    mean = sum((x @ x.swapaxes(1, 2)).mean(0) for x in (plus, minus)) / 2.0
    found = width * block.gamma**2 * (mean - V0)
    known, wrong = drift(block, V0), drift(replace(block, **WRONG[name]), V0)
    size = np.linalg.norm(known)
    assert np.linalg.norm(found - known) < 0.02 * size
    assert np.linalg.norm(found - wrong) > 0.04 * size
    factor = np.linalg.cholesky(V0)
    moved = 0.5 * (plus - minus) @ factor.T
    noise = vech(block.gamma**2 * math.sqrt(width) * (moved + moved.swapaxes(1, 2)))
    products = noise[:, :, None] * noise[:, None, :] / block.heads
    error = products.std(0) / math.sqrt(len(noise))
    far = replace(block, tau0=1e9)
    known = diffusion(block, V0) - diffusion(far, V0)
    assert (np.abs(products.mean(0) - known) < 5.0 * error + 1e-12).all()
    assert (np.abs(products.mean(0) - 1.15 * known) > 5.0 * error).any()


@pytest.mark.parametrize(
    ("options", "f"),
    [
        ({"heads": 4, "kv_heads": 1}, 4.0),
        ({"heads": 4, "kv_heads": 2}, 2.0),
        ({"heads": 4, "head_size": 500, "value_ratio": 2.0}, 0.5),
        ({"heads": 4, "kv_heads": 2, "head_size": 125, "value_ratio": 0.5}, 4.0),
    ],
)
def test_linear_rate_of_groups(options, f):
    """n Cov V' in one layer at n = 1000 and tau_0 = 10^9 within 5 standard errors; f = 1 is not."""
    block = ShapedAttention(0.8, 1e9, output_projection=True, **options)
    result = simulate_chain(block, V0, width=1000, depth=1, samples=100_000, seed=3)
    x = vech(result.V.values[-1])
    x = x - x.mean(0)
    products = 1000 * x[:, :, None] * x[:, None, :]
    found, error = products.mean(0), products.std(0) / math.sqrt(len(x))
    known = diffusion(block, V0)
    k = 2.0 * 0.8**2 + (f - 1.0) * 0.8**4
    assert known[0, 0] == pytest.approx(2.0 * k * V0[0, 0] ** 2)
    assert (np.abs(found - known) < 5.0 * error).all()
    other = diffusion(ShapedAttention(0.8, 1e9, output_projection=True), V0)
    assert (np.abs(found - other) > 5.0 * error).any()


LAWS = {
    "bias": (ShapedAttention(0.5, 0.8, position_bias=BIAS), {"position_bias": None}),
    "rope": (ShapedAttention(0.5, 0.5, rope=[1.2], mask="causal", key_size=16), {"rope": None}),
    "groups": (
        ShapedAttention(0.8, 2.0, heads=4, kv_heads=1, output_projection=True),
        {"kv_heads": None},
    ),
    "normalised": (ShapedAttention(0.5, 0.25, qk_norm=True), {"qk_norm": False}),
}


@pytest.mark.filterwarnings("ignore:method=.*reached the radius with a fixed step")
@pytest.mark.parametrize("name", LAWS)
def test_the_sde_has_the_law_of_the_chain(name):
    """KS of all observables at t = 0.5, 4,000 chains at n = 512; the wrong twin's is rejected.

    At most 4 % of the paths reach the radius, where the chain overshoots.
    """
    block, other = LAWS[name]
    chain = simulate_chain(block, V0, width=512, depth=256, samples=4000, seed=1, radius=100.0)
    limit = {"horizon": 0.5, "step": 0.01, "samples": 20_000, "seed": 2, "radius": 100.0}
    assert same_law(chain, integrate_sde(block, V0, **limit))
    assert not same_law(chain, integrate_sde(replace(block, **other), V0, **limit))


@pytest.mark.filterwarnings("ignore:method=.*reached the radius with a fixed step")
@pytest.mark.parametrize("name", MEMBERS)
def test_executors_of_the_sde_agree(name, monkeypatch):
    run = {"horizon": 0.2, "step": 0.05, "samples": 10, "seed": 2, "method": "direct"}
    assert_executors_agree(lambda: integrate_sde(MEMBERS[name], V0, **run).V.values, monkeypatch)


def test_options_without_effect_give_the_limit_without_them():
    """A constant bias, angles of 0, a share of 0, and any bound on the logits change nothing."""
    plain = attention(mask="causal")
    for options in (
        {"position_bias": np.full((4, 4), 3.0)},
        {"rope": [0.0]},
        {"rope": sa.Rope(angles=[1.0], share=0.0)},
        {"softcap": 0.1},
        {"kv_heads": 1, "output_projection": True},
    ):
        same = replace(plain, **options)
        known = replace(plain, output_projection=same.output_projection)
        for function in (drift, diffusion):
            np.testing.assert_allclose(function(same, V0), function(known, V0), atol=1e-12)


@pytest.mark.parametrize("size", [4, 5, 16, 300])
def test_the_mean_cosine_of_gaussian_rows(size):
    """The series against 2F1, to its stated error, and to 5 standard errors of simulated rows."""
    x = np.linspace(-0.9, 0.9, 19)
    found = sum(c * x ** (2 * j + 1) for j, c in enumerate(cosine_series(size)))
    half = size / 2.0
    scale = math.exp(2.0 * gammaln(half + 0.5) - gammaln(half) - gammaln(half + 1.0))
    np.testing.assert_allclose(found, scale * x * hyp2f1(0.5, 0.5, half + 1.0, x**2), atol=4e-5)
    first, other = np.random.default_rng(0).normal(size=(2, 20_000, size))
    second = 0.6 * first + 0.8 * other
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    cosines = (first * second).sum(1) / lengths
    error = cosines.std() / math.sqrt(len(cosines))
    assert abs(cosines.mean() - found[15]) < 5.0 * error
    assert size > 100 or abs(cosines.mean() - 0.6) > 5.0 * error


def test_normalised_scores_do_not_explode():
    """The drift is then at most linear: twice the V_0 has twice the drift."""
    block = MEMBERS["normalised"]
    np.testing.assert_allclose(drift(block, 2.0 * V0), 2.0 * drift(block, V0), rtol=1e-12)
    result = integrate_sde(block, V0, horizon=0.1, step=0.05, samples=2)
    assert "steps_taken" not in result


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rope": 10.0}, "depend on the size d of a head"),
        ({"qk_norm": sa.QKNorm(eps=0.1), "key_size": 16}, "a fixed number of columns"),
        ({"qk_norm": True, "key_size": 2}, "a norm over 2 columns has a rule from 4 columns on"),
        ({"softcap": 2.0, "scaled_temperature": False}, "scores of order one are random in every"),
        ({"identity": False}, "a layer changes V by order 1, not 1/n"),
        ({"centring": False}, "a layer changes V by order 1, not 1/n"),
    ],
)
def test_what_has_no_limit_is_refused(options, message):
    block = attention(**options)
    for call in (
        lambda: drift(block, V0),
        lambda: integrate_sde([sa.ShapedMLP(0.5), block], V0, horizon=1.0, step=0.1, samples=2),
    ):
        with pytest.raises(ValueError, match=f"has no limit: .*{message}"):
            call()


@pytest.mark.parametrize(
    "options",
    [
        {"rope": [1.2]},
        {"position_bias": sa.alibi(4, 0.5)},
        {"qk_norm": True},
        {"rope": [1.2], "mask": "causal"},
    ],
)
def test_laws_of_explosion_refuse_variants(options):
    """The theorems are for V o T with uniform weights; without the variant there are bounds."""
    with pytest.raises(ValueError, match="without biases, rotations or QK-norm"):
        sa.explosion_law(attention(**options), V0)
    assert sa.explosion_law(attention(), V0).kind == "bounds"


def test_groups_have_the_bounds_of_their_linear_rate():
    """More linear noise makes explosions rarer, and shared values add to it."""
    block = ShapedAttention(0.5, 0.6, heads=4, output_projection=True)
    few, many = (replace(block, kv_heads=g) for g in (1, 4))
    rates = [x.limit.linear_rate(at_depth(x, 0.0)) for x in (few, many)]
    assert rates[0] > rates[1]
    high = [sa.explosion_law(x, V0).probability()[1] for x in (few, many)]
    assert high[0] < high[1]
