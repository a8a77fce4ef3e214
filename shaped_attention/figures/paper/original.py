"""The figures of "The Shaped Transformer" (arXiv 2306.17759), reproduced.

Networks are simulated by the exact chain (the law of networks with real weights). Parameters are
those printed with the figures. The number of tokens m and the key size n_k are not printed; here
n_k is the width and m is an argument. Every function runs the samplers and returns the data of its
figure as a Dataset; `shaped_attention.figures.paper.plots` draws them.

Here the depth is L, which the paper calls d, and tokens are counted from 0: rho_01 is the paper's
rho_12.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import xarray as xr

from shaped_attention.blocks import Normalised, ShapedAttention, ShapedMLP
from shaped_attention.blocks.base import Layer
from shaped_attention.checks import argument_error
from shaped_attention.numerics.covariance import correlations, equicorrelated
from shaped_attention.numerics.seeds import derived_seed
from shaped_attention.results.over_grid import over_grid
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.chain import simulate_chain
from shaped_attention.samplers.sde import integrate_sde
from shaped_attention.statistics.stopping import stopping_map

RHO_0 = 0.2
"""Initial correlation of all figures."""

Shown = Mapping[str, tuple[Callable[[np.ndarray], np.ndarray], str]]
"""Functions of V and their symbols, by the name of a variable."""


def relu(gamma: float, width: int) -> ShapedMLP:
    """Return the unshaped ReLU at this width: s_- = 1 + c_- / sqrt n = 0."""
    return ShapedMLP(gamma, 0.0, -math.sqrt(width))


def softmax_attention(gamma: float) -> ShapedAttention:
    """Return attention without identity and centring, at temperature sqrt(n_k)."""
    return ShapedAttention(gamma, identity=False, centring=False, scaled_temperature=False)


@recorded()
def figure_1_left(
    tokens: int = 4,
    width: int = 200,
    depth: int = 150,
    samples: int = 2**12,
    seed: int = 0,
    progress: bool | None = None,
) -> xr.Dataset:
    """Correlation of two tokens against the layer: shaped, unshaped, and unshaped Pre-LN.

    gamma = 1/sqrt 8, tau_0 = 1, rho_0 = 0.2; alternating attention and MLP blocks. Returns
    `correlation` (model, layer, level): mean over the pairs of tokens; quantiles over samples.
    """
    gamma = 1 / math.sqrt(8)
    plain = [softmax_attention(gamma), relu(gamma, width)]
    models: dict[str, Layer] = {
        "shaped": [ShapedAttention(gamma), ShapedMLP(gamma)],
        "unshaped": plain,
        "unshaped, Pre-LN": [Normalised(block) for block in plain],
    }
    shown: Shown = {"correlation": (correlations, r"$\rho_{a,b}$")}
    return _curves(models, shown, tokens, width, depth, samples, seed, progress)


@recorded()
def figure_1_right(
    tokens: int = 4,
    width: int = 200,
    depth: int = 150,
    samples: int = 2**15,
    seed: int = 0,
    progress: bool | None = None,
) -> xr.Dataset:
    """Samples of rho_01 and V_01 at the last layer: chain and SDE (also figure 7).

    gamma = 1/sqrt 8, tau_0 = 1, V_0,ab = 0.2, SDE step 0.01. It shows attention alone and the whole
    transformer, whose SDE the paper states. Returns the variables of `densities`.
    """
    gamma = 1 / math.sqrt(8)
    models: dict[str, Layer] = {
        "attention": ShapedAttention(gamma),
        "attention and MLP": [ShapedAttention(gamma), ShapedMLP(gamma)],
    }
    v0 = equicorrelated(tokens, RHO_0)
    return densities(models, v0, width, depth, samples, seed, progress)


@recorded()
def figure_2(
    gammas: Sequence[float] | None = None,
    tokens: int = 2,
    width: int = 300,
    depth: int = 100,
    samples: int = 2**15,
    seed: int = 0,
    progress: bool | None = None,
) -> xr.Dataset:
    """Samples of rho_01 for several gamma, MLP alone, chain and SDE; c_+ = 0, c_- = -1.

    gamma = 1 and 1/sqrt d are among the default values. Returns the variables of `densities`,
    with gamma in place of the model; the 95th percentile of |rho| against gamma follows from it.
    """
    values = [1 / math.sqrt(depth), 0.25, 0.5, 0.75, 1.0] if gammas is None else gammas
    models: dict[str, Layer] = {f"{gamma:.3g}": ShapedMLP(float(gamma)) for gamma in values}
    v0 = equicorrelated(tokens, RHO_0)
    data = densities(models, v0, width, depth, samples, seed, progress)
    return data.assign_coords(gamma=("model", np.asarray(values, dtype=float)))


@recorded()
def figure_3(
    tokens: int = 4,
    width: int = 300,
    depth: int = 150,
    samples: int = 2**13,
    seed: int = 0,
    progress: bool | None = None,
) -> xr.Dataset:
    """Mean |rho| and median |V_ab| against the layer, with one modification of attention removed.

    gamma = 1/sqrt 2, tau_0 = 1, rho_0 = 0.2. Returns `correlation` and `covariance` (model, layer,
    level), means over the pairs of tokens; quantiles over samples.
    """
    gamma = 1 / math.sqrt(2)
    models: dict[str, Layer] = {
        "shaped": ShapedAttention(gamma),
        "no identity": ShapedAttention(gamma, identity=False),
        "no centring": ShapedAttention(gamma, centring=False),
        "no temperature": ShapedAttention(gamma, scaled_temperature=False),
    }
    shown: Shown = {
        "correlation": (lambda v: np.abs(correlations(v)), r"$|\rho_{a,b}|$"),
        "covariance": (np.abs, "$|V_{a,b}|$"),
    }
    return _curves(models, shown, tokens, width, depth, samples, seed, progress)


@recorded()
def figure_4(
    gammas: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    tau0s: Sequence[float] = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0),
    tokens: int = 4,
    width: int = 200,
    samples: int = 100,
    seed: int = 0,
    progress: bool | None = None,
) -> xr.Dataset:
    """Times at which an eigenvalue leaves [10^-4, 10^4], capped at 1, over gamma and tau_0.

    n = L = 200, tokens of norm 10 sqrt n (V_aa = 100), correlation 0.2 (figures 4 and 8). Returns
    the variables of `shaped_attention.statistics.stopping.stopping_map`.
    """
    v0 = equicorrelated(tokens, RHO_0, 100.0)
    return stopping_map(
        v0, gammas, tau0s, width=width, samples=samples, seed=seed, progress=progress
    )


def _curves(
    models: dict[str, Layer],
    shown: Shown,
    tokens: int,
    width: int,
    depth: int,
    samples: int,
    seed: int,
    progress: bool | None,
) -> xr.Dataset:
    """Return quantiles (model, layer, level) of functions of V, meaned over pairs of tokens."""
    v0 = equicorrelated(tokens, RHO_0)

    def cell(model: str) -> xr.Dataset:
        derived = derived_seed(seed, {"study": "curves", "model": model})
        result = _chain(models[model], v0, width, depth, samples, derived, save_every=5)
        v = result["V"].values
        curves = {
            variable: (
                ("layer", "level"), quantiles(mean_off_diagonal(function(v))),
                {"long_name": rf"{symbol}, mean over pairs $a \neq b$"},
            )
            for variable, (function, symbol) in shown.items()
        }  # fmt: skip
        layers = result["time"].values * width
        return xr.Dataset(curves, {"layer": layers, "level": ["5 %", "median", "95 %", "mean"]})

    return over_grid(cell, {"model": list(models)}, progress=progress)


def _chain(
    layer: Layer,
    v0: np.ndarray,
    width: int,
    depth: int,
    samples: int,
    seed: int,
    save_every: int | None = None,
) -> xr.Dataset:
    # Unshaped networks grow without bound; what matters here stays far below this radius.
    return simulate_chain(
        layer, v0, width=width, depth=depth, samples=samples, seed=seed, save_every=save_every,
        radius=1e8, progress=False,
    )  # fmt: skip


def densities(
    models: dict[str, Layer],
    v0: np.ndarray,
    width: int,
    depth: int,
    samples: int,
    seed: int,
    progress: bool | None = False,
) -> xr.Dataset:
    """Draw samples of rho_01 and V_01 at the last layer of chains, and at T = L / n of their SDEs.

    The seed of a model is derived from `seed` and its name. Returns `rho`, `covariance` and
    `stopped` (model, sampler, sample), the last where |V| has reached 10^8: the law of a path that
    explodes before T is not that of V at T.
    """
    horizon = depth / width
    step = horizon / math.ceil(100 * horizon)
    if len(v0) < 2:
        raise argument_error("tokens", "at least 2 for a correlation", len(v0))

    def cell(model: str) -> xr.Dataset:
        layer, derived = models[model], derived_seed(seed, {"study": "densities", "model": model})
        chain = _chain(layer, v0, width, depth, samples, derived)
        limit = integrate_sde(
            layer, v0, horizon=horizon, step=step, samples=samples, seed=derived, radius=1e8,
            progress=False,
        )  # fmt: skip
        v = np.stack([run["V"].values[-1] for run in (chain, limit)])
        stopped = np.isfinite([run["stopping_time"].values for run in (chain, limit)])
        values = {"rho": correlations(v)[..., 0, 1], "covariance": v[..., 0, 1], "stopped": stopped}
        return xr.Dataset(
            {name: (("sampler", "sample"), value) for name, value in values.items()},
            {"sampler": ["chain", "SDE"]},
        )

    return over_grid(cell, {"model": list(models)}, progress=progress)


def mean_off_diagonal(matrices: np.ndarray) -> np.ndarray:
    """Return the mean over the pairs of distinct tokens (...) of matrices (..., m, m)."""
    m = matrices.shape[-1]
    if m < 2:
        raise argument_error("tokens", "at least 2 for a correlation", m)
    total = matrices.sum((-2, -1)) - np.trace(matrices, axis1=-2, axis2=-1)
    return total / (m * (m - 1))


def quantiles(values: np.ndarray) -> np.ndarray:
    """Return 5 %, median, 95 % and mean (time, 4) of values (time, sample)."""
    return np.stack([*np.quantile(values, [0.05, 0.5, 0.95], axis=-1), values.mean(-1)], axis=-1)
