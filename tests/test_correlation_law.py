"""`correlation_law`: the density of rho_01 without a bandwidth, against samples of the SDE."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import shaped_attention as sa
from shaped_attention import ShapedAttention, ShapedMLP, correlation_law
from shaped_attention.theory.explosion.correlation import _paths

V0 = np.array([[1.4, 0.3], [0.3, 0.7]])
LAYER = ShapedAttention(0.35, 1.5, heads=2)


@pytest.fixture(scope="module")
def law():
    return correlation_law(LAYER, V0, horizon=0.75, samples=100_000, seed=3)


@pytest.fixture(scope="module")
def sde():
    return sa.integrate_sde(LAYER, V0, horizon=0.75, step=1 / 400, samples=30_000, seed=4)


def distance(law, rho):
    """The p-value of Kolmogorov and Smirnov."""
    return stats.kstest(rho, lambda x: np.interp(x, law["edge"], law["distribution"])).pvalue


def test_distribution_is_that_of_samples(law, sde):
    """30,000 paths, of which none explodes: they would see a distance of 0.011 half of the time.

    A gamma larger by 0.03 and a sixth of tau_0 are seen.
    """
    rho = sa.correlations(sde["V"].values[-1])[:, 0, 1]
    assert float(law["distribution_error"].max()) < 0.002
    assert float(law["stopped"]) < 1e-5
    assert distance(law, rho) > 1e-3
    for wrong in (ShapedAttention(0.38, 1.5, heads=2), ShapedAttention(0.35, 0.25, heads=2)):
        other = correlation_law(wrong, V0, horizon=0.75, samples=20_000, seed=3)
        assert distance(other, rho) < 1e-3


def test_density_is_that_of_the_kernel_estimate(law, sde):
    """Within 5 standard errors where the kernel of 30,000 paths has small bias, and normalised."""
    kernel = sa.density(sde, "rho[0,1]", window=(-0.6, 0.8), points=29)
    found = np.interp(kernel["value"], law["rho"], law["density"])
    error = kernel["standard_error"].values + 0.01
    assert np.abs((found - kernel["density"].values) / error).max() < 5
    assert float(law["density"].sum()) * 0.01 == pytest.approx(
        1.0 - float(law["stopped_estimate"]), abs=1e-9
    )
    assert float(law["density"].max() / law["density_error"].max()) > 100


def test_paths_that_reach_the_level_are_left_out():
    """The stopped mass of 40,000 paths is the exact one, 0.1197, within 4 standard errors."""
    found = correlation_law(
        ShapedAttention(0.6, 0.5), sa.equicorrelated(2, 0.2), horizon=0.75, level=10.0,
        samples=40_000, seed=1,
    )  # fmt: skip
    assert float(found["stopped"]) == pytest.approx(0.1197315521, abs=1e-9)
    assert abs(float(found["stopped_estimate"] - found["stopped"])) < 4 * 0.0016
    assert float(found["distribution"][-1]) == 1 - float(found["stopped_estimate"])
    assert not abs(float(found["stopped_estimate"]) - 0.1306) < 4 * 0.0016


def test_final_values_have_the_law_of_the_determinant():
    """E log d and the variance of beta, 4,000 paths each of this and of the SDE, at large u.

    The clock makes about 700 steps, in each of which log u has a variance of 3e-4. Without
    delta / 4 in its drift, the mean of log d would be off by 12 standard errors.
    """
    layer, v0, horizon = ShapedAttention(0.8, 0.5), 20 * sa.equicorrelated(2, 0.2), 0.0005
    law = sa.explosion_law(layer, v0).coefficients
    paths = _paths(law, v0, horizon, 1e5, 4_000, 0.005, 1)
    run = sa.integrate_sde(
        layer, v0, horizon=horizon, step=horizon / 5, samples=4_000, seed=2, radius=1e5
    )
    v = run["V"].values[-1][~np.isfinite(run["stopping_time"].values)]
    u = v[:, 0, 0] - 2 * v[:, 0, 1] + v[:, 1, 1]
    exact, found = np.linalg.slogdet(v)[1] - np.log(u / 2), np.log(paths.d[paths.weight > 0.0])
    error = 4 * math.hypot(exact.std(), found.std()) / math.sqrt(4_000)
    assert abs(found.mean() - exact.mean()) < error
    assert 0.25 * law.delta * horizon * (u**2).mean() > 3 * error


@pytest.mark.parametrize(
    ("layer", "v0", "options", "message"),
    [
        (LAYER, np.eye(3), {}, r"^v0 must be of shape \(2, 2\), for two tokens; got \(3, 3\)"),
        (LAYER, np.ones((2, 2)), {}, r"^v0 must not be singular"),
        ([LAYER, ShapedMLP(0.3)], V0, {}, r"^layer must be full attention, with or without linear"),
        (LAYER, V0, {"level": 1.0}, r"^level must be finite and above u_0 = 1.5; got 1.0"),
        (LAYER, V0, {"horizon": 0.0}, r"^horizon must be positive and finite; got 0.0"),
        (LAYER, V0, {"samples": 1}, r"^samples must be an integer >= 2; got 1"),
    ],
)
def test_refusals(layer, v0, options, message):
    with pytest.raises(ValueError, match=message):
        correlation_law(layer, v0, **{"horizon": 0.5} | options)
