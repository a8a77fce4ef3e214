"""``python -m tests.mutants``: which scientific errors do the tests not see?"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import Queue
from typing import TypeVar

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.runner import SURVIVED, Outcome, Workplace, tracked_files

_ROOT = Path(__file__).parents[2]
_Task = TypeVar("_Task")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the mutants that are asked for; 1 if one was not noticed by a test, 2 for no baseline."""
    parser = argparse.ArgumentParser("python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="mutants to run; without any, all")
    parser.add_argument("--workers", type=int, default=2, help="copies of the tree (2)")
    parser.add_argument("--list", action="store_true", help="print the mutants and run none")
    options = parser.parse_args(arguments)
    known = {mutant.name: mutant for mutant in MUTANTS}
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"unknown mutants: {', '.join(unknown)}")
    chosen = [known[name] for name in options.names] or MUTANTS
    if options.list:
        for mutant in chosen:
            print(
                f"{mutant.name:48} {mutant.file}\n    - {mutant.text}\n    + {mutant.replacement}"
            )
        return 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        files = tracked_files(_ROOT)
        places = [
            Workplace(_ROOT, Path(folder, str(number)), files) for number in range(options.workers)
        ]
        return run(chosen, places)


def run(mutants: Sequence[Mutant], places: Sequence[Workplace]) -> int:
    """Run mutants on some workplaces, print what became of each, and give the exit status."""
    began = time.perf_counter()
    # All tests of a file at once: most of a short run is the import.
    files: dict[str, dict[str, None]] = {}
    for mutant in mutants:
        for test in mutant.tests:
            files.setdefault(test.split("::")[0], {})[test] = None
    failed = False
    for outcome in _shared(
        places, list(files.values()), lambda at, tests: at.baseline(list(tests))
    ):
        if outcome.verdict != SURVIVED:
            failed = True
            print(f"without a mutant: {outcome.verdict} {outcome.by}", flush=True)
    if failed:
        return 2
    print(f"{len(files)} files pass without a mutant, {time.perf_counter() - began:.0f} s")
    outcomes = []
    for outcome in _shared(places, mutants, Workplace.judge):
        outcomes.append(outcome)
        print(
            f"{outcome.name:48} {outcome.verdict:8} {outcome.seconds:5.0f} s  {outcome.by}",
            flush=True,
        )
    missed = sorted((o for o in outcomes if not o.noticed), key=lambda o: (o.verdict, o.name))
    print(f"\n{len(outcomes)} mutants, {len(missed)} not noticed by a test", end="")
    print(f", {(time.perf_counter() - began) / 60:.0f} min")
    for outcome in missed:
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
