"""What the sweep commands and `run_sweep` refuse: one sentence each, and nothing is damaged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import shaped_attention as sa
from shaped_attention.commands.main import main
from shaped_attention.sweep import Processes, Sweep, open_sweep, plan_sweep, resume_sweep, run_sweep
from shaped_attention.sweep.store import Store
from tests.sweep_examples import FIXED, small
from tests.test_sweep_command import SMALL

ROOT = Path(__file__).parent.parent
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}


def refused(*arguments):
    """Return the sentence of a command that refuses its arguments: status 2, no traceback."""
    result = CliRunner().invoke(main, ["sweep", *map(str, arguments)])
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    (line,) = result.output.splitlines()
    return line.removeprefix("Error: ")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text(SMALL, encoding="utf-8")
    return path


@pytest.fixture
def store(tmp_path):
    run_sweep(small(), tmp_path / "store", progress=False)
    return tmp_path / "store"


@pytest.mark.parametrize("command", ["plan", "run"])
def test_files_that_are_no_sweep(command, tmp_path):
    """Missing, a folder, not text, not TOML: one line, which names the file once."""
    (tmp_path / "junk.toml").write_bytes(b"\xff\xfe")
    (tmp_path / "text.toml").write_text("dear diary")
    for name in ("missing.toml", ".", "junk.toml", "text.toml"):
        arguments = [command, tmp_path / name, *([tmp_path / "s"] * (command == "run"))]
        result = CliRunner().invoke(main, ["sweep", *map(str, arguments)])
        assert result.exit_code == 2
        assert result.output.count("\n") == 1
        assert result.output.count(str(tmp_path / name)) == 1
    assert not (tmp_path / "s").exists()


def test_an_export_replaces_nothing_by_itself(store, tmp_path):
    for name in ("all.nc", "all.zarr", "table.csv"):
        place = tmp_path / name
        (place.mkdir if name == "all.zarr" else place.touch)()
        expected = f"{place} exists; choose another name, or --overwrite"
        assert refused("export", store, place) == expected
        assert place.is_dir() or place.stat().st_size == 0
        result = CliRunner().invoke(
            main, ["sweep", "export", str(store), str(place), "--overwrite"]
        )
        assert result.exit_code == 0, result.output
        assert place.is_dir() or place.stat().st_size > 0
    assert sa.load(tmp_path / "all.nc")["values"].equals(open_sweep(store)["values"].load())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--workers 2 --devices cpu", "--workers and --devices cannot be used together"),
        ("--devices cpu --dask localhost:1", "--devices and --dask cannot be used together"),
        ("--devices foo", "device must be 'cpu', 'cuda' or 'cuda:INDEX'; got 'foo'"),
        ("--devices cpu,", "device must be 'cpu', 'cuda' or 'cuda:INDEX'; got ''"),
        ("--workers 0", "workers must be an integer >= 1; got 0"),
    ],
)
def test_engines_that_cannot_be(options, sentence, file, tmp_path):
    assert refused("run", file, tmp_path / "s", *options.split()) == sentence
    with pytest.raises(ValueError, match="workers, devices: give exactly one of the two"):
        Processes(3, devices=("cpu",))
    assert not (tmp_path / "s").exists()


def test_a_dask_scheduler_that_does_not_answer_is_named(file, tmp_path, monkeypatch):
    def client(address):
        raise OSError(f"Timed out trying to connect to {address}")

    monkeypatch.setattr("distributed.Client", client)
    assert refused("run", file, tmp_path / "s", "--dask", "tcp://localhost:1") == (
        "--dask tcp://localhost:1: no Dask scheduler answers there "
        "(Timed out trying to connect to tcp://localhost:1)"
    )


def test_a_path_is_a_sweep(file, tmp_path):
    """A TOML file is given as text or as a path; anything else is refused."""
    assert run_sweep(str(file), tmp_path / "s", progress=False).finished == 24
    assert run_sweep(sa.read_sweep(file), tmp_path / "s", progress=False).left == 0
    assert plan_sweep(file).units == 24
    for function in (plan_sweep, lambda sweep: run_sweep(sweep, tmp_path / "t")):
        with pytest.raises(ValueError, match=r"missing\.toml: No such file"):
            function(tmp_path / "missing.toml")
        with pytest.raises(ValueError, match="sweep must be a Sweep"):
            function(3)
    assert not (tmp_path / "t").exists()


def test_stores_that_are_older_than_a_refusal(tmp_path):
    """An axis without effect, and a block above the samples: read, resumed, and not made again."""
    own = {"fixed": FIXED | {"gamma": 0.3}, "axes": {"c_plus": [0.0, 0.5]}, "samples": 8}
    old = Sweep(**own, block=16, written=True)
    run_sweep(old, tmp_path / "s", progress=False)
    assert Store(tmp_path / "s").sweep == old
    assert int(open_sweep(tmp_path / "s")["drawn"].sum()) == 4 * 8
    assert resume_sweep(tmp_path / "s").left == 0
    resume = ["sweep", "resume", str(tmp_path / "s"), "--seconds", "5"]
    assert CliRunner().invoke(main, resume).exit_code == 0
    with pytest.raises(ValueError, match=r"^sweep: 2 faults\n"):
        Sweep(**own, block=16)


SCRIPT = """\
import sys
import shaped_attention as sa
from shaped_attention.sweep import Processes
sweep = sa.Sweep(
    {{"tokens": 2, "width": 20, "depth": 10, "gamma": 0.3}},
    samplers=("chain",), samples=64, block=8,
)
{guard}
    engine = Processes(2)
    print(sa.run_sweep(sweep, sys.argv[1], engine=engine, progress=False).left)
    engine.close()
"""


def test_a_script_without_a_guard(tmp_path):
    """One sentence, from the script alone; the store is then resumed. With the guard it runs."""
    for guard, good in (("if True:", False), ("if __name__ == '__main__':", True)):
        script = tmp_path / "script.py"
        script.write_text(SCRIPT.format(guard=guard))
        run = subprocess.run(
            [sys.executable, script, tmp_path / "s"],
            capture_output=True, text=True, timeout=240, env=ENVIRONMENT,
        )  # fmt: skip
        if good:
            assert (run.returncode, run.stdout) == (0, "0\n"), run.stderr
            continue
        assert run.returncode == 1
        assert run.stderr.count("Traceback") == 1
        assert run.stderr.splitlines()[-1].endswith(
            "BrokenExecutor: worker processes import the script that starts them; in a script, "
            "workers need `if __name__ == '__main__':` around the call"
        )
        assert Store(tmp_path / "s").finished() == {}
    assert np.isfinite(open_sweep(tmp_path / "s")["values"]).all()
