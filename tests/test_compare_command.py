"""`shaped-attention compare`: networks, chain and SDE from every kind of start, and `show`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from shaped_attention import load, rerun
from shaped_attention.commands.main import main

SMALL = ["--width", "20", "--depth", "10", "--step", "0.05", "--samples", "64",
         "--network-samples", "16"]  # fmt: skip


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(main, list(arguments))


def test_main_job_on_the_shipped_tokens(run, tmp_path):
    result = run("compare", *SMALL)
    assert result.exit_code == 0, result.output
    assert "8 tokens of Moby-Dick; m = 8, mean diagonal 0.003037, rescaled to 1" in result.output
    pairs = {"chain against SDE", "network against SDE", "network against chain"}
    assert all(pair in result.output for pair in pairs)
    names = {path.name for path in (tmp_path / "results").glob("*.png")}
    assert names == {"compare-trajectories.png", "compare-densities.png"}
    tables = json.loads((tmp_path / "results" / "comparison.json").read_text())
    assert set(tables) == pairs
    assert 0.0 <= tables["chain against SDE"]["data_vars"]["ks"]["data"][0] <= 1.0
    for name, samples in (("network", 16), ("chain", 64), ("sde", 64)):
        saved = load(tmp_path / "results" / f"{name}.nc")
        assert saved.sizes["sample"] == samples
        np.testing.assert_array_equal(rerun(saved).V, saved.V)
    shown = run("show", "results/chain.nc")
    assert shown.exit_code == 0
    assert '"sampler": "chain"' in shown.output


@pytest.mark.usefixtures("undrawn")
def test_other_starts(run, tmp_path):
    x = np.random.default_rng(0).standard_normal((3, 5))
    np.save("tokens.npy", x)
    np.save("v.npy", x @ x.T / 5)
    first = run("compare", *SMALL, "--token-file", "tokens.npy", "--scale", "raw", "--results", "a")
    second = run("compare", *SMALL, "--covariance", "v.npy", "--scale", "raw", "--results", "b")
    assert first.exit_code == second.exit_code == 0, first.output + second.output
    a, b = (load(tmp_path / folder / "sde.nc") for folder in "ab")
    np.testing.assert_allclose(a.V, b.V, rtol=1e-9)
    np.testing.assert_allclose(a.V.isel(time=0)[0], x @ x.T / 5, rtol=1e-9)
    scaled = run("compare", *SMALL, "--token-file", "tokens.npy", "--scale", "2", "--results", "c")
    assert scaled.exit_code == 0
    start = load(tmp_path / "c" / "sde.nc").V.isel(time=0)[0].values
    assert np.diag(start).mean() == pytest.approx(2.0)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    "options",
    [
        ("--layer", "attention", "--causal", "--heads", "2", "--query-bias", "0.5"),
        ("--layer", "mlp", "--mlp-gamma", "0.5", "--c-plus", "0.5", "--progress"),
        ("--dtype", "float32", "--radius", "50", "--memory", "0.1 GiB", "--seed", "3"),
    ],
)
def test_options(run, options):
    result = run("compare", *SMALL, "--tokens", "3", *options)
    assert result.exit_code == 0, result.output
    assert ("network" in result.stderr) == ("--progress" in options)


@pytest.mark.usefixtures("undrawn")
def test_data_of_another_command_are_not_replaced(run, tmp_path):
    """Before anything is computed; with --overwrite they are, and another folder is free."""
    assert run("compare", *SMALL, "--tokens", "2").exit_code == 0
    before = {path: path.read_bytes() for path in (tmp_path / "results").iterdir()}
    refused = run("compare", *SMALL, "--tokens", "3")
    assert refused.exit_code == 2
    place = Path("results") / "comparison.json"
    known = f"Error: {place} exists; choose another folder with --results, or --overwrite"
    assert refused.stderr.strip().endswith(known)
    assert not refused.stdout
    assert {path: path.read_bytes() for path in (tmp_path / "results").iterdir()} == before
    assert run("compare", *SMALL, "--tokens", "3", "--results", "three").exit_code == 0
    assert run("compare", *SMALL, "--tokens", "3", "--overwrite").exit_code == 0
    for folder in ("results", "three"):
        assert load(tmp_path / folder / "sde.nc").sizes["row"] == 3


BAD = {
    "two starts": (
        ("--token-file", "a.npy", "--tokens", "2"),
        "--tokens and --token-file cannot be used together",
    ),
    "results": (("--results", "file"), "results='file'"),
    "unused rho": (("--rho", "0.5"), "--rho 0.5 needs --tokens"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence_and_leaves_nothing(run, name, tmp_path):
    (tmp_path / "file").write_text("in the way")
    options, message = BAD[name]
    result = run("compare", *SMALL, *options)
    assert result.exit_code == 2
    error = result.stderr[result.stderr.index("Error:") :].strip()
    assert message in error
    assert len(error.splitlines()) == 1
    assert not any(path.suffix in (".nc", ".png") for path in tmp_path.rglob("*"))


@pytest.mark.usefixtures("undrawn")
@pytest.mark.filterwarnings("default")
def test_a_warning_is_one_line_without_code(run):
    np.save("tokens.npy", np.random.default_rng(0).standard_normal((3, 2)))
    result = run("compare", *SMALL, "--token-file", "tokens.npy")
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.stderr.splitlines() if "transposed" in line]
    assert line.startswith("Warning: tokens has shape (3, 2): rows are tokens and columns features")
    assert ".py" not in result.stderr
