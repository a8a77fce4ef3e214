"""Data of two figures: metastable clusters, and energies that rise or fall to their extremes.

For large beta tokens first gather in several clusters, which merge only after a time that grows
exponentially with beta: such states are metastable. The energy of SA and USA rises throughout
towards that of one cluster; with V = -I it falls towards that of the uniform law (Geshkovski,
Letrouit, Polyanskiy and Rigollet, arXiv 2312.10794).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
import xarray as xr
from numpy.typing import ArrayLike

from shaped_attention.checks import check_count, check_inside, check_values
from shaped_attention.progress import progress_bar
from shaped_attention.results.over_grid import over_grid
from shaped_attention.results.provenance import recorded
from shaped_attention.sphere.circle import angles_of
from shaped_attention.sphere.clusters import cluster_count, order_parameter, spectral_gap
from shaped_attention.sphere.dynamics import SphereAttention
from shaped_attention.sphere.flow import checked_times, follow, sphere_flow
from shaped_attention.sphere.starts import uniform_start
from shaped_attention.sphere.theory import dirac_energy, uniform_energy

KINDS = ("SA", "USA", "repulsion")
"""The flows of `energy_curves`; repulsion is SA with V = -I."""


@recorded()
def metastability(
    betas: Sequence[float] = (4.0, 9.0),
    times: ArrayLike | None = None,
    *,
    tokens: int = 32,
    dimension: int = 2,
    delta: float = 1e-3,
    samples: int = 32,
    seed: int = 0,
    tolerance: float = 1e-3,
    normalised: bool = True,
    progress: bool | None = None,
) -> xr.Dataset:
    """Compute the clusters over time from uniform tokens, the same for each beta.

    Parameters
    ----------
    betas
        Inverse temperatures beta.
    times
        Increasing times >= 0; by default 0 and 100 log-spaced times from 0.1 to 10^4.
    tokens
        Number of tokens N >= 2.
    dimension
        Dimension d of the ambient space; single tokens are drawn only for d = 2.
    delta
        Two tokens are linked if their cosine is at least 1 - delta; strictly between 0 and 1.
    samples
        Number of realisations.
    seed
        Seed of the random numbers (integer >= 0).
    tolerance
        Largest local error of a token per step of the flow.
    normalised
        Whether attention is normalised by its sum (SA) or not (USA).
    progress
        Whether to show a progress bar; None shows it if the error stream is a terminal.

    Returns
    -------
    xarray.Dataset with

    - `clusters`, `order`, `gap` (beta, time, sample): `cluster_count`, `order_parameter` and
      `spectral_gap`;
    - `angle` (beta, time, token), for d = 2 only: angles in [-pi, pi] of the first realisation.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    every = [SphereAttention(float(beta), normalised) for beta in _checked_betas(betas)]
    default = np.concatenate([[0.0], np.logspace(-1.0, 4.0, 100)])
    at = checked_times(default if times is None else times)
    check_count("tokens", tokens, lowest=2)
    check_inside("delta", delta)
    start = uniform_start(tokens, dimension, samples, seed)

    def observe(x: torch.Tensor) -> torch.Tensor:
        gram = x @ x.mT
        kept = [cluster_count(gram, delta).double(), order_parameter(gram), spectral_gap(gram)]
        found = torch.stack(kept, dim=-1)
        if dimension != 2:
            return found
        return torch.cat([found, angles_of(x)], dim=-1)

    found = np.stack(
        [
            follow(each.field, start, at.tolist(), observe, tolerance, autonomous=True)
            for each in progress_bar("betas", progress, every)
        ]
    )
    names = ("clusters", "order", "gap")
    data = xr.Dataset(
        {name: (("beta", "time", "sample"), found[..., k]) for k, name in enumerate(names)},
        coords={"beta": list(betas), "time": at},
        attrs={"attention": "SA" if normalised else "USA"},
    )
    if dimension == 2:
        data["angle"] = (("beta", "time", "token"), found[:, :, 0, 3:])
    return data


@recorded()
def energy_curves(
    betas: Sequence[float] = (1.0, 4.0, 9.0),
    times: ArrayLike | None = None,
    *,
    tokens: int = 32,
    dimension: int = 3,
    samples: int = 50,
    seed: int = 0,
    tolerance: float = 1e-4,
    progress: bool | None = None,
) -> xr.Dataset:
    """Compute energies over time under SA, USA and SA with V = -I, from the same uniform tokens.

    Near one cluster USA is e^beta times as fast as SA. Its energies are therefore taken at
    e^{-beta} times `time`, so all three fit on one axis.

    Parameters
    ----------
    betas
        Inverse temperatures beta.
    times
        Increasing times >= 0; by default 0 and 80 log-spaced times from 0.01 to 10^3.
    tokens
        Number of tokens N.
    dimension
        Dimension d of the ambient space.
    samples
        Number of realisations.
    seed
        Seed of the random numbers (integer >= 0).
    tolerance
        Largest local error of a token per step of the flow.
    progress
        Whether to show a progress bar; None shows it if the error stream is a terminal.

    Returns
    -------
    xarray.Dataset with `energy` (kind, beta, time, sample) for the kinds "SA", "USA" and
    "repulsion", and the extremes over all laws on the sphere, `uniform` and `dirac` (beta).

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    checked = _checked_betas(betas)
    default = np.concatenate([[0.0], np.logspace(-2.0, 3.0, 80)])
    at = checked_times(default if times is None else times)
    start = uniform_start(tokens, dimension, samples, seed)

    def cell(kind: str, beta: float) -> xr.Dataset:
        attention = SphereAttention(beta, kind != "USA", kind == "repulsion")
        own = at * math.exp(-beta) if kind == "USA" else at
        flow = sphere_flow(
            attention, start, own.tolist(), observe=attention.energy, tolerance=tolerance
        )
        return xr.Dataset({"energy": (("time", "sample"), flow["observed"].to_numpy())})

    found = over_grid(cell, {"kind": KINDS, "beta": checked}, progress=progress).assign_coords(
        time=at
    )
    return found.assign(
        uniform=("beta", [uniform_energy(beta, dimension) for beta in checked]),
        dirac=("beta", [dirac_energy(beta) for beta in checked]),
    )


def _checked_betas(betas: Sequence[float]) -> list[float]:
    check_values("betas", betas)
    return [SphereAttention(beta).beta for beta in betas]
