"""Chain and SDE coupled through the same Gaussians."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention.blocks.attention_limit import ScoresCoupling
from shaped_attention.blocks.coupling import RecordedNumbers, normal_of_chi
from shaped_attention.blocks.mlp import HiddenCoupling
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.numerics.draws import Draws, stream_key
from shaped_attention.numerics.named_numbers import Keys
from shaped_attention.numerics.seeds import derived_seed
from shaped_attention.samplers.specification import Options, specify
from shaped_attention.statistics.convergence import (
    convergence,
    coupled_pairs,
    pair_errors,
)
from tests.laws import log_det, same_law
from tests.user_block import Linear

BLOCK, STRONG = sa.ShapedAttention(0.5), (0.7, 0.7)
V0 = sa.equicorrelated(2, 0.2)
FAMILY = {
    "attention": sa.ShapedAttention(*STRONG),
    "causal": sa.ShapedAttention(*STRONG, mask="causal"),
    "biases": sa.ShapedAttention(*STRONG, query_bias=0.5, key_bias=0.5),
    "position bias": sa.ShapedAttention(*STRONG, position_bias=sa.alibi(len(V0), 0.8)),
    "projection": sa.ShapedAttention(*STRONG, output_projection=True),
    "heads": sa.ShapedAttention(*STRONG, heads=2),
    "heads, projection": sa.ShapedAttention(*STRONG, heads=2, output_projection=True),
    "MLP": sa.ShapedMLP(0.7),
    "half": sa.ShapedMLP(0.7, activation="silu", scale=2.0, hidden_ratio=0.5),
    "gated": sa.ShapedMLP(
        0.7, activation="silu", scale=2.0, hidden_ratio=0.25, gated=True, gate_bias=1.0
    ),
    "transformer": [sa.ShapedAttention(0.5, heads=2, mask="causal"), sa.ShapedMLP(0.5)],
}


def pairs(layer, width, depth, count, seed=0):
    spec = specify(
        layer, V0, width=width, steps=depth, dt=1.0 / width, samples=count, seed=seed,
        options=Options(times=[depth / width], radius=1e30, progress=False),
    )  # fmt: skip
    v, _ = coupled_pairs(spec, width)
    return v[:, 0], v[:, 1]


@pytest.mark.parametrize("member", FAMILY)
def test_the_chain_of_a_pair_is_the_chain(member):
    """To rounding, path by path, with the same seed."""
    chain, _ = pairs(FAMILY[member], 40, 10, 20, seed=3)
    alone = sa.simulate_chain(FAMILY[member], V0, width=40, depth=10, samples=20, seed=3)
    np.testing.assert_allclose(chain, alone.V.values[-1], rtol=1e-10)


@pytest.mark.filterwarnings("ignore:method=.*reached the radius with a fixed step")
@pytest.mark.parametrize("member", FAMILY)
def test_the_sde_of_a_pair_has_the_law_of_the_sde(member):
    """KS against `integrate_sde` at the same step; a limit with another gamma is rejected."""
    layer = FAMILY[member]
    _, limit = pairs(layer, 32, 16, 4000)
    run = {"horizon": 0.5, "step": 1 / 32, "samples": 20_000, "seed": 8, "method": "direct"}
    alone = sa.integrate_sde(layer, V0, **run)
    coupled = alone.isel(sample=slice(0, 4000)).copy(deep=True)
    coupled["V"][-1] = limit
    assert same_law(coupled, alone)
    other = sa.integrate_sde(sa.ShapedAttention(0.65, mask="causal"), V0, **run)
    assert not same_law(coupled, other)


@pytest.mark.parametrize("member", [name for name in FAMILY if name != "transformer"])
def test_what_drives_the_limit_is_a_brownian_motion(member):
    """The coupled scores have variance 1, M / gamma^2 has n / d off the diagonal and 2 n / d on it.

    Within 5 standard errors of 20,000 layers; heads divided by H instead of sqrt H, gamma for
    gamma^2, or 1 for n / d, are further away. Only W_O and the MLP have an M alongside that of the
    branch; with gates it is made from u alone.
    """
    block, samples = FAMILY[member], 20_000
    hidden = isinstance(block, sa.ShapedMLP)
    share = block.hidden_ratio if hidden else 1.0
    numbers = RecordedNumbers(Keys(1, "chain"), torch.arange(samples), 0, place=(0,))
    start = torch.linalg.cholesky(torch.tensor(V0)).expand(samples, -1, -1)
    p = at_depth(block, 0.0)
    block.root(p, start, numbers, 24)
    mixed = block.coupling.common(p, numbers.handed, 24)
    increments = block.coupling.scores(numbers.handed)
    found = [] if increments is None else [((increments**2).mean(0), 1.0)]
    if isinstance(mixed, torch.Tensor):
        found.append((((mixed / block.gamma**2) ** 2).mean(0), (1.0 + torch.eye(2)) / share))
    assert (increments is None) == hidden
    assert isinstance(mixed, torch.Tensor) == (hidden or "projection" in member)
    band = 5.0 * np.sqrt(2.0 / samples)
    for square, variance in found:
        assert ((square / variance - 1.0).abs() < band).all()
        assert share == 1.0 or ((square / variance / share - 1.0).abs() > band).all()


def ratio(layer):
    """Quotient of the strong errors at n = 24 and 96 (rate 1/2: 2), and its standard error."""
    data = convergence(layer, V0, (24, 96), horizon=0.25, samples=4096, radius=3.0)
    errors, standard = data["strong"].values, data["strong_error"].values
    fall = errors[0] / errors[1]
    return fall, fall * np.hypot(*(standard / errors))


@pytest.mark.parametrize("member", FAMILY)
def test_pairs_approach_each_other_for_the_whole_family(member):
    """The strong error falls by more than 1.7 from n = 24 to 96: a rate of 0.38 or more.

    At these widths the rate of 1/2 (a fall by 2) is not reached by strong scores. The wrong
    couplings below fall by less than the right ones do.
    """
    fall, error = ratio(FAMILY[member])
    assert fall - 2 * error > 1.7
    assert fall + 2 * error < 2.3


class _TransposedKeys(ScoresCoupling):
    """The limit is driven by the keys in the wrong place."""

    def scores(self, handed):
        return super().scores(handed).mT


class _LoudHeads(ScoresCoupling):
    """Heads are summed without dividing by sqrt H."""

    def scores(self, handed):
        return super().scores(handed) * self.block.heads**0.5


class _NegativeProjection(ScoresCoupling):
    """The limit sees W_O with the wrong sign."""

    def common(self, p, handed, width):
        return -super().common(p, handed, width)


class _NegativeHidden(HiddenCoupling):
    """The limit is driven by the hidden Gaussians with the wrong sign."""

    def common(self, p, handed, width):
        return -super().common(p, handed, width)


class _QuietHidden(HiddenCoupling):
    """Without the factor sqrt(n / d)."""

    def common(self, p, handed, width):
        return self.hidden_ratio**0.5 * super().common(p, handed, width)


@dataclass(frozen=True)
class _WrongAttention(sa.ShapedAttention):
    """Attention with one of these couplings."""

    wrong: str = ""

    @property
    def coupling(self):
        return globals()[self.wrong](self)


@dataclass(frozen=True)
class _WrongMLP(sa.ShapedMLP):
    """An MLP with one of these couplings."""

    wrong: str = "_NegativeHidden"

    @property
    def coupling(self):
        return globals()[self.wrong](self.hidden_ratio, self.gated)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        (_WrongAttention(*STRONG, wrong="_TransposedKeys"), "attention"),
        (_WrongAttention(*STRONG, heads=2, wrong="_LoudHeads"), "heads"),
        (
            _WrongAttention(*STRONG, output_projection=True, wrong="_NegativeProjection"),
            "projection",
        ),
        (_WrongMLP(0.7), "MLP"),
        (
            _WrongMLP(0.7, activation="silu", scale=2.0, hidden_ratio=0.5, wrong="_QuietHidden"),
            "half",
        ),
    ],
)
def test_a_wrong_coupling_does_not_converge(wrong, right):
    """Its error falls less than that of its right twin, by 3 standard errors of the difference.

    Without the division by sqrt H it falls by 1.70 instead of 1.88, the others by 1.2 or less.
    """
    fall, error = ratio(wrong)
    assert fall - 2 * error < 1.7
    better, other = ratio(FAMILY[right])
    assert better - fall > 3.0 * np.hypot(error, other)


@pytest.mark.parametrize("dof", [4, 30, 1000])
def test_quantile_coupling_makes_normals(dof):
    """Moments of the coupled diagonal within 5 standard errors: mean 0, variance 2, kurtosis 3."""
    chi = Draws(stream_key(0, "chain"), torch.arange(40_000), 0).chi([dof, dof - 1])
    x = normal_of_chi(chi, dof).numpy() / np.sqrt(2)
    for power, moment, error in ((1, 0, 1), (2, 1, 2**0.5), (3, 0, 15**0.5), (4, 3, 96**0.5)):
        assert (np.abs((x**power).mean(0) - moment) < 5 * error / np.sqrt(40_000)).all()


def test_strong_rate_one_half_and_what_is_gained():
    """Strong rate 1/2 within 0.03, and excludes 1; the gain grows with the width, above 20.

    The weak error of log det V is 3 standard errors at the smallest width, and then smaller.
    """
    data = convergence(BLOCK, V0, (16, 32, 64, 128), horizon=0.25, samples=8192)
    assert abs(float(data["strong_rate"]) - 0.5) < 0.03
    assert float(data["strong_rate_error"]) < 0.01
    gain = data["gain"].sel(observable="log det V").values
    assert gain[0] > 20
    assert gain[-1] > 4 * gain[0]
    weak = np.abs(data["weak"].sel(observable="log det V").values)
    error = data["weak_error"].sel(observable="log det V").values
    assert weak[0] > 3 * error[0]
    assert weak[-1] < weak[0]
    assert np.isfinite(data["extrapolated"]).all()


def test_errors_and_gain_are_those_of_the_pairs():
    """Recomputed from the paths of all pairs, one loop over pairs, to 1e-12.

    Gain: the variance of a difference of independent samples over that of the pairs.
    """
    layer, samples = FAMILY["transformer"], 60
    data = convergence(layer, V0, (16, 32), horizon=0.25, samples=samples, seed=4, radius=1e30)
    for width in (16, 32):
        own = derived_seed(4, {"study": "convergence", "width": width})
        chain, limit = pairs(layer, width, width // 4, samples, own)
        row = data.sel(width=width)
        size = np.sqrt(sum(x * x for x in V0.ravel()))
        apart = [np.linalg.norm(a - b) / size for a, b in zip(chain, limit, strict=True)]
        assert float(row["strong"]) == pytest.approx(np.mean(apart), rel=1e-12)
        error = np.std(apart) / np.sqrt(samples)
        assert float(row["strong_error"]) == pytest.approx(error, rel=1e-12)
        x, y = log_det(chain), log_det(limit)
        row = row.sel(observable="log det V")
        assert float(row["chain"]) == pytest.approx(np.mean(x), rel=1e-12)
        assert float(row["weak"]) == pytest.approx(np.mean(x) - np.mean(y), abs=1e-12)
        error = np.std(x - y) / np.sqrt(samples)
        assert float(row["weak_error"]) == pytest.approx(error, rel=1e-9)
        gain = (np.var(x) + np.var(y)) / np.var(x - y)
        assert float(row["gain"]) == pytest.approx(gain, rel=1e-9)
        assert gain > 3.0


def test_the_extrapolated_value_is_the_constant_of_a_line_in_one_over_the_width():
    """Fit a + c / n to the last two widths and return a; the widths must double."""
    data = convergence(BLOCK, V0, (8, 16, 32), horizon=0.25, samples=50)
    last = data["chain"].values[1:].T
    known = [float(np.polyfit([1 / 16, 1 / 32], row, 1)[1]) for row in last]
    np.testing.assert_allclose(data["extrapolated"], known, rtol=1e-10)
    assert convergence(BLOCK, V0, (8, 24), horizon=0.25, samples=50)["extrapolated"].isnull().all()


def test_the_extrapolated_value_is_the_limit():
    """tau_0 -> infinity: E log det V_T = log det V_0 - k m (m + 1) T / 2 exactly.

    The standard error is sqrt 5 of that of one width; the next order, that of (2 k m / n)^2, has
    0.002. The chain's own value at n = 8 is further away than that.
    """
    horizon, samples, k = 0.25, 200_000, 0.25 * 1.75
    data = convergence(sa.ShapedAttention(0.5, 1e9), V0, (8, 16), horizon=horizon, samples=samples)
    exact = np.log(np.linalg.det(V0)) - 3 * k * horizon
    found = float(data["extrapolated"].sel(observable="log det V"))
    error = np.sqrt(4 * k * horizon / samples)
    assert abs(found - exact) < 3 * np.sqrt(5) * error + 0.002
    alone = float(data["chain"].sel(observable="log det V", width=8))
    assert abs(alone - exact) > 3 * np.sqrt(5) * error + 0.002


def test_errors_at_two_widths_are_independent():
    """Weak errors over 40 seeds: no correlation above 0.5, 3.2 standard deviations of 0.16.

    The standard errors of fitted rates rest on it. Control: one seed for both widths, with which
    the correlations are about 0.7.
    """
    names = ["log V[0,0]", "log det V", "rho[0,1]"]
    found, control = [], []
    for seed in range(40):
        data = convergence(BLOCK, V0, (8, 16), horizon=0.25, samples=64, seed=seed)
        found.append(data["weak"].sel(observable=names).values)
        rows = [pair_errors(BLOCK, V0, n, n // 4, 64, seed, 1e30) for n in (8, 16)]
        control.append([row["weak"].sel(observable=names).values for row in rows])

    def correlations(errors):
        return [np.corrcoef(column)[0, 1] for column in np.moveaxis(np.array(errors), -1, 0).mT]

    assert np.abs(correlations(found)).max() < 0.5
    assert np.min(correlations(control)) > 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": sa.ShapedAttention(0.5, key_size=20)}, "with key_size=20 at all widths"),
        (
            {"layer": sa.ShapedAttention(0.5, heads=4, output_projection=True, query_bias=1.0)},
            "size 4, below 5",
        ),
        ({"layer": sa.ShapedAttention(0.5, heads=4)}, "widths must be >= 24, .* 4; got 16"),
        ({"layer": sa.Normalised(BLOCK)}, "cannot be coupled"),
        ({"layer": sa.ShapedAttention(0.5, rope=[1.0])}, "with rope=.* is not coupled"),
        ({"layer": sa.ShapedAttention(0.5, qk_norm=True)}, "with qk_norm=.* is not coupled"),
        (
            {"layer": sa.ShapedAttention(0.5, heads=2, kv_heads=1, output_projection=True)},
            "attention with kv_heads=1 is not coupled",
        ),
        ({"layer": Linear(0.5)}, "cannot be coupled: it does not map"),
        ({"widths": (4, 8)}, "widths must be >= 6, .* 1; got 4"),
        ({"widths": (16.5, 32)}, "widths must be an integer >= 1; got 16.5"),
        ({"radius": 0.0}, "radius must be positive and finite; got 0.0"),
    ],
)
def test_bad_arguments(options, message):
    options = {"layer": BLOCK, "v0": V0, "samples": 10} | options
    with pytest.raises(ValueError, match=message):
        convergence(**options)
