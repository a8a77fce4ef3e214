"""Apply mutants one at a time in copies of the tree, and see whether a test fails.

Every worker has a copy of its own. The unmutated copy must pass all tests that are used, once;
otherwise everything would look noticed. A test that fails notices a mutant. A crash before any test
runs, and a time-out, are no tests that fail: they are reported apart.
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

from tests.mutants.mutant import Mutant

KILLED, SURVIVED, CRASHED, HUNG = "killed", "survived", "crashed", "hung"
LIMIT = 900.0
"""Seconds after which a run is ended; the slowest takes a quarter of that."""

_PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-rfE")


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: the verdict, the test that failed or the last line, and seconds."""

    name: str
    verdict: str
    by: str
    seconds: float

    @property
    def noticed(self) -> bool:
        """Whether a test saw it."""
        return self.verdict == KILLED


def tracked_files(root: Path) -> list[str]:
    """Return the files that git tracks."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True
    )
    return [name for name in listed.stdout.split("\0") if name and (root / name).is_file()]


def mutated(source: str, mutant: Mutant) -> str:
    """The source with the error in it.

    Raises
    ------
    ValueError
        If the text does not occur exactly once, or is replaced by itself.
    """
    found = source.count(mutant.text)
    if found != 1:
        raise ValueError(f"{mutant.name}: its text occurs {found} times in {mutant.file}; once")
    if mutant.text == mutant.replacement:
        raise ValueError(f"{mutant.name}: its replacement is its text")
    return source.replace(mutant.text, mutant.replacement)


class Workplace:
    """A copy of some files of a tree, in which one mutant at a time is applied."""

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
        """The tests without a mutant; they must pass, so the verdict should be `SURVIVED`."""
        return self._run("unmutated", tests)

    def judge(self, mutant: Mutant) -> Outcome:
        """The tests of a mutant, with it."""
        with self._applied(mutant):
            outcome = self._run(mutant.name, mutant.tests)
        if mutant.hangs and outcome.verdict == HUNG:
            return Outcome(mutant.name, KILLED, "time-out, as marked", outcome.seconds)
        return outcome

    @contextmanager
    def _applied(self, mutant: Mutant) -> Iterator[None]:
        path = self.folder / mutant.file
        original, stat = path.read_text(encoding="utf-8"), path.stat()
        path.write_text(mutated(original, mutant), encoding="utf-8")
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
        # Not the caches and sources of whoever calls.
        hidden = ("NUMBA_CACHE_DIR", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
        environment = {key: value for key, value in os.environ.items() if key not in hidden}
        process = subprocess.Popen(
            [sys.executable, *_PYTEST, *(f"tests/{test}" for test in tests)],
            cwd=self.folder, env={**environment, "PYTHONPATH": str(self.folder)}, text=True,
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
