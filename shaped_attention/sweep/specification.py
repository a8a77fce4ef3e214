"""Specification of a sweep: fixed values, axes, samplers and what to keep."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from shaped_attention.checks import argument_error, did_you_mean
from shaped_attention.numerics.seeds import canonical, hashed, seed_from
from shaped_attention.sweep.axes import MOST_CELLS, Axis
from shaped_attention.sweep.cells import DEFAULTS, each, kind_of, named, plain, refuse_code

if TYPE_CHECKING:
    from shaped_attention.sweep.cells import Cell

FORMAT = 1
"""Version of the files; increased when an older one could be misread."""

MOST_UNITS = 1_000_000


class SweepFaultsError(ValueError):
    """A sweep that cannot run; `faults` has a sentence for each thing wrong with it."""

    def __init__(self, faults: list[str], place: str = "sweep") -> None:
        self.faults = faults
        header = f"{place}: {len(faults)} fault{'s' if len(faults) != 1 else ''}"
        super().__init__("\n".join([header, *(f"  {sentence}" for sentence in faults)]))


class Unit(NamedTuple):
    """Block of `samples` of one sampler in a cell, whose name is its indices along the axes."""

    sampler: str
    cell: str
    block: int
    samples: int


Count = Annotated[int, Field(strict=True, ge=1)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Names = Annotated[tuple[str, ...], BeforeValidator(lambda x: (x,) if isinstance(x, str) else x)]


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
        Values along each axis, by parameter, in the order of the dimensions: a list, or
        ``{"linspace": [first, last, number]}``, or `logspace` with the ends themselves (not their
        logarithms).
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
    axes: dict[str, Axis] = {}
    samplers: Names = ("chain", "sde")
    samples: Count = 4096
    block: Count = 1024
    seed: Annotated[int, Field(strict=True, ge=0)] = 0
    keep: Literal["observables", "V"] = "observables"
    observables: Names = ()
    fractions: tuple[Fraction, ...] = (1.0,)
    device: str = "cpu"
    dtype: Literal["float64", "float32"] = "float64"
    seconds: Annotated[float, Field(gt=0.0)] | None = None

    _tokens: int = PrivateAttr(default=0)
    _checked: bool = PrivateAttr(default=False)
    _hashes: dict[str, tuple[int, ...]] = PrivateAttr(default_factory=dict)

    def __init__(
        self, fixed: Mapping[str, Any], axes: Mapping[str, Any] | None = None, **entries: Any
    ) -> None:
        if isinstance(fixed, Mapping) and fixed.get("layer") in ("model", "sphere"):
            entries.setdefault("samplers", fixed["layer"])
        try:
            super().__init__(fixed=fixed, axes=axes or {}, **entries)
            self._read_configurations()
        except ValidationError as error:
            raise SweepFaultsError(list(map(_sentence, error.errors()))) from None
        except (ValueError, OSError) as error:
            raise SweepFaultsError([str(error)]) from None
        self.check()

    @field_validator("*", mode="before")
    @classmethod
    def _without_arrays(cls, value: Any) -> Any:
        return each(plain, value)

    @field_serializer("fixed", "axes")
    def _with_names(self, value: dict[str, Any]) -> Any:
        return each(named, value)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if "layer" not in self.axes:
            self.fixed.setdefault("layer", "attention")
        cells, units = math.prod(self.shape), self.unit_count
        if cells > MOST_CELLS or units > MOST_UNITS:
            raise ValueError(
                f"{cells} cells make {units} units; at most {MOST_CELLS} cells and {MOST_UNITS} "
                "units are possible; use a larger block, fewer samples or fewer values"
            )
        return self

    def _read_configurations(self) -> None:
        """Replace configurations of models by their fields, so that a sweep depends on no files."""
        if "model" in self.layers:
            # Reading a configuration takes most of the package.
            from shaped_attention.models.sweep_cells import config_fields

            if "config" in self.fixed:
                self.fixed["config"] = config_fields(self.fixed["config"])
            if "config" in self.axes:
                self.axes["config"] = list(map(config_fields, self.axes["config"]))

    def check(self) -> None:
        """Make every cell, unless that was done; raise SweepFaultsError if there are faults."""
        from shaped_attention.sweep.faults import checked

        if not self._checked:
            self._tokens, vars(self)["observables"] = checked(self)
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
        return self._tokens

    @property
    def layers(self) -> list[Any]:
        """Values of the parameter `layer`."""
        return self.axes.get("layer") or [self.fixed["layer"]]

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Return the functions in the sweep, by the names with which a file records them."""
        values: list[Any] = []
        each(values.append, [self.fixed, self.axes])
        return {named(value): value for value in values if callable(value)}

    def changed(self, **entries: Any) -> Self:
        """Return the sweep with other entries, of which `fixed` and `axes` are replaced whole."""
        return type(self)(**{**dict(self), **entries})

    def with_layer(self, layer: Callable[..., Any]) -> Self:
        """Return the sweep of a file with the function that it names, or raise ValueError."""
        name = named(layer)
        if name not in self.layers:
            raise argument_error("layer", " or ".join(map(str, self.layers)), layer)
        entries = {"fixed": self.fixed, "axes": self.axes}
        return self.model_copy(update=each(lambda x: layer if x == name else x, entries))

    def cells(self) -> Iterator[str]:
        """Yield the names of the cells."""
        return (",".join(map(str, indices)) for indices in product(*map(range, self.shape)))

    def point(self, cell: str) -> dict[str, Any]:
        """Return the values of a cell along the axes, with the names of functions."""
        values = self._values(cell)
        return {name: each(named, values[name]) for name in self.axes}

    def cell(self, cell: str) -> Cell:
        """Return the arguments of the samplers in a cell; raise ValueError if there are none."""
        values = self._values(cell)
        for name, value in values.items():
            each(partial(refuse_code, name), value)
        layer = values["layer"]
        kind = kind_of(layer)
        known = kind.parameters(layer)
        defaults = {name: value for name, value in DEFAULTS.items() if name in known}
        return kind.make(defaults | each(named, values) | {"layer": layer}, self.samplers)

    def _values(self, cell: str) -> dict[str, Any]:
        axes = zip(self.axes.items(), filter(None, cell.split(",")), strict=True)
        return self.fixed | {name: values[int(i)] for (name, values), i in axes}

    def units(self) -> Iterator[Unit]:
        """Yield all units, early blocks of all cells first."""
        for block in range(self.blocks):
            samples = min(self.block, self.samples - block * self.block)
            for cell, sampler in product(self.cells(), self.samplers):
                yield Unit(sampler, cell, block, samples)

    def unit_seed(self, unit: Unit) -> int:
        """Return the seed of a unit, from the sweep's seed, the cell's values and the block.

        It depends on values, not on places along the axes, so that a cell has the same samples in
        every grid. Chain and SDE have separate streams under the same seed.
        """
        if unit.cell not in self._hashes:
            self._hashes[unit.cell] = hashed(DEFAULTS | each(named, self._values(unit.cell)))
        return seed_from(self.seed, self._hashes[unit.cell], unit.block)

    def differing(self, other: Sweep) -> list[str]:
        """Return the entries in which this is not the other sweep with more samples or values."""
        mine, theirs = self.model_dump(), other.model_dump()
        for name, values in other.axes.items():
            mine["axes"][name] = mine["axes"].get(name, [])[: len(values)]
        # The order of the axes is that of the dimensions.
        mine["axes"], theirs["axes"] = [*mine["axes"].items()], [*theirs["axes"].items()]
        mine["samples"] = min(self.samples, other.samples)
        mine["seconds"] = other.seconds
        return [name for name in mine if canonical(mine[name]) != canonical(theirs[name])]

    def to_json(self) -> str:
        """Return the text that a file holds."""
        entries = self.model_dump(mode="json")
        return json.dumps(entries | {"format": FORMAT, "tokens": self.tokens})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the sweep of a file, or raise ValueError if `to_json` does not write such a text.

        No cell is made, so that nothing that the file names is looked at.
        """
        try:
            entries = json.loads(text)
            version, tokens = entries.pop("format"), entries.pop("tokens")
            if version != FORMAT or type(tokens) is not int or tokens < 0:
                raise ValueError("another format")
            sweep = cls.__new__(cls)
            # Its own `__init__` would make the cells.
            BaseModel.__init__(sweep, **entries)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
            raise ValueError("its specification is not one that this version writes") from None
        sweep._tokens = tokens
        return sweep


def _sentence(found: ErrorDetails) -> str:
    """Return a fault that pydantic has found."""
    name = ".".join(map(str, found["loc"])).removeprefix("axes.")
    if found["type"] == "extra_forbidden":
        return f"{name} is not an entry of a sweep; {did_you_mean(name, Sweep.model_fields)}"
    if found["type"] == "value_error":
        return f"{name}: {found['ctx']['error']}".removeprefix(": ")
    needed = found["msg"].removeprefix("Input should be ")
    return str(argument_error(name, needed, found["input"]))
