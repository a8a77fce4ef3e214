"""One command line in one voice: shared options, help texts, exit statuses and suggestions."""

from __future__ import annotations

import re

import click
import pytest
from click.testing import CliRunner

from shaped_attention.blocks.catalogue import KINDS
from shaped_attention.commands.main import load, main
from shaped_attention.commands.options import HELP


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
def test_options_are_explained_in_sentences(words):
    """Each help text is a sentence that has a subject; each option is in the command's help."""
    shown = invoke(*words, "--help")
    assert shown.exit_code == 0, shown.output
    for option in options(words):
        assert option.opts[0] in shown.output
        text = option.help.partition("  [")[0]
        # A symbol or a value may come first, as in "n_k, columns of ..." or "'cpu', or 'cuda'".
        assert re.match(r"([A-Z]|n_k|')", text), (option.opts, text)
        # An example may come last, as in "... of these devices: cuda:0,cuda:1".
        assert text.endswith(".") or ": " in text, (option.opts, text)
        assert not re.match(r"(Of|With the other|Whole number)\b", text), (option.opts, text)


@EACH
def test_what_has_one_name_has_one_text(words):
    for option in options(words):
        if option.name in ("device", "figures", "progress", "seed"):
            assert option.help == HELP[option.name], option.opts


@EACH
def test_one_word_for_one_thing(words):
    """Tokens are a number; data go to `--results`."""
    kinds = {option.name: option.type for option in options(words)}
    assert "output" not in kinds
    if "tokens" in kinds:
        assert kinds["tokens"].name == "integer"
    for name in ("token_file", "figures", "results"):
        assert name not in kinds or isinstance(kinds[name], click.Path)


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
        assert option.type_cast_value(context, shown) == option.get_default(context, call=True) or (
            option.type_cast_value(context, shown)
            == option.type_cast_value(context, option.get_default(context, call=True))
        ), option.opts
        assert "..." not in shown


def test_lists_of_commands_are_not_cut_off():
    for group in ([], ["sweep"]):
        _, _, listed = invoke(*group, "--help").output.partition("\nCommands:\n")
        assert listed
        assert "..." not in listed


WRONG = {
    ("check",): ("none:build",),
    ("compare",): ("--gamma", "2"),
    ("coordinates",): ("none.json",),
    ("model",): ("none.json",),
    ("show",): ("none.nc",),
    ("sweep", "export"): ("none", "all.nc"),
    ("sweep", "repair"): ("none", "new"),
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
    # A file of a sweep may have several faults, each with a line of its own.
    assert len(error.strip().splitlines()) == 1 or words == ("sweep", "run")
    assert "Traceback" not in result.output


@pytest.mark.parametrize("error", [FloatingPointError("overflow"), PermissionError("not there")])
def test_other_failures_have_exit_status_1(error, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise error

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shaped_attention.models.simulate.simulate_model", fail)
    result = invoke("model", "gpt2")
    assert result.exit_code == 1
    assert result.stderr == f"Error: {error}\n"


def test_defects_are_not_hidden(tmp_path, monkeypatch):
    """Negative control: what is no bad argument and no failure outside keeps its traceback."""

    def fail(*_, **__):
        raise ZeroDivisionError

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shaped_attention.models.simulate.simulate_model", fail)
    assert isinstance(invoke("model", "gpt2").exception, ZeroDivisionError)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (("comapre",), "(did you mean 'compare'?)"),
        (("sweep", "staus"), "(did you mean 'status'?)"),
        (("model", "--smaples", "3"), "'--samples'"),
        (("compare", "--layer", "transfomer"), "(did you mean 'transformer'?)"),
    ],
)
def test_what_was_meant_is_suggested(typed, meant, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke(*typed)
    assert result.exit_code == 2
    assert meant in result.stderr


def test_layers_have_the_names_of_the_catalogue():
    (layer,) = [option for option in options(("compare",)) if option.name == "kind"]
    assert tuple(layer.type.choices) == KINDS
