"""A run loses nothing and mixes nothing: workers, extensions, kills and interrupts."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shaped_attention.sweep import SweepFileError, run, run_sweep, sweep_status, units
from shaped_attention.sweep.file import SweepFile
from tests.sweep_examples import (
    bits,
    faulty,
    run_slowly,
    slow,
    small,
    started,
    try_to_run,
    with_faults,
)  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The units of `small` and `slow`, each from one run."""
    folder = tmp_path_factory.mktemp("undisturbed")
    found = {}
    for name, sweep in (("small", small()), ("slow", slow())):
        run_sweep(sweep, folder / name, progress=False)
        found[name] = bits(folder / name)
    return found


@pytest.mark.quick
def test_executors_do_not_change_a_bit(undisturbed, tmp_path):
    report = run_sweep(small(), tmp_path / "processes", workers=2, progress=False)
    assert (report.finished, report.failed, report.left) == (12, 0, 0)
    with ThreadPoolExecutor(3) as threads:
        run_sweep(small(), tmp_path / "threads", executor=threads, progress=False)
    for name in ("processes", "threads"):
        assert bits(tmp_path / name) == undisturbed["small"]
    assert bits(tmp_path / "processes") != undisturbed["slow"]


def test_a_dask_cluster_does_not_change_a_bit(undisturbed, tmp_path):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=tmp_path
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        run_sweep(small(), tmp_path / "a", executor=client.get_executor(), progress=False)
    assert bits(tmp_path / "a") == undisturbed["small"]


def test_a_file_grows_into_a_larger_sweep(tmp_path):
    larger = small({"gamma": [0.3, 0.5, 0.7]}, samples=28)
    run_sweep(larger, tmp_path / "whole", progress=False)
    run_sweep(small(), tmp_path / "grown", progress=False)
    before = bits(tmp_path / "grown")
    assert run_sweep(larger, tmp_path / "grown", progress=False).finished == 24
    assert bits(tmp_path / "grown") == bits(tmp_path / "whole")
    # Full blocks were kept: their rows are those of before.
    kept = {key: value for key, value in before.items() if value[0] == 8}
    assert len(kept) == 8
    assert kept.items() <= bits(tmp_path / "grown").items()
    for other, entry in (
        (small(), "axes, samples"),
        (larger.changed(seed=1), "seed"),
        (small({"gamma": [0.5, 0.3]}), "axes"),
    ):
        with pytest.raises(SweepFileError, match=f"holds another sweep \\({entry}"):
            run_sweep(other, tmp_path / "grown", progress=False)


def test_failures_are_recorded_and_others_go_on(tmp_path):
    path = tmp_path / "a"
    report = run_sweep(with_faults(["none", "raise"]), path, progress=False)
    assert (report.finished, report.failed, report.left) == (2, 2, 0)
    assert sweep_status(path).failures == [
        ("network", "1", block, "RuntimeError: this unit always fails") for block in (0, 1)
    ]
    # They are tried again.
    assert run_sweep(with_faults(["none", "raise"]), path, progress=False).failed == 2
    assert len(sweep_status(path).failures) == 2


def test_a_unit_that_kills_its_worker_is_found(tmp_path):
    """Those that ran next to it are finished."""
    path = tmp_path / "a"
    report = run_sweep(with_faults(["kill", "sleep"], block=8), path, workers=2, progress=False)
    assert (report.finished, report.failed, report.left) == (1, 1, 0)
    assert sweep_status(path).failures == [("network", "0", 0, "its worker died every time")]


def test_no_unit_starts_after_the_time(tmp_path):
    report = run_sweep(slow(), tmp_path / "a", seconds=0.2, progress=False)
    assert 0 < report.finished < 10
    assert report.left == 10 - report.finished
    assert run_sweep(slow(), tmp_path / "a", progress=False).left == 0


def done(path):
    """Number of units in a file, -1 if there is none or its first transaction is not over."""
    try:
        return sweep_status(path).done
    except SweepFileError:
        return -1


def test_kills_at_random_moments(undisturbed, tmp_path):
    """20 kill -9, 6 of them between the first INSERT and COMMIT, on four files."""
    moments = random.Random(5)
    hit, kept = 0, []
    for name in "abcd":
        path = tmp_path / name
        for number in range(5):
            in_commit = number % 4 == 1 or (name in "ab" and number == 3)
            process = started(run_slowly, path, in_commit)
            marker, least = Path(f"{path}.committing"), moments.randrange(8)
            while process.is_alive() and not (
                marker.exists() if in_commit else done(path) >= least
            ):
                time.sleep(0.01)
            time.sleep(0.0 if in_commit else moments.uniform(0.0, 0.3))
            hit += in_commit and process.is_alive()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.join()
            marker.unlink(missing_ok=True)
            kept.append(done(path))
        run_sweep(slow(), path, progress=False)
        assert bits(path) == undisturbed["slow"]
    assert hit >= 5
    assert any(0 < units < 10 for units in kept)


def test_two_runs_do_not_mix(undisturbed, tmp_path):
    """The second is refused, and reading in the writer's process does not give its lock away."""
    path = tmp_path / "a"
    run_sweep(small(), path, progress=False)
    with SweepFile(path, small()) as file:
        file.commit([])
        assert sweep_status(path).done == 12
        started(try_to_run, small(), path).join()
    assert "in use by another run" in Path(f"{path}.error").read_text()
    assert bits(path) == undisturbed["small"]


def test_an_interrupt_ends_with_the_command_that_continues(tmp_path):
    toml, path = tmp_path / "grid.toml", tmp_path / "a.sweep"
    toml.write_text(
        'samplers = ["network"]\nsamples = 400\nblock = 4\n[fixed]\ngamma = 0.5\nfault = "sleep"\n'
        'layer = "tests.sweep_examples:faulty"\ntokens = 2\nwidth = 8\ndepth = 2\n'
    )
    command = [sys.executable, "-m", "shaped_attention", "sweep", "run", str(toml), str(path)]
    with subprocess.Popen(
        [*command, "--workers", "2"], stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
    ) as process:  # fmt: skip
        while process.poll() is None and not (path.exists() and path.stat().st_size):
            time.sleep(0.1)
        while process.poll() is None and not sweep_status(path).done:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        _, told = process.communicate()
    assert time.monotonic() - began < 10.0
    assert process.returncode == 3
    assert f"to continue: shaped-attention sweep run {toml} {path} --workers 2" in told
    assert 0 < sweep_status(path).done < 100


def test_changed_code_is_refused_or_recorded(tmp_path, monkeypatch):
    path = tmp_path / "a"
    run_sweep(with_faults(["none"], samples=4), path, progress=False)
    # The module of the layer counts.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run.inspect, "getsource", lambda part: "other")
        with pytest.raises(SweepFileError, match=r"other code \(tests\.sweep_examples"):
            run_sweep(with_faults(["none"]), path, progress=False)
    before = units.versions()
    monkeypatch.setattr(units, "versions", lambda: before | {"numpy": "0.1"})
    with pytest.raises(SweepFileError, match=r"numpy .* before, 0\.1 now"):
        run_sweep(with_faults(["none"]), path, progress=False)
    assert sweep_status(path).units == 1  # the runs that were refused did not let it grow
    run_sweep(with_faults(["none"]), path, accept_changed_code=True, progress=False)
    (change,) = sweep_status(path).code_changes
    assert change["units"] == 1
    assert change["changed"] == [f"numpy {before['numpy']} before, 0.1 now"]


def test_a_file_is_continued_by_its_function(tmp_path):
    path = tmp_path / "a.sweep"
    run_sweep(with_faults(["none"]), path, seconds=1e-9, progress=False)
    with pytest.raises(ValueError, match=r"layer must be one of .* or a function"):
        run_sweep(path, path, progress=False)
    with pytest.raises(ValueError, match=r"layer must be tests"):
        run_sweep(path, path, layer=small, progress=False)
    assert run_sweep(path, path, layer=faulty, progress=False).finished == 2
