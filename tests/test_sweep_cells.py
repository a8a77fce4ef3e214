"""Kinds of cells of a sweep: flows, schedules and patterns, layers of users, models."""

from __future__ import annotations

import json

import numpy as np
import pytest

import shaped_attention as sa
from shaped_attention.numerics.observables import observables
from shaped_attention.sphere import SphereAttention, sphere_flow, uniform_start
from shaped_attention.sweep import (
    Sweep,
    SweepFaultsError,
    open_sweep,
    run_sweep,
    sweep_summary,
)
from shaped_attention.sweep.grid import Unit
from shaped_attention.sweep.work_units import run_unit, unit_seed
from tests.test_sweep import V0


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
        ({"beta": 1.0}, {"samplers": ("chain",)}, "some of sphere, once each, with layer='sphere'"),
        ({}, {}, "beta"),
        ({"beta": 1.0, "gamma": 0.5}, {}, "gamma is not a parameter"),
        ({"beta": 1.0}, {"dtype": "float32"}, "dtype must be 'float64' for flows"),
        ({"beta": 1.0, "dimension": 0}, {}, "dimension must be an integer >= 1; got 0"),
    ],
)
def test_faults_of_a_sweep_of_flows(fixed, options, message):
    known = {"layer": "sphere", "tokens": 4, "dimension": 3, "horizon": 2.0}
    with pytest.raises(ValueError, match=message):
        Sweep(known | fixed, **({"samplers": ("sphere",)} | options))


def scheduled(low, high):
    """A layer of a sweep whose parameters change with depth."""
    return sa.Pattern(
        [sa.ShapedAttention(sa.Schedule([(0.0, low), (1.0, high)])), sa.ShapedMLP(0.3)]
    )


def test_schedules_and_patterns_in_sweeps():
    """Each cell has the samples of the sampler; {schedule = [...]} is a schedule."""
    knots = [[0.0, 0.2], [1.0, 0.6]]
    fixed = {"tokens": 2, "width": 20, "depth": 4, "step": 0.05}
    for own, axis, layer in (
        ({"layer": "attention", "gamma": {"schedule": knots}}, "tau0",
         sa.ShapedAttention(sa.Schedule(knots), 0.5)),
        ({"layer": "tests.test_sweep_cells:scheduled", "low": 0.2}, "high", scheduled(0.2, 0.5)),
    ):  # fmt: skip
        sweep = Sweep(fixed | own, {axis: [0.5, 1.0]}, samples=20, block=20, keep="V", seed=3)
        unit = Unit(0, 0, 0)
        options = {"width": 20, "depth": 4, "samples": 20, "seed": unit_seed(sweep, unit)}
        alone = sa.simulate_chain(layer, V0, **options)
        np.testing.assert_array_equal(run_unit(sweep, unit)["V"][-1], alone.V[-1])
        assert np.abs(alone.V[-1] - alone.V[0]).max() > 0.01


CONFIG = {
    "model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 20,
    "n_positions": 16, "_name_or_path": "tiny",
}  # fmt: skip


def models(**changes):
    """Two depths by two deviations, eight samples of each."""
    own = {
        "fixed": {"layer": "model", "config": CONFIG, "tokens": 3},
        "axes": {"n_layer": [2, 4], "initializer_range": [0.02, 0.2]},
        "samplers": ("model",), "samples": 8, "block": 4, "fractions": (0.5, 1.0),
    }  # fmt: skip
    return sa.Sweep(**(own | changes))


def test_a_sweep_over_fields_has_the_samples_of_simulate_model(tmp_path):
    sweep = models()
    assert sa.run_sweep(sweep, tmp_path / "store", progress=False).finished == 8
    data = sa.open_sweep(tmp_path / "store").load()
    np.testing.assert_array_equal(data["time"], [0.5, 1.0])  # depths differ: fractions
    for cell, (depth, std) in enumerate([(2, 0.02), (2, 0.2), (4, 0.02), (4, 0.2)]):
        model = sa.model_from_config(CONFIG, n_layer=depth, initializer_range=std)
        seed = unit_seed(sweep, Unit(1, cell, 0))
        result = sa.simulate_model(model, 3, samples=4, seed=seed, progress=False)
        v = result["V"].sel(position=[depth // 2, depth]).to_numpy()
        kept = data["values"].sel(n_layer=depth, initializer_range=std, sampler="model")
        for name in ("log V[0,0]", "rho[0,2]", "effective rank"):
            wanted = [observables(each)[name] for each in v]
            found = kept.sel(kept=name).isel(sample=slice(4, 8)).transpose("time", "sample")
            np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_a_file_of_a_sweep_of_models_has_the_fields_of_the_configuration(tmp_path):
    """It resumes and is summarised without the configuration's file."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    toml = tmp_path / "grid.toml"
    toml.write_text(
        'samplers = ["model"]\nsamples = 8\nblock = 4\nkeep = "reductions"\n'
        '[fixed]\nlayer = "model"\nconfig = "config.json"\nids = [1, 2, 1]\n'
        "[axes]\nn_layer = [1, 3]\n"
    )
    sweep = sa.read_sweep(toml)
    assert sweep.fixed["config"]["n_embd"] == 16
    path.unlink()
    report = sa.run_sweep(sweep, tmp_path / "store", seconds=1e-9, progress=False)
    assert report.left > 0
    assert sa.resume_sweep(tmp_path / "store", progress=False).left == 0
    assert np.isfinite(sa.sweep_summary(sa.open_sweep(tmp_path / "store"))["mean"]).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"axes": {"n_layer": [2, 3]}}, r"0.5 of the 3 layers .* \(first at n_layer=3\)"),
        ({"axes": {"n_layer": [2, 0]}}, r"n_layer.*0 \(first at n_layer=0\)"),
        ({"axes": {"rope_scalling": [1, 2]}}, "rope_scalling"),
        ({"axes": {"resid_pdrop": [0.1, 0.2]}}, "has no effect on samplers"),
        ({"samplers": ("chain",)}, "some of model, once each, with layer='model'"),
        ({"fixed": {"layer": "model", "tokens": 3}}, "config must be given, fixed or as an axis"),
        ({"fixed": {"layer": "model", "config": CONFIG}}, "tokens, ids: give exactly one"),
        ({"fixed": {"layer": "model", "config": CONFIG, "tokens": 30}}, "tokens must be .* got 30"),
    ],
)
def test_refused_sweeps_of_models(changes, message):
    with pytest.raises(SweepFaultsError, match=message):
        models(**changes)
