"""Specification of a sweep: fixed values, axes, samplers and what to keep."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import KW_ONLY, InitVar, asdict, dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from shaped_attention.checks import names_code
from shaped_attention.numerics.seeds import canonical
from shaped_attention.results.provenance import plain
from shaped_attention.sweep.grid import Grid, Target
from shaped_attention.sweep.specification_faults import SweepFaultsError, faults_of, type_faults

FORMAT = 5
"""Version of the layout of stores; increased when an old store could be misread."""

_BLOCK = 1024


@dataclass(frozen=True)
class Sweep(Grid):
    """Grid of cells, each with samples from one or more samplers.

    Parameters
    ----------
    fixed
        Fixed values by parameter: `layer` ('attention' by default, 'mlp', 'transformer', 'sphere',
        'model', or 'module:function') and its parameters; `tokens` and `rho`, or a `covariance`,
        and `scale`; `width`, `depth` or `horizon`, `step`, `radius`. With the layer 'model',
        `config` (as in `model_from_config`), `tokens` or `ids`, and fields of the configuration.
    axes
        Values along each axis, by parameter, in the order of the store's dimensions.
    samplers
        One or more of 'network', 'chain' and 'sde'; for the layers 'sphere' and 'model', the name
        of the layer.
    samples, block
        Number of samples per cell and sampler (an upper bound if there is a target), and per work
        unit; by default `block` is 1024, or `samples` if that is smaller.
    seed
        An integer >= 0.
    keep
        What to keep: 'observables' or 'V' of each sample, or 'reductions' (moments, histograms).
    names
        Observables to keep; by default those that every cell has.
    fractions
        Times to store, as increasing fractions in [0, 1] of the horizon (for a model, of its
        depth).
    device, dtype
        As in the samplers.
    target
        Precision at which a cell stops early; None for all `samples`.
    seconds
        Seconds after which a run starts no further units; None for no limit.
    written
        Whether the sweep is read from a store. Its cells are then not checked, because they were
        checked when the store was made, and checking them might run code that the store names.

    Raises
    ------
    SweepFaultsError
        If the sweep has faults; the error lists all of them.
    """

    _: KW_ONLY
    written: InitVar[bool] = False

    def __post_init__(self, written: bool) -> None:
        # `replace` passes it on.
        object.__setattr__(self, "written", written)
        if self.block is None:
            whole = isinstance(self.samples, int) and self.samples > 0
            object.__setattr__(self, "block", min(_BLOCK, self.samples) if whole else _BLOCK)
        if faults := type_faults(self):
            raise SweepFaultsError(faults)
        for name in ("samplers", "names", "fractions"):
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))
        if isinstance(self.target, Mapping):
            object.__setattr__(self, "target", Target(**self.target))
        fixed = {name: plain_values(value) for name, value in self.fixed.items()}
        if "config" in fixed:
            # To read a configuration takes most of the package.
            from shaped_attention.sweep.model_cells import config_fields

            try:
                fixed["config"] = config_fields(fixed["config"])
            except (ValueError, OSError) as error:
                raise SweepFaultsError([str(error)]) from None
        axes = {name: list(map(plain_values, values)) for name, values in self.axes.items()}
        object.__setattr__(self, "fixed", fixed)
        object.__setattr__(self, "axes", axes)
        if faults := faults_of(self, written):
            raise SweepFaultsError(faults)

    def to_json(self) -> str:
        """Return canonical text, equal for equal sweeps; the order of the axes counts.

        What follows from the cells (numbers of tokens, costs, horizon, observables) is included, so
        that a store can be read, repaired and enlarged without its layer functions.
        """
        of_cells: dict[str, Any] = {"tokens": sorted(self.tokens), "observed": self.observed}
        of_cells |= {"costs": self.costs.tolist(), "horizon": self.horizon}
        entries = {"format": FORMAT, "cells": of_cells} | self._entries()
        return json.dumps(entries, sort_keys=True, default=plain)

    def _entries(self) -> dict[str, Any]:
        # The order of the axes is that of the store's dimensions; sorting would lose it.
        return asdict(self) | {"axes": [[name, axis] for name, axis in self.axes.items()]}

    def differing(self, other: Sweep) -> list[str]:
        """Return the entries in which two sweeps differ, except those that may differ."""
        entries, others = self._entries(), other._entries()
        return [
            name
            for name, value in entries.items()
            if name not in _FREE and canonical(value) != canonical(others[name])
        ]

    def enlarges(self, other: Sweep) -> bool:
        """Return whether this is the other sweep with more samples or values appended to axes."""
        longer = list(self.axes) == list(other.axes) and all(
            canonical(self.axes[name][: len(values)]) == canonical(values)
            for name, values in other.axes.items()
        )
        same = set(self.differing(other)) <= {"samples", "axes"}
        return same and longer and self.samples >= other.samples

    @classmethod
    def from_json(cls, text: str) -> Sweep:
        """Return the sweep that `to_json` wrote."""
        values = json.loads(text)
        values["axes"] = dict(values["axes"])
        sweep = cls(**{entry.name: values[entry.name] for entry in fields(cls)}, written=True)
        of_cells = values["cells"]
        vars(sweep).update(
            tokens=set(of_cells["tokens"]), observed=tuple(of_cells["observed"]),
            costs=np.array(of_cells["costs"]), horizon=of_cells["horizon"],
        )  # fmt: skip
        return sweep

    def with_limits(self, seconds: float | None, target: Mapping[str, Any] | None) -> Sweep:
        """Return the sweep with another time limit and target, which change no number."""
        return self.unchecked(seconds=seconds, target=None if target is None else Target(**target))

    def unchecked(self, **entries: Any) -> Sweep:
        """Return the sweep with other entries that keep its cells, without checking them again."""
        sweep = object.__new__(Sweep)
        vars(sweep).update({k: v for k, v in vars(self).items() if k != "digest"} | entries)
        return sweep

    def check_own_code(self) -> None:
        """Raise ValueError if a sweep from a disk names code, as its layer or anywhere else."""
        values = [self.fixed, *self.axes.values()]
        while values:
            value = values.pop()
            if names_code(value):
                raise ValueError(
                    f"the store names {value}, and no file may choose the code that runs; to go on "
                    "with it, run its TOML file again"
                )
            if isinstance(value, Mapping):
                values += [x for name, x in value.items() if name != "position_bias"]
            elif isinstance(value, list | tuple):
                values += value

    @cached_property
    def digest(self) -> str:
        """Digest of the entries that determine the numbers: all but time limits and targets."""
        relevant = {k: v for k, v in self._entries().items() if k not in _FREE}
        text = json.dumps(relevant, sort_keys=True, default=plain)
        return hashlib.sha256(text.encode()).hexdigest()


_FREE = ("seconds", "target")
"""Entries that may change from run to run."""


def plain_values(value: Any) -> Any:
    """Return a value, or the list of an axis, without NumPy's types."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [plain_values(entry) for entry in value] if isinstance(value, list | tuple) else value
