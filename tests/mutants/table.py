"""The table of planted errors, ``errors.toml``, and how one is planted."""

from __future__ import annotations

import ast
import tomllib
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("errors.toml")


@dataclass(frozen=True)
class Mutant:
    """One plausible scientific error, and the tests that should see it.

    Attributes
    ----------
    name
        Unique, in words with hyphens: what is wrong.
    at
        The file from the root of the repository, a colon, and the function with its class; without
        a function, the whole file.
    right, wrong
        What the function says once, and what it says with the error.
    tests
        The smallest set of test files or node ids that should fail, at least one.
    """

    name: str
    at: str
    right: str
    wrong: str
    tests: tuple[str, ...]

    @property
    def file(self) -> str:
        """The file, from the root of the repository."""
        return self.at.partition(":")[0]

    def planted_in(self, source: str) -> str:
        """Return the text of the file with the error in it.

        Raises
        ------
        ValueError
            If the file has no such function, or the function does not say `right` exactly once.
        """
        start, end = _lines_of(source, self.at.partition(":")[2])
        lines = source.splitlines(keepends=True)
        body = "".join(lines[start:end])
        if (found := body.count(self.right)) != 1:
            raise ValueError(f"{self.name}: {self.at} says {self.right!r} {found} times")
        return "".join([*lines[:start], body.replace(self.right, self.wrong), *lines[end:]])


def _lines_of(source: str, function: str) -> tuple[int, int]:
    """Return the first line of a function and the line after its last, from 0."""
    node: ast.AST = ast.parse(source)
    if not function:
        return 0, source.count("\n") + 1
    for name in function.split("."):
        for inner in ast.walk(node):
            if (
                isinstance(inner, ast.FunctionDef | ast.ClassDef)
                and inner.name == name
                and inner is not node
            ):
                node = inner
                break
        else:
            raise ValueError(f"no function {function}")
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
    return first - 1, node.end_lineno or first


def mutants() -> list[Mutant]:
    """Return all planted errors, in the order of the table."""
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return [Mutant(name, **row | {"tests": tuple(row["tests"])}) for name, row in rows.items()]
