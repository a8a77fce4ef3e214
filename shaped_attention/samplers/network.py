"""Finite random networks with real weight matrices: the ground truth of this package."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

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
from shaped_attention.numerics.threefry import fill_weights
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.chunks import chunk_size
from shaped_attention.samplers.driver import run
from shaped_attention.samplers.request import MEMORY_BUDGET, Request, make_request
from shaped_attention.samplers.start_states import start_states, tokens_of
from shaped_attention.samplers.starts import Resumed
from shaped_attention.samplers.task import covariances, task_of
from shaped_attention.samplers.torch_process import norms

_PREFERRED_CHUNK = 16
_BLOCK_BYTES = 2**17
"""Bytes of weights made at once per sample: on the CPU they are multiplied while in the cache.

The size is fixed, since the shape of a product can change the rounding of its entries.
"""


class WeightProduct:
    """Products ``project(x, columns) = x @ W`` with the weights of samples in a block and layer.

    The weight in row r and column c of a sample's W (fan_in, columns) is the normal number
    c * fan_in + r of its slot. Matrices are generated a few columns at a time, which bounds the
    memory at any width.
    """

    def __init__(self, draws: Draws, first: int) -> None:
        self._draws = draws
        self._first = first
        self._calls = 0

    def __call__(self, x: Float[Tensor, "B m fan_in"], columns: int) -> Float[Tensor, "B m c"]:
        """Multiply by a fresh Gaussian matrix with `columns` columns."""
        slot = slot_number(self._draws.slot, self._calls)
        self._calls += 1
        fan_in = x.shape[-1]
        block = max(2, 2 * (_BLOCK_BYTES // (2 * fan_in * x.element_size())))
        parts = [
            x @ self._weights(slot, fan_in, start, min(block, columns - start), x).mT
            for start in range(0, columns, block)
        ]
        return torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]

    def _weights(
        self, slot: int, fan_in: int, start: int, count: int, like: Tensor
    ) -> Float[Tensor, "B count fan_in"]:
        """Return columns start, ..., start + count - 1 (start even), as rows."""
        if like.device.type != "cpu":
            flat = self._draws.normals_at(slot, start * fan_in, count * fan_in)
            return flat.unflatten(1, (count, fan_in))
        out = np.empty((len(like), count * fan_in), dtype=like.numpy().dtype)
        pair = start * fan_in // 2
        fill_weights(out, self._draws.key, self._first, self._draws.step, slot, pair)
        return torch.from_numpy(out).unflatten(1, (count, fan_in))


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
    m, itemsize = request.tokens, request.dtype.itemsize
    on_cpu = request.device.type == "cpu"
    # tokens, their images under the weights, and two columns of weights
    per_sample = itemsize * width * (8.0 * m + 2) + 2 * _BLOCK_BYTES
    preferred = max(_PREFERRED_CHUNK, 2**13 // width) if on_cpu else 2**20
    size = chunk_size(request, per_sample, preferred, 1)
    parameters = {"width": width, "depth": depth}
    return run(request, partial(Networks, request, width), size, progress, "network", parameters)


class Networks:
    """A chunk of networks with real weights, at a layer."""

    def __init__(self, request: Request, width: int, first: int, count: int) -> None:
        self._request, self._width, self._first = request, width, first
        self._key = stream_key(request.seed, "network")
        device = request.device
        self._samples = torch.arange(first, first + count, device=device)
        task = task_of(replace(request, resumed=None), "network", width)
        states = start_states(replace(request, resumed=None), task, first, count)
        self.tokens = tokens_of(torch.tensor(states, dtype=request.dtype, device=device), task)
        self._stopped_at = torch.full((count,), torch.inf, dtype=torch.float64, device=device)
        if request.resumed:
            self._resume(request.resumed, first, count)

    def _resume(self, resumed: Resumed, first: int, count: int) -> None:
        own = slice(first, first + count)
        self.tokens = torch.tensor(resumed.state[own, 0]).to(self.tokens)
        self._stopped_at = torch.tensor(resumed.stopping_time[own]).to(self._stopped_at)

    def advance(self, begin: int, end: int) -> None:
        """Take the layers begin, ..., end - 1."""
        request = self._request
        for step in range(begin, end):
            new = self.tokens
            for i, block in enumerate(request.pattern[step % len(request.pattern)]):
                draws = Draws(self._key, self._samples, step, i * SLOTS_PER_BLOCK, request.dtype)
                p = at_depth(block, step / request.steps)
                new = block.forward(p, new, WeightProduct(draws, self._first))
            alive = self._stopped_at.isinf()
            self.tokens = torch.where(alive[:, None, None], new, self.tokens)
            outside = norms(self.tokens[:, None]) / self._width >= request.radius
            time = (step + 1) * request.dt
            self._stopped_at = torch.where(alive & outside, time, self._stopped_at)

    def covariances(self) -> NDArray[np.float64]:
        """Return V (count, m, m)."""
        return covariances(self.tokens[:, None].double().cpu().numpy()) / self._width

    def factors(self) -> NDArray[np.float64]:
        """Return the state (count, 1, m, n): the tokens, sqrt n times a factor of V."""
        return self.tokens[:, None].double().cpu().numpy()

    def stopping_times(self) -> NDArray[np.float64]:
        """Return the stopping time of each path (count,)."""
        return self._stopped_at.cpu().numpy()
