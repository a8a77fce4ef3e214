"""Figures beyond the paper: the whole family of blocks, with distances to the SDE by width.

As in `original`, networks are simulated by the exact chain, and every function returns the data.
tau_0 = 1 and rho_0 = 0.2 unless stated otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from shaped_attention.blocks import ShapedAttention, ShapedMLP
from shaped_attention.blocks.base import Layer
from shaped_attention.figures.paper.original import RHO_0, densities
from shaped_attention.numerics.covariance import equicorrelated
from shaped_attention.numerics.seeds import derived_seed
from shaped_attention.progress import progress_bar
from shaped_attention.results.over_grid import over_grid
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.chain import simulate_chain
from shaped_attention.samplers.sde import integrate_sde
from shaped_attention.statistics.convergence import convergence
from shaped_attention.statistics.distances import ks_distance
from shaped_attention.statistics.rates import distances_by_width

SHOWN = "log det V"
"""The observable whose errors are drawn; the others are in the data."""


@recorded()
def figure_transformer(
    tokens: int = 4, samples: int = 2**16, seed: int = 0, progress: bool | None = None
) -> xr.Dataset:
    """Attention, MLP and both alternating, gamma = 1/2, with the SDE of the whole transformer."""
    attention, mlp = ShapedAttention(0.5), ShapedMLP(0.5)
    models: dict[str, Layer] = {
        "attention": attention,
        "MLP": mlp,
        "attention and MLP": [attention, mlp],
    }
    return _family(models, tokens, (10, 20, 40, 80), samples, seed, progress)


@recorded()
def figure_causal(
    tokens: int = 4, samples: int = 2**15, seed: int = 0, progress: bool | None = None
) -> xr.Dataset:
    """Causal against full attention, gamma = 1/sqrt 2 so that the mask has a visible effect."""
    gamma = 1 / math.sqrt(2)
    models: dict[str, Layer] = {
        "full": ShapedAttention(gamma),
        "causal": ShapedAttention(gamma, mask="causal"),
    }
    return _family(models, tokens, (10, 20, 40, 80), samples, seed, progress)


@recorded()
def figure_heads(
    tokens: int = 2, samples: int = 2**15, seed: int = 0, progress: bool | None = None
) -> xr.Dataset:
    """1, 2 and 8 heads without an output projection, gamma = 1/sqrt 2, tau_0 = 1.

    Heads average out the noise of the scores and leave the drift. Two tokens by default: a head
    needs columns for all of them, and the smallest width is 8 heads of 6 columns. Returns the
    variables of `densities`, and the strong error of `convergence` with its rate. At the largest
    width the attribute `apart` is a 95 % upper bound of the KS distance between rho_01 of 1 and of
    8 heads, in chains that have not reached the radius, rounded up to hundredths, and `farther` the
    ratio of their strong errors.
    """
    models: dict[str, Layer] = {
        f"H = {heads}": ShapedAttention(1 / math.sqrt(2), heads=heads) for heads in (1, 2, 8)
    }
    widths = tuple(8 * (2 * tokens + 2) * k for k in (1, 2, 4))
    data = _family(models, tokens, widths, samples, seed, progress, 2**14, ("strong",))
    return data.assign_attrs(_of_heads(data))


def _of_heads(data: xr.Dataset) -> dict[str, float]:
    """Return how far 1 and 8 heads are apart."""
    chains = data.sel(sampler="chain")
    one, _, eight = chains["rho"].where(~chains["stopped"]).to_numpy()
    bound = ks_distance(one[np.isfinite(one)], eight[np.isfinite(eight)]).high
    error = data["strong"].isel(width=-1).to_numpy()
    return {"apart": math.ceil(100.0 * bound) / 100.0, "farther": float(error[-1] / error[0])}


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


_ENDINGS = ("", "_error", "_rate", "_rate_error")


def _family(
    models: dict[str, Layer],
    tokens: int,
    widths: tuple[int, ...],
    samples: int,
    seed: int,
    progress: bool | None,
    pairs: int = 2**12,
    errors: tuple[str, ...] = ("distance", "weak", "strong"),
) -> xr.Dataset:
    """Return samples of rho_01 and V_01 at the largest width, and errors by width, all by model.

    To the variables of `densities` it adds those of `distances_by_width` if "distance" is among the
    errors, and the weak and strong errors of `convergence` that are, with their fitted rates.
    """
    v0, horizon = equicorrelated(tokens, RHO_0), 0.5
    width = widths[-1]
    depth, drawn = round(width * horizon), min(samples, 2**15)
    kinds = [f"{kind}{end}" for kind in errors if kind != "distance" for end in _ENDINGS]
    common: dict[str, Any] = {"horizon": horizon, "seed": seed, "progress": False}
    found = []
    with progress_bar("parts", progress, total=1 + len(models)) as bar:
        samples_of = densities(models, v0, width, depth, drawn, seed, False)
        bar.update()
        for layer in models.values():
            coupled = convergence(layer, v0, widths, samples=min(samples, pairs), **common)
            parts = [coupled[kinds]]
            if "distance" in errors:
                parts.append(distances_by_width(layer, v0, widths, samples=samples, **common))
            found.append(xr.merge(parts, combine_attrs="drop"))
            bar.update()
    model = xr.DataArray(list(models), dims="model", name="model")
    by_model = xr.concat(found, model, combine_attrs="drop")
    return xr.merge([samples_of, by_model], combine_attrs="override").assign_attrs(
        horizon=horizon, shown=SHOWN
    )
