"""The sweep commands, and the example of the guide."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from click.testing import CliRunner

import shaped_attention as sa
from shaped_attention.commands.main import main
from shaped_attention.sweep import tables
from shaped_attention.sweep.plots import heat_maps, small_multiples

ROOT = Path(__file__).parent.parent
SMALL = """\
samplers = ["chain", "sde"]
samples = 24
block = 8
[fixed]
layer = "attention"
tokens = 2
width = 20
depth = 10
step = 0.05
tau0 = 1.0
[axes]
gamma = [0.2, 0.4]
rho = [0.1, 0.2]
"""


def invoke(*arguments, status=0):
    result = CliRunner().invoke(main, ["sweep", *map(str, arguments)])
    assert result.exit_code == status, result.output
    return result.output


def test_the_example_of_the_guide_is_the_file_and_runs(tmp_path):
    """Its first TOML block is notebooks/sweep.toml; with few samples it runs to the end."""
    text = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")
    block, target = re.findall(r"```toml\n(.*?)```", text, flags=re.S)
    file = ROOT / "notebooks" / "sweep.toml"
    assert block == file.read_text(encoding="utf-8")
    sweep = sa.read_sweep(file)
    assert sweep.shape == (6, 6)
    small = replace(sweep, samples=16, block=16)
    report = sa.run_sweep(small, tmp_path / "s")
    assert report.reasons == {"samples": 72}
    aimed = tmp_path / "aimed.toml"
    aimed.write_text(block + target, encoding="utf-8")
    assert sa.read_sweep(aimed).target.half_width == 0.002


def test_plan_run_status_resume_draw_export(tmp_path):
    file, store = tmp_path / "sweep.toml", tmp_path / "store"
    file.write_text(SMALL, encoding="utf-8")
    plan = invoke("plan", file)
    assert "cells     4: gamma (2) x rho (2)" in plan
    assert "units     24 of 8 samples" in plan
    assert "memory    2.15 GB on cpu, so that 8 of chain, 8 of sde move together" in plan
    assert "in each process that compiles or loads its kernels" in plan
    assert "24 units in" in invoke("run", file, store)
    assert "not running; 24 of 24 units" in invoke("status", store)
    ledger = (store / "ledger.jsonl").read_bytes()
    assert "24 units in" in invoke("resume", store)
    assert (store / "ledger.jsonl").read_bytes() == ledger
    drawn = invoke("draw", store, "--figures", tmp_path / "f").split()
    assert len(drawn) == 4
    assert all(Path(path).stat().st_size > 1000 for path in drawn)
    invoke("export", store, tmp_path / "all.nc")
    whole = sa.open_sweep(store).load()
    assert sa.load(tmp_path / "all.nc")["values"].equals(whole["values"])
    invoke("export", store, tmp_path / "s.nc", "--summary")
    assert "mean" in sa.load(tmp_path / "s.nc")


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """A store with samples, one with V and one with histograms, of which a cell is incomplete."""
    folder = tmp_path_factory.mktemp("stores")
    (folder / "sweep.toml").write_text(SMALL, encoding="utf-8")
    sweep = sa.read_sweep(folder / "sweep.toml")
    for keep in ("observables", "V", "reductions"):
        own = replace(sweep, keep=keep, fractions=(0.5, 1.0))
        assert sa.run_sweep(own, folder / keep, progress=False).left == 0
        sa.extend_sweep(folder / keep, samples=30)
    return folder


def exported(store, name, *options):
    invoke("export", store, store.parent / name, *options, "--overwrite")
    return store.parent / name


def test_exports_of_arrays_are_the_store(stores):
    """netCDF and Zarr, which plain xarray opens without a warning."""
    whole = sa.open_sweep(stores / "observables").load()
    for name in ("all.nc", "all.zarr"):
        path = exported(stores / "observables", name)
        assert sa.load(path).equals(whole)
        with xr.open_dataset(path, engine="zarr" if name == "all.zarr" else "h5netcdf") as plain:
            assert plain.equals(whole)
            assert {**plain.attrs, "checksums": 0} == {**whole.attrs, "checksums": 0}
        path = exported(stores / "observables", name, "--summary")
        assert sa.load(path)["mean"].equals(sa.sweep_summary(whole)["mean"])


@pytest.mark.parametrize(
    ("suffix", "keep"), [(".csv", "observables"), (".parquet", "V"), (".csv", "reductions")]
)
def test_tables_of_means(stores, suffix, keep):
    """Tidy: a row for each cell, sampler, time and observable; the numbers are the summary's."""
    table = read_table(exported(stores / keep, f"table{suffix}"))
    index = ["gamma", "rho", "sampler", "time", "observable"]
    columns = ["mean", "half_width", "lower", "upper", "deviation", "samples"]
    assert list(table.columns) == index + columns
    summary = sa.sweep_summary(sa.open_sweep(stores / keep))
    assert len(table) == summary["mean"].size
    again = table.set_index(index).to_xarray()
    for name in columns:
        expected = summary[name].broadcast_like(summary["mean"]).transpose(*index)
        np.testing.assert_array_equal(again[name].sel(expected.coords), expected)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_tables_of_samples(stores, suffix):
    """A row for each sample that is drawn: 24 of 30, of which 6 are one unit to be drawn again."""
    table = read_table(exported(stores / "observables", f"values{suffix}", "--values"))
    data = sa.open_sweep(stores / "observables").load()
    index = ["gamma", "rho", "sampler", "time", "sample"]
    names = data["kept"].values.tolist()
    assert list(table.columns) == [*index, *names, "stopping_time"]
    assert len(table) == 4 * 2 * 2 * 24
    again = table.set_index(index).to_xarray()
    for name in names:
        expected = data["values"].sel(kept=name).isel(sample=slice(0, 24)).transpose(*index)
        np.testing.assert_array_equal(again[name].sel(sampler=["chain", "sde"]), expected)
    assert np.isinf(table["stopping_time"]).all()


def test_tables_of_covariances(stores):
    """The entries on and above the diagonal; reductions have no samples."""
    table = read_table(exported(stores / "V", "v.parquet", "--values"))
    assert list(table.columns[5:]) == ["V[0,0]", "V[0,1]", "V[1,1]", "stopping_time"]
    v = sa.open_sweep(stores / "V")["V"]
    cell = table[(table.gamma == 0.4) & (table.rho == 0.1) & (table.sampler == "sde")]
    one = v.sel(gamma=0.4, rho=0.1, sampler="sde", row=0, col=1).isel(sample=slice(0, 24))
    np.testing.assert_array_equal(cell["V[0,1]"], one.values.ravel())
    output = invoke("export", stores / "reductions", stores / "r.csv", "--values", status=2)
    assert "the sweep keeps reductions, which have no samples; export its --summary" in output


def read_table(path):
    return pd.read_csv(path, float_precision="round_trip") if path.suffix == ".csv" else (
        pd.read_parquet(path))  # fmt: skip


def test_exports_without_a_format(stores, monkeypatch):
    """One sentence, which lists the formats, or names the extra that is missing."""
    output = invoke("export", stores / "V", stores / "g.txt", status=2)
    assert "Error: output must be a file .nc, .zarr, .csv, .parquet; got" in output
    monkeypatch.setattr(tables, "find_spec", lambda name: None)
    output = invoke("export", stores / "V", stores / "g.parquet", status=2)
    assert output.splitlines() == [
        f"Error: {stores / 'g.parquet'}: Parquet needs pyarrow; the extra `parquet` installs it: "
        'pip install "shaped-attention[parquet]"'
    ]


def test_extend_on_the_command_line(tmp_path):
    """Numbers, a table and text; the status of a store that is not finished, and one sentence."""
    file, store = tmp_path / "sweep.toml", tmp_path / "store"
    file.write_text(SMALL.replace("rho = [0.1, 0.2]", "mask = ['none']"), encoding="utf-8")
    invoke("run", file, store)
    assert invoke(
        "extend", store, "--samples", 40, "--axis", "gamma=0.3,0.5", "--axis",
        "gamma={ logspace = [0.6, 0.8, 2] }", "--axis", "mask=causal",
    ).splitlines() == [
        f"{store}: gamma (6) x mask (2); 40 samples each; 108 units to run",
        f"to run them: shaped-attention sweep resume {store}",
    ]  # fmt: skip
    assert "12 of 120 units" in invoke("status", store)
    assert "120 units in" in invoke("resume", store)
    data = sa.open_sweep(store)
    assert data["gamma"].values.tolist() == [0.2, 0.4, 0.3, 0.5, 0.6, 0.8]
    for options, sentence in (
        ([], "give --samples, --axis or both"),
        (["--samples", 8], "samples must be more than the store's 40; got 8"),
        (["--axis", "gamma=x"], "gamma must be a number, as on the axis; got 'x'"),
    ):  # fmt: skip
        output = invoke("extend", store, *options, status=2)
        assert output.splitlines() == [f"Error: {sentence}"]


def failing(folder):
    """A sweep file whose layer fails in some cells when it runs."""
    text = SMALL.replace("tau0 = 1.0", f"gamma = 0.3\nlog = {str(folder)!r}")
    text = text.replace("gamma = [0.2, 0.4]", "fault = ['none', 'raise']").replace(', "sde"', "")
    (folder / "sweep.toml").write_text(text.replace("attention", "tests.sweep_layers:faulty"))
    return folder / "sweep.toml"


def test_units_given_up_are_reported(tmp_path):
    """Exit status 3, and `status` says which; a plan fails."""
    file, store = failing(tmp_path), tmp_path / "store"
    output = invoke("run", file, store, "--retries", "0", status=3)
    assert "6 units were abandoned" in output
    status = invoke("status", store)
    assert "6 of 12 units" in status
    ends = "of 4 cells, counted once for each sampler: 2 have all their samples, 2 were given up"
    assert ends in output
    assert ends in status
    unit = "chain, fault=raise, rho=0.1, block 0"
    assert f"abandoned: {unit}: RuntimeError: this unit always fails" in status
    sentence = "chain fails at fault='raise', rho=0.1 (RuntimeError: this unit always fails)"
    assert sentence in invoke("plan", file, status=2)


def test_a_target_is_reported(tmp_path):
    file, store = tmp_path / "sweep.toml", tmp_path / "store"
    text = SMALL + '[target]\nobservable = "mean |rho|"\nhalf_width = 5.0\nfirst = 2\n'
    file.write_text(text, encoding="utf-8")
    assert "8 reached the target" in invoke("run", file, store)
    status = invoke("status", store)
    assert "16 of 24 units at most (it has a target)" in status
    assert "left" not in status
    sa.extend_sweep(store, axes={"gamma": [0.3]})
    assert "left on one worker at least (it has a target)" in invoke("status", store)


def test_drawings_refuse_what_they_cannot_draw(tmp_path):
    sweep = sa.Sweep(fixed={"tokens": 2, "gamma": 0.3, "width": 20, "depth": 10, "step": 0.05},
                     samples=8, block=8)  # fmt: skip
    sa.run_sweep(sweep, tmp_path / "s")
    summary = sa.sweep_summary(sa.open_sweep(tmp_path / "s"))
    with pytest.raises(ValueError, match="values must be over two axes"):
        heat_maps(summary["samples"], "")
    with pytest.raises(ValueError, match="values must be over sampler and one or two axes"):
        small_multiples(summary["samples"], "")
    assert "the sweep has 0 axes" in invoke("draw", tmp_path / "s", status=2)


def test_a_progress_bar_appears_in_a_terminal(tmp_path):
    """Without an option on a terminal 80 columns wide, and not where the error stream is a file."""
    (tmp_path / "sweep.toml").write_text(SMALL, encoding="utf-8")
    command = [sys.executable, "-m", "shaped_attention", "sweep", "run", tmp_path / "sweep.toml"]
    main_end, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    subprocess.run([*command, tmp_path / "s"], stderr=terminal, cwd=ROOT, check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    os.close(terminal)
    shown = os.read(main_end, 10_000).decode()
    os.close(main_end)
    assert "24/24" in shown
    silent = subprocess.run([*command, tmp_path / "t"], capture_output=True, cwd=ROOT, check=True)
    assert silent.stderr == b""
