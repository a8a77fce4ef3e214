"""The commands of the group `sweep` that draw samples: run and resume."""

from __future__ import annotations

import logging
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shaped_attention.commands.interrupts import interrupts
from shaped_attention.commands.options import INCOMPLETE, progress_option, with_options
from shaped_attention.commands.sweep_state import endings, resuming, store_argument

if TYPE_CHECKING:
    from shaped_attention.sweep.engines import Engine
    from shaped_attention.sweep.specification import Sweep

file_argument = click.argument("file", type=click.Path(path_type=Path))

_ENGINE_OPTIONS = [
    click.option("--workers", type=int,
                 help="Number of processes with one thread each; 1 means this process, with all "
                 "threads.  [default: 1]"),
    click.option("--devices", metavar="LIST",
                 help="Run one process on each of these devices, for example cuda:0,cuda:1."),
    click.option("--dask", metavar="ADDRESS",
                 help="Run on the workers of the Dask scheduler at this address (extra "
                 "`cluster`)."),
    click.option("--retries", type=int, default=2, show_default=True,
                 help="How often to retry a unit that fails."),
    click.option("--accept-changed-code", is_flag=True,
                 help="Continue even if the code of the layer or the versions of packages have "
                 "changed since the units in STORE were computed; STORE records what changed."),
    progress_option,
    click.option("-v", "--verbose", is_flag=True,
                 help="Log every unit.  [default: a line each minute if the error stream is not "
                 "a terminal]"),
    click.option("-q", "--quiet", is_flag=True,
                 help="Print errors only, without progress bar, log or report."),
    click.option("--seconds", type=float,
                 help="Time limit of this run: no unit starts if it is expected to end more than "
                 "10 % beyond the limit.  [default: `seconds` of the sweep, if given]"),
]  # fmt: skip


@click.command()
@file_argument
@store_argument
@with_options(_ENGINE_OPTIONS)
def run(file: Path, store: Path, **options: Any) -> None:
    """Run the sweep in FILE (TOML) and store it in the folder STORE.

    If STORE already contains this sweep, it is continued. The exit status is 3 if units are left.
    """
    with _interruptible(store) as received:
        from shaped_attention.sweep.toml import read_sweep

        _run(read_sweep(file), store, received, **options)


@click.command()
@store_argument
@with_options(_ENGINE_OPTIONS)
def resume(store: Path, **options: Any) -> None:
    """Continue the sweep in the folder STORE.

    Runs what is missing, and retries what failed. The exit status is 3 if units are left.
    """
    with _interruptible(store) as received:
        from shaped_attention.sweep.store import Store

        sweep = Store(store).sweep
        sweep.check_own_code()
        _run(sweep, store, received, **options)


def _run(sweep: Sweep, store: Path, received: list[int], **options: Any) -> None:
    from shaped_attention.sweep.run import run_sweep

    verbose, quiet = options["verbose"], options["quiet"]
    if verbose and quiet:
        raise ValueError("--verbose and --quiet cannot be used together")
    with (
        _logged(verbose, quiet),
        _engine(options["workers"], options["devices"], options["dask"]) as engine,
    ):
        engine.submit = _until_interrupted(engine.submit, received)  # type: ignore[method-assign]
        try:
            report = run_sweep(
                sweep, store, engine=engine,
                retries=options["retries"], progress=False if quiet else options["progress"],
                accept_changed_code=options["accept_changed_code"], seconds=options["seconds"],
            )  # fmt: skip
        except KeyboardInterrupt:
            click.echo(f"interrupted; to continue: {resuming(sweep, store)}", err=True)
            raise click.exceptions.Exit(INCOMPLETE) from None
        except BrokenExecutor as error:
            raise BrokenExecutor(f"{error}; to continue: {resuming(sweep, store)}") from error
    if not quiet:
        from shaped_attention.progress import duration

        click.echo(f"{report.finished} units in {store} after {duration(report.seconds)}; "
                   f"{endings(report.reasons)}")  # fmt: skip
        if report.failed:
            click.echo(
                f"{report.failed} units were abandoned; for the reasons: "
                f"shaped-attention sweep status {store}",
                err=True,
            )
        if report.left:
            click.echo(f"{report.left} units left; to run them: {resuming(sweep, store)}", err=True)
    if report.failed or report.left:
        raise click.exceptions.Exit(INCOMPLETE)


@contextmanager
def _engine(workers: int | None, devices: str | None, dask: str | None) -> Iterator[Engine]:
    from shaped_attention.sweep.engines import InProcess, Processes, dask_engine

    options = {"--workers": workers, "--devices": devices, "--dask": dask}
    names = [name for name, value in options.items() if value is not None]
    if len(names) > 1:
        raise ValueError(f"{' and '.join(names)} cannot be used together")
    if dask is not None:
        from distributed import Client

        try:
            connected = Client(dask)
        except (OSError, ValueError) as error:
            raise ValueError(f"--dask {dask}: no Dask scheduler answers there ({error})") from error
        with connected as client:
            yield dask_engine(client)
        return
    engine: Engine
    if devices is not None:
        engine = Processes(devices=devices.split(","))
    else:
        engine = InProcess() if workers in (None, 1) else Processes(workers)
    with closing(engine):
        yield engine


@contextmanager
def _interruptible(store: Path) -> Iterator[list[int]]:
    """End with the status of an incomplete run when interrupted, even while libraries load.

    Gives the list of the signals that arrived: in a library's import, one can have no other effect.
    """
    with interrupts(signal.SIGINT, signal.SIGTERM) as received:
        try:
            with interrupts(signal.SIGINT, signal.SIGTERM, held=True):
                import shaped_attention.sweep.run  # noqa: F401
            yield received
        except click.exceptions.Exit:
            raise
        except (Exception, KeyboardInterrupt) as error:
            if not received and not isinstance(error, KeyboardInterrupt):
                raise
            command = f"shaped-attention sweep resume {shlex.quote(str(store))}"
            how = command if (store / "sweep.json").exists() else "run the same command again"
            click.echo(f"interrupted; to continue: {how}", err=True)
            raise click.exceptions.Exit(INCOMPLETE) from None


def _until_interrupted(submit: Callable[..., Any], received: list[int]) -> Callable[..., Any]:
    """Return `submit` of an engine, which no longer starts a unit after an interrupt."""

    def submitted(*arguments: Any) -> Any:
        if received:
            raise KeyboardInterrupt
        return submit(*arguments)

    return submitted


@contextmanager
def _logged(verbose: bool, quiet: bool) -> Iterator[None]:
    """Write what the package logs: warnings, everything if `verbose`, only errors if `quiet`.

    If the error stream is not a terminal and shows no bar, the lines that sweeps log about their
    progress are written too.
    """
    from tqdm.contrib import DummyTqdmFile

    package, sweeps = (logging.getLogger(f"shaped_attention{part}") for part in ("", ".sweep"))
    level = logging.DEBUG if verbose else logging.ERROR if quiet else logging.WARNING
    told = level if verbose or quiet or sys.stderr.isatty() else logging.INFO
    # Its lines are written above the bar.
    handler = logging.StreamHandler(DummyTqdmFile(sys.stderr))
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    before = package.level, sweeps.level
    package.addHandler(handler)
    package.setLevel(level)
    sweeps.setLevel(told)
    try:
        yield
    finally:
        package.removeHandler(handler)
        package.setLevel(before[0])
        sweeps.setLevel(before[1])
