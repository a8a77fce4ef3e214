"""Larger sweeps in the same store: more samples per cell, more values on the axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shaped_attention.checks import argument_error, check_count, did_you_mean, with_types
from shaped_attention.numerics.seeds import canonical
from shaped_attention.sweep.specification import Sweep, plain_values
from shaped_attention.sweep.specification_faults import SweepFaultsError, size_faults
from shaped_attention.sweep.store import Store
from shaped_attention.sweep.store_records import kept_sweep


@with_types
def extend_sweep(
    path: str | Path,
    *,
    samples: int | None = None,
    axes: Mapping[str, Sequence[Any]] | None = None,
) -> Sweep:
    """Extend the sweep of a store by more samples, more values on its axes, or both.

    Nothing is run: `resume_sweep` runs what is missing. The samples of each cell are then
    bit-identical to those in a new store of the larger sweep with the same `block`. If the last
    block was smaller than `block`, more samples enlarge it: its samples are deleted at once, and
    computed again later. Whenever the process dies, the extension is either complete or absent. A
    Dataset opened before the extension must be opened again.

    Parameters
    ----------
    path
        Folder of the store.
    samples
        Number of samples per cell and sampler, larger than before.
    axes
        Values to append, by axis, of the same type as those on the axis.

    Returns
    -------
    The larger sweep.

    Raises
    ------
    ValueError
        If the number of samples is smaller, a value is already on its axis or has another type, an
        axis is unknown, a cell cannot run, or the store names code.
    StoreError
        If there is no store, a run is writing to it, or it cannot be written.
    """
    further = {} if axes is None else axes
    if not isinstance(further, Mapping):
        raise argument_error("axes", "a mapping from names of axes to lists of values", axes)
    store = Store(path)
    with store.locked():
        store.check_current()
        sweep = kept_sweep(store.path)
        sweep.check_own_code()
        larger = _larger(sweep, samples, further)
        store.extend(larger)
    return store.sweep


def _larger(sweep: Sweep, samples: int | None, further: Mapping[str, Any]) -> Sweep:
    """Return the larger sweep, or raise ValueError with one sentence."""
    if samples is None and not further:
        raise ValueError("samples, axes: give at least one of the two")
    wanted = sweep.samples if samples is None else samples
    check_count("samples", wanted)
    if wanted < sweep.samples or (wanted == sweep.samples and not further):
        raise argument_error("samples", f"more than the store's {sweep.samples}", wanted)
    axes = {name: list(values) for name, values in sweep.axes.items()}
    for name, values in further.items():
        if name not in axes:
            known = did_you_mean(name, axes) if axes else "the sweep has no axes"
            raise ValueError(f"{name} is not an axis of the sweep; {known}")
        if isinstance(values, str | Mapping) or not hasattr(values, "__len__") or not len(values):
            raise argument_error(name, "a list of values", values)
        for value in map(plain_values, values):
            if canonical(value) in map(canonical, axes[name]):
                raise argument_error(name, "new to the axis", value)
            kinds = {_kind(old) for old in sweep.axes[name]}
            if _kind(value) not in kinds:
                needed = " or ".join(sorted(kinds))
                raise argument_error(name, f"{needed}, as on the axis", value)
            axes[name].append(value)
    try:
        larger = replace(sweep, samples=wanted, axes=axes, written=False)
        if faults := size_faults(larger):
            raise SweepFaultsError(faults)
    except SweepFaultsError as error:
        raise ValueError(error.sentence) from None
    if lost := set(sweep.observed).difference(larger.observed):
        # Only an axis that changes the number of tokens is to blame.
        names = [
            name
            for name in further
            if replace(larger, axes={**sweep.axes, name: axes[name]}).observed != sweep.observed
        ]
        blamed = ", ".join(f"{name}={plain_values(further[name])}" for name in names)
        first = next(name for name in sweep.observed if name in lost)
        raise ValueError(f"{blamed}: the store keeps {first!r}, which these cells lack")
    return larger


def _kind(value: Any) -> str:
    """Return the type of a value as TOML has it, in words."""
    kinds = {bool: "true or false", int: "a number", float: "a number", str: "text",
             dict: "a table", list: "a list"}  # fmt: skip
    return kinds.get(type(value), "None")
