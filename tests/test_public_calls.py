"""Every public function and every command does its work once; none is forgotten."""

from __future__ import annotations

import warnings
from operator import attrgetter

import click
import pytest
from click.testing import CliRunner

import shaped_attention as sa
from shaped_attention.commands.main import load, main
from symbolic.__main__ import main as symbolic_main
from tests.public_calls import NOT_CALLED, SYMBOLIC_COMMANDS, calls, command_lines

MODULES = ("lazy", "scores", "sphere", "sphere.theory", "stopping")
PUBLIC = sorted({*sa.__all__} - {*NOT_CALLED}) + [
    f"{module}.{name}"
    for module in MODULES
    for name in attrgetter(module)(sa).__all__
    if f"{module}.{name}" not in MODULES
]


def leaves(group, words=()):
    """The commands that are no groups, each in words."""
    for name, command in group.commands.items():
        loaded = load(name) if group is main else command
        if isinstance(loaded, click.Group):
            yield from leaves(loaded, (*words, name))
        else:
            yield " ".join((*words, name))


COMMANDS = list(leaves(main))


@pytest.fixture(scope="module")
def arguments(tmp_path_factory):
    return calls(tmp_path_factory.mktemp("calls"))


@pytest.mark.quick
def test_nothing_is_forgotten(arguments, tmp_path):
    assert set(arguments) == set(PUBLIC)
    assert set(command_lines(tmp_path)) == set(COMMANDS)
    assert set(SYMBOLIC_COMMANDS) == set(leaves(symbolic_main))


@pytest.mark.quick
@pytest.mark.parametrize("name", PUBLIC)
def test_a_function_takes_its_arguments(name, arguments):
    function, given = arguments[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of the few samples
        function(**given)


@pytest.mark.quick
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_does_its_work(name, tmp_path):
    """And leaves a figure, a file or a line."""
    for words in command_lines(tmp_path)[name]:
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, (words, result.output)
    assert result.output.strip()


@pytest.mark.quick
@pytest.mark.parametrize("name", SYMBOLIC_COMMANDS)
def test_a_symbolic_command_does_its_work(name):
    result = CliRunner().invoke(symbolic_main, SYMBOLIC_COMMANDS[name])
    assert result.exit_code == 0, result.output
    assert result.output.strip()
