"""What the commands of the group `sweep` do, once their arguments are parsed."""

from __future__ import annotations

import math
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

from shaped_attention.commands.options import InputError
from shaped_attention.figures import plots
from shaped_attention.io.storage import check_writable, reason
from shaped_attention.sweep import plots as sweep_plots
from shaped_attention.sweep.axis_values import read_axis
from shaped_attention.sweep.code_identity import code_records
from shaped_attention.sweep.engines import Engine, InProcess, Processes, dask_engine
from shaped_attention.sweep.extension import extend_sweep
from shaped_attention.sweep.plan import plan_sweep
from shaped_attention.sweep.reading import open_sweep, sweep_distances, sweep_summary
from shaped_attention.sweep.run import run_sweep
from shaped_attention.sweep.run_loop import Report
from shaped_attention.sweep.specification import Sweep
from shaped_attention.sweep.store import Store
from shaped_attention.sweep.store_errors import StoreError, UnwritableError
from shaped_attention.sweep.tables import check_suffix, export_sweep
from shaped_attention.sweep.toml import read_sweep
from shaped_attention.sweep.work_order import Schedule

INCOMPLETE = 3
"""Exit status of a run that leaves units undone or gives some up."""


def plan(file: Path) -> None:
    """Check a sweep and print its estimated cost."""
    with _reported():
        sweep = read_sweep(file)
        found = plan_sweep(sweep)
    click.echo(f"cells     {found.cells}: {_shape(sweep)}")
    click.echo(f"samplers  {', '.join(sweep.samplers)}; {sweep.samples} samples each, at most")
    click.echo(f"units     {found.units} of {sweep.block} samples, {_size(found.unit_bytes)} each")
    click.echo(f"store     {_size(found.store_bytes)} before compression (keep = {sweep.keep!r})")
    parts = ", ".join(f"{name} {_time(s)}" for name, s in found.by_sampler.items())
    click.echo(f"time      about {_time(found.seconds)} in one process ({parts})")


def run(file: Path, store: Path, **options: Any) -> None:
    """Run the sweep of a file."""
    with _reported():
        _run(read_sweep(file), store, **options)


def resume(store: Path, trust: tuple[str, ...], **options: Any) -> None:
    """Continue the sweep of a store."""
    with _reported():
        sweep = Store(store).sweep
        sweep.check_trusted(trust)
        _run(sweep, store, **options)


def status(store: Path, traceback: bool) -> None:
    """Print how much of a sweep is done."""
    with _reported():
        opened = Store(store)
        done, failures, running = opened.finished(), opened.failures(), opened.running
        sweep = opened.sweep
        lost = len(opened.finished_without(())) - len(done)
        # With a target, cells that have reached it need no more units.
        wanted = Schedule(sweep, done, partial(opened.arrays.read, "moments")).left
    units = _units(sweep)
    state = "running" if running else "not running"
    at_most = " at most (it has a target)" if sweep.target else ""
    click.echo(f"{store}: {state}; {len(done)} of {units} units{at_most}")
    if lost:
        click.echo(f"{lost} units were finished and are missing from the disk")
    if done and wanted:
        seconds = sum(done.values()) / len(done) * wanted
        at_least = " at least (it has a target)" if sweep.target else ""
        click.echo(f"about {_time(seconds)} left on one worker{at_least}")
    for record in code_records(store):
        if record["changed"]:
            click.echo(f"code changed after {record['units']} units, at {record['time']}: "
                       f"{'; '.join(record['changed'])}")  # fmt: skip
    reasons = Counter(opened.reasons().values())
    if reasons and not running:
        ended = ", ".join(f"{count} by {why}" for why, count in sorted(reasons.items()))
        click.echo(f"cells and samplers ended: {ended}")
    for record in failures:
        unit = record["unit"]
        values = sweep.values(sweep.index(unit.cell))
        point = ", ".join(f"{name}={values[name]}" for name in sweep.axes)
        click.echo(f"given up: {sweep.samplers[unit.sampler]}, {point}, block {unit.block}: "
                   f"{record['error']}")  # fmt: skip
        if traceback:
            click.echo(record["traceback"])


def verify(store: Path) -> None:
    """Read all files of a sweep, and print which are missing or damaged."""
    with _reported():
        opened = Store(store)
        lost = opened.damaged()
        kept, written = opened.finished_without(lost), opened.finished_without(())
    for name in sorted(lost):
        click.echo(f"{store / 'data.zarr' / name}: missing or damaged")
    click.echo(f"{store}: {len(kept)} of {len(written)} units are as they were written")
    if lost:
        click.echo(
            f"`shaped-attention sweep repair {store}` takes the others out, so that "
            f"`{_resuming(opened.sweep, store)}` draws them again",
            err=True,
        )
        raise click.exceptions.Exit(INCOMPLETE)


def repair(store: Path) -> None:
    """Take damaged files out of a sweep."""
    with _reported():
        opened = Store(store)
        with opened.locked():
            opened.check_current()
            lost = opened.damaged()
            units = len(opened.finished_without(())) - len(opened.finished_without(lost))
            opened.take_out(lost)
    click.echo(f"{store}: {len(lost)} files missing or damaged, {units} units to draw again")
    if units:
        click.echo(f"`{_resuming(opened.sweep, store)}` draws them")


def draw(store: Path, observable: str, figures: Path) -> None:
    """Draw the figures of a sweep."""
    with _reported():
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
    with _reported():
        check_suffix(output)
        if output.exists() and not overwrite:
            raise ValueError(f"{output}: it exists; another name, or --overwrite, is needed")
        export_sweep(store, output, summary)
    click.echo(output)


def extend(store: Path, samples: int | None, axes: tuple[str, ...], trust: tuple[str, ...]) -> None:
    """Extend the sweep of a store."""
    with _reported():
        if samples is None and not axes:
            raise ValueError("--samples, --axis: one of the two is needed")
        further: dict[str, list[Any]] = {}
        for text in axes:
            name, values = read_axis(text)
            further.setdefault(name, []).extend(values)
        sweep = extend_sweep(store, samples=samples, axes=further, trust=trust)
        left = _units(sweep) - len(Store(store).finished())
    at_most = " at most" if sweep.target else ""
    click.echo(
        f"{store}: {_shape(sweep)}; {sweep.samples} samples each{at_most}; {left} units to draw"
    )
    click.echo(f"`{_resuming(sweep, store)}` draws them")


def _shape(sweep: Sweep) -> str:
    return " x ".join(f"{name} ({len(axis)})" for name, axis in sweep.axes.items()) or "one cell"


def _units(sweep: Sweep) -> int:
    return math.prod(sweep.shape) * len(sweep.samplers) * sweep.blocks


def _run(sweep: Sweep, store: Path, **options: Any) -> None:
    # Batch systems end a job with this signal; treat it as an interrupt.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with _engine(options["workers"], options["devices"], options["dask"]) as engine:
        try:
            report = run_sweep(
                sweep, store, engine=engine,
                retries=options["retries"], progress=options["progress"],
                accept_changed_code=options["accept_changed_code"], seconds=options["seconds"],
            )  # fmt: skip
        except KeyboardInterrupt:
            click.echo(f"interrupted; `{_resuming(sweep, store)}` continues", err=True)
            raise click.exceptions.Exit(INCOMPLETE) from None
    _print_report(report, sweep, store)


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


def _resuming(sweep: Sweep, store: Path) -> str:
    """Return the command that continues a store, with the modules that it needs."""
    modules = sorted({layer.partition(":")[0] for layer in sweep.layers if ":" in layer})
    return " ".join([f"shaped-attention sweep resume {store}", *(f"--trust {m}" for m in modules)])


def _print_report(report: Report, sweep: Sweep, store: Path) -> None:
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
        click.echo(f"{report.left} units still to do: `{_resuming(sweep, store)}`", err=True)
    if report.failed or report.left:
        raise click.exceptions.Exit(INCOMPLETE)


@contextmanager
def _reported() -> Iterator[None]:
    """Report errors as a sentence or a list of faults; exit status 2 for bad arguments, else 1."""
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
