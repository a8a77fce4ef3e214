"""Batch runs: the group of commands `sweep`.

What a command needs is imported when it runs, so that help texts load no library.
"""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from shaped_attention.commands.interrupts import interrupts
from shaped_attention.commands.options import (
    INCOMPLETE,
    Group,
    check_new,
    overwrite_option,
    progress_option,
)

_path = click.argument("path", metavar="NAME.sweep", type=click.Path(path_type=Path))


@click.group(name="sweep", cls=Group)
def sweep_command() -> None:
    """Run grids of parameters in batches; an interrupt never loses finished work."""


@sweep_command.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("path", metavar="[NAME.sweep]", type=click.Path(path_type=Path), required=False)
@click.option("--workers", type=int, help="Number of local processes with one thread each; 1 means "
              "this process, with all threads.  [default: 1]")  # fmt: skip
@click.option("--devices", metavar="LIST", help="Run one process on each of these devices, for "
              "example cuda:0,cuda:1.")  # fmt: skip
@click.option("--dask", metavar="ADDRESS", help="Run on the workers of the Dask scheduler at this "
              "address (extra `cluster`).")  # fmt: skip
@click.option("--seconds", type=float, help="Time after which no unit starts.  [default: `seconds` "
              "of the sweep, if given]")  # fmt: skip
@click.option("--accept-changed-code", is_flag=True, help="Continue even if the units come from "
              "other code or versions; the file records it.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Check the sweep, time a few samples, print the "
              "estimate for one worker, and run nothing.")  # fmt: skip
@progress_option
def run(
    file: Path,
    path: Path | None,
    workers: int | None,
    devices: str | None,
    dask: str | None,
    seconds: float | None,
    accept_changed_code: bool,
    dry_run: bool,
    progress: bool | None,
) -> None:
    """Run the sweep in FILE (TOML), or what is left of it, into NAME.sweep.

    A NAME.sweep as FILE is continued, unless its layer is a custom function. The exit status is 3
    if units are left.
    """
    if sum(option is not None for option in (workers, devices, dask)) > 1:
        raise ValueError("--workers, --devices, --dask: give at most one of the three")
    path = file if path is None and file.suffix == ".sweep" else path
    if path is None and not dry_run:
        raise ValueError("the file to write must be given, NAME.sweep")
    command = " ".join(["shaped-attention sweep run", *map(shlex.quote, sys.argv[3:])])
    with _until_interrupted(command), ExitStack() as stack:
        with interrupts(signal.SIGINT, signal.SIGTERM, held=True):
            from shaped_attention.progress import duration
            from shaped_attention.sweep.run import run_sweep
            from shaped_attention.sweep.toml import read_sweep
            from shaped_attention.sweep.units import estimate
        sweep = read_sweep(file)
        if path is None or dry_run:
            cells = " x ".join(map(str, sweep.shape)) or "1"
            click.echo(f"{sweep.unit_count} units: {cells} cells, {sweep.samples} samples each")
            for sampler, time in estimate(sweep).items():
                click.echo(f"{sampler}: about {duration(time)}")
            return
        executor = None
        if dask is not None:
            from distributed import Client

            client = stack.enter_context(Client(dask))
            workers, executor = sum(client.nthreads().values()) or None, client.get_executor()
        try:
            report = run_sweep(
                sweep, path, executor=executor, workers=workers, seconds=seconds,
                devices=devices.split(",") if devices else (), progress=progress,
                accept_changed_code=accept_changed_code,
            )  # fmt: skip
        except BrokenExecutor as error:
            raise click.ClickException(f"{error}; to continue: {command}") from None
    click.echo(f"{report.finished} units in {path} after {duration(report.seconds)}")
    if report.failed:
        click.echo(f"{report.failed} units failed: shaped-attention sweep status {path}", err=True)
    if report.left:
        click.echo(f"{report.left} units left; to continue: {command}", err=True)
    if report.failed or report.left:
        raise click.exceptions.Exit(INCOMPLETE)


@sweep_command.command()
@_path
@click.option("--cells", is_flag=True, help="Print how many units of each cell are done.")
def status(path: Path, cells: bool) -> None:
    """Print how much of the sweep in NAME.sweep is done, even while it runs."""
    from shaped_attention.progress import duration
    from shaped_attention.sweep.reading import sweep_status

    state = sweep_status(path)
    click.echo(f"{path}: {state.done} of {state.units} units done, {len(state.failures)} failed, "
               f"{state.damaged} damaged")  # fmt: skip
    if state.seconds_left:
        click.echo(f"about {duration(state.seconds_left)} left on one worker")
    for change in state.code_changes:
        click.echo(f"code changed after {change['units']} units, at {change['at']}: "
                   f"{'; '.join(change['changed'])}")  # fmt: skip
    for sampler, cell, block, message in state.failures:
        click.echo(f"failed: {sampler}, cell {cell or 'only'}, block {block}: {message}")
    if cells:
        for point, done in state.by_cell:
            place = ", ".join(f"{name}={value}" for name, value in point.items())
            click.echo(f"{place or 'the only cell'}: {done} units")


@sweep_command.command()
@_path
@click.argument("file", type=click.Path(path_type=Path))
@overwrite_option
def export(path: Path, file: Path, overwrite: bool) -> None:
    """Write the sweep in NAME.sweep to FILE (.nc), as the Dataset of `open_sweep`."""
    from shaped_attention.io.storage import written
    from shaped_attention.sweep.reading import open_sweep

    if file.suffix != ".nc":
        raise ValueError(f"FILE must have the name of a netCDF file, NAME.nc; got {file}")
    check_new("another FILE", overwrite, [file])
    data = open_sweep(path)
    with written(file) as draft:
        data.to_netcdf(draft, engine="h5netcdf")
    click.echo(f"written: {file}")


@contextmanager
def _until_interrupted(command: str) -> Iterator[None]:
    """End with the status of an incomplete run when interrupted, and print what continues it."""
    with interrupts(signal.SIGINT, signal.SIGTERM) as received:
        try:
            yield
        except click.exceptions.Exit:
            raise
        except (Exception, KeyboardInterrupt) as error:
            if not received and not isinstance(error, KeyboardInterrupt):
                raise
            click.echo(f"interrupted; to continue: {command}", err=True)
            raise click.exceptions.Exit(INCOMPLETE) from None
