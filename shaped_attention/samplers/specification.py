"""What a sampler is asked for, checked, and what follows from it: grid, state, programs, keys."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ParamSpec, TypedDict, TypeVar

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from shaped_attention.blocks.base import Block, Layer, needs_means, pattern_of
from shaped_attention.blocks.parameters import scheduled
from shaped_attention.blocks.reasons import check_storable, limit_of
from shaped_attention.checks import argument_error, check_count, check_width
from shaped_attention.libraries import torch
from shaped_attention.memory_sizes import bytes_of, check_fits
from shaped_attention.numerics.covariance import start_factor
from shaped_attention.numerics.named_numbers import Keys
from shaped_attention.numerics.program import Program
from shaped_attention.numerics.threads import one_thread
from shaped_attention.rows.step import factor_columns
from shaped_attention.samplers.arguments import (
    check_dtype,
    check_radius,
    check_rank,
    check_starts,
    device_name,
    precision_name,
    saved_steps,
)
from shaped_attention.samplers.steps import check_coefficients, traced_chain, traced_limit

if TYPE_CHECKING:
    from shaped_attention.blocks.overrides import Overrides

MEMORY_BUDGET = 2 * 1024**3
"""Bytes of the samples that move together by default; one sample may take half of what is free."""

_COUNTER_LIMIT = 2**32

_BYTES_OF_A_STEP = 24
"""The least that tables of depths, parameters and stored times take for each step."""

P = ParamSpec("P")
R = TypeVar("R")
Start = Callable[["Specification", int, int], NDArray[np.float64]]

_eager: ContextVar[bool] = ContextVar("eager", default=False)


@contextmanager
def eager() -> Iterator[None]:
    """Run blocks as they are written: samplers called inside use torch, never compiled code.

    A debugger then stops inside `branch`, `limit` or `step` of a block, once per layer; tensors are
    (samples, m, c). The random numbers are the same, and the paths agree with those of
    compiled code to rounding. The setting applies to calls made in this thread; the chunks of such
    a call still run on several threads.

    Examples
    --------
    >>> import shaped_attention as sa
    >>> with sa.eager():
    ...     result = sa.simulate_chain(
    ...         sa.ShapedAttention(0.5), sa.equicorrelated(2, 0.2), width=8, depth=2, samples=3
    ...     )
    """
    token = _eager.set(True)
    try:
        yield
    finally:
        _eager.reset(token)


def is_eager() -> bool:
    """Return whether a call made now runs eagerly."""
    return _eager.get()


class RunOptions(TypedDict, total=False):
    """The types of the keywords that say how a function runs, for callers."""

    device: str | torch.device
    dtype: str | torch.dtype
    chunk: int | None
    memory: int | str | None
    progress: bool | None


class SamplerOptions(RunOptions, total=False):
    """The types of the keywords that all samplers share, for callers."""

    times: Sequence[float] | None
    save_every: int | None
    radius: float | None
    keep: str


def with_options(kind: type) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Show the options of a kind in the signature of a function, in place of its ``**options``."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature, types = inspect.signature(function), kind.__annotations__
        *named, _ = signature.parameters.values()
        known = inspect.signature(specify).parameters
        options = [known[x].replace(annotation=types[x].__forward_arg__) for x in types]
        function.__signature__ = signature.replace(parameters=[*named, *options])  # type: ignore[attr-defined]
        function.__annotations__ = {**function.__annotations__, **types}
        return function

    return decorate


@dataclass(frozen=True)
class Specification:
    """What is sampled: the covariance process of a layer, on a grid of steps.

    Attributes
    ----------
    sampler
        Name of the sampler, which is also that of the stream of its random numbers.
    pattern, v0
        The blocks of each layer (layer l has those of number l modulo the length), and the
        initial covariance (m, m), or one per sample (samples, m, m).
    start
        Where the process starts: `v0`, or its correlations in a limit of normalised blocks.
    width
        Width n of the networks; None for the limit.
    steps, dt, saved
        The grid of times 0, dt, ..., steps * dt, and the indices of those that are stored.
    radius
        Paths stop where |V| (Frobenius norm) reaches it.
    place, precision
        The names of device and dtype.
    memory, together
        Bytes that the working arrays of a sample may take, and those of samples that move together.
    embedded
        The random initial states (count, groups, m, c) of some samples, as a function of the
        specification, the number of the first, and their count, if `start` is only their mean.
    method
        How paths move: "direct" for steps from grid point to grid point, "torchsde" for the same by
        torchsde, or "clock".
    overrides
        Tensors in place of parameters, by layer of the pattern and block, for torch.
    weights
        Whether a step of the chain also gives the attention weights of the layer's first block.
    """

    sampler: str
    pattern: tuple[tuple[Block, ...], ...]
    v0: NDArray[np.float64]
    start: NDArray[np.float64]
    width: int | None
    steps: int
    dt: float
    saved: tuple[int, ...]
    samples: int
    seed: int
    radius: float
    place: str
    precision: str
    chunk: int | None = None
    memory: int = MEMORY_BUDGET
    together: int = MEMORY_BUDGET
    progress: bool | None = None
    keep: str = "V"
    eager: bool = False
    embedded: Start | None = None
    method: str = "direct"
    overrides: Sequence[Sequence[Overrides]] = ()
    weights: bool = False

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
        return 1 if self.width is None else common_groups(self.blocks)

    @property
    def means(self) -> bool:
        """Whether the state of the chain has the means of the tokens."""
        return self.width is not None and needs_means(self.blocks)

    @property
    def columns(self) -> int:
        """Number of columns of a factor: of a group's Gram in the chain, m in the limit."""
        if self.width is None:
            return self.tokens
        return factor_columns(self.tokens, self.width, self.groups, self.means)

    @cached_property
    def programs(self) -> list[Program]:
        """A step as programs, one for each layer of the pattern."""
        if self.width is None:
            return [traced_limit(self.pattern, self.tokens, self.dt)]
        return traced_chain(self.pattern, self.tokens, self.width, self.groups, self.weights)

    @cached_property
    def keys(self) -> Keys:
        """The keys of the random numbers."""
        return Keys(self.seed, self.sampler)

    @cached_property
    def scheduled(self) -> bool:
        """Whether parameters change with depth."""
        return any(scheduled(block) for block in self.blocks)

    @property
    def depths(self) -> NDArray[np.float64]:
        """Relative depths l / L of the steps."""
        return np.arange(self.steps, dtype=np.float64) / self.steps

    @property
    def times(self) -> NDArray[np.float64]:
        """The stored times."""
        return np.array(self.saved, dtype=np.float64) * self.dt

    @property
    def compiled_device(self) -> bool:
        """Whether compiled code supports the device, and torch was not requested."""
        return self.place == "cpu" and not self.eager

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

    Raise ValueError if they do not divide the width, or if a group of LayerNorm has a single
    column.
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
    v0: ArrayLike,
    *,
    width: int | None,
    steps: int,
    dt: float | None = None,
    samples: int,
    seed: int,
    sampler: str = "",
    embedded: Start | None = None,
    start_name: str = "v0",
    times: Sequence[float] | NDArray[np.float64] | None = None,
    save_every: int | None = None,
    radius: float | None = None,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype = "float64",
    chunk: int | None = None,
    memory: int | str | None = None,
    progress: bool | None = None,
    keep: str = "V",
) -> Specification:
    """Check the arguments that the samplers share and resolve their defaults.

    Errors name the initial covariance `v0` as the argument `start_name`. The sampler is by default
    the chain or, without a width, the limit; `dt` is by default 1 / width. The others are those of
    `shaped_attention.simulate_chain`. Raise ValueError if one is outside its range.
    """
    pattern = pattern_of(layer)
    check_count("samples", samples)
    if isinstance(v0, xr.Dataset):
        raise ValueError(
            "v0 must be an array, not a result; to start from its last covariances, pass its "
            "V.isel(time=-1) and another seed"
        )
    matrix = check_starts(v0, samples, start_name)
    grid = "horizon / step" if width is None else "depth"
    if width is not None:
        check_width("width", width)
        check_count("depth", steps)
        dt = dt or 1.0 / width
    assert dt is not None
    if samples >= _COUNTER_LIMIT:
        raise argument_error("samples", "below 2^32", samples)
    if steps >= _COUNTER_LIMIT:
        raise argument_error(grid, "below 2^32", float(f"{steps:.6g}") if width is None else steps)
    check_count("seed", seed, lowest=0)
    if chunk is not None:
        check_count("chunk", chunk)
    most = bytes_of(memory)
    check_fits(grid, steps, _BYTES_OF_A_STEP, "fewer steps need less")
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
    precision = precision_name(dtype)
    return Specification(
        sampler=sampler or ("sde" if width is None else "chain"),
        pattern=pattern,
        v0=matrix,
        start=start,
        width=width,
        steps=steps,
        dt=dt,
        saved=saved_steps(steps, dt, times, save_every),
        samples=int(samples),
        seed=int(seed),
        radius=check_radius(radius, start, precision == "float32", start_name),
        place=device_name(device),
        precision=precision,
        chunk=chunk,
        memory=most,
        together=min(most, MEMORY_BUDGET) if memory is None else most,
        progress=progress,
        keep=keep,
        # Asked here and not where chunks run, which is on other threads.
        eager=is_eager(),
        embedded=embedded,
    )
