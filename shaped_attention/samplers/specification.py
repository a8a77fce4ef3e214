"""What a sampler is asked for: the keywords that all share, checked arguments, stored times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from shaped_attention.blocks.base import (
    Block,
    Layer,
    check_storable,
    limit_of,
    needs_means,
    pattern_of,
)
from shaped_attention.checks import argument_error, check_count, check_width, real_array
from shaped_attention.lazy_torch import torch
from shaped_attention.numerics.covariance import start_factor
from shaped_attention.numerics.eager import is_eager
from shaped_attention.numerics.one_thread import one_thread
from shaped_attention.samplers.devices import check_dtype, device_name, precision_name
from shaped_attention.samplers.starts import Resumed, check_radius, check_rank, check_starts
from shaped_attention.samplers.steps import check_coefficients

MEMORY_BUDGET = 2 * 1024**3
"""Bytes that the working arrays of a run may take by default (the result comes on top)."""

_COUNTER_LIMIT = 2**32


@runtime_checkable
class Start(Protocol):
    """A law of initial states."""

    def states(self, task: Any, first: int, count: int) -> NDArray[np.float64]:
        """Return the states (count, groups, m, c) of some samples of a `Task`."""


@dataclass(frozen=True)
class Options:
    """The keywords that all samplers share, as in `shaped_attention.simulate_chain`."""

    times: Sequence[float] | NDArray[np.float64] | None = None
    save_every: int | None = None
    radius: float | None = None
    device: str | torch.device = "cpu"
    dtype: str | torch.dtype = "float64"
    chunk: int | None = None
    memory: int = MEMORY_BUDGET
    progress: bool | None = None
    keep: str = "V"
    keep_state: bool = False

    @classmethod
    def among(cls, arguments: Mapping[str, Any]) -> Options:
        """Return the options among the arguments of a call, by name."""
        return cls(**{field.name: arguments[field.name] for field in fields(cls)})


DEFAULTS = Options()


@dataclass(frozen=True)
class Specification:
    """What is sampled: the covariance process of a layer, on a grid of steps.

    Attributes
    ----------
    pattern, v0
        The blocks of each layer (layer l has those of number l modulo the length), and the
        initial covariance (m, m), or one per sample (samples, m, m).
    start
        Where the process starts: `v0`, or its correlations in a limit of normalised blocks.
    steps, dt
        The grid of times: 0, dt, ..., steps * dt.
    saved
        Indices of the grid points that are stored, increasing.
    samples, seed
        Number of independent samples, and the seed of their random numbers.
    radius
        Paths stop where |V| (Frobenius norm) reaches it.
    place, precision
        The names of device and dtype, from which torch makes `device` and `dtype`.
    options
        The other keywords of the sampler.
    resumed
        The state of the earlier run that this one continues, if any.
    eager
        Whether the descriptions of the blocks are run as they are (`shaped_attention.eager`).
    embedded
        The random initial states, if `start` is only their mean.
    """

    pattern: tuple[tuple[Block, ...], ...]
    v0: NDArray[np.float64]
    start: NDArray[np.float64]
    steps: int
    dt: float
    saved: tuple[int, ...]
    samples: int
    seed: int
    radius: float
    place: str
    precision: str
    options: Options = DEFAULTS
    resumed: Resumed | None = None
    eager: bool = False
    embedded: Start | None = None

    @property
    def begin(self) -> int:
        """The step from which the run continues; 0 for a new run."""
        return self.resumed.steps if self.resumed else 0

    @property
    def blocks(self) -> tuple[Block, ...]:
        """All blocks, one layer of the pattern after the other."""
        return tuple(block for layer in self.pattern for block in layer)

    @property
    def tokens(self) -> int:
        """Number of tokens m."""
        return self.v0.shape[-1]

    def start_factors(
        self, first: int, count: int, groups: int, columns: int
    ) -> NDArray[np.float64]:
        """Return factors (count, groups, m, c) of the initial covariances of some samples."""
        starts = self.start[None] if self.start.ndim == 2 else self.start[first : first + count]
        with one_thread():
            factors = np.stack([start_factor(v, columns) for v in starts])
        return np.broadcast_to(factors[:, None], (count, groups, self.tokens, columns))

    @property
    def groups(self) -> int:
        """Groups of columns whose Grams the blocks' law needs: 1, or the heads (see `Block`)."""
        return common_groups(self.blocks)

    @property
    def times(self) -> NDArray[np.float64]:
        """The stored times."""
        return np.array(self.saved, dtype=np.float64) * self.dt

    @property
    def compiled_device(self) -> bool:
        """Whether compiled code supports device and precision, and torch was not requested."""
        return (self.place, self.precision) == ("cpu", "float64") and not self.eager

    @property
    def device(self) -> torch.device:
        """The device of torch."""
        return torch.device(self.place)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of torch."""
        return check_dtype(self.precision)


def common_groups(blocks: Sequence[Block]) -> int:
    """Return into how many groups of columns all blocks fall."""
    return math.lcm(*(block.groups for block in blocks))


def check_group_width(blocks: Sequence[Block], width: int) -> int:
    """Return the number of groups of columns.

    Raises
    ------
    ValueError
        If they do not divide the width, or if a group of LayerNorm has a single column.
    """
    groups = common_groups(blocks)
    if width % groups:
        requirement = f"a multiple of {groups}, the least for the heads of all blocks"
        raise argument_error("width", requirement, width)
    if width == groups and needs_means(blocks):
        requirement = f"at least {2 * groups}, since LayerNorm subtracts the mean"
        raise argument_error("width", requirement, width)
    return groups


def specify(
    layer: Layer,
    v0: ArrayLike | Resumed,
    *,
    width: int | None,
    steps: int,
    dt: float,
    samples: int,
    seed: int,
    options: Options = DEFAULTS,
    embedded: Start | None = None,
    start_name: str = "v0",
) -> Specification:
    """Check the arguments that the samplers share and resolve their defaults.

    Errors name the initial covariance `v0` as the argument `start_name`.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    pattern = pattern_of(layer)
    check_count("samples", samples)
    if isinstance(v0, xr.Dataset):
        raise ValueError(
            "v0 is a result; continue_run goes on from its end, and its V.values[-1] are "
            "covariances to start from"
        )
    resumed = None
    if isinstance(v0, Resumed):
        resumed, v0 = v0, v0.v0
        if steps <= resumed.steps:
            raise ValueError(
                f"a run must go on for more than the {resumed.steps} steps of result; got {steps}"
            )
    matrix = check_starts(v0, samples, start_name)
    if width is not None:
        check_width("width", width)
    if samples >= _COUNTER_LIMIT:
        raise argument_error("samples", "below 2^32", samples)
    if steps >= _COUNTER_LIMIT:
        name, value = (
            ("horizon / step", float(f"{steps:.6g}")) if width is None else ("depth", steps)
        )
        raise argument_error(name, "below 2^32", value)
    check_count("seed", seed, lowest=0)
    if options.chunk is not None:
        check_count("chunk", options.chunk)
    check_count("memory", options.memory)
    blocks = [block for blocks in pattern for block in blocks]
    for block in blocks:
        check_storable(block)
        block.check(matrix.shape[-1], width)
        if width is None:
            limit_of(block).check(matrix.shape[-1])
    start = matrix
    if width is None:
        from shaped_attention.blocks.normalised_limit import starting_covariance

        check_coefficients(pattern, matrix.shape[-1], steps)
        start = starting_covariance(pattern, matrix)
    if width is not None and embedded is None:
        check_rank(matrix, width // check_group_width(blocks, width), width, start_name)
    precision = precision_name(options.dtype)
    return Specification(
        pattern=pattern,
        v0=matrix,
        start=start,
        steps=steps,
        dt=dt,
        saved=saved_steps(
            steps, dt, options.times, options.save_every, resumed.steps if resumed else 0
        ),
        samples=int(samples),
        seed=int(seed),
        radius=check_radius(options.radius, start, precision == "float32", start_name),
        place=device_name(options.device),
        precision=precision,
        options=options,
        resumed=resumed,
        # Asked here and not where chunks run, which is on other threads.
        eager=is_eager(),
        embedded=embedded,
    )


def saved_steps(
    steps: int,
    dt: float,
    times: Sequence[float] | NDArray[np.float64] | None,
    save_every: int | None,
    begin: int = 0,
) -> tuple[int, ...]:
    """Return the grid indices to store: `times`, every `save_every` steps, or both ends.

    A run that continues from the step `begin` stores nothing before it.

    Raises
    ------
    ValueError
        If both are given, or a time is off the grid, outside it, or not after the one before.
    """
    if times is not None and save_every is not None:
        raise ValueError(f"times and save_every={save_every!r} exclude each other; pass only one")
    if save_every is not None:
        check_count("save_every", save_every)
        regular = range(-(-begin // save_every) * save_every, steps + 1, save_every)
        return tuple(sorted({*regular, steps}))
    if times is None:
        return (begin, steps)
    wanted = real_array(times, "times")
    if wanted.ndim != 1 or wanted.size == 0:
        raise ValueError(f"times must be a non-empty list of numbers; got shape {wanted.shape}")
    if not np.isfinite(wanted).all():
        raise ValueError("times must be finite; it has NaN or infinite entries")
    with np.errstate(over="ignore"):
        index = np.rint(wanted / dt)
    for t, i in zip(wanted, index, strict=True):
        if not begin - 0.5 < i < steps + 0.5:
            raise ValueError(
                f"times must lie in [{begin * dt:.12g}, {steps * dt:.12g}]; got {t:.12g}"
            )
        if abs(t - i * dt) > 1e-6 * dt:
            raise ValueError(
                f"times contains {t:.12g}, which is off the grid of multiples of {dt:.12g}; "
                f"the nearest grid time is {i * dt:.12g}"
            )
    saved = tuple(int(i) for i in index)
    for a, b in pairwise(saved):
        if b <= a:
            raise ValueError(
                f"times must be strictly increasing; got {b * dt:.12g} after {a * dt:.12g}"
            )
    return saved
