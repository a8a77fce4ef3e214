"""The sweep commands, and the example of the guide."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import shaped_attention as sa
from shaped_attention.commands.main import main
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
    assert "24 units in" in invoke("run", file, store)
    assert "not running; 24 of 24 units" in invoke("status", store)
    ledger = (store / "ledger.jsonl").read_bytes()
    assert "24 units in" in invoke("resume", store)
    assert (store / "ledger.jsonl").read_bytes() == ledger
    drawn = invoke("draw", store, "--figures", tmp_path / "f").split()
    assert len(drawn) == 8
    assert all(Path(path).stat().st_size > 1000 for path in drawn)
    invoke("export", store, tmp_path / "all.nc")
    whole = sa.open_sweep(store).load()
    assert sa.load(tmp_path / "all.nc")["values"].equals(whole["values"])
    invoke("export", store, tmp_path / "table.csv")
    table = pd.read_csv(tmp_path / "table.csv")
    mean = sa.sweep_summary(whole)["mean"].sel(observable="mean |rho|", sampler="sde").squeeze()
    rows = table[(table.observable == "mean |rho|") & (table.sampler == "sde")]
    np.testing.assert_allclose(rows["mean"], mean.values.ravel())
    invoke("export", store, tmp_path / "s.nc", "--summary")
    assert "mean" in sa.load(tmp_path / "s.nc")


def test_faults_are_reported_with_their_lines(tmp_path):
    file = tmp_path / "sweep.toml"
    file.write_text(SMALL.replace("samples = 24", "samples = 0\nkeep = 'all'"), encoding="utf-8")
    output = invoke("run", file, tmp_path / "s", status=2)
    assert "line 2: samples=0: a whole number >= 1" in output
    assert "line 3: keep='all'" in output
    assert not (tmp_path / "s").exists()
    assert "there is no sweep here" in invoke("status", tmp_path, status=2)
    assert "--workers" in invoke("run", "--help")
    file.write_text(SMALL, encoding="utf-8")
    assert "workers=0: a whole number" in invoke(
        "run", file, tmp_path / "s", "--workers", "0", status=2
    )


def test_units_given_up_are_reported(tmp_path):
    """A layer that fails at gamma = 0.4 when it runs: exit status 3, and `status` says which."""
    file, store = tmp_path / "sweep.toml", tmp_path / "store"
    text = SMALL.replace("tau0 = 1.0\n", "").replace(
        '"attention"', '"tests.test_sweep_command:fragile"'
    )
    file.write_text(text.replace('"chain", "sde"', '"sde"'), encoding="utf-8")
    output = invoke("run", file, store, "--retries", "0", status=3)
    assert "6 units were given up" in output
    status = invoke("status", store)
    assert "6 of 12 units" in status
    assert "given up: sde, gamma=0.4, rho=0.1, block 0: RuntimeError: fragile" in status


class BrokenLimit(sa.Limit):
    def factor_drift(self, p, factor):
        raise RuntimeError("fragile")


class Fragile(sa.ShapedAttention):
    """Attention whose limit cannot be computed."""

    limit = BrokenLimit()


def fragile(gamma):
    return Fragile(gamma) if gamma > 0.3 else sa.ShapedAttention(gamma)


def test_a_target_is_reported(tmp_path):
    file, store = tmp_path / "sweep.toml", tmp_path / "store"
    text = SMALL + '[target]\nobservable = "mean |rho|"\nhalf_width = 5.0\nfirst = 2\n'
    file.write_text(text, encoding="utf-8")
    assert "8 by target" in invoke("run", file, store)
    assert "16 of 24 units at most (it has a target)" in invoke("status", store)


def test_drawings_refuse_what_they_cannot_draw(tmp_path):
    sweep = sa.Sweep(fixed={"tokens": 2, "gamma": 0.3, "width": 20, "depth": 10, "step": 0.05},
                     samples=8, block=8)  # fmt: skip
    sa.run_sweep(sweep, tmp_path / "s")
    summary = sa.sweep_summary(sa.open_sweep(tmp_path / "s"))
    with pytest.raises(ValueError, match="two axes"):
        heat_maps(summary["samples"], "")
    with pytest.raises(ValueError, match="sampler and one or two axes"):
        small_multiples(summary["samples"], "")
    assert "the sweep has 0 axes" in invoke("draw", tmp_path / "s", status=2)
