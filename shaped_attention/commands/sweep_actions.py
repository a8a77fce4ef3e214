"""What the commands of the group `sweep` do, once their arguments are parsed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from shaped_attention.commands.logs import logged
from shaped_attention.commands.options import INCOMPLETE
from shaped_attention.commands.sweep_words import (
    reported,
    resuming,
    shape_of,
    size,
    units_of,
)
from shaped_attention.figures import plots
from shaped_attention.io.storage import check_writable
from shaped_attention.progress import duration
from shaped_attention.sweep import plots as sweep_plots
from shaped_attention.sweep.engines import Engine, InProcess, Processes, dask_engine
from shaped_attention.sweep.extension import extend_sweep
from shaped_attention.sweep.plan import plan_sweep
from shaped_attention.sweep.reading import open_sweep, sweep_distances, sweep_summary
from shaped_attention.sweep.run import run_sweep
from shaped_attention.sweep.run_loop import Report
from shaped_attention.sweep.specification import Sweep
from shaped_attention.sweep.store import Store
from shaped_attention.sweep.tables import check_suffix, export_sweep
from shaped_attention.sweep.toml import read_axis, read_sweep


def plan(file: Path) -> None:
    """Check a sweep and print its estimated cost."""
    with reported():
        sweep = read_sweep(file)
        found = plan_sweep(sweep)
    click.echo(f"cells     {found.cells}: {shape_of(sweep)}")
    click.echo(f"samplers  {', '.join(sweep.samplers)}; {sweep.samples} samples each, at most")
    click.echo(f"units     {found.units} of {sweep.block} samples, {size(found.unit_bytes)} each")
    click.echo(f"store     {size(found.store_bytes)} before compression (keep = {sweep.keep!r})")
    parts = ", ".join(f"{name} {duration(s)}" for name, s in found.by_sampler.items())
    click.echo(f"time      about {duration(found.seconds)} in one process ({parts})")


def run(file: Path, store: Path, **options: Any) -> None:
    """Run the sweep of a file."""
    with reported():
        _run(read_sweep(file), store, **options)


def resume(store: Path, trust: tuple[str, ...], **options: Any) -> None:
    """Continue the sweep of a store."""
    with reported():
        sweep = Store(store).sweep
        sweep.check_trusted(trust)
        _run(sweep, store, **options)


def draw(store: Path, observable: str, figures: Path) -> None:
    """Draw the figures of a sweep."""
    with reported():
        check_writable(figures, "figures")
        data = open_sweep(store)
        summary = sweep_summary(data)
        both = {"chain", "sde"} <= set(data["sampler"].values) and "V" not in data
        distances = sweep_distances(data) if both else None
        drawn = sweep_plots.sweep_figures(data, summary, distances, observable)
        for name, figure in drawn.items():
            for path in plots.save_figure(figure, figures / f"sweep-{name}"):
                click.echo(path)


def export(store: Path, output: Path, summary: bool | None, overwrite: bool) -> None:
    """Write a sweep to another format."""
    with reported():
        check_suffix(output)
        if output.exists() and not overwrite:
            raise ValueError(f"{output} exists; choose another name, or --overwrite")
        export_sweep(store, output, summary)
    click.echo(output)


def extend(store: Path, samples: int | None, axes: tuple[str, ...], trust: tuple[str, ...]) -> None:
    """Extend the sweep of a store."""
    with reported():
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
        _print_report(report, sweep, store)
    if report.failed or report.left:
        raise click.exceptions.Exit(INCOMPLETE)


@contextmanager
def _engine(workers: int | None, devices: str | None, dask: str | None) -> Iterator[Engine]:
    given = {"--workers": workers, "--devices": devices, "--dask": dask}
    names = [name for name, value in given.items() if value is not None]
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
    elif workers in (None, 1):
        engine = InProcess()
    else:
        engine = Processes(workers)
    try:
        yield engine
    finally:
        engine.close()


def _print_report(report: Report, sweep: Sweep, store: Path) -> None:
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
