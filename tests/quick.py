"""Which tests are quick: one of every public function and command, and those that see most.

The planted errors (`tests/mutants`) name the tests that notice them. Their union notices whatever
the whole suite is known to notice, in a small part of its time; `make test` runs it.
"""

from __future__ import annotations

from pathlib import Path

from tests.mutants.table import mutants

NAMED = {test for mutant in mutants() for test in mutant.tests}
"""What the planted errors name."""


def names_of(nodeid: str) -> set[str]:
    """How a mutant may name a test: by its file, its function, or one case of the function.

    `nodeid` is pytest's, such as "tests/test_limit.py::test_drift[relu]"; mutants leave out the
    folder.
    """
    name = nodeid.removeprefix("tests/")
    file, _, function = name.partition("::")
    return {file, name, f"{file}::{function.split('[')[0]}"}


def has_quick_tests(file: Path) -> bool:
    """Whether a file has to be read for the quick suite."""
    text = file.read_text(encoding="utf-8")
    return "mark.quick" in text or any(name.partition("::")[0] == file.name for name in NAMED)
