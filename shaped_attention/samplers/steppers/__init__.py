"""Steppers: what moves a batch of paths by a step, and keeps nothing of them, one file each.

A stepper is one file: a class derived from `SingleStepper`, or from `CompiledStepper` if its code
takes many steps in one call; `Clocked` and `Brownian` are what else some can do. `Paths` of
`shaped_attention.samplers.paths` decides when a path steps, by how much, and where it stops.

The random numbers of a sample depend on its number only, so neither chunks of samples that move
together nor threads change a result.
"""

from __future__ import annotations

import pkgutil
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shaped_attention.numerics.emission import LARGEST_FACTOR
from shaped_attention.numerics.threads import thread_count
from shaped_attention.samplers.memory import chunk_size, of_compiled
from shaped_attention.samplers.specification import Specification
from shaped_attention.samplers.task import Task

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]

SHIFT = 0.5826
"""Distance by which the clock moves a barrier, in standard deviations of a step."""

NEAR = 0.25
"""Traces of V, in units of the radius, above which the shift is computed."""

PREFERRED_ON_DEVICE = 2**20
"""Number of paths that fill any device many times over, if its memory holds them."""

_SMALLEST_ENTRIES = 2**11
"""Below this size, the interpreter time of a chunk outweighs a second thread's gain (measured)."""

_PREFERRED_BY_CLOCK = 2**15
"""Number of paths: the last few, near an explosion, take the time of a whole tile."""

_PREFERRED_BY_TORCHSDE, _SMALLEST_BY_TORCHSDE = 2**17, 2**14
"""Entries of the factors in a chunk: they hide torchsde's cost per step and fit into the cache."""


@dataclass
class Batch:
    """Paths with consecutive numbers; see `shaped_attention.samplers.paths.Paths`.

    Arrays have a row for each path, and further rows that complete what a stepper moves at once.
    `state`, `alive` and `stopped_at` are arrays of the stepper (numpy, or torch on a device), the
    others are numpy's.

    Attributes
    ----------
    first, count
        The numbers of the paths are first, ..., first + count - 1.
    state
        Factors of V, as the stepper arranges them.
    grid, left
        Number of the last grid point, and time left to the next one.
    taken
        Number of steps taken: with the number of the path it is the address of the next numbers.
    alive, stopped_at
        Whether a path moves, and the time at which it stopped: infinite if it has not, and NaN if a
        step was not a number.
    largest
        Largest speed before a step.
    slots, stored
        Where the states of paths are copied that arrive at a grid point, -1 for nowhere, and the
        copies.
    work
        Memory that the stepper reuses from step to step.
    """

    first: int
    count: int
    state: Any
    grid: Indices
    left: Array
    taken: Indices
    alive: Any
    stopped_at: Any
    largest: Array
    slots: Indices
    stored: Array
    work: Any


class Stepper(ABC):
    """Mover of batches of paths with a task, on arrays of numpy or of torch."""

    name: ClassVar[str] = "torch"
    """What moves the paths, in words."""

    gives_entropies: ClassVar[bool] = False
    """Whether the workspace has the entropies of the attention, if the task has weights."""

    xp: ClassVar[Any] = np
    """The library of the arrays, of which `where` and `isnan` are used."""

    host_waits: bool = True
    """Whether it is known without waiting for a device which paths move."""

    largest_factor = LARGEST_FACTOR
    """Sum of absolute entries of a state at which a path of the limit stops."""

    bytes_of_all = 0.0
    """Bytes that a run takes besides those of its paths."""

    preferred_chunk = 1024
    """Number of paths whose factors fit into the second-level cache for the usual m."""

    together = 64
    """Chunks are multiples of this number of paths."""

    divisor = 1.0
    """V is the mean of F_g F_g^T over the groups, divided by this."""

    def __init__(self, task: Task) -> None:
        self.task = task

    @property
    def clock(self) -> bool:
        """Whether steps are shorter than the grid where paths are fast."""
        return self.task.method == "clock"

    def bytes_of_one(self, spec: Specification) -> float:
        """Return the bytes that a path of a run takes where it moves."""
        return of_compiled(spec, self.task.method)

    def chunk(self, spec: Specification) -> int:
        """Return how many paths of a run move together."""
        square = spec.tokens**2
        if self.clock:
            preferred, smallest = _PREFERRED_BY_CLOCK, max(1, _SMALLEST_ENTRIES // square)
        elif self.task.method == "torchsde":
            preferred = max(1, _PREFERRED_BY_TORCHSDE // square)
            smallest = _SMALLEST_BY_TORCHSDE // square
        else:
            preferred, smallest = self.preferred_chunk, _SMALLEST_ENTRIES // square
        return chunk_size(spec, self.bytes_of_one(spec), preferred, self.together, smallest)

    def rows(self, count: int) -> int:
        """Return how many rows move `count` paths."""
        return count

    def workspace(self) -> Any:
        """Return memory for the steps of a batch."""
        return None

    @abstractmethod
    def array(self, values: NDArray[Any]) -> Any:
        """Return an array of this stepper."""

    @abstractmethod
    def on_host(self, values: Any) -> NDArray[Any]:
        """Return an array of numpy; the host waits for a device."""

    @abstractmethod
    def arranged(self, factors: Array) -> Any:
        """Return a state with given factors (rows, groups, m, c)."""

    @abstractmethod
    def factors(self, state: Any) -> Array:
        """Return the factors (rows, groups, m, c) of a state."""

    def shared(self, values: Array | float) -> Any:
        """Return values of all rows for `where`, or the number if they are equal."""
        values = np.asarray(values)
        first = values.flat[0]
        return float(first) if (values == first).all() else self.array(values)

    def starting(self, states: Array) -> Array:
        """Return the states (count, groups, m, c) in which paths with given factors start."""
        return states


class SingleStepper(Stepper):
    """A stepper that takes one step in a call."""

    @abstractmethod
    def moved(self, batch: Batch, moving: Any, lengths: Array, point: int) -> Any:
        """Return the states after a step from a grid point; rows that do not move are arbitrary."""

    @abstractmethod
    def norms(self, batch: Batch, moving: Any, least: float) -> Any:
        """Return the Frobenius norms of V (rows,), or 0 where they are certainly below `least`."""

    @abstractmethod
    def absolute_sums(self, state: Any) -> Any:
        """Return the sums of absolute entries (rows,) in double precision."""


class Clocked(ABC):
    """What a stepper that takes single steps by the clock knows of the limit."""

    @abstractmethod
    def speed(self, batch: Batch, moving: Any, point: int) -> Array:
        """Return by how much steps are shorter at a grid point (rows,)."""

    @abstractmethod
    def spread(self, batch: Batch, moving: Any, point: int) -> Array:
        """Return the variance rate of log |V| (rows,)."""


class Brownian(ABC):
    """Steps of the limit apart, for integrators and for paths with common numbers."""

    @abstractmethod
    def brownian_shape(self, batch: Batch) -> tuple[int, int]:
        """Return the rows and entries of the increments of a step."""

    @abstractmethod
    def increments(self, batch: Batch, step: int) -> Any:
        """Return the Brownian increments of a step, valid until the next call."""

    @abstractmethod
    def drift_and_noise(
        self, batch: Batch, moving: Any, increments: Any, point: int
    ) -> tuple[Any, Any]:
        """Return drift times step, and noise, of the limit."""


class HostStepper(Stepper):
    """A stepper on arrays of numpy, whose states are factors (rows, groups, m, c)."""

    def array(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the array."""
        return values

    def on_host(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the array."""
        return values

    def arranged(self, factors: Array) -> Array:
        """Return a copy."""
        return np.array(factors, dtype=np.float64, order="C")

    def factors(self, state: Array) -> Array:
        """Return the state."""
        return state


class CompiledStepper(Stepper):
    """Compiled code that takes many steps in one call, and does the bookkeeping of `Paths`."""

    @abstractmethod
    def advance(self, batch: Batch, moves: Mask, end: int, budget: int) -> bool:
        """Move paths towards a grid point; return whether the whole budget was used."""


def threads_of_a_chunk(spec: Specification, size: int) -> int:
    """Return how many threads share the work of a chunk: those that no other chunk uses."""
    return max(1, thread_count(spec.place) // -(-spec.samples // size))


def completed(rows: NDArray[Any], size: int) -> NDArray[Any]:
    """Return `size` rows: the given ones, then copies of the first."""
    return np.concatenate([rows, np.repeat(rows[:1], size - len(rows), axis=0)])


def stepper_of(spec: Specification, task: Task) -> Stepper:
    """Return what moves the paths of a run of the chain or of the limit.

    The other files of this folder are asked in the order of their names: the function `stepper_of`
    of each returns its stepper, or None if it leaves the run to those after it, which are not
    loaded.
    """
    for name in _modules():
        of_module = getattr(import_module(name), "stepper_of", None)
        stepper: Stepper | None = of_module(spec, task) if of_module else None
        if stepper is not None:
            return stepper
    raise LookupError(f"no stepper can run {task}")


@cache
def _modules() -> list[str]:
    """Return the names of the other files of this folder, in order; listing them reads the disk."""
    return [module.name for module in pkgutil.iter_modules(__path__, f"{__name__}.")]
