"""The planted errors are in their functions; the command reports what no test notices."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.mutants.__main__ import run
from tests.mutants.table import Mutant, mutants
from tests.mutants.workplace import Workplace

ROOT = Path(__file__).parents[1]
AREA = """import math


def area(radius):
    return math.pi * radius**2


def circumference(radius):
    return 2.0 * math.pi * radius
"""
TESTS = {
    "test_area.py": """import math

from area import area


def test_area_of_the_unit_disc():
    assert area(1.0) == math.pi
""",
    "test_doubled.py": """from area import area


def test_twice_the_radius():
    assert area(2.0) == 4.0 * area(1.0)
""",
}
SEEN = Mutant("twice", "area.py:area", "math.pi", "2.0 * math.pi", ("test_area.py",))


def test_errors_are_in_their_functions_and_their_tests_exist():
    """Each function says its text once, what replaces it is other code, and no test is renamed."""
    read = cache(lambda file: (ROOT / file).read_text(encoding="utf-8"))
    parsed = cache(lambda file: ast.dump(ast.parse(read(file))))
    for mutant in mutants():
        wrong = mutant.planted_in(read(mutant.file))
        assert ast.dump(ast.parse(wrong)) != parsed(mutant.file), mutant.name
        assert mutant.tests, mutant.name
        for test in mutant.tests:
            file, _, name = test.partition("::")
            assert f"\ndef {name.split('[')[0]}" in read(f"tests/{file}"), (mutant.name, test)


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A workplace with a small tree: one module, and two files of tests."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    files = {"area.py": AREA} | {f"tests/{name}": text for name, text in TESTS.items()}
    for name, text in files.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return Workplace(tmp_path / "tree", tmp_path / "copy", list(files), limit=20.0)


def test_survivors_are_reported(workplace, capsys):
    """The status is 1 with one that no test sees, 0 without, and 2 if the tests fail by themselves.

    Two errors of the same length in one file, one after the other, are two errors.
    """
    unseen = replace(SEEN, name="unseen", wrong="3.0 * math.pi", tests=("test_doubled.py",))
    assert run([SEEN, replace(unseen, name="seen", tests=("test_area.py",))], [workplace]) == 0
    assert "2 errors, 0 not noticed by a test" in capsys.readouterr().out
    assert run([SEEN, unseen], [workplace]) == 1
    out = capsys.readouterr().out
    assert "2 errors, 1 not noticed by a test" in out
    assert out.rstrip().endswith("survived: unseen")
    (workplace.folder / "area.py").write_text(AREA.replace("2\n", "3\n"), encoding="utf-8")
    assert run([SEEN, unseen], [workplace]) == 2
    assert "without an error: killed test_doubled.py" in capsys.readouterr().out
