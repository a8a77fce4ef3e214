"""Sweeps: what a work unit is, what the store keeps of it, and when a cell has enough."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import shaped_attention as sa
from shaped_attention.sphere import SphereAttention, sphere_flow, uniform_start
from shaped_attention.sweep import (
    Sweep,
    Target,
    cells,
    layer_cells,
    open_sweep,
    resume_sweep,
    run_sweep,
    sweep_summary,
)
from shaped_attention.sweep import run as running
from shaped_attention.sweep.histograms import histogram
from shaped_attention.sweep.store import Store
from shaped_attention.sweep.work_order import Schedule, half_width
from shaped_attention.sweep.work_units import Unit, run_unit, unit_seed
from tests.sweep_examples import FIXED, Clock, scores, small

ALL = ("network", "chain", "sde")
V0 = sa.equicorrelated(2, 0.2)


def same(first, second):
    assert first.keys() == second.keys()
    return all(first[name].tobytes() == second[name].tobytes() for name in first)


def stored(path):
    """All arrays of a store, loaded."""
    data = open_sweep(path)
    return {name: data[name].to_numpy() for name in data.data_vars if name != "reason"}


@pytest.mark.parametrize("keep", ["observables", "V", "reductions"])
@pytest.mark.parametrize("sampler", range(3))
def test_a_unit_is_a_pure_function(sampler, keep):
    """The same bytes twice; other blocks, cells and seeds differ."""
    sweep = small(samplers=ALL, keep=keep)
    unit = run_unit(sweep, Unit(1, 0, sampler))
    assert same(unit, run_unit(sweep, Unit(1, 0, sampler)))
    others = (
        (sweep, Unit(0, 0, sampler)), (sweep, Unit(1, 1, sampler)),
        (replace(sweep, seed=1), Unit(1, 0, sampler)),
    )  # fmt: skip
    assert not any(same(unit, run_unit(*other)) for other in others)


def test_samplers_have_different_numbers():
    found = [run_unit(small(samplers=ALL), Unit(0, 0, s))["values"] for s in range(3)]
    assert not np.array_equal(found[0], found[1])
    assert not np.array_equal(found[1], found[2])


@pytest.mark.parametrize(
    ("axes", "cell"),
    [
        ({"gamma": [0.3], "tau0": [1.5]}, 0),
        ({"tau0": [0.5, 1.5, 2.0], "gamma": [0.1, 0.3]}, 3),
        ({"gamma": [0.1, 0.3], "tau0": [0.5, 1.5, 2.0]}, 4),
        ({"width": [10, 20], "gamma": [0.3], "tau0": [1.5]}, 1),
    ],
)
def test_a_cell_has_the_same_numbers_in_every_grid(axes, cell):
    """Alone, in larger grids, with the axes in another order; its neighbour has others."""
    fixed = {k: v for k, v in FIXED.items() if k not in axes}
    grid = small(fixed=fixed, axes=axes)
    alone = small(fixed=FIXED | {"gamma": 0.3, "tau0": 1.5}, axes={})
    reference = run_unit(alone, Unit(1, 0, 1))
    assert same(run_unit(grid, Unit(1, cell, 1)), reference)
    if len(grid.axes["gamma"]) > 1:
        assert not same(run_unit(grid, Unit(1, (cell + 1) % 6, 1)), reference)


def test_other_samples_and_samplers_in_a_sweep_do_not_change_a_cell():
    reference = run_unit(small(), Unit(1, 1, 1))
    assert same(run_unit(small(samples=500), Unit(1, 1, 1)), reference)
    assert same(run_unit(small(samplers=("sde",)), Unit(1, 1, 0)), reference)


@pytest.mark.parametrize("sampler", range(3))
def test_a_unit_is_a_call_of_the_sampler(sampler):
    """With the unit's seed, at two times, with a radius that some paths reach."""
    sweep = small(samplers=ALL, keep="V", fractions=(0.5, 1.0), fixed=FIXED | {"radius": 2.0})
    for unit in (Unit(0, 0, sampler), Unit(2, 1, sampler)):
        layer = sa.ShapedAttention(sweep.axes["gamma"][unit.cell])
        common = {
            "samples": 8 if unit.block == 0 else 4, "seed": unit_seed(sweep, unit),
            "times": [0.25, 0.5], "radius": 2.0,
        }  # fmt: skip
        if sampler == 2:
            direct = sa.integrate_sde(layer, V0, horizon=0.5, step=0.05, **common)
        else:
            simulate = (sa.simulate_network, sa.simulate_chain)[sampler]
            direct = simulate(layer, V0, width=20, depth=10, **common)
        found = run_unit(sweep, unit)
        np.testing.assert_array_equal(found["V"], direct["V"].values)
        np.testing.assert_array_equal(found["stopping_time"], direct["stopping_time"].values)
        stopped = np.isfinite(found["stopping_time"])
        assert found["stopping"][-1] == (~stopped).sum()
        total = stopped.sum()
        np.testing.assert_allclose(found["moments"][-1, -1], [total, total * (1 - stopped.mean())])
        if unit.block == 0:
            assert 0 < stopped.sum() < 8


def test_what_the_ways_to_keep_store():
    """The same samples: values are observables of V, moments and histograms those of values."""
    v, values, reductions = (
        run_unit(small(keep=keep, fractions=(0.0, 0.5, 1.0)), Unit(2, 1, 0))
        for keep in ("V", "observables", "reductions")
    )
    assert v["V"].shape == (3, 4, 2, 2)
    names = small().observed[:-1]
    for i in range(3):
        found = sa.observables(v["V"][i])
        assert tuple(found) == names
        np.testing.assert_array_equal(values["values"][i], np.stack(list(found.values()), -1))
    x = values["values"]
    np.testing.assert_array_equal(
        values["moments"][:, :-1],
        np.stack([x.sum(1), ((x - x.mean(1, keepdims=True)) ** 2).sum(1)], axis=-1),
    )
    np.testing.assert_array_equal(reductions["histogram"], histogram(x))
    for one in (v, reductions):
        np.testing.assert_array_equal(one["moments"], values["moments"])
        np.testing.assert_array_equal(one["stopping"], values["stopping"])
    np.testing.assert_array_equal(v["stopping_time"], values["stopping_time"])
    assert set(reductions) == {"moments", "stopping", "histogram"}


def test_the_last_block_is_what_is_left(tmp_path):
    sweep = small(names=("rho[0,1]",))
    assert run_unit(sweep, Unit(2, 0, 0))["values"].shape == (1, 4, 1)
    report = run_sweep(sweep, tmp_path / "s")
    assert (report.finished, report.left, report.reasons) == (12, 0, {"samples": 4})
    data = stored(tmp_path / "s")
    assert data["drawn"].tolist() == [[[8, 8, 4]] * 2] * 2
    for unit in Store(tmp_path / "s").finished():
        place = slice(8 * unit.block, 8 * unit.block + 8)
        np.testing.assert_array_equal(
            data["values"][unit.sampler, unit.cell, :, place], run_unit(sweep, unit)["values"]
        )


@pytest.mark.parametrize("kind", [MemoryError, torch.OutOfMemoryError])
def test_a_unit_that_does_not_fit_is_run_in_chunks(kind, monkeypatch):
    """With the same numbers; an error if not even one sample fits."""
    reference, simulate, tried = run_unit(small(), Unit(0, 0, 0)), layer_cells.simulate_chain, []

    def limited(most):
        def run(*arguments, chunk, **options):
            tried.append(chunk)
            if chunk is None or chunk > most:
                raise kind("too much")
            return simulate(*arguments, chunk=chunk, **options)

        return run

    for most in (4, 3, 1):
        monkeypatch.setattr(layer_cells, "simulate_chain", limited(most))
        assert same(run_unit(small(), Unit(0, 0, 0)), reference)
    assert tried == [None, 4, None, 4, 2, None, 4, 2, 1]
    monkeypatch.setattr(layer_cells, "simulate_chain", limited(0))
    with pytest.raises(MemoryError, match="chain: one sample does not fit into memory"):
        run_unit(small(), Unit(0, 0, 0))


def test_a_layer_of_ones_own():
    fixed = FIXED | {"layer": "tests.sweep_examples:scores", "bias": 0.2}
    sweep = small(fixed=fixed, axes={"strength": [0.3, 0.5]}, keep="V")
    options = {"width": 20, "depth": 10, "samples": 8, "seed": unit_seed(sweep, Unit(1, 1, 0))}
    direct = sa.simulate_chain(scores(0.5, 0.2), V0, **options)
    found = run_unit(sweep, Unit(1, 1, 0))["V"]
    np.testing.assert_array_equal(found[-1], direct["V"].values[-1])


def test_a_sweep_survives_json():
    """Also the order of its axes, in which the store has its dimensions."""
    sweep = small(
        fixed={"covariance": np.eye(2), "depth": 10, "step": 0.05},
        axes={"width": np.array([20, 40]), "gamma": np.linspace(0.1, 0.3, 3), "mask": [None]},
        target=Target("stopped", 0.1, first=2), seconds=5.0, names=("rho[0,1]",), seed=2**60,
    )  # fmt: skip
    again = Sweep.from_json(sweep.to_json())
    assert (again, again.digest, again.to_json()) == (sweep, sweep.digest, sweep.to_json())
    assert (list(again.axes), again.shape) == (list(sweep.axes), sweep.shape)
    assert again.values((1, 2, 0)) == sweep.values((1, 2, 0))


def test_the_digest_is_of_what_determines_the_numbers():
    sweep = small(names=("rho[0,1]", "log trace V"))
    target = Target("stopped", 0.1)
    assert sweep.digest == replace(sweep, seconds=3.0, target=target).digest
    fixed, axes = sweep.fixed, sweep.axes
    others = [
        replace(sweep, **change)
        for change in (
            {"seed": 1}, {"samples": 21}, {"block": 9}, {"keep": "V"}, {"names": ("rho[0,1]",)},
            {"fractions": (0.5, 1.0)}, {"dtype": "float32"}, {"samplers": ("sde", "chain")},
            {"fixed": fixed | {"rho": 0.3}}, {"axes": axes | {"tau0": [2.0]}},
            {"axes": {"gamma": [0.5, 0.3]}},
        )
    ]  # fmt: skip
    assert len({sweep.digest, *(other.digest for other in others)}) == 12
    # Axes in another order are another layout of the store.
    two = {"width": [20, 40], "gamma": [0.3, 0.5]}
    fixed = {k: v for k, v in FIXED.items() if k != "width"}
    orders = [small(fixed=fixed, axes=dict(o)) for o in (two.items(), reversed(two.items()))]
    assert orders[0].digest != orders[1].digest


def test_a_store_with_axes_in_any_order_is_read_and_resumed(tmp_path, monkeypatch):
    fixed = {k: v for k, v in FIXED.items() if k != "width"}
    sweep = small(fixed=fixed, axes={"width": [20, 40], "gamma": [0.3, 0.4, 0.5]})
    run_sweep(sweep, tmp_path / "whole")
    monkeypatch.setattr(running, "time", Clock())
    report = run_sweep(replace(sweep, seconds=30.0), tmp_path / "parts")
    assert 0 < report.left < 36
    data = open_sweep(tmp_path / "parts")
    there = np.isfinite(data["values"].isel(time=0, kept=0)).sum("sample")
    drawn = data["drawn"].sum("block").transpose(*there.dims)
    np.testing.assert_array_equal(drawn, there)
    while report.left:
        report = resume_sweep(tmp_path / "parts")
    whole, parts = stored(tmp_path / "whole"), stored(tmp_path / "parts")
    assert all(np.array_equal(whole[k], parts[k], equal_nan=True) for k in whole)


def test_a_time_limit_stops_early_and_loses_nothing(tmp_path, monkeypatch):
    run_sweep(small(), tmp_path / "whole")
    with monkeypatch.context() as patched:
        patched.setattr(running, "time", Clock())
        report = run_sweep(small(seconds=10.0), tmp_path / "parts")
        assert report.reasons["time"] == 4
        assert 0 < report.finished < 12
        assert report.left == 12 - report.finished
    assert run_sweep(small(), tmp_path / "parts").reasons == {"samples": 4}
    whole, parts = stored(tmp_path / "whole"), stored(tmp_path / "parts")
    assert all(np.array_equal(whole[k], parts[k], equal_nan=True) for k in whole)


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

    schedule, waiting, given = Schedule(sweep, [], moments), [], []
    while waiting := waiting + list(schedule.next_units()):
        given.append(waiting.pop(0 if order is None else order.integers(len(waiting))))
        schedule.finish(given[-1])
    assert schedule.left == 0
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


def test_a_sweep_of_flows_on_the_sphere(tmp_path):
    """Its units are flows from uniform starts, and clusters form later in higher dimension."""
    sweep = Sweep(
        {"layer": "sphere", "tokens": 4, "horizon": 2.0, "beta": 1.0},
        {"dimension": [2, 100]},
        samplers=("sphere",),
        samples=64,
        block=32,
        names=("rho[0,1]", "mean |rho|"),
        fractions=(0.3, 1.0),
    )
    run_sweep(sweep, tmp_path / "grid")
    data = open_sweep(tmp_path / "grid")
    start = uniform_start(4, 100, 32, unit_seed(sweep, Unit(1, 1, 0)))
    flow = sphere_flow(SphereAttention(1.0), start, [0.6, 2.0])
    stored = (
        data["values"].sel(dimension=100, kept="rho[0,1]").isel(sampler=0, sample=slice(32, 64))
    )
    np.testing.assert_allclose(stored, flow["V"][..., 0, 1], atol=1e-14)
    mean = sweep_summary(data)["mean"].sel(observable="mean |rho|").isel(time=0).squeeze()
    assert float(mean.sel(dimension=2)) > float(mean.sel(dimension=100)) + 0.2


@pytest.mark.parametrize(
    ("fixed", "options", "message"),
    [
        ({"beta": 1.0}, {"samplers": ("chain",)}, "some of sphere, once, with layer='sphere'"),
        ({}, {}, "beta: a value is needed"),
        ({"beta": math.nan}, {}, "beta=nan: a finite number"),
        ({"beta": 1.0, "gamma": 0.5}, {}, "gamma: no parameter"),
        ({"beta": 1.0}, {"dtype": "float32"}, "computed in 'float64'"),
        ({"beta": 1.0, "dimension": 0}, {}, "dimension=0: a whole number"),
    ],
)
def test_faults_of_a_sweep_of_flows(fixed, options, message):
    known = {"layer": "sphere", "tokens": 4, "dimension": 3, "horizon": 2.0}
    with pytest.raises(ValueError, match=message):
        Sweep(known | fixed, **({"samplers": ("sphere",)} | options))


def test_a_kind_of_cell_is_an_entry_of_the_table(tmp_path, monkeypatch):
    """With samplers and parameters of its own; units, faults and the store follow from it."""
    monkeypatch.setitem(cells.CELLS, "constant", "tests.sweep_examples:Constant")
    options = {"samplers": ("constant",), "samples": 20, "block": 8}
    sweep = Sweep({"layer": "constant"}, {"height": [1.0, 3.0]}, **options)
    run_sweep(sweep, tmp_path / "s", progress=False)
    mean = sweep_summary(open_sweep(tmp_path / "s"))["mean"].sel(observable="log trace V")
    np.testing.assert_allclose(mean.squeeze(), np.log([1.0, 3.0]), atol=1e-14)
    with pytest.raises(ValueError, match=r"height=-1.0: a number >= 0 .*\(first at height=-1.0"):
        Sweep({"layer": "constant"}, {"height": [1.0, -1.0]}, **options)
    with pytest.raises(ValueError, match=r"'sde'\]: some of constant, once, with layer='constant'"):
        Sweep({"layer": "constant", "height": 1.0})


def scheduled(low, high):
    """A layer of a sweep whose parameters change with depth."""
    return sa.Pattern(
        [sa.ShapedAttention(sa.Schedule([(0.0, low), (1.0, high)])), sa.ShapedMLP(0.3)]
    )


def test_schedules_and_patterns_in_sweeps(tmp_path):
    """Each cell has the samples of the sampler; {schedule = [...]} is a schedule."""
    knots = [[0.0, 0.2], [1.0, 0.6]]
    fixed = {"tokens": 2, "width": 20, "depth": 4, "step": 0.05}
    for own, axes, layer in (
        ({"layer": "attention", "gamma": {"schedule": knots}}, {"tau0": [0.5, 1.0]}, None),
        ({"layer": "tests.test_sweep:scheduled", "low": 0.2}, {"high": [0.4, 0.6]}, scheduled),
    ):
        sweep = Sweep(fixed | own, axes, samples=20, block=20, keep="V", seed=3)
        path = tmp_path / own["layer"].split(":")[-1]
        run_sweep(sweep, path, progress=False)
        (axis, (value, _)) = next(iter(axes.items()))
        there = scheduled(0.2, value) if layer else sa.ShapedAttention(sa.Schedule(knots), value)
        alone = sa.simulate_chain(
            there, sa.equicorrelated(2, 0.2), width=20, depth=4, samples=20,
            seed=unit_seed(sweep, Unit(0, 0, 0)),
        )  # fmt: skip
        stored = open_sweep(path)["V"].sel({axis: value, "sampler": "chain"})
        np.testing.assert_array_equal(stored.isel(time=-1).squeeze(), alone.V[-1])
        assert np.abs(alone.V[-1] - alone.V[0]).max() > 0.01
