"""Clustering with and without the noise of random value matrices, in one figure.

The attracting network with noise of strength sigma (`shaped_attention.sphere.noisy_layers`) is
drawn alongside the layer-normalised shaped chain, X' = N(lambda X + gamma A X W_V / sqrt n), whose
value matrices have mean 0 instead of I. Its time is gamma^2 l / n, the variance of its noise, where
that of the noisy network is sigma^2 t / d.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from shaped_attention.blocks.attention import ShapedAttention
from shaped_attention.blocks.normalised import Normalised
from shaped_attention.checks import check_count, check_inside, check_positive
from shaped_attention.progress import progress_bar
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.chain import simulate_chain
from shaped_attention.sphere.clusters import close_pairs
from shaped_attention.sphere.dynamics import SphereAttention
from shaped_attention.sphere.flow import Observe, sphere_flow
from shaped_attention.sphere.noisy_layers import noisy_chain, noisy_network
from shaped_attention.sphere.starts import uniform_start

MEASURES = ("mean cosine", "close pairs")
_BAND = (0.1, 0.9)
_SHAPED_TIMES = 60


@recorded()
def clustering_with_noise(
    dimensions: Sequence[int] = (2, 512),
    sigmas: Sequence[float] = (0.0, 0.5, 1.0, 2.0),
    *,
    tokens: int = 16,
    beta: float = 1.0,
    horizon: float = 6.0,
    step: float = 0.04,
    delta: float = 0.01,
    samples: int = 256,
    network_samples: int = 32,
    shaped_width: int = 64,
    shaped_samples: int = 64,
    gamma: float = 0.5**0.5,
    tau0: float = 1.0,
    seed: int = 0,
    progress: bool | None = None,
) -> xr.Dataset:
    """Compute the mean cosine and the fraction of close pairs over time, for several noise levels.

    Parameters
    ----------
    dimensions
        Dimensions d of the ambient space, one for each panel.
    sigmas
        Strengths sigma of the noise.
    tokens
        Number of tokens N >= 2.
    beta
        Inverse temperature beta of softmax attention (SA, V = I).
    horizon
        Last time, rounded to a multiple of the step.
    step
        Step h between layers.
    delta
        A pair is close if its cosine is at least 1 - delta; strictly between 0 and 1.
    samples
        Number of uniform initial conditions, each followed by `noisy_chain`.
    network_samples
        Number of explicit networks, which start from the first of these initial conditions.
    shaped_width
        Width n >= N of the shaped chain.
    shaped_samples
        Number of samples of the shaped chain, all from one uniform initial condition in R^n.
    gamma
        Weight of the attention branch of the shaped chain, which ends at time
        gamma^2 l / n = horizon.
    tau0
        Temperature of the shaped chain.
    seed
        Seed of the initial conditions and of the noise (integer >= 0), the same for all sigma.
    progress
        Whether to show a progress bar; None shows it if the error stream is a terminal.

    Returns
    -------
    xarray.Dataset with the mean and the 10 and 90 % quantiles over samples of two measures of a
    sample (measure): the mean cosine over pairs, and the fraction of close pairs:

    - `mean`, `low`, `high` (measure, dimension, sigma, time), of `noisy_chain`;
    - `flow` (measure, dimension, time): the mean of `sphere_flow` from the same initial conditions;
    - `network`, `network_error` (measure, dimension, sigma, mark): mean and standard error of
      `noisy_network` at the times `mark_time` (mark);
    - `shaped_mean`, `shaped_low`, `shaped_high` (measure, shaped_time), of the shaped chain.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    check_count("tokens", tokens, lowest=2)
    check_count("network_samples", network_samples, lowest=2)
    check_count("shaped_width", shaped_width)
    check_count("shaped_samples", shaped_samples)
    for name, value in (("horizon", horizon), ("step", step), ("gamma", gamma)):
        check_positive(name, value)
    check_inside("delta", delta)
    if network_samples > samples:
        raise ValueError(
            f"network_samples={network_samples!r}: at most samples={samples!r} is needed"
        )
    layers = round(horizon / step)
    if layers < 1:
        raise ValueError(f"step={step!r}: at most the horizon {horizon!r} is needed")
    attention = SphereAttention(beta)
    mark_every = -(-layers // 4)

    def measured(gram: Float[Tensor, "B N N"]) -> Float[Tensor, "B 2"]:
        rows, columns = torch.triu_indices(tokens, tokens, 1, device=gram.device)
        return torch.stack([gram[:, rows, columns].mean(-1), close_pairs(gram, delta)], dim=-1)

    chains, flows, networks, errors = [], [], [], []
    runs = 2 * len(dimensions) * len(sigmas) + len(dimensions) + 1
    with progress_bar("runs", progress, total=runs) as bar:
        for d in dimensions:
            start = uniform_start(tokens, d, samples, seed)
            in_space = torch.nn.functional.pad(start[:network_samples], (0, d - start.shape[-1]))
            for sigma in sigmas:
                chain = noisy_chain(
                    attention, start, d, sigma, step, layers,
                    seed=seed, save_every=1, observe=measured,
                )  # fmt: skip
                chains.append(_bands(chain["observed"].values))
                bar.update()
                network = noisy_network(
                    attention, in_space, sigma, step, layers,
                    seed=seed, save_every=mark_every, observe=measured,
                )  # fmt: skip
                found = network["observed"].values
                networks.append(found.mean(1))
                errors.append(found.std(1, ddof=1) / network_samples**0.5)
                bar.update()
            flow = sphere_flow(attention, start, chain["time"].values.tolist(), observe=measured)
            flows.append(flow["observed"].values.mean(1))
            bar.update()
        shaped_time, shaped = _shaped_chain(
            gamma, tau0, uniform_start(tokens, shaped_width, 1, seed)[0], shaped_width,
            horizon, shaped_samples, seed, measured,
        )  # fmt: skip
        bar.update()
    grid = (len(dimensions), len(sigmas))
    bands = _by_curve(chains, grid)
    coordinates = ("measure", "dimension", "sigma")
    return xr.Dataset(
        {
            "mean": ((*coordinates, "time"), bands[..., 0]),
            "low": ((*coordinates, "time"), bands[..., 1]),
            "high": ((*coordinates, "time"), bands[..., 2]),
            "flow": (("measure", "dimension", "time"), np.moveaxis(np.array(flows), -1, 0)),
            "network": ((*coordinates, "mark"), _by_curve(networks, grid)),
            "network_error": ((*coordinates, "mark"), _by_curve(errors, grid)),
            "mark_time": ("mark", network["time"].values),
            "shaped_mean": (("shaped_time", "measure"), shaped[..., 0]),
            "shaped_low": (("shaped_time", "measure"), shaped[..., 1]),
            "shaped_high": (("shaped_time", "measure"), shaped[..., 2]),
        },
        coords={
            "measure": list(MEASURES), "dimension": list(dimensions), "sigma": list(sigmas),
            "time": chain["time"].values, "shaped_time": shaped_time,
        },
    )  # fmt: skip


def _shaped_chain(
    gamma: float,
    tau0: float,
    start: Float[Tensor, "N r"],
    width: int,
    horizon: float,
    samples: int,
    seed: int,
    measured: Observe,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return times gamma^2 l / n (time) of the shaped chain, and bands (time, measure, 3)."""
    layer = Normalised(ShapedAttention(gamma, tau0), place="after")
    depth = max(1, round(horizon * width / gamma**2))
    result = simulate_chain(
        layer, (start @ start.mT).numpy(), width=width, depth=depth, samples=samples, seed=seed,
        save_every=max(1, depth // _SHAPED_TIMES), progress=False,
    )  # fmt: skip
    found = np.stack([measured(torch.from_numpy(v)).numpy() for v in result["V"].values])
    return gamma**2 * result["time"].values, _bands(found)


def _bands(found: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean and quantiles (time, measure, 3) over samples of (time, sample, measure)."""
    low, high = np.quantile(found, _BAND, axis=1)
    return np.stack([found.mean(1), low, high], axis=-1)


def _by_curve(found: list[NDArray[np.float64]], grid: tuple[int, int]) -> NDArray[np.float64]:
    """Stack arrays (time, measure, ...) of curves to (measure, dimension, sigma, time, ...)."""
    stacked = np.stack(found)
    return np.moveaxis(stacked.reshape(*grid, *stacked.shape[1:]), 3, 0)
