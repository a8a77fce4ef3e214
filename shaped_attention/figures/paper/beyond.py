"""Figures beyond the paper: effects of the sizes of a layer.

As in `original`, networks are simulated by the exact chain, and every function returns the data.
tau_0 = 1 and rho_0 = 0.2 unless stated otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from shaped_attention.blocks import ShapedAttention
from shaped_attention.blocks.base import Layer
from shaped_attention.figures.paper.original import RHO_0, densities
from shaped_attention.numerics.covariance import equicorrelated
from shaped_attention.numerics.seeds import derived_seed
from shaped_attention.progress import progress_bar
from shaped_attention.results.over_grid import over_grid
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.chain import simulate_chain
from shaped_attention.samplers.sde import integrate_sde


@recorded()
def figure_tokens(
    tokens: Sequence[int] = (2, 4, 8, 16),
    width: int = 200,
    depth: int = 100,
    samples: int = 2**14,
    seed: int = 0,
    progress: bool | None = None,
) -> xr.Dataset:
    """Effect of the number of tokens m: rho_01 and V_01 for m = 2, 4, 8 and 16.

    gamma = 0.6 and tau_0 = 0.5, so that the scores have a visible effect. Returns the variables of
    `original.densities`, with m as the model.
    """
    block = ShapedAttention(0.6, 0.5)
    parts = [
        densities({f"m = {m}": block}, equicorrelated(m, RHO_0), width, depth, samples, seed, False)
        for m in progress_bar("models", progress, tokens)
    ]
    return xr.concat(parts, "model", combine_attrs="drop_conflicts")


@recorded()
def figure_keys(
    tokens: int = 4,
    width: int = 200,
    depth: int = 100,
    samples: int = 2**15,
    seed: int = 0,
    progress: bool | None = None,
) -> xr.Dataset:
    """Effect of the key size n_k: none in the limit, and little at finite width.

    Like `figure_tokens`, for n_k = 1, 8 and n. The SDE is the same for all, so that its samples of
    the models are samples of one law.
    """
    models: dict[str, Layer] = {
        rf"$n_k$ = {keys}": ShapedAttention(0.6, 0.5, key_size=keys) for keys in (1, 8, width)
    }
    data = densities(models, equicorrelated(tokens, RHO_0), width, depth, samples, seed, progress)
    return data.assign_coords(key_size=("model", [1, 8, width]))


@recorded()
def figure_eigenvalues(
    gammas: Sequence[float] = (0.02, 0.05, 0.2),
    tokens: int = 4,
    width: int = 200,
    samples: int = 100,
    seed: int = 0,
    progress: bool | None = None,
) -> xr.Dataset:
    """Largest eigenvalue of V against time from V_aa = 100, far from the limit (figures 4, 8).

    The SDE's paths explode where the softmax of a network saturates; wider networks follow later.

    n = L = 200, tau_0 = 1, tokens of norm 10 sqrt n (V_aa = 100), stopped at |V| = 10^5. Returns
    `largest` (sampler, gamma, time, sample), which is 10^5 once a path has stopped: the step beyond
    the radius, which a path keeps, is not an eigenvalue of the solution.
    """
    v0 = equicorrelated(tokens, RHO_0, 100.0)

    def cell(gamma: float) -> xr.Dataset:
        block = ShapedAttention(gamma)
        derived = derived_seed(seed, {"study": "eigenvalues", "gamma": gamma})
        chain = simulate_chain(
            block, v0, width=width, depth=width, samples=samples, seed=derived,
            save_every=max(1, width // 100), radius=1e5, progress=False,
        )  # fmt: skip
        times = chain["time"].to_numpy()
        limit = integrate_sde(
            block, v0, horizon=1.0, step=0.1 / width, samples=samples, seed=derived,
            times=times.tolist(), radius=1e5, progress=False,
        )  # fmt: skip
        largest = []
        for run in (chain, limit):
            values = np.linalg.eigvalsh(run["V"].to_numpy())[..., -1]
            stopped = run["stopping_time"].to_numpy() <= run["time"].to_numpy()[:, None] + 1e-9
            largest.append(np.where(stopped, 1e5, values))
        coords = {"sampler": ["chain", "SDE"], "time": times}
        return xr.Dataset({"largest": (("sampler", "time", "sample"), np.array(largest))}, coords)

    data = over_grid(cell, {"gamma": [float(gamma) for gamma in gammas]}, progress=progress)
    return data.transpose("sampler", ...)
