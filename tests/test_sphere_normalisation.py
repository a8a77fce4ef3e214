"""Where the layers on the sphere normalise: flows, exact solutions, first and final speeds."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest

import shaped_attention as sa
from shaped_attention.sphere import (
    MixLN,
    SphereAttention,
    equiangular,
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
    with pytest.raises(ValueError, match="normalise must be given, since lengths change"):
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


def test_a_step_of_the_flow_ends_where_mix_ln_switches():
    """Lengths 0.001 to 0.1 later are within a tolerance; a step across is wrong by up to 8."""
    for tokens, beta, start, until in (
        (4, 1.0, 0.3, 0.35),
        (4, 3.0, 0.0, 0.7),
        (8, 6.0, 0.2, 0.35),
    ):
        at = until + np.array([1e-3, 1e-2, 0.1])
        mix, attention = MixLN(until), SphereAttention(beta)
        lengths = equiangular_length(at, tokens, beta, start, normalise=mix)
        for tolerance in (1e-4, 1e-5, 1e-7):
            flow = sphere_flow(
                attention, equiangular_start(tokens, start), at, normalise=mix, tolerance=tolerance
            )
            np.testing.assert_allclose(flow["length"][:, 0, 0], lengths, atol=tolerance, rtol=0)


def test_one_cluster_passes_the_switch_at_any_time():
    """Of length 1, then growing at the rate 1; steps to the switch may be negligible beside it."""
    for until in (0.7, 1e4, 1e7):
        flow = sphere_flow(
            SphereAttention(1.0), equiangular_start(4, 1.0), [until, until + 1.0, until + 5.0],
            normalise=MixLN(until), tolerance=1e-12,
        )  # fmt: skip
        np.testing.assert_allclose(
            flow["length"][:, 0, 2], [1.0, 2.0, 6.0], rtol=1e-14 * until + 1e-12
        )


@pytest.mark.parametrize("normalise", ["before", "sandwich", MixLN(0.5)])
def test_lengths_that_reach_zero_end_the_run(normalise):
    """One repelled token has the length 1 - t. Without norms it runs on, and reaches 0 never."""
    attention, start = SphereAttention(1.0, repulsion=True), equiangular_start(1, 1.0)
    end = 1.0 + (0.5 if isinstance(normalise, MixLN) else 0.0)
    flow = sphere_flow(attention, start, [end - 0.1], normalise=normalise)
    np.testing.assert_allclose(flow["length"], 0.1, atol=1e-4)
    network = sphere_network(attention, start, 0.01, round(100 * end) - 10, normalise=normalise)
    np.testing.assert_allclose(network["length"][-1], 0.1, atol=1e-12)
    several = uniform_start(4, 4, 3, seed=1)
    for tokens in (start, several):
        for tolerance in (1e-2, 1e-5, 1e-7):
            with pytest.raises(FloatingPointError, match="a token reaches length 0 near t ="):
                sphere_flow(attention, tokens, [9.0], normalise=normalise, tolerance=tolerance)
        for step in (0.01, 0.3):
            with pytest.raises(FloatingPointError, match="takes a token past 0"):
                sphere_network(attention, tokens, step, round(9.0 / step), normalise=normalise)
        free = sphere_flow(attention, tokens, [20.0], normalise=None)
        assert float(free["length"].max()) < 1.0


def test_steps_of_long_tokens_are_as_long_as_the_tokens():
    """Without norms one cluster grows like e^t: to t = 20 in some hundred evaluations, not 10^5."""
    asked = 0

    class Counted(SphereAttention):
        def moved(self, *args, **kwargs):
            nonlocal asked
            asked += 1
            return super().moved(*args, **kwargs)

    flow = sphere_flow(Counted(1.0), equiangular_start(3, 1.0), [20.0], normalise=None)
    np.testing.assert_allclose(flow["length"], math.exp(20.0), rtol=1e-3)
    assert asked < 3000


def test_equiangular_tokens_of_length_zero_are_an_error():
    """From -1/(N - 1) at beta < 0 the length falls at a constant rate, also after a switch."""
    rate = -math.expm1(-3.0) / (math.exp(-3.0) + 2.0)
    for normalise, begin in (("before", 0.0), ("sandwich", 0.0), (MixLN(3.0), 3.0)):
        end = begin + (1.0 if normalise == "sandwich" else 1.0 / rate)
        lengths = equiangular_length([begin, end - 0.01], 3, -2.0, -0.5, normalise=normalise)
        assert lengths[0] == 1.0
        assert 0.0 < lengths[1] < 0.02
        for function in (equiangular_length, equiangular_cosine):
            with pytest.raises(FloatingPointError, match=f"reaches 0 at t = {end:g}$"):
                function([end + 0.01], 3, -2.0, -0.5, normalise=normalise)


@pytest.mark.parametrize("normalise", ["sandwich", "ngpt"])
def test_an_attention_of_zero_is_refused_by_the_equation(normalise):
    """At beta = 0 and -1/(N - 1), for every N; above it, and for other beta, it is followed."""
    for tokens in (2, 3, 50):
        low = -1.0 / (tokens - 1)
        with pytest.raises(ValueError, match=r"start must be above -1/\(N-1\) at beta = 0"):
            equiangular_length([1.0], tokens, 0.0, low, normalise=normalise)
        with pytest.raises(ValueError, match=r"cosine must be above -1/\(N-1\) at beta = 0"):
            equiangular_field([low, 0.0], tokens, 0.0, normalise=normalise)
        assert equiangular_cosine([1.0], tokens, 0.1, low, normalise=normalise)[0] == low
        assert (
            equiangular_cosine([1.0], tokens, 0.0, low + 1e-9, normalise=normalise)[0] > low + 0.1
        )


def test_ngpt_leaves_the_lowest_cosine_at_once():
    """g' ~ sqrt(g + 1/(N-1)) at beta = 0. It takes the milliseconds that other starts take."""
    asked = 0
    field = equiangular._weights

    def counted(*args):
        nonlocal asked
        asked += 1
        return field(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(equiangular, "_weights", counted)
        for tokens, gap in ((3, 1e-9), (3, 1e-12), (50, 1e-15)):
            start = -1.0 / (tokens - 1) + gap
            equiangular_cosine([0.5, 2.0], tokens, 0.0, start, normalise="ngpt")
    assert asked < 20_000


@pytest.mark.parametrize("beta", [14.0, 30.0, 100.0, 300.0])
def test_lengths_of_usa_may_be_as_large_as_they_are(beta):
    """From orthogonal tokens r = 1 + t (e^beta + N - 1) / N while they hardly turn."""
    for t in (1e-3, 1.0, 100.0):
        length = equiangular_length([t], 3, beta, 0.0, False)
        known = 1.0 + t * (math.exp(beta) + 2.0) / 3.0
        np.testing.assert_allclose(length, known, rtol=2e-3)
        cosine = equiangular_cosine([t], 3, beta, 0.0, False, normalise="before")
        assert 0.0 <= float(cosine[0]) < 1e-4


@pytest.mark.parametrize(
    ("beta", "low", "high"), [(1.0, 0, 1e-12), (16.0, 1e-11, 1e-9), (30.0, 1e-5, 1e-3)]
)
def test_errors_of_the_equation_are_those_of_rounded_times(beta, low, high):
    """Against t(s) by quadrature with 40 digits, N = 2, 8 and 32, from orthogonal tokens."""
    errors = []
    with mpmath.workdps(40):
        for tokens in (2, 8, 32):

            def slowness(s, tokens=tokens):
                own = mpmath.exp(beta * tokens / (mpmath.exp(s) + tokens - 1))
                return (own + tokens - 1) / (2 * tokens)

            grid = [mpmath.mpf(k) / 4 for k in range(29)]
            parts = [mpmath.quad(slowness, ends) for ends in itertools.pairwise(grid)]
            times = [float(mpmath.fsum(parts[: k + 1])) for k in range(len(parts))]
            known = [float(1 - tokens / (mpmath.exp(s) + tokens - 1)) for s in grid[1:]]
            errors.append(np.abs(equiangular_cosine(times, tokens, beta) - known).max())
    assert low <= max(errors) <= high
