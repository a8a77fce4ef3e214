"""Tokens with lengths: flows and networks without a norm after the residual sum."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import shaped_attention as sa
from shaped_attention.sphere import (
    SphereAttention,
    equiangular_start,
    sphere_flow,
    sphere_network,
    uniform_start,
)
from shaped_attention.sphere.theory import equiangular_cosine, equiangular_field


def largest_gap(attention, start, times, normalise, tolerance=1e-5):
    """1 - the smallest cosine (time, sample), with causal attention of the first two tokens."""
    flow = sphere_flow(attention, start, times, normalise=normalise, tolerance=tolerance)
    seen = 2 if attention.causal else start.shape[1]
    return 1.0 - sa.correlations(flow["V"].values)[..., :seen, :seen].min((-2, -1))


def with_lengths(times, tokens, beta, start, normalised):
    """Cosine g and length r under "before": dg/dt = F(g) / r, dr/dt = <u, A(u)>, by scipy."""

    def slopes(_, state):
        g, r = state
        field = float(equiangular_field(g, tokens, beta, normalised))
        other = field / (2.0 * (1.0 - g) * ((tokens - 1) * g + 1.0))
        return [field / r, other * (math.exp(beta * (1.0 - g)) + (tokens - 1) * g)]

    found = solve_ivp(slopes, (0.0, times[-1]), [start, 1.0], "DOP853", times, rtol=1e-10)
    return found.y


@pytest.mark.parametrize("normalised", [True, False])
def test_equiangular_tokens_follow_the_equation_of_their_scheme(normalised):
    """Cosines and lengths to 1e-6; the cosine of the other scheme is 1e-3 away."""
    times, start, attention = [0.0, 0.3, 1.0, 3.0], -0.1, SphereAttention(1.5, normalised)
    after = equiangular_cosine(times, 5, 1.5, start, normalised)
    before, grown = with_lengths(times, 5, 1.5, start, normalised)
    for scheme, known, lengths in (("after", after, np.ones(4)), ("before", before, grown)):
        flow = sphere_flow(
            attention, equiangular_start(5, start), times, normalise=scheme, tolerance=1e-8
        )
        v = flow["V"].values[:, 0]
        cosines = sa.correlations(v)[:, 0, 1:]
        np.testing.assert_allclose(cosines, np.tile(known[:, None], 4), atol=1e-6)
        np.testing.assert_allclose(v[:, 3, 3], lengths**2, rtol=1e-6)
        assert ("length" in flow) == (scheme == "before")
    np.testing.assert_allclose(flow["length"][:, 0, 2], grown, rtol=1e-6)
    assert np.abs(after - before).max() > 1e-3


@pytest.mark.parametrize("causal", [False, True])
def test_final_exponents_are_those_of_the_theory(causal):
    """1 - cos ~ t^-2, or t^-1 with causal attention, from 4 uniform starts, N = d = 4, SA and USA.

    Exponents between t = 10^4 and 10^6 are within 1 %; e^(-2t) would have 2 t.
    """
    times = np.geomspace(1e4, 1e6, 3)
    start = uniform_start(4, 4, 4, seed=2)
    for normalised in (True, False):
        attention = SphereAttention(1.0, normalised, causal=causal)
        gap = largest_gap(attention, start, times, "before")
        slopes = -np.diff(np.log(gap), axis=0) / np.diff(np.log(times))[:, None]
        np.testing.assert_allclose(slopes, 1.0 if causal else 2.0, rtol=0.01)


def test_results_with_lengths_can_be_run_again():
    """Also with several betas and the tokens; a function sees lengths on the diagonal."""
    start, attention = uniform_start(3, 3, 2), SphereAttention(1.0)
    flow = sphere_flow(attention, start, [0.5, 1.0], normalise="before", betas=[0.5, 1.0])
    assert flow["length"].dims == ("beta", "time", "sample", "row")
    np.testing.assert_array_equal(sa.rerun(flow)["V"], flow["V"])
    kept = sphere_flow(
        attention, start, [0.5, 1.0], normalise="before",
        keep=lambda v: v.diagonal(dim1=1, dim2=2), keep_tokens=True,
    )  # fmt: skip
    np.testing.assert_allclose(kept["kept"], flow["length"].isel(beta=1) ** 2, rtol=1e-6)
    np.testing.assert_allclose((kept["tokens"] ** 2).sum("feature"), kept["kept"], rtol=1e-14)


@pytest.mark.parametrize("cosine", [5.0, np.nan, -0.6])
def test_the_field_of_no_cosine_is_refused(cosine):
    with pytest.raises(ValueError, match=r"^cosine must be "):
        equiangular_field(cosine, 3, 1.0)


def test_lengths_that_reach_zero_end_the_run():
    """One repelled token has the length 1 - t. Without norms it runs on, and reaches 0 never."""
    attention, start = SphereAttention(1.0, repulsion=True), equiangular_start(1, 1.0)
    flow = sphere_flow(attention, start, [0.9], normalise="before")
    np.testing.assert_allclose(flow["length"], 0.1, atol=1e-4)
    network = sphere_network(attention, start, 0.01, 90, normalise="before")
    np.testing.assert_allclose(network["length"][-1], 0.1, atol=1e-12)
    several = uniform_start(4, 4, 3, seed=1)
    for tokens in (start, several):
        for tolerance in (1e-2, 1e-5, 1e-7):
            with pytest.raises(FloatingPointError, match="a token reaches length 0 near t ="):
                sphere_flow(attention, tokens, [9.0], normalise="before", tolerance=tolerance)
        for step in (0.01, 0.3):
            with pytest.raises(FloatingPointError, match="takes a token past 0"):
                sphere_network(attention, tokens, step, round(9.0 / step), normalise="before")
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
