"""A copy of the tree in which one error at a time is planted, and whether a test fails.

The copy must pass all tests that are used without an error, or everything would look noticed. A
crash before any test runs, and a time-out, are no tests that fail.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from tests.mutants.table import Mutant

KILLED, SURVIVED, CRASHED, HUNG = "killed", "survived", "crashed", "hung"
LIMIT = 900.0
"""Seconds after which a run is ended; the slowest takes a quarter of that."""

_PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-rfE")


@dataclass(frozen=True)
class Outcome:
    """What became of an error: the verdict, the test that failed or the last line, and seconds."""

    name: str
    verdict: str
    by: str
    seconds: float


class Workplace:
    """A copy of some files of a tree."""

    def __init__(
        self, root: Path, folder: Path, files: Sequence[str], limit: float = LIMIT
    ) -> None:
        self.folder, self._limit = folder, limit
        self._serial = count(1)
        for name in files:
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target)

    def baseline(self, tests: Sequence[str]) -> Outcome:
        """The tests without an error; they must pass, so the verdict should be `SURVIVED`."""
        return self._run("without an error", tests)

    def judge(self, mutant: Mutant) -> Outcome:
        """The tests of an error, with it."""
        with self._planted(mutant):
            return self._run(mutant.name, mutant.tests)

    @contextmanager
    def _planted(self, mutant: Mutant) -> Iterator[None]:
        path = self.folder / mutant.file
        original, stat = path.read_text(encoding="utf-8"), path.stat()
        path.write_text(mutant.planted_in(original), encoding="utf-8")
        # Caches go by time and size, so each version has a time of its own.
        moment = stat.st_mtime_ns + next(self._serial) * 10**10
        os.utime(path, ns=(moment, moment))
        try:
            yield
        finally:
            path.write_text(original, encoding="utf-8")
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def _run(self, name: str, tests: Sequence[str]) -> Outcome:
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *_PYTEST, *(f"tests/{test}" for test in tests)],
            cwd=self.folder, env={**os.environ, "PYTHONPATH": str(self.folder)}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=self._limit)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return Outcome(name, HUNG, f"after {self._limit:g} s", time.perf_counter() - began)
        seconds = time.perf_counter() - began
        return Outcome(name, *_verdict(process.returncode, output), seconds)


def _verdict(status: int, output: str) -> tuple[str, str]:
    """The verdict, and the test that failed, from pytest's exit status and output."""
    if status == 0:
        return SURVIVED, ""
    for line in output.splitlines():
        word, _, rest = line.partition(" ")
        failed = rest.split(" - ")[0].removeprefix("tests/")
        # An error that names no test was raised while the file was imported.
        if word in ("FAILED", "ERROR") and "::" in failed:
            return (KILLED, failed) if status == 1 else (CRASHED, failed)
    lines = [line for line in output.splitlines() if line.strip()]
    return CRASHED, lines[-1] if lines else f"exit status {status}"
