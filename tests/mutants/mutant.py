"""What a mutant is: one plausible scientific error, and the tests that should see it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A single error.

    Attributes
    ----------
    name
        Unique, in words with hyphens: what is wrong.
    file
        The file, from the root of the repository.
    text, replacement
        What is replaced, which occurs once in the file, and by what.
    tests
        The smallest set of test files or node ids that should fail, at least one.
    hangs
        Whether the error makes the code run forever, so that a time-out counts as noticed.
    """

    name: str
    file: str
    text: str
    replacement: str
    tests: tuple[str, ...] = ()
    hangs: bool = False
