"""Numbers of a sweep: quantiles, intervals of fractions, merged moments, targets in rounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import binom, binomtest, norm

from shaped_attention.sweep import Target, sweep_distances, sweep_summary
from shaped_attention.sweep.summaries import (
    EDGES,
    frequency_bounds,
    half_width,
    histogram,
    merged,
    quantile,
)
from shaped_attention.sweep.work_order import Schedule
from tests.sweep_examples import small

LEVELS = [0.05, 0.25, 0.5, 0.75, 0.95]


@pytest.mark.parametrize("level", [0.95, 0.5])
def test_summaries_are_those_of_the_values(kept, level):
    summaries = {keep: sweep_summary(data, level) for keep, data in kept.items()}
    data, found = kept["observables"], summaries["observables"]
    x = data["values"].transpose("sampler", "gamma", "time", "kept", "sample").values
    stops = data["stopping_time"].values
    horizon = 0.5
    for summary in summaries.values():
        of = {n: summary[n].transpose("sampler", "gamma", "time", "observable").values
              for n in ("mean", "half_width", "deviation")}  # fmt: skip
        np.testing.assert_allclose(of["mean"][..., :-1], x.mean(-1), atol=1e-12)
        np.testing.assert_allclose(
            of["deviation"][..., :-1], x.std(-1, ddof=1), rtol=1e-9, atol=1e-14
        )
        z = norm.isf((1 - level) / 2)
        np.testing.assert_allclose(
            of["half_width"][..., :-1], z * x.std(-1, ddof=1) / np.sqrt(300), rtol=1e-9, atol=1e-14
        )
        stopped = np.isfinite(stops).mean(-1)
        assert 0.0 < stopped.max() < 1.0
        np.testing.assert_allclose(of["mean"][..., -1], np.stack([stopped] * 2, -1))
        for i, fraction in enumerate(summary["fraction"].values):
            curve = summary["stopped"].isel(fraction=i).transpose("sampler", "gamma").values
            direct = (stops <= fraction * horizon + 1e-9).mean(-1)
            np.testing.assert_allclose(curve, direct, atol=1e-12)
        assert (summary["samples"] == 300).all()
    exact = np.moveaxis(np.quantile(x, LEVELS, axis=-1), 0, -1)
    order = ("sampler", "gamma", "time", "kept", "level")
    np.testing.assert_allclose(found["quantile"].transpose(*order), exact)
    near = summaries["reductions"]["quantile"].transpose(*order).values
    low, high = (
        np.moveaxis(np.quantile(x, np.array(LEVELS) + step / 300, axis=-1), 0, -1)
        for step in (-1, 1)
    )
    assert (near >= low - 0.011 * np.abs(low) - 6e-4).all()
    assert (near <= high + 0.011 * np.abs(high) + 6e-4).all()
    assert "quantile" not in summaries["V"]
    for wrong in (0.0, 1.0, 7.0):
        with pytest.raises(ValueError, match=rf"confidence must be in \(0, 1\); got {wrong}"):
            sweep_summary(data, wrong)


def test_what_a_result_holds_is_not_labelled_as_the_raw_array(kept):
    """xarray keeps the attributes of what a variable is computed from."""
    for keep, data in kept.items():
        raw = {data[name].attrs["long_name"] for name in data.data_vars}
        results = [sweep_summary(data, 0.9)]
        if keep != "V":
            results.append(sweep_distances(data, confidence=0.9))
        for result in results:
            labels = {name: result[name].attrs.get("long_name", "") for name in result.data_vars}
            assert all(labels.values()), labels
            assert not raw & set(labels.values())
            assert len(set(labels.values())) == len(labels)
            intervals = {name for name in labels if "90 %" in labels[name]}
            bounds = {"half_width", "lower", "upper", "stopped_lower", "stopped_upper", "margin"}
            assert intervals == bounds & set(labels)


VALUES = arrays(float, st.tuples(st.just(1), st.integers(1, 60), st.just(1)),
                elements=st.floats(-2000, 2000))  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(VALUES, st.integers(0, 60), st.floats(0.0, 1.0))
def test_histograms_merge_and_their_quantiles_are_inside_a_bin(x, cut, level):
    """Counts of blocks add to those of all; numpy's inverted quantile shares the bin."""
    parts = [part for part in (x[:, :cut], x[:, cut:]) if part.shape[1]]
    counts = histogram(x)
    np.testing.assert_array_equal(sum(histogram(part).astype(int) for part in parts), counts)
    assert counts.sum() == x.size
    exact = np.quantile(x, level, method="inverted_cdf")
    place = np.searchsorted(EDGES, exact, side="right")
    padded = np.concatenate([EDGES[:1], EDGES, EDGES[-1:]])
    found = quantile(counts[0, 0], level)
    slack = 1e-9 * max(1.0, abs(exact))
    whole = abs(level * x.size - round(level * x.size)) < 1e-6  # then rounding chooses the bin
    assert whole or padded[place] - slack <= found <= padded[place + 1] + slack
    assert np.isnan(quantile(np.zeros_like(counts[0, 0]), level))


def test_a_quantile_is_linear_inside_its_bin():
    """Counts of 10 and 30 in two bins: a tenth of all is 0.4 of the way through the first."""
    counts = np.zeros(len(EDGES) + 1, dtype=int)
    counts[1200], counts[1300] = 10, 30
    for level, place, share in ((0.1, 1200, 0.4), (0.25, 1200, 1.0), (0.4, 1300, 0.2)):
        low, high = EDGES[place - 1], EDGES[place]
        assert quantile(counts, level) == pytest.approx(low + share * (high - low), rel=1e-12)
    assert quantile(histogram(np.full((1, 4, 1), 0.3))[0, 0], 0.5) == pytest.approx(0.3, rel=0.02)


@pytest.mark.parametrize(("stopped", "count"), [(0, 40_000), (1, 1), (3, 40), (40, 40)])
def test_intervals_of_fractions_are_exact(stopped, count):
    """Those of scipy, and the half width reaches the farther end: 9.2e-5 for 0 of 40,000."""
    mean = stopped / count
    exact = binomtest(stopped, count).proportion_ci(0.95, method="exact")
    found = frequency_bounds(count, mean, 0.95)
    np.testing.assert_allclose(found, (exact.low, exact.high), rtol=1e-9)
    half = half_width(count, mean, mean * (1 - mean) * count / max(count - 1, 1), 0.95, True)
    np.testing.assert_allclose(half, max(exact.high - mean, mean - exact.low), rtol=1e-9)
    if count == 40_000:
        assert float(half) == pytest.approx(9.2e-5, rel=0.01)


def test_intervals_of_fractions_cover():
    """At np = 3, summed over the binomial law: exact ones at 0.95 or more, normal ones at 0.8."""
    n, p = 40_000, 3.0 / 40_000
    k = np.arange(60)
    weight, mean = binom.pmf(k, n, p), k / n
    variance = mean * (1.0 - mean) * n / (n - 1)
    assert half_width(1, 0.3, np.nan, 0.95, False) == np.inf
    assert half_width(100, 1.0, 0.0, 0.95, False) == 0.0
    low, high = frequency_bounds(n, mean, 0.95)
    assert weight[(low <= p) & (p <= high)].sum() >= 0.95
    for frequency, covers in ((True, True), (False, False)):
        half = half_width(n, mean, variance, 0.95, frequency)
        assert (weight[np.abs(mean - p) <= half].sum() >= 0.95) == covers
    assert weight[np.abs(mean - p) <= half].sum() == pytest.approx(0.8, abs=0.03)


def test_bounds_of_a_summary(kept):
    """Normal ones of means, exact ones of stopped paths at the end and by each time before."""
    summary = sweep_summary(kept["observables"])
    means = summary.isel(observable=slice(0, -1))
    for name, sign in (("lower", -1), ("upper", 1)):
        np.testing.assert_allclose(means[name], means["mean"] + sign * means["half_width"])
    at = {"sampler": "chain", "gamma": 0.5, "time": 0.5, "observable": "stopped"}
    for i in (30, 99):
        cell = summary.sel(at).isel(fraction=i)
        count = round(300 * float(cell["stopped"]))
        exact = binomtest(count, 300).proportion_ci(0.95, method="exact")
        np.testing.assert_allclose(
            [cell["stopped_lower"], cell["stopped_upper"]], [exact.low, exact.high], rtol=1e-9
        )
    np.testing.assert_allclose([cell["lower"], cell["upper"]], [exact.low, exact.high], rtol=1e-9)
    assert 0 < count < 300


def test_merged_moments_are_those_of_all():
    """Blocks of 3, 0 and 5 numbers far from 0, where sums of squares would lose all digits."""
    x = 1e8 + np.random.default_rng(0).standard_normal(8)
    parts = [x[:3], x[3:3], x[3:]]
    counts = [len(part) for part in parts]
    sums = [part.sum() for part in parts]
    squares = [((part - part.mean()) ** 2).sum() if len(part) else np.nan for part in parts]
    mean, variance = merged(counts, sums, squares)
    np.testing.assert_allclose([mean, variance], [x.mean(), x.var(ddof=1)], rtol=1e-7)


def fed(means, order=None, seed=0, half=0.25, samples=64):
    """Run a Schedule on made-up moments of N(mean, 1), blocks of 4, in some order; it, and x.

    They are those of the last of two times; at the first all numbers are 0, and known exactly.
    """
    sweep = small(
        fractions=(0.5, 1.0),
        axes={"gamma": list(np.linspace(0.1, 0.3, len(means)))}, samplers=("sde",), block=4,
        samples=samples, target=Target("rho[0,1]", half, first=2), names=("rho[0,1]",),
    )  # fmt: skip
    x = np.random.default_rng(seed).standard_normal((len(means), samples)) + np.c_[means]

    def moments(unit):
        own = x[unit.cell, 4 * unit.block : 4 * unit.block + 4]
        last = [[own.sum(), ((own - own.mean()) ** 2).sum()], [0.0, 0.0]]
        return np.array([np.zeros((2, 2)), last])

    schedule, waiting, given = Schedule(sweep, {}, moments), [], []
    while waiting := waiting + list(schedule.next_units()):
        given.append(waiting.pop(0 if order is None else order.integers(len(waiting))))
        schedule.finish(given[-1])
    assert schedule.left == schedule.seconds_left() == 0
    assert schedule.total == len(given) == len(set(given))
    return schedule, x, [sum(unit.cell == c for unit in given) for c in range(len(means))]


def interval(x, count):
    return half_width(count, x[:count].mean(), x[:count].var(ddof=1), 0.95, False)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.1, 1.0), st.integers(8, 130))
def test_a_target_is_reached_in_rounds_whatever_the_order(seed, half, samples):
    """2, 4, 8, ... blocks until the half width is small enough, and no earlier than that."""
    schedule, x, blocks = fed([0.0, 1.0, -2.0], None, seed, half, samples)
    shuffled = fed([0.0, 1.0, -2.0], np.random.default_rng(seed + 1), seed, half, samples)
    assert (shuffled[0].reasons, shuffled[2]) == (schedule.reasons, blocks)
    most = -(-samples // 4)
    for cell, count in enumerate(blocks):
        reached = interval(x[cell], min(4 * count, samples)) <= half
        assert schedule.reasons[(cell, 0)] == ("target" if reached else "samples")
        assert reached or count == most
        looks = [n for n in (2, 4, 8, 16, 32) if n < count]
        assert count in (2, 4, 8, 16, 32, most)
        assert all(interval(x[cell], 4 * n) > half for n in looks)


def test_intervals_of_a_target_cover_the_mean():
    """In 200 seeds at a level of 0.95 - 4 se at least; half as wide ones do not."""
    near = []
    for seed in range(200):
        _, x, (count,) = fed([0.3], None, seed, 0.2, 512)
        half = interval(x[0], 4 * count)
        near.append(abs(x[0, : 4 * count].mean() - 0.3) / half)
    least = 0.95 - 4 * np.sqrt(0.95 * 0.05 / 200)
    assert np.mean(np.array(near) <= 1.0) >= least
    assert np.mean(np.array(near) <= 0.5) < least
