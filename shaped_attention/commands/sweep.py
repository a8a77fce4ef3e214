"""Batch runs: the group of commands `sweep`.

What a command needs is imported when it runs, so that help texts load no library.
"""

from __future__ import annotations

from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any

import click

from shaped_attention.commands.options import (
    Group,
    InputError,
    check_new,
    figures_option,
    overwrite_option,
    save_png,
)
from shaped_attention.commands.sweep_run import file_argument, resume, run
from shaped_attention.commands.sweep_state import (
    repair,
    resuming,
    shape_of,
    status,
    store_argument,
    summary,
    units_of,
    verify,
)


class SweepGroup(Group):
    """The commands of sweeps, with what stores and workers raise as sentences."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except MemoryError:
            raise click.ClickException("not enough memory for this command") from None
        except OSError as error:
            from shaped_attention.io.storage import reason

            raise InputError(f"{error.filename or 'a file'}: {reason(error)}") from None
        except RuntimeError as error:
            from shaped_attention.sweep.store_records import StoreError, UnwritableError

            if isinstance(error, UnwritableError | BrokenExecutor):
                raise click.ClickException(str(error)) from None
            if isinstance(error, StoreError):
                raise InputError(str(error)) from None
            raise


@click.group(name="sweep", cls=SweepGroup)
def sweep_command() -> None:
    """Run grids of parameters in batches; an interrupt never loses finished work."""


@sweep_command.command()
@file_argument
def plan(file: Path) -> None:
    """Check the sweep in FILE (TOML) and estimate its cost.

    Prints the numbers of cells and units, the size of the store, and the expected time, which is
    estimated from a few samples.
    """
    from shaped_attention.progress import duration
    from shaped_attention.sweep.plan import plan_sweep
    from shaped_attention.sweep.toml import read_sweep

    sweep = read_sweep(file)
    cost = plan_sweep(sweep)
    click.echo(f"cells     {cost.cells}: {shape_of(sweep)}")
    click.echo(f"samplers  {', '.join(sweep.samplers)}; {sweep.samples} samples each, at most")
    click.echo(f"units     {cost.units} of {sweep.block} samples, {_size(cost.unit_bytes)} each")
    moving = ", ".join(f"{count} of {name}" for name, count in cost.together.items())
    click.echo(f"memory    {_size(cost.memory)} on {sweep.device}, so that {moving} move together")
    click.echo(f"store     {_size(cost.store_bytes)} before compression (keep = {sweep.keep!r})")
    parts = ", ".join(f"{name} {duration(s)}" for name, s in cost.by_sampler.items())
    click.echo(f"time      about {duration(cost.seconds)} in one process ({parts}),")
    click.echo(
        f"          and {duration(cost.start_seconds)} in each process that compiles or loads its "
        "kernels, as this one did"
    )


for _command in (run, resume, status, summary, verify, repair):
    sweep_command.add_command(_command)


@sweep_command.command()
@store_argument
@click.option(
    "--observable", default="mean |rho|", show_default=True, help="Name of the observable to plot."
)
@figures_option
def draw(store: Path, observable: str, figures: Path) -> None:
    """Plot the sweep in the folder STORE.

    The figures show means, distances between chain and SDE, and fractions of stopped paths.
    """
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
        click.echo(save_png(figure, figures / f"sweep-{name}.png"))


@sweep_command.command()
@store_argument
@click.argument("output", type=click.Path(path_type=Path))
@click.option(
    "--summary/--values",
    default=None,
    help="Write means with their intervals, or all samples.  [default: --summary for .csv and "
    ".parquet, --values for .nc and .zarr]",
)
@overwrite_option
def export(store: Path, output: Path, summary: bool | None, overwrite: bool) -> None:
    """Write the sweep in STORE to OUTPUT: .nc, .zarr, .csv or .parquet.

    A table (CSV or Parquet) has one row per cell, sampler, time and observable, or with --values
    one row per cell, sampler, time and sample.
    """
    from shaped_attention.sweep.tables import check_suffix, export_sweep

    check_suffix(output)
    check_new("another name", overwrite, [output])
    export_sweep(store, output, summary)
    click.echo(output)


@sweep_command.command()
@store_argument
@click.option("--samples", type=int, help="New, larger number of samples per cell and sampler.")
@click.option("--axis", "axes", multiple=True, metavar="NAME=VALUES",
              help="Values to append to an axis, written as in TOML: gamma=0.7,0.8 or "
              "'tau0={ logspace = [3, 5, 3] }'. Can be repeated.")  # fmt: skip
def extend(store: Path, samples: int | None, axes: tuple[str, ...]) -> None:
    """Extend the sweep in STORE by more samples, or by values on its axes.

    This only changes the specification; `shaped-attention sweep resume STORE` then runs what is
    missing. If the last block was not full and needs more samples, its samples are deleted and
    computed again.
    """
    from shaped_attention.sweep.extension import extend_sweep
    from shaped_attention.sweep.store import Store
    from shaped_attention.sweep.toml import read_axis

    if samples is None and not axes:
        raise ValueError("give --samples, --axis or both")
    further: dict[str, list[Any]] = {}
    for text in axes:
        name, values = read_axis(text)
        further.setdefault(name, []).extend(values)
    sweep = extend_sweep(store, samples=samples, axes=further)
    left = units_of(sweep) - len(Store(store).finished())
    at_most = " at most" if sweep.target else ""
    click.echo(
        f"{store}: {shape_of(sweep)}; {sweep.samples} samples each{at_most}; {left} units to run"
    )
    click.echo(f"to run them: {resuming(sweep, store)}")


def _size(count: int) -> str:
    """Return a number of bytes in words."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000  # type: ignore[assignment]
    return f"{count:.3g} TB"
