"""Sweeps over the fields of a model's configuration."""

from __future__ import annotations

import json

import numpy as np
import pytest

import shaped_attention as sa
from shaped_attention.numerics.observables import observables
from shaped_attention.sweep import SweepFaultsError
from shaped_attention.sweep.grid import Unit
from shaped_attention.sweep.work_units import unit_seed

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


def test_a_sweep_of_models_resumes_and_is_summarised(tmp_path):
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
    summary = sa.sweep_summary(sa.open_sweep(tmp_path / "store"))
    assert np.isfinite(summary["mean"]).all()
    assert float(summary["stopped"].max()) == 0.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"axes": {"n_layer": [2, 3]}}, r"0.5 of the 3 layers .* \(first at n_layer=3\)"),
        ({"axes": {"n_layer": [2, 0]}}, r"config has n_layer=0; .* \(first at n_layer=0\)"),
        ({"axes": {"rope_scalling": [1, 2]}}, "config has the field rope_scalling=1"),
        ({"axes": {"resid_pdrop": [0.1, 0.2]}}, "this axis has no effect"),
        ({"samplers": ("chain",)}, "some of model, once, with layer='model'"),
        ({"fixed": {"layer": "model", "tokens": 3}}, "config: a configuration is needed"),
        ({"fixed": {"layer": "model", "config": CONFIG}}, "tokens, ids: one of the two is needed"),
        ({"fixed": {"layer": "model", "config": CONFIG, "tokens": 30}}, "tokens=30: at most 20"),
        ({"fixed": {"layer": "model", "config": 3, "tokens": 3}}, "config is of the type int"),
    ],
)
def test_refused_sweeps_of_models(changes, message):
    with pytest.raises(SweepFaultsError, match=message):
        models(**changes)
