"""Every command: defaults, exit statuses 0, 1 and 2, one sentence for bad input."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from shaped_attention.blocks.catalogue import KINDS
from shaped_attention.commands.main import load, main


def commands(group=main, words=()):
    """Every command that is no group, by its words."""
    found = {}
    for name, command in group.commands.items():
        loaded = load(name) if group is main else command
        if isinstance(loaded, click.Group):
            found |= commands(loaded, (*words, name))
        else:
            found[*words, name] = loaded
    return found


COMMANDS = commands()
EACH = pytest.mark.parametrize("words", COMMANDS, ids=" ".join)


def options(words):
    return [option for option in COMMANDS[words].params if isinstance(option, click.Option)]


def invoke(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@EACH
@pytest.mark.quick
def test_defaults_are_accepted_when_they_are_typed(words):
    """What the help text shows as a default is a value of the option, and the same one."""
    command = COMMANDS[words]
    context = click.Context(command, info_name=words[-1], **main.context_settings)
    for option in options(words):
        shown = option.get_help_extra(context).get("default")
        # Words in place of a value say where the default comes from.
        if shown is None or option.is_flag or isinstance(option.show_default, str):
            continue
        default = option.get_default(context, call=True)
        assert option.type_cast_value(context, shown) in (
            default, option.type_cast_value(context, default)
        ), option.opts  # fmt: skip


def test_lists_of_commands_say_what_the_commands_say():
    """The table of `main` cannot see what it names."""
    for name, later in main.commands.items():
        assert load(name).name == name == later.name
        assert later.get_short_help_str(10**6) == load(name).get_short_help_str(10**6)
    (layer,) = [option for option in options(("compare",)) if option.name == "kind"]
    assert tuple(layer.type.choices) == KINDS


WRONG = {
    ("check",): ("none:build",),
    ("compare",): ("--gamma", "2"),
    ("coordinates",): ("none.json",),
    ("model",): ("none.json",),
    ("show",): ("none.nc",),
    ("sweep", "export"): ("none", "all.nc"),
    ("sweep", "run"): ("none.toml", "store"),
    ("sweep", "status"): ("none",),
}
"""A value that is wrong, for every command."""


@EACH
def test_bad_arguments_have_exit_status_2(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke(*words, *WRONG[words])
    assert result.exit_code == 2, result.output
    error = result.stderr[result.stderr.index("Error:") :]
    # A sweep file may have several faults, reported one per line.
    assert len(error.strip().splitlines()) == 1 or words == ("sweep", "run")
    assert "Traceback" not in result.output


@pytest.mark.parametrize("error", [FloatingPointError("overflow"), ZeroDivisionError()])
def test_failures_have_exit_status_1_and_defects_are_not_hidden(error, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise error

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shaped_attention.models.simulate.simulate_model", fail)
    result = invoke("model", "gpt2")
    assert result.exit_code == 1
    if isinstance(error, FloatingPointError):
        assert result.stderr == f"Error: {error}\n"
    else:
        assert result.exception is error
