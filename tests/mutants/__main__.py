"""``python -m tests.mutants``: which scientific errors do the tests not see?"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import Queue
from typing import TypeVar

from tests.mutants.table import Mutant, mutants
from tests.mutants.workplace import KILLED, SURVIVED, Outcome, Workplace

_ROOT = Path(__file__).parents[2]
_Task = TypeVar("_Task")


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant the errors that are asked for; 1 if no test noticed one, 2 if tests fail without."""
    parser = argparse.ArgumentParser("python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="errors to plant; without any, all")
    parser.add_argument("--workers", type=int, default=2, help="copies of the tree (2)")
    options = parser.parse_args(arguments)
    known = {mutant.name: mutant for mutant in mutants()}
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"unknown errors: {', '.join(unknown)}")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=_ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    files = [name for name in listed if name and (_ROOT / name).is_file()]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        places = [Workplace(_ROOT, Path(folder, str(k)), files) for k in range(options.workers)]
        return run([known[name] for name in options.names or known], places)


def run(chosen: Sequence[Mutant], places: Sequence[Workplace]) -> int:
    """Plant errors in some workplaces, print what became of each, and give the exit status."""
    began = time.perf_counter()
    # All tests of a file at once: most of a short run is the import.
    files: dict[str, dict[str, None]] = {}
    for mutant in chosen:
        for test in mutant.tests:
            files.setdefault(test.split("::")[0], {})[test] = None
    failed = False
    for outcome in _shared(places, [list(tests) for tests in files.values()], Workplace.baseline):
        if outcome.verdict != SURVIVED:
            failed = True
            print(f"without an error: {outcome.verdict} {outcome.by}", flush=True)
    if failed:
        return 2
    print(f"{len(files)} files pass without an error, {time.perf_counter() - began:.0f} s")
    missed = []
    for outcome in _shared(places, chosen, Workplace.judge):
        if outcome.verdict != KILLED:
            missed.append(outcome)
        print(
            f"{outcome.name:48} {outcome.verdict:8} {outcome.seconds:5.0f} s  {outcome.by}",
            flush=True,
        )
    minutes = (time.perf_counter() - began) / 60
    print(f"\n{len(chosen)} errors, {len(missed)} not noticed by a test, {minutes:.0f} min")
    for outcome in sorted(missed, key=lambda o: (o.verdict, o.name)):
        print(f"  {outcome.verdict}: {outcome.name} {outcome.by}")
    return 1 if missed else 0


def _shared(
    places: Sequence[Workplace],
    tasks: Sequence[_Task],
    work: Callable[[Workplace, _Task], Outcome],
) -> Iterator[Outcome]:
    """The outcomes of the tasks as they come, each done at a workplace that is free."""
    free: Queue[Workplace] = Queue()
    for place in places:
        free.put(place)

    def done(task: _Task) -> Outcome:
        place = free.get()
        try:
            return work(place, task)
        finally:
            free.put(place)

    with ThreadPoolExecutor(len(places)) as pool:
        for future in as_completed([pool.submit(done, task) for task in tasks]):
            yield future.result()


if __name__ == "__main__":
    sys.exit(main())
