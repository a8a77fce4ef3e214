"""The list of mutants is up to date; the command that runs them reports what no test detects."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import COLLECTED
from tests.mutants.__main__ import main, run
from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.runner import CRASHED, HUNG, KILLED, SURVIVED, Workplace, mutated
from tests.quick import names_of

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
SEEN = Mutant("twice", "area.py", "return math.pi", "return 2.0 * math.pi", ("test_area.py",))


def test_mutants_are_in_their_files_and_their_tests_exist():
    """Each text occurs once, what replaces it is other code that parses, and no test is renamed.

    Nor is one of their tests slow: `make test` runs all.
    """
    read = cache(lambda file: (ROOT / file).read_text(encoding="utf-8"))
    parsed = cache(lambda file: ast.dump(ast.parse(read(file))))
    for mutant in MUTANTS:
        wrong = mutated(read(mutant.file), mutant)
        assert ast.dump(ast.parse(wrong)) != parsed(mutant.file), mutant.name
        assert mutant.tests, mutant.name
        for test in mutant.tests:
            file, _, name = test.partition("::")
            assert f"\ndef {name.split('[')[0]}" in read(f"tests/{file}"), (mutant.name, test)


def test_every_mutant_is_noticed_by_a_quick_test(request):
    """Of the files that were collected: what `make test` runs loses no planted error."""
    tests = request.config.stash[COLLECTED]
    files = {nodeid.split("::")[0].removeprefix("tests/") for nodeid in tests}
    quick = set().union(*(names_of(nodeid) for nodeid, is_quick in tests.items() if is_quick))
    for mutant in MUTANTS:
        if all(test.split("::")[0] in files for test in mutant.tests):
            assert quick & set(mutant.tests), mutant.name


def test_the_list_is_large_and_half_of_it_blind():
    """Names are unique; at least half was chosen before the tests were read."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 70
    assert 2 * sum(mutant.blind for mutant in MUTANTS) >= len(MUTANTS)


def test_a_list_that_is_out_of_date_is_refused():
    for text, message in (("radius", "occurs 4 times"), ("diameter", "occurs 0 times")):
        with pytest.raises(ValueError, match=message):
            mutated(AREA, replace(SEEN, text=text))
    with pytest.raises(ValueError, match="its replacement is its text"):
        mutated(AREA, replace(SEEN, replacement=SEEN.text))


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


def test_verdicts(workplace, tmp_path):
    """Killed, survived, crashed and hung; afterwards the copy is as it was, and passes."""
    unseen = replace(SEEN, tests=("test_doubled.py",))
    crash = replace(SEEN, text="import math", replacement="import maths as math")
    forever = "    while True:\n        math.pi"
    endless = replace(SEEN, text="    return math.pi", replacement=forever)
    assert workplace.baseline(tuple(TESTS)).verdict == SURVIVED
    found = workplace.judge(SEEN)
    assert (found.verdict, found.by) == (KILLED, "test_area.py::test_area_of_the_unit_disc")
    assert workplace.judge(unseen).verdict == SURVIVED
    assert workplace.judge(crash).verdict == CRASHED
    workplace._limit = 2.0
    assert workplace.judge(endless).verdict == HUNG
    assert workplace.judge(replace(endless, hangs=True)).verdict == KILLED
    workplace._limit = 20.0
    assert (tmp_path / "copy" / "area.py").read_text(encoding="utf-8") == AREA
    assert workplace.baseline(tuple(TESTS)).verdict == SURVIVED


def test_survivors_are_reported(workplace, capsys):
    """The status is 1 with one that no test sees, 0 without, and 2 if the tests fail by themselves.

    Two errors of the same length in one file, one after the other, are two errors.
    """
    unseen = replace(SEEN, name="unseen", replacement="return 3.0 * math.pi")
    unseen = replace(unseen, tests=("test_doubled.py",))
    assert run([SEEN, replace(unseen, name="seen", tests=("test_area.py",))], [workplace]) == 0
    assert "2 mutants, 0 not noticed by a test" in capsys.readouterr().out
    assert run([SEEN, unseen], [workplace]) == 1
    out = capsys.readouterr().out
    assert "2 mutants, 1 not noticed by a test" in out
    assert out.rstrip().endswith("survived: unseen")
    (workplace.folder / "area.py").write_text(AREA.replace("2\n", "3\n"), encoding="utf-8")
    assert run([SEEN, unseen], [workplace]) == 2
    assert "without a mutant: killed test_doubled.py" in capsys.readouterr().out


def test_the_list_can_be_printed(capsys):
    assert main(["--list", "threefry-parity"]) == 0
    assert "0x1BD11BDAA9FC1A22" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["no-such-mutant"])
    assert "unknown mutants: no-such-mutant" in capsys.readouterr().err
