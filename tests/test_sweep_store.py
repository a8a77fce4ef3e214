"""What a store refuses, how its lock ends, and engines that do not fit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from shaped_attention.sweep import Processes, Sweep, open_sweep, resume_sweep, run_sweep
from shaped_attention.sweep.store import Store, StoreError
from tests.sweep_examples import small


def test_a_zarr_of_someone_else_is_not_touched(tmp_path):
    xr.Dataset({"x": ("i", np.arange(3.0))}).to_zarr(
        tmp_path / "data.zarr", zarr_format=2, consolidated=False
    )
    with pytest.raises(StoreError, match="the folder is neither empty nor the store of a sweep"):
        run_sweep(small(), tmp_path)
    again = xr.open_zarr(tmp_path / "data.zarr", consolidated=False)
    assert again["x"].values.tolist() == [0, 1, 2]


def test_plain_xarray_reads_the_store(tmp_path):
    run_sweep(small(keep="reductions"), tmp_path / "s")
    plain = xr.open_zarr(tmp_path / "s" / "data.zarr")
    assert list(plain["sampler"].values) == ["chain", "sde"]
    assert plain["stopping"].dtype == np.int64
    assert int(plain["histogram"].sel(kept="mean |rho|").isel(time=0).sum()) == 4 * 20
    assert json.loads(plain.attrs["sweep"])["samples"] == 20


def test_a_store_of_another_format_is_refused(tmp_path):
    run_sweep(small(), tmp_path / "s")
    file = tmp_path / "s" / "sweep.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 0}))
    sentence = "this store has the format 0, and this version of the package reads only 5; another"
    with pytest.raises(StoreError, match=sentence):
        open_sweep(tmp_path / "s")


def test_the_lock_ends_with_the_run_also_when_workers_were_forked(tmp_path):
    """Workers of an executor that forks inherit files; without closing the lock they hold it."""
    sweep = small()
    store = Store(tmp_path / "s", sweep)
    with store.locked():
        child = os.fork()
        if child == 0:
            time.sleep(20)
            os._exit(0)
        assert store.running
    try:
        assert not store.running
        assert resume_sweep(tmp_path / "s").left == 0
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_any_executor_is_an_engine(tmp_path):
    with ThreadPoolExecutor(2) as pool:
        assert run_sweep(small(), tmp_path / "s", engine=pool).left == 0
    assert run_sweep(small(), tmp_path / "t").left == 0
    a, b = open_sweep(tmp_path / "s").load(), open_sweep(tmp_path / "t").load()
    assert a.drop_vars("reason").identical(b.drop_vars("reason"))


def test_devices_of_another_type_are_refused(tmp_path):
    """Their numbers differ in the last bits, so a store has those of one type."""
    engine = Processes(devices=("cuda:0",))
    try:
        with pytest.raises(ValueError, match="engine has the device 'cuda:0', the sweep 'cpu'"):
            run_sweep(small(), tmp_path / "s", engine=engine)
    finally:
        engine.close()
    assert not (tmp_path / "s").exists()
    sweep = replace(small(), device="cuda")
    with pytest.raises(ValueError, match="torch finds 0 CUDA devices"):
        run_sweep(sweep, tmp_path / "s")
    # It can be made, listed and read where there is no such device.
    Store(tmp_path / "s", sweep)
    assert int(open_sweep(tmp_path / "s")["drawn"].sum()) == 0


def test_a_process_for_each_device(tmp_path):
    engine = Processes(devices=("cpu", "cpu"))
    try:
        assert engine.workers == 2
        assert run_sweep(small(), tmp_path / "s", engine=engine).left == 0
    finally:
        engine.close()


class _Broken(ThreadPoolExecutor):
    def submit(self, *_arguments, **_options):
        return super().submit(_break)


def _break():
    raise BrokenExecutor("dead")


class _NeverStarts:
    workers, devices = 2, ()

    def __init__(self):
        self.pool = _Broken(1)
        self.recovered = 0

    def submit(self, function, *arguments):
        return self.pool.submit(function, *arguments)

    def recover(self):
        self.recovered += 1
        return True


def test_workers_that_never_start_end_the_run(tmp_path):
    """Not after `retries` breaks for every one of many units, but after a few in all."""
    engine = _NeverStarts()
    with pytest.raises(BrokenExecutor, match="if __name__ == '__main__'"):
        run_sweep(small(samples=800), tmp_path / "s", engine=engine)
    assert engine.recovered <= 6
    engine.pool.shutdown()


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


def test_forked_processes_give_the_same(tmp_path):
    """The usual executor of processes on this Python."""
    with ProcessPoolExecutor(1) as pool:
        assert run_sweep(small(), tmp_path / "s", engine=pool).left == 0
        assert resume_sweep(tmp_path / "s").left == 0


def test_a_sweep_names_what_differs():
    one, other = small(), small(seed=5, samples=40)
    assert one.differing(other) == ["samples", "seed"]
    assert isinstance(one, Sweep)


def test_the_lock_ends_with_a_killed_run_that_has_forked(tmp_path):
    """kill -9 of the holder while a child that it forked lives on."""
    code = (
        "import os, sys, time\n"
        "from shaped_attention.sweep.store import Store\n"
        "with Store(sys.argv[1]).locked():\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        os.close(1)\n"
        "        time.sleep(30)\n"
        "        os._exit(0)\n"
        "    time.sleep(0.5)\n"
        "    print(child, flush=True)\n"
        "    time.sleep(30)\n"
    )
    store = Store(tmp_path / "s", small())
    command = [sys.executable, "-c", code, str(store.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        child = int(run.stdout.readline())
        assert store.running
        run.kill()
    try:
        assert not store.running
    finally:
        os.kill(child, signal.SIGKILL)
