"""A store knows the code that made its units, and accepts no units from different code silently."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import shaped_attention as sa
from shaped_attention import libraries
from shaped_attention.commands.main import main
from shaped_attention.libraries import sources_digest
from shaped_attention.sweep import code_identity as code
from shaped_attention.sweep import open_sweep, run_sweep
from shaped_attention.sweep import run_loop as running
from shaped_attention.sweep.code_identity import Code, code_records, modules_of
from shaped_attention.sweep.grid import Unit
from shaped_attention.sweep.run import settled_code
from shaped_attention.sweep.store import Store, StoreError
from tests.sweep_examples import FIXED, Clock, small
from tests.sweep_layers import extend_sweep, resume_sweep

SOURCE = '''\
"""Layers."""
import math

import shaped_attention as sa

SLOPE = 1.0


def scaled(gamma):
    return SLOPE * gamma


def layer(gamma):
    """Attention."""
    return sa.ShapedAttention(scaled(gamma), 2.0)


if __name__ == "__main__":
    print(layer(0.3))
'''
SWEEP = {"fixed": FIXED | {"layer": "own_layers:layer"}}


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Function that writes a module of layers, which is imported as by another process."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(old="", new="", forget=True):
        assert old in SOURCE
        (tmp_path / "own_layers.py").write_text(SOURCE.replace(old, new) if old else SOURCE)
        importlib.invalidate_caches()
        if forget:
            sys.modules.pop("own_layers", None)

    write()
    yield write
    sys.modules.pop("own_layers", None)


def begun(path, monkeypatch, **changes):
    """A store with some units of a sweep, whose time limit is over."""
    with monkeypatch.context() as patched:
        patched.setattr(running, "time", Clock())
        report = run_sweep(small(seconds=10.0, **(SWEEP | changes)), path)
    assert 0 < report.finished < 12
    return report.finished


EDITED = "own_layers edited"
EDITS = {
    "the function": ("Attention(scaled", "Attention(0.5 * scaled", EDITED),
    "a helper": ("return SLOPE * gamma", "return SLOPE * 0.5 * gamma", EDITED),
    "a docstring": ('"""Attention."""', '"""Attention, shaped."""', None),
    "a comment": ("SLOPE = 1.0", "SLOPE = 1.0  # as in the paper", None),
    "what runs as a script": ("print(layer(0.3))", "print(layer(0.5))", None),
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_edited_code_is_refused_and_other_edits_are_not(edit, written, tmp_path, monkeypatch):
    old, new, phrase = EDITS[edit]
    units = begun(tmp_path / "s", monkeypatch)
    ledger = (tmp_path / "s" / "ledger.jsonl").read_bytes()
    written(old, new)
    sweep = small(**SWEEP)
    if phrase is None:
        assert run_sweep(sweep, tmp_path / "s").left == 0
        assert len(code_records(tmp_path / "s")) == 1
        return
    message = rf"its {units} units may come from different code \({phrase}\); use another folder"
    for again in (lambda: run_sweep(sweep, tmp_path / "s"), lambda: resume_sweep(tmp_path / "s")):
        with pytest.raises(StoreError, match=message):
            again()
    assert (tmp_path / "s" / "ledger.jsonl").read_bytes() == ledger


HELPERS = {
    "own_rules/__init__.py": "",
    "own_rules/slopes.py": "from . import tables\n\n\ndef slope():\n    return tables.SLOPE\n",
    "own_rules/tables.py": "SLOPE = 1.0\n",
    "own_colours.py": "COLOUR = 'red'\n",
}
IMPORTS = "import math\n\nfrom own_rules.slopes import slope\n"


@pytest.mark.parametrize(
    ("file", "changed", "phrase"),
    [
        ("own_rules/tables.py", "SLOPE = 0.5\n", "own_rules.tables edited"),
        ("own_rules/tables.py", "# As in the paper.\nSLOPE = 1.0\n", None),
        ("own_colours.py", "COLOUR = 'blue'\n", None),
    ],
)
def test_modules_that_a_layer_imports_count(file, changed, phrase, written, tmp_path, monkeypatch):
    """Those that these import count too, and no others."""
    (tmp_path / "own_rules").mkdir()
    for name, text in HELPERS.items():
        (tmp_path / name).write_text(text)
    text = SOURCE.replace("import math\n", IMPORTS).replace("return SLOPE *", "return slope() *")
    (tmp_path / "own_layers.py").write_text(text)
    units = begun(tmp_path / "s", monkeypatch)
    assert "own_rules.slopes" in code_records(tmp_path / "s")[0]["modules"]
    (tmp_path / file).write_text(changed)
    if phrase is None:
        assert resume_sweep(tmp_path / "s").left == 0
        return
    with pytest.raises(StoreError, match=rf"its {units} units .* code \({phrase}\); "):
        resume_sweep(tmp_path / "s")


def test_an_edit_of_the_package_is_refused(tmp_path, monkeypatch):
    """An editable installation changes with every pull, and its version does not."""
    units = begun(tmp_path / "s", monkeypatch, fixed=FIXED)
    record = code_records(tmp_path / "s")[0]
    assert record["modules"] == {"shaped_attention": sources_digest()}
    assert record["processor"]
    monkeypatch.setattr(code, "sources_digest", lambda: "0")
    with pytest.raises(StoreError, match=rf"its {units} units .* code \(shaped_attention edited\)"):
        resume_sweep(tmp_path / "s")


def test_the_digest_is_that_of_the_sources(tmp_path, monkeypatch):
    copy = tmp_path / "shaped_attention"
    source = Path(sa.__file__).parent
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(libraries, "__file__", str(copy / "libraries.py"))
    assert sources_digest.__wrapped__() == sources_digest()
    file = copy / "blocks" / "mlp_limit.py"
    file.write_text(file.read_text() + "\n")
    assert sources_digest.__wrapped__() != sources_digest()


def test_an_accepted_change_is_recorded(written, tmp_path, monkeypatch):
    """What and when, in the Dataset and in `status`; the next resume has nothing to ask."""
    units = begun(tmp_path / "s", monkeypatch)
    assert json.loads(open_sweep(tmp_path / "s").attrs["code_changes"]) == []
    written("SLOPE = 1.0", "SLOPE = 0.5")
    with pytest.raises(StoreError, match=r"\(own_layers edited\)"):
        resume_sweep(tmp_path / "s")
    monkeypatch.setattr(running, "time", Clock())
    assert resume_sweep(tmp_path / "s", accept_changed_code=True, seconds=10.0).left > 0
    (change,) = json.loads(open_sweep(tmp_path / "s").attrs["code_changes"])
    assert (change["units"], change["changed"]) == (units, ["own_layers edited"])
    assert change["time"].endswith("+00:00")
    status = CliRunner().invoke(main, ["sweep", "status", str(tmp_path / "s")]).output
    assert f"code changed after {units} units, at {change['time']}: own_layers edited" in status
    assert resume_sweep(tmp_path / "s").reasons.keys() <= {"samples", "time"}
    assert len(code_records(tmp_path / "s")) == 2


def test_other_versions_are_refused_or_accepted(tmp_path, monkeypatch):
    """A changed version of a numerical dependency counts; that of Python does not."""
    begun(tmp_path / "s", monkeypatch, fixed=FIXED)
    recorded = code_records(tmp_path / "s")[0]["versions"]
    names = {"shaped_attention", "numpy", "scipy", "torch", "numba", "torchsde"}
    assert recorded.keys() == names
    real = code.versions
    monkeypatch.setattr(code, "versions", lambda: real() | {"python": "2.7"})
    settled_code(Store(tmp_path / "s"), accept=False)
    monkeypatch.setattr(code, "versions", lambda: real() | {"scipy": "0.1"})
    with pytest.raises(StoreError, match=r"\(scipy .* before, 0.1 now\)"):
        resume_sweep(tmp_path / "s")
    assert resume_sweep(tmp_path / "s", accept_changed_code=True).left == 0
    (change,) = json.loads(open_sweep(tmp_path / "s").attrs["code_changes"])
    assert change["changed"] == [f"scipy {recorded['scipy']} before, 0.1 now"]


def test_a_store_without_a_record_is_read_and_asks_before_it_goes_on(tmp_path, monkeypatch):
    """An extension does not help it."""
    units = begun(tmp_path / "s", monkeypatch, fixed=FIXED)
    (tmp_path / "s" / "code.jsonl").unlink()
    assert int((open_sweep(tmp_path / "s")["drawn"] > 0).sum()) == units
    extend_sweep(tmp_path / "s", samples=40)
    with pytest.raises(StoreError, match="the store has no record of its code and versions"):
        resume_sweep(tmp_path / "s")
    assert resume_sweep(tmp_path / "s", accept_changed_code=True).left == 0
    assert resume_sweep(tmp_path / "s").left == 0


def test_a_further_layer_is_no_change_of_code(written, tmp_path):
    """The code of a layer that was not there before is recorded; then a change is refused."""
    one = {"fixed": FIXED | {"gamma": 0.3}, "axes": {"layer": ["attention"]}, "samplers": "chain"}
    run_sweep(small(**one), tmp_path / "s")
    extend_sweep(tmp_path / "s", axes={"layer": ["own_layers:layer"]})
    assert resume_sweep(tmp_path / "s").left == 0
    assert code_records(tmp_path / "s")[-1]["changed"] == []
    written("SLOPE = 1.0", "SLOPE = 0.5")
    with pytest.raises(StoreError, match=r"code \(own_layers edited\)"):
        resume_sweep(tmp_path / "s")


def test_a_store_without_units_takes_the_code_of_the_first(written, tmp_path):
    Store(tmp_path / "s", small(**SWEEP))
    written("SLOPE = 1.0", "SLOPE = 0.5")
    assert run_sweep(small(**SWEEP), tmp_path / "s").left == 0
    assert json.loads(open_sweep(tmp_path / "s").attrs["code_changes"]) == []
    assert resume_sweep(tmp_path / "s").left == 0


def test_a_worker_with_other_code_is_refused(written, tmp_path, monkeypatch):
    """A cluster with other packages, and a module that was edited but not imported again."""
    with pytest.raises(
        RuntimeError, match=r"the worker's code differs from that of the run .*numpy"
    ):
        running._timed_unit(small(), Unit(0, 0, 0), Code({}, {"numpy": "0"}), None, None)
    units = begun(tmp_path / "s", monkeypatch)
    written("SLOPE = 1.0", "SLOPE = 0.5", forget=False)
    with pytest.raises(StoreError, match=r"code of its cells changed after this process .*own_lay"):
        resume_sweep(tmp_path / "s", accept_changed_code=True)
    assert len(Store(tmp_path / "s").finished()) == units


def test_code_of_functions_from_elsewhere(written):
    """An imported layer counts with its own module; libraries do not, nor what has no source."""
    digests = modules_of("tests.test_sweep_code:small", small)
    assert {"tests.test_sweep_code", "tests.sweep_examples"} <= digests.keys()
    assert not [name for name in digests if name.startswith(("numpy", "shaped_attention", "json"))]
    assert modules_of("builtins:dict", dict) == {}
    # The module of the layer itself counts also if it is installed.
    assert modules_of("click:command", click.command).keys() == {"click"}
    assert modules_of("shaped_attention:ShapedMLP", sa.ShapedMLP) == {}
