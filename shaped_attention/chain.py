"""The exact covariance chain: V_l -> V_{l+1} in law as a network of width n, without the width.

Write V = F F^T with F (m, m) and X = sqrt(n) F Q, where Q (m, n) has orthonormal rows (this needs
n >= m). For a weight matrix W (n, p) of independent N(0, 1) entries, Q W is an (m, p) matrix of
independent N(0, 1) entries too, so

- queries and keys: ``X W_Q / sqrt n = F G_Q`` with G_Q (m, n_k) Gaussian, and
  ``G_Q G_K^T = B K^T`` in law with B B^T ~ Wishart_m(n_k) and K (m, m) Gaussian, independent:
  rotate G_Q = B U with orthonormal rows U; then K = G_K U^T;
- a branch ``Z = M W`` (M any matrix that depends on the past) added to the skip connection:
  the part of W's rows along Q is Gaussian (m, m), the rest is seen only through its Gram, a
  Wishart matrix with n - m degrees of freedom (`shaped_attention.blocks.branch`);
- hidden units of a network layer: n independent columns N(0, V);
- several heads without an output projection: the columns fall into groups, and the state is the
  groups' Grams (`shaped_attention.blocks.attention`).

By induction the law of V_{l+1} given the past depends on V_l alone. Wishart matrices come from
Bartlett's factor, so the cost of attention does not depend on n or n_k.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from shaped_attention import ensemble as en
from shaped_attention.blocks.base import Layer, check_chain, has_compiled_chain
from shaped_attention.blocks.branch import total_factor
from shaped_attention.checks import check_count
from shaped_attention.covariance import factor
from shaped_attention.draws import SLOTS_PER_BLOCK, Draws, stream_key
from shaped_attention.kernels.jit import LANES
from shaped_attention.kernels.lanes import stop_outside
from shaped_attention.results import make_result

_PREFERRED_CHUNK = 1024
"""Paths whose factors stay in the second-level cache for the usual m."""


_SMALLEST_ENTRIES = 2**11
"""Below, the interpreter time of a layer outweighs what a second thread computes (measured)."""


def simulate_chain(
    layer: Layer,
    v0: ArrayLike,
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
    memory: int = en.MEMORY_BUDGET,
    progress: bool | None = None,
) -> xr.Dataset:
    """Sample the covariances of finite networks exactly, at a cost independent of the width.

    The law is that of `simulate_network` with the same arguments. On the CPU in float64 compiled
    kernels run if all blocks have them, elsewhere torch; both see the same random numbers and
    agree to rounding.

    Parameters
    ----------
    layer
        A block, or the list of blocks of a layer in the order in which they act.
    v0
        Starting covariance (m, m), positive semidefinite, singular or not.
    width, depth
        Width n >= m and number of layers L >= 1; layer l is at time l / n.
    samples
        Number of independent networks.
    seed
        Whole number >= 0; with the other arguments above and `radius` it determines the result.
    times
        Times to store, multiples of 1 / n in [0, L / n]; by default the first and the last.
    save_every
        Store every so many layers, and the last, instead.
    radius
        Paths stop at the first layer where the Frobenius norm of V reaches the radius, and keep
        that value; by default 10^4 times the norm of `v0`.
    device, dtype
        'cpu' or 'cuda', 'float64' or 'float32'.
    chunk, memory
        Samples simulated together (by default chosen to fit `memory` bytes). They do not change
        the result.
    progress
        Whether to show a bar; by default if the standard error stream is a terminal.

    Returns
    -------
    xarray.Dataset with `V` (time, sample, row, col), `stopping_time` (sample), which is infinite
    for paths that did not stop, and everything needed to run it again in `attrs`.

    Raises
    ------
    ValueError
        If an argument is outside its range; the sentence names it.
    """
    check_chain(layer)
    check_count("width", width)
    check_count("depth", depth)
    request = en.make_ensemble(
        layer, v0, width=width, steps=depth, dt=1.0 / width, samples=samples, seed=seed,
        times=times, save_every=save_every, radius=radius, device=device, dtype=dtype,
        chunk=chunk, memory=memory,
    )  # fmt: skip
    m = request.tokens
    compiled = request.compiled_device and all(
        has_compiled_chain(block, m, width) for block in request.blocks
    )
    per_sample = 8.0 * 40 * m * m + 16 * m * 64
    size = en.chunk_size(request, per_sample, _PREFERRED_CHUNK, LANES, _SMALLEST_ENTRIES // m**2)
    simulate = _compiled_chunk(request, width) if compiled else _torch_chunk(request, width)
    v, stopping = en.run_chunks(request, size, simulate, progress, "chain")
    return make_result("chain", request, v, stopping, {"width": width, "depth": depth})


def _compiled_chunk(request: en.Ensemble, width: int) -> en.ChunkFunction:
    key = stream_key(request.seed, "chain")
    start = factor(request.v0)

    def simulate(
        first: int,
        count: int,
        v: NDArray[np.float64],
        stopping: NDArray[np.float64],
        tick: Callable[[], None],
    ) -> None:
        F = en.to_tiles(start, count)
        alive = np.ones((len(F), LANES))
        stopped_at = np.full((len(F), LANES), np.inf)

        def advance(step: int) -> None:
            for i, block in enumerate(request.blocks):
                block.chain_tiles(F, alive, width, key, first, step, i * SLOTS_PER_BLOCK)
            stop_outside(F, alive, stopped_at, request.radius, (step + 1) * request.dt)

        en.march(request, v, tick, advance, lambda: en.gram(en.from_tiles(F, count)))
        stopping[:] = stopped_at.reshape(-1)[:count]

    return simulate


def _torch_chunk(request: en.Ensemble, width: int) -> en.ChunkFunction:
    key = stream_key(request.seed, "chain")
    groups = request.groups

    def simulate(
        first: int,
        count: int,
        v: NDArray[np.float64],
        stopping: NDArray[np.float64],
        tick: Callable[[], None],
    ) -> None:
        samples = torch.arange(first, first + count, device=request.device)
        start = torch.tensor(factor(request.v0), dtype=request.dtype, device=request.device)
        F = start.expand(count, -1, -1)
        # With groups of columns the state is their factors; F is that of all columns.
        parts = start.expand(count, groups, -1, -1)
        stopped_at = torch.full((count,), torch.inf, dtype=torch.float64, device=request.device)

        def advance(step: int) -> None:
            nonlocal F, parts
            new = parts if groups > 1 else F
            for i, block in enumerate(request.blocks):
                draws = Draws(key, samples, step, i * SLOTS_PER_BLOCK, request.dtype)
                if groups > 1:
                    new = block.grouped_chain_step(new, width, draws)
                else:
                    new = block.chain_step(new, width, draws)
            alive = stopped_at.isinf()
            if groups > 1:
                parts = torch.where(alive[:, None, None, None], new, parts)
                new = total_factor(parts)
            F = torch.where(alive[:, None, None], new, F)
            # No boolean index, for which the host would wait for the device.
            stops = alive & (en.norms(F) >= request.radius)
            stopped_at.copy_(torch.where(stops, (step + 1) * request.dt, stopped_at))

        en.march(request, v, tick, advance, lambda: en.gram(F.double().cpu().numpy()))
        stopping[:] = stopped_at.cpu().numpy()

    return simulate
