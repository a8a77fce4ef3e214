"""Expectations by multilevel Monte Carlo: the error they state, against exact laws and the SDE."""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from shaped_attention import (
    ShapedAttention,
    ShapedMLP,
    equicorrelated,
    integrate_sde,
    load,
    save,
)
from shaped_attention.numerics.observables import observables
from shaped_attention.samplers.specification import Specification, specify
from shaped_attention.statistics import multilevel
from shaped_attention.statistics.multilevel import Level, _bias, expectation
from tests.laws import final, log_det

GAMMA, T = 0.5, 0.5
K = GAMMA**2 * (2 - GAMMA**2)
ONE, FREE = ShapedAttention(GAMMA), ShapedAttention(GAMMA, 1e6)
SEEDS = range(12)


def first(v):
    return v[:, 0, 0]


def second_moment(v):
    return v[:, 0, 0] ** 2


ORACLES = {
    "mean": (ONE, np.full((1, 1), 1.3), first, 1.3, 0.01),
    "second moment": (ONE, np.eye(1), second_moment, math.exp(2 * K * T), 0.03),
    "log det": (FREE, equicorrelated(3, 0.2), log_det, math.log(0.8**2 * 1.4) - 6 * K * T, 0.02),
}


@pytest.mark.parametrize("name", ORACLES)
def test_it_keeps_the_error_it_states(name):
    """Exact expectations, 12 seeds: every error within 4.5 stated ones, their RMS within 1.3 tol.

    m = 1: E V_T = V_0 and E V_T^2 = V_0^2 exp(2 k T), as log V_T ~ N(log V_0 - k T, 2 k T);
    tau_0 -> infinity: E log det V_T = log det V_0 - k m (m + 1) T / 2. The RMS of 12 errors that
    are exactly tol in size passes 1.3 tol with probability 4 %, and the stated ones are smaller.
    """
    layer, v0, f, exact, tolerance = ORACLES[name]
    runs = [expectation(layer, v0, f, horizon=T, tolerance=tolerance, seed=seed) for seed in SEEDS]
    error = np.array([float(r["value"]) - exact for r in runs])
    stated = np.array([math.hypot(r["standard_error"], r["bias"]) for r in runs])
    assert all(r.attrs["converged"] for r in runs)
    assert (stated <= tolerance).all()
    assert (np.abs(error) < 4.5 * stated).all()
    assert math.sqrt((error**2).mean()) < 1.3 * tolerance


def test_compilation_does_not_count_in_the_time_expected(monkeypatch):
    """A first level that waits long, as for kernels, is no reason to warn; slow samples are."""
    grow, waiting = Level.grow, {0}

    def slow(level, target, pool):
        grow(level, target, pool)
        if level.number in waiting:
            time.sleep(0.3)

    monkeypatch.setattr(Level, "grow", slow)
    layer, v0, f, _, _ = ORACLES["mean"]
    # What is left takes about 100 times as many steps as the first samples, 1 s.
    monkeypatch.setattr(multilevel, "_LONG", 20.0)
    expectation(layer, v0, f, horizon=T, tolerance=0.001)
    waiting.add(2)
    with pytest.warns(UserWarning, match=r"takes about \d+ minutes or more"):
        expectation(layer, v0, f, horizon=T, tolerance=0.001)


def test_a_coarse_step_alone_is_rejected():
    """Negative control: at the step of level 0, E V^2 is off by more than the test above allows.

    So is the finest level without extrapolation, whose bias is Y_L to first order.
    """
    layer, v0, f, exact, tolerance = ORACLES["second moment"]
    result = expectation(layer, v0, f, horizon=T, tolerance=tolerance / 6, first_step=T / 2)
    stated = math.hypot(result["standard_error"], result["bias"])
    assert abs(float(result["value"]) - exact) < 4.5 * stated < 4.5 * tolerance / 6
    coarse = float(result["mean"][0])
    assert abs(coarse - exact) > 1.3 * tolerance
    plain = float(result["mean"].sum())
    assert abs(plain - exact) > max(4.5 * stated, 1.3 * tolerance / 6)


@pytest.fixture(scope="module")
def nonlinear():
    """Of 9 in 11,000 paths it is the value where they left the radius, as it warns."""
    with pytest.warns(UserWarning, match="paths of the finest level reached the radius"):
        return expectation(
            ShapedAttention(0.5, 0.7), equicorrelated(3, 0.2), "mean |rho|", horizon=T,
            tolerance=1e-3,
        )  # fmt: skip


def test_a_nonlinear_limit(nonlinear):
    """mean |rho| at tau_0 = 0.7 against 100,000 paths of `integrate_sde` at the step 1/320.

    The bias at 1/320 is that of the levels, c_1 h, and is added to the 4 standard errors.
    """
    with pytest.warns(UserWarning, match="reached the radius with a fixed step"):
        run = integrate_sde(
            ShapedAttention(0.5, 0.7), equicorrelated(3, 0.2), horizon=T, step=1 / 320,
            samples=100_000, seed=3, method="direct",
        )  # fmt: skip
    x = observables(final(run))["mean |rho|"]
    error = math.hypot(float(nonlinear["standard_error"]), x.std() / math.sqrt(len(x)))
    slope = abs(float(nonlinear["mean"][-1] / nonlinear["step"][-1]))
    difference = abs(float(nonlinear["value"]) - x.mean())
    assert difference < 4 * error + slope / 320 + float(nonlinear["bias"])
    assert abs(float(nonlinear["mean"][0]) - x.mean()) > 4 * error


def test_the_standard_error_counts_the_last_level_twice(nonlinear):
    """The error of Y_0 + ... + Y_L + Y_L follows from the levels' variances and sizes.

    With the weight 1 for Y_L it would be smaller by more than 1e-3 of itself.
    """
    assert float(nonlinear["value"]) == pytest.approx(
        float(nonlinear["mean"].sum() + nonlinear["mean"][-1]), rel=1e-12
    )
    variances = (nonlinear["variance"] / nonlinear["samples"]).values
    stated = float(nonlinear["standard_error"])
    assert stated == pytest.approx(math.sqrt(variances[:-1].sum() + 4 * variances[-1]), rel=1e-12)
    assert math.sqrt(variances.sum()) < (1 - 1e-3) * stated


@pytest.mark.parametrize(("slope", "curvature"), [(0.7, 0.3), (-0.7, 0.3), (0.0, -2.0)])
@pytest.mark.parametrize("count", [3, 5])
def test_the_bias_is_that_of_an_error_of_two_orders(count, slope, curvature):
    """E P_l = x + c_1 h + c_2 h^2, h = 2^-l: the estimate is |R_L - x| = 2 |c_2| h_L^2, exactly.

    Its standard error is that of the same combination of the last two levels.
    """
    means = [3.0 + slope * 2.0**-i + curvature * 4.0**-i for i in range(count)]
    steps = np.diff(means, prepend=0.0)
    levels = [
        SimpleNamespace(mean=np.array([y, 0.0]), error2=1e-20 * 4.0**i)
        for i, y in enumerate(steps)
    ]  # fmt: skip
    bias, error = _bias(levels)
    assert bias == pytest.approx(abs(steps.sum() + steps[-1] - 3.0), rel=1e-9)
    assert bias == pytest.approx(2 * abs(curvature) * 4.0 ** -(count - 1), rel=1e-9)
    last, before = levels[-1].error2, levels[-2].error2
    assert error == pytest.approx(math.sqrt(4 * last + before) / 3)


@pytest.mark.parametrize(
    "layer",
    [FREE, [ShapedAttention(0.4, 1.0), ShapedMLP(0.4)], ShapedAttention(0.4, mask="causal")],
)
def test_the_variance_falls_like_the_step(layer):
    """Strong order 1/2: slope 1 +- 0.2 over steps 1/32 to 1/128, also with triangular factors.

    The last two layers have those. Independent paths would have slope 0.
    """
    base = specify(layer, equicorrelated(3, 0.2), width=None, steps=8, dt=1 / 16, samples=1, seed=0)
    variances = []
    with ThreadPoolExecutor(2) as pool:
        for number in (1, 2, 3):
            level = Level(base, number, lambda v: observables(v)["mean |rho|"])
            level.grow(4096, pool)
            variances.append(level.variance[0])
    slope = -np.polyfit([1, 2, 3], np.log2(variances), 1)[0]
    assert slope == pytest.approx(1.0, abs=0.2)


@pytest.mark.portability
def test_threads_and_kernels_do_not_change_it(monkeypatch, tmp_path):
    """Bit for bit on 1 and 2 threads; to rounding in torch; and it survives a file."""
    layer, v0 = [ShapedAttention(0.4, 1.0), ShapedMLP(0.4)], equicorrelated(3, 0.2)

    def run():
        return expectation(layer, v0, "mean |rho|", horizon=0.25, tolerance=4e-3, seed=5)

    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(run())
    finally:
        torch.set_num_threads(before)
    assert results[0].identical(results[1].assign_attrs(seconds=results[0].attrs["seconds"]))
    assert load(save(results[0], tmp_path / "expectation.nc")).identical(results[0])
    monkeypatch.setattr(Specification, "compiled_device", False)
    readable = run()
    for name in ("value", "standard_error", "mean", "variance"):
        np.testing.assert_allclose(readable[name], results[0][name], rtol=1e-8)
    np.testing.assert_array_equal(readable["samples"], results[0]["samples"])


def test_it_is_cheaper_than_plain_monte_carlo():
    """At a tolerance of 0.2 % of E V^2 fewer than half the steps."""
    result = expectation(ONE, np.eye(1), second_moment, horizon=T, tolerance=3e-3)
    assert result.attrs["converged"]
    assert int(result["cost"]) == int((result["samples"] * result["level_cost"]).sum())
    assert float(result["cost"]) < 0.5 * float(result["plain_cost"])


def test_samples_are_shared_out_as_the_cost_asks():
    """N_l ~ w_l sqrt(Var_l / C_l) with w = (1, 1, 2) to 15 %, C_l with both paths of a pair.

    With w = 1 on the last level it has half as many, and with the fine path's cost alone the first
    has sqrt(3/2) times too few.
    """
    options = {"horizon": T, "tolerance": 6e-3, "first_step": T / 10, "max_levels": 3}
    result = expectation(ONE, np.eye(1), second_moment, **options)
    cost = np.array([10, 20 + 10, 40 + 20])
    np.testing.assert_array_equal(result["level_cost"], cost)
    assert (result["samples"] > 4096).all()
    share = np.array([1.0, 1.0, 2.0]) * np.sqrt(result["variance"].values / cost)
    np.testing.assert_allclose(
        result["samples"] / result["samples"].sum(), share / share.sum(), rtol=0.15
    )


def test_moments_of_a_level_are_those_of_all_its_samples(monkeypatch):
    """Blocks of 64 paths, which differ in their means: mean and variance to 1e-12 of numpy's.

    Squares around the blocks' own means are fewer by more than 0.1 %.
    """
    monkeypatch.setattr(multilevel, "_BLOCK", 64)
    seen = []

    def kept(v):
        seen.append(v[:, 0, 0].copy())
        return seen[-1]

    base = specify(ONE, np.eye(1), width=None, steps=4, dt=0.1, samples=1, seed=0)
    level = Level(base, 0, kept)
    with ThreadPoolExecutor(1) as pool:
        level.grow(256, pool)
        level.grow(640, pool)
    x = np.concatenate(seen)
    assert level.count == len(x) == 640
    np.testing.assert_allclose(level.mean, x.mean(), rtol=1e-12)
    np.testing.assert_allclose(level.variance, x.var(ddof=1), rtol=1e-12)
    assert sum(part.var() * len(part) for part in seen) < 0.999 * x.var() * len(x)


def test_levels_have_numbers_of_their_own():
    """The variances of the levels are added, so no two may share a path."""
    base = specify(ONE, np.eye(1), width=None, steps=4, dt=0.1, samples=1, seed=0)
    address = ((), "linear")
    levels = [Level(base, number, first) for number in range(5)]
    assert len({tuple(level.tasks[0].keys.key(address)) for level in levels}) == 5
    for level in levels:
        assert len({tuple(task.keys.key(address)) for task in level.tasks}) == 1


def test_what_does_not_suffice_is_said(caplog):
    result = expectation(ONE, np.eye(1), first, horizon=T, tolerance=1e-300, budget=100_000)
    assert not result.attrs["converged"]
    assert "did not suffice" in caplog.text
    # the pilots are taken whatever the budget
    assert int(result["cost"]) <= 100_000 + 2048 * 60


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tolerance": 0.0}, "tolerance must be positive and finite; got 0.0"),
        ({"first_step": 0.3}, "first_step must be a divisor of horizon=0.5.*; got 0.3"),
        ({"max_levels": 2}, "max_levels must be an integer >= 3; got 2"),
        ({"max_levels": 40}, "max_levels must be <= 30 for first_step=0.1; got 40"),
        ({"budget": 0}, "budget must be an integer >= 1; got 0"),
        ({"observable": "mean"}, "observable must be one of .*; got 'mean'"),
        ({"observable": 3}, "observable must be .*; got 3"),
        ({"observable": lambda v: v}, "observable must return finite numbers of shape"),
        ({"observable": lambda v: np.full(len(v), np.nan)}, "with 2048 that are not finite"),
        ({"observable": lambda v: ["a"] * len(v)}, "must be an array of numbers"),
        ({"layer": ShapedAttention(0.5, scaled_temperature=False)}, "no limit"),
    ],
)
def test_bad_input(change, message):
    arguments = {
        "layer": ONE, "v0": np.eye(2), "observable": first, "horizon": T, "tolerance": 0.1
    } | change  # fmt: skip
    with pytest.raises(ValueError, match=message) as error:
        expectation(arguments.pop("layer"), arguments.pop("v0"), arguments.pop("observable"),
                    **arguments)  # fmt: skip
    assert "\n" not in str(error.value)
