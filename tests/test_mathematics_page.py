"""The page of formulas names functions and tests that exist."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "mathematics.md"
OBJECT = re.compile(r"`((?:shaped_attention|symbolic)(?:\.\w+)+)`")
TEST = re.compile(r"`(tests/\w+\.py)::(\w+)`")
ROW = re.compile(r"^\|(?! ?:?-).*\|$", re.MULTILINE)


def exists(name: str) -> bool:
    """Whether the dotted name is a module, or is found in one."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def is_test(file: str, name: str) -> bool:
    """Whether the file defines a test function of this name."""
    path = ROOT / file
    tree = ast.parse(path.read_text()) if path.exists() else ast.Module([], [])
    return name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def faults(page: str) -> list[str]:
    """Names on a page that do not exist, and rows of tables without a function or a test."""
    found = [name for name in OBJECT.findall(page) if not exists(name)]
    found += [f"{file}::{name}" for file, name in TEST.findall(page) if not is_test(file, name)]
    for row in ROW.findall(page):
        header = row.startswith("| formula")
        if not header and not (OBJECT.search(row) and TEST.search(row)):
            found.append(row)
    return found


def test_every_name_on_the_page_exists():
    page = PAGE.read_text()
    assert faults(page) == []
    assert len(ROW.findall(page)) > 50
    # Nothing that looks like a test escapes the pattern.
    assert page.count("tests/") == len(TEST.findall(page))


@pytest.mark.parametrize(
    ("row", "count"),
    [
        ("| $b$ | `shaped_attention.drift` | `tests/test_limit.py::test_exchangeable_tokens` |", 0),
        ("| $b$ | `shaped_attention.drif` | `tests/test_limit.py::test_exchangeable_tokens` |", 1),
        ("| $b$ | `shaped_attention.drift` | `tests/test_limit.py::test_exchangeable` |", 1),
        ("| $b$ | `shaped_attention.drift` | `tests/test_absent.py::test_exchangeable` |", 1),
        ("| $b$ | `shaped_attention.drift` | |", 1),
        ("| $b$ | | `tests/test_limit.py::test_exchangeable_tokens` |", 1),
    ],
)
def test_names_that_do_not_exist_are_seen(row, count):
    assert len(faults(row)) == count


def test_tests_named_on_other_pages_exist():
    pages = sorted((ROOT / "docs").glob("*.md"))
    named = {pair for page in pages for pair in TEST.findall(page.read_text())}
    assert len(named) > 80
    assert [pair for pair in sorted(named) if not is_test(*pair)] == []
