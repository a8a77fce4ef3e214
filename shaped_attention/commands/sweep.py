"""Batch runs: the group of commands `sweep`.

What a command needs is imported when it runs, so that help texts load no library.
"""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shaped_attention.commands.later import Group
from shaped_attention.commands.options import (
    INCOMPLETE,
    InputError,
    figures_option,
    progress_option,
    with_options,
)
from shaped_attention.commands.sweep_state import repair, status, store_argument, summary, verify
from shaped_attention.commands.sweep_words import logged, resuming, shape_of, size, units_of

if TYPE_CHECKING:
    from shaped_attention.sweep.engines import Engine
    from shaped_attention.sweep.specification import Sweep


@contextmanager
def _reported() -> Iterator[None]:
    """Report errors as a sentence or a list of faults; exit status 2 for bad arguments, else 1."""
    try:
        yield
    except (BrokenPipeError, click.exceptions.Exit):
        raise
    except (MemoryError, OSError, RuntimeError, ValueError) as error:
        from shaped_attention.io.storage import reason
        from shaped_attention.sweep.store_records import StoreError, UnwritableError

        if isinstance(error, UnwritableError | BrokenExecutor):
            raise click.ClickException(str(error)) from None
        if isinstance(error, StoreError | ValueError):
            raise InputError(str(error)) from None
        if isinstance(error, MemoryError):
            raise click.ClickException("there is not enough memory for this") from None
        if isinstance(error, OSError):
            raise InputError(f"{error.filename or 'a file'}: {reason(error)}") from None
        raise


class SweepGroup(Group):
    """The commands of sweeps."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        with _reported():
            return super().invoke(ctx)


@click.group(name="sweep", cls=SweepGroup)
def sweep_command() -> None:
    """Run grids of parameters in batches; an interrupt loses no finished work."""


_file = click.argument("file", type=click.Path(path_type=Path))
_trust = click.option(
    "--trust", multiple=True, metavar="MODULE",
    help="Module of a layer function that STORE names, which may then be imported. Can be "
    "repeated.",
)  # fmt: skip


_ENGINE_OPTIONS = [
    click.option("--workers", type=int,
                 help="Number of processes, each with one thread; 1 is this process, with all "
                 "threads.  [default: 1]"),
    click.option("--devices", metavar="LIST",
                 help="Run one process on each of these devices, for example cuda:0,cuda:1."),
    click.option("--dask", metavar="ADDRESS",
                 help="Run on the workers of the Dask scheduler at this address (extra "
                 "`cluster`)."),
    click.option("--retries", type=int, default=2, show_default=True,
                 help="Number of further attempts at a unit that fails."),
    click.option("--accept-changed-code", is_flag=True,
                 help="Continue although the code of the layer or the versions of packages "
                 "have changed since the units in STORE were drawn; STORE records what "
                 "changed."),
    progress_option,
    click.option("-v", "--verbose", is_flag=True,
                 help="Log every unit.  [default: a line each minute, if the error stream is "
                 "no terminal]"),
    click.option("-q", "--quiet", is_flag=True,
                 help="Print errors only: no bar, no log, no report."),
    click.option("--seconds", type=float,
                 help="Time limit of this run: no unit starts that is expected to end more "
                 "than a tenth later.  [default: `seconds` of the sweep, if it has any]"),
]  # fmt: skip


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
def plan(file: Path) -> None:
    """Check the sweep in FILE (TOML) and estimate its cost.

    Prints the numbers of cells and units, the size of the store, and the expected time. It draws a
    few samples to estimate the time.
    """
    from shaped_attention.progress import duration
    from shaped_attention.sweep.plan import plan_sweep
    from shaped_attention.sweep.toml import read_sweep

    sweep = read_sweep(file)
    cost = plan_sweep(sweep)
    click.echo(f"cells     {cost.cells}: {shape_of(sweep)}")
    click.echo(f"samplers  {', '.join(sweep.samplers)}; {sweep.samples} samples each, at most")
    click.echo(f"units     {cost.units} of {sweep.block} samples, {size(cost.unit_bytes)} each")
    click.echo(f"store     {size(cost.store_bytes)} before compression (keep = {sweep.keep!r})")
    parts = ", ".join(f"{name} {duration(s)}" for name, s in cost.by_sampler.items())
    click.echo(f"time      about {duration(cost.seconds)} in one process ({parts})")


@sweep_command.command()
@_file
@store_argument
@with_options(_ENGINE_OPTIONS)
def run(file: Path, store: Path, **options: Any) -> None:
    """Run the sweep in FILE (TOML) and keep it in the folder STORE.

    If STORE already has this sweep, it is continued. The exit status is 3 if units are left.
    """
    with _interruptible(store):
        from shaped_attention.sweep.toml import read_sweep

        _run(read_sweep(file), store, **options)


@sweep_command.command()
@store_argument
@_trust
@with_options(_ENGINE_OPTIONS)
def resume(store: Path, trust: tuple[str, ...], **options: Any) -> None:
    """Continue the sweep in the folder STORE.

    Draws what is missing, and tries again what failed. The exit status is 3 if units are left.
    """
    with _interruptible(store):
        from shaped_attention.sweep.store import Store

        sweep = Store(store).sweep
        sweep.check_trusted(trust)
        _run(sweep, store, **options)


for _command in (status, summary, verify, repair):
    sweep_command.add_command(_command)


@sweep_command.command()
@store_argument
@click.option(
    "--observable", default="mean |rho|", show_default=True, help="Name of the observable to draw."
)
@figures_option
def draw(store: Path, observable: str, figures: Path) -> None:
    """Draw the sweep in the folder STORE.

    The figures show means, distances between chain and SDE, and fractions of stopped paths.
    """
    from shaped_attention.figures import plots
    from shaped_attention.io.storage import check_writable
    from shaped_attention.sweep import plots as sweep_plots
    from shaped_attention.sweep.reading import open_sweep, sweep_distances, sweep_summary

    check_writable(figures, "figures")
    data = open_sweep(store)
    summary = sweep_summary(data)
    both = {"chain", "sde"} <= set(data["sampler"].values) and "V" not in data
    distances = sweep_distances(data) if both else None
    drawn = sweep_plots.sweep_figures(data, summary, distances, observable)
    for name, figure in drawn.items():
        for path in plots.save_figure(figure, figures / f"sweep-{name}"):
            click.echo(path)


@sweep_command.command()
@store_argument
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
    from shaped_attention.sweep.tables import check_suffix, export_sweep

    check_suffix(output)
    if output.exists() and not overwrite:
        raise ValueError(f"{output} exists; choose another name, or --overwrite")
    export_sweep(store, output, summary)
    click.echo(output)


@sweep_command.command()
@store_argument
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
    from shaped_attention.sweep.extension import extend_sweep
    from shaped_attention.sweep.store import Store
    from shaped_attention.sweep.toml import read_axis

    if samples is None and not axes:
        raise ValueError("choose --samples, --axis or both")
    further: dict[str, list[Any]] = {}
    for text in axes:
        name, values = read_axis(text)
        further.setdefault(name, []).extend(values)
    sweep = extend_sweep(store, samples=samples, axes=further, trust=trust)
    left = units_of(sweep) - len(Store(store).finished())
    at_most = " at most" if sweep.target else ""
    click.echo(
        f"{store}: {shape_of(sweep)}; {sweep.samples} samples each{at_most}; {left} units to draw"
    )
    click.echo(f"`{resuming(sweep, store)}` draws them")


def _run(sweep: Sweep, store: Path, **options: Any) -> None:
    from shaped_attention.sweep.run import run_sweep

    verbose, quiet = options["verbose"], options["quiet"]
    if verbose and quiet:
        raise ValueError("--verbose and --quiet exclude each other")
    with (
        logged("sweep", verbose, quiet),
        _engine(options["workers"], options["devices"], options["dask"]) as engine,
    ):
        try:
            report = run_sweep(
                sweep, store, engine=engine,
                retries=options["retries"], progress=False if quiet else options["progress"],
                accept_changed_code=options["accept_changed_code"], seconds=options["seconds"],
            )  # fmt: skip
        except KeyboardInterrupt:
            click.echo(f"interrupted; `{resuming(sweep, store)}` continues", err=True)
            raise click.exceptions.Exit(INCOMPLETE) from None
        except BrokenExecutor as error:
            raise BrokenExecutor(f"{error}; `{resuming(sweep, store)}` continues") from error
    if not quiet:
        from shaped_attention.progress import duration

        reasons = ", ".join(f"{count} by {name}" for name, count in sorted(report.reasons.items()))
        click.echo(
            f"{report.finished} units in {store} after {duration(report.seconds)}; "
            f"cells and samplers ended: {reasons}"
        )
        if report.failed:
            click.echo(
                f"{report.failed} units were given up: `shaped-attention sweep status {store}`",
                err=True,
            )
        if report.left:
            click.echo(f"{report.left} units still to do: `{resuming(sweep, store)}`", err=True)
    if report.failed or report.left:
        raise click.exceptions.Exit(INCOMPLETE)


@contextmanager
def _engine(workers: int | None, devices: str | None, dask: str | None) -> Iterator[Engine]:
    from shaped_attention.sweep.engines import InProcess, Processes, dask_engine

    options = {"--workers": workers, "--devices": devices, "--dask": dask}
    names = [name for name, value in options.items() if value is not None]
    if len(names) > 1:
        raise ValueError(f"{' and '.join(names)} exclude each other")
    if dask is not None:
        from distributed import Client

        with Client(dask) as client:
            yield dask_engine(client)
        return
    engine: Engine
    if devices is not None:
        engine = Processes(devices=devices.split(","))
    else:
        engine = InProcess() if workers in (None, 1) else Processes(workers)
    try:
        yield engine
    finally:
        engine.close()
