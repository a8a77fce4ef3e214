"""The pages of formulas name functions and tests that exist, and tests that lead to the functions.

Whether a formula holds is what the named test shows. That the test can see the function is read
from the code: from the names that the test uses, on to those that what they name uses, and so on,
in the test's file, its helpers, and the package of the function if the test imports that.
"""

from __future__ import annotations

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FORMULAS = ROOT / "docs" / "mathematics.md"
PAGE = ROOT / "docs" / "mathematics-tests.md"
OBJECT = re.compile(r"`((?:shaped_attention|symbolic)(?:\.\w+)+)`")
TEST = re.compile(r"`(tests/\w+\.py)::(\w+)`")
_CALLS = 3
"""From a function that a test calls to the one on the page; by 10 calls names lead anywhere."""

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


def names_in(node: ast.AST) -> set[str]:
    """All names and attributes that a piece of code uses."""
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return names | {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}


@cache
def uses_in_package(folder: str) -> dict[str, set[str]]:
    """What the functions and classes of a package use, by their bare names."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.setdefault(node.name, set()).update(names_in(node))
    return found


@cache
def uses_in_test(file: str) -> tuple[dict[str, set[str]], set[str]]:
    """What the names of a file of tests use, fixtures and helpers too; packages it imports."""
    uses: dict[str, set[str]] = {}
    packages: set[str] = set()
    for node in ast.parse((ROOT / file).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            arguments = {
                argument.arg for argument in ast.walk(node) if isinstance(argument, ast.arg)
            }
            uses[node.name] = names_in(node) | arguments
        elif isinstance(node, ast.Assign):
            for name in set().union(*(names_in(target) for target in node.targets)):
                uses[name] = names_in(node.value)
        elif isinstance(node, ast.Import):
            packages |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
            helpers, known = uses_in_test(f"{node.module.replace('.', '/')}.py")
            uses, packages = helpers | uses, packages | known
        elif isinstance(node, ast.ImportFrom):
            packages.add((node.module or "").split(".")[0])
            uses |= {alias.asname: {alias.name} for alias in node.names if alias.asname}
    return uses, packages


def leads_to(file: str, test: str, name: str) -> bool:
    """Whether a test can come to a function of a dotted name."""
    package, function = name.split(".")[0], name.split(".")[-1]
    uses, packages = uses_in_test(file)
    if package not in packages:
        return False
    seen, ahead = set(), {test}
    while ahead:  # all of the file of the test and its helpers
        seen |= ahead
        ahead = set().union(*(uses.get(here, set()) for here in ahead)) - seen
    for _ in range(_CALLS):
        seen |= set().union(*(uses_in_package(package).get(here, set()) for here in seen))
    return function in seen


def faults(page: str) -> list[str]:
    """Names that do not exist; rows without a function or a test, or whose tests miss it."""
    found = [name for name in OBJECT.findall(page) if not exists(name)]
    found += [f"{file}::{name}" for file, name in TEST.findall(page) if not is_test(file, name)]
    for row in ROW.findall(page):
        header = row.startswith("| statement")
        if not header and not (OBJECT.search(row) and TEST.search(row)):
            found.append(row)
        tests = [pair for pair in TEST.findall(row) if is_test(*pair)]
        for name in OBJECT.findall(row):
            if tests and exists(name) and not any(leads_to(*pair, name) for pair in tests):
                found.append(f"{name} is not reached by {tests}")
    return found


def test_every_name_on_the_page_exists_and_is_tested():
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
        ("| $b$ | `symbolic.limit.derive` | `tests/test_limit.py::test_exchangeable_tokens` |", 1),
        ("| $b$ | `shaped_attention.rerun` | `tests/test_limit.py::test_exchangeable_tokens` |", 1),
    ],
)
def test_names_that_do_not_exist_are_seen(row, count):
    assert len(faults(row)) == count


NUMBER = re.compile(r"\((\d+\.\d+)\)")
TAG = re.compile(r"\\tag\{(\d+\.\d+)\}")


def numbers_out_of_step(formulas: str, page: str) -> set[str]:
    """Numbers of equations without a row, and of rows without an equation."""
    rows = {number for row in ROW.findall(page) for number in NUMBER.findall(row.split("|")[1])}
    return rows ^ set(TAG.findall(formulas))


def test_every_equation_has_a_row_and_every_row_its_equation():
    formulas = FORMULAS.read_text()
    assert numbers_out_of_step(formulas, PAGE.read_text()) == set()
    tags = TAG.findall(formulas)
    assert len(tags) == len(set(tags)) > 40
    assert set(NUMBER.findall(formulas)) <= set(tags)  # what the text refers to
    assert numbers_out_of_step("$$ b \\tag{4.1} $$ $$ c \\tag{4.2} $$", "| (4.1) | f | t |") == {
        "4.2"
    }


def faults_of_symbols(page: str) -> list[str]:
    """Symbols that the table has twice, that are not used, or not first in their section."""
    body, _, table = page.partition("\n## Symbols\n")
    rows = re.findall(r"^\| \$(.+)\$ \| .* \| (\d+) \|$", table, re.MULTILINE)
    symbols = [symbol for symbol, _ in rows]
    found = [symbol for symbol in sorted(set(symbols)) if symbols.count(symbol) > 1]
    sections = re.split(r"^## \d+\. .*$", body, flags=re.MULTILINE)[1:]
    formulas = [
        " ".join(display or inline for display, inline in MATH.findall(text)) for text in sections
    ]
    for symbol, number in rows:
        word = rf"(?<![A-Za-z\\_])(?<!_\{{){re.escape(symbol)}(?![A-Za-z_])"
        where = [k for k, text in enumerate(formulas, start=1) if re.search(word, text)]
        if not where or where[0] != int(number):
            found.append(f"{symbol}: {number}, used in {where}")
    return found


MATH = re.compile(r"\$\$(.*?)\$\$|\$([^$]+)\$", re.DOTALL)


def test_each_symbol_is_defined_once_where_it_is_first_used():
    page = FORMULAS.read_text()
    assert faults_of_symbols(page) == []
    # One sign for norms, and tokens from 0.
    assert not re.search(r"\\Vert|\\lvert|\\\||\|V\||_\{22\}|_\{12\}", page)


def test_a_symbol_with_two_meanings_or_without_a_definition_is_seen():
    page = "## 1. A\n\n$x$\n\n## 2. B\n\n$y$\n\n## Symbols\n\n"
    assert faults_of_symbols(page + "| $x$ | a | 1 |\n| $y$ | b | 2 |") == []
    assert faults_of_symbols(page + "| $x$ | a | 1 |\n| $x$ | b | 1 |") == ["x"]
    assert faults_of_symbols(page + "| $y$ | a | 1 |") == ["y: 1, used in [2]"]


def test_tests_named_on_other_pages_exist():
    pages = sorted((ROOT / "docs").glob("*.md"))
    named = {pair for page in pages for pair in TEST.findall(page.read_text())}
    assert len(named) > 80
    assert [pair for pair in sorted(named) if not is_test(*pair)] == []
