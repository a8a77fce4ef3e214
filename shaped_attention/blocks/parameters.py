"""Parameters as a description sees them: numbers that may change with depth.

Fields that are numbers or a `Schedule` reach the functions of a block through `Parameters`, never
through `self`. In torch they are the numbers of one layer, or tensors with a gradient; in a trace
they are `Scalar`, so that one program serves all layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from shaped_attention.checks import (
    argument_error,
    check_finite,
    check_fraction,
    check_nonnegative,
    check_range,
    check_skip,
)
from shaped_attention.libraries import Tensor
from shaped_attention.numerics.graph import Extended, Operand
from shaped_attention.numerics.scalars import Scalar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
else:
    DataclassInstance = object

B = TypeVar("B", bound=DataclassInstance)


@dataclass(frozen=True)
class Schedule:
    """A parameter that changes with depth: a piecewise linear function of l / L in [0, 1].

    Layer l = 0, ..., L - 1 uses the value at l / L, and the limit the value at t / T.

    Parameters
    ----------
    knots
        Pairs (relative depth, value), with depths strictly increasing from 0 to 1.

    Raises
    ------
    ValueError
        If there are fewer than two knots, a depth or value is not a finite number, or the depths
        do not strictly increase from 0 to 1.

    Examples
    --------
    >>> Schedule([(0.0, 0.2), (1.0, 0.6)]).at(0.5)
    0.4
    """

    knots: Any

    def __post_init__(self) -> None:
        knots = self.knots
        try:
            pairs = tuple((float(x), float(y)) for x, y in knots)
        except (TypeError, ValueError):
            requirement = "pairs (relative depth, value) of numbers"
            if callable(knots):
                requirement += ", such as [(s, f(s)) for s in (0.0, 0.5, 1.0)]"
            raise argument_error("knots", requirement, knots) from None
        if len(pairs) < 2 or not all(math.isfinite(y) for _, y in pairs):
            raise argument_error("knots", "two or more, with finite values", knots)
        depths = [x for x, _ in pairs]
        rising = all(a < b for a, b in pairwise(depths))
        if not (rising and depths[0] == 0.0 and depths[-1] == 1.0):
            raise argument_error("knots", "at relative depths that increase from 0 to 1", knots)
        object.__setattr__(self, "knots", pairs)

    @property
    def values(self) -> tuple[float, ...]:
        """Values at the knots, in order of depth."""
        return tuple(y for _, y in self.knots)

    def at(self, depth: Any) -> Any:
        """Return the value at relative depths in [0, 1]."""
        result = np.interp(depth, [x for x, _ in self.knots], self.values)
        return float(result) if np.ndim(depth) == 0 else result


if TYPE_CHECKING:
    Width: TypeAlias = int
    """Number of columns; while a limit is derived, a series in the width."""
else:
    Width = int | Operand

Parameter: TypeAlias = float | int | Schedule
"""The type of a block's field that may change with depth."""


def extremes(parameter: Parameter) -> tuple[float | int, ...]:
    """Return the values to check: those at all knots of a schedule, or the number itself."""
    return parameter.values if isinstance(parameter, Schedule) else (parameter,)


def value_at(parameter: Parameter, depth: Any) -> Any:
    """Return the value of a parameter at relative depths."""
    if isinstance(parameter, Schedule):
        return parameter.at(depth)
    return parameter if np.ndim(depth) == 0 else np.full(np.shape(depth), float(parameter))


def depths_of(*parameters: Parameter | None) -> list[float]:
    """Return the relative depths between which all these parameters are linear."""
    knots = [x.knots for x in parameters if isinstance(x, Schedule)]
    return sorted({0.0, 1.0, *(depth for pairs in knots for depth, _ in pairs)})


def blocks_in(value: Any) -> tuple[Any, ...]:
    """Return the blocks that a field holds: itself, those of a tuple, or none."""
    values = value if isinstance(value, tuple) else (value,)
    # Without an import of `base`, which imports this module.
    return values if all(callable(getattr(x, "branch", None)) for x in values) else ()


def like(value: Any, blocks: Sequence[Any]) -> Any:
    """Return new blocks in the place of those that a field holds."""
    return tuple(blocks) if isinstance(value, tuple) else blocks[0]


def blocks_inside(block: DataclassInstance) -> list[Any]:
    """Return the blocks that the fields of a block hold."""
    return [x for entry in fields(block) for x in blocks_in(getattr(block, entry.name))]


def scheduled(block: DataclassInstance) -> bool:
    """Return whether a parameter of a block, or of a block inside it, changes with depth."""
    values = [getattr(block, entry.name) for entry in fields(block)]
    values += [x for value in values if isinstance(value, tuple) for x in value]
    return any(isinstance(x, Schedule) or any(map(scheduled, blocks_in(x))) for x in values)


def resolved(block: B, depth: float) -> B:
    """Return a block whose schedules are replaced by their values at a relative depth."""
    changes: dict[str, Any] = {}
    for entry in fields(block):
        value = getattr(block, entry.name)
        if isinstance(value, Schedule):
            changes[entry.name] = value.at(depth)
        elif inner := blocks_in(value):
            changes[entry.name] = like(value, [resolved(x, depth) for x in inner])
    return replace(block, **changes) if changes else block


class Parameters:
    """The parameters of a block, as attributes with the names of its fields.

    The value of a field is the tensor, or the rows, in `tensors` under its name, if any. Otherwise
    a float or a `Schedule` is passed through `lookup`, and a block or a tuple of blocks gives
    `Parameters`.
    """

    def __init__(
        self,
        block: DataclassInstance,
        lookup: Callable[[Parameter], Any],
        tensors: Mapping[str, Any] | None = None,
    ) -> None:
        self._block, self._lookup, self._tensors = block, lookup, tensors or {}

    def __getattr__(self, name: str) -> Any:
        replacement = self._tensors.get(name)
        if isinstance(replacement, Tensor | Extended):
            return replacement
        field = getattr(self._block, name)
        if isinstance(field, float | Schedule):
            return self._lookup(field)
        if inner := blocks_in(field):
            tensors = replacement if isinstance(field, tuple) else [replacement]
            pairs = zip(inner, tensors or [None] * len(inner), strict=True)
            return like(field, [Parameters(x, self._lookup, each) for x, each in pairs])
        return field

    def as_scalars(self) -> Parameters:
        """Return the same parameters as scalars of a trace."""
        return traced(self._block)


def scheduled_tensors(
    block: DataclassInstance, depth: float, make: Callable[[float, Scalar], Tensor]
) -> dict[str, Any]:
    """Return tensors in the place of the parameters that change with depth, as `at_depth` takes.

    `make` returns one, from the value at the relative depth and the formula.
    """
    tensors: dict[str, Any] = {}
    for entry in fields(block):
        value = getattr(block, entry.name)
        if isinstance(value, Schedule):
            tensors[entry.name] = make(value.at(depth), _scalar(value))
        elif inner := blocks_in(value):
            tensors[entry.name] = like(value, [scheduled_tensors(x, depth, make) for x in inner])
    return tensors


def _scalar(parameter: Parameter) -> Scalar:
    name = repr(parameter) if isinstance(parameter, float) else parameter
    return Scalar(lambda depths: value_at(parameter, depths), (Parameters, name))


def traced(block: DataclassInstance) -> Parameters:
    """Return the parameters as scalars of a trace."""
    return Parameters(block, _scalar)


def at_depth(
    block: DataclassInstance, depth: float, tensors: Mapping[str, Any] | None = None
) -> Parameters:
    """Return the parameters as numbers at a relative depth, or the `tensors` instead."""
    return Parameters(block, lambda parameter: value_at(parameter, depth), tensors)


def plain_fields(block: DataclassInstance) -> None:
    """Turn NumPy scalars in the fields of a frozen dataclass into Python's numbers.

    A result stores Python's numbers, and a rerun must be bit-identical: NumPy would compute with a
    float32 scalar in single precision.
    """
    for entry in fields(block):
        value = getattr(block, entry.name)
        if isinstance(value, np.generic):
            object.__setattr__(block, entry.name, value.item())


def check_parameter(name: str, parameter: Parameter, check: Callable[[str, float], None]) -> None:
    """Check a number, or every knot of a schedule."""
    for entry in _values_of(name, parameter):
        check(name, entry)


def _values_of(name: str, parameter: Any) -> tuple[float | int, ...]:
    """Return the values to check; a function of depth, or a list of values, is no parameter."""
    if callable(parameter) or isinstance(parameter, list | tuple | np.ndarray):
        requirement = (
            "a number, or sa.Schedule([(s, value), ...]) with values at relative depths "
            "s = l / L = t / T from 0 to 1, linear in between"
        )
        raise argument_error(name, requirement, parameter)
    return extremes(parameter)


def bounded(
    low: float = -math.inf,
    high: float = math.inf,
    *,
    above: float | None = None,
    default: Any = MISSING,
) -> Any:
    """Return a field of a block: a number or a `Schedule`, in [low, high], or above `above`.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from shaped_attention import Block
    >>> @dataclass(frozen=True)
    ... class Scaled(Block):
    ...     gamma: float = bounded(0.0, 1.0)
    ...     tau0: float = bounded(above=0.0, default=1.0)
    ...     def branch(self, p, tokens, project): ...
    >>> Scaled(gamma=1.5)
    Traceback (most recent call last):
    ValueError: gamma must be in [0, 1]; got 1.5
    """
    return field(default=default, metadata={_RANGE: (low, high, above)})


_RANGE = "range"


def check_ranges(block: DataclassInstance) -> None:
    """Raise ValueError unless the fields of a block are in the ranges that `bounded` declares."""
    for entry in fields(block):
        if _RANGE not in entry.metadata:
            continue
        low, high, above = entry.metadata[_RANGE]
        for value in _values_of(entry.name, getattr(block, entry.name)):
            check_finite(entry.name, value)
            check_range(entry.name, value, low, high)
            if above is not None and not value > above:
                raise argument_error(entry.name, f"above {above:g}", value)


def ranges_of(block: DataclassInstance) -> dict[str, tuple[float, float]]:
    """Return the open ranges that `bounded` declares, by the name of the field."""
    declared = {x.name: x.metadata[_RANGE] for x in fields(block) if _RANGE in x.metadata}
    return {
        name: (low if above is None else max(low, above), high)
        for name, (low, high, above) in declared.items()
    }


def check_weights(gamma: Parameter, skip: Parameter | None) -> None:
    """Check the weights of a branch and of its skip connection.

    Raises
    ------
    ValueError
        If gamma is outside [0, 1], or negative where `skip` is given, or `skip` is not finite.
    """
    check_skip(skip)
    check_parameter("gamma", gamma, check_fraction if skip is None else check_nonnegative)
