"""Datasets of sweeps, their means, quantiles and distances, and the commands."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner
from scipy.stats import ks_2samp

import shaped_attention as sa
from shaped_attention.commands.main import main
from shaped_attention.sweep import Sweep, run_sweep
from shaped_attention.sweep.specification import Unit
from tests.sweep_examples import FIXED, TOML, small


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A sweep whose paths stop often, with V."""
    path = tmp_path_factory.mktemp("stored") / "a.sweep"
    fixed = FIXED | {"radius": 1.6}
    sweep = small(samples=300, block=128, fractions=(0.5, 1.0), fixed=fixed, keep="V")
    run_sweep(sweep, path, progress=False)
    return sweep, path


@pytest.fixture(scope="module")
def data(stored):
    """Its Dataset."""
    return sa.open_sweep(stored[1])


def test_a_dataset_has_the_samples_of_the_samplers(stored, data):
    sweep, _ = stored
    assert data.sizes == {
        "sampler": 2, "gamma": 2, "fraction": 2, "sample": 300, "observable": 8, "row": 2, "col": 2,
    }  # fmt: skip
    layer, v0 = sa.ShapedAttention(0.5), sa.equicorrelated(2, 0.2)
    seed = sweep.unit_seed(Unit("chain", "1", 1, 128))
    chain = sa.simulate_chain(
        layer, v0, width=20, depth=4, samples=128, seed=seed, times=[0.1, 0.2], radius=1.6,
        progress=False,
    )  # fmt: skip
    block = data.sel(sampler="chain", gamma=0.5).isel(sample=slice(128, 256))
    np.testing.assert_array_equal(block["V"], chain["V"].transpose("time", "sample", ...))
    np.testing.assert_array_equal(block["stopping_time"], chain["stopping_time"])
    named = sa.observables(chain["V"].isel(time=-1).values)
    for name in data["observable"].values:
        np.testing.assert_array_equal(block["values"].sel(observable=name)[-1], named[name])
    assert (data.attrs["missing"], data.attrs["damaged"]) == (0, 0)
    assert Sweep.from_json(data.attrs["sweep"]).model_dump() == sweep.model_dump()


def test_a_selection_is_a_part(stored, data):
    part = sa.open_sweep(stored[1], select={"gamma": [0.5], "sampler": "sde"})
    xr.testing.assert_equal(part, data.sel(gamma=[0.5], sampler="sde"))
    for wrong in ({"gamma": 0.4}, {"tau0": 1.0}, {"gamma": [0.5, 0.5]}):
        with pytest.raises(ValueError, match="select must"):
            sa.open_sweep(stored[1], select=wrong)
    with pytest.raises(ValueError, match="data must be a Dataset with two samplers"):
        sa.sweep_distances(part)
    with pytest.raises(ValueError, match="max_bytes must be at least"):
        sa.open_sweep(stored[1], max_bytes=1000)


def test_what_is_missing_is_nan_and_counted(stored, tmp_path):
    path = tmp_path / "a.sweep"
    run_sweep(stored[0], path, seconds=1e-9, progress=False)
    data = sa.open_sweep(path)
    assert data.attrs["missing"] == 12
    assert np.isnan(data["values"]).all()
    summary = sa.sweep_summary(data)
    assert (summary["samples"] == 0).all()
    for name in ("mean", "lower", "quantile", "stopped", "stopped_lower"):
        assert np.isnan(summary[name]).all()
    with pytest.raises(ValueError, match="some cells have no samples yet"):
        sa.sweep_distances(data)


def test_summaries_are_those_of_the_samples(data):
    summary, values = sa.sweep_summary(data), data["values"].values
    np.testing.assert_allclose(summary["mean"], values.mean(3), rtol=1e-12)
    np.testing.assert_allclose(summary["deviation"], values.std(3, ddof=1), rtol=1e-12)
    half = 1.959964 * values.std(3, ddof=1) / np.sqrt(300)
    np.testing.assert_allclose(summary["upper"] - summary["mean"], half, rtol=1e-6)
    np.testing.assert_allclose(
        summary["quantile"].sel(level=0.25), np.quantile(values, 0.25, 3), rtol=1e-12
    )
    stopped = np.isfinite(data["stopping_time"].values).mean(-1)
    assert 0.05 < stopped.min() < stopped.max() < 0.95
    np.testing.assert_allclose(summary["stopped"], stopped, rtol=1e-12)
    assert (summary["stopped_lower"] < stopped).all()
    assert (summary["stopped_upper"] > stopped).all()


def test_distances_are_those_of_scipy(data):
    found = sa.sweep_distances(data)
    pair = [data["values"].sel(sampler=name, gamma=0.3)[-1, :, 1] for name in ("chain", "sde")]
    expected = ks_2samp(*pair, method="asymp").statistic
    assert found["distance"].sel(gamma=0.3).values[-1, 1] == pytest.approx(expected, abs=1e-12)
    assert (found["margin"] > 0.1).all()
    with pytest.raises(ValueError, match="second must be one of chain, sde"):
        sa.sweep_distances(data, second="network")


def command(*words):
    """Run a command in this process."""
    return CliRunner().invoke(main, ["sweep", *map(str, words)])


@pytest.mark.quick
def test_the_commands_run_show_and_export(tmp_path):
    toml, path = tmp_path / "grid.toml", tmp_path / "a.sweep"
    toml.write_text(TOML)
    planned = command("run", toml, "--dry-run")
    assert "12 units: 2 cells, 20 samples each" in planned.output
    assert "chain: about" in planned.output
    assert not path.exists()
    stopped = command("run", toml, path, "--seconds", "1e-9")
    assert stopped.exit_code == 3
    assert "12 units left" in stopped.output
    assert "0 of 12 units done" in command("status", path).output
    ran = command("run", toml, path)
    assert (ran.exit_code, "12 units in" in ran.output) == (0, True)
    shown = command("status", path, "--cells").output
    assert "12 of 12 units done, 0 failed, 0 damaged" in shown
    assert "gamma=0.5: 6 units" in shown
    assert command("run", path).exit_code == 0  # the file of a sweep without functions
    assert command("export", path, tmp_path / "a.nc").exit_code == 0
    with xr.open_dataset(tmp_path / "a.nc", engine="h5netcdf") as exported:
        xr.testing.assert_equal(exported.load(), sa.open_sweep(path))
        assert json.loads(exported.attrs["sweep"])["samples"] == 20
    assert command("export", path, tmp_path / "a.nc", "--overwrite").exit_code == 0
    for words, sentence in (
        (("export", path, "a.csv"), "the name of a netCDF file"),
        (("export", path, tmp_path / "a.nc"), "exists; choose another FILE, or --overwrite"),
    ):
        refused = command(*words)
        assert refused.exit_code == 2
        assert sentence in refused.output
