"""A sweep's numbers do not depend on the engine, and survive the death of its workers."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import dask
import distributed
import numpy as np
import pytest
import torch

from shaped_attention.samplers import memory
from shaped_attention.sweep import (
    ExecutorEngine,
    InProcess,
    Processes,
    Sweep,
    dask_engine,
    open_sweep,
    run_sweep,
)
from shaped_attention.sweep import run_loop as running
from shaped_attention.sweep.grid import Unit
from shaped_attention.sweep.store import Store
from shaped_attention.sweep.work_units import run_unit
from tests import sweep_layers as layers
from tests.sweep_examples import small as small_sweep
from tests.sweep_layers import resume_sweep

GRID = Sweep(
    {"tokens": 2, "width": 20, "depth": 10},
    {"gamma": [0.3, 0.7], "layer": ["attention", "mlp"]},
    samplers=("network", "chain", "sde"), samples=150, block=64, seed=3, fractions=(0.5, 1.0),
)  # fmt: skip
UNITS = 2 * 2 * 3 * 3


def whole(sweep, path, engine=None):
    """What a run without failures keeps."""
    report = run_sweep(sweep, path, engine=engine, progress=False)
    assert report.left == report.failed == 0
    assert Store(path).failures() == []
    return layers.contents(path)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The grid in this process."""
    return whole(GRID, tmp_path_factory.mktemp("sweep") / "alone")


@pytest.fixture
def fast_processes(monkeypatch):
    """Worker processes that are forked with all imports made, instead of spawned."""
    context = layers.forks()
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: context)


class _Shuffled(ThreadPoolExecutor):
    """Runs what was submitted in a random order, one after the other."""

    def __init__(self, seed):
        super().__init__(1)
        self.rng, self.pending, self.order = np.random.default_rng(seed), [], []

    def submit(self, function, *arguments):
        future = Future()
        self.pending.append((future, function, arguments))
        super().submit(self._one)
        return future

    def _one(self):
        time.sleep(0.005)
        future, function, arguments = self.pending.pop(self.rng.integers(len(self.pending)))
        self.order.append(arguments[1])
        future.set_result(function(*arguments))


def test_threads_change_nothing(tmp_path, alone):
    """Those of torch, and of an executor, which is an engine as it is."""
    before = torch.get_num_threads()
    torch.set_num_threads(3 - min(before, 2))
    try:
        assert whole(GRID, tmp_path / "torch") == alone
    finally:
        torch.set_num_threads(before)
    with ThreadPoolExecutor(3) as executor:
        assert whole(GRID, tmp_path / "store", executor) == alone


def test_other_seeds_give_other_numbers(tmp_path, alone):
    """Negative control of the comparisons: every chunk of values is different."""
    values = {**{name: getattr(GRID, name) for name in GRID.__dataclass_fields__}, "seed": 4}
    other = whole(Sweep(**values), tmp_path / "store")
    chunks = [name for name in alone if "/values/" in name and "." not in name.split("/")[-1][:1]]
    assert len(chunks) == 3 * GRID.blocks
    assert all(alone[name] != other[name] for name in chunks)


def test_any_order(tmp_path, alone):
    with _Shuffled(0) as executor:
        assert whole(GRID, tmp_path / "store", ExecutorEngine(executor, 12)) == alone
    assert len(executor.order) == UNITS
    assert sum(a > b for a, b in zip(executor.order, executor.order[1:], strict=False)) > 5


def test_processes(tmp_path, alone):
    """One for each device."""
    with closing(Processes(devices=("cpu", "cpu"))) as engine:
        assert engine.workers == 2
        assert whole(GRID, tmp_path / "store", engine) == alone


def _place(*arguments):
    time.sleep(0.2)  # so that the other process takes the other call
    return (*arguments, os.getpid())


@pytest.mark.usefixtures("fast_processes")
def test_one_process_on_each_device():
    """A call has the device of its process, however many there are."""
    with closing(Processes(devices=("cuda:0", "cuda:1"))) as engine:
        futures = [engine.submit(_place, k) for k in range(6)]
        calls = [future.result() for future in futures]
    assert {call[2] for call in calls} == {1}  # one thread
    assert {device for _, device, *_ in calls} == {"cuda:0", "cuda:1"}
    assert len({(device, process) for _, device, _, process in calls}) == 2


@pytest.mark.parametrize(("given", "used"), [("cuda:1", "cuda:1"), (None, "cuda")])
def test_a_unit_runs_on_the_device_of_its_process(given, used, monkeypatch):
    """A Dask worker has none of its own: there a unit runs on 'cuda', the first that it sees.

    Its memory is that of the same device.
    """
    asked = []

    class SeenError(Exception):
        """Ends a unit once it is known how it runs."""

    def sample(_cell, _sampler, _fractions, **options):
        asked.append((options["device"], options["memory"]))
        raise SeenError

    sweep = replace(small_sweep(), device="cuda")
    free = {"cuda": 2000, "cuda:0": 2000, "cuda:1": 1000}
    monkeypatch.setattr(memory, "free_bytes", free.get)
    monkeypatch.setattr(type(sweep.cell(sweep.index(0))), "sample", sample)
    with pytest.raises(SeenError):
        run_unit(sweep, Unit(0, 0, 0), given, 1)
    assert asked == [(used, free[used] // 2)]


@pytest.mark.usefixtures("fast_processes")
def test_a_unit_that_kills_its_workers(tmp_path):
    """It alone is given up, not the units alongside it that take longer than it takes to die.

    One that raises is given up with the traceback of its process.
    """
    faults = ["kill", "none", "raise", "no"]
    sweep = layers.small({"fault": faults}, samples=32, seconds=0.15, log=str(tmp_path))
    path = tmp_path / "store"
    with closing(Processes(2)) as engine:
        report = run_sweep(sweep, path, engine=engine, progress=False)
    failures = {record["unit"]: record["traceback"] for record in Store(path).failures()}
    assert failures.keys() == {Unit(0, 0, 0), Unit(0, 2, 0)}
    assert "in root" in failures[Unit(0, 2, 0)]
    assert (report.finished, report.failed, report.left) == (2, 2, 0)
    for unit in (Unit(0, 1, 0), Unit(0, 3, 0)):
        values = Store(path).arrays.read("values", unit)
        np.testing.assert_array_equal(values, run_unit(sweep, unit)["values"])


@pytest.mark.parametrize(
    ("runs", "replaced", "sentence"),
    [(4, False, "only its owner can replace it"), (0, True, "if __name__ == '__main__'")],
)
def test_an_executor_that_breaks(runs, replaced, sentence, tmp_path):
    """That of a caller is not replaced; one whose workers never start is, but a few times in all.

    What came back is kept, and another run continues from there.
    """
    sweep = layers.small(samples=200, block=20)
    expected = whole(sweep, tmp_path / "alone")
    recovered = []

    class Breaking(InProcess):
        left = runs

        def submit(self, function, *arguments):
            self.left -= 1
            if self.left >= 0:
                return super().submit(function, *arguments)
            future = Future()
            future.set_exception(BrokenExecutor("all workers are dead"))
            return future

        def recover(self):
            recovered.append(self)
            return replaced

    with pytest.raises(BrokenExecutor, match=sentence):
        run_sweep(sweep, tmp_path / "store", engine=Breaking(), progress=False)
    assert len(recovered) <= 6
    assert len(Store(tmp_path / "store").finished()) == runs
    assert whole(sweep, tmp_path / "store") == expected


def _echo(*arguments):
    return arguments


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore:.*[Pp]ort.*:UserWarning")
def test_dask_with_killed_workers(tmp_path):
    """Both workers of a cluster are killed, one after the other: it completes, and is the same."""
    sweep = layers.small({"rho": [0.2, 0.5]}, samples=640, block=32, seconds=0.01)
    expected = whole(sweep, tmp_path / "alone")
    assert layers.in_process(layers.ready) == 0  # Workers are forked with all imports made.
    with (
        dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None,
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):  # fmt: skip
        engine = dask_engine(client)
        assert engine.workers == 2
        assert engine.submit(_echo, "unit").result() == ("unit", None, 1)  # one thread
        first = [nanny.pid for nanny in cluster.workers.values()]
        submit, count = engine.submit, iter(range(1000))

        def killing(*arguments):
            if (k := next(count)) in (6, 30):
                os.kill(first[k // 30], signal.SIGKILL)
            return submit(*arguments)

        engine.submit = killing
        assert whole(sweep, tmp_path / "store", engine) == expected
        assert next(count) == 2 * sweep.blocks
        assert set(first).isdisjoint({nanny.pid for nanny in cluster.workers.values()})


@pytest.mark.parametrize("retries", [0, 2])
def test_a_unit_that_fails(tmp_path, retries):
    """Tried 1 + `retries` times, then reported; the rest completes. Resumed, it is tried again."""
    log = tmp_path / "log"
    log.mkdir()
    sweep = layers.small({"fault": ["none", "raise"]}, samples=96, log=str(log))
    path = tmp_path / "store"

    def attempts():
        return len((log / "attempts").read_text().splitlines())

    report = run_sweep(sweep, path, retries=retries, progress=False)
    assert (report.finished, report.failed, report.left) == (3, 3, 0)
    assert report.reasons == {"samples": 1, "failed": 1}
    assert attempts() == 3 * (1 + retries)
    failures = Store(path).failures()
    assert [record["unit"] for record in failures] == [Unit(block, 1, 0) for block in range(3)]
    assert {record["error"] for record in failures} == {"RuntimeError: this unit always fails"}
    assert all("in root" in record["traceback"] for record in failures)
    again = resume_sweep(path, retries=retries, progress=False)
    assert (again.finished, again.failed) == (3, 3)
    assert attempts() == 2 * 3 * (1 + retries)
    (log / "healed").touch()
    healed = resume_sweep(path, progress=False)
    assert (healed.finished, healed.failed, healed.left) == (6, 0, 0)
    assert layers.contents(path) == whole(sweep, tmp_path / "healthy")


@pytest.mark.parametrize(("where", "moment"), [("submission", 1), ("wait", 7)])
def test_an_interrupt_keeps_what_came_back(tmp_path, monkeypatch, where, moment):
    """Ctrl-C at a submission, or while waiting: the units before are in the ledger."""
    sweep = layers.small(samples=200, block=20)
    expected = whole(sweep, tmp_path / "alone")
    path, count = tmp_path / "store", iter(range(1000))
    target = InProcess.submit if where == "submission" else running.wait

    def interrupted(*arguments, **options):
        if next(count) == moment:
            signal.raise_signal(signal.SIGINT)
        return target(*arguments, **options)

    with monkeypatch.context() as patch:
        if where == "submission":
            patch.setattr(InProcess, "submit", interrupted)
        else:
            patch.setattr(running, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_sweep(sweep, path, progress=False)
    assert len(Store(path).finished()) >= moment
    assert not Store(path).running
    assert whole(sweep, path) == expected


def test_devices_of_another_type_are_refused(tmp_path):
    """Their numbers differ in the last bits, so a store has those of one type."""
    with (
        closing(Processes(devices=("cuda:0",))) as engine,
        pytest.raises(
            ValueError,
            match=r"^engine has the device 'cuda:0' and the sweep 'cpu'; only devices of the same "
            r"type give bit-identical results; set device = 'cuda' in the sweep, or run it "
            r"elsewhere$",
        ),
    ):
        run_sweep(small_sweep(), tmp_path / "s", engine=engine)
    assert not (tmp_path / "s").exists()
    sweep = replace(small_sweep(), device="cuda")
    with pytest.raises(ValueError, match=r"^device 'cuda': torch finds no CUDA device here$"):
        run_sweep(sweep, tmp_path / "s")
    # It can be made, listed and read where there is no such device.
    Store(tmp_path / "s", sweep)
    assert int(open_sweep(tmp_path / "s")["drawn"].sum()) == 0


def test_processes_end_with_their_parent(tmp_path):
    """kill -9 of the run: its worker processes are gone within seconds."""
    code = (
        "import sys, time\n"
        "from shaped_attention.sweep import Processes\n"
        "if __name__ == '__main__':\n"
        "    engine = Processes(2)\n"
        "    for k in range(4):\n"
        "        engine.submit(max, k, k + 1).exception()\n"
        "    print(*engine._pool._processes, flush=True)\n"
        "    time.sleep(60)\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code, encoding="utf-8")
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as run:
        workers = [int(word) for word in run.stdout.readline().split()]
        assert workers
        run.kill()
    for _ in range(100):
        if not any(os.path.exists(f"/proc/{pid}/exe") for pid in workers):
            return
        time.sleep(0.1)
    raise AssertionError(workers)


@pytest.mark.usefixtures("fast_processes")
def test_an_interrupt_does_not_wait_for_running_units(tmp_path):
    """Units of a minute each, in two processes, that end with the run."""
    sweep = layers.small({"rho": [0.1, 0.3]}, samples=20, block=10, seconds=15.0)
    engine = Processes(2)
    timer = threading.Timer(5.0, signal.raise_signal, (signal.SIGINT,))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_sweep(sweep, tmp_path / "s", engine=engine, progress=False)
    finally:
        began = time.monotonic()
        engine.close()
    assert time.monotonic() - began < 20.0


class _Deadly(Processes):
    """Kills one of its workers at some of the submissions."""

    def __init__(self, workers, moments):
        super().__init__(workers)
        self.rng, self.moments = np.random.default_rng(1), moments
        self.submitted, self.killed = 0, []

    def submit(self, function, *arguments):
        future = super().submit(function, *arguments)
        self.submitted += 1
        if self.submitted in self.moments:
            time.sleep(self.rng.uniform(0, 0.1))
            pid = int(self.rng.choice(list(self._pool._processes)))
            with contextlib.suppress(ProcessLookupError):  # The pool may be broken already.
                os.kill(pid, signal.SIGKILL)
                self.killed.append(pid)
        return future


@pytest.mark.usefixtures("fast_processes")
def test_killed_processes(tmp_path):
    """Workers killed at six moments of a run, some again while it recovers: nothing is missing."""
    sweep = layers.small({"rho": [0.2, 0.5]}, samples=400, block=32, seconds=0.005)
    expected = whole(sweep, tmp_path / "alone")
    engine = _Deadly(2, {1, 4, 12, 20, 30, 40})
    try:
        assert whole(sweep, tmp_path / "store", engine) == expected
    finally:
        engine.close()
    assert len(set(engine.killed)) >= 3
