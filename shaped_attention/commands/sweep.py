"""Batch runs: the group of commands `sweep`.

What they do (`sweep_actions`, `sweep_state`) is imported when a command runs, so that help texts
load no library.
"""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from shaped_attention.commands.later import Group
from shaped_attention.commands.options import INCOMPLETE, figures_option, progress_option


@click.group(name="sweep", cls=Group)
def sweep_command() -> None:
    """Run grids of parameters in batches; an interrupt loses no finished work."""


_file = click.argument("file", type=click.Path(path_type=Path))
_store = click.argument("store", type=click.Path(path_type=Path))
_json = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON; docs/sweeps.md names the fields."
)
_trust = click.option(
    "--trust", multiple=True, metavar="MODULE",
    help="Module of a layer function that STORE names, which may then be imported. Can be "
    "repeated.",
)  # fmt: skip


def _engine_options(command: Any) -> Any:
    for option in (
        click.option("--seconds", type=float,
                     help="Time limit of this run: no unit starts that is expected to end more "
                     "than a tenth later.  [default: `seconds` of the sweep, if it has any]"),
        click.option("-q", "--quiet", is_flag=True,
                     help="Print errors only: no bar, no log, no report."),
        click.option("-v", "--verbose", is_flag=True,
                     help="Log every unit.  [default: a line each minute, if the error stream is "
                     "no terminal]"),
        progress_option,
        click.option("--accept-changed-code", is_flag=True,
                     help="Continue although the code of the layer or the versions of packages "
                     "have changed since the units in STORE were drawn; STORE records what "
                     "changed."),
        click.option("--retries", type=int, default=2, show_default=True,
                     help="Number of further attempts at a unit that fails."),
        click.option("--dask", metavar="ADDRESS",
                     help="Run on the workers of the Dask scheduler at this address (extra "
                     "`cluster`)."),
        click.option("--devices", metavar="LIST",
                     help="Run one process on each of these devices, for example cuda:0,cuda:1."),
        click.option("--workers", type=int,
                     help="Number of processes, each with one thread; 1 is this process, with all "
                     "threads.  [default: 1]"),
    ):  # fmt: skip
        command = option(command)
    return command


@sweep_command.command()
@_file
def plan(file: Path) -> None:
    """Check the sweep in FILE (TOML) and estimate its cost.

    Prints the numbers of cells and units, the size of the store, and the expected time. It draws a
    few samples to estimate the time.
    """
    from shaped_attention.commands import sweep_actions

    sweep_actions.plan(file)


@contextmanager
def _interruptible(store: Path) -> Iterator[None]:
    """End with the status of an incomplete run when interrupted, even while libraries load."""
    received = []

    def interrupt(number: int, _: Any) -> None:
        received.append(number)
        raise KeyboardInterrupt

    # Batch systems end a job with a signal of its own; treat it as an interrupt.
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    try:
        yield
    except click.exceptions.Exit:
        raise
    except (Exception, KeyboardInterrupt) as error:
        # Some libraries turn an interrupt of their import into an error of theirs.
        if not received and not isinstance(error, KeyboardInterrupt):
            raise
        begun = (store / "sweep.json").exists()
        how = (
            f"`shaped-attention sweep resume {shlex.quote(str(store))}`"
            if begun
            else "the same command"
        )
        click.echo(f"interrupted; {how} continues", err=True)
        raise click.exceptions.Exit(INCOMPLETE) from None


@sweep_command.command()
@_file
@_store
@_engine_options
def run(file: Path, store: Path, **options: Any) -> None:
    """Run the sweep in FILE (TOML) and keep it in the folder STORE.

    If STORE already has this sweep, it is continued. The exit status is 3 if units are left.
    """
    with _interruptible(store):
        from shaped_attention.commands import sweep_actions

        sweep_actions.run(file, store, **options)


@sweep_command.command()
@_store
@_trust
@_engine_options
def resume(store: Path, **options: Any) -> None:
    """Continue the sweep in the folder STORE.

    Draws what is missing, and tries again what failed. The exit status is 3 if units are left.
    """
    with _interruptible(store):
        from shaped_attention.commands import sweep_actions

        sweep_actions.resume(store, **options)


@sweep_command.command()
@_store
@click.option("--traceback", is_flag=True, help="Print the tracebacks of units that were given up.")
@_json
def status(store: Path, traceback: bool, as_json: bool) -> None:
    """Print how much of the sweep in STORE is done, also while it runs."""
    from shaped_attention.commands import sweep_state

    sweep_state.status(store, traceback, as_json)


@sweep_command.command()
@_store
@_json
def summary(store: Path, as_json: bool) -> None:
    """Print the means of the sweep in STORE with their confidence intervals."""
    from shaped_attention.commands import sweep_state

    sweep_state.summary(store, as_json)


@sweep_command.command()
@_store
@_json
def verify(store: Path, as_json: bool) -> None:
    """Compare all files of the sweep in STORE with their checksums.

    The exit status is 3 if units are missing or damaged.
    """
    from shaped_attention.commands import sweep_state

    sweep_state.verify(store, as_json)


@sweep_command.command()
@_store
def repair(store: Path) -> None:
    """Take damaged files out of STORE, so that resume draws their units again.

    `shaped-attention sweep resume STORE` does so by itself.
    """
    from shaped_attention.commands import sweep_state

    sweep_state.repair(store)


@sweep_command.command()
@_store
@click.option(
    "--observable", default="mean |rho|", show_default=True, help="Name of the observable to draw."
)
@figures_option
def draw(store: Path, observable: str, figures: Path) -> None:
    """Draw the sweep in the folder STORE.

    The figures show means, distances between chain and SDE, and fractions of stopped paths.
    """
    from shaped_attention.commands import sweep_actions

    sweep_actions.draw(store, observable, figures)


@sweep_command.command()
@_store
@click.argument("output", type=click.Path(path_type=Path))
@click.option(
    "--summary/--values",
    default=None,
    help="Write means with their intervals, or all samples.  [default: --summary for .csv and "
    ".parquet, --values for .nc and .zarr]",
)
@click.option("--overwrite", is_flag=True, help="Replace OUTPUT if it exists.")
def export(store: Path, output: Path, summary: bool | None, overwrite: bool) -> None:
    """Write the sweep in STORE to OUTPUT: .nc, .zarr, .csv or .parquet.

    A table (CSV or Parquet) has one row per cell, sampler, time and observable, or with --values
    one row per cell, sampler, time and sample.
    """
    from shaped_attention.commands import sweep_actions

    sweep_actions.export(store, output, summary, overwrite)


@sweep_command.command()
@_store
@click.option("--samples", type=int, help="New, larger number of samples per cell and sampler.")
@click.option("--axis", "axes", multiple=True, metavar="NAME=VALUES",
              help="Values to append to an axis, written as in TOML: gamma=0.7,0.8 or "
              "'tau0={ logspace = [3, 5, 3] }'. Can be repeated.")  # fmt: skip
@_trust
def extend(store: Path, samples: int | None, axes: tuple[str, ...], trust: tuple[str, ...]) -> None:
    """Extend the sweep in STORE: more samples, or values on its axes.

    Draws nothing: `shaped-attention sweep resume STORE` draws what is missing. If more samples are
    needed in a last block that was not full, its samples are deleted and drawn again.
    """
    from shaped_attention.commands import sweep_actions

    sweep_actions.extend(store, samples, axes, trust)
