"""Sweeps: what a work unit is, what the store keeps of it, and when a cell has enough."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention.sweep import (
    Sweep,
    Target,
    layer_cells,
    open_sweep,
    resume_sweep,
    run_sweep,
)
from shaped_attention.sweep import run_loop as running
from shaped_attention.sweep.grid import Unit
from shaped_attention.sweep.store import Store
from shaped_attention.sweep.summaries import histogram
from shaped_attention.sweep.work_units import run_unit, unit_seed
from tests.sweep_examples import FIXED, Clock, small

ALL = ("network", "chain", "sde")
V0 = sa.equicorrelated(2, 0.2)


def same(first, second):
    assert first.keys() == second.keys()
    return all(first[name].tobytes() == second[name].tobytes() for name in first)


def stored(path):
    """All arrays of a store, loaded."""
    data = open_sweep(path)
    return {name: data[name].to_numpy() for name in data.data_vars if name != "reason"}


@pytest.mark.portability
@pytest.mark.parametrize("sampler", range(3))
def test_a_unit_is_a_pure_function(sampler):
    """The same bytes twice; other blocks, cells and seeds differ."""
    sweep = small(samplers=ALL)
    unit = run_unit(sweep, Unit(1, 0, sampler))
    assert same(unit, run_unit(sweep, Unit(1, 0, sampler)))
    others = (
        (sweep, Unit(0, 0, sampler)), (sweep, Unit(1, 1, sampler)),
        (sweep, Unit(1, 0, (sampler + 1) % 3)),
        (replace(sweep, seed=1), Unit(1, 0, sampler)),
    )  # fmt: skip
    assert not any(same(unit, run_unit(*other)) for other in others)


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


@pytest.mark.portability
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


def test_seconds_are_those_of_one_run(tmp_path, monkeypatch):
    """The next run has the limit of the sweep: none here, and then a long one."""
    monkeypatch.setattr(running, "time", Clock())
    for k, limit in enumerate((None, 1000.0)):
        path = tmp_path / str(k)
        report = run_sweep(small(seconds=limit), path, seconds=10.0, progress=False)
        assert 0 < report.finished < 12
        assert Store(path).sweep.seconds == limit
        assert resume_sweep(path, progress=False, seconds=1.0).left > 0
        assert resume_sweep(path, progress=False).left == 0
    with pytest.raises(ValueError, match="seconds must be positive and finite; got 0"):
        resume_sweep(path, seconds=0)


def test_a_sweep_over_norms_and_activations(tmp_path):
    """The cells are the layers themselves; post-norm has unit variances, pre-norm has not."""
    fixed = {
        "layer": "transformer", "gamma": 0.5, "tokens": 2, "rho": 0.2, "width": 16, "depth": 4,
        "step": 0.125, "norm": "rms", "heads": 2, "output_projection": True, "kv_heads": 1,
        "rope": 100.0, "head_size": 8, "activation_scale": 1.0,
    }  # fmt: skip
    axes = {"norm_place": ["before", "after"], "activation": ["gelu", "tanh"]}
    sweep = Sweep(fixed, axes, samples=8, block=8, samplers=["chain", "sde"])
    run_sweep(sweep, tmp_path / "sweep", progress=False)
    data = open_sweep(tmp_path / "sweep")
    values = data["values"].sel(kept="log V[0,0]").isel(time=-1)
    chain = values.sel(sampler="chain")
    np.testing.assert_allclose(chain.sel(norm_place="after"), 0.0, atol=1e-12)
    assert (np.abs(chain.sel(norm_place="before")) > 1e-3).all()
    np.testing.assert_allclose(values.sel(sampler="sde"), 0.0, atol=1e-12)
    correlation = data["values"].sel(kept="rho[0,1]", sampler="sde").isel(time=-1)
    gelu, tanh = (correlation.sel(activation=name).to_numpy() for name in axes["activation"])
    assert not np.array_equal(gelu, tanh)
