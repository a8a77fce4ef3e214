"""The task of the paths of a run: where they start, and their step as programs.

Without LayerNorm the law of the covariances depends only on V_0. With LayerNorm it also depends on
the direction of 1 relative to the initial tokens. These are X_0 = sqrt(n) F U, with F F^T = V_0 and
the rows of U (c, n) the first c of a uniformly distributed orthogonal matrix: the law of tokens
that a Gaussian matrix has embedded, given their covariance. The means of the tokens are then
h = X_0 1 / n = F o, where o, the first c entries of a uniform unit vector in R^n, is a Gaussian
vector divided by its length. The part of X_0 orthogonal to 1 has the Gram V_0 - h h^T.

Each of several groups of n / g columns starts in this way, with the Gram V_0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shaped_attention.blocks.base import Block, needs_means
from shaped_attention.blocks.parameters import Parameters, at_depth, scheduled
from shaped_attention.libraries import Tensor, torch
from shaped_attention.numerics.mover import Mover
from shaped_attention.numerics.named_numbers import Keys, TorchNumbers
from shaped_attention.numerics.program import Program
from shaped_attention.rows.step import factor_columns
from shaped_attention.samplers.specification import Specification
from shaped_attention.samplers.steps import traced_chain, traced_limit

if TYPE_CHECKING:
    from shaped_attention.blocks.overrides import Overrides
    from shaped_attention.numerics.plan import Plan
    from shaped_attention.samplers.clock_step import ByClock

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Task:
    """Description of what the paths of a run do.

    Attributes
    ----------
    pattern
        Blocks of each layer; layer l has those of entry l modulo the length.
    tokens, width
        Number of tokens m, and the width n of the chain; None for the limit.
    groups
        Number of groups of columns whose Grams are the state.
    steps, dt
        Grid of times 0, dt, ..., steps dt of the whole run; it sets the relative depth.
    radius
        Paths stop where |V| (Frobenius norm) reaches it.
    keys
        Keys of the random numbers.
    method
        How the paths move: "direct" for steps from grid point to grid point, "torchsde" for the
        same by torchsde, or "clock".
    overrides
        Tensors in place of parameters, by layer of the pattern and block (`overridden`); only torch
        runs such a task.
    weights
        Whether a step of the chain also gives the attention weights of the layer's first block.
    dtype
        Type of the numbers of compiled code.
    """

    pattern: tuple[tuple[Block, ...], ...]
    tokens: int
    width: int | None
    groups: int
    steps: int
    dt: float
    radius: float
    keys: Keys
    method: str = "direct"
    overrides: Sequence[Sequence[Overrides]] = ()
    weights: bool = False
    dtype: str = "float64"

    def parameters(self, step: int, layer: int) -> list[Parameters]:
        """Return the parameters of the blocks of a layer of the pattern, for torch."""
        blocks = self.pattern[layer]
        tensors: Sequence[Overrides] = [{}] * len(blocks)
        if self.overrides:
            from shaped_attention.blocks.overrides import at_layer

            tensors = at_layer(self.overrides[layer], step)
        return [
            at_depth(block, step / self.steps, of_block)
            for block, of_block in zip(blocks, tensors, strict=True)
        ]

    @property
    def columns(self) -> int:
        """Number of columns of a factor: of a group's Gram in the chain, m in the limit."""
        if self.width is None:
            return self.tokens
        return factor_columns(self.tokens, self.width, self.groups, self.means)

    @property
    def means(self) -> bool:
        """Whether the state of the chain has the means of the tokens."""
        return self.width is not None and needs_means(b for blocks in self.pattern for b in blocks)

    @cached_property
    def programs(self) -> list[Program]:
        """The step as programs, one for each layer of the pattern."""
        if self.width is None:
            return [traced_limit(self.pattern, self.tokens, self.dt)]
        return traced_chain(self.pattern, self.tokens, self.width, self.groups, self.weights)

    @cached_property
    def clock_programs(self) -> ByClock[Program]:
        """Programs of the limit with steps of varying length."""
        from shaped_attention.samplers.clock_step import traced_clock

        return traced_clock(self.pattern, self.tokens)

    @cached_property
    def scheduled(self) -> bool:
        """Whether parameters change with depth."""
        return any(scheduled(block) for blocks in self.pattern for block in blocks)

    @property
    def depths(self) -> Array:
        """Relative depths l / L of the steps."""
        return np.arange(self.steps, dtype=np.float64) / self.steps

    @cached_property
    def compiled(self) -> Mover:
        """Code of the steps."""
        return Mover(self.programs, self.keys.key, self.depths, self.dtype, self.groups)

    @cached_property
    def compiled_clock(self) -> Mover:
        """Code of the clock."""
        return Mover(self.clock_programs, self.keys.key, self.depths, self.dtype)

    @cached_property
    def clock_plans(self) -> ByClock[Plan]:
        """Programs of the clock for large matrices."""
        from shaped_attention.samplers.clock_step import ByClock

        return ByClock(*map(self._plan, self.clock_programs))

    @cached_property
    def plans(self) -> list[Plan]:
        """Programs of the executor for large matrices and large layers."""
        return list(map(self._plan, self.programs))

    def _plan(self, program: Program) -> Plan:
        from shaped_attention.numerics.plan import Plan

        return Plan(program, self.keys.key, self.depths)

    @cached_property
    def numbers(self) -> int:
        """Random numbers of a layer and sample, in the layer of the pattern with most."""
        return max(program.numbers for program in self.programs)


def task_of(spec: Specification, stream: str, width: int | None, method: str = "direct") -> Task:
    """Return the task of the paths of a run."""
    return Task(
        pattern=spec.pattern,
        tokens=spec.tokens,
        width=width,
        groups=spec.groups if width is not None else 1,
        steps=spec.steps,
        dt=spec.dt,
        radius=spec.radius,
        keys=Keys(spec.seed, stream),
        method=method,
        # Near an explosion products of entries overflow in single precision.
        dtype="float64" if method == "clock" else spec.precision,
    )


def start_states(spec: Specification, task: Task, first: int, count: int) -> Array:
    """Return the states (count, groups, m, c) in which some samples start."""
    if spec.embedded:
        return spec.embedded.states(task, first, count)
    if not task.means:
        return spec.start_factors(first, count, task.groups, task.columns)
    frames = frames_with_means(task, first, count)
    return spec.start_factors(first, count, task.groups, frames.shape[-2]) @ frames


def frames_with_means(task: Task, first: int, count: int) -> Array:
    """Return U in the basis of a state with means (count, groups, c, k), k = min(c + 1, n / g).

    The first column is o. The others are orthonormal to it once o has been completed to a unit
    vector: they are those of the reflection that exchanges this vector with a coordinate axis.
    """
    assert task.width is not None
    width = task.width // task.groups
    c = min(task.tokens, width)
    samples = torch.arange(first, first + count, device="cpu")
    numbers = TorchNumbers(task.keys, samples, 0)
    frames = np.empty((count, task.groups, c, task.columns))
    for g in range(task.groups):
        o = numbers.normal("means of the start", 1, c, g)[:, 0]
        if width > c:
            beyond = numbers.wishart("means of the start, orthogonal", 1, width - c, g)
            o = torch.cat([o, torch.linalg.vector_norm(beyond, dim=-1)], dim=-1)
        unit = o.numpy() / np.linalg.norm(o.numpy(), axis=-1, keepdims=True)
        normal = unit.copy()
        normal[:, 0] += np.copysign(1.0, unit[:, 0])
        normal *= np.sqrt(2.0) / np.linalg.norm(normal, axis=-1, keepdims=True)
        reflection = np.eye(task.columns) - normal[:, :, None] * normal[:, None, :]
        reflection[:, :, 0] = unit
        frames[:, g] = reflection[:, :c]
    return frames


def tokens_of(states: Tensor, task: Task) -> Tensor:
    """Return tokens X (count, m, n) with the given states (count, groups, m, c)."""
    assert task.width is not None
    width = task.width // task.groups
    root = width**0.5 * states
    if task.means:
        root = root @ torch.from_numpy(_contrasts(states.shape[-1], width)).to(root)
    tokens = states.new_zeros(*states.shape[:-1], width)
    tokens[..., : root.shape[-1]] = root
    return tokens.transpose(1, 2).flatten(2)


def _contrasts(rows: int, width: int) -> Array:
    """Return the first rows of Helmert's matrix: orthonormal, the first one constant."""
    j = np.arange(rows)[:, None]
    i = np.arange(width)[None, :]
    result = np.where(i < j, 1.0, np.where(i == j, -j, 0.0)) / np.sqrt(np.maximum(j * (j + 1), 1))
    result[0] = width**-0.5
    return result
