"""Finite random networks with real weight matrices: the ground truth of this package."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Unpack

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

from shaped_attention.blocks.base import Layer
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.checks import check_count, check_new_name
from shaped_attention.numerics.draws import SLOTS_PER_BLOCK, Draws, slot_number, stream_key
from shaped_attention.numerics.fills import fill_normals
from shaped_attention.numerics.threads import ALONE, Team
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.arguments import check_other_seed
from shaped_attention.samplers.loop import sample
from shaped_attention.samplers.memory import chunk_size, of_network
from shaped_attention.samplers.paths import Paths
from shaped_attention.samplers.specification import (
    SamplerOptions,
    Specification,
    specify,
    with_options,
)
from shaped_attention.samplers.starts import tokens_of
from shaped_attention.samplers.steppers import (
    PREFERRED_ON_DEVICE,
    Array,
    Numpy,
    completed,
)
from shaped_attention.samplers.steppers.torch_descriptions import TorchStepper

_PREFERRED_CHUNK = 16
_PREFERRED_WEIGHTS = 2**16
"""Weights of a matrix in all networks of a batch: they take longer than calls of torch."""

_LARGEST_BATCH = 256
"""Narrow networks in a batch, of which the few that are asked for take as long as all."""

_MOST_WEIGHTS = 2**26
"""Weights that exist at a time on a device: half a gigabyte in double precision."""

_FEWEST_FOR_THREADS = 2**16
"""Weights of a matrix that take longer to make than to start a thread."""


_BLOCK = 2**14
"""Weights of a block of columns, which are multiplied while they are in the cache."""


def _multiply(x: Numpy, out: Numpy, draws: Draws, slot: int, starts: range) -> None:
    """Write blocks of columns, which begin at even numbers, of the products with weights.

    The blocks are the same for any number of threads. No matrix is stored, which bounds the memory
    at any width.
    """
    (samples, _, fan_in), columns = x.shape, out.shape[-1]
    for start in starts:
        end, pair = min(start + starts.step, columns), start * fan_in // 2
        weights = np.empty((samples, end - start, fan_in))
        fill_normals(weights.reshape(samples, -1), draws.key, draws.paths(), slot, pair)
        out[:, :, start:end] = x @ weights.astype(x.dtype, copy=False).mT


class WeightProduct:
    """Products ``project(x, columns) = x @ W`` with the weights of samples in a block and layer.

    Each call has a fresh Gaussian matrix W (fan_in, columns) for each sample, whose entry in row r
    and column c is the normal number c fan_in + r of its slot. `team` shares the columns of a large
    matrix.
    """

    def __init__(self, draws: Draws, team: Team = ALONE) -> None:
        self._draws, self._team = draws, team
        self._calls = 0
        self._taken: set[tuple[str, int]] = set()

    def __call__(
        self,
        x: Float[Tensor, "B m fan_in"],
        columns: int,
        name: str | None = None,
        head: int = 0,
    ) -> Float[Tensor, "B m c"]:
        """Multiply by a fresh Gaussian matrix with `columns` columns, whatever its name."""
        check_count("columns", columns)
        check_new_name(self._taken, name, head)
        draws, fan_in = self._draws, x.shape[-1]
        slot = slot_number(draws.slot, self._calls)
        self._calls += 1
        if x.device.type != "cpu":
            return self.by_blocks(x, columns, slot)
        # A tensor of torch is aligned in memory, so what follows rounds in the same way each time.
        out = x.new_empty(*x.shape[:-1], columns)
        threads = self._team.threads if columns * fan_in >= _FEWEST_FOR_THREADS else 1
        block = max(2, _BLOCK // fan_in // 2 * 2)
        blocks = -(-columns // block)
        ends = [min(columns, blocks * k // threads * block) for k in range(threads + 1)]
        arrays = x.contiguous().numpy(), out.numpy()
        self._team.together([
            partial(_multiply, *arrays, draws, slot, range(begin, end, block))
            for begin, end in pairwise(ends)
        ])  # fmt: skip
        return out

    def by_blocks(
        self, x: Float[Tensor, "B m fan_in"], columns: int, slot: int, most: int = _MOST_WEIGHTS
    ) -> Float[Tensor, "B m c"]:
        """Multiply by blocks of columns, so that at most about `most` weights exist at a time."""
        fan_in, out = x.shape[-1], x.new_empty(*x.shape[:-1], columns)
        # Numbers are made in pairs. Two columns of weights take no more than x with two tokens.
        block = max(2, most // (len(x) * fan_in) // 2 * 2)
        for start in range(0, columns, block):
            count = min(block, columns - start)
            weights = self._draws.normals_at(slot, start * fan_in, count * fan_in)
            out[..., start : start + count] = x @ weights.unflatten(1, (count, fan_in)).mT
            # Before the next ones are made.
            del weights
        return out


def batch_size(width: int) -> int:
    """Return how many networks of a width are moved together: always as many, in the same places.

    The order in which torch adds numbers can depend on the shape of a batch. A batch of a fixed
    size, completed by networks that are not asked for, makes a sample independent of the others.
    """
    return max(1, min(_LARGEST_BATCH, _PREFERRED_WEIGHTS // width**2))


class WeightStepper(TorchStepper):
    """Networks; the state is the tokens (rows, 1, m, n), sqrt n times a factor of V."""

    def __init__(self, spec: Specification) -> None:
        assert spec.width is not None
        super().__init__(spec, batch_size(spec.width) if spec.place == "cpu" else 1)
        self.divisor = float(spec.width)
        self._key = stream_key(spec.seed, "network")

    def bytes_of_one(self) -> float:
        """Return the bytes that a network takes where it moves, without its weights."""
        return of_network(self.spec)

    def chunk(self) -> int:
        """Return how many networks move together."""
        on_host = self.device.type == "cpu"
        preferred = max(self.size, _PREFERRED_CHUNK) if on_host else PREFERRED_ON_DEVICE
        return chunk_size(self.spec, self.bytes_of_one(), preferred, self.size)

    def workspace(self) -> Team:
        """Return threads that share the columns of large matrices."""
        return Team(self.threads)

    def starting(self, states: Array) -> Array:
        """Return the tokens (count, 1, m, n) whose Grams have given factors."""
        whole = torch.tensor(completed(states, self.rows(len(states))), dtype=self.dtype)
        tokens = torch.cat([tokens_of(batch, self.spec) for batch in whole.split(self.size)])
        return tokens[: len(states), None].double().numpy()

    def moved(self, paths: Paths, moving: Tensor, lengths: Array, point: int) -> Tensor:
        """Return the tokens after a layer."""
        size = self.size if self.device.type == "cpu" else len(paths.grid)
        batches = enumerate(paths.state[:, 0].split(size))
        return torch.cat(
            [self._layer(x, paths.first + k * size, point, paths.work) for k, x in batches]
        )[:, None]

    def _layer(self, tokens: Tensor, first: int, layer: int, team: Team) -> Tensor:
        spec, samples = self.spec, torch.arange(first, first + len(tokens), device=self.device)
        for i, block in enumerate(spec.pattern[layer % len(spec.pattern)]):
            draws = Draws(self._key, samples, layer, i * SLOTS_PER_BLOCK, self.dtype)
            p = at_depth(block, layer / spec.steps)
            tokens = block.forward(p, tokens, WeightProduct(draws, team))
        return tokens


@recorded(sampler="network")
@with_options(SamplerOptions)
def simulate_network(
    layer: Layer,
    v0: ArrayLike,
    *,
    width: int,
    depth: int,
    samples: int,
    seed: int = 0,
    **options: Unpack[SamplerOptions],
) -> xr.Dataset:
    """Sample token covariances of finite networks by multiplying real random weight matrices.

    The initial tokens are ``X_0 = sqrt(n) (F, 0)`` with F F^T = v0. The weights are rotation
    invariant, so the law of the covariances does not depend on the choice of X_0 with that
    covariance, except with LayerNorm: the means of X_0 then have the law that they have for
    ``sqrt(n) (F, 0) U`` with U uniform on the orthogonal group. A branch that acts on single
    entries of the tokens sees this choice in other ways too. With H heads and no output projection,
    each of the H groups of n / H columns starts in this way, with the Gram v0.

    Parameters, result and errors are those of `shaped_attention.simulate_chain`. The cost of a
    layer grows like n^2, with one normal random number per weight.
    """
    check_other_seed(v0, "network", seed)
    spec = specify(
        layer, v0, width=width, steps=depth, samples=samples, seed=seed, sampler="network",
        **options,
    )  # fmt: skip
    return sample(WeightStepper(spec), {"width": width, "depth": depth})[0]
