"""A small sweep, layers that fail or die, and what a file has, for the tests of sweeps."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sqlite3
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import shaped_attention as sa
from shaped_attention.sweep import Sweep, run, run_sweep
from shaped_attention.sweep.file import SweepFile

FIXED = {"tokens": 2, "width": 20, "depth": 4, "step": 0.05}

TOML = """
samplers = ["chain", "sde"]
samples = 20
block = 8
[fixed]
layer = "attention"
tokens = 2
width = 20
depth = 4
step = 0.05
[axes]
gamma = [0.3, 0.5]
"""


def small(axes=None, **changes):
    """Chain and SDE at two strengths: three units of 8, 8 and 4 samples of each."""
    own = {"axes": {"gamma": [0.3, 0.5]} if axes is None else axes, "samples": 20, "block": 8}
    return Sweep(changes.pop("fixed", FIXED), **(own | changes))


@dataclass(frozen=True)
class Faulty(sa.Block):
    """A linear branch that sleeps, raises, or kills its process if that is a worker."""

    gamma: float = 0.5
    fault: str = "none"
    limit = "it is a block for tests"

    def branch(self, p, tokens, project):
        if self.fault == "kill" and multiprocessing.parent_process() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "raise":
            raise RuntimeError("this unit always fails")
        if self.fault == "sleep":
            time.sleep(0.1)
        return project(tokens, tokens.shape[-1]) / tokens.shape[-1] ** 0.5


def faulty(gamma, fault="none"):
    """A layer function, as a user would write it."""
    return Faulty(gamma, fault)


def with_faults(faults, samples=8, block=4):
    """Networks of `Faulty` layers, a cell for each fault."""
    fixed = {"layer": faulty, "gamma": 0.5, "tokens": 2, "width": 8, "depth": 2}
    axes = {"fault": list(faults)}
    return Sweep(fixed, axes, samplers="network", samples=samples, block=block)


def bits(path):
    """Samples and data of every unit by sampler, cell and block: not the times that they took."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT sampler, cell, block, samples, data FROM unit")
        return {row[:3]: row[3:] for row in rows}


def started(function, *arguments):
    """A process that runs a function, and begins with all imports made."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["pytest", "tests.sweep_examples", "torch", "shaped_attention.samplers.network"]
    )
    process = context.Process(target=function, args=arguments)
    process.start()
    return process


def run_slowly(path, pause_in_commit=False):
    """Run ten units of .15 s with two workers, in a group of processes; a commit may wait."""
    os.setsid()
    if pause_in_commit:
        before = SweepFile._commit

        def commit(self):
            if self._db.execute("SELECT count(*) FROM unit").fetchone()[0]:
                Path(f"{path}.committing").touch()
                time.sleep(60.0)
            before(self)

        SweepFile._commit = commit
    run._LONGEST_WAIT = 0.2  # so that units are written many times
    # Forks of a process without threads begin with all imports made.
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as executor:
        run_sweep(slow(), path, executor=executor, progress=False)


def slow():
    """Ten units, each of which sleeps."""
    return with_faults(["sleep", "none"], samples=20, block=4)


def try_to_run(sweep, path):
    """Run, and save the error message in PATH.error."""
    try:
        run_sweep(sweep, path, progress=False)
    except ValueError as error:
        Path(f"{path}.error").write_text(str(error))
