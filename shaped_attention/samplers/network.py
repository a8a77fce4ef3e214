"""Finite random networks with real weight matrices: the ground truth of this package."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from shaped_attention.blocks.base import Layer
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.checks import check_count
from shaped_attention.numerics.draws import SLOTS_PER_BLOCK, Draws, slot_number, stream_key
from shaped_attention.numerics.threads import ALONE, Team
from shaped_attention.numerics.threefry import path_words
from shaped_attention.numerics.weights import multiply_weights
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.chunks import chunk_size, threads_of_a_chunk
from shaped_attention.samplers.driver import run
from shaped_attention.samplers.request import MEMORY_BUDGET, Request, make_request
from shaped_attention.samplers.start_states import start_states, tokens_of
from shaped_attention.samplers.starts import Resumed
from shaped_attention.samplers.task import covariances, task_of
from shaped_attention.samplers.torch_process import completed, norms

_PREFERRED_CHUNK = 16
_PREFERRED_WEIGHTS = 2**16
"""Weights of a matrix in all networks of a batch: they take longer than calls of torch."""

_LARGEST_BATCH = 64
_FEWEST_FOR_THREADS = 2**16
"""Weights of a matrix that take longer to make than to start a thread."""


class WeightProduct:
    """Products ``project(x, columns) = x @ W`` with the weights of samples in a block and layer.

    Each call has a fresh Gaussian matrix W (fan_in, columns) for each sample; `numerics.weights`
    numbers its entries. `team` shares the columns of a large matrix.
    """

    def __init__(self, draws: Draws, first: int, team: Team = ALONE) -> None:
        self._draws, self._first, self._team = draws, first, team
        self._calls = 0

    def __call__(self, x: Float[Tensor, "B m fan_in"], columns: int) -> Float[Tensor, "B m c"]:
        """Multiply by a fresh Gaussian matrix with `columns` columns."""
        draws, fan_in = self._draws, x.shape[-1]
        slot = slot_number(draws.slot, self._calls)
        self._calls += 1
        if x.device.type != "cpu":
            weights = draws.normals_at(slot, 0, columns * fan_in)
            return x @ weights.unflatten(1, (columns, fan_in)).mT
        # A tensor of torch is aligned in memory, so what follows rounds in the same way each time.
        out = x.new_empty(*x.shape[:-1], columns)
        threads = self._team.threads if columns * fan_in >= _FEWEST_FOR_THREADS else 1
        ends = [columns * k // threads // 2 * 2 for k in range(threads)] + [columns]
        arrays = x.contiguous().numpy(), out.numpy()
        assert isinstance(draws.step, int)
        paths = path_words(np.arange(len(x)) + self._first, draws.step)
        self._team.together([
            partial(
                multiply_weights, arrays[0], draws.key, paths, slot, begin, end, arrays[1]
            )
            for begin, end in pairwise(ends)
        ])  # fmt: skip
        return out


def batch_size(width: int) -> int:
    """Return how many networks of a width are moved together: always as many, in the same places.

    The order in which torch adds numbers can depend on the shape of a batch. A batch of a fixed
    size, completed by networks that are not asked for, makes a sample independent of the others.
    """
    return max(1, min(_LARGEST_BATCH, _PREFERRED_WEIGHTS // width**2))


@recorded(sampler="network")
def simulate_network(
    layer: Layer,
    v0: ArrayLike | Resumed,
    *,
    width: int,
    depth: int,
    samples: int,
    seed: int = 0,
    times: Sequence[float] | None = None,
    save_every: int | None = None,
    radius: float | None = None,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype = "float64",
    chunk: int | None = None,
    memory: int = MEMORY_BUDGET,
    progress: bool | None = None,
    keep: str = "V",
    keep_state: bool = False,
) -> xr.Dataset:
    """Sample token covariances of finite networks by multiplying real random weight matrices.

    The initial tokens are ``X_0 = sqrt(n) (F, 0)`` with F F^T = v0. The weights are rotation
    invariant, so the law of the covariances does not depend on the choice of X_0 with that
    covariance, except with LayerNorm: X_0 then has the law of ``sqrt(n) (F, 0) U`` with U uniform
    on the orthogonal group. With H heads and no output projection, each of the H groups of n / H
    columns starts in this way, with the Gram v0.

    Parameters, result and errors are those of `shaped_attention.simulate_chain`. The cost of a
    layer grows like n^2 (one normal per weight).
    """
    check_count("width", width)
    check_count("depth", depth)
    request = make_request(
        layer, v0, width=width, steps=depth, dt=1.0 / width, samples=samples, seed=seed,
        times=times, save_every=save_every, radius=radius, device=device, dtype=dtype,
        chunk=chunk, memory=memory, keep=keep, keep_state=keep_state,
    )  # fmt: skip
    parameters, size = {"width": width, "depth": depth}, network_chunk(request, width)
    return run(request, partial(Networks, request, width), size, progress, "network", parameters)


def network_chunk(request: Request, width: int) -> int:
    """Return how many networks of a request are in a chunk."""
    on_cpu, batch = request.device.type == "cpu", batch_size(width)
    # tokens and their images under the weights
    per_sample = 8.0 * request.dtype.itemsize * width * request.tokens
    preferred = max(batch, _PREFERRED_CHUNK) if on_cpu else 2**20
    return chunk_size(request, per_sample, preferred, batch if on_cpu else 1)


class Networks:
    """A chunk of networks with real weights, at a layer; on the CPU in batches of a fixed size."""

    def __init__(self, request: Request, width: int, first: int, count: int) -> None:
        self._request, self._width, self._first, self._count = request, width, first, count
        self._key = stream_key(request.seed, "network")
        self._team = Team(threads_of_a_chunk(request, network_chunk(request, width)))
        fresh = replace(request, resumed=None)
        task = task_of(fresh, "network", width)
        states = start_states(fresh, task, first, count)
        tensor = partial(torch.tensor, dtype=request.dtype, device=request.device)
        size = batch_size(width) if request.device.type == "cpu" else count
        batches = [completed(states[k : k + size], size) for k in range(0, count, size)]
        self._batches = [tokens_of(tensor(x), task) for x in batches]
        stopping_times = np.full(count, np.inf)
        if request.resumed:
            own = slice(first, first + count)
            tokens = [request.resumed.state[own, 0][k : k + size] for k in range(0, count, size)]
            self._batches = [tensor(completed(x, size)) for x in tokens]
            stopping_times = request.resumed.stopping_time[own]
        self._stopped_at = [
            torch.tensor(completed(stopping_times[k : k + size], size), device=request.device)
            for k in range(0, count, size)
        ]

    def advance(self, begin: int, end: int) -> None:
        """Take the layers begin, ..., end - 1."""
        for k in range(len(self._batches)):
            for step in range(begin, end):
                self._step(k, step)

    def _step(self, k: int, step: int) -> None:
        """Take a layer of one batch."""
        request, old = self._request, self._batches[k]
        first, new = self._first + k * len(old), old
        samples = torch.arange(first, first + len(old), device=old.device)
        for i, block in enumerate(request.pattern[step % len(request.pattern)]):
            draws = Draws(self._key, samples, step, i * SLOTS_PER_BLOCK, request.dtype)
            p = at_depth(block, step / request.steps)
            new = block.forward(p, new, WeightProduct(draws, first, self._team))
        alive = self._stopped_at[k].isinf()
        self._batches[k] = torch.where(alive[:, None, None], new, old)
        outside = norms(self._batches[k][:, None]) / self._width >= request.radius
        time = (step + 1) * request.dt
        self._stopped_at[k] = torch.where(alive & outside, time, self._stopped_at[k])

    def covariances(self) -> NDArray[np.float64]:
        """Return V (count, m, m)."""
        return covariances(self.factors()) / self._width

    def factors(self) -> NDArray[np.float64]:
        """Return the state (count, 1, m, n): the tokens, sqrt n times a factor of V."""
        tokens = torch.cat(self._batches)[: self._count]
        return tokens[:, None].double().cpu().numpy()

    def stopping_times(self) -> NDArray[np.float64]:
        """Return the stopping time of each path (count,)."""
        return torch.cat(self._stopped_at)[: self._count].cpu().numpy()
