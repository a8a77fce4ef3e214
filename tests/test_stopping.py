"""Exit times and explosion curves."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from scipy.stats import binom, norm

import shaped_attention as sa
from shaped_attention.statistics import stopping
from shaped_attention.statistics.stopping import (
    exit_times,
    explosion_curve,
    explosion_table,
    stopping_map,
)
from tests.refusals import refused


def one_token(samples=4000, save_every=1, radius=1e6, step=0.002):
    """log V is a Brownian motion with drift -k and variance 2 k per unit time (to rounding)."""
    return sa.integrate_sde(
        sa.ShapedAttention(0.9), [[1.0]], horizon=1.0, step=step, samples=samples, seed=3,
        save_every=save_every, radius=radius,
    )  # fmt: skip


def test_exit_times_of_one_token():
    """The law of the first exit from [1/4, oo) by the reflection principle, within 3 se + 0.002.

    P(exit by T) = Phi((a - mu T) / s) + exp(2 mu a T / s^2) Phi((a + mu T) / s), a = log(1/4),
    mu = -k, s^2 = 2 k T. Monitoring at steps h moves the barrier by 0.5826 sqrt(2 k h) (Broadie,
    Glasserman and Kou, Math. Finance 7, 1997). The barrier that is not moved is excluded: at these
    125 steps the probabilities are 0.027 apart, and a standard error is 0.003.
    """
    k = 0.81 * (2 - 0.81)
    a, mu, s = np.log(0.25), -k, np.sqrt(2 * k)

    def probability(a):
        return norm.cdf((a - mu) / s) + np.exp(2 * mu * a / s**2) * norm.cdf((a + mu) / s)

    times = exit_times(one_token(30_000, step=0.008), 0.25, 1e5)
    found = np.isfinite(times).mean()
    error = np.sqrt(found * (1 - found) / len(times))
    moved = a - 0.5826 * s * np.sqrt(0.008)
    assert abs(found - probability(moved)) < 3 * error + 0.002
    assert abs(found - probability(a)) > 3 * error + 0.002


def test_exit_times_by_hand():
    v = np.array([[np.eye(2)] * 3, [np.eye(2), np.diag([1.0, 5.0]), np.diag([0.1, 1.0])]])
    result = one_token(3, save_every=500).isel(time=[0, 1])
    result = xr.Dataset(
        {"V": (("time", "sample", "row", "col"), v), "stopping_time": result["stopping_time"]},
        coords={"time": [0.0, 0.5]},
    )
    np.testing.assert_array_equal(exit_times(result, 0.5, 2.0), [np.inf, 0.5, 0.5])
    stopped = result.assign(stopping_time=("sample", [0.5, np.inf, np.inf]))
    with pytest.raises(ValueError, match=r"^result has paths that stopped inside the range up"):
        exit_times(stopped, 0.5, 2.0)


def test_explosion_curve_counts_and_bounds():
    """Against counting; the bounds hold the exact binomial tails."""
    with pytest.warns(UserWarning, match="reached the radius with a fixed step"):
        result = one_token(200, save_every=100, radius=1.5)
    curve = explosion_curve(result)
    stopped = result["stopping_time"].values
    for t, p in zip(curve["time"].values, curve["probability"].values, strict=True):
        assert p == (stopped <= t + 1e-9).mean()
    counts = np.rint(200 * curve["probability"].values)
    assert counts[0] == 0 < counts[-1]
    tails = binom.cdf(counts, 200, curve["upper"].values)
    np.testing.assert_allclose(tails[counts < 200], 0.025, rtol=1e-8)
    tails = binom.sf(counts - 1, 200, curve["lower"].values)
    np.testing.assert_allclose(tails[counts > 0], 0.025, rtol=1e-8)
    assert float(curve["lower"][0]) == 0.0


def test_the_network_follows_the_sde_to_the_radius_as_it_widens():
    """gamma = 0.6, tau_0 = 0.5: at n = 50 no path explodes, at n = 3200 nearly as many as do.

    1,000 paths each: the bound 0.05 is 3.5 standard errors of a difference. Control: the SDE at
    tau_0 = 0.7 is further away than that.
    """
    table = explosion_table(
        sa.ShapedAttention(0.6, 0.5), sa.equicorrelated(4, 0.2), (50, 800, 3200), samples=1000
    )
    ends = table["probability"].isel(time=-1).values
    assert table["curve"].values.tolist() == ["n = 50", "n = 800", "n = 3200", "SDE"]
    assert ends[0] < 0.01
    assert abs(ends[2] - ends[3]) < 0.05 < ends[3]
    assert ends[0] < ends[1] < ends[3]
    other = sa.integrate_sde(
        sa.ShapedAttention(0.6, 0.7), sa.equicorrelated(4, 0.2), horizon=0.75, step=0.0025,
        samples=1000,
    )  # fmt: skip
    assert abs(ends[2] - float(explosion_curve(other)["probability"][-1])) > 0.05


def test_stopping_map():
    """Median exit times at gamma = 0.1, 0.5 and 0.9, tau_0 = 1 and 16, from V_aa = 100.

    At tau_0 = 1 the SDE explodes with probability 0.97 for gamma = 0.5, where the chain's softmax
    saturates. For gamma = 0.9 it does not explode, and most paths stay inside; by the fixed step
    0.05 they would leave before t = 0.2.
    """
    v0 = sa.equicorrelated(2, 0.2, 100.0)
    options = {"width": 20, "samples": 20, "step": 0.05}
    data = stopping_map(v0, [0.1, 0.5, 0.9], [1.0, 16.0], **options)
    assert dict(data.sizes) == {"sampler": 2, "gamma": 3, "tau0": 2, "sample": 20}
    medians = np.median(data["exit_time"], axis=-1)
    assert (medians[0] == 1.0).all()
    assert medians[1, 1, 0] < 0.2
    assert sa.explosion_law(sa.ShapedAttention(0.5, 1.0), v0).probability() > 0.9
    assert (medians[1, :, 1] == 1.0).all()
    assert medians[1, 2, 0] == 1.0
    assert sa.explosion_law(sa.ShapedAttention(0.9, 1.0), v0).probability() == 0.0
    run = {"horizon": 1.0, "step": 0.05, "samples": 20, "save_every": 1, "radius": 2e5}
    with pytest.warns(UserWarning, match="reached the radius with a fixed step"):
        fixed = sa.integrate_sde(sa.ShapedAttention(0.9, 1.0), v0, method="direct", **run)
    assert np.median(exit_times(fixed)) < 0.2


@pytest.mark.parametrize(("width", "horizon", "depth"), [(10, 0.25, 3), (100, 0.29, 29)])
def test_chains_reach_the_horizon(width, horizon, depth, monkeypatch):
    """Depths are width * horizon, rounded up but for rounding of the product itself."""
    depths = []

    def sampled(*arguments, **options):
        depths.append(options["depth"])
        return sa.simulate_chain(*arguments, **options)

    monkeypatch.setattr(stopping, "simulate_chain", sampled)
    stopping_map(np.eye(2), [0.1], [1.0], width=width, horizon=horizon, step=horizon, samples=2)
    assert depths == [depth]


test_bad_arguments = refused(
    (lambda: exit_times(one_token(10, save_every=100)), "repeat the run with save_every=1"),
    (lambda: explosion_curve(one_token(10), times=[[0.1]]), "times must be a list of finite"),
)
