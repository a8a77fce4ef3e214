"""Where the layers on the sphere normalise: flows, exact solutions, first and final speeds."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import shaped_attention as sa
from shaped_attention.sphere import (
    MixLN,
    SphereAttention,
    equiangular_start,
    figure_data,
    sphere_flow,
    sphere_network,
    uniform_start,
)
from shaped_attention.sphere.theory import (
    equiangular_cosine,
    equiangular_field,
    equiangular_length,
    final_rate,
)

MIX = MixLN(0.7)
SCHEMES = ("after", "before", "sandwich", "ngpt", MIX)


def largest_gap(attention, start, times, normalise, tolerance=1e-5):
    """1 - the smallest cosine (time, sample), with causal attention of the first two tokens."""
    flow = sphere_flow(attention, start, times, normalise=normalise, tolerance=tolerance)
    seen = 2 if attention.causal else start.shape[1]
    return 1.0 - sa.correlations(flow["V"].values)[..., :seen, :seen].min((-2, -1))


@pytest.mark.parametrize("normalised", [True, False])
def test_equiangular_tokens_follow_the_equation_of_their_scheme(normalised):
    """Cosines and lengths to 1e-6; the cosine of every other scheme is 1e-3 away."""
    times, start, attention = [0.0, 0.3, 1.0, 3.0], -0.1, SphereAttention(1.5, normalised)
    exact = [equiangular_cosine(times, 5, 1.5, start, normalised, normalise=s) for s in SCHEMES]
    for scheme, known in zip(SCHEMES, exact, strict=True):
        flow = sphere_flow(
            attention, equiangular_start(5, start), times, normalise=scheme, tolerance=1e-8
        )
        lengths = equiangular_length(times, 5, 1.5, start, normalised, normalise=scheme)
        v = flow["V"].values[:, 0]
        cosines = sa.correlations(v)[:, 0, 1:]
        np.testing.assert_allclose(cosines, np.tile(known[:, None], 4), atol=1e-6)
        np.testing.assert_allclose(v[:, 3, 3], lengths**2, rtol=1e-6)
        assert ("length" in flow) == (scheme not in ("after", "ngpt"))
        if "length" in flow:
            np.testing.assert_allclose(flow["length"][:, 0, 2], lengths, rtol=1e-6)
    for first, second in itertools.combinations(exact, 2):
        assert np.abs(first - second).max() > 1e-3


@pytest.mark.parametrize("normalise", ["before", "sandwich", MIX])
@pytest.mark.parametrize("causal", [False, True])
def test_final_exponents_are_those_of_the_theory(normalise, causal):
    """1 - cos ~ t^-2, or t^-1 with causal attention, from 4 uniform starts, N = d = 4, SA and USA.

    Exponents between t = 10^4 and 10^6 are within 1 %; e^(-2t) would have 2 t.
    """
    times = np.geomspace(1e4, 1e6, 3)
    start = uniform_start(4, 4, 4, seed=2)
    for normalised in (True, False):
        attention = SphereAttention(1.0, normalised, causal=causal)
        gap = largest_gap(attention, start, times, normalise)
        slopes = -np.diff(np.log(gap), axis=0) / np.diff(np.log(times))[:, None]
        rate = final_rate(4, 1.0, normalised, causal, normalise=normalise)
        assert rate == (1.0 if causal else 2.0)
        np.testing.assert_allclose(slopes, rate, rtol=0.01)


@pytest.mark.parametrize("normalised", [True, False])
def test_ngpt_closes_at_the_rate_two_whatever_the_weights(normalised):
    """To 1 %, for SA and USA, where "after" has 2 e; a power of t has no such rate."""
    start, attention = uniform_start(4, 4, 4, seed=2), SphereAttention(1.0, normalised)

    def rates(normalise, times):
        gap = largest_gap(attention, start, times, normalise, 1e-7)
        return -np.diff(np.log(gap), axis=0) / np.diff(times)[:, None]

    assert final_rate(4, 1.0, normalised, normalise="ngpt") == 2.0
    np.testing.assert_allclose(rates("ngpt", [4.0, 5.0, 6.0]), 2.0, rtol=0.01)
    if not normalised:
        np.testing.assert_allclose(rates("after", [2.5, 2.8]), 2.0 * math.e, rtol=0.01)
    assert rates("sandwich", [10.0, 11.0]).max() < 0.4


def test_normalised_branches_start_at_most_sqrt_n_times_as_fast():
    """From orthogonal tokens: exactly the quotient of the two formulas, and that of two flows."""
    for tokens, beta in ((2, 0.0), (16, 1.0), (10**4, 1.0), (16, 12.0)):
        slow = float(equiangular_field(0.0, tokens, beta))
        fast = float(equiangular_field(0.0, tokens, beta, normalise="sandwich"))
        known = (math.exp(beta) + tokens - 1) / math.sqrt(math.exp(2 * beta) + tokens - 1)
        assert fast / slow == pytest.approx(known, rel=1e-12)
        assert fast / slow <= math.sqrt(tokens) * (1.0 + 1e-12)
    assert known < 1.01
    assert fast == equiangular_field(0.0, tokens, beta, normalise="ngpt")
    assert slow == equiangular_field(0.0, tokens, beta, normalise="before")
    start = equiangular_start(16, 0.0)
    moved = [
        float(sphere_flow(SphereAttention(1.0), start, [1e-4], normalise=scheme)["V"][0, 0, 0, 1])
        for scheme in SCHEMES
    ]
    ratio = (math.e + 15.0) / math.sqrt(math.e**2 + 15.0)
    np.testing.assert_allclose(np.array(moved) / moved[0], [1, 1, ratio, ratio, 1], rtol=1e-3)


def test_cosines_are_in_the_order_of_the_speeds():
    """Pre <= Mix <= Post <= nGPT, Pre <= Peri <= nGPT; Peri crosses Post once, from above."""
    times = np.geomspace(1e-2, 50.0, 200)
    for tokens, beta in ((2, 0.0), (8, 1.0), (8, 6.0), (64, 3.0)):
        after, before, sandwich, ngpt, mix = (
            equiangular_cosine(times, tokens, beta, normalise=scheme) for scheme in SCHEMES
        )
        for low, high in (
            (before, mix), (mix, after), (after, ngpt), (before, sandwich), (sandwich, ngpt),
        ):  # fmt: skip
            assert (low <= high + 1e-9).all()
        ahead = np.sign(sandwich - after)[np.abs(sandwich - after) > 1e-9]
        assert ahead[0] == 1.0
        assert ahead[-1] == -1.0
        assert (np.diff(ahead) != 0.0).sum() == 1


def test_mix_ln_switches_at_its_time():
    """It is "after" before, "before" from there with length 1, and another time is seen."""
    times, start = np.array([0.2, 0.7, 1.2]), 0.1
    mix = equiangular_cosine(times, 5, 1.0, start, normalise=MIX)
    after = equiangular_cosine(times, 5, 1.0, start)
    np.testing.assert_allclose(mix[:2], after[:2], atol=1e-10)
    later = equiangular_cosine([0.5], 5, 1.0, float(after[1]), normalise="before")
    assert mix[2] == pytest.approx(later[0], abs=1e-10)
    assert abs(equiangular_cosine(times, 5, 1.0, start, normalise=MixLN(0.6)) - mix)[2] > 1e-4
    tokens = equiangular_start(5, start)
    layers = sphere_network(SphereAttention(1.0), tokens, 0.1, 9, normalise=MIX)
    lengths = layers["length"].values[:, 0, 0]
    np.testing.assert_allclose(lengths[:8], 1.0, rtol=1e-14)
    assert lengths[8] > 1.05


def test_results_with_lengths_can_be_run_again():
    """Also with MixLN, several betas and the tokens; a function sees lengths on the diagonal."""
    start, attention = uniform_start(3, 3, 2), SphereAttention(1.0)
    flow = sphere_flow(attention, start, [0.5, 1.0], normalise=MIX, betas=[0.5, 1.0])
    assert flow["length"].dims == ("beta", "time", "sample", "row")
    np.testing.assert_array_equal(sa.rerun(flow)["V"], flow["V"])
    kept = sphere_flow(
        attention, start, [0.5, 1.0], normalise=MIX, keep=lambda v: v.diagonal(dim1=1, dim2=2),
        keep_tokens=True,
    )  # fmt: skip
    np.testing.assert_allclose(kept["kept"], flow["length"].isel(beta=1) ** 2, rtol=1e-6)
    np.testing.assert_allclose((kept["tokens"] ** 2).sum("feature"), kept["kept"], rtol=1e-14)


@pytest.mark.parametrize("normalise", ["both", 1.0, True, "MixLN"])
def test_unknown_places_are_refused(normalise):
    start, attention = uniform_start(3, 3), SphereAttention(1.0)
    for run in (
        lambda: sphere_flow(attention, start, [1.0], normalise=normalise),
        lambda: sphere_network(attention, start, 0.1, 2, normalise=normalise),
        lambda: equiangular_cosine([1.0], 3, 1.0, normalise=normalise),
    ):
        with pytest.raises(ValueError, match=r"normalise must be ('after', None|a string or)"):
            run()
    with pytest.raises(ValueError, match="until must be"):
        MixLN(0.0)
    with pytest.raises(ValueError, match="normalise must be a place, since lengths change"):
        final_rate(3, 1.0, normalise=None)
    with pytest.raises(ValueError, match="sigma must be 0 unless"):
        sphere_network(attention, start, 0.1, 2, sigma=1.0, normalise="ngpt")


def test_an_attention_of_zero_has_no_direction():
    """Antipodes at beta = 0, where A = 0: networks and flows with a normalised branch say so."""
    start, attention = equiangular_start(2, -1.0), SphereAttention(0.0)
    with pytest.raises(FloatingPointError):
        sphere_network(attention, start, 0.1, 1, normalise="ngpt")
    with pytest.raises(FloatingPointError):
        sphere_flow(attention, start, [1.0], normalise="sandwich")


def test_the_figure_has_flows_on_the_curves_of_their_schemes():
    """N = 8, d = 10^4, 10 samples: within 5 %; the curve of each other scheme is 10 % away."""
    data = figure_data(
        "speeds", betas=[1.0], times=[0.5, 1.0, 2.0, 4.0], tokens=8, dimension=10**4, until=1.0,
        samples=10,
    ).isel(beta=0)  # fmt: skip
    away = np.log(data["simulated"].values[:, None] / data["gap"].values[None])
    largest = np.abs(away).max(-1)
    assert np.diagonal(largest).max() < 0.05
    assert largest[~np.eye(5, dtype=bool)].min() > 0.1


def test_mix_ln_switches_in_the_layer_of_its_time_whatever_the_rounding():
    """11 * 0.03 is below 0.33 in floating point, and belongs to the layers after it."""
    assert 11 * 0.03 < 0.33
    start = uniform_start(4, 3, 2, seed=0)
    data = sphere_network(SphereAttention(1.0), start, 0.03, 13, normalise=MixLN(0.33))
    far = np.abs(data["length"].values - 1.0).max((1, 2)) > 1e-9
    assert far.tolist() == [False] * 12 + [True] * 2


def test_no_output_time_before_the_switch_is_needed():
    late = equiangular_length([5.0], 4, 1.0, 0.0, normalise=MixLN(1.0))
    assert late == pytest.approx(
        equiangular_length([0.5, 5.0], 4, 1.0, 0.0, normalise=MixLN(1.0))[1:], rel=1e-9
    )


@pytest.mark.parametrize("cosine", [5.0, np.nan, -0.6])
def test_the_field_of_no_cosine_is_refused(cosine):
    with pytest.raises(ValueError, match=r"^cosine must be "):
        equiangular_field(cosine, 3, 1.0)
