"""What a run tells and when it ends: order of the units, remaining time, logs, interrupts."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import BrokenExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import shaped_attention as sa
from shaped_attention.blocks.catalogue import KINDS
from shaped_attention.commands.interrupts import interrupts
from shaped_attention.commands.main import main
from shaped_attention.sweep import plan as planning
from shaped_attention.sweep import run_loop
from shaped_attention.sweep.cells import NAMED
from shaped_attention.sweep.engines import InProcess
from shaped_attention.sweep.grid import Unit
from shaped_attention.sweep.work_order import Schedule
from tests.sweep_examples import small

ROOT = Path(__file__).parents[1]
FILE = """
samplers = "chain"
samples = 8
block = 4
[fixed]
layer = "attention"
tokens = 2
width = 16
depth = 4
[axes]
gamma = [0.1, 0.2, 0.3]
"""


class Passing:
    """Clock that only `pass_` moves, in place of the module `time`."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now

    perf_counter = monotonic

    def pass_(self, seconds):
        self.now += seconds


def sized():
    """Cells whose costs are as 1 : 2 : 8, in the order of the axis."""
    fixed = {"tokens": 2, "width": 16, "gamma": 0.3}
    return small(
        fixed=fixed, axes={"depth": [4, 8, 32]}, samplers=("chain",), samples=8, block=4,
        fractions=(1.0,),
    )  # fmt: skip


def in_time(monkeypatch, takes, **options):
    """Run `sized` on a clock on which each unit takes `takes(depth)`; return report and units."""
    clock, units = Passing(), []

    def timed(sweep, unit, code, device, threads):
        units.append(unit)
        clock.pass_(takes([4, 8, 32][unit.cell]))
        return run_loop.run_unit(sweep, unit), takes([4, 8, 32][unit.cell])

    for module in (run_loop, importlib.import_module("shaped_attention.sweep.run")):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(run_loop, "_timed_unit", timed)
    return sa.run_sweep(sized(), **options, progress=False), units


def test_named_layers_are_those_of_the_catalogue():
    assert NAMED == KINDS


def test_the_dearest_cells_come_first(tmp_path, monkeypatch):
    _, units = in_time(monkeypatch, float, path=tmp_path / "s")
    assert [(unit.block, unit.cell) for unit in units] == [
        (b, c) for b in (0, 1) for c in (2, 1, 0)
    ]


def test_the_remaining_time_weighs_units_by_their_cost():
    """After the dearest unit (32 s of 88 s), 56 s are left; by numbers of units it would be 160."""
    schedule = Schedule(sized(), {Unit(0, 2, 0): 32.0}, lambda unit: None)
    assert schedule.seconds_left() == pytest.approx(56.0)
    assert schedule.seconds_of(Unit(0, 1, 0)) == pytest.approx(8.0)
    schedule.took(Unit(1, 2, 0), 32.0)
    schedule.finish(Unit(1, 2, 0))
    assert schedule.seconds_left() == pytest.approx(24.0)
    assert np.isnan(Schedule(sized(), {}, lambda unit: None).seconds_left())


@pytest.mark.parametrize("limit", [20.0, 60.0])
def test_a_time_limit_is_kept_within_a_tenth(limit, tmp_path, monkeypatch):
    """It ends at most a tenth late, and no unit that fits is left out."""
    report, _ = in_time(monkeypatch, float, path=tmp_path / "s", seconds=limit)
    ends = [32.0, 40.0, 44.0, 76.0, 84.0, 88.0]
    first = ends[0]  # how long the first unit takes is not known when it starts
    last = max([first, *(end for end in ends if end <= 1.1 * limit)])
    assert report.seconds == pytest.approx(last)
    assert report.left == sum(end > last for end in ends)


def test_a_plan_is_within_a_factor_of_two(monkeypatch):
    """With an overhead of each call, and a cost that grows faster than it is thought to."""
    clock = Passing()

    def seconds(sweep, unit):
        depth = sweep.axes["depth"][unit.cell]
        return 0.01 + 2e-4 * sweep.block_samples(unit.block) * depth**1.3

    monkeypatch.setattr(planning, "time", clock)
    monkeypatch.setattr(planning, "run_unit", lambda s, u: clock.pass_(seconds(s, u)))
    for samples, block in ((1, 1), (500, 100), (4000, 4000)):
        fixed = {"tokens": 2, "width": 16, "gamma": 0.3}
        sweep = small(
            fixed=fixed, axes={"depth": [2, 4, 9, 16, 30, 64, 128, 200]}, samplers=("chain",),
            samples=samples, block=block, fractions=(1.0,),
        )  # fmt: skip
        units = [Unit(b, c, 0) for b in range(sweep.blocks) for c in range(8)]
        exact = sum(seconds(sweep, unit) for unit in units)
        assert 0.5 < planning.plan_sweep(sweep).seconds / exact < 2.0


def test_a_line_each_minute(tmp_path, monkeypatch, caplog):
    """The units take 32, 8, 4, 32, 8 and 4 minutes; not more often than that."""
    with caplog.at_level(logging.INFO, logger="shaped_attention.sweep"):
        in_time(monkeypatch, lambda depth: 60.0 * depth, path=tmp_path / "s")
    lines = [r.getMessage() for r in caplog.records if "units done" in r.getMessage()]
    assert 4 <= len(lines) <= 6
    # The dearest unit took 32 minutes of 88.
    assert any(line.startswith("1 of 6") and line.endswith(" 56 min left") for line in lines)
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="shaped_attention.sweep"):
        in_time(monkeypatch, lambda depth: depth / 10.0, path=tmp_path / "t")
    assert not [r for r in caplog.records if "units done" in r.getMessage()]


def run(tmp_path, *options):
    (tmp_path / "s.toml").write_text(FILE)
    return CliRunner().invoke(
        main, ["sweep", "run", str(tmp_path / "s.toml"), str(tmp_path / "s"), *options]
    )


def test_verbose_and_quiet(tmp_path):
    loud = run(tmp_path, "-v")
    assert loud.exit_code == 0
    assert loud.stderr.count("Unit(block=") == 6
    assert "6 units in" in loud.stdout
    plain = run(tmp_path)
    assert "6 units in" in plain.stdout
    quiet = run(tmp_path, "--quiet")
    assert (quiet.exit_code, quiet.output) == (0, "")
    both = run(tmp_path, "-q", "-v")
    assert both.exit_code == 2
    assert "--verbose and --quiet cannot be used together" in both.output


def test_a_log_without_a_terminal(tmp_path, monkeypatch):
    """What the command writes by itself: the lines of each minute, not those of each unit."""
    monkeypatch.setattr(run_loop, "_LOG_SECONDS", 0.0)
    shown = run(tmp_path)
    assert "of 6 units done" in shown.stderr
    assert "Unit(block=" not in shown.stderr


@pytest.mark.parametrize(
    ("command", "place"),
    [("resume", "store.Store"), ("run", "toml.read_sweep"), ("run", "engine")],
)
def test_an_interrupt_has_one_status(command, place, tmp_path, monkeypatch):
    """While a store is opened or libraries load, and while workers end."""
    assert run(tmp_path).exit_code == 0

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    if place == "engine":
        monkeypatch.setattr(InProcess, "close", interrupted)
    else:
        monkeypatch.setattr(f"shaped_attention.sweep.{place}", interrupted)
    paths = [str(tmp_path / "s.toml"), str(tmp_path / "s")]
    shown = CliRunner().invoke(main, ["sweep", command, *paths[command == "resume" :]])
    assert shown.exit_code == 3
    assert (
        f"interrupted; to continue: shaped-attention sweep resume {tmp_path / 's'}" in shown.stderr
    )


def test_other_commands_end_as_shells_expect(monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("shaped_attention.architectures.simulate.simulate_model", interrupted)
    shown = CliRunner().invoke(main, ["model", "gpt2"])
    assert (shown.exit_code, shown.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize("moment", ["numpy", "llvmlite", "workers"])
@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
def test_an_interrupt_while_the_program_starts(moment, tmp_path):
    """Whatever is imported then: no traceback, and the status of a sweep or of a shell.

    Ctrl-C reaches the workers too, while they import.
    """
    (tmp_path / "s.toml").write_text(FILE.replace("samples = 8", "samples = 400_000"))
    command = [sys.executable, "-m", "shaped_attention", "sweep", "run", tmp_path / "s.toml"]
    command += [tmp_path / "s", *(["--workers", "2"] if moment == "workers" else [])]
    with subprocess.Popen(
        command, cwd=ROOT, text=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:  # fmt: skip
        libraries = Path(f"/proc/{process.pid}/maps")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        # A library that has just begun to load, on a processor of any speed.
        while moment != "workers" and f"/{moment}" not in libraries.read_text():
            time.sleep(0.005)
        # Two workers, and Python's tracker.
        while moment == "workers" and len(children.read_text().split()) < 3:
            time.sleep(0.05)
        time.sleep(0.5 if moment == "workers" else 0)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert process.returncode in ((3,) if moment == "workers" else (3, 130))
    assert "Traceback" not in errors
    assert errors.startswith("interrupted; ") or moment != "workers"


def test_an_interrupt_that_a_library_loses(tmp_path, monkeypatch):
    """Some libraries catch one while they load; no unit starts after it."""

    def lost(sweep, store, *, engine, **_):
        with suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        return engine.submit(pytest.fail, "a unit was started")

    monkeypatch.setattr("shaped_attention.sweep.run.run_sweep", lost)
    shown = run(tmp_path)
    assert shown.exit_code == 3
    assert shown.stderr.startswith("interrupted; ")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("presses", [1, 2])
def test_a_held_interrupt_waits_for_the_end_of_an_import(presses):
    """The second is not held: whoever presses twice does not want to wait."""
    reached = []

    def load():
        with interrupts(signal.SIGINT, held=True):
            for press in range(presses):
                os.kill(os.getpid(), signal.SIGINT)
                reached.append(press)

    with pytest.raises(KeyboardInterrupt):
        load()
    assert reached == [0]


def test_a_dead_scheduler_names_resume(tmp_path, monkeypatch):
    def broken(*_, **__):
        raise BrokenExecutor("the executor broke, and only its owner can replace it")

    monkeypatch.setattr("shaped_attention.sweep.run.run_sweep", broken)
    shown = run(tmp_path)
    assert shown.exit_code == 1
    how = f"to continue: shaped-attention sweep resume {tmp_path / 's'}"
    assert f"only its owner can replace it; {how}" in shown.stderr


def test_a_reader_that_has_enough(tmp_path):
    """As in ``sweep status STORE | head -0``: no error, as with other programs."""
    assert run(tmp_path).exit_code == 0
    with subprocess.Popen(
        [sys.executable, "-m", "shaped_attention", "sweep", "status", str(tmp_path / "s")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
    ) as process:  # fmt: skip
        process.stdout.close()
        assert process.stderr.read() == b""


def test_words_are_completed():
    """As the shell asks for them (docs/sweeps.md)."""
    asks = {"_SHAPED_ATTENTION_COMPLETE": "bash_complete", "COMP_CWORD": "3"}
    shown = CliRunner().invoke(
        main, [], prog_name="shaped-attention",
        env=asks | {"COMP_WORDS": "shaped-attention sweep run --acc"},
    )  # fmt: skip
    assert shown.output.split() == ["plain,--accept-changed-code"]


def test_rerun_names_versions_that_differ():
    result = sa.simulate_chain(sa.ShapedMLP(0.5), np.eye(2), width=4, depth=2, samples=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sa.rerun(result).identical(result)
    older = result.assign_attrs(versions=result.attrs["versions"].replace("2.13", "2.12"))
    assert older.attrs["versions"] != result.attrs["versions"], "the pinned version of torch"
    with pytest.warns(UserWarning, match=r"versions differ from those in the record \(torch 2.12"):
        again = sa.rerun(older)
    assert np.array_equal(again["V"], result["V"])


HELD = """
import multiprocessing, signal, time
from shaped_attention.sweep.engines import _interrupts_held

if __name__ == "__main__":
    with _interrupts_held():
        process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(0,))
        process.start()
        held = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    process.join()
    print(held)
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals of POSIX")
def test_interrupts_are_held_while_the_first_worker_starts(tmp_path):
    """Python starts its resource tracker with it, which would let interrupts through."""
    (tmp_path / "held.py").write_text(HELD)
    done = subprocess.run(
        [sys.executable, tmp_path / "held.py"], cwd=ROOT, capture_output=True, text=True,
        check=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout == "True\n"
