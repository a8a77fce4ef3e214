"""Steppers: a specification made concrete, with the code of a step, its memory, and its chunks.

A stepper moves paths and keeps nothing of them. If it takes single steps, `Paths` of
`shaped_attention.samplers.paths` decides when a path steps, by how much, and where it stops; code
that takes many in one call decides this itself.

The random numbers of a sample depend on its number only, so neither chunks of samples that move
together nor threads change a result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from shaped_attention.numerics.emission import LARGEST_FACTOR
from shaped_attention.numerics.threads import thread_count
from shaped_attention.samplers.memory import chunk_size, of_compiled
from shaped_attention.samplers.specification import Specification

if TYPE_CHECKING:
    from shaped_attention.samplers.paths import Paths

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Numpy: TypeAlias = NDArray[Any]

Rate: TypeAlias = Literal["speed", "spread"]

X = TypeVar("X")
"""The arrays of a stepper: those of numpy, or tensors of torch."""

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


class Stepper(ABC, Generic[X]):
    """What moves the paths of a specification, on arrays of numpy or of torch."""

    name: ClassVar[str] = "torch"
    """What moves the paths, in words."""

    gives_entropies: ClassVar[bool] = False
    """Whether the workspace has the entropies of the attention, if `weights` are asked for."""

    xp: ClassVar[Any] = np
    """The library of the arrays, of which `where` and `isnan` are used."""

    host_waits: bool = True
    """Whether it is known without waiting for a device which paths move."""

    largest_factor = LARGEST_FACTOR
    """Sum of absolute entries of a state at which a path of the limit stops."""

    preferred_chunk = 1024
    """Number of paths whose factors fit into the second-level cache for the usual m."""

    together = 64
    """Chunks are multiples of this number of paths."""

    divisor = 1.0
    """V is the mean of F_g F_g^T over the groups, divided by this."""

    def __init__(self, spec: Specification) -> None:
        self.spec = spec

    @property
    def clock(self) -> bool:
        """Whether steps are shorter than the grid where paths are fast."""
        return self.spec.method == "clock"

    def bytes_of_one(self) -> float:
        """Return the bytes that a path takes where it moves."""
        return of_compiled(self.spec)

    def chunk(self) -> int:
        """Return how many paths move together."""
        square = self.spec.tokens**2
        if self.clock:
            preferred, smallest = _PREFERRED_BY_CLOCK, max(1, _SMALLEST_ENTRIES // square)
        elif self.spec.method == "torchsde":
            preferred = max(1, _PREFERRED_BY_TORCHSDE // square)
            smallest = _SMALLEST_BY_TORCHSDE // square
        else:
            preferred, smallest = self.preferred_chunk, _SMALLEST_ENTRIES // square
        return chunk_size(self.spec, self.bytes_of_one(), preferred, self.together, smallest)

    @cached_property
    def threads(self) -> int:
        """Number of threads that share the work of a chunk: those that no other chunk uses."""
        chunks = -(-self.spec.samples // self.chunk())
        return max(1, thread_count(self.spec.place) // chunks)

    def rows(self, count: int) -> int:
        """Return how many rows move `count` paths."""
        return count

    def workspace(self) -> Any:
        """Return what the steps of paths reuse."""
        return None

    @abstractmethod
    def array(self, values: Numpy) -> X:
        """Return an array of this stepper."""

    @abstractmethod
    def on_host(self, values: X) -> Numpy:
        """Return an array of numpy; the host waits for a device."""

    @abstractmethod
    def arranged(self, factors: Array) -> X:
        """Return a state with given factors (rows, groups, m, c)."""

    @abstractmethod
    def factors(self, state: X) -> Array:
        """Return the factors (rows, groups, m, c) of a state."""

    def shared(self, values: Array | float) -> X | float:
        """Return values of all rows for `where`, or the number if they are equal."""
        values = np.asarray(values)
        first = values.flat[0]
        return float(first) if (values == first).all() else self.array(values)

    def starting(self, states: Array) -> Array:
        """Return the states (count, groups, m, c) in which paths with given factors start."""
        return states

    @abstractmethod
    def advance(self, paths: Paths, moves: Mask, end: int, budget: int) -> bool:
        """Move paths towards a grid point; return whether the whole budget was used."""

    def norms(self, paths: Paths, moving: X, least: float) -> X:
        """Return the Frobenius norms of V (rows,), or 0 where they are certainly below `least`."""
        factors = self.factors(paths.state)
        return self.array(np.linalg.norm((factors @ factors.mT).mean(axis=1), axis=(1, 2)))

    def absolute_sums(self, state: X) -> X:
        """Return the sums of absolute entries (rows,) in double precision."""
        return self.array(np.abs(self.factors(state)).sum((-3, -2, -1)))

    def rate(self, name: Rate, paths: Paths, moving: X, point: int) -> Array:
        """Return what the clock asks for at a grid point (rows,); 0 for fixed steps.

        It is the speed, by which steps are shorter, or the spread, the variance rate of log |V|.
        """
        return np.zeros(len(paths.grid))


AnyStepper: TypeAlias = Stepper[Any]
"""A stepper on arrays of either library, whose arrays have no type in common."""


class SingleStepper(Stepper[X]):
    """A stepper that takes one step in a call, for which `Paths` decides where paths stop."""

    @abstractmethod
    def moved(self, paths: Paths, moving: X, lengths: Array, point: int) -> X:
        """Return the states after a step from a grid point; rows that do not move are arbitrary."""

    def advance(self, paths: Paths, moves: Mask, end: int, budget: int) -> bool:
        """Take one step."""
        paths.step(self.moved, moves)
        return False


class SplitStepper(Stepper[X]):
    """A stepper of the limit that gives drift and noise of a step, for integrators."""

    @abstractmethod
    def drift_and_noise(self, paths: Paths, moving: X, point: int) -> tuple[X, X]:
        """Return drift times step, and noise."""


class HostStepper(Stepper[Numpy]):
    """A stepper on arrays of numpy, whose states are factors (rows, groups, m, c)."""

    def array(self, values: Numpy) -> Numpy:
        """Return the array."""
        return values

    def on_host(self, values: Numpy) -> Numpy:
        """Return the array."""
        return values

    def arranged(self, factors: Array) -> Array:
        """Return a copy."""
        return np.array(factors, dtype=np.float64, order="C")

    def factors(self, state: Numpy) -> Array:
        """Return the state."""
        return state


def completed(rows: Array, size: int) -> Array:
    """Return `size` rows: the given ones, then copies of the first."""
    return np.concatenate([rows, np.repeat(rows[:1], size - len(rows), axis=0)])


def stepper_of(spec: Specification) -> AnyStepper:
    """Return what moves the paths of the chain or of the limit; others are not loaded."""
    if spec.compiled_device:
        from shaped_attention.samplers.steppers.blas import BlasStepper, is_large
        from shaped_attention.samplers.steppers.compiled import BlockStepper, ClockStepper

        if is_large(spec):
            return BlasStepper(spec)
        return ClockStepper(spec) if spec.method == "clock" else BlockStepper(spec)
    from shaped_attention.samplers.steppers.device import DeviceStepper, runs_on_device
    from shaped_attention.samplers.steppers.torch_descriptions import DescriptionStepper

    return DeviceStepper(spec) if runs_on_device(spec) else DescriptionStepper(spec)
