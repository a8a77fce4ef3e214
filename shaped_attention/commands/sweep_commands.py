"""The commands of the group `sweep`: plan, run, resume, status, draw, export."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from shaped_attention.commands.options import InputError, figures_option
from shaped_attention.figures import plots
from shaped_attention.io.storage import check_writable, reason, written
from shaped_attention.results.files import save
from shaped_attention.sweep import plots as sweep_plots
from shaped_attention.sweep.code_identity import code_records
from shaped_attention.sweep.engines import Engine, InProcess, Processes, dask_engine
from shaped_attention.sweep.plan import plan_sweep
from shaped_attention.sweep.reading import open_sweep, sweep_distances, sweep_summary
from shaped_attention.sweep.run import run_sweep
from shaped_attention.sweep.run_loop import Report
from shaped_attention.sweep.specification import Sweep
from shaped_attention.sweep.store import Store
from shaped_attention.sweep.store_errors import StoreError, UnwritableError
from shaped_attention.sweep.toml import read_sweep

INCOMPLETE = 3
"""Exit status of a run that leaves units undone or gives some up."""

_COLUMNS = ["mean", "half_width", "lower", "upper", "deviation", "samples"]
"""Return what a table of the summary has."""

_file = click.argument("file", type=click.Path(path_type=Path))
_store = click.argument("store", type=click.Path(path_type=Path))


def _engine_options(command: Any) -> Any:
    for option in (
        click.option("--seconds", type=float,
                     help="Begin no more units after this time; replaces that of the sweep."),
        click.option("--progress/--no-progress", default=None, help="Show a progress bar.  "
                     "[default: if the error stream is a terminal]"),
        click.option("--accept-changed-code", is_flag=True,
                     help="Go on although the code of the layer or versions of packages differ "
                     "from those that made the units in STORE; what differs is noted there."),
        click.option("--retries", type=int, default=2, show_default=True,
                     help="How often a unit that fails is tried again."),
        click.option("--dask", metavar="ADDRESS",
                     help="Run on the workers of this Dask scheduler (extra `cluster`)."),
        click.option("--devices", metavar="LIST",
                     help="A process for each of these devices: cuda:0,cuda:1"),
        click.option("--workers", type=int,
                     help="Processes of one thread each; 1 runs here, on all threads.  "
                     "[default: 1]"),
    ):  # fmt: skip
        command = option(command)
    return command


@click.command()
@_file
def plan(file: Path) -> None:
    """Check the sweep in FILE (TOML) and say what it will cost, without running it."""
    with _told():
        sweep = read_sweep(file)
        found = plan_sweep(sweep)
    shape = " x ".join(f"{name} ({len(axis)})" for name, axis in sweep.axes.items()) or "one cell"
    click.echo(f"cells     {found.cells}: {shape}")
    click.echo(f"samplers  {', '.join(sweep.samplers)}; {sweep.samples} samples each, at most")
    click.echo(f"units     {found.units} of {sweep.block} samples, {_size(found.unit_bytes)} each")
    click.echo(f"store     {_size(found.store_bytes)} before compression (keep = {sweep.keep!r})")
    parts = ", ".join(f"{name} {_time(s)}" for name, s in found.by_sampler.items())
    click.echo(f"time      about {_time(found.seconds)} in one process ({parts})")


@click.command()
@_file
@_store
@_engine_options
def run(file: Path, store: Path, **options: Any) -> None:
    """Run the sweep in FILE (TOML) into the folder STORE, or go on with it there."""
    with _told():
        _run(read_sweep(file), store, **options)


@click.command()
@_store
@_engine_options
def resume(store: Path, **options: Any) -> None:
    """Go on with the sweep in the folder STORE."""
    with _told():
        _run(Store(store).sweep, store, **options)


@click.command()
@_store
@click.option("--traceback", is_flag=True, help="Also where units that were given up failed.")
def status(store: Path, traceback: bool) -> None:
    """Say how far the sweep in STORE is; also while it runs."""
    with _told():
        opened = Store(store)
        done, failures, running = opened.finished(), opened.failures(), opened.running
    sweep = opened.sweep
    units = len(sweep.samplers) * sweep.blocks
    for size in sweep.shape:
        units *= size
    state = "running" if running else "not running"
    at_most = " at most (it has a target)" if sweep.target else ""
    click.echo(f"{store}: {state}; {len(done)} of {units} units{at_most}")
    if done and len(done) < units:
        left = sum(done.values()) / len(done) * (units - len(done))
        click.echo(f"about {_time(left)} left on one worker{at_most}")
    for record in code_records(store):
        if record["changed"]:
            click.echo(f"code changed after {record['units']} units, at {record['time']}: "
                       f"{'; '.join(record['changed'])}")  # fmt: skip
    reasons = Counter(opened.reasons().values())
    if reasons and not running:
        told = ", ".join(f"{count} by {why}" for why, count in sorted(reasons.items()))
        click.echo(f"cells and samplers ended: {told}")
    for record in failures:
        unit = record["unit"]
        values = sweep.values(sweep.index(unit.cell))
        point = ", ".join(f"{name}={values[name]}" for name in sweep.axes)
        click.echo(f"given up: {sweep.samplers[unit.sampler]}, {point}, block {unit.block}: "
                   f"{record['error']}")  # fmt: skip
        if traceback:
            click.echo(record["traceback"])


@click.command()
@_store
@click.option("--observable", default="mean |rho|", show_default=True, help="What is drawn.")
@figures_option
def draw(store: Path, observable: str, figures: Path) -> None:
    """Draw means, distances between chain and SDE, and stopped paths over the grid of STORE."""
    with _told():
        check_writable(figures, "figures")
        data = open_sweep(store)
        summary = sweep_summary(data)
        both = {"chain", "sde"} <= set(data["sampler"].values) and "V" not in data
        distances = sweep_distances(data) if both else None
        drawn = sweep_plots.sweep_figures(data, summary, distances, observable)
        for name, figure in drawn.items():
            for path in plots.save_figure(figure, figures / f"sweep-{name}"):
                click.echo(path)


@click.command()
@_store
@click.argument("output", type=click.Path(path_type=Path))
@click.option("--summary", is_flag=True, help="Means, intervals and quantiles instead of all.")
@click.option("--overwrite", is_flag=True, help="Replace OUTPUT if it exists.")
def export(store: Path, output: Path, summary: bool, overwrite: bool) -> None:
    """Write the sweep in STORE to OUTPUT: .nc or .zarr, or a table of the summary as .csv."""
    with _told():
        if output.exists() and not overwrite:
            raise ValueError(f"{output}: it exists; another name, or --overwrite, is needed")
        data = open_sweep(store)
        if output.suffix == ".csv":
            table = sweep_summary(data)[_COLUMNS]
            with written(output) as draft:
                table.to_dataframe().to_csv(draft)
        else:
            save(sweep_summary(data) if summary else data.load(), output)
    click.echo(output)


def _run(sweep: Sweep, store: Path, **options: Any) -> None:
    if options["seconds"] is not None:
        sweep = replace(sweep, seconds=options["seconds"])
    # Batch systems end a job so; it is an interrupt here.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with _engine(options["workers"], options["devices"], options["dask"]) as engine:
        try:
            report = run_sweep(
                sweep, store, engine=engine,
                retries=options["retries"], progress=options["progress"],
                accept_changed_code=options["accept_changed_code"],
            )  # fmt: skip
        except KeyboardInterrupt:
            click.echo(f"interrupted; `shaped-attention sweep resume {store}` goes on", err=True)
            raise click.exceptions.Exit(INCOMPLETE) from None
    _tell(report, store)


@contextmanager
def _engine(workers: int | None, devices: str | None, dask: str | None) -> Iterator[Engine]:
    given = {"--workers": workers, "--devices": devices, "--dask": dask}
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise ValueError(f"{' and '.join(names)} exclude each other; one of them is needed")
    if dask is not None:
        try:
            from distributed import Client
        except ImportError:
            raise ValueError("--dask needs the extra `cluster`: pip install distributed") from None
        with Client(dask) as client:
            yield dask_engine(client)
        return
    engine: Engine
    if devices is not None:
        engine = Processes(devices=devices.split(","))
    elif workers in (None, 1):
        engine = InProcess()
    else:
        engine = Processes(workers)
    try:
        yield engine
    finally:
        engine.close()


def _tell(report: Report, store: Path) -> None:
    reasons = ", ".join(f"{count} by {name}" for name, count in sorted(report.reasons.items()))
    click.echo(
        f"{report.finished} units in {store} after {_time(report.seconds)}; "
        f"cells and samplers ended: {reasons}"
    )
    if report.failed:
        click.echo(
            f"{report.failed} units were given up: `shaped-attention sweep status {store}`",
            err=True,
        )
    if report.left:
        click.echo(
            f"{report.left} units still to do: `shaped-attention sweep resume {store}`", err=True
        )
    if report.failed or report.left:
        raise click.exceptions.Exit(INCOMPLETE)


@contextmanager
def _told() -> Iterator[None]:
    """Errors as one sentence, or a list of faults: exit status 2 for bad arguments, else 1."""
    try:
        yield
    except (UnwritableError, BrokenExecutor) as error:
        raise click.ClickException(str(error)) from None
    except (ValueError, StoreError) as error:
        raise InputError(str(error)) from None
    except OSError as error:
        raise InputError(f"{error.filename or 'a file'}: {reason(error)}") from None


def _size(count: int) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000  # type: ignore[assignment]
    return f"{count:.3g} TB"


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.3g} s"
    if seconds < 6000:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / 3600:.3g} h"
