"""Layers that are slow, fail or die, and runs of sweeps in processes that can be killed.

The processes are forked from a server that has everything imported, so that starting one costs
nothing.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import resource
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import xarray as xr

import shaped_attention.sweep as sweeps
from shaped_attention.sweep import Sweep, run_sweep
from shaped_attention.sweep.store import Store, StoreError
from tests.user_block import Linear


@dataclass(frozen=True)
class Faulty(Linear):
    """`Linear` that sleeps in every layer of the chain, and raises or dies by name."""

    seconds: float = 0.0
    fault: str = "none"
    log: str = ""

    def root(self, p, factor, numbers, width):
        # A unit traces its layer once, and has four of them.
        time.sleep(4 * self.seconds)
        if self.fault == "kill" and multiprocessing.parent_process() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "raise" and not Path(self.log, "healed").exists():
            with Path(self.log, "attempts").open("a") as file:
                file.write("x\n")
            raise RuntimeError("this unit always fails")
        return factor


def faulty(gamma, seconds=0.0, fault="none", log=""):
    """The layer 'tests.sweep_layers:faulty'."""
    return Faulty(gamma, seconds, fault, log)


def small(axes=None, samples=100, block=32, samplers=("chain",), seed=5, **fixed):
    """A sweep over `axes` of `Faulty` layers, 4 of them of width 20."""
    common = {"layer": "tests.sweep_layers:faulty", "tokens": 2, "width": 20, "depth": 4}
    return Sweep(
        {**common, "gamma": 0.5, **fixed}, axes or {},
        samplers=samplers, samples=samples, block=block, seed=seed,
    )  # fmt: skip


def of_these_tests(function):
    """A function of stores that may name code, since these tests have made them."""

    @functools.wraps(function)
    def call(*arguments, **named):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Sweep, "check_own_code", lambda self: None)
            return function(*arguments, **named)

    return call


resume_sweep, extend_sweep = map(of_these_tests, (sweeps.resume_sweep, sweeps.extend_sweep))


def contents(path):
    """Bytes by name of all files of the arrays, hidden ones too, and of the specification."""
    files = [file for file in Path(path, "data.zarr").rglob("*") if file.is_file()]
    return {str(f.relative_to(path)): f.read_bytes() for f in [*files, Path(path, "sweep.json")]}


def numbers(path):
    """Types, dimensions and bytes of all arrays by name, and the attributes of the group.

    Chunks of an extended store have the sizes for which it was made.
    """
    data = xr.open_zarr(Path(path, "data.zarr")).load()
    found = {
        name: (array.dims, array.dtype, array.values.tobytes())
        for name, array in data.variables.items()
    }
    return found | {"attributes": data.attrs}


def forks():
    """A context whose processes begin with all imports made."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["pytest", "dask.array", "distributed.nanny", "tests.sweep_layers"]
    )
    return context


def in_process(function, *arguments, seconds=None):
    """Exit status of a process that runs a function, or is killed after `seconds`."""
    process = forks().Process(target=function, args=arguments)
    process.start()
    process.join(60 if seconds is None else seconds)
    if process.is_alive():
        process.kill()
        process.join()
    return process.exitcode


def ready():
    """What a process does that finds the server started."""


def commit_often(path):
    """Resume with a commit after every 20 ms."""
    torch.set_num_threads(1)
    resume_sweep(path, progress=False)


def small_files(path, most):
    """Resume where no file may be longer than `most` bytes; dies by the signal 9 if that is fine.

    The status is 3 if the error is the store's.
    """
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    try:
        commit_often(path)
    except StoreError as error:
        with contextlib.suppress(OSError):
            Path(path).with_suffix(".said").write_text(str(error)[-most:])
        os._exit(3)


def hold(path, seconds):
    """Hold the lock as a run would."""
    with Store(path).locked():
        Path(path).with_suffix(".held").touch()
        time.sleep(seconds)


def _ledger_first(self, results):
    """A wrong `Store.commit`."""
    results = list(results)
    lines = [{"unit": [u.block, [], u.sampler], "samples": 10, "seconds": s} for u, _, s in results]
    self.ledger.add(lines)
    self.ledger.add = lambda _: None
    _COMMIT(self, results)
    del self.ledger.add


_COMMIT = Store.commit


def die_at(path, sweep, k, wrong=False):
    """Run, each unit a commit, and die at the k-th moment about a write: 9, or 0 if none is left.

    Moments are before each fsync, and before and after each move of a file to its place.
    """
    _dying_at(k)
    torch.set_num_threads(1)
    if wrong:
        Store.commit = _ledger_first
    run_sweep(sweep, path, progress=False)


def extend_and_die(path, extension, k):
    """Extend, and die at the k-th moment about a write, or before a file is deleted."""
    _dying_at(k)
    torch.set_num_threads(1)
    extend_sweep(path, **extension)


def _dying_at(k):
    count = 0

    def tick():
        nonlocal count
        count += 1
        if count == k:
            os.kill(os.getpid(), signal.SIGKILL)

    fsync, replace, unlink = os.fsync, Path.replace, Path.unlink

    def dying_fsync(descriptor):
        tick()
        fsync(descriptor)

    def dying_replace(self, target):
        # Zarr moves dozens of files of metadata into the draft, where all moments are alike.
        if ".data.zarr.draft" in str(target) and "moments" not in str(target):
            return replace(self, target)
        # As does an extension out of the draft.
        if ".data.zarr.draft" in str(self) and target.parent.name not in ("gamma", "data.zarr"):
            return replace(self, target)
        tick()
        result = replace(self, target)
        tick()
        return result

    def dying_unlink(self, missing_ok=False):
        tick()
        unlink(self, missing_ok)

    os.fsync, Path.replace, Path.unlink = dying_fsync, dying_replace, dying_unlink
