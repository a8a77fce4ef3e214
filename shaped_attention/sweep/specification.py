"""Specification of a sweep: fixed values, axes, samplers and what to keep."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from shaped_attention.checks import argument_error, did_you_mean, names_code
from shaped_attention.numerics.seeds import canonical, hashed, seed_from
from shaped_attention.sweep.cells import DEFAULTS, Cell, make_cell

FORMAT = 1
"""Version of the files; increased when an older one could be misread."""

MOST_CELLS, MOST_UNITS = 100_000, 1_000_000

Count = Annotated[int, Field(strict=True, ge=1)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


class SweepFaultsError(ValueError):
    """A sweep that cannot run; `faults` has a sentence for each thing wrong with it."""

    def __init__(self, faults: list[str], place: str = "sweep") -> None:
        self.faults = faults
        header = f"{place}: {len(faults)} fault{'s' if len(faults) != 1 else ''}"
        super().__init__("\n".join([header, *(f"  {sentence}" for sentence in faults)]))


class Unit(NamedTuple):
    """Block of `samples` of one sampler, in the cell with these indices along the axes."""

    sampler: str
    cell: tuple[int, ...]
    block: int
    samples: int


class Sweep(BaseModel):
    """Grid of cells, each with samples from one or more samplers.

    Parameters
    ----------
    fixed
        Fixed values by parameter: `layer` ('attention' by default, 'mlp', 'transformer', 'sphere',
        'model', or a function that returns a layer) and its parameters; `tokens` and `rho`, or a
        `covariance`, and `scale`; `width`, `depth` or `horizon`, `step`, `radius`. With the layer
        'model', `config` (as in `model_from_config`), `tokens` or `ids`, and fields of the
        configuration.
    axes
        Values along each axis, by parameter, in the order of the dimensions.
    samplers
        One or more of 'network', 'chain' and 'sde' (by default the last two); for the layers
        'sphere' and 'model', the name of the layer.
    samples, block
        Number of samples per cell and sampler, and of those in a work unit.
    seed
        An integer >= 0.
    keep
        'observables' of each sample, or also its 'V'.
    observables
        Observables to keep; by default those that every cell has.
    fractions
        Times to store, as increasing fractions in [0, 1] of the horizon (for a model, of its
        depth).
    device, dtype
        As in the samplers.
    seconds
        Seconds after which a run starts no further units; None for no limit.

    Raises
    ------
    SweepFaultsError
        If the sweep has faults; the error lists all of them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    fixed: dict[str, Any]
    axes: dict[str, list[Any]] = {}
    samplers: tuple[str, ...] = ("chain", "sde")
    samples: Count = 4096
    block: Count = 1024
    seed: Annotated[int, Field(strict=True, ge=0)] = 0
    keep: Literal["observables", "V"] = "observables"
    observables: tuple[str, ...] = ()
    fractions: tuple[Fraction, ...] = (1.0,)
    device: str = "cpu"
    dtype: Literal["float64", "float32"] = "float64"
    seconds: Annotated[float, Field(gt=0.0)] | None = None

    _functions: dict[str, Callable[..., Any]] = PrivateAttr(default_factory=dict)
    _tokens: int | None = PrivateAttr(default=None)
    _checked: bool = PrivateAttr(default=False)
    _hashes: dict[tuple[int, ...], tuple[int, ...]] = PrivateAttr(default_factory=dict)

    def __init__(
        self, fixed: Mapping[str, Any], axes: Mapping[str, Any] | None = None, **entries: Any
    ) -> None:
        known, functions = list(type(self).model_fields), dict[str, Callable[..., Any]]()
        faults = [
            f"{name} is not an entry of a sweep; {did_you_mean(name, known)}"
            for name in entries
            if name not in known
        ]
        given = {"fixed": fixed, "axes": axes or {}, **entries}
        if isinstance(fixed, Mapping) and fixed.get("layer") in ("model", "sphere"):
            given.setdefault("samplers", fixed["layer"])
        try:
            given = {name: _plain(given[name], functions) for name in known if name in given}
            for name in ("samplers", "observables"):
                if isinstance(given.get(name), str):
                    given[name] = (given[name],)
            super().__init__(**given)
            _read_configurations(self.fixed, self.axes)
        except ValidationError as error:
            for found in error.errors():
                name, needed = ".".join(map(str, found["loc"])), found["msg"]
                needed = needed.removeprefix("Input should be ")
                faults.append(str(argument_error(name, needed, found["input"])))
        except (ValueError, OSError) as error:
            faults.append(str(error))
        if faults:
            raise SweepFaultsError(faults)
        self._functions = functions
        self.check()

    def check(self) -> None:
        """Make every cell, unless that was done; raise SweepFaultsError if there are faults."""
        from shaped_attention.sweep.faults import checked

        if not self._checked:
            faults, sizes, common = checked(self)
            if faults:
                raise SweepFaultsError(faults)
            self._tokens = sizes.pop() if len(sizes) == 1 else None
            vars(self)["observables"] = self.observables or common
            self._checked = True

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of values along the axes."""
        return tuple(len(values) for values in self.axes.values())

    @property
    def blocks(self) -> int:
        """Number of units per cell and sampler."""
        return -(-self.samples // self.block)

    @property
    def unit_count(self) -> int:
        """Number of units."""
        return math.prod(self.shape) * len(self.samplers) * self.blocks

    @property
    def tokens(self) -> int:
        """Number of tokens of all cells, 0 if it differs among them."""
        return self._tokens or 0

    @property
    def layers(self) -> list[Any]:
        """Values of the parameter `layer`; functions are listed by name."""
        return list(self.axes.get("layer", [self.fixed.get("layer", DEFAULTS["layer"])]))

    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """Functions that return layers, by name."""
        return self._functions

    def changed(self, **entries: Any) -> Self:
        """Return the sweep with other entries, of which `fixed` and `axes` are replaced whole."""
        fixed = {name: self._functions.get(str(value), value) for name, value in self.fixed.items()}
        axes = {
            name: [self._functions.get(str(value), value) for value in values]
            for name, values in self.axes.items()
        }
        return type(self)(**{**dict(self), "fixed": fixed, "axes": axes, **entries})

    def with_layer(self, layer: Callable[..., Any]) -> Self:
        """Return the sweep of a file with the function that it names, or raise ValueError."""
        if function_name(layer) not in self.layers:
            raise argument_error("layer", f"{' or '.join(map(str, self.layers))}", layer)
        other = self.model_copy()
        other._functions = {**self._functions, function_name(layer): layer}
        return other

    def indices(self) -> Iterator[tuple[int, ...]]:
        """Yield the indices of the cells along the axes."""
        return product(*map(range, self.shape))

    def point(self, index: tuple[int, ...]) -> dict[str, Any]:
        """Return the values of a cell along the axes."""
        return {name: axis[i] for (name, axis), i in zip(self.axes.items(), index, strict=True)}

    def cell(self, index: tuple[int, ...]) -> Cell:
        """Return a cell; raise ValueError if it cannot be made."""
        values = self.fixed | self.point(index)
        for name, value in values.items():
            for text in filter(names_code, _texts(value)):
                if text not in self._functions:
                    needed = "a function itself: no code that a file names is imported"
                    raise argument_error(name, needed, text)
        layer = values.get("layer", DEFAULTS["layer"])
        return make_cell(values | {"layer": self._functions.get(layer, layer)}, self.samplers)

    def units(self) -> Iterator[Unit]:
        """Yield all units, early blocks of all cells first."""
        for block in range(self.blocks):
            for index, sampler in product(self.indices(), self.samplers):
                yield self.unit(sampler, index, block)

    def unit(self, sampler: str, index: tuple[int, ...], block: int) -> Unit:
        """Return a unit; the last block has the remaining samples."""
        return Unit(sampler, index, block, min(self.block, self.samples - block * self.block))

    def unit_seed(self, unit: Unit) -> int:
        """Return the seed of a unit, from the sweep's seed, the cell's values and the block.

        It depends on values, not on places along the axes, so that a cell has the same samples in
        every grid. Chain and SDE have separate streams under the same seed.
        """
        if unit.cell not in self._hashes:
            self._hashes[unit.cell] = hashed(DEFAULTS | self.fixed | self.point(unit.cell))
        return seed_from(self.seed, self._hashes[unit.cell], unit.block)

    def differing(self, other: Sweep) -> list[str]:
        """Return the entries in which this is not the other sweep with more samples or values."""
        mine, theirs = self.model_dump(), other.model_dump()
        ends = [self.axes.get(name, [])[: len(values)] for name, values in other.axes.items()]
        mine["axes"], theirs["axes"] = [*self.axes, ends], [*other.axes, [*other.axes.values()]]
        mine["samples"] = min(self.samples, other.samples)
        mine["seconds"] = other.seconds
        return [name for name in mine if canonical(mine[name]) != canonical(theirs[name])]

    def to_json(self) -> str:
        """Return the text that a file holds."""
        # The order of the axes is that of the dimensions; sorting would lose it.
        entries = self.model_dump(mode="json") | {"axes": list(self.axes.items())}
        return json.dumps(entries | {"format": FORMAT, "tokens": self.tokens}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the sweep of a file; no cell is made, so that nothing it names is looked at.

        Raises
        ------
        ValueError
            If the text is not one that `to_json` writes.
        """
        try:
            entries = json.loads(text)
            version, tokens = entries.pop("format"), entries.pop("tokens")
            axes, sweep = dict(entries.pop("axes")), cls.__new__(cls)
            # Its own `__init__` would make the cells.
            BaseModel.__init__(sweep, axes=axes, **entries)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
            raise ValueError("its specification is not one that this version writes") from None
        if version != FORMAT or type(tokens) is not int or tokens < 0 or size_fault(sweep):
            raise ValueError(f"its specification is not of format {FORMAT}")
        sweep._tokens = tokens
        return sweep


def size_fault(sweep: Sweep) -> str:
    """Return what is wrong with the number of cells and units, if anything."""
    cells, units = math.prod(sweep.shape), sweep.unit_count
    if cells <= MOST_CELLS and units <= MOST_UNITS:
        return ""
    return (
        f"{cells} cells make {units} units; at most {MOST_CELLS} cells and {MOST_UNITS} units "
        "are possible; use a larger block, fewer samples or fewer values"
    )


def _read_configurations(fixed: dict[str, Any], axes: dict[str, list[Any]]) -> None:
    """Replace configurations of models by their fields, so that a sweep depends on no files."""
    if "model" not in axes.get("layer", [fixed.get("layer")]):
        return
    # Reading a configuration takes most of the package.
    from shaped_attention.sweep.model_cells import config_fields

    if "config" in fixed:
        fixed["config"] = config_fields(fixed["config"])
    if "config" in axes:
        axes["config"] = list(map(config_fields, axes["config"]))


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(part)


def function_name(function: Callable[..., Any]) -> str:
    """Return the name by which a file records a function that returns a layer."""
    return f"{function.__module__}:{function.__qualname__}"


def _plain(value: Any, functions: dict[str, Callable[..., Any]]) -> Any:
    """Return a value without NumPy's types and functions, which are collected by name."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: _plain(entry, functions) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry, functions) for entry in value]
    if callable(value):
        if not inspect.isfunction(value) or "<" in value.__qualname__:
            raise argument_error("layer", "a function at the top level of a module", value)
        functions[function_name(value)] = value
        return function_name(value)
    return value
