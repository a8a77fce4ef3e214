"""The layers that the architecture page states, against the imports in the source."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from docs import _layers

KNOWN = (
    "base", "coupling", "limit", "normalised_limit", "overrides", "parameters", "reasons",
    "tangents",
)  # fmt: skip
"""What a block, a parameter and a pattern are, derivatives, and the start of a layer's limit."""


def test_table_is_true():
    """Every module is in one layer, and imports from that layer or from those below it."""
    assert _layers.faults(_layers.table(), _layers.all_imports()) == []


def test_faults_are_found():
    """The same check sees a missing module, one listed twice, and an import from above."""
    layers, imports = _layers.table(), _layers.all_imports()
    low = next(layer for layer in layers if "shaped_attention.checks" in layer.modules)
    place = layers.index(low)
    below, above = layers[:place], layers[place + 1 :]
    fewer = replace(low, modules=low.modules[1:])
    assert _layers.faults([*below, fewer, *above], imports) == [
        "shaped_attention.checks is in no layer"
    ]
    twice = replace(low, modules=(*low.modules, "shaped_attention.samplers.chain"))
    assert "shaped_attention.samplers.chain is listed twice" in _layers.faults(
        [*below, twice, *above], imports
    )
    no_such = replace(low, modules=(*low.modules, "shaped_attention.none"))
    wrong = "shaped_attention.none is listed, but there is no such module"
    assert _layers.faults([*below, no_such, *above], imports) == [wrong]
    upwards = imports | {"shaped_attention.checks": {"shaped_attention.commands.main"}}
    upward = (
        "shaped_attention.checks (arguments) imports shaped_attention.commands.main (commands) "
        "above it"
    )
    assert _layers.faults(layers, upwards) == [upward]
    across = imports | {"symbolic.checks": {"shaped_attention.checks"}}
    other = "symbolic.checks imports shaped_attention.checks of another package"
    assert _layers.faults(layers, across) == [other]


def test_imports_are_read():
    """Absolute and relative, in functions too, and those under TYPE_CHECKING."""
    source = """
import a.one
from a import two
from a.three import name
from . import four
from .five import name
if TYPE_CHECKING:
    from a import six
else:
    from a import seven
def function():
    from a.eight import name
"""
    numbers = ("one", "two", "three", "four", "five", "six", "seven", "eight")
    known = {"a", *(f"a.{number}" for number in numbers)}
    found = _layers.imports_of(source, "a.zero", known)
    assert found == known - {"a"}
    assert _layers.imports_of("from .one import x", "a", known, is_package=True) == {"a.one"}


def test_no_cycle():
    """Modules can be put in an order in which each imports earlier ones only."""
    left = {name: set(others) for name, others in _layers.all_imports().items()}
    while left:
        free = {name for name, others in left.items() if not others & left.keys()}
        assert free, f"modules that import each other: {', '.join(sorted(left))}"
        left = {name: others for name, others in left.items() if name not in free}


@pytest.mark.quick
def test_samplers_know_no_block():
    """They import what a block, a parameter and a pattern are, and none of the blocks."""
    imports = _layers.all_imports()
    samplers = [name for name in imports if name.startswith("shaped_attention.samplers.")]
    assert len(samplers) > 10
    for sampler in samplers:
        blocks = {name for name in imports[sampler] if name.startswith("shaped_attention.blocks")}
        assert blocks <= {f"shaped_attention.blocks.{name}" for name in KNOWN}


def test_computing_loads_no_drawing():
    """The public names load neither matplotlib nor the symbolic engine."""
    code = (
        "import sys, shaped_attention as sa, shaped_attention.sphere as sphere;"
        "[getattr(package, name) for package in (sa, sphere)"
        " for name in package.__all__ if name != 'plots'];"
        "sys.exit(bool({'matplotlib', 'seaborn', 'symbolic', 'sympy'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0
