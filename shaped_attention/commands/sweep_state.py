"""The commands of the group `sweep` that show and mend the state of a store."""

from __future__ import annotations

import json
import math
import shlex
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shaped_attention.checks import names_code
from shaped_attention.commands.options import INCOMPLETE

if TYPE_CHECKING:
    from shaped_attention.sweep.specification import Sweep

store_argument = click.argument("store", type=click.Path(path_type=Path))
_json = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON; docs/sweeps.md names the fields."
)


def shape_of(sweep: Sweep) -> str:
    """Return the axes of a sweep with their lengths."""
    return " x ".join(f"{name} ({len(axis)})" for name, axis in sweep.axes.items()) or "one cell"


def units_of(sweep: Sweep) -> int:
    """Return the number of units of all cells, samplers and blocks."""
    return math.prod(sweep.shape) * len(sweep.samplers) * sweep.blocks


def resuming(sweep: Sweep, store: Path) -> str:
    """Return the command that continues a store."""
    own = any(map(names_code, sweep.layers))
    how = "run FILE" if own else "resume"
    return f"shaped-attention sweep {how} {shlex.quote(str(store))}"


_ENDS = {
    "samples": "have all their samples",
    "target": "reached the target",
    "time": "wait for a later run",
    "failed": "were given up",
}
"""Why a cell takes no more samples in a run, in words."""


def endings(reasons: Mapping[str, int]) -> str:
    """Return in words how many cells ended for which reason."""
    counts = ", ".join(f"{reasons[why]} {words}" for why, words in _ENDS.items() if why in reasons)
    return f"of {sum(reasons.values())} cells, counted once for each sampler: {counts}"


@click.command()
@store_argument
@click.option("--traceback", is_flag=True, help="Print the tracebacks of abandoned units.")
@_json
def status(store: Path, traceback: bool, as_json: bool) -> None:
    """Print how much of the sweep in STORE is done, even while it runs."""
    from shaped_attention.progress import duration
    from shaped_attention.sweep.code_identity import code_changes
    from shaped_attention.sweep.store import Store
    from shaped_attention.sweep.work_order import Schedule

    opened = Store(store)
    done, failures, running = opened.finished(), opened.failures(), opened.running
    sweep = opened.sweep
    lost = len(opened.finished(())) - len(done)
    # With a target, cells that have reached it need no more units.
    schedule = Schedule(sweep, done, partial(opened.arrays.read, "moments"))
    wanted, left = schedule.left, schedule.seconds_left() if done else None
    changes = code_changes(store)
    reasons = {} if running else dict(sorted(Counter(opened.reasons().values()).items()))
    given_up = [_failure(sweep, record) for record in failures]
    if as_json:
        fields = {
            "store": str(store), "running": running, "finished": len(done),
            "units": units_of(sweep), "lost": lost, "wanted": wanted, "seconds_left": left,
            "code_changes": changes, "reasons": reasons, "failures": given_up,
        }  # fmt: skip
        click.echo(json.dumps(fields, indent=2))
        return
    state = "running" if running else "not running"
    at_most = " at most (it has a target)" if sweep.target else ""
    click.echo(f"{store}: {state}; {len(done)} of {units_of(sweep)} units{at_most}")
    if lost:
        click.echo(f"{lost} finished units are missing from the disk")
    if left and wanted:
        at_least = " at least (it has a target)" if sweep.target else ""
        click.echo(f"about {duration(left)} left on one worker{at_least}")
    for record in changes:
        click.echo(f"code changed after {record['units']} units, at {record['time']}: "
                   f"{'; '.join(record['changed'])}")  # fmt: skip
    if reasons:
        click.echo(endings(reasons))
    for failure in given_up:
        point = ", ".join(f"{name}={value}" for name, value in failure["cell"].items())
        click.echo(f"abandoned: {failure['sampler']}, {point}, block {failure['block']}: "
                   f"{failure['error']}")  # fmt: skip
        if traceback:
            click.echo(failure["traceback"])


def _failure(sweep: Sweep, record: dict[str, Any]) -> dict[str, Any]:
    unit = record["unit"]
    values = sweep.values(sweep.index(unit.cell))
    return {
        "sampler": sweep.samplers[unit.sampler],
        "cell": {name: values[name] for name in sweep.axes},
        "block": unit.block, "error": record["error"], "traceback": record["traceback"],
    }  # fmt: skip


@click.command()
@store_argument
@_json
def summary(store: Path, as_json: bool) -> None:
    """Print the means of the sweep in STORE with their confidence intervals."""
    from shaped_attention.sweep.reading import open_sweep
    from shaped_attention.sweep.tables import summary_table

    table = summary_table(open_sweep(store))
    if as_json:
        click.echo(table.to_json(orient="records", indent=2))
    else:
        click.echo(table.to_string(index=False, float_format="{:.5g}".format))


@click.command()
@store_argument
@_json
def verify(store: Path, as_json: bool) -> None:
    """Verify the checksums of all files of the sweep in STORE.

    The exit status is 3 if units are missing or damaged.
    """
    from shaped_attention.sweep.store import Store

    opened = Store(store)
    damaged = sorted(opened.arrays.damaged())
    intact, written = opened.finished(damaged), opened.ledger.units(opened.sweep)
    if as_json:
        fields = {"store": str(store), "units": len(written), "intact": len(intact)}
        click.echo(json.dumps(fields | {"damaged": damaged}, indent=2))
    else:
        for name in damaged:
            click.echo(f"{store / 'data.zarr' / name}: missing or damaged")
        click.echo(f"{store}: {len(intact)} of {len(written)} units are intact")
    if damaged or len(intact) < len(written):
        click.echo(
            f"to compute the others again: {resuming(opened.sweep, store)}; "
            f"to remove only the damaged files: shaped-attention sweep repair {store}",
            err=True,
        )
        raise click.exceptions.Exit(INCOMPLETE)


@click.command()
@store_argument
def repair(store: Path) -> None:
    """Remove damaged files from STORE, so that resume computes their units again.

    `shaped-attention sweep resume STORE` also does this automatically.
    """
    from shaped_attention.sweep.store import Store

    opened = Store(store)
    with opened.locked():
        opened.check_current()
        lost = opened.arrays.damaged()
        units = len(opened.finished(())) - len(opened.finished(lost))
        opened.take_out(lost)
    click.echo(f"{store}: {len(lost)} files missing or damaged, {units} units to compute again")
    if units:
        click.echo(f"to compute them: {resuming(opened.sweep, store)}")
